//! What is read: records, snapshots, blobs, inboxes, lists of sessions. Needs no lease and changes nothing (M1).
//!
//! Records never change, so a head that is read first and records up to it are of one moment.

use std::time::Duration;

use tokio_postgres::Row;
use wharf_core::{BlobDigest, Fence, InboxId, OrgId, RecordId, Seq};

use super::failure::{Failure, of_statement};
use super::link::Link;
use crate::sums::{record_sum, snapshot_sum};
use crate::{DeletionMark, InboxItem, JournalKey, Loaded, NewRecord, Owner, SessionSummary, StoreError, StoredRecord};

const READING: &str = "reading the journal";

/// A session's row.
pub(super) struct Journal {
    pub(super) id: i64,
    head: Seq,
}

/// The session's row; this is where a deleted session is refused.
async fn find(link: &Link, what: &str, key: &JournalKey) -> Result<Option<Journal>, Failure> {
    let sql = "SELECT id, head, deleted_ms, deleted_by FROM wharf.journal WHERE org = $1 AND session = $2";
    let rows = link.query(what, sql, &[&key.org.as_str(), &key.session.as_str()]).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let read = || -> Result<_, tokio_postgres::Error> {
        let deleted: Option<i64> = row.try_get(2)?;
        let who: Option<Vec<u8>> = row.try_get(3)?;
        Ok((row.try_get(0)?, seq(row.try_get(1)?), deleted.zip(who)))
    };
    match read().map_err(|error| of_statement(&link.place, what, &error))? {
        (_, _, Some((at_ms, who))) => {
            let mark = DeletionMark { who: text(who), at_ms: at_ms.cast_unsigned() };
            Err(mark.refusal(key).into())
        }
        (id, head, None) => Ok(Some(Journal { id, head })),
    }
}

/// See [`crate::Store::load`].
pub(super) async fn load(link: &Link, key: &JournalKey, after: Seq) -> Result<Loaded, Failure> {
    let Some(journal) = find(link, READING, key).await? else { return Ok(Loaded::default()) };
    let snapshot = if after == Seq(0) { snapshot(link, key, &journal).await? } else { None };
    let after = snapshot.as_ref().map_or(after, |(seq, _)| *seq);
    let records = records(link, key, &journal, after, i64::MAX).await?;
    let last = records.last().map_or(after, |last| last.seq);
    if last < journal.head {
        // Gone or deleted between two looks.
        find(link, READING, key).await?;
        return Err(damaged(link, key, last.next(), "it is missing").into());
    }
    Ok(Loaded { snapshot, records, head: journal.head })
}

/// See [`crate::Store::history`].
pub(super) async fn history(
    link: &Link,
    key: &JournalKey,
    after: Seq,
    limit: usize,
) -> Result<Vec<StoredRecord>, Failure> {
    match find(link, READING, key).await? {
        Some(journal) => records(link, key, &journal, after, i64::try_from(limit).unwrap_or(i64::MAX)).await,
        None => Ok(Vec::new()),
    }
}

async fn records(
    link: &Link,
    key: &JournalKey,
    journal: &Journal,
    after: Seq,
    limit: i64,
) -> Result<Vec<StoredRecord>, Failure> {
    let sql = "SELECT seq, id, fence, kind, version, at_ms, body, sum FROM wharf.record
               WHERE journal = $1 AND seq > $2 AND seq <= $3 ORDER BY seq LIMIT $4";
    let from = i64::try_from(after.0).unwrap_or(i64::MAX);
    let rows = link.query(READING, sql, &[&journal.id, &from, &journal.head.0.cast_signed(), &limit]).await?;
    let mut records = Vec::with_capacity(rows.len());
    let mut expected = after.next();
    for row in &rows {
        let (stored, sum) = read_record(row).map_err(|why| damaged(link, key, expected, &why))?;
        if stored.seq != expected {
            return Err(damaged(link, key, expected, "it is missing").into());
        }
        if sum != record_sum(stored.seq, &stored.record) {
            return Err(damaged(link, key, expected, "its checksum does not fit").into());
        }
        expected = expected.next();
        records.push(stored);
    }
    Ok(records)
}

fn read_record(row: &Row) -> Result<(StoredRecord, i64), String> {
    let read = || -> Result<_, tokio_postgres::Error> {
        let version: i32 = row.try_get(4)?;
        let at_ms: i64 = row.try_get(5)?;
        let fence: i64 = row.try_get(2)?;
        let record = NewRecord {
            id: RecordId::from(row.try_get::<_, String>(1)?),
            kind: row.try_get(3)?,
            version: 0,
            at_ms: at_ms.cast_unsigned(),
            body: String::new(),
        };
        Ok((
            seq(row.try_get(0)?),
            Fence(fence.cast_unsigned()),
            record,
            version,
            row.try_get::<_, Vec<u8>>(6)?,
            row.try_get(7)?,
        ))
    };
    let (seq, fence, record, version, body, sum) = read().map_err(|error| error.to_string())?;
    let version = u16::try_from(version).map_err(|_| format!("its version is {version}"))?;
    let body = String::from_utf8(body).map_err(|_| "its body is no text".to_owned())?;
    Ok((StoredRecord { seq, fence, record: NewRecord { version, body, ..record } }, sum))
}

async fn snapshot(link: &Link, key: &JournalKey, journal: &Journal) -> Result<Option<(Seq, String)>, Failure> {
    let sql = "SELECT seq, body, sum FROM wharf.snapshot WHERE journal = $1 AND seq <= $2";
    let rows = link.query(READING, sql, &[&journal.id, &journal.head.0.cast_signed()]).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let read = || -> Result<(Seq, Vec<u8>, i64), tokio_postgres::Error> {
        Ok((seq(row.try_get(0)?), row.try_get(1)?, row.try_get(2)?))
    };
    let (seq, body, sum) = read().map_err(|error| of_statement(&link.place, READING, &error))?;
    match String::from_utf8(body) {
        Ok(body) if sum == snapshot_sum(seq, &body) => Ok(Some((seq, body))),
        // The records are all there, so a damaged snapshot costs time and no content.
        _ => {
            tracing::warn!(session = %key.session, %seq, store = %link.place, "snapshot is damaged, reading all records");
            Ok(None)
        }
    }
}

/// See [`crate::Store::sessions`].
pub(super) async fn sessions(link: &Link, org: &OrgId, limit: usize) -> Result<Vec<SessionSummary>, Failure> {
    let what = "listing sessions";
    let sql = "SELECT session, head, updated_ms, token, label, wharf.left_ms(j, wharf.now_ms($2)) FROM wharf.journal j
               WHERE org = $1 AND fence > 0 ORDER BY updated_ms DESC, session LIMIT $3";
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let rows = link.query(what, sql, &[&org.as_str(), &link.now(), &limit]).await?;
    let read = |row: &Row| -> Result<SessionSummary, tokio_postgres::Error> {
        let updated_ms: i64 = row.try_get(2)?;
        let left: Option<i64> = row.try_get(5)?;
        let owner = match (row.try_get::<_, Option<String>>(3)?, left) {
            (Some(token), Some(left)) => {
                let label = row.try_get::<_, Option<Vec<u8>>>(4)?.map(text).unwrap_or_default();
                Some((Owner { token, label }, Duration::from_millis(left.cast_unsigned())))
            }
            _ => None,
        };
        let key = JournalKey { org: org.clone(), session: row.try_get::<_, String>(0)?.into() };
        Ok(SessionSummary { key, head: seq(row.try_get(1)?), updated_ms: updated_ms.cast_unsigned(), owner })
    };
    rows.iter().map(read).collect::<Result<_, _>>().map_err(|error| of_statement(&link.place, what, &error))
}

/// See [`crate::Store::blob`].
pub(super) async fn blob(link: &Link, key: &JournalKey, digest: &BlobDigest) -> Result<Option<Vec<u8>>, Failure> {
    let what = "reading a blob";
    let Some(journal) = find(link, what, key).await? else { return Ok(None) };
    let sql = "SELECT b.size, p.bytes FROM wharf.blob b
               LEFT JOIN wharf.blob_piece p ON p.journal = b.journal AND p.digest = b.digest
               WHERE b.journal = $1 AND b.digest = $2 ORDER BY p.piece";
    let rows = link.query(what, sql, &[&journal.id, &digest.as_str()]).await?;
    let mut whole: Option<(i64, Vec<u8>)> = None;
    for row in &rows {
        let read = || -> Result<(i64, Option<&[u8]>), tokio_postgres::Error> { Ok((row.try_get(0)?, row.try_get(1)?)) };
        let (size, piece) = read().map_err(|error| of_statement(&link.place, what, &error))?;
        whole.get_or_insert((size, Vec::new())).1.extend_from_slice(piece.unwrap_or_default());
    }
    match whole {
        Some((size, bytes)) if i64::try_from(bytes.len()).ok() != Some(size) => Err(StoreError::Corrupt {
            place: format!("blob {digest} of session {:?} in {}", key.session.as_str(), link.place),
            why: format!("{} of its {size} bytes are there", bytes.len()),
        }
        .into()),
        whole => Ok(whole.map(|(_, bytes)| bytes)),
    }
}

/// See [`crate::Store::inbox`].
pub(super) async fn inbox(link: &Link, key: &JournalKey) -> Result<Vec<InboxItem>, Failure> {
    let what = "reading the inbox";
    let Some(journal) = find(link, what, key).await? else { return Ok(Vec::new()) };
    let sql = "SELECT id, target, kind, who, at_ms, digest, body FROM wharf.inbox
               WHERE journal = $1 AND NOT consumed ORDER BY place";
    let rows = link.query(what, sql, &[&journal.id]).await?;
    let read = |row: &Row| -> Result<InboxItem, tokio_postgres::Error> {
        let word = |at: usize| row.try_get::<_, Vec<u8>>(at).map(text);
        let at_ms: i64 = row.try_get(4)?;
        Ok(InboxItem {
            id: InboxId::from(word(0)?),
            target: word(1)?,
            kind: word(2)?,
            who: word(3)?,
            at_ms: at_ms.cast_unsigned(),
            digest: word(5)?,
            body: word(6)?,
        })
    };
    rows.iter().map(read).collect::<Result<_, _>>().map_err(|error| of_statement(&link.place, what, &error))
}

fn damaged(link: &Link, key: &JournalKey, seq: Seq, why: &str) -> StoreError {
    StoreError::Corrupt {
        place: format!("record {seq} of session {:?} in {}", key.session.as_str(), link.place),
        why: why.to_owned(),
    }
}

fn seq(number: i64) -> Seq {
    Seq(number.cast_unsigned())
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}
