//! Inboxes as rows: what anybody with the right leaves for a session (M8).

use std::time::Duration;

use rusqlite::{Connection, OptionalExtension as _, params};
use wharf_core::InboxId;

use super::failure::Failure;
use super::leases::{self, JournalRow};
use crate::limits::INBOX_ITEMS_MAX;
use crate::{InboxItem, InboxPut, JournalKey, StoreError};

/// See [`crate::Store::put_inbox`].
pub(super) fn put(conn: &Connection, key: &JournalKey, item: &InboxItem, now: Duration) -> Result<InboxPut, Failure> {
    let journal = JournalRow::find_or_make(conn, key)?.id;
    let mut first = conn.prepare_cached(
        "SELECT id, target, kind, who, at_ms, digest, body FROM inbox
         WHERE journal = ?1 AND (id = ?2 OR target = ?3) ORDER BY id = ?2 DESC LIMIT 1",
    )?;
    match first.query_row(params![journal, item.id.as_str(), item.target], read).optional()? {
        Some(there) if there == *item => return Ok(InboxPut::Repeated),
        Some(_) => return Ok(InboxPut::TooLate),
        None => {}
    }
    if waiting(conn, journal)? >= INBOX_ITEMS_MAX {
        return Err(StoreError::inbox_full().into());
    }
    conn.prepare_cached(
        "INSERT INTO inbox (journal, id, target, kind, who, at_ms, digest, body) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    )?
    .execute(params![
        journal,
        item.id.as_str(),
        item.target,
        item.kind,
        item.who,
        item.at_ms.cast_signed(),
        item.digest,
        item.body
    ])?;
    leases::open_again(conn, journal, now)?;
    Ok(InboxPut::Accepted)
}

/// See [`crate::Store::inbox`].
pub(super) fn list(conn: &Connection, key: &JournalKey) -> Result<Vec<InboxItem>, Failure> {
    let Some(row) = JournalRow::find(conn, key)? else { return Ok(Vec::new()) };
    let mut list = conn.prepare_cached(
        "SELECT id, target, kind, who, at_ms, digest, body FROM inbox
         WHERE journal = ?1 AND consumed = 0 ORDER BY place",
    )?;
    let items = list.query_map([row.id], read)?.collect::<Result<_, _>>()?;
    Ok(items)
}

/// How many items wait.
pub(super) fn count(conn: &Connection, key: &JournalKey) -> Result<usize, Failure> {
    match JournalRow::find(conn, key)? {
        Some(row) => waiting(conn, row.id),
        None => Ok(0),
    }
}

/// Marks items as consumed, in the transaction of the records that stand for them.
pub(super) fn consume(conn: &Connection, journal: i64, ids: &[InboxId]) -> Result<(), Failure> {
    let mut consume =
        conn.prepare_cached("UPDATE inbox SET consumed = 1 WHERE journal = ?1 AND id = ?2 AND consumed = 0")?;
    for id in ids {
        if consume.execute(params![journal, id.as_str()])? == 0 {
            return Err(StoreError::not_waiting(id).into());
        }
    }
    Ok(())
}

/// True if all of these are consumed: what an append without records leaves behind.
pub(super) fn are_consumed(conn: &Connection, journal: i64, ids: &[InboxId]) -> Result<bool, Failure> {
    let mut look = conn.prepare_cached("SELECT consumed FROM inbox WHERE journal = ?1 AND id = ?2")?;
    for id in ids {
        let consumed = look.query_row(params![journal, id.as_str()], |row| row.get::<_, bool>(0)).optional()?;
        if consumed != Some(true) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn waiting(conn: &Connection, journal: i64) -> Result<usize, Failure> {
    let mut count = conn.prepare_cached("SELECT count(*) FROM inbox WHERE journal = ?1 AND consumed = 0")?;
    Ok(count.query_row([journal], |row| row.get::<_, i64>(0)).map(|count| usize::try_from(count).unwrap_or(0))?)
}

fn read(row: &rusqlite::Row<'_>) -> rusqlite::Result<InboxItem> {
    Ok(InboxItem {
        id: InboxId::from(row.get::<_, String>(0)?),
        target: row.get(1)?,
        kind: row.get(2)?,
        who: row.get(3)?,
        at_ms: row.get::<_, i64>(4)?.cast_unsigned(),
        digest: row.get(5)?,
        body: row.get(6)?,
    })
}
