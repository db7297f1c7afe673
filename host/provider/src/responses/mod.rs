//! The driver `openai-responses`: the public Responses protocol of OpenAI and of servers that speak it.
//!
//! `body` makes the request, `decode` reads the answer, `http` carries both. What this driver takes as options:
//!
//! | key | value |
//! |---|---|
//! | `async` | `"auto"` (by the model's profile, the default), `"on"`, `"off"` |
//! | `models` | a table by model name (a trailing `*` stands for anything) with what the model can do, as in `profiles.toml` |
//! | `body` | members for each request's body, which cannot replace what the host sets (O22) |

mod body;
mod decode;
mod history;
mod items;
mod outcome;
mod retrieve;
mod slots;
mod stream;
mod usage;

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::{Map, Value};
use wharf_core::model::{Fate, Outcome, Request, RequestError, Retrieved};
use wharf_core::{Error, ResponseId};

pub use body::mark_async;
pub use decode::{DecodeError, Decoder};
pub use retrieve::read as read_retrieved;

use crate::config::ProviderConfig;
use crate::driver::{Driver, EventStream, Support};
use crate::http::{Body, Http, Patience};
use crate::profile::{AsyncSetting, Profile, Profiles, unknown};
use body::{Context, Form};

/// The driver's name.
pub const NAME: &str = "openai-responses";

/// Where it speaks to if the config has no address.
pub const BASE_URL: &str = "https://api.openai.com/v1";

const OPTIONS: &[&str] = &["async", "models", "body"];

/// A provider that speaks this protocol.
#[derive(Clone)]
pub struct Responses {
    inner: Arc<Inner>,
}

struct Inner {
    name: String,
    http: Http,
    profiles: Profiles,
    extra: Map<String, Value>,
}

impl Responses {
    /// Checks the config. Opens no connection.
    ///
    /// # Errors
    /// A config error that names the key.
    pub fn new(config: ProviderConfig) -> Result<Self, Error> {
        let place = format!("providers.{}.options", config.name);
        if let Some(name) = config.options.keys().find(|name| !OPTIONS.contains(&name.as_str())) {
            return Err(unknown(&place, name, OPTIONS));
        }
        let setting = match config.options.get("async") {
            None => AsyncSetting::Auto,
            Some(value) => AsyncSetting::read(value).ok_or_else(|| {
                Error::config(format!("{place}.async is {value}; expected {}", AsyncSetting::EXPECTED))
                    .hint(r#"async = "auto""#)
            })?,
        };
        let table = |name: &str| match config.options.get(name) {
            None => Ok(Map::new()),
            Some(Value::Object(members)) => Ok(members.clone()),
            Some(_) => Err(Error::config(format!("{place}.{name} is not a table")).hint(format!("[{place}.{name}]"))),
        };
        let profiles = Profiles::new(setting, &table("models")?, &format!("{place}.models"))?;
        let http = Http::new(&config, BASE_URL)?;
        Ok(Self { inner: Arc::new(Inner { extra: table("body")?, name: config.name, http, profiles }) })
    }
}

impl Inner {
    fn build(&self, request: &Request, form: Form) -> Result<Map<String, Value>, Error> {
        let profile = self.profiles.of(&request.model);
        body::build(Context { provider: &self.name, profile: &profile, extra: &self.extra }, request, form)
    }

    async fn post(&self, http: &Http, request: &Request, form: Form) -> Result<Body, RequestError> {
        let not_sent = |error| RequestError::new(Fate::NotSent, error);
        let body = Value::Object(self.build(request, form).map_err(not_sent)?).to_string().into_bytes();
        let headers = body::headers(request).map_err(not_sent)?;
        let patience = if request.stream { Patience::FirstByte } else { Patience::WholeAnswer };
        http.post(&["responses"], body, headers, patience).await
    }

    /// Sends once; a second time only as O10 allows, and then without anything that the provider would have to know.
    async fn open(&self, request: &Request) -> Result<EventStream, RequestError> {
        let http = self.http.hiding(request.options.headers.values());
        let body = match self.post(&http, request, Form::Best).await {
            Err(refusal) if lacks_output(&refusal) && body::may_replay(request) => {
                tracing::debug!(provider = %self.name, "continuation refused, history replayed");
                self.post(&http, request, Form::Replay).await?
            }
            answer => answer?,
        };
        Ok(stream::events(http, body))
    }

    async fn ask(&self, answer: Result<Body, RequestError>) -> Result<Retrieved, RequestError> {
        let body = match answer {
            Err(refusal) if refusal.status == Some(404) => return Ok(Retrieved::NotFound),
            answer => answer?,
        };
        let bytes = self.http.whole(body).await?;
        decode::few_values(&bytes).map_err(|fault| self.http.unknown(fault.to_string()))?;
        let response: Value = serde_json::from_slice(&bytes)
            .map_err(|_| self.http.unknown(format!("the answer to a question is not JSON ({} bytes)", bytes.len())))?;
        let mut retrieved = retrieve::read(&response).map_err(|fault| self.http.unknown(fault.to_string()))?;
        if let Retrieved::Ended { completion, .. } = &mut retrieved
            && let Outcome::Failed { code, message } = &mut completion.outcome
        {
            *code = self.http.words(code);
            *message = self.http.words(message);
        }
        Ok(retrieved)
    }

    fn profile(&self, model: &str) -> Profile {
        self.profiles.of(model)
    }
}

/// The refusal of a continuation because an earlier sync call has no output. There is no code for it, only its words.
fn lacks_output(refusal: &RequestError) -> bool {
    refusal.status == Some(400) && refusal.error.message.to_ascii_lowercase().contains("no tool output found")
}

impl Driver for Responses {
    fn name(&self) -> &str {
        &self.inner.name
    }

    fn protocol(&self) -> &str {
        NAME
    }

    fn support(&self, model: &str) -> Support {
        let profile = self.inner.profile(model);
        Support {
            async_calls: profile.async_calls,
            continuation: profile.continuation && profile.async_calls,
            retrieval: profile.retrieval,
            cancel: profile.cancel,
            deferred_tools: false,
        }
    }

    fn check(&self, request: &Request) -> Result<(), Error> {
        body::headers(request)?;
        self.inner.build(request, Form::Best).map(drop)
    }

    fn body(&self, request: &Request) -> Result<Value, Error> {
        body::headers(request)?;
        self.inner.build(request, Form::Best).map(Value::Object)
    }

    fn open(&self, request: Request) -> BoxFuture<'static, Result<EventStream, RequestError>> {
        let inner = Arc::clone(&self.inner);
        async move { inner.open(&request).await }.boxed()
    }

    fn retrieve(&self, id: &ResponseId) -> BoxFuture<'static, Result<Retrieved, RequestError>> {
        let (inner, id) = (Arc::clone(&self.inner), id.clone());
        async move { inner.ask(inner.http.get(&["responses", id.as_str()]).await).await }.boxed()
    }

    fn cancel(&self, id: &ResponseId) -> BoxFuture<'static, Result<Retrieved, RequestError>> {
        let (inner, id) = (Arc::clone(&self.inner), id.clone());
        async move {
            let path = ["responses", id.as_str(), "cancel"];
            inner.ask(inner.http.post(&path, Vec::new(), Default::default(), Patience::WholeAnswer).await).await
        }
        .boxed()
    }
}
