//! The harness file: what an operator writes, checked. A [`Harness`] comes only out of [`Harness::parse`], so whoever
//! holds one holds names that are well formed, rules that do not contradict each other, grants in their proper form and
//! limits within bounds. What was written is kept with its line, so that every decision can say which line made it.
//!
//! Nothing here opens a file, resolves a path or reads an environment variable: paths stay as written.

mod check;
mod error;
mod grants;
pub mod keys;
mod model;
mod read;
mod rule;
pub(crate) mod units;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

pub use error::{HarnessError, HarnessErrors, Place};
pub use model::{ModelRef, check_provider, choose_model};
pub use units::{duration as parse_duration, write_duration};

use crate::grants::Grants;
use crate::limits;
use crate::model::Options;
use crate::rules::{PatternRule, Rule};
use crate::schema::Schema;

/// A checked harness.
///
/// ```
/// let text = r#"
/// [harness]
/// name = "docs-helper"
/// model = "openai/gpt-6-astra"
///
/// [capabilities.files]
/// component = "files.wasm"
/// "#;
/// let harness = wharf_core::harness::Harness::parse("harness.toml", text)?;
/// assert_eq!(harness.name(), "docs-helper");
/// assert!(harness.capability("files").is_some_and(|files| files.grants.files.is_empty()));
/// # Ok::<(), wharf_core::harness::HarnessErrors>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Harness {
    file: Arc<str>,
    name: String,
    instructions: String,
    model: Option<ModelRef>,
    turn: TurnRules,
    options: Options,
    providers: BTreeMap<String, Provider>,
    models: BTreeMap<ModelRef, ModelSetting>,
    retention: Option<Retention>,
    store: Option<StoreAddress>,
    capabilities: BTreeMap<String, Capability>,
    profiles: BTreeMap<String, Profile>,
    defaults: Rule,
}

/// What a turn of this harness may do, and what follows when an answer is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TurnRules {
    /// Most responses of one turn (L41).
    pub max_responses: u32,
    /// Whether calls may run side by side (L4).
    pub parallel: bool,
    /// Most calls that run at once, over all capabilities (L2, L3).
    pub jobs_at_once: u32,
    /// What happens to a stored continuation whose fate nobody knows (G19).
    pub on_unknown: OnUnknown,
    /// What follows when calls of class never ran for an answer that was lost (L59).
    pub after_lost_response: AfterLost,
    /// How often a lost request that continues nothing stored is sent again (G19).
    pub resend_lost: u32,
    /// Calls of tools that do not exist before the turn stops (L51).
    pub unknown_tool_limit: u32,
}

impl Default for TurnRules {
    fn default() -> Self {
        Self {
            max_responses: 32,
            parallel: true,
            jobs_at_once: u32::try_from(limits::CALLS_AT_ONCE).unwrap_or(u32::MAX),
            on_unknown: OnUnknown::Stop,
            after_lost_response: AfterLost::Pause,
            resend_lost: 1,
            unknown_tool_limit: u32::try_from(limits::UNKNOWN_TOOLS_MAX).unwrap_or(u32::MAX),
        }
    }
}

/// What happens to a stored continuation whose fate nobody knows (G19).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OnUnknown {
    /// An operator decides (G16).
    Stop,
    /// It is sent again as a lost one.
    Resend,
}

/// What follows when calls of class never ran for an answer that was lost (L59).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AfterLost {
    /// The turn pauses for an operator's answer.
    Pause,
    /// The turn goes on.
    Continue,
}

/// How long sessions are kept. It is in none of the three digests: it says nothing of what an agent may do (X14).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retention {
    /// A session without an open turn may be deleted once its last record is older than this.
    pub keep: Duration,
    /// Where it stands.
    pub place: Place,
}

/// Where sessions are kept that several machines share. It is in none of the three digests, like [`Retention`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreAddress {
    /// `postgres://USER@HOST:PORT/DATABASE`, without a password.
    Plain(String),
    /// Where the address is, which may then hold a password.
    At(KeySource),
}

impl StoreAddress {
    /// Whether an address holds a password, and so may be shown to nobody.
    pub fn has_password(address: &str) -> bool {
        let rest = address.split_once("://").map_or(address, |(_, rest)| rest);
        rest.contains("password=") || rest.rsplit_once('@').is_some_and(|(user, _)| user.contains(':'))
    }
}

/// Where models are (Z4). `Debug` shows no values of headers (O22, Y11).
#[derive(Clone, PartialEq, Eq)]
pub struct Provider {
    /// The protocol, by the name under which a driver is registered (Z3).
    pub driver: String,
    /// The address, if it is not the driver's own. Plain HTTP only to this host unless `insecure_http`.
    pub base_url: Option<String>,
    /// Where the key is; a local server may need none.
    pub api_key: Option<KeySource>,
    /// Headers of each request; they cannot replace authorisation (O22).
    pub headers: BTreeMap<String, String>,
    /// Allows plain HTTP to another host than this one.
    pub insecure_http: bool,
    /// Where it stands.
    pub place: Place,
}

impl fmt::Debug for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { driver, base_url, api_key, headers, insecure_http, place } = self;
        f.debug_struct("Provider")
            .field("driver", driver)
            .field("base_url", base_url)
            .field("api_key", api_key)
            .field("headers", &headers.keys())
            .field("insecure_http", insecure_http)
            .field("place", place)
            .finish()
    }
}

/// Where a key, or an address with a password, is. It never stands in a harness file itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySource {
    /// An environment variable of the host.
    Env(String),
    /// A file, as written: absolute, or relative to the harness file.
    File(String),
}

/// What an operator says that a model can do (O12).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ModelSetting {
    /// Async tools.
    pub async_tools: AsyncSupport,
    /// Images in outputs of calls (A21); `None` leaves it to the profile.
    pub images: Option<bool>,
}

/// Whether a model takes async tools (O12).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum AsyncSupport {
    /// Its profile says.
    #[default]
    Auto,
    /// It does.
    On,
    /// It does not.
    Off,
}

/// A source of tools, with its policy.
#[derive(Debug, Clone, PartialEq)]
pub struct Capability {
    /// Its name in the harness.
    pub name: String,
    /// What it is.
    pub source: CapabilitySource,
    /// What it is told: an object; `{}` if nothing was written. Its own schema has not been asked yet (Z2).
    pub config: Value,
    /// Where the config stands, or else the capability.
    pub config_place: Place,
    /// False leaves it out.
    pub enabled: bool,
    /// Its policy profiles.
    pub profiles: Vec<String>,
    /// What it may reach: its own grants and those of its profiles.
    pub grants: Grants,
    /// What holds for all its tools where no pattern says otherwise.
    pub rule: Rule,
    /// What holds for some of its tools.
    pub tools: Vec<PatternRule>,
    /// Where it stands.
    pub place: Place,
}

impl Capability {
    /// Checks what it is told against its own schema, before anything runs (Z2). A capability without a schema takes no
    /// config.
    ///
    /// # Errors
    /// The place of the config, and where in it the fault is.
    pub fn check_config(&self, schema: Option<&Value>) -> Result<(), HarnessError> {
        let fault =
            |message: String, hint: Option<String>| HarnessError { place: self.config_place.clone(), message, hint };
        let Some(schema) = schema else {
            let empty = self.config.as_object().is_none_or(serde_json::Map::is_empty);
            let hint = Some("take the config out".to_owned());
            return if empty {
                Ok(())
            } else {
                Err(fault(format!("capability {:?} takes no config", self.name), hint))
            };
        };
        let schema = Schema::compile(schema)
            .map_err(|why| fault(format!("the config schema of capability {:?} {why}", self.name), None))?;
        schema
            .check(&self.config)
            .map_err(|misfit| fault(format!("the config does not fit capability {:?}: {misfit}", self.name), None))
    }
}

/// What a capability is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CapabilitySource {
    /// A component: a path as written, or a name in the lock file.
    Component(String),
    /// An implementation that the embedding program registered under this id (Z1).
    Native(String),
}

/// Policy that several capabilities share.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    /// Rules and limits.
    pub rule: Rule,
    /// Grants.
    pub grants: Grants,
    /// Where it stands.
    pub place: Place,
}

impl Harness {
    /// Reads and checks a harness file. `file` is only its name, for messages.
    ///
    /// # Errors
    /// All faults that were found, each with its place, its key, why, and how to mend it.
    pub fn parse(file: &str, text: &str) -> Result<Self, HarnessErrors> {
        check::parse(file, text)
    }

    /// The file's name, as it was given.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// The harness's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The operator's instructions.
    pub fn instructions(&self) -> &str {
        &self.instructions
    }

    /// The model that the harness names, if it names one (Z5).
    pub fn model(&self) -> Option<&ModelRef> {
        self.model.as_ref()
    }

    /// What a turn may do.
    pub fn turn(&self) -> &TurnRules {
        &self.turn
    }

    /// Options of the model.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Providers by name.
    pub fn providers(&self) -> &BTreeMap<String, Provider> {
        &self.providers
    }

    /// What the operator says of this model; the default where nothing is said.
    pub fn model_setting(&self, model: &ModelRef) -> ModelSetting {
        self.models.get(model).copied().unwrap_or_default()
    }

    /// How long sessions are kept; without it for ever.
    pub fn retention(&self) -> Option<&Retention> {
        self.retention.as_ref()
    }

    /// The database that several machines share; without it sessions are kept beside the harness file.
    pub fn store(&self) -> Option<&StoreAddress> {
        self.store.as_ref()
    }

    /// Capabilities in the order of their names, left-out ones included.
    pub fn capabilities(&self) -> impl Iterator<Item = &Capability> {
        self.capabilities.values()
    }

    /// One capability.
    pub fn capability(&self, name: &str) -> Option<&Capability> {
        self.capabilities.get(name)
    }

    /// Policy profiles by name.
    pub fn profiles(&self) -> &BTreeMap<String, Profile> {
        &self.profiles
    }

    /// What holds for all tools where nothing nearer says otherwise.
    pub fn defaults(&self) -> &Rule {
        &self.defaults
    }

    /// The same harness with another model: what the command line or an embedder says instead of the file.
    #[must_use]
    pub fn with_model(mut self, model: ModelRef) -> Self {
        self.model = Some(model);
        self
    }

    /// The same harness with other instructions.
    #[must_use]
    pub fn with_instructions(mut self, instructions: impl Into<String>) -> Self {
        self.instructions = instructions.into();
        self
    }
}

#[cfg(test)]
mod tests;
