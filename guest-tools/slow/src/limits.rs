//! Every bound of the slow tools, with its reason.

/// One pause, in milliseconds: longer than any call may last.
pub(crate) const PAUSE_MS_MAX: u64 = 600_000;

/// Bytes of a note: a line that a person reads.
pub(crate) const NOTE_BYTES_MAX: usize = 4096;

/// Files that one count reads.
pub(crate) const FILES_MAX: usize = 20_000;

/// Bytes of a file that is counted; the rest of a larger one is passed over, and the answer says so.
pub(crate) const FILE_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Folders within folders. Deeper trees are hostile or broken.
pub(crate) const DEPTH_MAX: usize = 64;

/// Extensions that an answer lists; the rest is counted together.
pub(crate) const EXTENSIONS_MAX: usize = 100;
