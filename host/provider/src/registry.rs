//! Drivers by name (Z3). It knows no protocol itself: each is registered with a function that makes one from a config.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use wharf_core::{Error, names};

use crate::config::ProviderConfig;
use crate::driver::Driver;
use crate::responses::{self, Responses};

/// Makes a driver from what the operator wrote.
pub type Factory = Arc<dyn Fn(ProviderConfig) -> Result<Arc<dyn Driver>, Error> + Send + Sync>;

/// The drivers there are. Embedders add their own.
#[derive(Clone, Default)]
pub struct Drivers {
    factories: BTreeMap<String, Factory>,
}

impl Drivers {
    /// None at all.
    pub fn empty() -> Self {
        Self::default()
    }

    /// The drivers of this crate.
    pub fn builtin() -> Self {
        let mut drivers = Self::empty();
        drivers.register(responses::NAME, |config| Ok(Arc::new(Responses::new(config)?)));
        drivers
    }

    /// Adds a driver, or puts it in the place of one of the same name.
    pub fn register(
        &mut self,
        name: impl Into<String>,
        factory: impl Fn(ProviderConfig) -> Result<Arc<dyn Driver>, Error> + Send + Sync + 'static,
    ) -> &mut Self {
        self.factories.insert(name.into(), Arc::new(factory));
        self
    }

    /// The names there are, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.factories.keys().map(String::as_str)
    }

    /// Makes the driver that the config names.
    ///
    /// # Errors
    /// A config error if there is no such driver, with those there are, or if it refuses the config.
    pub fn connect(&self, config: ProviderConfig) -> Result<Arc<dyn Driver>, Error> {
        match self.factories.get(&config.driver) {
            Some(factory) => factory(config),
            None => Err(self.unknown(&config)),
        }
    }

    fn unknown(&self, config: &ProviderConfig) -> Error {
        let known = self.names().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ");
        let close = names::did_you_mean(&config.driver, self.names()).map(|text| text + " ").unwrap_or_default();
        let list = if known.is_empty() { "no driver is registered".to_owned() } else { format!("drivers: {known}") };
        Error::config(format!("provider {:?} names the unknown driver {:?}", config.name, config.driver))
            .hint(close + &list)
    }
}

impl fmt::Debug for Drivers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}
