//! How a database is set up, as far as that matters to journals: for people who look after it.

use std::time::{Duration, SystemTime};

use super::PostgresStore;
use super::failure::{Failure, of_statement};
use super::link::Link;
use crate::StoreError;

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PostgresHealth {
    /// The server's version, for example `15.14`.
    pub server_version: String,
    /// The form of wharf's tables.
    pub form: u64,
    /// Whether the server syncs to its disk. Without it a crash loses what was reported (M4).
    pub fsync: bool,
    /// Whether it guards against pages that are torn by a crash.
    pub full_page_writes: bool,
    /// Standbys that a commit waits for; empty for none. Without one a failover loses the last commits.
    pub synchronous_standbys: String,
    /// Connections that there are now, and that there may be.
    pub connections: (u64, u64),
    /// By how much its clock differs from this machine's. It decides nothing, as leases follow its clock alone.
    pub clock_differs_by: Duration,
}

impl PostgresStore {
    /// Looks at the database.
    ///
    /// # Errors
    ///
    /// [`StoreError::Io`] if it cannot be asked.
    pub async fn health(&self) -> Result<PostgresHealth, StoreError> {
        self.read("looking at the database", |link| async move { look(&link).await }).await
    }
}

async fn look(link: &Link) -> Result<PostgresHealth, Failure> {
    let what = "looking at the database";
    let sql = "SELECT current_setting('server_version'), (SELECT max(number) FROM wharf.form),
                 current_setting('fsync')::boolean, current_setting('full_page_writes')::boolean,
                 current_setting('synchronous_standby_names'), (SELECT count(*) FROM pg_stat_activity),
                 current_setting('max_connections')::bigint, wharf.now_ms(NULL)";
    let rows = link.query(what, sql, &[]).await?;
    let ours = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let read = || -> Result<Option<PostgresHealth>, tokio_postgres::Error> {
        let Some(row) = rows.first() else { return Ok(None) };
        let (form, now): (Option<i32>, i64) = (row.try_get(1)?, row.try_get(7)?);
        let (used, all): (i64, i64) = (row.try_get(5)?, row.try_get(6)?);
        Ok(Some(PostgresHealth {
            server_version: row.try_get(0)?,
            form: form.and_then(|form| u64::try_from(form).ok()).unwrap_or(0),
            fsync: row.try_get(2)?,
            full_page_writes: row.try_get(3)?,
            synchronous_standbys: row.try_get(4)?,
            connections: (used.cast_unsigned(), all.cast_unsigned()),
            clock_differs_by: Duration::from_millis(now.cast_unsigned()).abs_diff(ours),
        }))
    };
    read()
        .map_err(|error| of_statement(&link.place, what, &error))?
        .ok_or_else(|| StoreError::Unknown { what: what.to_owned(), why: "it answered nothing".to_owned() }.into())
}
