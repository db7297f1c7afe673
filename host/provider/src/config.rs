//! How a provider is reached: address, key, headers, times, and the options of its driver. Values that must not be seen
//! are [`Secret`]s. Nothing here knows a protocol.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use serde_json::{Map, Value};
use url::{Host, Url};
use wharf_core::Error;

use crate::limits;

/// A value that is sent and never shown: neither `Debug` nor any error or log line has it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Takes the value.
    ///
    /// # Errors
    /// A config error if it is blank (Y11).
    pub fn new(value: impl Into<String>) -> Result<Self, Error> {
        let value = value.into();
        if value.trim().is_empty() {
            return Err(Error::config("a secret is blank").hint("set the variable it is taken from, or remove the key"));
        }
        Ok(Self(value))
    }

    /// The value, for the request alone.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// A provider as the operator wrote it down. `Debug` shows neither values of headers and options nor an address's query
/// (O22, Y11).
#[derive(Clone)]
pub struct ProviderConfig {
    /// Its name in the harness.
    pub name: String,
    /// Which driver speaks to it.
    pub driver: String,
    /// The address that the protocol's paths are added to; with and without a trailing slash it is the same (O17).
    /// `None` is the driver's own.
    pub base_url: Option<String>,
    /// The bearer key. Local servers may need none.
    pub api_key: Option<Secret>,
    /// Headers for every request. They cannot replace authorisation (O22).
    pub headers: BTreeMap<String, Secret>,
    /// Options of the driver; each driver says which it takes and refuses the others.
    pub options: Map<String, Value>,
    /// Limits on waiting.
    pub timeouts: Timeouts,
    /// Allows plain HTTP to a host that is not this machine.
    pub insecure_http: bool,
}

impl fmt::Debug for ProviderConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = self.base_url.as_deref().map(|text| match BaseUrl::parse(text, true) {
            Ok(base) => base.to_string(),
            Err(_) => "(not an address of a provider)".to_owned(), // it may hold anything, a password too
        });
        f.debug_struct("ProviderConfig")
            .field("name", &self.name)
            .field("driver", &self.driver)
            .field("base_url", &address)
            .field("api_key", &self.api_key)
            .field("headers", &self.headers.keys())
            .field("options", &self.options.keys())
            .field("timeouts", &self.timeouts)
            .field("insecure_http", &self.insecure_http)
            .finish()
    }
}

impl ProviderConfig {
    /// A provider with the driver's own address, no key and all defaults.
    pub fn new(name: impl Into<String>, driver: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            driver: driver.into(),
            base_url: None,
            api_key: None,
            headers: BTreeMap::new(),
            options: Map::new(),
            timeouts: Timeouts::default(),
            insecure_http: false,
        }
    }

    /// The same at this address.
    #[must_use]
    pub fn at(mut self, base_url: impl Into<String>) -> Self {
        self.base_url = Some(base_url.into());
        self
    }

    /// The same with this key.
    #[must_use]
    pub fn key(mut self, key: Secret) -> Self {
        self.api_key = Some(key);
        self
    }

    /// The same with this option of the driver.
    #[must_use]
    pub fn option(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.options.insert(name.into(), value.into());
        self
    }
}

/// Limits on waiting, each for a thing of its own (wire facts, section 1). What breaks one of them after the request was
/// sent leaves its fate unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// Resolve, connect, shake hands.
    pub connect: Duration,
    /// From there to the first byte of a stream's body.
    pub first_byte: Duration,
    /// Silence within a body; any byte resets it.
    pub idle: Duration,
    /// From the head of a stream to its end, whatever comes in between.
    pub stream: Duration,
    /// In place of `first_byte` for a request that does not stream, and in place of `stream` for its document and for the
    /// answer to a question.
    pub whole_answer: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: limits::CONNECT_TIMEOUT,
            first_byte: limits::FIRST_BYTE_TIMEOUT,
            idle: limits::IDLE_TIMEOUT,
            stream: limits::STREAM_TIMEOUT,
            whole_answer: limits::WHOLE_ANSWER_TIMEOUT,
        }
    }
}

/// Parts `provider/model`: only the first segment names the provider, the rest is sent unchanged (O14).
///
/// ```
/// assert_eq!(wharf_provider::split_model("router/openai/gpt").unwrap(), ("router", "openai/gpt"));
/// ```
///
/// # Errors
/// A config error if one of the two is missing.
pub fn split_model(text: &str) -> Result<(&str, &str), Error> {
    match text.split_once('/') {
        Some((provider, model)) if !provider.trim().is_empty() && !model.trim().is_empty() => Ok((provider, model)),
        _ => Err(Error::config(format!("model {text:?} does not name a provider and a model"))
            .hint(r#"write it as "provider/model", for example "openai/gpt-6-astra""#)),
    }
}

/// The parsed, checked address of a provider. `Debug` and `Display` leave the query out: some gateways want a key there.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct BaseUrl(Url);

impl BaseUrl {
    /// Parses and checks the address.
    pub(crate) fn parse(text: &str, insecure_http: bool) -> Result<Self, Error> {
        let url = Url::parse(text.trim()).map_err(|fault| {
            Error::config(format!("the base_url of a provider is not a URL: {fault}"))
                .hint(r#"write it like "https://api.example.com/v1""#)
        })?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(Error::config("the base_url of a provider carries a user name or password")
                .hint("put the key into api_key"));
        }
        if url.fragment().is_some() {
            return Err(Error::config("the base_url of a provider has a fragment").hint("remove what follows the #"));
        }
        let shown = Self(url);
        match shown.0.scheme() {
            "https" => Ok(shown),
            "http" if insecure_http || is_loopback(&shown.0) => Ok(shown),
            "http" => Err(Error::config(format!("provider address {shown} is plain HTTP and not on this machine"))
                .hint("use https, or say insecure_http = true if the network in between is yours")),
            other => Err(Error::config(format!("provider address has the scheme {other:?}")).hint("use https")),
        }
    }

    /// The address of a resource below it.
    pub(crate) fn join(&self, segments: &[&str]) -> Url {
        let mut url = self.0.clone();
        // `path_segments_mut` fails for addresses without a host only, which `parse` admits no scheme for.
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend(segments);
        }
        url
    }

    /// True if nothing of the connection is encrypted.
    pub(crate) fn is_plain(&self) -> bool {
        self.0.scheme() == "http"
    }
}

impl fmt::Display for BaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.0.origin().ascii_serialization(), self.0.path())
    }
}

impl fmt::Debug for BaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BaseUrl({self})")
    }
}

/// Only exact loopback hosts: `localhost`, 127.0.0.0/8 and ::1, not a name that begins with one of them (Y11).
fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => IpAddr::V4(address).is_loopback(),
        Some(Host::Ipv6(address)) => IpAddr::V6(address).is_loopback(),
        None => false,
    }
}
