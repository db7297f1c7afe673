//! Who may append, as rows.
//!
//! Time here decides who may try, never who is right: that is the fence (N4). All of this runs in a write transaction.

use std::time::Duration;

use rusqlite::{Connection, OptionalExtension as _, Row, params};
use wharf_core::{Fence, Seq};

use super::failure::Failure;
use crate::{Acquire, Claim, DeletionMark, JournalKey, Lease, Open, Owner, StoreError};

/// A session's row.
#[derive(Debug)]
pub(super) struct JournalRow {
    pub(super) id: i64,
    pub(super) head: Seq,
    pub(super) updated_ms: u64,
    fence: Fence,
    held: Option<Held>,
}

#[derive(Debug)]
struct Held {
    owner: Owner,
    until_ms: i64,
    ttl_ms: i64,
}

/// The columns that [`JournalRow::from_row`] reads, in its order.
pub(super) const COLUMNS: &str = "id, head, updated_ms, fence, token, label, until_ms, ttl_ms";

impl JournalRow {
    /// The session's row; this is where a deleted session is refused.
    pub(super) fn find(conn: &Connection, key: &JournalKey) -> Result<Option<Self>, Failure> {
        let mut find = conn.prepare_cached(
            "SELECT id, head, updated_ms, fence, token, label, until_ms, ttl_ms, deleted_by, deleted_ms
             FROM journal WHERE org = ?1 AND session = ?2",
        )?;
        let found = find.query_row(params![key.org.as_str(), key.session.as_str()], |row| {
            let at_ms = row.get::<_, Option<i64>>(9)?;
            Ok((Self::from_row(row)?, row.get::<_, Option<String>>(8)?.zip(at_ms)))
        });
        match found.optional()? {
            Some((_, Some((who, at_ms)))) => {
                Err(DeletionMark { who, at_ms: at_ms.cast_unsigned() }.refusal(key).into())
            }
            Some((row, None)) => Ok(Some(row)),
            None => Ok(None),
        }
    }

    /// The session's row, made if it is absent.
    pub(super) fn find_or_make(conn: &Connection, key: &JournalKey) -> Result<Self, Failure> {
        if let Some(row) = Self::find(conn, key)? {
            return Ok(row);
        }
        conn.prepare_cached("INSERT INTO journal (org, session) VALUES (?1, ?2)")?
            .execute(params![key.org.as_str(), key.session.as_str()])?;
        let id = conn.last_insert_rowid();
        Ok(Self { id, head: Seq(0), updated_ms: 0, fence: Fence(0), held: None })
    }

    pub(super) fn from_row(row: &Row<'_>) -> rusqlite::Result<Self> {
        let held = match row.get::<_, Option<String>>(4)? {
            Some(token) => {
                Some(Held { owner: Owner { token, label: row.get(5)? }, until_ms: row.get(6)?, ttl_ms: row.get(7)? })
            }
            None => None,
        };
        Ok(Self {
            id: row.get(0)?,
            head: Seq(row.get::<_, i64>(1)?.cast_unsigned()),
            updated_ms: row.get::<_, i64>(2)?.cast_unsigned(),
            fence: Fence(row.get::<_, i64>(3)?.cast_unsigned()),
            held,
        })
    }

    /// The live owner and how long it stays that.
    pub(super) fn owner(&self, now: Duration) -> Option<(&Owner, Duration)> {
        let held = self.held.as_ref()?;
        let left = held.until_ms.saturating_sub(millis(now));
        // More than its whole time left means that the clock was set back: it has at most its whole time.
        let left = u64::try_from(left.min(held.ttl_ms)).unwrap_or(0);
        (left > 0).then_some((&held.owner, Duration::from_millis(left)))
    }

    /// Refuses an owner that knows another head (N4).
    pub(super) fn expect_head(&self, lease: &Lease, expected: Seq) -> Result<(), StoreError> {
        let (session, found) = (lease.key.session.to_string(), self.head);
        if expected == found { Ok(()) } else { Err(StoreError::Stale { session, expected, found }) }
    }

    fn clock_was_set_back(&self, now: Duration) -> bool {
        self.held.as_ref().is_some_and(|held| held.until_ms.saturating_sub(millis(now)) > held.ttl_ms)
    }
}

/// See [`crate::Store::acquire`]. A refusal still may have something to commit, so it is part of the answer.
pub(super) fn take(
    conn: &Connection,
    key: &JournalKey,
    owner: &Owner,
    ttl: Duration,
    how: Acquire,
    now: Duration,
) -> Result<Result<Lease, StoreError>, Failure> {
    let row = JournalRow::find_or_make(conn, key)?;
    let fence = match (row.owner(now), how) {
        (Some((live, _)), _) if live.token == owner.token => row.fence,
        (Some((live, left)), Acquire::IfFree) => {
            if row.clock_was_set_back(now) {
                // Else a dead owner would hold the session until the clock is where it was.
                conn.prepare_cached("UPDATE journal SET until_ms = ?2 WHERE id = ?1")?
                    .execute(params![row.id, millis(now.saturating_add(left))])?;
            }
            let (session, owner) = (key.session.to_string(), live.label.clone());
            return Ok(Err(StoreError::Busy { session, owner, left }));
        }
        (Some(_), Acquire::TakeOver) | (None, Acquire::IfFree | Acquire::TakeOver) => {
            Fence(row.fence.0.saturating_add(1))
        }
    };
    conn.prepare_cached(
        "UPDATE journal SET fence = ?2, token = ?3, label = ?4, until_ms = ?5, ttl_ms = ?6 WHERE id = ?1",
    )?
    .execute(params![
        row.id,
        fence.0.cast_signed(),
        owner.token,
        owner.label,
        millis(now.saturating_add(ttl)),
        millis(ttl)
    ])?;
    Ok(Ok(Lease { key: key.clone(), owner: owner.clone(), fence, head: row.head, ttl }))
}

/// The session's row if the lease holds; this is where a stale owner is refused (N3, N4).
pub(super) fn check(conn: &Connection, lease: &Lease, now: Duration) -> Result<JournalRow, Failure> {
    let fenced = || StoreError::Fenced { session: lease.key.session.to_string() };
    let row = JournalRow::find(conn, &lease.key)?.ok_or_else(fenced)?;
    match row.owner(now) {
        Some((live, _)) if live.token == lease.owner.token && row.fence == lease.fence => Ok(row),
        Some(_) | None => Err(fenced().into()),
    }
}

/// See [`crate::Store::renew`].
pub(super) fn renew(conn: &Connection, lease: &Lease, now: Duration) -> Result<(), Failure> {
    let row = check(conn, lease, now)?;
    prolong(conn, &row, lease, now)
}

/// Gives the lease its whole time again.
pub(super) fn prolong(conn: &Connection, row: &JournalRow, lease: &Lease, now: Duration) -> Result<(), Failure> {
    conn.prepare_cached("UPDATE journal SET until_ms = ?2, ttl_ms = ?3 WHERE id = ?1")?.execute(params![
        row.id,
        millis(now.saturating_add(lease.ttl)),
        millis(lease.ttl)
    ])?;
    Ok(())
}

/// See [`crate::Store::release`].
pub(super) fn release(conn: &Connection, lease: &Lease, now: Duration) -> Result<(), Failure> {
    let row = check(conn, lease, now)?;
    conn.prepare_cached(
        "UPDATE journal SET token = NULL, label = NULL, until_ms = NULL, ttl_ms = NULL, waiting_ms = ?2 WHERE id = ?1",
    )?
    .execute(params![row.id, millis(now)])?;
    Ok(())
}

/// See [`crate::Store::claim`].
pub(super) fn claim(conn: &Connection, claim: &Claim, owner: &Owner, now: Duration) -> Result<Option<Lease>, Failure> {
    let mut waiting = conn.prepare_cached(&format!(
        "SELECT {COLUMNS}, session, open_for FROM journal WHERE org = ?1 AND is_open = 1
         ORDER BY max(waiting_ms, ifnull(until_ms, 0)), session"
    ))?;
    let mut rows = waiting.query([claim.org.as_str()])?;
    while let Some(line) = rows.next()? {
        let (row, session): (_, String) = (JournalRow::from_row(line)?, line.get("session")?);
        let harness: Option<String> = line.get("open_for")?;
        let ours = harness.is_some_and(|harness| claim.harnesses.contains(&harness));
        if ours && row.owner(now).is_none() && !claim.skip.iter().any(|skipped| skipped.as_str() == session) {
            let key = JournalKey { org: claim.org.clone(), session: session.into() };
            return match take(conn, &key, owner, claim.ttl, Acquire::IfFree, now)? {
                Ok(lease) => Ok(Some(lease)),
                Err(refused) => Err(refused.into()),
            };
        }
    }
    Ok(None)
}

/// Says who may go on with the session once nobody has it.
pub(super) fn set_open(conn: &Connection, row: &JournalRow, open: &Open) -> Result<(), Failure> {
    match open {
        Open::No => {
            conn.prepare_cached("UPDATE journal SET is_open = 0 WHERE id = ?1 AND is_open = 1")?.execute([row.id])?
        }
        Open::For(harness) => conn
            .prepare_cached(
                "UPDATE journal SET is_open = 1, open_for = ?2 WHERE id = ?1 AND (is_open = 0 OR open_for IS NOT ?2)",
            )?
            .execute(params![row.id, harness])?,
    };
    Ok(())
}

/// An item came: whoever runs the session's harness may go on with it.
pub(super) fn open_again(conn: &Connection, id: i64, now: Duration) -> Result<(), Failure> {
    conn.prepare_cached(
        "UPDATE journal SET is_open = 1, waiting_ms = ?2 WHERE id = ?1 AND is_open = 0 AND open_for IS NOT NULL",
    )?
    .execute(params![id, millis(now)])?;
    Ok(())
}

/// Moves the head and renews the lease in one row, as the last step of an append.
pub(super) fn advance(
    conn: &Connection,
    row: &JournalRow,
    lease: &Lease,
    head: Seq,
    updated_ms: u64,
    now: Duration,
) -> Result<(), Failure> {
    conn.prepare_cached("UPDATE journal SET head = ?2, updated_ms = ?3, until_ms = ?4, ttl_ms = ?5 WHERE id = ?1")?
        .execute(params![
            row.id,
            head.0.cast_signed(),
            updated_ms.cast_signed(),
            millis(now.saturating_add(lease.ttl)),
            millis(lease.ttl)
        ])?;
    Ok(())
}

/// Whole milliseconds; what does not fit is for ever.
fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}
