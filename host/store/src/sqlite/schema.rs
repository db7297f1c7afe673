//! The database file: where it is, how it is opened and made, which form it has.
//!
//! It knows tables and versions, and nothing of what is in them. A file that is not ours, is damaged, or was written by a
//! newer version is left as it was found.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rusqlite::{Connection, OpenFlags};

use super::SqliteOptions;
use super::failure::Failure;
use crate::StoreError;
use crate::limits::{LOG_BYTES_KEPT, STATEMENTS_KEPT};

/// Name of the database in its folder.
pub(super) const FILE: &str = "wharf.db";

/// Name of its log, which SQLite derives from the database's.
const LOG_FILE: &str = "wharf.db-wal";

/// Marks the file as ours ("Whrf").
const APPLICATION: i64 = 0x5768_7266;

/// Size of the smallest database: one page of the smallest size.
const SIZE_MIN: u64 = 512;

/// What leads from each form to the next. Never altered once released; a new form is a new entry.
const MIGRATIONS: &[&str] = &[include_str!("form1.sql"), include_str!("form2.sql"), include_str!("form3.sql")];

/// Closing any handle of a file drops all locks that this process has on it, SQLite's too. So a new file is made under
/// this lock, before any connection of ours can exist.
static MAKING: Mutex<()> = Mutex::new(());

/// Where the database is and how connections to it behave.
#[derive(Debug, Clone)]
pub(super) struct Place {
    path: PathBuf,
    busy_timeout: Duration,
    bytes_max: Option<u64>,
    vfs: Option<String>,
    file: Option<FileId>,
}

impl Place {
    /// Makes folder and file if they are absent, and brings the file to the newest form.
    pub(super) fn prepare(dir: &Path, options: &SqliteOptions) -> Result<Self, StoreError> {
        let path = make(dir).map_err(|error| StoreError::Io {
            what: format!("making the store in {}", dir.display()),
            why: error.to_string(),
            transient: false,
        })?;
        let SqliteOptions { busy_timeout, bytes_max, vfs, .. } = options.clone();
        let mut place = Self { path, busy_timeout, bytes_max, vfs, file: None };
        // SQLite takes what is shorter than its header for an empty database, and would write over it.
        let size = fs::symlink_metadata(&place.path).map(|meta| meta.len());
        if size.is_ok_and(|size| (1..SIZE_MIN).contains(&size)) {
            let place = place.path.display().to_string();
            return Err(StoreError::Corrupt { place, why: "it is not a SQLite database".to_owned() });
        }
        let conn = place.open()?;
        place.bring_up(&conn).map_err(|failure| place.fail("opening the store", failure))?;
        place.file = FileId::of(&place.path);
        Ok(place)
    }

    /// The database file.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// A connection that reads and writes.
    pub(super) fn connect(&self) -> Result<Connection, StoreError> {
        self.check_same_file()?;
        let conn = self.open()?;
        self.configure(&conn).map_err(|failure| self.fail("opening the store", failure))?;
        Ok(conn)
    }

    /// A connection that cannot write.
    pub(super) fn connect_to_read(&self) -> Result<Connection, StoreError> {
        let conn = self.connect()?;
        conn.pragma_update(None, "query_only", true).map_err(|error| self.explain("opening the store", &error))?;
        Ok(conn)
    }

    /// Refuses to go on if the file was removed or replaced: SQLite would go on writing into a file that has no name any
    /// more, and report it as durable.
    pub(super) fn check_same_file(&self) -> Result<(), StoreError> {
        if FileId::of(&self.path) == self.file { Ok(()) } else { Err(replaced(&self.path)) }
    }

    /// Which log stands beside the database. It stays the same for as long as a connection is open.
    pub(super) fn log(&self) -> Option<FileId> {
        FileId::of(&self.log_path())
    }

    /// The same for the log that a connection opened: what goes into one without a name is lost with the process.
    pub(super) fn check_same_log(&self, opened: Option<FileId>) -> Result<(), StoreError> {
        if opened.is_none() || self.log() == opened { Ok(()) } else { Err(replaced(&self.log_path())) }
    }

    fn log_path(&self) -> PathBuf {
        self.path.with_file_name(LOG_FILE)
    }

    /// Refuses to write into a form that is not ours: a newer process may have brought the file up while we run.
    pub(super) fn check_form(&self, conn: &Connection) -> Result<(), Failure> {
        let found: i64 = conn.prepare_cached("PRAGMA user_version")?.query_row([], |row| row.get(0))?;
        if found == newest() { Ok(()) } else { Err(self.wrong_form(found).into()) }
    }

    fn open(&self) -> Result<Connection, StoreError> {
        // Every connection is used by one thread, so SQLite's own lock around it is not needed. The folder's path is
        // resolved already, so a link in the file's place is not followed.
        let flags =
            OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_NOFOLLOW;
        let opened = match &self.vfs {
            Some(vfs) => Connection::open_with_flags_and_vfs(&self.path, flags, vfs.as_str()),
            None => Connection::open_with_flags(&self.path, flags),
        };
        opened
            .and_then(|conn| conn.busy_timeout(self.busy_timeout).map(|()| conn))
            .inspect(|conn| conn.set_prepared_statement_cache_capacity(STATEMENTS_KEPT))
            .map_err(|error| self.explain("opening the store", &error))
    }

    /// Looks before it touches: nothing is written until the file is known to be ours or empty.
    fn bring_up(&self, conn: &Connection) -> Result<(), Failure> {
        let found = self.form(conn)?;
        if found > newest() {
            return Err(self.wrong_form(found).into());
        }
        self.configure(conn)?;
        if found == newest() {
            return Ok(());
        }
        conn.execute_batch("BEGIN IMMEDIATE")?;
        // Another process may have done it since.
        let done = self.form(conn).and_then(|found| {
            let known = usize::try_from(found).unwrap_or(usize::MAX);
            for step in MIGRATIONS.iter().skip(known) {
                conn.execute_batch(step)?;
            }
            conn.pragma_update(None, "application_id", APPLICATION)?;
            conn.pragma_update(None, "user_version", newest())?;
            Ok(())
        });
        match done {
            Ok(()) => Ok(conn.execute_batch("COMMIT")?),
            Err(failure) => {
                // The first failure is the one to tell; without a commit nothing stays anyway.
                let _ = conn.execute_batch("ROLLBACK");
                Err(failure)
            }
        }
    }

    /// The form of the file; 0 if it is empty.
    fn form(&self, conn: &Connection) -> Result<i64, Failure> {
        // All three of one moment: another process may be making the tables right now.
        let snapshot = if conn.is_autocommit() { Some(conn.unchecked_transaction()?) } else { None };
        let number = |name: &str| conn.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
        // The tables first: reading them begins the moment.
        let tables: i64 = conn.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
        let (application, form) = (number("application_id")?, number("user_version")?);
        drop(snapshot);
        match (application, form, tables) {
            (0, 0, 0) => Ok(0),
            (APPLICATION, 1.., 1..) => Ok(form),
            _ => Err(StoreError::Corrupt {
                place: self.path.display().to_string(),
                why: "it is a database, but not one of Wharf".to_owned(),
            }
            .into()),
        }
    }

    fn configure(&self, conn: &Connection) -> Result<(), Failure> {
        self.use_log(conn)?;
        // Full: a commit is on the disk when it returns (M4). The others: the same where the system has a weaker and a
        // stronger sync; no trust in what a damaged or foreign file says; zeroes over what is freed, which costs an append
        // nothing and a replaced snapshot its own pages once more.
        conn.execute_batch(
            "PRAGMA synchronous = FULL;
             PRAGMA fullfsync = ON;
             PRAGMA checkpoint_fullfsync = ON;
             PRAGMA trusted_schema = OFF;
             PRAGMA cell_size_check = ON;
             PRAGMA temp_store = MEMORY;
             PRAGMA secure_delete = ON;",
        )?;
        // Answers with a row, so it cannot be part of the batch above.
        conn.pragma_update_and_check(None, "journal_size_limit", LOG_BYTES_KEPT.cast_signed(), |_| Ok(()))?;
        if let Some(bytes) = self.bytes_max {
            let page: i64 = conn.pragma_query_value(None, "page_size", |row| row.get(0))?;
            let pages = i64::try_from(bytes).unwrap_or(i64::MAX) / page.max(1);
            conn.pragma_update_and_check(None, "max_page_count", pages.max(1), |_| Ok(()))?;
        }
        Ok(())
    }

    /// SQLite does not wait when two connections turn the log on at the same time, so this does.
    fn use_log(&self, conn: &Connection) -> Result<(), Failure> {
        let start = Instant::now();
        loop {
            match conn.pragma_update_and_check(None, "journal_mode", "wal", |row| row.get::<_, String>(0)) {
                Ok(mode) if mode == "wal" => return Ok(()),
                Ok(mode) => {
                    return Err(StoreError::Io {
                        what: format!("opening {}", self.path.display()),
                        why: format!("its file system keeps no write-ahead log (mode {mode:?})"),
                        transient: false,
                    }
                    .into());
                }
                Err(rusqlite::Error::SqliteFailure(code, _))
                    if code.code == rusqlite::ErrorCode::DatabaseBusy && start.elapsed() < self.busy_timeout =>
                {
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn wrong_form(&self, found: i64) -> StoreError {
        let place = self.path.display().to_string();
        match u64::try_from(found) {
            Ok(form) if found > newest() => StoreError::Newer { place, found: form, known: MIGRATIONS.len() as u64 },
            _ => StoreError::Corrupt { place, why: format!("it says that it has form {found}") },
        }
    }
}

/// The newest form that this version writes, and the only one that it writes.
fn newest() -> i64 {
    i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX)
}

fn replaced(path: &Path) -> StoreError {
    StoreError::Io {
        what: format!("using {}", path.display()),
        why: "the file was removed or replaced while it was open".to_owned(),
        transient: false,
    }
}

/// Makes what is absent, for the owner's eyes only (M1, M4).
fn make(dir: &Path) -> io::Result<PathBuf> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
        builder.mode(0o700);
        options.mode(0o600);
    }
    // The folders that have to be made stand in this one. A relative path begins in the current folder.
    let mut above = dir.ancestors().map(|folder| if folder.as_os_str().is_empty() { Path::new(".") } else { folder });
    let above = above.find(|folder| folder.is_dir()).map(Path::to_path_buf);
    builder.create(dir)?;
    let dir = dir.canonicalize()?;
    let path = dir.join(FILE);
    let _making = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
    match options.open(&path) {
        Ok(_) => keep_names(&dir, above.as_deref())?,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => narrow(&path)?,
        Err(error) => return Err(error),
    }
    Ok(path)
}

/// Makes the names of a new file and of the folders that were made for it durable: a synced file that has no name after a
/// power cut is as lost as one that was not synced (M4). `above` is the folder that was there.
#[cfg(unix)]
fn keep_names(dir: &Path, above: Option<&Path>) -> io::Result<()> {
    let above = above.map(Path::canonicalize).transpose()?;
    for folder in dir.ancestors() {
        match fs::File::open(folder) {
            Ok(folder) => folder.sync_all()?,
            // One may write into a folder that one may not read; then nothing can be done.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
            Err(error) => return Err(error),
        }
        if above.as_deref().is_none_or(|above| folder == above) {
            break;
        }
    }
    Ok(())
}

#[cfg(not(unix))]
fn keep_names(_: &Path, _: Option<&Path>) -> io::Result<()> {
    Ok(())
}

/// Takes the rights of others away from a file that was copied here, say. The log's files take their rights from it.
#[cfg(unix)]
fn narrow(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    let meta = fs::symlink_metadata(path)?;
    if !meta.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{FILE} is not a regular file")));
    }
    if meta.permissions().mode() & 0o077 != 0 {
        fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    }
    Ok(())
}

#[cfg(not(unix))]
fn narrow(_: &Path) -> io::Result<()> {
    Ok(())
}

/// Which file stands at a path. Asked without opening it, see [`MAKING`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileId {
    device: u64,
    number: u64,
}

impl FileId {
    #[cfg(unix)]
    fn of(path: &Path) -> Option<Self> {
        use std::os::unix::fs::MetadataExt as _;
        let meta = fs::symlink_metadata(path).ok()?; // no file there is an answer too
        Some(Self { device: meta.dev(), number: meta.ino() })
    }

    #[cfg(not(unix))]
    fn of(_: &Path) -> Option<Self> {
        None
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    // covers M4
    #[test]
    fn every_connection_syncs_each_commit_and_those_for_reading_cannot_write() {
        let dir = tempfile::TempDir::new().unwrap();
        let place = Place::prepare(dir.path(), &SqliteOptions::default()).unwrap();
        let settings = |conn: &Connection| {
            let text = |name: &str| conn.pragma_query_value(None, name, |row| row.get::<_, String>(0)).unwrap();
            let number = |name: &str| conn.pragma_query_value(None, name, |row| row.get::<_, i64>(0)).unwrap();
            (
                text("journal_mode"),
                ["synchronous", "fullfsync", "checkpoint_fullfsync", "secure_delete", "query_only"].map(number),
            )
        };
        assert_eq!(settings(&place.connect().unwrap()), ("wal".to_owned(), [2, 1, 1, 1, 0]));
        assert_eq!(settings(&place.connect_to_read().unwrap()), ("wal".to_owned(), [2, 1, 1, 1, 1]));
    }
}
