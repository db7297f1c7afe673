//! What is on the disk, what is on its way there, and which operation fails. It knows no pointer and opens no file.

use std::collections::BTreeMap;

/// Something that changes what the disk holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Bytes are written.
    Write,
    /// A file's size is set.
    Truncate,
    /// What was written is brought to the disk.
    Sync,
    /// A file's name is taken away.
    Delete,
}

/// One operation that was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Operation {
    /// What it is.
    pub kind: Kind,
    /// The file's name in its folder.
    pub file: String,
}

/// How an operation fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fault {
    /// An I/O error; nothing of a write is done.
    Error,
    /// An I/O error; the first half of a write is done. Anything else fails as with `Error`.
    Short,
    /// No space; the first half of a write is done. Anything else fails as with `Error`.
    Full,
    /// The power goes: this operation is perhaps done, and it and all later ones fail, reading and locking too.
    Off,
}

/// Which operation fails, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Plan {
    /// Its number, from 1, counted since the file system was registered.
    pub at: usize,
    /// How.
    pub fault: Fault,
    /// All later operations of the same kind fail like it.
    pub lasting: bool,
}

/// How an operation fails and what it does all the same.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Failed {
    pub(crate) fault: Fault,
    pub(crate) done: Done,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Done {
    Nothing,
    /// Of a write; nothing of anything else.
    Half,
    /// Nobody will ask before the power is back.
    Perhaps,
}

/// A change of a file that is not in its base.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    /// The operation's number.
    pub(crate) at: usize,
    pub(crate) what: What,
    pub(crate) fate: Fate,
}

#[derive(Debug, Clone)]
pub(crate) enum What {
    Write { offset: u64, bytes: Vec<u8> },
    Truncate { size: u64 },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The next sync brings it to the disk.
    Waiting,
    /// A sync of it failed: it is there or not.
    Forgotten,
    /// It is there.
    Synced,
}

/// A file's content: what is on the disk for certain, and what came after.
#[derive(Debug, Default)]
pub(crate) struct File {
    pub(crate) base: Vec<u8>,
    pub(crate) changes: Vec<Change>,
}

/// Which file a name stands for.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Name {
    /// For whoever opens it.
    pub(crate) now: Option<usize>,
    /// After a power cut.
    pub(crate) on_disk: Option<usize>,
}

/// All of it.
#[derive(Debug, Default)]
pub(crate) struct Disk {
    pub(crate) files: Vec<File>,
    pub(crate) names: BTreeMap<String, Name>,
    operations: Vec<Operation>,
    failures: usize,
    plan: Option<Plan>,
    struck: Option<Kind>,
    off: bool,
}

impl Disk {
    pub(crate) fn plan(&mut self, plan: Option<Plan>) {
        self.plan = plan;
        self.struck = None;
    }

    pub(crate) fn operations(&self) -> &[Operation] {
        &self.operations
    }

    pub(crate) fn failures(&self) -> usize {
        self.failures
    }

    /// True if nothing works any more; counts as a failure if so.
    pub(crate) fn is_off(&mut self) -> bool {
        self.failures += usize::from(self.off);
        self.off
    }

    pub(crate) fn is_at_risk(&self) -> bool {
        let names = self.names.values();
        names.clone().any(|name| name.now != name.on_disk)
            || names.filter_map(|name| self.files.get(name.now?)).any(|file| !file.changes.is_empty())
    }

    /// Counts the operation. `Err` if it fails.
    pub(crate) fn ask(&mut self, kind: Kind, file: &str) -> Result<(), Failed> {
        if self.is_off() {
            return Err(Failed { fault: Fault::Off, done: Done::Nothing });
        }
        self.operations.push(Operation { kind, file: file.to_owned() });
        let Some(plan) = self.plan else { return Ok(()) };
        let now = self.operations.len() == plan.at;
        if now {
            self.struck = Some(kind);
            self.off = plan.fault == Fault::Off;
        }
        let fails = now || (plan.lasting && self.struck == Some(kind));
        if !fails {
            return Ok(());
        }
        self.failures += 1;
        let done = match plan.fault {
            Fault::Error => Done::Nothing,
            Fault::Short | Fault::Full => Done::Half,
            Fault::Off => Done::Perhaps,
        };
        Err(Failed { fault: plan.fault, done })
    }

    /// The file that a name stands for, made with this content if the name is new. An empty one may be gone after a crash.
    pub(crate) fn open(&mut self, name: &str, content: impl FnOnce() -> Vec<u8>) -> usize {
        let entry = self.names.entry(name.to_owned()).or_default();
        if let Some(file) = entry.now {
            return file;
        }
        let id = self.files.len();
        let base = content();
        entry.now = Some(id);
        if !base.is_empty() {
            entry.on_disk = Some(id);
        }
        self.files.push(File { base, changes: Vec::new() });
        id
    }

    pub(crate) fn change(&mut self, file: usize, what: What) {
        let at = self.operations.len();
        if let Some(file) = self.files.get_mut(file) {
            file.changes.push(Change { at, what, fate: Fate::Waiting });
        }
    }

    pub(crate) fn synced(&mut self, id: usize) {
        let Some(file) = self.files.get_mut(id) else { return };
        file.settle(Fate::Synced);
        if self.names.values().any(|name| name.now == Some(id) && name.on_disk != Some(id)) {
            self.names_synced();
        }
    }

    pub(crate) fn sync_failed(&mut self, file: usize) {
        if let Some(file) = self.files.get_mut(file) {
            file.settle(Fate::Forgotten);
        }
    }

    pub(crate) fn deleted(&mut self, name: &str, with_folder: bool) {
        if let Some(name) = self.names.get_mut(name) {
            name.now = None;
        }
        if with_folder {
            self.names_synced();
        }
    }

    fn names_synced(&mut self) {
        for name in self.names.values_mut() {
            name.on_disk = name.now;
        }
    }
}

impl File {
    fn settle(&mut self, fate: Fate) {
        for change in self.changes.iter_mut().filter(|change| change.fate == Fate::Waiting) {
            change.fate = fate;
        }
        if self.changes.iter().all(|change| change.fate == Fate::Synced) {
            for change in std::mem::take(&mut self.changes) {
                change.what.apply(&mut self.base);
            }
        }
    }
}

impl What {
    pub(crate) fn apply(&self, content: &mut Vec<u8>) {
        match self {
            Self::Write { offset, bytes } => {
                let start = index(*offset);
                if content.len() < start {
                    content.resize(start, 0);
                }
                let (over, beyond) = bytes.split_at(bytes.len().min(content.len() - start));
                content[start..start + over.len()].copy_from_slice(over);
                content.extend_from_slice(beyond);
            }
            Self::Truncate { size } => content.resize(index(*size), 0),
        }
    }

    /// A file's size after this.
    pub(crate) fn size(&self, before: u64) -> u64 {
        match self {
            Self::Write { offset, bytes } => before.max(offset + bytes.len() as u64),
            Self::Truncate { size } => *size,
        }
    }
}

/// A place in a file as a place in memory.
pub(crate) fn index(offset: u64) -> usize {
    usize::try_from(offset).expect("a test's file fits into memory")
}
