//! Capabilities written in Rust by whoever embeds Wharf (Z1, Z2, Z12, Z14). They run in the host's process with the host's
//! rights; policy decides about their calls as about any other.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::BoxFuture;
use serde_json::Value;
use wharf_core::tool::{Content, Definition, Failure};
use wharf_core::{CallId, Error, ToolName, names};

/// What a capability says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct About {
    /// By which a harness names it.
    pub id: String,
    /// For people.
    pub title: String,
    /// For people.
    pub description: String,
    /// For the model's instructions; may be empty.
    pub instructions: String,
}

/// A source of tools in the host's own process.
pub trait NativeCapability: Send + Sync + 'static {
    /// What it is.
    fn about(&self) -> About;

    /// The JSON Schema of its config; none if it takes none.
    fn config_schema(&self) -> Option<Value> {
        None
    }

    /// The tools that a config gives.
    ///
    /// # Errors
    /// If the config is no good, with what is wrong with it.
    fn tools(&self, config: &Value) -> Result<Vec<Definition>, Error>;

    /// Runs a call. Dropping the future cancels it.
    fn call(&self, call: NativeCall) -> BoxFuture<'static, Result<Vec<Content>, NativeError>>;
}

/// One call of a native tool.
#[derive(Debug, Clone, PartialEq)]
pub struct NativeCall {
    /// The tool's own name.
    pub tool: ToolName,
    /// JSON for a function; the raw text of a custom tool, or that text as a JSON string where the tool's schema is of type
    /// string (Q6).
    pub input: String,
    /// The capability's config.
    pub config: Arc<Value>,
    /// The host's id of the call.
    pub call_id: CallId,
    /// Equal for each run of the call (L56).
    pub idempotency_key: Option<String>,
    /// 1 for the first run.
    pub attempt: u32,
}

/// Why a native call failed.
#[derive(Debug, Clone, PartialEq)]
pub enum NativeError {
    /// The model is told.
    Failure(Failure),
    /// The model is told only that something went wrong inside; the text goes to the log's `trace` level (Z14).
    Internal(String),
}

/// Native capabilities by id.
#[derive(Clone, Default)]
pub struct Registry(BTreeMap<String, Arc<dyn NativeCapability>>);

impl Registry {
    /// Registers one.
    ///
    /// # Errors
    /// A config error that names the id if there is one of this id already (Z1).
    pub fn register(&mut self, capability: Arc<dyn NativeCapability>) -> Result<(), Error> {
        let id = capability.about().id;
        if self.0.contains_key(&id) {
            return Err(Error::config(format!("capability {id:?} is registered twice")));
        }
        self.0.insert(id, capability);
        Ok(())
    }

    /// The one of this id.
    ///
    /// # Errors
    /// A config error that names the id and close ones (Z1).
    pub fn get(&self, id: &str) -> Result<Arc<dyn NativeCapability>, Error> {
        self.0.get(id).cloned().ok_or_else(|| {
            let error = Error::config(format!("capability {id:?} is not registered in this program"));
            match names::did_you_mean(id, self.0.keys().map(String::as_str)) {
                Some(hint) => error.hint(hint),
                None => error.hint("native capabilities are registered by the program that embeds wharf"),
            }
        })
    }
}
