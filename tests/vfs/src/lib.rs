//! A disk under SQLite that fails when told, and that shows what a power cut would leave of it.
//!
//! [`FaultVfs`] stands between SQLite and the system's own file system: files, locks and shared memory are real, and several
//! connections and threads may use them. It counts what changes the disk, makes one such operation fail, and keeps what a
//! power cut may leave, so that a crash image can be written into another folder at any time. It knows no table and no
//! store.
//!
//! What is assumed of a disk:
//! - A write or truncation may reach it at any time after it was made, and has reached it once the file was synced.
//! - What is not synced reaches it in any order, sector by sector ([`SECTOR`] bytes); a sector holds what it held at some
//!   moment since the last sync. Bytes of a sector that were not written stay as they are. The size of a file is such a value
//!   of its own; what lies beyond it is lost, and what was never written within it is zero. A truncation changes the size
//!   alone: as long as that has not reached the disk, the content has not either.
//! - A sync that fails may have done anything, and the system forgets what it was to sync: a later sync that succeeds does
//!   not bring it to the disk, unless it is written again.
//! - Names of new and deleted files reach the disk with the first sync of a new file, or with a deletion that syncs the
//!   folder. Until then the former file may be back.
//! - What a file held when it was first opened here is on the disk.
//! - Shared memory is no file.

mod disk;
mod image;
mod shim;

use std::io;
use std::path::Path;

pub use disk::{Fault, Kind, Operation, Plan};
pub use image::{Image, Random};

/// What a disk writes whole or not at all, in bytes.
pub const SECTOR: u64 = 512;

/// A file system for one folder's databases, under a name of its own. Connections are to be closed before it is dropped.
///
/// Each registration leaves some hundred bytes in memory for good, as SQLite may hold on to them.
pub struct FaultVfs {
    shim: &'static shim::Shim,
}

impl FaultVfs {
    /// Registers a new one that works until it is told otherwise.
    ///
    /// # Panics
    ///
    /// If SQLite refuses it.
    #[allow(clippy::new_without_default, reason = "it changes the process's state")]
    pub fn register() -> Self {
        Self { shim: shim::register() }
    }

    /// The name to open a connection with.
    pub fn name(&self) -> &str {
        self.shim.name()
    }

    /// What fails from now on; `None` for nothing. A disk that is off stays off.
    pub fn plan(&self, plan: Option<Plan>) {
        self.shim.disk().plan(plan);
    }

    /// The operations that were asked for since it was registered, those that failed included, until it was off.
    pub fn operations(&self) -> Vec<Operation> {
        self.shim.disk().operations().to_vec()
    }

    /// How many operations that is.
    pub fn count(&self) -> usize {
        self.shim.disk().operations().len()
    }

    /// How often an operation was made to fail. While the disk is off every one counts, those not asked for with a count
    /// too: a read, a lock, an opening.
    pub fn failures(&self) -> usize {
        self.shim.disk().failures()
    }

    /// True if a power cut now could leave more than one image.
    pub fn is_at_risk(&self) -> bool {
        self.shim.disk().is_at_risk()
    }

    /// Writes what a power cut may leave at this moment into another folder, which is to be empty.
    ///
    /// # Errors
    ///
    /// If a file cannot be written there.
    pub fn image(&self, image: Image, folder: &Path) -> io::Result<()> {
        for (name, content) in self.shim.disk().image(image) {
            std::fs::write(folder.join(name), content)?;
        }
        Ok(())
    }
}

impl Drop for FaultVfs {
    fn drop(&mut self) {
        self.shim.unregister();
    }
}
