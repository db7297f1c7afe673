//! Putting the parts together: store, drivers, native capabilities, sandbox. Each has a default that works by itself, and
//! each can be replaced alone (Z6).

use std::collections::BTreeMap;
use std::sync::Arc;
#[cfg(feature = "components")]
use std::sync::OnceLock;

use wharf_core::Error;
use wharf_core::harness::ModelRef;
use wharf_provider::{Driver, Drivers};
use wharf_store::{MemoryStore, Store};

use crate::native::{NativeCapability, Registry};
use crate::seams::{Seams, TokioSeams};

/// Looks an environment variable up. The library reads none by itself.
pub type EnvLookup = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// Reads a key file, given as written in the harness.
pub type KeyReader = Arc<dyn Fn(&str) -> Result<String, String> + Send + Sync>;

/// The library, put together. Cheap to clone.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), wharf::core::Error> {
/// let wharf = wharf::Wharf::builder().build()?;
/// let harness = wharf::core::harness::Harness::parse("h.toml", "[harness]\nname = \"h\"\nmodel = \"p/m\"\n")?;
/// let agent = wharf.load(harness, Default::default()).await?;
/// assert_eq!(agent.reports(), []);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Wharf(pub(crate) Arc<Parts>);

pub(crate) struct Parts {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) drivers: Drivers,
    pub(crate) providers: BTreeMap<String, Arc<dyn Driver>>,
    pub(crate) addresses: BTreeMap<String, String>,
    pub(crate) registry: Registry,
    pub(crate) default_model: Option<ModelRef>,
    pub(crate) env: EnvLookup,
    pub(crate) read_key: KeyReader,
    pub(crate) seams: Arc<dyn Seams>,
    pub(crate) label: String,
    #[cfg(feature = "components")]
    sandbox_options: wharf_sandbox::SandboxOptions,
    #[cfg(feature = "components")]
    sandbox: OnceLock<wharf_sandbox::Sandbox>,
}

impl Wharf {
    /// Starts with the defaults: memory store, built-in drivers, no native capability, no environment.
    pub fn builder() -> Builder {
        Builder {
            store: None,
            drivers: Drivers::builtin(),
            providers: BTreeMap::new(),
            addresses: BTreeMap::new(),
            registry: Registry::default(),
            default_model: None,
            env: Arc::new(|_| None),
            read_key: Arc::new(|_| Err("this program reads no key files".to_owned())),
            seams: None,
            label: format!("pid {}", std::process::id()),
            #[cfg(feature = "components")]
            sandbox: wharf_sandbox::SandboxOptions::default(),
            errors: Vec::new(),
        }
    }

    /// The store.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.0.store
    }

    /// The sandbox, started when it is first needed.
    #[cfg(feature = "components")]
    pub(crate) fn sandbox(&self) -> Result<&wharf_sandbox::Sandbox, Error> {
        if let Some(sandbox) = self.0.sandbox.get() {
            return Ok(sandbox);
        }
        let sandbox = wharf_sandbox::Sandbox::new(self.0.sandbox_options.clone())
            .map_err(|e| Error::config(format!("the sandbox cannot be started: {e}")))?;
        Ok(self.0.sandbox.get_or_init(|| sandbox))
    }
}

/// Collects the parts of a [`Wharf`].
pub struct Builder {
    store: Option<Arc<dyn Store>>,
    drivers: Drivers,
    providers: BTreeMap<String, Arc<dyn Driver>>,
    addresses: BTreeMap<String, String>,
    registry: Registry,
    default_model: Option<ModelRef>,
    env: EnvLookup,
    read_key: KeyReader,
    seams: Option<Arc<dyn Seams>>,
    label: String,
    #[cfg(feature = "components")]
    sandbox: wharf_sandbox::SandboxOptions,
    errors: Vec<Error>,
}

impl Builder {
    /// Where journals are kept; memory unless said.
    #[must_use]
    pub fn store(mut self, store: Arc<dyn Store>) -> Self {
        self.store = Some(store);
        self
    }

    /// The drivers that a harness's providers may name (Z3).
    #[must_use]
    pub fn drivers(mut self, drivers: Drivers) -> Self {
        self.drivers = drivers;
        self
    }

    /// A provider that is there already; goes before one of the same name in a harness.
    #[must_use]
    pub fn provider(mut self, name: &str, driver: Arc<dyn Driver>) -> Self {
        self.providers.insert(name.to_owned(), driver);
        self
    }

    /// Another address for a provider of the harness; all else that the harness says of it holds.
    #[must_use]
    pub fn provider_address(mut self, name: &str, base_url: impl Into<String>) -> Self {
        self.addresses.insert(name.to_owned(), base_url.into());
        self
    }

    /// A native capability; a second one of the same id fails the build (Z1).
    #[must_use]
    pub fn native(mut self, capability: impl NativeCapability) -> Self {
        if let Err(error) = self.registry.register(Arc::new(capability)) {
            self.errors.push(error);
        }
        self
    }

    /// The model where nobody names one (Z5).
    #[must_use]
    pub fn default_model(mut self, model: ModelRef) -> Self {
        self.default_model = Some(model);
        self
    }

    /// How environment variables are looked up for keys.
    #[must_use]
    pub fn env(mut self, lookup: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> Self {
        self.env = Arc::new(lookup);
        self
    }

    /// How key files are read.
    #[must_use]
    pub fn key_files(mut self, read: impl Fn(&str) -> Result<String, String> + Send + Sync + 'static) -> Self {
        self.read_key = Arc::new(read);
        self
    }

    /// Time, ids and tasks; the caller's tokio runtime unless said.
    #[must_use]
    pub fn seams(mut self, seams: Arc<dyn Seams>) -> Self {
        self.seams = Some(seams);
        self
    }

    /// Who this process is, for whoever finds a session in use.
    #[must_use]
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = label.into();
        self
    }

    /// How components run: compile cache, threads, progress.
    #[cfg(feature = "components")]
    #[must_use]
    pub fn sandbox(mut self, options: wharf_sandbox::SandboxOptions) -> Self {
        self.sandbox = options;
        self
    }

    /// Puts it together.
    ///
    /// # Errors
    /// The first error of a part.
    ///
    /// # Panics
    /// Outside of a tokio runtime, unless seams were given.
    pub fn build(self) -> Result<Wharf, Error> {
        if let Some(error) = self.errors.into_iter().next() {
            return Err(error);
        }
        Ok(Wharf(Arc::new(Parts {
            store: self.store.unwrap_or_else(|| Arc::new(MemoryStore::new())),
            drivers: self.drivers,
            providers: self.providers,
            addresses: self.addresses,
            registry: self.registry,
            default_model: self.default_model,
            env: self.env,
            read_key: self.read_key,
            seams: self.seams.unwrap_or_else(|| Arc::new(TokioSeams::current())),
            label: self.label,
            #[cfg(feature = "components")]
            sandbox_options: self.sandbox,
            #[cfg(feature = "components")]
            sandbox: OnceLock::new(),
        })))
    }
}
