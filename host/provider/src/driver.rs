//! What every driver can do, in no protocol's words. It must never know an address or a key.

use std::pin::Pin;

use futures::future::BoxFuture;
use futures::stream::{Stream, StreamExt};
use serde_json::Value;
use wharf_core::model::{Completion, Fate, FinishedCall, Outcome, Request, RequestError, Retrieved, StreamEvent};
use wharf_core::{Error, ResponseId};

/// The events of one answer. It ends after [`StreamEvent::Completed`] or after an error, at once (P18).
///
/// An `Err` means that no terminal event came: the connection broke, the stream ended early (P19), or what came could not
/// be read. A response that failed at the provider is not an `Err` but a [`StreamEvent::Completed`] with
/// [`Outcome::Failed`] (P12).
pub type EventStream = Pin<Box<dyn Stream<Item = Result<StreamEvent, RequestError>> + Send>>;

/// A provider: a protocol with an address and credentials.
///
/// ```
/// fn usable_from_any_task(driver: std::sync::Arc<dyn wharf_provider::Driver>) -> impl Send + 'static {
///     async move { driver.support("some-model").async_calls }
/// }
/// ```
pub trait Driver: Send + Sync {
    /// The provider's name in the harness, for example `openai`. `{name}/{model}` is the maker of opaque items (O20).
    fn name(&self) -> &str;

    /// The protocol, for example `openai-responses`.
    fn protocol(&self) -> &str;

    /// What this model can do here: its profile, and the operator's word where there is one (O12).
    fn support(&self, model: &str) -> Support;

    /// Whether this request can be sent as it is.
    ///
    /// # Errors
    /// Config errors of O5, O7, O8, O15 and O22. Nothing has been sent.
    fn check(&self, request: &Request) -> Result<(), Error>;

    /// The body that [`Driver::open`] would send, for a digest and for tests.
    ///
    /// # Errors
    /// As [`Driver::check`].
    fn body(&self, request: &Request) -> Result<Value, Error>;

    /// Sends the request, once, and gives the events of the answer as they come.
    ///
    /// The future checks the request first: a config error has the fate [`Fate::NotSent`]. It is done when the status of
    /// the answer is known. Dropping it or the stream closes the connection.
    fn open(&self, request: Request) -> BoxFuture<'static, Result<EventStream, RequestError>>;

    /// Asks what became of a response (G15, O19).
    ///
    /// The fate of an error here says nothing of the response: the question failed, not the request it asks about.
    fn retrieve(&self, id: &ResponseId) -> BoxFuture<'static, Result<Retrieved, RequestError>>;

    /// Asks the provider to stop a response, and says what became of it. May be repeated.
    fn cancel(&self, id: &ResponseId) -> BoxFuture<'static, Result<Retrieved, RequestError>>;
}

/// What a model can do at a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Support {
    /// Tools may be marked async. Without it every call is awaited.
    pub async_calls: bool,
    /// A delivery is sent as outputs on the latest response id. Without it the driver replays the history: the request
    /// must then carry the whole of it in `messages`, the calls of the delivery included, beside the delivery.
    pub continuation: bool,
    /// [`Driver::retrieve`] can settle an unknown response (G15).
    pub retrieval: bool,
    /// [`Driver::cancel`] can stop a response.
    pub cancel: bool,
    /// Deferred tools are sent short (O23). Without it all are sent in full.
    pub deferred_tools: bool,
}

/// A whole answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// Its id, as the first event that carried one had it.
    pub started: Option<ResponseId>,
    /// Its end.
    pub completion: Completion,
    /// Its calls, native ones and sync ones, in the order in which they were finished.
    pub calls: Vec<FinishedCall>,
}

/// Reads a stream to its end, for callers that need no parts.
///
/// # Errors
/// The stream's own error, or that of [`outcome_error`].
pub async fn collect(mut events: EventStream) -> Result<Answer, RequestError> {
    let mut started = None;
    let mut calls: Vec<FinishedCall> = Vec::new();
    while let Some(event) = events.next().await {
        match event? {
            StreamEvent::Started { id } => started = Some(id),
            StreamEvent::Text(_) | StreamEvent::Reasoning(_) | StreamEvent::Refusal(_) | StreamEvent::Opaque(_) => {}
            StreamEvent::Call(call) => calls.push(call),
            StreamEvent::SyncCalls(set) => {
                for call in set {
                    if !calls.contains(&call) {
                        calls.push(call);
                    }
                }
            }
            StreamEvent::Completed(completion) => {
                return match outcome_error(&completion) {
                    Some(error) => Err(error),
                    None => Ok(Answer { started, completion, calls }),
                };
            }
        }
    }
    Err(truncated())
}

/// The error that a terminal outcome is (P12, L18): a failed or a cancelled response, with the provider's code and
/// message. Completed and incomplete ones are none. The fate is [`Fate::Refused`]: such a response counts as not accepted
/// (G20).
pub fn outcome_error(completion: &Completion) -> Option<RequestError> {
    let (code, message) = match &completion.outcome {
        Outcome::Completed | Outcome::Incomplete { .. } => return None,
        Outcome::Failed { code, message } => (code.clone(), format!("the response failed at the provider: {message}")),
        Outcome::Cancelled => ("cancelled".to_owned(), "the response was cancelled at the provider".to_owned()),
    };
    let mut error = RequestError::new(Fate::Refused, Error::provider(message));
    error.code = code;
    Some(error)
}

/// The error of a stream that ends without a terminal event (P19).
pub(crate) fn truncated() -> RequestError {
    RequestError::new(
        Fate::Unknown,
        Error::provider("the answer ended before its terminal event: a close proves nothing, the response may exist"),
    )
}
