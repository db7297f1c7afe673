//! What is compared with: writes and syncs by themselves, and a document that is written anew each time. And the disk that
//! both sides of a comparison have: this machine's, or one that is slower by as much for both.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use wharf::store::{Fault, FaultAction, SqliteOptions, SqliteStore, Stage, StoreError};

/// Where SQLite's log begins anew: a thousand pages.
const LOG_BYTES: u64 = 4 << 20;

/// By how much a sync of [`Disk::Slower`] is slower.
pub(crate) const SLOWER: Duration = Duration::from_millis(1);

/// What syncs take. A virtual machine's disk may take a tenth of what most disks do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Disk {
    AsItIs,
    Slower,
}

impl Disk {
    pub(crate) fn delay(self) {
        if self == Self::Slower {
            std::thread::sleep(SLOWER);
        }
    }

    pub(crate) fn store(self, folder: &Path) -> Result<SqliteStore, StoreError> {
        SqliteStore::open_with(folder, SqliteOptions { fault: self.fault(), ..SqliteOptions::default() })
    }

    /// Waits once in each transaction, between what it writes and its sync.
    fn fault(self) -> Option<Fault> {
        let waited = AtomicBool::new(false);
        let at = move |stage| match stage {
            Stage::BeforeWrite => waited.store(false, Ordering::SeqCst),
            Stage::AfterWriteBeforeSync if !waited.swap(true, Ordering::SeqCst) => self.delay(),
            Stage::AfterWriteBeforeSync | Stage::AfterSyncBeforeAnswer => {}
        };
        (self == Self::Slower).then(|| -> Fault {
            Arc::new(move |point| {
                at(point.stage);
                FaultAction::Go
            })
        })
    }
}

/// A file that is appended to and synced, and that begins anew where SQLite's log would.
pub(crate) struct Log {
    file: File,
    at: u64,
    bytes: Vec<u8>,
}

impl Log {
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().create_new(true).write(true).open(path)?;
        Ok(Self { file, at: 0, bytes: Vec::new() })
    }

    /// `delay` is done right before the sync.
    pub(crate) fn append_synced(&mut self, bytes: u64, delay: impl FnOnce()) -> io::Result<()> {
        if self.at + bytes > LOG_BYTES {
            self.at = 0;
        }
        self.bytes.resize(usize::try_from(bytes).unwrap_or(usize::MAX), 1);
        self.file.write_all_at(&self.bytes, self.at)?;
        self.at += bytes;
        delay();
        self.file.sync_data()
    }
}

/// A document that is replaced as a whole: a file beside it, synced, renamed over it, and the folder synced.
pub(crate) struct Document {
    path: PathBuf,
}

impl Document {
    pub(crate) fn at(path: PathBuf) -> Self {
        Self { path }
    }

    /// Answers its size.
    pub(crate) fn rewrite(&self, value: &serde_json::Value) -> io::Result<usize> {
        let text = serde_json::to_vec(value)?;
        let beside = self.path.with_extension("new");
        let mut file = File::create(&beside)?;
        file.write_all(&text)?;
        file.sync_all()?;
        std::fs::rename(&beside, &self.path)?;
        if let Some(folder) = self.path.parent() {
            File::open(folder)?.sync_all()?;
        }
        Ok(text.len())
    }
}

/// Bytes that this process has given to the system to write, to files or elsewhere; 0 where the system does not say.
pub(crate) fn written() -> u64 {
    let count = |text: String| text.lines().find_map(|line| line.strip_prefix("wchar: ")?.parse().ok());
    std::fs::read_to_string("/proc/self/io").ok().and_then(count).unwrap_or(0)
}
