//! Every bound of the file tools, with its reason.

/// Bytes of file text in one answer: below the 64 KiB at which a host cuts the output of a call, so that our own note on
/// how to go on is never cut off.
pub(crate) const ANSWER_BYTES_MAX: usize = 48 * 1024;

/// Bytes that are passed over to reach a line. Past it, counting lines costs more than the answer is worth, and byte
/// offsets lead there at once.
pub(crate) const SKIP_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Bytes at the beginning of a file in which a NUL makes it binary; the same look that other tools take.
pub(crate) const SNIFF_BYTES: usize = 8 * 1024;

/// Entries that a listing answers with, unless the input asks for fewer.
pub(crate) const LIST_ENTRIES_MAX: usize = 1_000;

/// Entries that one walk visits: bounds time and memory in a tree of any size.
pub(crate) const WALK_ENTRIES_MAX: usize = 100_000;

/// Folders within folders. Deeper trees are hostile or broken.
pub(crate) const WALK_DEPTH_MAX: usize = 64;

/// Matching lines that a search answers with at most; the input chooses below.
pub(crate) const MATCHES_MAX: usize = 500;

/// Matching lines that a search answers with when the input does not say.
pub(crate) const MATCHES_DEFAULT: usize = 100;

/// Lines of context on each side of a match at most.
pub(crate) const CONTEXT_LINES_MAX: usize = 5;

/// Bytes of one line in a search's answer; longer lines are shown around the match.
pub(crate) const MATCH_LINE_BYTES_MAX: usize = 400;

/// Bytes of a file that is searched, or changed, whole in memory: small beside the 256 MiB that a call has by default.
pub(crate) const WHOLE_FILE_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Bytes that one search reads in all.
pub(crate) const SEARCH_BYTES_MAX: u64 = 512 * 1024 * 1024;

/// Bytes of a compiled pattern, so that a short pattern with large repeats cannot fill the memory.
pub(crate) const PATTERN_BYTES_MAX: usize = 2 * 1024 * 1024;

/// Places that a refused edit lists.
pub(crate) const PLACES_SHOWN_MAX: usize = 10;

/// Files between two reports of progress.
pub(crate) const FILES_PER_REPORT: u64 = 50;
