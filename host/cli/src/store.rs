//! Which store: a database that is named, or the folder beside the harness file.
//!
//! `--store` goes before `WHARF_STORE`, that before the harness's own `[sessions] store`, and that before the folder.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use wharf::core::Error;
use wharf::core::harness::{Harness, KeySource, StoreAddress};
use wharf::store::{PostgresStore, SqliteStore, Store};

use crate::args::HarnessArg;
use crate::open::HarnessFile;
use crate::{files, limits, say};

/// The data folder beside a harness file, which no grant reaches.
const DATA: &str = ".wharf";

/// The environment variable that names a database for every command.
const VARIABLE: &str = "WHARF_STORE";

/// Where sessions are.
pub(crate) enum Place {
    /// A folder of this machine.
    Folder(PathBuf),
    /// A database, by its address, which may hold a password.
    Database(String),
}

impl Place {
    /// Whether there may be sessions: a command that goes on with one must not make a store. A database is asked when it is
    /// opened.
    pub(crate) fn is_there(&self) -> bool {
        match self {
            Self::Folder(data) => files::is_file(&data.join("wharf.db")),
            Self::Database(_) => true,
        }
    }

    /// Equal for equal places; for comparing, never for showing.
    pub(crate) fn identity(&self) -> String {
        match self {
            Self::Folder(folder) => folder.canonicalize().unwrap_or_else(|_| folder.clone()).display().to_string(),
            Self::Database(address) => address.clone(),
        }
    }
}

/// The database that the command line or the environment names.
pub(crate) fn named(arg: &HarnessArg) -> Option<String> {
    let in_environment = || std::env::var(VARIABLE).ok().filter(|address| !address.is_empty());
    arg.store.clone().or_else(in_environment)
}

/// How `--store` is repeated in commands that are shown, with a blank before it. An address with a password is not shown.
pub(crate) fn flag(arg: &HarnessArg) -> String {
    match &arg.store {
        Some(address) if StoreAddress::has_password(address) => " --store ADDRESS".to_owned(),
        Some(address) => format!(" --store {}", say::shell(address)),
        None => String::new(),
    }
}

impl HarnessFile {
    /// Where the sessions of this harness are.
    ///
    /// # Errors
    /// A config error if the address that the harness points at is not there.
    pub(crate) fn place(&self, harness: Option<&Harness>) -> Result<Place, Error> {
        if let Some(address) = &self.store {
            return Ok(Place::Database(address.clone()));
        }
        Ok(match harness.and_then(Harness::store) {
            Some(StoreAddress::Plain(address)) => Place::Database(address.clone()),
            Some(StoreAddress::At(KeySource::Env(name))) => Place::Database(std::env::var(name).map_err(|_| {
                Error::config(format!("[sessions] store names the environment variable {name}, which is not set"))
                    .hint(format!("export {name}=postgres://USER:PASSWORD@HOST/DATABASE"))
            })?),
            Some(StoreAddress::At(KeySource::File(path))) => {
                let path = self.base().join(path);
                let text = files::read_text(&path, limits::KEY_BYTES_MAX).map_err(|error| {
                    Error::config(format!(
                        "[sessions] store names the file {}, which cannot be read: {error}",
                        path.display()
                    ))
                })?;
                Place::Database(text.trim().to_owned())
            }
            None => Place::Folder(self.base().join(DATA)),
        })
    }

    /// The store of this harness; made if it is not there.
    ///
    /// # Errors
    /// Store, corruption and config errors.
    pub(crate) async fn store(&self, harness: &Harness) -> anyhow::Result<Arc<dyn Store>> {
        open(&self.place(Some(harness))?).await
    }
}

/// The store of the sessions that a command is about, which has to be there already, and the flags that name it.
///
/// # Errors
/// A config error if there is none; store and corruption errors.
pub(crate) async fn existing(arg: &HarnessArg) -> anyhow::Result<Option<(Arc<dyn Store>, String)>> {
    let (place, flag) = match HarnessFile::find(arg) {
        // The journals are readable without the harness that made them, and beside one that is no good.
        Ok(file) => (file.place(file.read().ok().as_ref())?, file.flag),
        Err(error) => match named(arg) {
            Some(address) => (Place::Database(address), flag(arg)),
            None if files::is_dir(Path::new(DATA)) => (Place::Folder(PathBuf::from(DATA)), String::new()),
            None => return Err(error.into()),
        },
    };
    if !place.is_there() {
        return Ok(None);
    }
    Ok(Some((open(&place).await?, flag)))
}

/// Opens it.
///
/// # Errors
/// Store and corruption errors.
pub(crate) async fn open(place: &Place) -> anyhow::Result<Arc<dyn Store>> {
    match place {
        Place::Folder(data) => {
            #[cfg(debug_assertions)]
            let opened = SqliteStore::open_with(data, crate::stop_at::sqlite_options());
            #[cfg(not(debug_assertions))]
            let opened = SqliteStore::open(data);
            let cannot = || format!("the sessions in {} cannot be opened", data.display());
            Ok(Arc::new(opened.map_err(Error::from).with_context(cannot)?))
        }
        Place::Database(address) => {
            #[cfg(debug_assertions)]
            let options = crate::stop_at::postgres_options();
            #[cfg(not(debug_assertions))]
            let options = wharf::store::PostgresOptions::default();
            let opened = PostgresStore::open(address, options).await;
            Ok(Arc::new(opened.map_err(Error::from).context("the sessions in the database cannot be opened")?))
        }
    }
}
