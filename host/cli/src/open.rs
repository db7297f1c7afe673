//! From the command line to the library: which harness file, where its data is, how its keys are read. It decides nothing
//! that the library decides.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use wharf::core::harness::Harness;
use wharf::core::names::did_you_mean;
use wharf::core::{Error, OrgId, Seq};
use wharf::sandbox::SandboxOptions;
use wharf::store::{JournalKey, Store};
use wharf::{Agent, CapabilityStatus, Surroundings, Wharf};

use crate::args::HarnessArg;
use crate::{cache, files, limits, progress, say, screen, store};

/// Names that are looked for where none is given, in this order.
const NAMES: [&str; 2] = ["wharf.toml", "harness.toml"];

/// A harness file that was found.
pub(crate) struct HarnessFile {
    /// Its path as it was given or found.
    pub(crate) path: PathBuf,
    /// How it is named in commands that are shown, with a blank before it; empty where it is found by itself.
    pub(crate) flag: String,
    /// The database that the command line or the environment names.
    pub(crate) store: Option<String>,
}

impl HarnessFile {
    /// Finds it.
    ///
    /// # Errors
    /// A config error that says what was looked for.
    pub(crate) fn find(arg: &HarnessArg) -> Result<Self, Error> {
        let store = store::named(arg);
        if let Some(path) = &arg.file {
            return Ok(Self { path: path.clone(), flag: flag(path) + &store::flag(arg), store });
        }
        match NAMES.iter().map(PathBuf::from).find(|path| files::is_file(path)) {
            Some(path) => Ok(Self { path, flag: store::flag(arg), store }),
            None => Err(Error::config(format!(
                "there is no harness file: looked for {} in {}",
                NAMES.join(" and "),
                here()
            ))
            .hint("make one with `wharf init`, or name one with -H FILE")),
        }
    }

    /// One that is at this path, with its own store.
    pub(crate) fn at(path: &Path) -> Self {
        Self { path: path.to_owned(), flag: flag(path), store: None }
    }

    /// Reads and checks it.
    ///
    /// # Errors
    /// A config error if it cannot be read; all its faults if it is no good.
    pub(crate) fn read(&self) -> anyhow::Result<Harness> {
        let name = self.path.display().to_string();
        let text = files::read_text(&self.path, limits::HARNESS_BYTES_MAX).map_err(|error| {
            Error::config(format!("harness file {name:?} cannot be read: {error}"))
                .hint(format!("make one with `wharf init {}`, or name another with -H FILE", say::shell(&name)))
        })?;
        Ok(Harness::parse(&name, &text)?)
    }

    /// The folder that everything in it is relative to.
    pub(crate) fn base(&self) -> PathBuf {
        Surroundings::of_file(&self.path).base
    }

    /// A library on this store, with keys from the environment and from files, and the user's compile cache.
    ///
    /// # Errors
    /// As [`wharf::Builder::build`].
    pub(crate) fn wharf(&self, store: Option<Arc<dyn Store>>) -> Result<Wharf, Error> {
        self.wharf_with_env(store, |name| std::env::var(name).ok()) // not there and not text are the same to a key
    }

    /// As [`HarnessFile::wharf`], with another environment for keys.
    ///
    /// # Errors
    /// As [`wharf::Builder::build`].
    pub(crate) fn wharf_with_env(
        &self,
        store: Option<Arc<dyn Store>>,
        env: impl Fn(&str) -> Option<String> + Send + Sync + 'static,
    ) -> Result<Wharf, Error> {
        let base = self.base();
        let mut builder =
            Wharf::builder().env(env).label(format!("wharf, pid {}", std::process::id())).sandbox(sandbox_options());
        if let Some(store) = store {
            builder = builder.store(store);
        }
        builder
            .key_files(move |path| {
                files::read_text(&base.join(path), limits::KEY_BYTES_MAX).map_err(|error| error.to_string())
            })
            .build()
    }

    /// Loads a harness.
    ///
    /// # Errors
    /// As [`Wharf::load`].
    pub(crate) async fn load(&self, wharf: &Wharf, harness: Harness) -> Result<Agent, Error> {
        wharf.load(harness, Surroundings::of_file(&self.path)).await
    }
}

/// The key of a session that has to be there.
///
/// # Errors
/// A config error that names close ones; store errors.
pub(crate) async fn existing_session(store: &dyn Store, id: &str) -> Result<JournalKey, Error> {
    let key = session_key(id)?;
    // The first record tells; a journal may be long.
    if !store.history(&key, Seq(0), 1).await?.is_empty() {
        return Ok(key);
    }
    let known = store.sessions(&OrgId::local(), limits::SESSIONS_MAX).await?;
    let names = known.iter().filter(|one| one.head != Seq(0)).map(|one| one.key.session.as_str());
    Err(no_session(id, did_you_mean(id, names)))
}

/// The error for a session that is not there.
pub(crate) fn no_session(id: &str, close: Option<String>) -> Error {
    let hint = close.unwrap_or_else(|| "`wharf session list` shows which there are".to_owned());
    Error::config(format!("there is no session {id:?}")).hint(hint)
}

/// The key for an id as it was typed.
///
/// # Errors
/// A config error for one that is blank, long or not printable.
pub(crate) fn session_key(id: &str) -> Result<JournalKey, Error> {
    let fault =
        |why: &str| Err(Error::config(format!("session id {id:?} {why}")).hint("use letters, digits and dashes"));
    if id.trim().is_empty() {
        return fault("is empty");
    }
    if id.len() > limits::SESSION_ID_BYTES_MAX {
        return fault("is too long");
    }
    if say::plain(id) != id {
        return fault("has characters that cannot be shown");
    }
    Ok(JournalKey::local(id))
}

/// Tells of capabilities that cannot be used. True if there are any.
pub(crate) fn warn_of_refused(agent: &Agent) -> bool {
    let mut any = false;
    for report in agent.reports() {
        match &report.status {
            CapabilityStatus::Refused(error) => {
                any = true;
                screen::warning(&format!("left out: {}", say::plain(&error.message)));
                if let Some(hint) = &error.hint {
                    screen::hint(&say::plain(hint));
                }
            }
            CapabilityStatus::Loaded { refused, .. } => {
                for tool in refused {
                    any = true;
                    screen::warning(&format!("left out of {:?}: {}", report.name, say::plain(&tool.error.message)));
                }
            }
        }
    }
    any
}

/// How components run in every command but the demo: the user's compile cache, progress on standard error.
pub(crate) fn sandbox_options() -> SandboxOptions {
    SandboxOptions { cache: cache::folder(), threads: None, on_compile: Some(progress::compiling()) }
}

fn flag(path: &Path) -> String {
    format!(" -H {}", say::shell(&path.display().to_string()))
}

fn here() -> String {
    match std::env::current_dir() {
        Ok(path) => path.display().to_string(),
        Err(_) => "this folder".to_owned(), // it was removed under us
    }
}
