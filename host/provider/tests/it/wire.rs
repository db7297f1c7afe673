//! What is sent, and what the answers become, over HTTP.

use std::sync::Arc;

use futures::StreamExt;
use serde_json::{Value, json};
use wharf_core::model::{
    Completion, Delivery, Fate, FinishedCall, Item, Outcome, Request, Retrieved, Role, StreamEvent,
};
use wharf_core::{Call, ErrorKind};
use wharf_provider::{Driver, Drivers, EventStream, ProviderConfig, Secret, collect};
use wiremock::matchers::{method, path};
use wiremock::{Mock, MockServer, ResponseTemplate};

pub(crate) fn connect(config: ProviderConfig) -> Arc<dyn Driver> {
    Drivers::builtin().connect(config).unwrap()
}

pub(crate) fn config(base: &str) -> ProviderConfig {
    ProviderConfig::new("openai", "openai-responses").at(base).key(Secret::new("sk-very-secret").unwrap())
}

pub(crate) fn ask(text: &str) -> Request {
    Request {
        model: "gpt-6-astra".into(),
        messages: vec![Item::Message { role: Role::User, text: text.into() }],
        stream: true,
        ..Request::default()
    }
}

fn response() -> Value {
    json!({"id": "resp_1", "object": "response", "status": "completed", "model": "m-1",
        "output": [
            {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}]},
            {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
                "content": [{"type": "output_text", "text": "Hello", "annotations": []}]},
            {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "f", "arguments": "{}", "status": "completed"},
            {"type": "custom_tool_call", "id": "ct_1", "call_id": "call_2", "name": "t", "input": "a\nb", "async": true, "status": "completed"},
        ],
        "usage": {"input_tokens": 10, "input_tokens_details": {"cached_tokens": 4}, "output_tokens": 6,
            "output_tokens_details": {"reasoning_tokens": 2}, "total_tokens": 16}})
}

/// The response above as a stream.
pub(crate) fn stream_text() -> String {
    let response = response();
    let mut text = String::from(
        "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"id\":\"resp_1\"}}\n\n",
    );
    let delta = json!({"type": "response.output_text.delta", "item_id": "msg_1", "output_index": 1, "content_index": 0, "delta": "Hel"});
    text.push_str(&format!(": keep-alive\n\ndata: {delta}\n\n"));
    for (n, item) in response["output"].as_array().unwrap().iter().enumerate() {
        let done = json!({"type": "response.output_item.done", "output_index": n, "item": item});
        text.push_str(&format!("data: {done}\n\n"));
    }
    let end = json!({"type": "response.completed", "response": response});
    text.push_str(&format!("event: response.completed\ndata: {end}\n\ndata: [DONE]\n\n"));
    text
}

fn calls() -> [FinishedCall; 2] {
    [Call::function("call_1", "f", "{}").into(), Call::custom("call_2", "t", "a\nb").asynchronous().into()]
}

fn completion() -> Completion {
    let response = response();
    Completion {
        id: Some("resp_1".into()),
        outcome: Outcome::Completed,
        finish_reason: Some("tool_calls".into()),
        usage: Some(wharf_core::model::Usage {
            fresh_input: 6,
            cache_read: 4,
            cache_write: 0,
            visible_output: 4,
            reasoning: 2,
            total: 16,
            raw: Some(response["usage"].clone()),
        }),
        items: response["output"].as_array().unwrap().clone(),
        text: "Hello".into(),
        refusal: None,
        model: Some("m-1".into()),
    }
}

async fn server(answer: ResponseTemplate) -> MockServer {
    let server = MockServer::start().await;
    Mock::given(method("POST")).and(path("/v1/responses")).respond_with(answer).mount(&server).await;
    server
}

fn sse(text: &str) -> ResponseTemplate {
    ResponseTemplate::new(200).set_body_raw(text.to_owned(), "text/event-stream")
}

pub(crate) async fn events(mut stream: EventStream) -> Vec<StreamEvent> {
    let mut all = Vec::new();
    while let Some(event) = stream.next().await {
        all.push(event.unwrap());
    }
    all
}

#[tokio::test]
async fn request_is_a_json_post_with_a_bearer_key() {
    // covers O1, O13, O17, Z3
    for slash in ["", "/"] {
        let server = server(sse(&stream_text())).await;
        let mut config = config(&format!("{}/v1{slash}", server.uri()));
        config.headers.insert("X-Team".into(), Secret::new("blue-team").unwrap());
        let driver = connect(config);
        let mut asked = ask("start");
        asked.instructions = "Be brief.".into();
        asked.options.headers.insert("x-trace".into(), "t1".into());
        let body = driver.body(&asked).unwrap();
        let stream = driver.open(asked).await.unwrap();
        let events = events(stream).await;
        let [call, custom] = calls();
        assert_eq!(
            events,
            [
                StreamEvent::Started { id: "resp_1".into() },
                StreamEvent::Text("Hel".into()),
                StreamEvent::Reasoning("hm".into()),
                StreamEvent::Opaque(response()["output"][0].clone()),
                StreamEvent::Text("lo".into()),
                StreamEvent::SyncCalls(vec![call]),
                StreamEvent::Call(custom),
                StreamEvent::Completed(completion()),
            ]
        );
        let requests = server.received_requests().await.unwrap();
        assert_eq!(requests.len(), 1);
        let sent = &requests[0];
        assert_eq!(sent.url.path(), "/v1/responses");
        let header = |name: &str| sent.headers.get(name).unwrap().to_str().unwrap().to_owned();
        assert_eq!(header("authorization"), "Bearer sk-very-secret");
        assert_eq!(header("content-type"), "application/json");
        assert_eq!(header("accept"), "text/event-stream");
        assert_eq!((header("x-team"), header("x-trace")), ("blue-team".into(), "t1".into()));
        assert_eq!(serde_json::from_slice::<Value>(&sent.body).unwrap(), body);
        assert_eq!(
            body,
            json!({"model": "gpt-6-astra", "instructions": "Be brief.", "stream": true,
                "input": [{"type": "message", "role": "user", "content": "start"}]})
        );
    }
}

#[tokio::test]
async fn a_server_without_a_key_gets_no_authorisation() {
    let server = server(sse(&stream_text())).await;
    let mut config = config(&format!("{}/v1", server.uri()));
    config.api_key = None;
    collect(connect(config).open(ask("start")).await.unwrap()).await.unwrap();
    assert!(!server.received_requests().await.unwrap()[0].headers.contains_key("authorization"));
}

#[tokio::test]
async fn streamed_whole_and_retrieved_answers_have_one_outcome_whatever_their_type() {
    // covers P20, P21, O19
    let json_text = response().to_string();
    let types =
        ["text/event-stream", "application/json", "text/html; charset=utf-8", "application/octet-stream", "no type"];
    for (text, stream) in [(stream_text(), true), (stream_text(), false), (json_text.clone(), false), (json_text, true)]
    {
        for kind in types {
            let server = server(ResponseTemplate::new(200).set_body_raw(text.clone(), kind)).await;
            let mut asked = ask("start");
            asked.stream = stream;
            let driver = connect(config(&format!("{}/v1", server.uri())));
            let answer = collect(driver.open(asked).await.unwrap()).await.unwrap();
            assert_eq!(answer.completion, completion());
            assert_eq!(answer.started, Some("resp_1".into()));
            let [call, custom] = calls();
            assert!(answer.calls == [call.clone(), custom.clone()] || answer.calls == [custom, call]);
        }
    }
    let server = MockServer::start().await;
    let whole = ResponseTemplate::new(200).set_body_json(response());
    Mock::given(method("GET")).and(path("/v1/responses/resp_1")).respond_with(whole).mount(&server).await;
    let retrieved = connect(config(&format!("{}/v1/", server.uri()))).retrieve(&"resp_1".into()).await.unwrap();
    assert_eq!(retrieved, Retrieved::Ended { completion: completion(), calls: calls().into() });
}

#[tokio::test]
async fn retrieved_statuses_have_one_meaning_each() {
    // covers O19, G15, G20
    let ended = |outcome: Outcome, reason: &str| Retrieved::Ended {
        completion: Completion {
            id: Some("resp_1".into()),
            outcome,
            finish_reason: Some(reason.into()),
            usage: None,
            items: vec![],
            text: String::new(),
            refusal: None,
            model: None,
        },
        calls: vec![],
    };
    let failed = Outcome::Failed { code: "server_error".into(), message: "down".into() };
    for (status, answer, expected) in [
        (200, json!({"id": "resp_1", "status": "completed", "output": []}), ended(Outcome::Completed, "stop")),
        (
            200,
            json!({"id": "resp_1", "status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}),
            ended(Outcome::Incomplete { reason: "max_output_tokens".into() }, "length"),
        ),
        (
            200,
            json!({"id": "resp_1", "status": "failed", "error": {"code": "server_error", "message": "down"}}),
            ended(failed, "error"),
        ),
        (200, json!({"id": "resp_1", "status": "cancelled"}), ended(Outcome::Cancelled, "cancelled")),
        (200, json!({"id": "resp_1", "status": "in_progress"}), Retrieved::InProgress),
        (200, json!({"id": "resp_1", "status": "queued"}), Retrieved::InProgress),
        (404, json!({"error": {"code": "not_found", "message": "no such response"}}), Retrieved::NotFound),
    ] {
        let server = MockServer::start().await;
        let whole = ResponseTemplate::new(status).set_body_json(&answer);
        Mock::given(method("GET")).and(path("/v1/responses/resp_1")).respond_with(whole.clone()).mount(&server).await;
        Mock::given(method("POST")).and(path("/v1/responses/resp_1/cancel")).respond_with(whole).mount(&server).await;
        let driver = connect(config(&format!("{}/v1", server.uri())));
        assert_eq!(driver.retrieve(&"resp_1".into()).await.unwrap(), expected, "{answer}");
        assert_eq!(driver.cancel(&"resp_1".into()).await.unwrap(), expected, "{answer}");
    }
}

#[tokio::test]
async fn a_question_that_fails_is_an_error_and_no_answer() {
    // covers G15
    for (status, text) in [(500, "{}"), (401, "{}"), (200, "not json"), (200, "{}"), (200, "")] {
        let server = MockServer::start().await;
        let whole = ResponseTemplate::new(status).set_body_raw(text, "application/json");
        Mock::given(method("GET")).respond_with(whole).mount(&server).await;
        let error = connect(config(&server.uri())).retrieve(&"resp_1".into()).await.unwrap_err();
        assert_eq!(error.error.kind, ErrorKind::Provider, "{status} {text}");
    }
}

#[tokio::test]
async fn an_id_is_one_segment_of_the_address() {
    let server = MockServer::start().await;
    let driver = connect(config(&format!("{}/v1", server.uri())));
    assert_eq!(driver.retrieve(&"../../x?y#z".into()).await, Ok(Retrieved::NotFound));
    assert_eq!(server.received_requests().await.unwrap()[0].url.path(), "/v1/responses/..%2F..%2Fx%3Fy%23z");
}

fn refused_continuation(async_open: bool, is_async: bool) -> Request {
    let mut call = Call::function("call_1", "f", "{}");
    call.is_async = is_async;
    let delivery = Delivery {
        previous_response_id: "resp_0".into(),
        call_ids: vec!["call_1".into()],
        input: vec![call.output_item("done")],
        after: vec![],
    };
    let mut asked = ask("start");
    asked.messages.push(Item::Call(call));
    Request { delivery: Some(delivery), async_open, ..asked }
}

async fn server_that_misses_an_output() -> MockServer {
    let server = MockServer::start().await;
    let refusal = json!({"error": {"message": "No tool output found for function call call_7.", "type": "invalid_request_error",
        "param": "input", "code": null}});
    let first = ResponseTemplate::new(400).set_body_json(refusal);
    Mock::given(method("POST")).respond_with(first).up_to_n_times(1).mount(&server).await;
    Mock::given(method("POST")).respond_with(sse(&stream_text())).mount(&server).await;
    server
}

#[tokio::test]
async fn refused_continuation_with_something_async_is_one_request() {
    // covers O9
    for (open, delivered) in [(true, false), (false, true), (true, true)] {
        let server = server_that_misses_an_output().await;
        let driver = connect(config(&server.uri()));
        let error = driver.open(refused_continuation(open, delivered)).await.err().unwrap();
        assert_eq!((error.fate, error.status), (Fate::Refused, Some(400)));
        assert_eq!(
            error.error.message,
            r#"provider "openai" answered 400 (invalid_request_error): No tool output found for function call call_7."#
        );
        assert_eq!(server.received_requests().await.unwrap().len(), 1);
    }
}

#[tokio::test]
async fn refused_continuation_with_nothing_async_is_tried_once_more_without_state() {
    // covers O10
    let server = server_that_misses_an_output().await;
    let driver = connect(config(&server.uri()));
    let answer = collect(driver.open(refused_continuation(false, false)).await.unwrap()).await.unwrap();
    assert_eq!(answer.completion, completion());
    let bodies: Vec<Value> = server
        .received_requests()
        .await
        .unwrap()
        .iter()
        .map(|request| serde_json::from_slice(&request.body).unwrap())
        .collect();
    let output = json!({"type": "function_call_output", "call_id": "call_1", "output": "done"});
    assert_eq!(
        bodies,
        [
            json!({"model": "gpt-6-astra", "previous_response_id": "resp_0", "input": [output], "stream": true}),
            json!({"model": "gpt-6-astra", "stream": true, "input": [
                {"type": "message", "role": "user", "content": "start"},
                {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{}"},
                output,
            ]}),
        ]
    );
}

#[tokio::test]
async fn a_second_refusal_is_final_and_another_refusal_is_not_retried() {
    // covers O10, V4
    let missing = json!({"error": {"message": "No tool output found for function call call_7."}});
    for (status, answer, requests) in [
        (400, missing.clone(), 2),
        (400, json!({"error": {"message": "bad"}}), 1),
        (401, missing.clone(), 1),
        (403, missing.clone(), 1),
        (404, missing.clone(), 1),
        (422, missing.clone(), 1),
        (429, missing.clone(), 1),
        (500, missing, 1),
    ] {
        let server = MockServer::start().await;
        let refusal = ResponseTemplate::new(status).set_body_json(answer);
        Mock::given(method("POST")).respond_with(refusal).mount(&server).await;
        let error = connect(config(&server.uri())).open(refused_continuation(false, false)).await.err().unwrap();
        assert_eq!(error.status, Some(status));
        assert_eq!(server.received_requests().await.unwrap().len(), requests, "{status}");
    }
}

#[tokio::test]
async fn config_errors_come_before_anything_is_sent() {
    // covers O5, O7, O8, O15
    let server = MockServer::start().await;
    let driver = connect(config(&server.uri()));
    let continued = refused_continuation(false, false);
    let requests = [
        Request { compacted: true, ..continued.clone() },
        Request { previous: Some("other".into()), ..continued.clone() },
        Request { model: "unknown".into(), messages: vec![], ..continued.clone() },
        Request { options: wharf_core::model::Options { temperature: Some(1.0), ..Default::default() }, ..ask("x") },
    ];
    for request in requests {
        let expected = driver.check(&request).unwrap_err();
        assert_eq!(expected.kind, ErrorKind::Config);
        assert_eq!(driver.body(&request).unwrap_err(), expected);
        let error = driver.open(request).await.err().unwrap();
        assert_eq!((error.fate, error.error), (Fate::NotSent, expected));
    }
    assert_eq!(server.received_requests().await.unwrap().len(), 0);
}

#[tokio::test]
async fn refusals_are_read_before_anything_is_taken_for_a_stream() {
    // covers G13, G14
    // PROV-7
    for (status, fate) in [(400, Fate::Refused), (429, Fate::Refused), (408, Fate::Unknown), (503, Fate::Unknown)] {
        let body = json!({"error": {"message": "no", "code": "some_code"}}).to_string();
        let answer = ResponseTemplate::new(status)
            .set_body_raw(body, "text/event-stream")
            .insert_header("x-request-id", "req_1");
        let error = connect(config(&format!("{}/v1", server(answer).await.uri()))).open(ask("x")).await.err().unwrap();
        assert_eq!((error.fate, error.status, error.code.as_str()), (fate, Some(status), "some_code"));
        assert_eq!(
            error.error.message,
            format!(r#"provider "openai" answered {status} (some_code): no (request req_1)"#)
        );
        assert!(error.error.hint.is_some() || status == 400 || status == 408);
    }
}

#[tokio::test]
async fn an_error_after_a_200_is_a_failed_response() {
    // covers P12
    let body = json!({"error": {"message": "overloaded sk-very-secret", "code": "slow_down"}}).to_string();
    for text in [body.clone(), format!("event: error\ndata: {body}\n\n"), format!("data: {body}\n\n")] {
        // Held until the answer is read: a server that is let go answers for the next test.
        let server = server(sse(&text)).await;
        let driver = connect(config(&format!("{}/v1", server.uri())));
        let error = collect(driver.open(ask("x")).await.unwrap()).await.unwrap_err();
        assert_eq!((error.fate, error.code.as_str()), (Fate::Refused, "slow_down"));
        assert_eq!(error.error.message, "the response failed at the provider: overloaded [redacted]");
    }
}

#[tokio::test]
async fn redirects_are_refusals_and_are_not_followed() {
    let other = server(sse(&stream_text())).await;
    let answer = ResponseTemplate::new(307).insert_header("location", format!("{}/v1/responses", other.uri()));
    let error = connect(config(&format!("{}/v1", server(answer).await.uri()))).open(ask("x")).await.err().unwrap();
    assert_eq!((error.fate, error.status), (Fate::Refused, Some(307)));
    assert_eq!(other.received_requests().await.unwrap().len(), 0);
}

#[tokio::test]
async fn server_is_reached_directly() {
    // Run again by the next test, with a proxy in its environment.
    let server = server(sse(&stream_text())).await;
    collect(connect(config(&format!("{}/v1", server.uri()))).open(ask("x")).await.unwrap()).await.unwrap();
}

#[test]
fn no_proxy_is_taken_from_the_environment() {
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    for name in ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY", "all_proxy"] {
        child.env(name, "http://127.0.0.1:1");
    }
    let output = child.args(["--exact", "wire::server_is_reached_directly"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}
