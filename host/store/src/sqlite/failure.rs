//! What SQLite's errors mean for the caller.

use rusqlite::ErrorCode;

use super::schema::Place;
use crate::StoreError;

/// Why a piece of work on the database did not come about.
#[derive(Debug)]
pub(super) enum Failure {
    /// The store says no: a lost lease, a stale sequence, something too large or damaged.
    Refused(StoreError),
    /// SQLite failed.
    Sql(rusqlite::Error),
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Refused(error)
    }
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

impl Place {
    /// The failure as the caller sees it.
    pub(super) fn fail(&self, what: &str, failure: Failure) -> StoreError {
        match failure {
            Failure::Refused(error) => error,
            Failure::Sql(error) => self.explain(what, &error),
        }
    }

    /// SQLite's error as the caller sees it, as long as nothing was committed.
    pub(super) fn explain(&self, what: &str, error: &rusqlite::Error) -> StoreError {
        let place = self.path().display().to_string();
        let io = |transient: bool, hint: &str| StoreError::Io {
            what: format!("{what} in {place}"),
            why: format!("{error}{hint}"),
            transient,
        };
        match error.sqlite_error_code() {
            Some(ErrorCode::NotADatabase) => {
                StoreError::Corrupt { place, why: "it is not a SQLite database".to_owned() }
            }
            // A value of another type than its column says comes from damage too, and has no code.
            Some(ErrorCode::DatabaseCorrupt) | None => StoreError::Corrupt { place, why: error.to_string() },
            Some(ErrorCode::DiskFull) => io(true, " (no space is left for it)"),
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => io(true, " (another process is writing)"),
            Some(ErrorCode::SystemIoFailure | ErrorCode::FileLockingProtocolFailed | ErrorCode::OutOfMemory) => {
                io(true, "")
            }
            Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => {
                io(false, " (the folder and the database files must be writable)")
            }
            Some(ErrorCode::CannotOpen) => io(false, " (is it a regular file in a folder that we may write to?)"),
            Some(_) => io(false, ""),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use rusqlite::ffi;

    use super::super::SqliteOptions;
    use super::*;

    // Rights cannot be taken from a test that runs as root, so the codes themselves are tried.
    #[test]
    fn each_code_says_whether_waiting_helps() {
        let dir = tempfile::TempDir::new().unwrap();
        let place = Place::prepare(dir.path(), &SqliteOptions::default()).unwrap();
        let path = place.path().display().to_string();
        let explain = |code: i32| {
            place.explain("appending", &rusqlite::Error::SqliteFailure(ffi::Error::new(code), Some("said".to_owned())))
        };
        let io = |hint: &str, transient| StoreError::Io {
            what: format!("appending in {path}"),
            why: format!("said{hint}"),
            transient,
        };
        let rights = " (the folder and the database files must be writable)";
        assert_eq!(explain(ffi::SQLITE_FULL), io(" (no space is left for it)", true));
        assert_eq!(explain(ffi::SQLITE_BUSY), io(" (another process is writing)", true));
        assert_eq!(explain(ffi::SQLITE_IOERR_FSYNC), io("", true));
        assert_eq!(explain(ffi::SQLITE_READONLY_DIRECTORY), io(rights, false));
        assert_eq!(explain(ffi::SQLITE_PERM), io(rights, false));
        let open = " (is it a regular file in a folder that we may write to?)";
        assert_eq!(explain(ffi::SQLITE_CANTOPEN), io(open, false));
        let corrupt = |why: &str| StoreError::Corrupt { place: path.clone(), why: why.to_owned() };
        assert_eq!(explain(ffi::SQLITE_CORRUPT), corrupt("said"));
        assert_eq!(explain(ffi::SQLITE_NOTADB), corrupt("it is not a SQLite database"));
    }
}
