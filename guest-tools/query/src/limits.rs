//! Every bound of the query tool, with its reason.

/// Bytes of a document. A parsed document takes up to ten times its text, and a call has 256 MiB by default.
pub(crate) const DOCUMENT_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Values within values, in a document and in a result: readers and writers of JSON recurse, and a component's stack is small.
pub(crate) const DEPTH_MAX: usize = 200;

/// Values that one call answers with; a program may give endlessly many.
pub(crate) const OUTPUTS_MAX: usize = 200;

/// Bytes of all values of an answer: below the 64 KiB at which a host cuts the output of a call, so that the note that it
/// is cut is never cut off.
pub(crate) const OUTPUT_BYTES_MAX: usize = 48 * 1024;

/// Bytes of an error that a program raises; it may hold a whole document.
pub(crate) const ERROR_BYTES_MAX: usize = 1024;
