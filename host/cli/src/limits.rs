//! Bounds of this crate, each with the reason for it.

/// Largest harness file or script, in bytes: people write them by hand.
pub(crate) const HARNESS_BYTES_MAX: u64 = 4 << 20;

/// Largest key file, in bytes.
pub(crate) const KEY_BYTES_MAX: u64 = 64 << 10;

/// Largest question or tool input from standard input, in bytes: a model takes no more of it.
pub(crate) const INPUT_BYTES_MAX: u64 = 8 << 20;

/// Largest component that `wharf tool` reads, in bytes; as large as the library takes.
pub(crate) const COMPONENT_BYTES_MAX: u64 = wharf::limits::COMPONENT_BYTES_MAX;

/// Records that are read at once: a page of them stays small in memory beside its decoded form.
pub(crate) const RECORDS_PAGE: usize = 1_000;

/// Most records that one session is shown with: more cannot be read by a person, and an export takes the fold instead.
pub(crate) const RECORDS_MAX: usize = 500_000;

/// Most sessions in a list.
pub(crate) const SESSIONS_MAX: usize = wharf::limits::SESSIONS_LISTED_MAX;

/// Longest piece of an input or output in a line of talk, in characters.
pub(crate) const TALK_CHARS_MAX: usize = 100;

/// Longest session id, in bytes: it stands in messages and in file names of exports.
pub(crate) const SESSION_ID_BYTES_MAX: usize = 128;

/// Columns of a timeline where the terminal does not say how wide it is.
pub(crate) const TIMELINE_WIDTH: usize = 100;
