//! Takes what was deleted off the disk too.
//!
//! Zeroes over what is freed (`secure_delete`) are not the whole of it. SQLite moves rows between pages as these fill up and
//! leaves copies in the free part of a page, where no later deletion finds them; and the log holds pages as they once were.

use rusqlite::Connection;

use super::failure::Failure;
use crate::limits::{COMPACT_BYTES_MAX, SCRUB_WAIT};

/// Writes the database anew if it is not too large for that, and empties the log. False if somebody still reads from the
/// log, which then cannot be emptied yet.
pub(super) fn scrub(conn: &Connection) -> Result<bool, Failure> {
    let number = |name: &str| conn.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let bytes = number("page_count")?.saturating_mul(number("page_size")?);
    if u64::try_from(bytes).is_ok_and(|bytes| bytes <= COMPACT_BYTES_MAX) {
        conn.execute_batch("VACUUM")?;
    }
    let waits = number("busy_timeout")?;
    let wait = |millis: i64| conn.pragma_update_and_check(None, "busy_timeout", millis, |_| Ok(()));
    wait(i64::try_from(SCRUB_WAIT.as_millis()).unwrap_or(i64::MAX))?;
    let busy = conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, bool>(0));
    wait(waits)?;
    Ok(!busy?)
}
