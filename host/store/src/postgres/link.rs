//! Connections, and one statement over one of them: with a bound for each wait, and with what its failure means.

use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::{Client, Hook, HookError, Manager, ManagerConfig, Object, Pool, RecyclingMethod, Runtime};
use tokio::time::timeout;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::address::Address;
use super::failure::{Failure, of_pool, of_statement};
use crate::limits::{
    POSTGRES_ANSWER_MAX, POSTGRES_CONNECT_MAX, POSTGRES_CONNECTIONS, POSTGRES_LOCK_MAX, POSTGRES_STATEMENT_MAX,
};
use crate::{Clock, Fault, FaultAction, FaultPoint, Stage, StoreError, Write};

use super::PostgresOptions;

/// The way to the database; cheap to clone.
#[derive(Clone)]
pub(super) struct Link {
    pool: Pool,
    /// Where it is, for messages.
    pub(super) place: Arc<str>,
    clock: Option<Clock>,
    fault: Option<Fault>,
}

/// What a function of the schema answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) word: String,
    pub(super) num: Option<i64>,
    pub(super) num2: Option<i64>,
    pub(super) bytes: Option<Vec<u8>>,
}

impl Answer {
    fn of(row: &Row) -> Result<Self, tokio_postgres::Error> {
        Ok(Self { word: row.try_get(0)?, num: row.try_get(1)?, num2: row.try_get(2)?, bytes: row.try_get(3)? })
    }

    /// A name or label that came back.
    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(self.bytes.as_deref().unwrap_or_default()).into_owned()
    }

    pub(super) fn number(&self) -> u64 {
        self.num.unwrap_or_default().cast_unsigned()
    }
}

/// Parameters of a statement.
pub(super) type Params<'a> = &'a [&'a (dyn ToSql + Sync)];

impl Link {
    pub(super) fn new(address: &Address, options: PostgresOptions) -> Result<Self, StoreError> {
        let config = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let manager = Manager::from_config(address.config.clone(), address.tls()?, config);
        let pool = Pool::builder(manager)
            .max_size(POSTGRES_CONNECTIONS)
            .runtime(Runtime::Tokio1)
            .create_timeout(Some(POSTGRES_CONNECT_MAX))
            .wait_timeout(Some(POSTGRES_CONNECT_MAX))
            .post_create(Hook::async_fn(|client, _| {
                Box::pin(async move { client.batch_execute(&settings()).await.map_err(HookError::Backend) })
            }))
            .build();
        let place: Arc<str> = address.to_string().into();
        let pool = pool.map_err(|error| super::address::wrong(&error.to_string()))?;
        Ok(Self { pool, place, clock: options.clock, fault: options.fault })
    }

    /// The time by which leases are judged, in milliseconds, where a test gives one; else the database has its own.
    pub(super) fn now(&self) -> Option<i64> {
        self.clock.as_ref().map(|clock| millis(clock()))
    }

    pub(super) async fn client(&self, what: &str) -> Result<Client, Failure> {
        self.pool.get().await.map_err(|error| of_pool(&self.place, what, &error))
    }

    /// Runs one statement.
    pub(super) async fn query(&self, what: &str, sql: &str, params: Params<'_>) -> Result<Vec<Row>, Failure> {
        let client = self.client(what).await?;
        let asked = async {
            let statement = client.prepare_cached(sql).await?;
            client.query(&statement, params).await
        };
        let failure = match timeout(POSTGRES_ANSWER_MAX, asked).await {
            Ok(Ok(rows)) => return Ok(rows),
            Ok(Err(error)) => of_statement(&self.place, what, &error),
            Err(_) => Failure {
                error: StoreError::Io {
                    what: format!("{what} in {}", self.place),
                    why: format!("there was no answer within {} s", POSTGRES_ANSWER_MAX.as_secs()),
                    transient: true,
                },
                doubt: true,
                connection: true,
            },
        };
        // Whatever went wrong: the next try gets another connection, perhaps to another server.
        if failure.may_pass() {
            drop(Object::take(client));
        }
        Err(failure)
    }

    /// Runs one statement that answers with a row of `wharf.answer` each.
    pub(super) async fn ask(&self, what: &str, sql: &str, params: Params<'_>) -> Result<Vec<Answer>, Failure> {
        let rows = self.query(what, sql, params).await?;
        let read: Result<Vec<Answer>, _> = rows.iter().map(Answer::of).collect();
        read.map_err(|error| Failure { doubt: true, ..of_statement(&self.place, what, &error) })
    }

    /// The same for one answer.
    pub(super) async fn ask_one(&self, what: &str, sql: &str, params: Params<'_>) -> Result<Answer, Failure> {
        self.ask(what, sql, params).await?.pop().ok_or_else(|| {
            let why = "it answered nothing".to_owned();
            StoreError::Unknown { what: format!("{what} in {}", self.place), why }.into()
        })
    }

    /// What a test wants to happen here.
    pub(super) fn pass(&self, write: Write, stage: Stage) -> Result<(), Failure> {
        let error = match self.fault.as_ref().map_or(FaultAction::Go, |fault| fault(FaultPoint { write, stage })) {
            FaultAction::Go => return Ok(()),
            FaultAction::Fail(error) => error,
            FaultAction::Crash | FaultAction::Tear => {
                let why = "the store crashed".to_owned();
                StoreError::Unknown { what: "the operation".to_owned(), why }
            }
        };
        Err(Failure { doubt: stage == Stage::AfterSyncBeforeAnswer, ..error.into() })
    }

    pub(super) fn close(&self) {
        self.pool.close();
    }
}

/// What each connection has, whatever the server's or the role's defaults are: a commit is on the disk before it is reported
/// (M4; a stronger setting stays), and no wait is without an end.
fn settings() -> String {
    let millis = |time: Duration| time.as_millis();
    format!(
        "SELECT set_config('synchronous_commit', CASE current_setting('synchronous_commit')
           WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, false);
         SET default_transaction_isolation = 'read committed';
         SET statement_timeout = {}; SET lock_timeout = {}; SET idle_in_transaction_session_timeout = {}",
        millis(POSTGRES_STATEMENT_MAX),
        millis(POSTGRES_LOCK_MAX),
        millis(POSTGRES_STATEMENT_MAX)
    )
}

/// Whole milliseconds; what does not fit is for ever, which is a third of what numbers can say, as times are added up.
pub(super) fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX).min(i64::MAX / 3)
}
