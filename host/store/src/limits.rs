//! Bounds of this crate, each with the reason for it.

use std::time::Duration;

/// How long a lease lasts unless renewed: long enough that a slow disk does not lose it, short enough that another process
/// takes over a dead one's work within a coffee break (N6).
pub const LEASE_TTL: Duration = Duration::from_secs(60);

/// Largest snapshot or record body, in bytes (N6). Larger outputs are blobs.
pub const RECORD_BYTES_MAX: usize = 8 << 20;

/// Largest blob, in bytes (design section 8).
pub const BLOB_BYTES_MAX: usize = 16 << 20;

/// Most items that wait in one session's inbox: an inbox that nobody empties must not fill the disk.
pub const INBOX_ITEMS_MAX: usize = 1_000;

/// Largest inbox item, in bytes.
pub const INBOX_BYTES_MAX: usize = 1 << 20;

/// Longest time from putting an inbox item to waking the owner: a person who approved sees it go on at once (M9).
pub const INBOX_WAKE_MAX: Duration = Duration::from_millis(250);
