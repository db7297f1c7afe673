//! One HTTP request at a time to one provider: what is sent with each, how long is waited, what is read. It re-sends
//! nothing, follows no redirect, takes no proxy from the environment, and logs neither bodies nor headers. It knows no
//! protocol.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::{self, Either};
use futures::stream::{self, Stream, StreamExt};
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Method, Response, redirect, retry};
use rustls::ClientConfig;
use rustls::crypto::{CryptoProvider, ring};
use rustls_platform_verifier::BuilderVerifierExt;
use url::Url;
use wharf_core::Error;
use wharf_core::model::{Fate, RequestError};

use crate::config::{BaseUrl, ProviderConfig, Timeouts};
use crate::limits;
use crate::refusal::{self, Scrub};

/// The body of an answer. Each wait for a piece is bounded; a wait that is too long is an error, and the last item.
pub(crate) type Body = Pin<Box<dyn Stream<Item = Result<Bytes, RequestError>> + Send>>;

/// Headers that belong to the connection, the body or authorisation: nobody else sets them (O22).
const OWN_HEADERS: &[&str] = &[
    "authorization",
    "accept",
    "accept-encoding",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "host",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// A provider's end of the wire.
#[derive(Clone)]
pub(crate) struct Http {
    client: Client,
    base: BaseUrl,
    /// Authorisation and the operator's own, all marked as sensitive.
    headers: HeaderMap,
    timeouts: Timeouts,
    provider: String,
    scrub: Scrub,
}

/// What an answer's first byte may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    /// It streams.
    FirstByte,
    /// It comes when all is done.
    WholeAnswer,
    /// It says what is known already.
    Question,
}

impl Http {
    /// Checks the config and makes a client. Opens no connection.
    pub(crate) fn new(config: &ProviderConfig, own_base: &str) -> Result<Self, Error> {
        let base = BaseUrl::parse(config.base_url.as_deref().unwrap_or(own_base), config.insecure_http)?;
        let mut headers = HeaderMap::new();
        for (name, value) in &config.headers {
            let (name, value) = extra_header(name, value.expose())?;
            headers.insert(name, value);
        }
        if let Some(key) = &config.api_key {
            let mut value = HeaderValue::from_str(&format!("Bearer {}", key.expose())).map_err(|_| {
                Error::config(format!(
                    "the api_key of provider {:?} cannot be sent: it has characters that no header takes",
                    config.name
                ))
                .hint("look for a line break or a space at its end")
            })?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        let secrets = config.headers.values().chain(&config.api_key).map(|secret| secret.expose().to_owned());
        let client = Client::builder()
            .user_agent(concat!("wharf/", env!("CARGO_PKG_VERSION")))
            .no_proxy()
            .redirect(redirect::Policy::none())
            .retry(retry::never())
            .referer(false)
            .connect_timeout(config.timeouts.connect)
            .pool_idle_timeout(limits::POOL_IDLE_TIMEOUT)
            .tls_backend_preconfigured(tls(&base)?)
            .build()
            .map_err(|fault| Error::config(format!("no HTTP client can be made: {}", cause_of(&fault))))?;
        Ok(Self {
            client,
            base,
            headers,
            timeouts: config.timeouts,
            provider: config.name.clone(),
            scrub: Scrub::new(secrets),
        })
    }

    /// The same for one request with header values of its own, which are hidden like the provider's.
    pub(crate) fn hiding<'v>(&self, values: impl IntoIterator<Item = &'v String>) -> Self {
        Self { scrub: self.scrub.and(values.into_iter().cloned()), ..self.clone() }
    }

    /// The provider's own words as they may be shown: without the values of its secrets, and not too long.
    pub(crate) fn words(&self, text: &str) -> String {
        self.scrub.words(text)
    }

    /// Takes the values of this provider's secrets out of a text.
    fn clean(&self, text: &str) -> String {
        self.scrub.clean(text)
    }

    /// Sends a POST with a JSON body, once, and gives the body of a 2xx answer.
    pub(crate) async fn post(
        &self,
        path: &[&str],
        body: Vec<u8>,
        extra: HeaderMap,
        patience: Patience,
    ) -> Result<Body, RequestError> {
        let accept = match patience {
            Patience::FirstByte => "text/event-stream",
            Patience::WholeAnswer | Patience::Question => "application/json",
        };
        let mut headers = extra;
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT, HeaderValue::from_static(accept));
        self.send(Method::POST, self.base.join(path), headers, body, patience).await
    }

    /// Sends a GET, once, and gives the body of a 2xx answer.
    pub(crate) async fn get(&self, path: &[&str]) -> Result<Body, RequestError> {
        let headers = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static("application/json"))]);
        self.send(Method::GET, self.base.join(path), headers, Vec::new(), Patience::Question).await
    }

    async fn send(
        &self,
        method: Method,
        url: Url,
        mut headers: HeaderMap,
        body: Vec<u8>,
        patience: Patience,
    ) -> Result<Body, RequestError> {
        headers.extend(self.headers.clone());
        let limit = match patience {
            Patience::FirstByte | Patience::Question => self.timeouts.first_byte,
            Patience::WholeAnswer => self.timeouts.whole_answer,
        };
        let whole = match patience {
            Patience::FirstByte => self.timeouts.stream,
            Patience::WholeAnswer | Patience::Question => self.timeouts.whole_answer,
        };
        tracing::debug!(provider = %self.provider, %method, bytes = body.len(), "request");
        let mut request = self.client.request(method, url).headers(headers);
        if !body.is_empty() {
            request = request.body(body);
        }
        // The connection has a limit of its own, which strikes first and says that nothing was sent.
        let response = match tokio::time::timeout(self.timeouts.connect.saturating_add(limit), request.send()).await {
            Ok(Ok(response)) => response,
            Ok(Err(fault)) => return Err(self.not_answered(fault)),
            Err(_) => return Err(self.silent("no answer", limit)),
        };
        let status = response.status();
        tracing::debug!(
            provider = %self.provider,
            status = status.as_u16(),
            request_id = self.clean(&refusal::header(response.headers(), "x-request-id").unwrap_or_default()),
            "answer"
        );
        if status.is_success() {
            return Ok(self.body(response, limit, whole));
        }
        // Read before anything is taken for a stream, whatever its type says (PROV-7).
        let headers = response.headers().clone();
        let body = error_body(response).await;
        Err(refusal::read(&self.provider, status.as_u16(), &headers, &body, &self.scrub))
    }

    /// The body with its limits on silence and on the whole of it.
    fn body(&self, response: Response, first: Duration, whole: Duration) -> Body {
        let this = self.clone();
        let pieces = response.bytes_stream().boxed();
        let waits = Waits { first, idle: self.timeouts.idle, whole };
        Box::pin(guarded(pieces, waits, tokio::time::sleep).map(move |piece| match piece {
            Ok(piece) => Ok(piece),
            Err(Broken::Source(fault)) => Err(this.broken(&fault)),
            Err(Broken::Silent(limit)) => Err(this.silent("the answer fell silent", limit)),
            Err(Broken::Endless(limit)) => {
                Err(this.unknown(format!("the answer had not ended after {} s", limit.as_secs_f32())))
            }
        }))
    }

    /// The whole of a body that is no stream.
    pub(crate) async fn whole(&self, mut body: Body) -> Result<Vec<u8>, RequestError> {
        let mut all = Vec::new();
        while let Some(piece) = body.next().await {
            let piece = piece?;
            if all.len() + piece.len() > limits::ANSWER_BYTES_MAX {
                return Err(self.unknown(format!("the answer is longer than {} bytes", limits::ANSWER_BYTES_MAX)));
            }
            all.extend_from_slice(&piece);
        }
        Ok(all)
    }

    /// A request without an answer: not sent if there was no connection, else nobody knows.
    fn not_answered(&self, fault: reqwest::Error) -> RequestError {
        let cause = self.scrub.clean(&cause_of(&fault));
        if fault.is_builder() {
            return RequestError::new(Fate::NotSent, Error::config(format!("the request cannot be made: {cause}")));
        }
        if fault.is_connect() {
            let error =
                Error::provider(format!("provider {:?} cannot be reached at {}: {cause}", self.provider, self.base))
                    .hint(format!(
                        "check base_url of providers.{}, the network, and that the server runs",
                        self.provider
                    ));
            return RequestError::new(Fate::NotSent, error);
        }
        self.unknown(format!("the connection broke before an answer: {cause}"))
    }

    fn broken(&self, fault: &reqwest::Error) -> RequestError {
        self.unknown(format!("the answer broke off: {}", self.scrub.clean(&cause_of(fault))))
    }

    fn silent(&self, what: &str, limit: Duration) -> RequestError {
        self.unknown(format!("{what} for {} s", limit.as_secs_f32()))
    }

    /// An error after which the request may or may not have been accepted.
    pub(crate) fn unknown(&self, what: String) -> RequestError {
        RequestError::new(Fate::Unknown, Error::provider(format!("provider {:?}: {what}", self.provider)))
    }
}

/// How long is waited for a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Waits {
    /// For its first piece.
    first: Duration,
    /// For each later piece.
    idle: Duration,
    /// For its end.
    whole: Duration,
}

/// Why a body ended before its end.
#[derive(Debug, PartialEq, Eq)]
enum Broken<E> {
    /// Its source failed.
    Source(E),
    /// Nothing came for this long.
    Silent(Duration),
    /// It had not ended after this long.
    Endless(Duration),
}

/// The pieces of a body, with a limit on silence before the first one, another before each later one, and one on the
/// whole. Any byte counts against silence, so comments that keep a stream alive do; only the last limit ends a stream that
/// has nothing else. It ends with the first error.
fn guarded<S, T, E, F>(
    pieces: S,
    waits: Waits,
    timer: impl Fn(Duration) -> F,
) -> impl Stream<Item = Result<T, Broken<E>>>
where
    S: Stream<Item = Result<T, E>> + Unpin,
    F: Future<Output = ()>,
{
    let end = Box::pin(timer(waits.whole));
    stream::unfold((Some((pieces, end, waits.first)), timer), move |(state, timer)| async move {
        let (mut pieces, mut end, limit) = state?;
        let silence = pin!(timer(limit));
        // The end is asked first: pieces that are always there must not keep it from striking.
        let piece = match future::select(end.as_mut(), future::select(pieces.next(), silence)).await {
            Either::Left(((), _)) => return Some((Err(Broken::Endless(waits.whole)), (None, timer))),
            Either::Right((Either::Left((piece, _)), _)) => piece,
            Either::Right((Either::Right(((), _)), _)) => return Some((Err(Broken::Silent(limit)), (None, timer))),
        };
        match piece? {
            Ok(piece) => Some((Ok(piece), (Some((pieces, end, waits.idle)), timer))),
            Err(fault) => Some((Err(Broken::Source(fault)), (None, timer))),
        }
    })
    .fuse()
}

/// Name and value of a header that an operator or a request adds.
///
/// # Errors
/// A config error that does not quote the value, if it is one of ours or cannot be sent.
pub(crate) fn extra_header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), Error> {
    let lower = name.to_ascii_lowercase();
    if OWN_HEADERS.contains(&lower.as_str()) {
        return Err(Error::config(format!("header {name:?} cannot be set")).hint(if lower == "authorization" {
            "the key of a provider is its api_key"
        } else {
            "leave it to the driver"
        }));
    }
    let name = HeaderName::from_bytes(lower.as_bytes())
        .map_err(|_| Error::config(format!("{name:?} is no name of a header")).hint("use letters, digits and -"))?;
    let mut value = HeaderValue::from_str(value).map_err(|_| {
        Error::config(format!("the value of header {:?} cannot be sent", name.as_str()))
            .hint("it has a line break or another control character")
    })?;
    value.set_sensitive(true);
    Ok((name, value))
}

/// TLS with the system's roots. Made here, so that no provider of cryptography has to be installed for the process.
/// Plain HTTP needs none and does not look for roots, which a small system may not have.
fn tls(base: &BaseUrl) -> Result<ClientConfig, Error> {
    let wrong = |fault: rustls::Error| {
        Error::config(format!("TLS cannot be set up: {fault}")).hint("install the system's CA certificates")
    };
    let provider: Arc<CryptoProvider> = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().map_err(wrong)?;
    Ok(if base.is_plain() {
        builder.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth()
    } else {
        builder.with_platform_verifier().map_err(wrong)?.with_no_client_auth()
    })
}

/// What is read of an error's body; a body that breaks off or stalls is used as far as it came.
async fn error_body(response: Response) -> Vec<u8> {
    let mut all = Vec::new();
    let mut pieces = response.bytes_stream();
    let read = async {
        while let Some(Ok(piece)) = pieces.next().await {
            let room = limits::ERROR_BODY_BYTES_MAX.saturating_sub(all.len());
            all.extend_from_slice(&piece[..piece.len().min(room)]);
            if piece.len() >= room {
                return;
            }
        }
    };
    // Whether it ended or was cut: what came is what there is.
    let _ = tokio::time::timeout(limits::ERROR_BODY_TIMEOUT, read).await;
    all
}

/// The innermost cause, which is what says something; no URL is in it.
fn cause_of(fault: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = fault;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    if std::ptr::addr_eq(cause, fault) { "it cannot be sent".to_owned() } else { cause.to_string() }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use futures::executor::block_on;

    use super::*;

    const FIRST: Duration = Duration::from_secs(2);
    const IDLE: Duration = Duration::from_secs(3);
    const WHOLE: Duration = Duration::from_secs(60);
    const WAITS: Waits = Waits { first: FIRST, idle: IDLE, whole: WHOLE };

    /// Reads pieces with timers of which the given one strikes; gives what was read and the limits that were set.
    fn read(
        pieces: Vec<Result<&'static str, &'static str>>,
        strikes: Option<usize>,
    ) -> (Vec<Result<&'static str, Broken<&'static str>>>, Vec<Duration>) {
        let set = Mutex::new(Vec::new());
        let timer = |limit| {
            let mut set = set.lock().unwrap();
            // The limit on the whole is set once, before all others, and is far away.
            let whole = limit == WHOLE;
            if !whole {
                set.push(limit);
            }
            let strikes = !whole && strikes == Some(set.len());
            async move {
                if !strikes {
                    future::pending::<()>().await;
                }
            }
        };
        let stalled = pieces.len();
        let source = stream::iter(pieces).enumerate().then(move |(n, piece)| async move {
            if strikes == Some(n + 1) {
                future::pending::<()>().await;
            }
            piece
        });
        let source =
            if strikes == Some(stalled + 1) { source.chain(stream::pending()).boxed() } else { source.boxed() };
        let read = block_on(guarded(source, WAITS, timer).collect());
        (read, set.into_inner().unwrap())
    }

    #[test]
    fn any_byte_starts_the_limit_on_silence_anew() {
        // SSE-4, SSE-13
        let (read, set) = read(vec![Ok(": keep"), Ok("-alive\n"), Ok("data: 1\n\n")], None);
        assert_eq!(read, [Ok(": keep"), Ok("-alive\n"), Ok("data: 1\n\n")]);
        assert_eq!(set, [FIRST, IDLE, IDLE, IDLE]);
    }

    #[test]
    fn a_body_that_never_ends_is_ended_however_busy_it_is() {
        // SSE-13
        // The limit on the whole strikes when it is asked for the fourth time; a piece is there each time.
        let asked = Mutex::new(0);
        let timer = |limit| {
            let asked = &asked;
            future::poll_fn(move |_| {
                if limit != WHOLE {
                    return std::task::Poll::Pending;
                }
                let mut asked = asked.lock().unwrap();
                *asked += 1;
                if *asked == 4 { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
            })
        };
        let keep_alive = stream::repeat(Ok::<_, &str>(":\n"));
        let read: Vec<_> = block_on(guarded(keep_alive, WAITS, timer).take(10).collect());
        assert_eq!(read, [Ok(":\n"), Ok(":\n"), Ok(":\n"), Err(Broken::Endless(WHOLE))]);
    }

    #[test]
    fn silence_and_a_broken_source_end_a_body() {
        // covers P19
        assert_eq!(read(vec![Ok("a")], Some(1)), (vec![Err(Broken::Silent(FIRST))], vec![FIRST]));
        assert_eq!(read(vec![Ok("a")], Some(2)), (vec![Ok("a"), Err(Broken::Silent(IDLE))], vec![FIRST, IDLE]));
        assert_eq!(
            read(vec![Ok("a"), Err("reset"), Ok("b")], None),
            (vec![Ok("a"), Err(Broken::Source("reset"))], vec![FIRST, IDLE])
        );
    }
}
