//! What the server's and the connection's errors mean for the caller.

use deadpool_postgres::{HookError, PoolError};
use tokio_postgres::Error;

use crate::StoreError;

/// A statement that did not come about, or of which nobody knows.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) error: StoreError,
    /// It may have been done all the same.
    pub(super) doubt: bool,
    /// The connection or the server is to blame, whatever the statement was.
    pub(super) connection: bool,
}

impl Failure {
    /// The end of it: after doubt no error says that nothing happened (L63).
    pub(super) fn into_error(self, what: &str, doubt: bool) -> StoreError {
        if (self.doubt || doubt) && !matches!(self.error, StoreError::Unknown { .. }) {
            return StoreError::Unknown { what: what.to_owned(), why: self.error.to_string() };
        }
        self.error
    }

    /// True if the same may work later.
    pub(super) fn may_pass(&self) -> bool {
        matches!(self.error, StoreError::Io { transient: true, .. } | StoreError::Unknown { .. })
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self { error, doubt: false, connection: false }
    }
}

/// A statement was given to the server and ended with this.
pub(super) fn of_statement(place: &str, what: &str, error: &Error) -> Failure {
    let failed = |why: String, transient, doubt, connection| Failure {
        error: StoreError::Io { what: format!("{what} in {place}"), why, transient },
        doubt,
        connection,
    };
    let io = |why: String, transient| failed(why, transient, false, false);
    let Some(said) = error.as_db_error() else {
        // What we gave cannot be sent, or the connection broke: the server may have done it, and nobody could tell us.
        let sent = std::error::Error::source(error).is_none_or(|cause| cause.is::<std::io::Error>());
        return if sent || error.is_closed() {
            failed(chain(error), true, true, true)
        } else {
            io(chain(error), false)
        };
    };
    // The message alone: its details may hold content.
    let (code, why) = (said.code().code(), format!("{} (SQLSTATE {})", said.message(), said.code().code()));
    match code.get(..2).unwrap_or(code) {
        // The server stops, or fails over, or ends this connection.
        "57" if code != "57014" => failed(why, true, code != "57P03", true),
        "08" => failed(why, true, true, true),
        "25" if code == "25006" => {
            failed(format!("{why}: this server is not the one that takes writes"), true, false, true)
        }
        "57" | "40" | "55" => io(format!("{why}: others were in the way for too long"), true),
        "53" | "58" => io(why, true),
        "XX" if code != "XX000" => StoreError::Corrupt { place: place.to_owned(), why }.into(),
        "42" if code == "42501" => io(format!("{why}: see roles.sql for what a role needs"), false),
        "3F" | "42" => io(format!("{why}: the tables of wharf are not there, or others"), false),
        _ => io(why, false),
    }
}

/// No connection could be had: nothing was sent.
pub(super) fn of_pool(place: &str, what: &str, error: &PoolError) -> Failure {
    let io = |why: String, transient| Failure {
        error: StoreError::Io { what: format!("{what} in {place}"), why, transient },
        doubt: false,
        connection: true,
    };
    match error {
        PoolError::Backend(error) | PoolError::PostCreateHook(HookError::Backend(error)) => {
            of_connecting(place, what, error)
        }
        PoolError::Timeout(_) => io("no connection could be had in time".to_owned(), true),
        PoolError::Closed => io("the store has stopped".to_owned(), false),
        other => io(other.to_string(), true),
    }
}

/// A connection could not be made.
pub(super) fn of_connecting(place: &str, what: &str, error: &Error) -> Failure {
    let mut failure = of_statement(place, what, error);
    (failure.doubt, failure.connection) = (false, true);
    if let StoreError::Io { why, transient, .. } = &mut failure.error {
        let said = chain(error);
        if said.contains("certificate") || said.contains("UnknownIssuer") {
            *transient = false;
            why.push_str(": name the server's CA with sslrootcert=FILE in the address, or say sslmode=disable where the way is safe");
        }
    }
    failure
}

/// An error with what caused it, as the outermost one says little.
pub(super) fn chain(error: &Error) -> String {
    let mut said = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        let next = error.to_string();
        if !said.contains(&next) {
            said = format!("{said}: {next}");
        }
        cause = error.source();
    }
    said
}
