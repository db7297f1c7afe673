//! Bounds of the SDK. A component is bounded by its host as well; these keep its own answers sensible.

/// Longest word for which a correction is looked for. The search is quadratic, and nobody misspells longer words.
pub const SUGGESTION_BYTES_MAX: usize = 64;

/// Bytes asked for with one `blobs.read`: large enough that the border costs little, small beside a call's memory.
pub const BLOB_PIECE_BYTES: u32 = 256 * 1024;
