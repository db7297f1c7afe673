//! The HTTP side: which request is which, what is written down of it, and how it is answered.
//! It must never know how events are made or steps are chosen.

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{ConnectInfo, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use axum::response::Response;
use serde_json::Value;

use crate::book::Cancelled;
use crate::conn::Connection;
use crate::expect::RequestView;
use crate::limits;
use crate::log::{AnsweringStep, Arrival, End, RequestBody, entry_json, shown_headers};
use crate::player::{Delivery, Player};
use crate::script::{HttpReply, Reply};
use crate::server::Shared;
use crate::violation::ViolationKind;
use crate::wire;

pub(crate) fn router(shared: Arc<Shared>) -> Router {
    Router::new().fallback(handle).with_state(shared)
}

/// What a request asks for.
enum Route<'a> {
    Create,
    Retrieve { id: &'a str, stream: bool },
    Cancel { id: &'a str },
    Release { gate: &'a str },
    Requests,
    Violations,
    Unknown,
}

impl<'a> Route<'a> {
    fn of(method: &Method, path: &'a str, query: Option<&str>) -> Self {
        let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        match (method.as_str(), parts.as_slice()) {
            ("POST", ["v1", "responses"]) => Self::Create,
            ("GET", ["v1", "responses", id]) => {
                let stream = query.is_some_and(|query| query.split('&').any(|pair| pair == "stream=true"));
                Self::Retrieve { id, stream }
            }
            ("POST", ["v1", "responses", id, "cancel"]) => Self::Cancel { id },
            ("POST", ["_simulate", "release", gate]) => Self::Release { gate },
            ("GET", ["_simulate", "requests"]) => Self::Requests,
            ("GET", ["_simulate", "violations"]) => Self::Violations,
            _ => Self::Unknown,
        }
    }
}

async fn handle(
    State(shared): State<Arc<Shared>>,
    ConnectInfo(connection): ConnectInfo<Connection>,
    request: Request,
) -> Response {
    let at = shared.log().now();
    let (parts, body) = request.into_parts();
    let route = Route::of(&parts.method, parts.uri.path(), parts.uri.query());
    let allowed = has_key(&shared, &parts.headers);
    match (&route, allowed) {
        // These ask about the log, so they are not part of it.
        (Route::Release { gate }, true) => {
            shared.release(gate);
            return plain(204, "text/plain", String::new());
        }
        (Route::Requests, true) => {
            let entries = shared.log().entries().iter().map(entry_json).collect();
            return json(200, &Value::Array(entries));
        }
        (Route::Violations, true) => {
            let violations = shared.log().violations();
            let lines = violations.iter().map(|violation| Value::String(violation.to_string()));
            return json(200, &Value::Array(lines.collect()));
        }
        (
            Route::Create
            | Route::Retrieve { .. }
            | Route::Cancel { .. }
            | Route::Release { .. }
            | Route::Requests
            | Route::Violations
            | Route::Unknown,
            _,
        ) => {}
    }
    let bytes = axum::body::to_bytes(body, limits::BODY_BYTES_MAX).await;
    let body_bytes = bytes.as_ref().map_or(0, Bytes::len);
    let (body, unreadable) = match bytes {
        Ok(bytes) => read_body(&bytes),
        Err(error) => (RequestBody::Empty, Some(error.to_string())),
    };
    let arrival = Arrival {
        at,
        method: parts.method.to_string(),
        path: parts.uri.path_and_query().map_or_else(String::new, ToString::to_string),
        headers: shown_headers(&parts.headers),
        body: body.clone(),
        body_bytes,
    };
    let order = match shared.log().arrived(arrival) {
        Ok(order) => order,
        Err(full) => return violation_answer(&full),
    };
    let call = Call { shared, order, connection };
    if !allowed {
        return call.reply(&HttpReply::unauthorized());
    }
    match route {
        Route::Create => call.create(body, unreadable).await,
        Route::Retrieve { id, stream } => call.retrieve(id, stream),
        Route::Cancel { id } => call.cancel(id),
        Route::Release { .. } | Route::Requests | Route::Violations | Route::Unknown => {
            let path = parts.uri.path();
            call.reply(&HttpReply::error(
                404,
                "simulate_unknown_path",
                format!(
                    "nothing is served at {} {path}: this server has POST /v1/responses, GET /v1/responses/ID and \
                     POST /v1/responses/ID/cancel",
                    parts.method
                ),
            ))
        }
    }
}

fn has_key(shared: &Shared, headers: &HeaderMap) -> bool {
    let Some(key) = &shared.script().api_key else {
        return true;
    };
    let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    given.and_then(|value| value.strip_prefix("Bearer ")) == Some(key.0.as_str())
}

/// The body for the log, and why it is no JSON if it is none.
fn read_body(bytes: &[u8]) -> (RequestBody, Option<String>) {
    if bytes.is_empty() {
        return (RequestBody::Empty, Some("it is empty".to_owned()));
    }
    match serde_json::from_slice(bytes) {
        Ok(value) => (RequestBody::Json(Arc::new(value)), None),
        Err(error) => {
            let text = String::from_utf8_lossy(bytes).into_owned();
            (RequestBody::Text(text), Some(error.to_string()))
        }
    }
}

/// One logged request on its way to an answer.
struct Call {
    shared: Arc<Shared>,
    order: u64,
    connection: Connection,
}

impl Call {
    async fn create(self, body: RequestBody, unreadable: Option<String>) -> Response {
        let body = match (&body, unreadable) {
            (RequestBody::Json(value), _) if value.is_object() => value,
            (RequestBody::Json(_), _) => {
                return self.bad_body("it is not a JSON object".to_owned());
            }
            (RequestBody::Text(_) | RequestBody::Empty, why) => {
                return self.bad_body(why.unwrap_or_else(|| "it is not JSON".to_owned()));
            }
        };
        let taken = self.shared.book().take(self.shared.script(), body);
        let (index, step, begun) = match taken {
            Ok(chosen) => (chosen.index, chosen.step, chosen.begun),
            Err(kind) => return self.refuse(kind),
        };
        let answering = AnsweringStep { index, name: step.name.clone() };
        let id = begun.as_ref().map(|begun| begun.id.clone());
        self.shared.log().answered(self.order, answering, id);
        match (&step.reply, begun) {
            (Reply::Answer(answer), Some(begun)) => {
                let delivery = if RequestView::new(body).wants_stream() { Delivery::Stream } else { Delivery::Whole };
                let mut player = Player::new(self.shared.clone(), self.order, delivery, answer, begun);
                match delivery {
                    Delivery::Stream => self.stream(player, &answer.framing.content_type),
                    Delivery::Whole => match player.whole().await {
                        Ok(object) => self.finish(200, json(200, &object)),
                        Err(_severed) => self.sever(),
                    },
                }
            }
            (Reply::Http(reply), _) => self.reply(reply),
            // An answer always begins a response, so this is the dropped connection.
            (Reply::Drop | Reply::Answer(_), _) => {
                self.shared.log().ended(self.order, End::Dropped);
                self.sever()
            }
        }
    }

    fn stream(&self, player: Player, content_type: &str) -> Response {
        let body =
            futures::stream::unfold(
                player,
                |mut player| async move { player.next().await.map(|bytes| (bytes, player)) },
            );
        let mut response = Response::new(Body::from_stream(body));
        self.set_header(&mut response, header::CONTENT_TYPE.as_str(), content_type);
        self.set_header(&mut response, header::CACHE_CONTROL.as_str(), "no-cache");
        response
    }

    fn retrieve(&self, id: &str, stream: bool) -> Response {
        // A plain stream cannot be read on after its connection is gone.
        let found = if stream { None } else { self.shared.book().retrieve(id) };
        match found {
            Some(object) => self.finish(200, json(200, &object)),
            None => self.not_found(id),
        }
    }

    fn cancel(&self, id: &str) -> Response {
        let cancelled = self.shared.book().cancel(id);
        match cancelled {
            Cancelled::Done(object) => self.finish(200, json(200, &object)),
            Cancelled::TooLate(state) => self.reply(&HttpReply::error(
                400,
                "response_not_cancellable",
                format!("Cannot cancel a {state} response."),
            )),
            Cancelled::NotFound => self.not_found(id),
        }
    }

    fn not_found(&self, id: &str) -> Response {
        let message = format!("Response with id '{id}' not found.");
        self.reply(&HttpReply::error(404, "response_not_found", message))
    }

    fn reply(&self, reply: &HttpReply) -> Response {
        let (content_type, body) = wire::http_body(&reply.body);
        let mut response = plain(reply.status, &content_type, body);
        for (name, value) in &reply.headers {
            self.set_header(&mut response, name, value);
        }
        self.finish(reply.status, response)
    }

    fn bad_body(&self, why: String) -> Response {
        self.refuse(ViolationKind::BadBody { why })
    }

    fn refuse(&self, kind: ViolationKind) -> Response {
        let response = violation_answer(&kind);
        let status = kind.refusal().status;
        self.shared.log().violation(Some(self.order), kind);
        self.finish(status, response)
    }

    fn finish(&self, status: u16, response: Response) -> Response {
        self.shared.log().ended(self.order, End::Whole { status });
        response
    }

    /// Nothing of the returned response reaches the client: its connection is closed first.
    fn sever(&self) -> Response {
        self.connection.0.close();
        plain(500, "text/plain", String::new())
    }

    fn set_header(&self, response: &mut Response, name: &str, value: &str) {
        let pair = (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_str(value));
        match pair {
            (Ok(name), Ok(value)) => {
                response.headers_mut().insert(name, value);
            }
            (Err(_), _) | (_, Err(_)) => {
                let kind = ViolationKind::BadHeader { name: name.to_owned() };
                self.shared.log().violation(Some(self.order), kind);
            }
        }
    }
}

fn violation_answer(kind: &ViolationKind) -> Response {
    let refusal = kind.refusal();
    let body = wire::error_body(&kind.to_string(), refusal.kind, refusal.code, refusal.param);
    json(refusal.status, &body)
}

fn json(status: u16, value: &Value) -> Response {
    plain(status, "application/json", value.to_string())
}

/// A whole body. A status or a type that is none (possible only in a script built in Rust) becomes the usual one.
fn plain(status: u16, content_type: &str, body: String) -> Response {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() =
        axum::http::StatusCode::from_u16(status).unwrap_or(axum::http::StatusCode::INTERNAL_SERVER_ERROR);
    let content_type =
        HeaderValue::from_str(content_type).unwrap_or(HeaderValue::from_static("application/octet-stream"));
    response.headers_mut().insert(header::CONTENT_TYPE, content_type);
    response
}
