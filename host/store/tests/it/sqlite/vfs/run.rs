//! One script on the embedded store over a disk that fails, and on a memory store beside it.
//!
//! What a call was answered decides what must be there: all of it after `Ok`, nothing of it after any error but `Unknown`,
//! and one of the two after that. A call with an unknown outcome that reads do not show may still come back with a crash,
//! as it may be in the log; the next commit writes over it, so then it may not.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::executor::block_on;
use futures::future::join_all;
use rusqlite::{Connection, OpenFlags};
use tempfile::TempDir;
use wharf_core::Seq;
use wharf_faultvfs::{Fault, FaultVfs, Image, Operation, Plan};
use wharf_store::{Acquire, Append, DeletionMark, InboxPut, Lease, SqliteOptions, SqliteStore, Store as _, StoreError};

use super::super::{owner, raw};
use super::model::{Blobs, Model, Now, View, view};
use super::script::{Act, Answer, Call, Load, SESSIONS, Said, Script, Step, blob, item, key, record};

/// What the lanes did, for people.
#[derive(Debug, Default)]
pub(super) struct Figures {
    pub(super) scripts: AtomicU64,
    pub(super) operations: AtomicU64,
    pub(super) faults: AtomicU64,
    pub(super) unknown: AtomicU64,
    pub(super) came_back: AtomicU64,
    pub(super) retries: AtomicU64,
    pub(super) images: AtomicU64,
}

fn add(figure: &AtomicU64, count: u64) {
    figure.fetch_add(count, Ordering::Relaxed);
}

/// What is wrong, for people.
type Wrong = String;

/// The lines that are in one of them alone.
fn difference(expected: &View, seen: &View) -> Wrong {
    let (expected, seen) = (format!("{expected:#?}"), format!("{seen:#?}"));
    let only = |sign: &str, these: &str, those: &str| {
        let lines = these.lines().filter(|line| !those.lines().any(|other| other == *line));
        lines.map(|line| format!("\n{sign} {}", line.trim().chars().take(100).collect::<String>())).collect::<String>()
    };
    only("-", &expected, &seen) + &only("+", &seen, &expected)
}

pub(super) struct Run<'a> {
    script: &'a Script,
    plan: Option<Plan>,
    figures: &'a Figures,
    vfs: FaultVfs,
    dir: TempDir,
    now: Now,
    ttl: Duration,
    stores: Vec<Option<SqliteStore>>,
    /// What reads show.
    model: Model,
    /// What a crash may show instead.
    ghosts: Vec<Model>,
    /// Who acts in each session, and the head as it knows it.
    owners: Vec<Option<(Lease, Seq)>>,
    former: Vec<Option<Lease>>,
    targets: Vec<u64>,
    blobs: Blobs,
    number: u64,
    images: u64,
}

/// Runs the whole script with this fault, or without one, and says what the disk was asked for.
pub(super) fn run(
    script: &Script,
    plan: Option<Plan>,
    ttl: Duration,
    figures: &Figures,
) -> Result<Vec<Operation>, Wrong> {
    let vfs = FaultVfs::register();
    vfs.plan(plan);
    let mut run = Run {
        script,
        plan,
        figures,
        vfs,
        dir: TempDir::new().unwrap(),
        now: Arc::new(std::sync::Mutex::new(Duration::from_secs(1_700_000_000))),
        ttl,
        stores: (0..script.handles).map(|_| None).collect(),
        model: Model::new(),
        ghosts: Vec::new(),
        owners: vec![None; SESSIONS],
        former: vec![None; SESSIONS],
        targets: Vec::new(),
        blobs: Vec::new(),
        number: 0,
        images: 0,
    };
    run.whole()?;
    add(&figures.faults, u64::from(run.vfs.failures() > 0));
    Ok(run.vfs.operations())
}

impl Run<'_> {
    fn whole(&mut self) -> Result<(), Wrong> {
        for handle in 0..self.stores.len() {
            self.open(handle)?;
        }
        for (number, step) in self.script.steps.iter().enumerate() {
            if self.is_off() {
                break;
            }
            self.step(step).map_err(|wrong| format!("at step {number}, {step:?}: {wrong}"))?;
        }
        // Half of the faults that last do so until all is closed.
        if self.plan.is_none_or(|plan| plan.at.is_multiple_of(2)) {
            self.go_on().map_err(|wrong| format!("going on with the same handle: {wrong}"))?;
        }
        self.close();
        self.images(4).map_err(|wrong| format!("after closing: {wrong}"))?;
        self.mend();
        for handle in 0..self.stores.len() {
            self.open(handle)?;
        }
        self.came_back()?;
        self.go_on().map_err(|wrong| format!("going on after opening again: {wrong}"))?;
        self.close();
        self.images(2).map_err(|wrong| format!("after closing again: {wrong}"))
    }

    /// Ends a fault that was met. What is off stays off.
    fn mend(&self) {
        if self.vfs.failures() > 0 {
            self.vfs.plan(None);
        }
    }

    fn now(&self) -> Duration {
        *self.now.lock().unwrap()
    }

    fn options(&self) -> SqliteOptions {
        let now = Arc::clone(&self.now);
        SqliteOptions {
            clock: Arc::new(move || *now.lock().unwrap()),
            busy_timeout: Duration::from_millis(1),
            ..SqliteOptions::default()
        }
    }

    fn is_off(&self) -> bool {
        self.plan.is_some_and(|plan| plan.fault == Fault::Off) && self.vfs.failures() > 0
    }

    /// Opens a handle; a disk that fails for ever is mended for it.
    fn open(&mut self, handle: usize) -> Result<(), Wrong> {
        for attempt in 0..3 {
            if attempt == 2 {
                self.vfs.plan(None);
            }
            let before = self.vfs.failures();
            let options = SqliteOptions { vfs: Some(self.vfs.name().to_owned()), ..self.options() };
            match SqliteStore::open_with(self.dir.path(), options) {
                Ok(store) => {
                    self.stores[handle] = Some(store);
                    return Ok(());
                }
                Err(StoreError::Io { .. }) if self.is_off() => return Ok(()),
                Err(StoreError::Io { .. }) if self.vfs.failures() > before => {}
                Err(error) => return Err(format!("opening: {error}")),
            }
        }
        Err("opening does not succeed on a sound disk".into())
    }

    fn close(&mut self) {
        for store in self.stores.iter_mut().filter_map(Option::take) {
            add(&self.figures.retries, store.stats().retries);
        }
    }

    fn step(&mut self, step: &Step) -> Result<(), Wrong> {
        match step {
            Step::Advance(by) => *self.now.lock().unwrap() += *by,
            Step::Checkpoint(how) => self.checkpoint(how),
            Step::Reopen { handle } => {
                self.stores[*handle] = None;
                let alone = self.stores.iter().all(Option::is_none);
                self.open(*handle)?;
                if alone {
                    self.came_back()?;
                }
            }
            Step::Do { handle, session, act } => self.act(*handle, &[(*session, act)])?,
            Step::Together { handle, acts } => {
                self.act(*handle, &acts.iter().enumerate().collect::<Vec<_>>())?;
            }
        }
        Ok(())
    }

    /// As another process would. It may fail, as a disk does; nothing depends on it.
    fn checkpoint(&self, how: &str) {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let path = self.dir.path().join("wharf.db");
        if let Ok(other) = Connection::open_with_flags_and_vfs(path, flags, self.vfs.name()) {
            let _ = other.query_row(&format!("PRAGMA wal_checkpoint({how})"), [], |_| Ok(()));
        }
    }

    /// Some acts at once, each in another session.
    fn act(&mut self, handle: usize, acts: &[(usize, &Act)]) -> Result<(), Wrong> {
        let mut calls = Vec::new();
        for (session, act) in acts {
            let needs_owner = matches!(act, Act::Append(_) | Act::Renew | Act::Release | Act::Sweep | Act::Delete);
            if needs_owner && self.owners[*session].is_none() {
                let acquire = self.acquire(*session, Acquire::TakeOver);
                self.tell(handle, vec![(*session, acquire)])?;
            }
            if self.is_off() {
                return Ok(());
            }
            if let Some(call) = self.call(*session, act) {
                calls.push((*session, call));
            }
        }
        self.tell(handle, calls)
    }

    fn acquire(&mut self, session: usize, how: Acquire) -> Call {
        self.number += 1;
        Call::Acquire { key: key(session), owner: owner(&format!("o{}", self.number)), ttl: self.ttl, how }
    }

    fn call(&mut self, session: usize, act: &Act) -> Option<Call> {
        self.number += 1;
        let number = self.number * 100;
        let current = self.owners[session].clone();
        Some(match act {
            Act::Acquire { take_over } => {
                let how = if *take_over { Acquire::TakeOver } else { Acquire::IfFree };
                self.acquire(session, how)
            }
            Act::Append(load) => {
                let (lease, head) = current?;
                Call::Append { lease, append: self.append(session, head, load, number) }
            }
            Act::AppendAsFormerOwner => {
                let lease = self.former[session].clone()?;
                let load = Load { records: vec![20], blob: Some(20), snapshot: None, consume: true };
                let head = current.map_or(lease.head, |(_, head)| head);
                Call::Append { append: self.append(session, head, &load, number), lease }
            }
            Act::Renew => Call::Renew { lease: current?.0 },
            Act::Release => Call::Release { lease: current?.0 },
            Act::Sweep => {
                let (lease, head) = current?;
                let kept = self.blobs.iter().filter(|(whose, _)| *whose == session).step_by(2);
                let named = kept.map(|(_, digest)| digest.clone()).collect();
                Call::Sweep { lease: Lease { head, ..lease }, named }
            }
            Act::Delete => Call::Delete { lease: current?.0, mark: DeletionMark { who: "me".into(), at_ms: number } },
            Act::Put { again } => {
                let target = self.targets.last().copied().filter(|_| *again).unwrap_or(number);
                self.targets.push(target);
                Call::Put { key: key(session), item: item(number, target) }
            }
        })
    }

    fn append(&mut self, session: usize, expected: Seq, load: &Load, number: u64) -> Append {
        let blobs: Vec<_> = load.blob.iter().map(|size| blob(number, *size)).collect();
        self.blobs.extend(blobs.iter().map(|(digest, _)| (session, digest.clone())));
        let waiting = self.model.waiting(session);
        Append {
            expected,
            records: (number..).zip(&load.records).map(|(number, size)| record(number, *size)).collect(),
            blobs,
            consumed: waiting.iter().take(usize::from(load.consume)).map(|item| item.id.clone()).collect(),
            snapshot: load.snapshot.map(|size| super::script::text(number, size)),
            open: number.is_multiple_of(2).then(|| wharf_store::Open::For("h".to_owned())),
        }
    }

    /// Makes the calls, compares the answers and, after a failure, what is there.
    fn tell(&mut self, handle: usize, calls: Vec<(usize, Call)>) -> Result<(), Wrong> {
        let Some(store) = &self.stores[handle] else { return Ok(()) };
        let before = self.vfs.failures();
        let answers = block_on(join_all(calls.iter().map(|(_, call)| call.of(store))));
        let failed = self.vfs.failures() > before;
        let (mut unknown, mut committed) = (Vec::new(), false);
        for ((session, call), answer) in calls.iter().zip(&answers) {
            self.follow(*session, call, answer);
            match answer {
                Err(StoreError::Unknown { .. }) if failed => unknown.push(call.clone()),
                Err(StoreError::Io { .. }) if failed => {}
                Ok(_) | Err(_) => {
                    let expected = self.model.tell(self.now(), call);
                    if !self.agree(answer, &expected) {
                        return Err(format!("{} is answered {answer:?} and not {expected:?}", call.key().session));
                    }
                    let changed = !matches!(answer, Ok(Said::Put(InboxPut::Repeated | InboxPut::TooLate)));
                    committed |= answer.is_ok() && changed;
                }
            }
        }
        if committed {
            self.ghosts.clear();
        }
        add(&self.figures.unknown, unknown.len() as u64);
        self.resolve(&unknown)?;
        if failed && !self.is_off() {
            self.check_reads()?;
            self.images(1).map_err(|wrong| format!("after {answers:?}: {wrong}"))?;
        }
        Ok(())
    }

    /// A sweep may find more than the model knows of: what a failed append has left over.
    fn agree(&self, answer: &Answer, expected: &Answer) -> bool {
        match (answer, expected) {
            (Ok(Said::Swept(swept)), Ok(Said::Swept(least))) if self.vfs.failures() > 0 => {
                swept.blobs >= least.blobs && swept.bytes >= least.bytes
            }
            _ => answer == expected,
        }
    }

    /// What the caller makes of an answer: after an error it is not the owner any more.
    fn follow(&mut self, session: usize, call: &Call, answer: &Answer) {
        let leave = |this: &mut Self, lease: &Lease| {
            if this.owners[session].as_ref().is_some_and(|(current, _)| current.owner == lease.owner) {
                this.owners[session] = None;
                this.former[session] = Some(lease.clone());
            }
        };
        match (call, answer) {
            (Call::Acquire { .. }, Ok(Said::Lease(lease))) => {
                let before = self.owners[session].replace((lease.clone(), lease.head));
                if let Some((before, _)) = before {
                    self.former[session] = Some(before);
                }
            }
            (Call::Append { lease, .. }, Ok(Said::Head(head))) => {
                self.owners[session] = Some((lease.clone(), *head));
            }
            (Call::Release { lease } | Call::Delete { lease, .. }, Ok(_))
            | (
                Call::Append { lease, .. }
                | Call::Renew { lease }
                | Call::Release { lease }
                | Call::Sweep { lease, .. }
                | Call::Delete { lease, .. },
                Err(_),
            ) => leave(self, lease),
            (
                Call::Acquire { .. } | Call::Append { .. } | Call::Renew { .. } | Call::Sweep { .. } | Call::Put { .. },
                _,
            ) => {}
        }
    }

    /// Finds out which of these calls reads show. The other possibilities may come back.
    fn resolve(&mut self, unknown: &[Call]) -> Result<(), Wrong> {
        if unknown.is_empty() {
            return Ok(());
        }
        let mut possible = Vec::new();
        for which in 0..1_usize << unknown.len() {
            let mut fork = self.model.fork();
            for (number, call) in unknown.iter().enumerate() {
                if which >> number & 1 == 1 {
                    // Refused, it changes nothing either way.
                    let _ = fork.tell(self.now(), call);
                }
            }
            possible.push(fork);
        }
        let seen = if self.is_off() { 0 } else { self.find(&self.read()?, &possible)? };
        self.model = possible.remove(seen);
        self.ghosts.append(&mut possible);
        Ok(())
    }

    fn find(&self, seen: &View, possible: &[Model]) -> Result<usize, Wrong> {
        let now = self.now();
        possible.iter().position(|model| model.view(now, &self.blobs) == *seen).ok_or_else(|| {
            let difference = possible.first().map(|model| difference(&model.view(now, &self.blobs), seen));
            format!(
                "none of {} possible states is there; the first differs: {}",
                possible.len(),
                difference.unwrap_or_default()
            )
        })
    }

    fn read(&self) -> Result<View, Wrong> {
        let store = self.stores.iter().flatten().next().ok_or("no handle is open")?;
        view(store, &self.blobs).map_err(|error| format!("reading: {error}"))
    }

    fn check_reads(&self) -> Result<(), Wrong> {
        for store in self.stores.iter().flatten() {
            let seen = view(store, &self.blobs).map_err(|error| format!("reading: {error}"))?;
            self.find(&seen, std::slice::from_ref(&self.model))?;
        }
        Ok(())
    }

    /// After the last handle was closed and another one opened, what was in doubt may be there.
    fn came_back(&mut self) -> Result<(), Wrong> {
        if self.is_off() {
            return Ok(());
        }
        let seen = self.read()?;
        let mut possible = vec![std::mem::replace(&mut self.model, Model::new())];
        possible.append(&mut self.ghosts);
        let which = self.find(&seen, &possible)?;
        add(&self.figures.came_back, u64::from(which > 0));
        self.model = possible.swap_remove(which);
        self.ghosts = possible;
        Ok(())
    }

    /// The disk is sound again: every session goes on, and nothing else than what was answered is there.
    fn go_on(&mut self) -> Result<(), Wrong> {
        self.mend();
        let load = Load { records: vec![50, 5_000], blob: Some(2_000), snapshot: None, consume: true };
        for session in 0..SESSIONS {
            let handle = session % self.stores.len();
            let acquire = self.acquire(session, Acquire::TakeOver);
            self.tell(handle, vec![(session, acquire)])?;
            self.act(handle, &[(session, &Act::Append(load.clone()))])?;
        }
        if self.is_off() {
            return Ok(());
        }
        self.check_reads()?;
        if self.vfs.failures() > 0 { self.images(1) } else { Ok(()) }
    }

    /// Tries so many of the images that a power cut could leave now.
    fn images(&mut self, count: usize) -> Result<(), Wrong> {
        let seed = self.script.seed.wrapping_mul(1 << 20) + self.vfs.count() as u64 * 8;
        let all =
            [Image::Scattered(seed), Image::Synced, Image::Torn(seed), Image::Written, Image::Scattered(seed + 1)];
        let count = if self.vfs.is_at_risk() { count } else { 1 };
        for image in all.into_iter().take(count) {
            let folder = TempDir::new().unwrap();
            self.vfs.image(image, folder.path()).unwrap();
            self.check_image(folder.path()).map_err(|wrong| format!("{image:?}: {wrong}"))?;
            add(&self.figures.images, 1);
        }
        Ok(())
    }

    /// An ordinary store on an image shows one of the states that are allowed, is whole, and goes on.
    fn check_image(&mut self, folder: &Path) -> Result<(), Wrong> {
        let failed = |error: StoreError| format!("the image: {error}");
        let disk = FaultVfs::register();
        self.images += 1;
        // Some with the system's own file system; without real syncs there is time for more.
        let vfs = (!self.images.is_multiple_of(16)).then(|| disk.name().to_owned());
        let store = SqliteStore::open_with(folder, SqliteOptions { vfs, ..self.options() }).map_err(failed)?;
        let seen = view(&store, &self.blobs).map_err(failed)?;
        let possible: Vec<&Model> = std::iter::once(&self.model).chain(&self.ghosts).collect();
        let now = self.now();
        if !possible.iter().any(|model| model.view(now, &self.blobs) == seen) {
            let difference = difference(&self.model.view(now, &self.blobs), &seen);
            return Err(format!("differs, from {} other states too: {difference}", self.ghosts.len()));
        }
        let alive = seen.of.iter().position(Result::is_ok);
        let session = alive.unwrap_or(SESSIONS); // one that never was, if all are deleted
        let who = owner("after");
        let lease = block_on(store.acquire(&key(session), &who, self.ttl, Acquire::TakeOver)).map_err(failed)?;
        let shown = seen.of.get(session).map_or(Seq(0), |of| of.as_ref().map_or(Seq(0), |of| of.loaded.head));
        if lease.head != shown {
            return Err(format!("acquiring tells of head {}", lease.head));
        }
        let next = Append { expected: lease.head, records: vec![record(1, 6_000)], ..Append::default() };
        let head = block_on(store.append(&lease, next)).map_err(failed)?;
        let last = block_on(store.history(&lease.key, lease.head, 9)).map_err(failed)?;
        if head != lease.head.next() || last.iter().map(|last| last.seq).ne([head]) {
            return Err(format!("appending tells of head {head}, reading of {last:?}"));
        }
        drop(store);
        let sound: String = raw(folder).pragma_query_value(None, "integrity_check", |row| row.get(0)).unwrap();
        if sound == "ok" { Ok(()) } else { Err(format!("integrity_check: {sound}")) }
    }
}
