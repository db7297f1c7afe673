//! An agent: a harness whose capabilities are loaded. Which model and driver a turn uses, and what is compared when a session
//! goes on.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value};
use wharf_core::Error;
use wharf_core::authority::{Authority, conversation_digest};
use wharf_core::digest::Digest;
use wharf_core::harness::{AsyncSupport, Harness, KeySource, ModelRef, check_provider, choose_model};
use wharf_core::policy::ReplayClass;
use wharf_core::record::HarnessFacts;
use wharf_core::rules::{BoundTool, ToolTable};
use wharf_provider::{Driver, ProviderConfig, Secret};

use crate::builder::Wharf;
use crate::executor::Source;
use crate::load::CapabilityReport;

/// A harness with its capabilities loaded. Cheap to clone; sessions are opened on it.
#[derive(Clone)]
pub struct Agent {
    pub(crate) wharf: Wharf,
    pub(crate) harness: Arc<Harness>,
    pub(crate) table: Arc<ToolTable>,
    pub(crate) sources: Arc<BTreeMap<String, Source>>,
    pub(crate) reports: Arc<Vec<CapabilityReport>>,
    pub(crate) instructions: Arc<str>,
    pub(crate) components: Arc<BTreeMap<String, Digest>>,
}

impl Agent {
    /// The harness.
    pub fn harness(&self) -> &Harness {
        &self.harness
    }

    /// Its tools under policy.
    pub fn tools(&self) -> &ToolTable {
        &self.table
    }

    /// What became of each capability.
    pub fn reports(&self) -> &[CapabilityReport] {
        &self.reports
    }

    /// The instructions as a model gets them: the operator's, then each capability's, framed, quoted line by line and cut.
    pub fn instructions(&self) -> &str {
        &self.instructions
    }

    /// The model that is used where turn and session name none (Z5).
    ///
    /// # Errors
    /// A config error if nobody names one, or its provider is unknown (Z4).
    pub fn model(&self, turn: Option<&ModelRef>, session: Option<&ModelRef>) -> Result<ModelRef, Error> {
        let model = choose_model(turn, session, self.harness.model(), self.wharf.0.default_model.as_ref())?.clone();
        let known = self.harness.providers().keys().chain(self.wharf.0.providers.keys());
        check_provider(&model, known.map(String::as_str))?;
        Ok(model)
    }

    /// The driver of a model's provider: one that was handed to the builder, or one made from the harness.
    ///
    /// # Errors
    /// A config error for an unknown driver, a key that is not there, an address that is no good.
    pub fn driver(&self, model: &ModelRef) -> Result<Arc<dyn Driver>, Error> {
        if let Some(driver) = self.wharf.0.providers.get(&model.provider) {
            return Ok(driver.clone());
        }
        let Some(provider) = self.harness.providers().get(&model.provider) else {
            check_provider(model, self.harness.providers().keys().map(String::as_str))?;
            return Err(Error::config(format!("provider {:?} is unknown", model.provider)));
        };
        let mut config = ProviderConfig::new(&model.provider, &provider.driver);
        config.base_url = self.wharf.0.addresses.get(&model.provider).or(provider.base_url.as_ref()).cloned();
        config.insecure_http = provider.insecure_http;
        for (name, value) in &provider.headers {
            config.headers.insert(name.clone(), Secret::new(value.clone())?);
        }
        if let Some(source) = &provider.api_key {
            config.api_key = Some(self.wharf.key(&model.provider, source)?);
        }
        let setting = self.harness.model_setting(model);
        let word = match setting.async_tools {
            AsyncSupport::Auto => None,
            AsyncSupport::On => Some("on"),
            AsyncSupport::Off => Some("off"),
        };
        if let Some(word) = word {
            config.options.insert("models".to_owned(), serde_json::json!({ model.model.clone(): { "async": word } }));
        }
        self.wharf.0.drivers.connect(config)
    }

    /// The driver that goes by this name, where this harness still has it.
    pub(crate) fn driver_named(&self, name: &str) -> Option<Arc<dyn Driver>> {
        if let Some(driver) = self.wharf.0.providers.values().find(|driver| driver.name() == name) {
            return Some(driver.clone());
        }
        let model = ModelRef { provider: name.to_owned(), model: String::new() };
        self.driver(&model)
            .inspect_err(|error| tracing::debug!(provider = name, %error, "a former provider cannot be asked"))
            .ok() // then nobody can be asked: G16
    }

    /// What is compared when a session goes on (X14).
    pub fn facts(&self, model: &ModelRef) -> HarnessFacts {
        let mut authorities = Map::new();
        for (name, component) in self.components.iter() {
            let Some(capability) = self.harness.capability(name) else { continue };
            let tools = self.table.iter().filter(|tool| tool.capability() == name);
            authorities.insert(name.clone(), Authority::new(component, &capability.grants, tools).to_json());
        }
        let components: Map<String, Value> =
            self.components.iter().map(|(name, digest)| (name.clone(), digest.to_string().into())).collect();
        let authority_value = Value::Object(authorities);
        let shown = self.table.iter().map(BoundTool::shown);
        HarnessFacts {
            name: self.harness.name().to_owned(),
            component: Digest::of_json(&Value::Object(components)).to_string(),
            authority: Digest::of_json(&authority_value).to_string(),
            conversation: conversation_digest(&model.to_string(), &self.instructions, shown).to_string(),
            authority_value,
        }
    }

    /// Tools whose calls are run again after a crash, for messages.
    pub fn replayed_tools(&self) -> Vec<String> {
        self.table
            .iter()
            .filter(|tool| tool.replay().value != ReplayClass::Never)
            .map(|tool| tool.name().to_string())
            .collect()
    }
}

impl Wharf {
    fn key(&self, provider: &str, source: &KeySource) -> Result<Secret, Error> {
        let text = match source {
            KeySource::Env(name) => (self.0.env)(name).ok_or_else(|| {
                Error::config(format!(
                    "the key of provider {provider:?} is not there: environment variable {name} is not set"
                ))
                .hint(format!("export {name}=…"))
            })?,
            KeySource::File(path) => (self.0.read_key)(path).map_err(|why| {
                Error::config(format!("the key of provider {provider:?} cannot be read from {path:?}: {why}"))
            })?,
        };
        Secret::new(text.trim())
    }
}
