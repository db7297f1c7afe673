//! What can go wrong before a call: making a sandbox, loading a component, asking it for its tools. Each with what, where
//! and a hint. What goes wrong in a call is an outcome, see [`crate::CallOutcome`].

use std::path::PathBuf;
use std::time::Duration;

use wharf_core::ErrorKind;
use wharf_core::tool::Failure;

use crate::inspect::{ImportReport, ImportVerdict};

/// A sandbox could not be made.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// The engine refuses its configuration, for example on a platform that it does not support.
    #[error("the WebAssembly engine does not start: {reason}")]
    Engine {
        /// The engine's own words.
        reason: String,
    },
    /// No thread can be started.
    #[error("the component threads do not start")]
    Threads {
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
}

/// A capability was refused. It harms only itself; other capabilities live on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// Not WebAssembly at all.
    #[error("capability {name:?} is not a component: the file does not begin like WebAssembly")]
    NotWasm {
        /// The capability.
        name: String,
    },
    /// WebAssembly's older format.
    #[error("capability {name:?} is not a component: it is a core module")]
    CoreModule {
        /// The capability.
        name: String,
    },
    /// It begins like a component and is damaged or uses what the engine does not know.
    #[error("capability {name:?} is not a component that can be read: {reason}")]
    Malformed {
        /// The capability.
        name: String,
        /// What and at which offset.
        reason: String,
    },
    /// More bytes, imports or exports than a component may have.
    #[error("capability {name:?} is too large: {what} {have}, at most {limit}")]
    TooLarge {
        /// The capability.
        name: String,
        /// What is counted.
        what: &'static str,
        /// How much there is.
        have: u64,
        /// How much there may be.
        limit: u64,
    },
    /// It imports what nobody serves.
    #[error("capability {name:?} imports what nobody serves: {}", listed(.refused))]
    Imports {
        /// The capability.
        name: String,
        /// The imports that are refused, in the component's order.
        refused: Vec<ImportReport>,
    },
    /// An import has a known name and another shape than what is served.
    #[error("capability {name:?} does not fit what the host serves: {reason}")]
    Mismatch {
        /// The capability.
        name: String,
        /// Interface and item.
        reason: String,
    },
    /// It exports no tools.
    #[error("capability {name:?} exports no tools; it exports {}", if .exports.is_empty() { "nothing".to_owned() } else { .exports.join(", ") })]
    NothingUsable {
        /// The capability.
        name: String,
        /// What it exports.
        exports: Vec<String>,
    },
    /// It exports tools of another version of the contract.
    #[error("capability {name:?} is made for {found}, which is not served")]
    Contract {
        /// The capability.
        name: String,
        /// What it exports.
        found: String,
        /// What is served.
        served: &'static [&'static str],
    },
    /// Compilation failed.
    #[error("capability {name:?} cannot be compiled: {reason}")]
    Compile {
        /// The capability.
        name: String,
        /// The engine's own words.
        reason: String,
    },
    /// Compilation took too long and was given up.
    #[error("capability {name:?} was not compiled in {limit:?}")]
    CompileTimedOut {
        /// The capability.
        name: String,
        /// The limit.
        limit: Duration,
    },
    /// A granted folder cannot be opened.
    #[error("capability {name:?} cannot be granted the folder {path:?}")]
    Folder {
        /// The capability.
        name: String,
        /// The folder on the host.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// A file grant that is refused as written.
    #[error("capability {name:?} cannot be granted the folder {path:?}: {reason}")]
    Grant {
        /// The capability.
        name: String,
        /// The folder on the host.
        path: PathBuf,
        /// Why.
        reason: String,
        /// How to mend it.
        hint: String,
    },
    /// The component refuses its config.
    #[error("capability {name:?} refuses its config: {}", .failure.message)]
    ConfigRefused {
        /// The capability.
        name: String,
        /// In its own words.
        failure: Box<Failure>,
    },
    /// `config-schema`, `definitions` or `describe` took too long.
    #[error("capability {name:?} did not answer {asked} in {limit:?}")]
    TimedOut {
        /// The capability.
        name: String,
        /// The function.
        asked: &'static str,
        /// The limit.
        limit: Duration,
    },
    /// `config-schema`, `definitions` or `describe` wanted too much memory.
    #[error("capability {name:?} needed more than {limit_bytes} bytes of memory for {asked}")]
    MemoryExceeded {
        /// The capability.
        name: String,
        /// The function.
        asked: &'static str,
        /// The limit.
        limit_bytes: u64,
    },
    /// `config-schema`, `definitions` or `describe` crashed.
    #[error("capability {name:?} crashed in {asked}: {message}")]
    Trapped {
        /// The capability.
        name: String,
        /// The function.
        asked: &'static str,
        /// What happened and in which functions.
        message: String,
    },
    /// What it says of itself breaks the contract.
    #[error("capability {name:?} gives a wrong answer to {asked}: {reason}")]
    Answer {
        /// The capability.
        name: String,
        /// The function.
        asked: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// The sandbox was shut down meanwhile, or too many calls wait for it.
    #[error("capability {name:?} was not asked: {reason}")]
    Unavailable {
        /// The capability.
        name: String,
        /// Why.
        reason: String,
    },
}

impl LoadError {
    /// Fails if there is more of `what` than there may be.
    pub(crate) fn check_size(name: &str, what: &'static str, have: u64, limit: u64) -> Result<(), Self> {
        match have <= limit {
            true => Ok(()),
            false => Err(Self::TooLarge { name: name.into(), what, have, limit }),
        }
    }

    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NotWasm { .. } => Some("give the path of a component, a file ending in .wasm".into()),
            Self::CoreModule { .. } => {
                Some("make a component of it with `wasm-tools component new`, or build for wasm32-wasip2".into())
            }
            Self::Malformed { .. } => Some("build or download the component again".into()),
            Self::TooLarge { .. } => Some("build with optimisations and without debug information".into()),
            Self::Imports { refused, .. } => Some(import_hint(refused)),
            Self::Mismatch { .. } => Some("build the component with the interface files of this host's version".into()),
            Self::NothingUsable { .. } => Some(format!(
                "export wharf:tool/tools@{}; `wharf tool inspect` shows what a file exports",
                crate::CONTRACT
            )),
            Self::Contract { served, .. } => {
                Some(format!("build it for wharf:tool@{}", served.join(" or wharf:tool@")))
            }
            Self::Compile { .. } => None,
            Self::CompileTimedOut { .. } => {
                Some("build it smaller, with optimisations, or without generated code".into())
            }
            Self::Folder { path, .. } => {
                Some(format!("make the folder {path:?}, or change the grant's `host` (relative to the harness file)"))
            }
            Self::Grant { hint, .. } => Some(hint.clone()),
            Self::ConfigRefused { name, .. } => Some(format!("change capabilities.{name}.config")),
            Self::TimedOut { .. } | Self::MemoryExceeded { .. } => {
                Some("the three pure functions have fixed limits; move work and data into invoke".into())
            }
            Self::Trapped { .. } | Self::Answer { .. } => {
                Some("this is a fault of the component; `wharf tool test` finds it before shipping".into())
            }
            Self::Unavailable { .. } => None,
        }
    }
}

impl From<LoadError> for wharf_core::Error {
    fn from(error: LoadError) -> Self {
        let message = match std::error::Error::source(&error) {
            Some(source) => format!("{error}: {source}"),
            None => error.to_string(),
        };
        let made = Self::new(ErrorKind::Config, message);
        match error.hint() {
            Some(hint) => made.hint(hint),
            None => made,
        }
    }
}

fn listed(refused: &[ImportReport]) -> String {
    let one = |import: &ImportReport| match &import.verdict {
        ImportVerdict::WrongVersion { served } => format!("{} (served: {})", import.name, served.join(", ")),
        ImportVerdict::Unknown => format!("{} (unknown)", import.name),
        ImportVerdict::Granted | ImportVerdict::AnsweredWithDenial { .. } => import.name.clone(),
    };
    refused.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn import_hint(refused: &[ImportReport]) -> String {
    if refused.iter().any(|import| matches!(import.verdict, ImportVerdict::WrongVersion { .. })) {
        "build the component against a version that is served".into()
    } else {
        "components get standard WASI 0.2 and 0.3 and wharf:tool, nothing else; compose other imports in before".into()
    }
}
