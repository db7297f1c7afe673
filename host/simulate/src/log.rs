//! The request log: what came in, what answered it and how it ended, in memory and as lines of JSON.
//! It must never keep the value of a key, and never know what a step or a response means.

use std::fs::File;
use std::io::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::http::{HeaderMap, HeaderName, header};
use serde_json::{Map, Value, json};
use tokio::sync::watch;

use crate::limits;
use crate::violation::{Violation, ViolationKind};

/// One request.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestEntry {
    /// Its number, from 1, over all requests of the server.
    pub order: u64,
    /// When it came, counted from the start of the server.
    pub at: Duration,
    /// The method.
    pub method: String,
    /// The path with its query.
    pub path: String,
    /// The headers; those that carry keys have the value `(hidden)`.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: RequestBody,
    /// The step that answered, counted from 0; refusals and retrievals have none.
    pub step: Option<AnsweringStep>,
    /// The response that it began.
    pub response_id: Option<String>,
    /// How it ended.
    pub end: End,
    /// When it ended.
    pub ended_at: Option<Duration>,
}

impl RequestEntry {
    /// The body, if it is JSON.
    pub fn json(&self) -> Option<&Value> {
        match &self.body {
            RequestBody::Json(value) => Some(value),
            RequestBody::Text(_) | RequestBody::Empty => None,
        }
    }
}

/// The step that answered a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnsweringStep {
    /// Its place in the script, from 0.
    pub index: usize,
    /// Its name.
    pub name: Option<String>,
}

/// A request's body.
#[derive(Clone, Debug, PartialEq)]
pub enum RequestBody {
    /// JSON.
    Json(Arc<Value>),
    /// Something else, invalid UTF-8 replaced.
    Text(String),
    /// Nothing.
    Empty,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Not yet.
    Open,
    /// A whole body was sent.
    Whole {
        /// The status code.
        status: u16,
    },
    /// A stream was sent up to its terminal event, or to the end that the script gives it.
    Streamed {
        /// How many events.
        events: usize,
    },
    /// The script cut the stream off.
    Cut {
        /// How many events were sent whole.
        events: usize,
    },
    /// The connection was closed without a byte.
    Dropped,
    /// The client went away first.
    ClientLeft {
        /// How many events were sent before.
        events: usize,
    },
    /// The server was stopped first.
    Stopped {
        /// How many events were sent before.
        events: usize,
    },
}

/// What is known of a request when it comes in.
pub(crate) struct Arrival {
    pub(crate) at: Duration,
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: RequestBody,
    pub(crate) body_bytes: usize,
}

#[derive(Default)]
struct Inner {
    entries: Vec<RequestEntry>,
    body_bytes: usize,
    violations: Vec<Violation>,
    file: Option<File>,
}

pub(crate) struct RequestLog {
    started: Instant,
    inner: Mutex<Inner>,
    changes: watch::Sender<u64>,
}

impl RequestLog {
    pub(crate) fn new(file: Option<File>) -> Self {
        Self {
            started: Instant::now(),
            inner: Mutex::new(Inner { file, ..Inner::default() }),
            changes: watch::Sender::new(0),
        }
    }

    pub(crate) fn now(&self) -> Duration {
        self.started.elapsed()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Every change is one push or one assignment, so a panic elsewhere leaves nothing half done.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn changed(&self) {
        self.changes.send_modify(|version| *version += 1);
    }

    /// Writes a request down and gives its number.
    pub(crate) fn arrived(&self, arrival: Arrival) -> Result<u64, ViolationKind> {
        let mut inner = self.lock();
        let entries = inner.entries.len();
        let body_bytes = inner.body_bytes.saturating_add(arrival.body_bytes);
        if entries >= limits::LOG_ENTRIES_MAX || body_bytes > limits::LOG_BODY_BYTES_MAX {
            drop(inner);
            let full = ViolationKind::LogFull { entries };
            self.violation(None, full.clone());
            return Err(full);
        }
        inner.body_bytes = body_bytes;
        let order = entries as u64 + 1;
        let entry = RequestEntry {
            order,
            at: arrival.at,
            method: arrival.method,
            path: arrival.path,
            headers: arrival.headers,
            body: arrival.body,
            step: None,
            response_id: None,
            end: End::Open,
            ended_at: None,
        };
        inner.line(|| {
            json!({
                "kind": "request",
                "order": order,
                "at_ms": millis(entry.at),
                "method": entry.method,
                "path": entry.path,
                "headers": headers_json(&entry.headers),
                "body": body_json(&entry.body),
            })
        });
        inner.entries.push(entry);
        drop(inner);
        self.changed();
        Ok(order)
    }

    /// A step answers the request.
    pub(crate) fn answered(&self, order: u64, step: AnsweringStep, response_id: Option<String>) {
        let at = self.now();
        let mut inner = self.lock();
        inner.line(|| {
            json!({
                "kind": "answered",
                "order": order,
                "at_ms": millis(at),
                "step": step.index,
                "step_name": step.name,
                "response_id": response_id,
            })
        });
        if let Some(entry) = inner.entry(order) {
            entry.step = Some(step);
            entry.response_id = response_id;
        }
        drop(inner);
        self.changed();
    }

    /// The request has ended; the first end counts.
    pub(crate) fn ended(&self, order: u64, end: End) {
        let at = self.now();
        let mut inner = self.lock();
        let Some(entry) = inner.entry(order).filter(|entry| entry.end == End::Open) else {
            return;
        };
        entry.end = end;
        entry.ended_at = Some(at);
        inner.line(|| json!({ "kind": "end", "order": order, "at_ms": millis(at), "end": end_json(end) }));
        drop(inner);
        self.changed();
    }

    pub(crate) fn violation(&self, request: Option<u64>, kind: ViolationKind) {
        let mut inner = self.lock();
        if inner.violations.len() < limits::VIOLATIONS_MAX {
            inner.line(|| json!({ "kind": "violation", "order": request, "what": kind.to_string() }));
        }
        inner.push_violation(Violation { request, kind });
        drop(inner);
        self.changed();
    }

    pub(crate) fn entries(&self) -> Vec<RequestEntry> {
        self.lock().entries.clone()
    }

    pub(crate) fn violations(&self) -> Vec<Violation> {
        self.lock().violations.clone()
    }

    /// The first answer that is not `None`, asked again after each change.
    pub(crate) async fn wait_for<T>(&self, look: impl Fn(&[RequestEntry]) -> Option<T>) -> T {
        let mut changes = self.changes.subscribe();
        loop {
            let found = look(&self.lock().entries);
            if let Some(found) = found {
                return found;
            }
            if changes.changed().await.is_err() {
                // The sender lives in self, so this cannot be; waiting keeps the promise of the type.
                std::future::pending::<()>().await;
            }
        }
    }
}

impl Inner {
    fn entry(&mut self, order: u64) -> Option<&mut RequestEntry> {
        let index = usize::try_from(order.checked_sub(1)?).ok()?;
        self.entries.get_mut(index)
    }

    fn push_violation(&mut self, violation: Violation) {
        if self.violations.len() < limits::VIOLATIONS_MAX {
            self.violations.push(violation);
        }
    }

    /// Appends a line in one write, so that a reader never sees two lines mixed.
    fn line(&mut self, value: impl FnOnce() -> Value) {
        let Some(file) = &mut self.file else {
            return;
        };
        if let Err(error) = file.write_all(format!("{}\n", value()).as_bytes()) {
            // A log with a hole proves nothing: it ends here, and the violation says so.
            self.file = None;
            let kind = ViolationKind::LogFile { why: error.to_string() };
            self.push_violation(Violation { request: None, kind });
        }
    }
}

/// The headers that may be kept.
pub(crate) fn shown_headers(headers: &HeaderMap) -> Vec<(String, String)> {
    let shown = headers.iter().map(|(name, value)| {
        let value = if is_secret(name) {
            "(hidden)".to_owned()
        } else {
            String::from_utf8_lossy(value.as_bytes()).into_owned()
        };
        (name.as_str().to_owned(), value)
    });
    shown.collect()
}

fn is_secret(name: &HeaderName) -> bool {
    [header::AUTHORIZATION, header::PROXY_AUTHORIZATION, header::COOKIE].contains(name)
        || ["api-key", "token", "secret"].iter().any(|word| name.as_str().contains(word))
}

/// An entry as JSON, as `GET /_simulate/requests` gives it.
pub(crate) fn entry_json(entry: &RequestEntry) -> Value {
    json!({
        "order": entry.order,
        "at_ms": millis(entry.at),
        "method": entry.method,
        "path": entry.path,
        "headers": headers_json(&entry.headers),
        "body": body_json(&entry.body),
        "step": entry.step.as_ref().map(|step| step.index),
        "step_name": entry.step.as_ref().and_then(|step| step.name.as_deref()),
        "response_id": entry.response_id,
        "end": end_json(entry.end),
        "ended_at_ms": entry.ended_at.map(millis),
    })
}

fn millis(duration: Duration) -> f64 {
    // Microseconds are as fine as a line needs.
    (duration.as_secs_f64() * 1_000_000.0).round() / 1_000.0
}

fn headers_json(headers: &[(String, String)]) -> Value {
    let mut object: Map<String, Value> = Map::new();
    for (name, value) in headers {
        match object.get_mut(name) {
            Some(Value::String(earlier)) => {
                earlier.push_str(", ");
                earlier.push_str(value);
            }
            Some(_) | None => {
                object.insert(name.clone(), json!(value));
            }
        }
    }
    Value::Object(object)
}

fn body_json(body: &RequestBody) -> Value {
    match body {
        RequestBody::Json(value) => Value::clone(value),
        RequestBody::Text(text) => json!(text),
        RequestBody::Empty => Value::Null,
    }
}

fn end_json(end: End) -> Value {
    match end {
        End::Open => json!({ "how": "open" }),
        End::Whole { status } => json!({ "how": "whole", "status": status }),
        End::Streamed { events } => json!({ "how": "streamed", "events": events }),
        End::Cut { events } => json!({ "how": "cut", "events": events }),
        End::Dropped => json!({ "how": "dropped" }),
        End::ClientLeft { events } => json!({ "how": "client_left", "events": events }),
        End::Stopped { events } => json!({ "how": "stopped", "events": events }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrival(body_bytes: usize) -> Arrival {
        Arrival {
            at: Duration::ZERO,
            method: "POST".to_owned(),
            path: "/".to_owned(),
            headers: Vec::new(),
            body: RequestBody::Empty,
            body_bytes,
        }
    }

    #[test]
    fn a_full_log_refuses_requests_and_says_so() {
        let log = RequestLog::new(None);
        assert_eq!(log.arrived(arrival(limits::LOG_BODY_BYTES_MAX)), Ok(1));
        assert_eq!(log.arrived(arrival(0)), Ok(2));
        let full = ViolationKind::LogFull { entries: 2 };
        assert_eq!(log.arrived(arrival(1)), Err(full.clone()));
        assert_eq!(log.arrived(arrival(usize::MAX)), Err(full.clone()));
        assert_eq!(log.entries().len(), 2);
        let violation = Violation { request: None, kind: full };
        assert_eq!(log.violations(), vec![violation.clone(), violation]);
    }

    #[test]
    fn entries_are_counted_too() {
        let log = RequestLog::new(None);
        for _ in 0..limits::LOG_ENTRIES_MAX {
            log.arrived(arrival(0)).expect("there is room");
        }
        let full = ViolationKind::LogFull { entries: limits::LOG_ENTRIES_MAX };
        assert_eq!(log.arrived(arrival(0)), Err(full));
    }

    #[test]
    fn only_the_first_violations_are_kept() {
        let log = RequestLog::new(None);
        for nth in 0..limits::VIOLATIONS_MAX + 10 {
            log.violation(None, ViolationKind::UnknownGate { gate: nth.to_string() });
        }
        let violations = log.violations();
        assert_eq!(violations.len(), limits::VIOLATIONS_MAX);
        let last = ViolationKind::UnknownGate { gate: (limits::VIOLATIONS_MAX - 1).to_string() };
        assert_eq!(violations.last().map(|violation| violation.kind.clone()), Some(last));
    }

    #[test]
    fn headers_that_carry_keys_are_hidden() {
        let mut headers = HeaderMap::new();
        for name in ["authorization", "cookie", "x-api-key", "x-auth-token", "client-secret", "accept"] {
            headers.insert(HeaderName::from_static(name), "value".parse().expect("a value"));
        }
        let hidden: Vec<String> = shown_headers(&headers)
            .into_iter()
            .filter(|(_, value)| value == "(hidden)")
            .map(|(name, _)| name)
            .collect();
        assert_eq!(hidden, ["authorization", "cookie", "x-api-key", "x-auth-token", "client-secret"]);
    }

    #[test]
    fn the_first_end_counts() {
        let log = RequestLog::new(None);
        log.arrived(arrival(0)).expect("there is room");
        log.ended(1, End::Whole { status: 200 });
        log.ended(1, End::ClientLeft { events: 0 });
        assert_eq!(log.entries()[0].end, End::Whole { status: 200 });
    }
}
