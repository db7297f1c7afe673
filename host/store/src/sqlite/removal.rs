//! What removes rows: the deletion of a session, and the collection of blobs that nothing names.
//!
//! It never looks into a record: what is named, the caller says.

use std::collections::{BTreeMap, BTreeSet};

use rusqlite::{Connection, params};
use wharf_core::BlobDigest;

use super::failure::Failure;
use super::leases::{self, JournalRow};
use crate::{DeletionMark, Lease, StoreError, Swept};
use std::time::Duration;

/// Every table whose rows belong to a session.
const TABLES: [&str; 5] = ["record", "snapshot", "blob", "blob_piece", "inbox"];

/// See [`crate::Store::delete`]. With `doubt` an earlier attempt may have been committed: then its mark is looked for.
pub(super) fn delete(
    conn: &Connection,
    lease: &Lease,
    mark: &DeletionMark,
    now: Duration,
    doubt: bool,
) -> Result<(), Failure> {
    let row = match leases::check(conn, lease, now) {
        Err(Failure::Refused(StoreError::Deleted { who, at_ms, .. }))
            if doubt && who == mark.who && at_ms == mark.at_ms =>
        {
            return Ok(());
        }
        checked => checked?,
    };
    for table in TABLES {
        conn.prepare_cached(&format!("DELETE FROM {table} WHERE journal = ?1"))?.execute([row.id])?;
    }
    // Nothing of it is left in its row either, but for the name and the mark.
    conn.prepare_cached(
        "UPDATE journal SET head = 0, updated_ms = 0, fence = 0, token = NULL, label = NULL, until_ms = NULL,
         ttl_ms = NULL, is_open = 0, open_for = NULL, waiting_ms = 0, deleted_by = ?2, deleted_ms = ?3 WHERE id = ?1",
    )?
    .execute(params![row.id, mark.who, mark.at_ms.cast_signed()])?;
    Ok(())
}

/// See [`crate::Store::sweep`].
pub(super) fn sweep(
    conn: &Connection,
    lease: &Lease,
    named: &BTreeSet<BlobDigest>,
    now: Duration,
) -> Result<Swept, Failure> {
    let row = leases::check(conn, lease, now)?;
    row.expect_head(lease, lease.head)?;
    let mut swept = Swept::default();
    for (digest, bytes) in kept(conn, &row)? {
        if named.contains(&BlobDigest::from(digest.as_str())) {
            continue;
        }
        for table in ["blob", "blob_piece"] {
            conn.prepare_cached(&format!("DELETE FROM {table} WHERE journal = ?1 AND digest = ?2"))?
                .execute(params![row.id, digest])?;
        }
        swept.blobs += 1;
        swept.bytes += bytes;
    }
    leases::prolong(conn, &row, lease, now)?;
    Ok(swept)
}

/// The bytes of each blob of the session, whole or left over.
fn kept(conn: &Connection, row: &JournalRow) -> Result<BTreeMap<String, u64>, Failure> {
    let mut select = conn.prepare_cached(
        "SELECT digest, sum(size) FROM (
           SELECT digest, 0 AS size FROM blob WHERE journal = ?1
           UNION ALL SELECT digest, length(bytes) FROM blob_piece WHERE journal = ?1
         ) GROUP BY digest",
    )?;
    let lines = select.query_map([row.id], |line| Ok((line.get(0)?, line.get::<_, i64>(1)?.cast_unsigned())))?;
    Ok(lines.collect::<Result<_, _>>()?)
}
