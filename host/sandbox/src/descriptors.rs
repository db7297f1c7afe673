//! How many files and folders of the host's are open for components at once: each takes one of the descriptors that the
//! whole process shares, its journal and its connections included. A file is open for as long as anything holds it, a
//! stream of the guest's for example, and not only while the guest holds its handle.

use std::fs::File;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use wasmtime_wasi::filesystem::Descriptor;

/// Counts what is open, up to a bound.
pub(crate) struct Descriptors {
    most: usize,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    /// Those that are being opened.
    opening: usize,
    /// Those that were opened; some may be closed by now.
    opened: Vec<Weak<File>>,
}

impl Descriptors {
    pub(crate) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, held: Mutex::default() })
    }

    /// Room for one more, if there is any.
    pub(crate) fn room(self: &Arc<Self>) -> Option<Room> {
        let mut held = self.lock();
        if held.opening + held.opened.len() >= self.most {
            held.opened.retain(|file| file.strong_count() > 0);
        }
        if held.opening + held.opened.len() >= self.most {
            return None;
        }
        held.opening += 1;
        Some(Room(self.clone()))
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        // Both members are whole between any two statements.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Room for one descriptor. It is free again when this is dropped, or, once taken, when the file is closed.
pub(crate) struct Room(Arc<Descriptors>);

impl Room {
    /// Counts what was opened.
    pub(crate) fn take(&self, descriptor: &Descriptor) {
        let file = match descriptor {
            Descriptor::File(file) => &file.file,
            Descriptor::Dir(dir) => &dir.dir,
        };
        self.0.lock().opened.push(Arc::downgrade(file));
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let mut held = self.0.lock();
        held.opening = held.opening.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wasmtime_wasi::filesystem::File as GuestFile;
    use wasmtime_wasi::{FsPerms, OpenMode};

    fn opened() -> Descriptor {
        Descriptor::File(GuestFile::new(tempfile::tempfile().unwrap(), FsPerms::ReadOnly, OpenMode::READ, false))
    }

    #[test]
    fn there_is_room_up_to_the_bound_and_again_when_a_file_is_closed() {
        let descriptors = Descriptors::new(2);
        let first = opened();
        descriptors.room().unwrap().take(&first);
        let opening = descriptors.room().unwrap();
        assert!(descriptors.room().is_none(), "one that is being opened counts");
        drop(opening);
        let second = opened();
        descriptors.room().unwrap().take(&second);
        assert!(descriptors.room().is_none());
        // A stream keeps the file open when the guest has given its handle back.
        let Descriptor::File(file) = &first else { panic!() };
        let stream = file.file.clone();
        drop(first);
        assert!(descriptors.room().is_none());
        drop(stream);
        assert!(descriptors.room().is_some());
    }
}
