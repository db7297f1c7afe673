//! Records, snapshots and lists of sessions as rows.

use std::time::Duration;

use rusqlite::{Connection, OptionalExtension as _, Row, params};
use wharf_core::{Fence, OrgId, RecordId, Seq};

use super::failure::Failure;
use super::leases::{self, COLUMNS, JournalRow};
use super::schema::Place;
use super::{blobs, inbox};
use crate::sums::{record_sum, snapshot_sum};
use crate::{Append, JournalKey, Lease, Loaded, NewRecord, SessionSummary, StoreError, StoredRecord};

/// How far an append is.
pub(super) enum Appended {
    /// All of it is in the transaction; this is the new head.
    Whole(Seq),
    /// A piece of a blob is in the transaction; call again in the next one.
    More,
}

/// See [`crate::Store::append`]. With `doubt` an earlier attempt may have been committed: then the records are looked for
/// before they are written (L63).
pub(super) fn append(
    conn: &Connection,
    lease: &Lease,
    append: &Append,
    now: Duration,
    doubt: bool,
) -> Result<Appended, Failure> {
    if doubt && let Some(head) = is_there(conn, lease, append)? {
        return Ok(Appended::Whole(head));
    }
    let row = leases::check(conn, lease, now)?;
    row.expect_head(lease, append.expected)?;
    if !blobs::write(conn, row.id, &append.blobs)? {
        return Ok(Appended::More);
    }
    inbox::consume(conn, row.id, &append.consumed)?;
    let mut head = row.head;
    let mut insert = conn.prepare_cached(
        "INSERT INTO record (journal, seq, id, fence, kind, version, at_ms, body, sum) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
    )?;
    for record in &append.records {
        head = head.next();
        insert.execute(params![
            row.id,
            head.0.cast_signed(),
            record.id.as_str(),
            lease.fence.0.cast_signed(),
            record.kind,
            record.version,
            record.at_ms.cast_signed(),
            record.body,
            record_sum(head, record)
        ])?;
    }
    if let Some(text) = &append.snapshot {
        conn.prepare_cached(
            "INSERT INTO snapshot (journal, seq, body, sum) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (journal) DO UPDATE SET seq = excluded.seq, body = excluded.body, sum = excluded.sum",
        )?
        .execute(params![row.id, head.0.cast_signed(), text, snapshot_sum(head, text)])?;
    }
    if let Some(open) = &append.open {
        leases::set_open(conn, &row, open)?;
    }
    let updated_ms = append.records.last().map_or(row.updated_ms, |last| last.at_ms);
    leases::advance(conn, &row, lease, head, updated_ms, now)?;
    Ok(Appended::Whole(head))
}

/// The head after this append if it was committed before: its record ids stand where it would have put them.
fn is_there(conn: &Connection, lease: &Lease, append: &Append) -> Result<Option<Seq>, Failure> {
    let Some(row) = JournalRow::find(conn, &lease.key)? else { return Ok(None) };
    if append.records.is_empty() {
        // Without records a snapshot may be put again; consumed items may not.
        let consumed = !append.consumed.is_empty() && inbox::are_consumed(conn, row.id, &append.consumed)?;
        return Ok(consumed.then_some(append.expected));
    }
    let mut look =
        conn.prepare_cached("SELECT 1 FROM record WHERE journal = ?1 AND seq = ?2 AND id = ?3 AND fence = ?4")?;
    let mut seq = append.expected;
    for record in &append.records {
        seq = seq.next();
        let found =
            look.exists(params![row.id, seq.0.cast_signed(), record.id.as_str(), lease.fence.0.cast_signed()])?;
        if !found {
            return Ok(None);
        }
    }
    Ok(Some(seq))
}

/// See [`crate::Store::load`].
pub(super) fn load(conn: &Connection, place: &Place, key: &JournalKey, after: Seq) -> Result<Loaded, Failure> {
    let Some(row) = JournalRow::find(conn, key)? else { return Ok(Loaded::default()) };
    let snapshot = if after == Seq(0) { snapshot(conn, place, key, &row)? } else { None };
    let after = snapshot.as_ref().map_or(after, |(seq, _)| *seq);
    let records = records(conn, place, key, &row, after, usize::MAX)?;
    if after < row.head && records.last().map(|last| last.seq) != Some(row.head) {
        let last = records.last().map_or(after, |last| last.seq);
        return Err(damaged(place, key, last.next(), "it is missing").into());
    }
    Ok(Loaded { snapshot, records, head: row.head })
}

/// See [`crate::Store::history`].
pub(super) fn history(
    conn: &Connection,
    place: &Place,
    key: &JournalKey,
    after: Seq,
    limit: usize,
) -> Result<Vec<StoredRecord>, Failure> {
    match JournalRow::find(conn, key)? {
        Some(row) => records(conn, place, key, &row, after, limit),
        None => Ok(Vec::new()),
    }
}

fn records(
    conn: &Connection,
    place: &Place,
    key: &JournalKey,
    row: &JournalRow,
    after: Seq,
    limit: usize,
) -> Result<Vec<StoredRecord>, Failure> {
    let mut select = conn.prepare_cached(
        "SELECT seq, id, fence, kind, version, at_ms, body, sum FROM record
         WHERE journal = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3",
    )?;
    let (from, limit) = (i64::try_from(after.0).unwrap_or(i64::MAX), i64::try_from(limit).unwrap_or(i64::MAX));
    let mut rows = select.query(params![row.id, from, limit])?;
    let mut records = Vec::new();
    let mut expected = after.next();
    while let Some(row) = rows.next()? {
        let (stored, sum) = read_record(row).map_err(|error| match error {
            // The row itself is unreadable; anything else concerns the whole file.
            rusqlite::Error::FromSqlConversionFailure(..)
            | rusqlite::Error::IntegralValueOutOfRange(..)
            | rusqlite::Error::InvalidColumnType(..)
            | rusqlite::Error::Utf8Error(..) => Failure::from(damaged(place, key, expected, &error.to_string())),
            other => Failure::from(other),
        })?;
        if stored.seq != expected {
            return Err(damaged(place, key, expected, "it is missing").into());
        }
        if sum != record_sum(stored.seq, &stored.record) {
            return Err(damaged(place, key, expected, "its checksum does not fit").into());
        }
        expected = expected.next();
        records.push(stored);
    }
    Ok(records)
}

fn read_record(row: &Row<'_>) -> rusqlite::Result<(StoredRecord, i64)> {
    let record = NewRecord {
        id: RecordId::from(row.get::<_, String>(1)?),
        kind: row.get(3)?,
        version: row.get(4)?,
        at_ms: row.get::<_, i64>(5)?.cast_unsigned(),
        body: row.get(6)?,
    };
    let seq = Seq(row.get::<_, i64>(0)?.cast_unsigned());
    let fence = Fence(row.get::<_, i64>(2)?.cast_unsigned());
    Ok((StoredRecord { seq, fence, record }, row.get(7)?))
}

fn snapshot(
    conn: &Connection,
    place: &Place,
    key: &JournalKey,
    row: &JournalRow,
) -> Result<Option<(Seq, String)>, Failure> {
    let mut select = conn.prepare_cached("SELECT seq, body, sum FROM snapshot WHERE journal = ?1")?;
    let found = select
        .query_row([row.id], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?, row.get::<_, i64>(2)?)))
        .optional()?;
    let Some((seq, text, stored_sum)) = found else { return Ok(None) };
    let seq = Seq(seq.cast_unsigned());
    if stored_sum == snapshot_sum(seq, &text) && seq <= row.head {
        return Ok(Some((seq, text)));
    }
    // The records are all there, so a damaged snapshot costs time and no content.
    tracing::warn!(session = %key.session, %seq, store = %place.path().display(), "snapshot is damaged, reading all records");
    Ok(None)
}

/// See [`crate::Store::sessions`].
pub(super) fn sessions(
    conn: &Connection,
    org: &OrgId,
    limit: usize,
    now: Duration,
) -> Result<Vec<SessionSummary>, Failure> {
    let mut select = conn.prepare_cached(&format!(
        "SELECT {COLUMNS}, session FROM journal WHERE org = ?1 AND fence > 0 ORDER BY updated_ms DESC, session LIMIT ?2"
    ))?;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let lines = select.query_map(params![org.as_str(), limit], |line| {
        let row = JournalRow::from_row(line)?;
        Ok(SessionSummary {
            key: JournalKey { org: org.clone(), session: line.get::<_, String>("session")?.into() },
            head: row.head,
            updated_ms: row.updated_ms,
            owner: row.owner(now).map(|(owner, left)| (owner.clone(), left)),
        })
    })?;
    Ok(lines.collect::<Result<_, _>>()?)
}

fn damaged(place: &Place, key: &JournalKey, seq: Seq, why: &str) -> StoreError {
    StoreError::Corrupt {
        place: format!("record {seq} of session {:?} in {}", key.session.as_str(), place.path().display()),
        why: why.to_owned(),
    }
}
