//! Answers as they go wrong.

use serde_json::{Value, json};
use wharf_simulate::script::{Cut, CutHow, Finish, Framing, LineEnding, Retrieved};
use wharf_simulate::{Answer, End, HttpReply, Script, Step};

use crate::client::{BodyEnd, ask, events, get, go_on, open, post, start, type_of};

#[tokio::test]
async fn an_aborted_stream_ends_after_exactly_the_scripted_events() {
    let server = start(Script::new("abort").step(Answer::new().text("a b c").abort_after(3))).await;
    let got = post(&server, &ask(json!("start"))).await;
    assert_eq!(got.types(), ["response.created", "response.in_progress", "response.output_item.added"]);
    assert_eq!(got.end, BodyEnd::Broken);
    assert_eq!(server.wait_for_end(1).await.map(|entry| entry.end), Ok(End::Cut { events: 3 }));
}

#[tokio::test]
async fn a_clean_early_close_looks_like_a_proper_end() {
    let server = start(Script::new("close").step(Answer::new().text("a b c").close_after(2))).await;
    let got = post(&server, &ask(json!("start"))).await;
    assert_eq!((got.types().len(), got.end), (2, BodyEnd::Proper));
    assert_eq!(server.wait_for_end(1).await.map(|entry| entry.end), Ok(End::Cut { events: 2 }));
}

#[tokio::test]
async fn a_cut_can_fall_inside_an_event_and_one_beyond_the_end_cuts_nothing() {
    let cut = |after_events, extra_bytes| Cut { after_events, extra_bytes, how: CutHow::Clean };
    let script = Script::new("inside").step(Answer::new().cut(cut(1, 20))).step(Answer::new().cut(cut(3, 0)));
    let server = start(script).await;
    let got = post(&server, &ask(json!("start"))).await;
    assert_eq!(got.types(), ["response.created"]);
    assert!(got.text().ends_with("\n\nevent: response.in_p"), "{:?}", got.text());
    assert_eq!(post(&server, &ask(json!("start"))).await.types().len(), 3);
}

#[tokio::test]
async fn a_broken_response_is_stored_as_the_script_says() {
    for (state, status, word) in [
        (Retrieved::NotFound, 404, Value::Null),
        (Retrieved::Completed, 200, json!("completed")),
        (Retrieved::Failed, 200, json!("failed")),
        (Retrieved::InProgress, 200, json!("in_progress")),
    ] {
        let answer = Answer::new().async_function_call("call_1", "f", "{}").abort_after(1).if_broken(state);
        let server = start(Script::new("stored").step(answer).step(Answer::new())).await;
        post(&server, &ask(json!("start"))).await;
        let stored = get(&server, "/v1/responses/resp_1").await;
        assert_eq!((stored.status, stored.json()["status"].clone()), (status, word));
        // Only what was accepted can be continued.
        let expected = if state == Retrieved::Completed { 200 } else { 400 };
        assert_eq!(post(&server, &go_on("resp_1", json!([]))).await.status, expected);
    }
}

#[tokio::test]
async fn a_client_that_leaves_breaks_its_response() {
    let answer = Answer::new().text("a").wait_for("go").if_broken(Retrieved::Completed);
    let server = start(Script::new("leaves").step(answer)).await;
    let stream = open(&server, &ask(json!("start"))).await;
    server.wait_for_gate("go").await.expect("the stream comes to the gate");
    drop(stream);
    assert_eq!(server.wait_for_end(1).await.map(|entry| entry.end), Ok(End::ClientLeft { events: 8 }));
    assert_eq!(get(&server, "/v1/responses/resp_1").await.json()["status"], "completed");
}

#[tokio::test]
async fn a_hanging_socket_stays_open_after_the_terminal_event() {
    let server = start(Script::new("hang").step(Answer::new().hang())).await;
    let mut stream = open(&server, &ask(json!("start"))).await;
    stream.read_until("event: response.completed").await;
    assert_eq!(server.wait_for_end(1).await.map(|entry| entry.end), Ok(End::Streamed { events: 3 }));
    // The body is still open: only the shutdown ends it, and it ends broken.
    server.shutdown().await;
    assert_eq!(stream.finish().await.map(|got| got.end), Some(BodyEnd::Broken));
}

#[tokio::test]
async fn a_stream_that_hangs_without_terminal_event_is_in_progress_until_its_client_leaves() {
    let answer = Answer::new().text("a").finish(Finish::Nothing).hang();
    let server = start(Script::new("hang").step(answer)).await;
    let mut stream = open(&server, &ask(json!("start"))).await;
    stream.read_until("event: response.output_item.done").await;
    assert_eq!(get(&server, "/v1/responses/resp_1").await.json()["status"], "in_progress");
    drop(stream);
    assert_eq!(server.wait_for_end(1).await.map(|entry| entry.end), Ok(End::ClientLeft { events: 8 }));
    assert_eq!(get(&server, "/v1/responses/resp_1").await.status, 404);
}

#[tokio::test]
async fn a_stream_without_terminal_event_closes_properly_and_counts_as_broken() {
    let server = start(Script::new("none").step(Answer::new().finish(Finish::Nothing))).await;
    let got = post(&server, &ask(json!("start"))).await;
    assert_eq!((got.types().len(), got.end), (2, BodyEnd::Proper));
    assert_eq!(get(&server, "/v1/responses/resp_1").await.status, 404);
}

#[tokio::test]
async fn a_dropped_connection_gives_not_one_byte() {
    let script = Script::new("drop")
        .step(Step::drop_connection())
        .step(Answer::new().finish(Finish::Nothing))
        .step(Answer::new().abort_after(1));
    let server = start(script).await;
    assert!(open(&server, &ask(json!("start"))).await.finish().await.is_none());
    // An answer that is to be sent whole has no half: without an end it is dropped too.
    for _ in 0..2 {
        let whole = json!({ "model": "m", "input": "start" });
        assert!(open(&server, &whole).await.finish().await.is_none());
    }
    let ends: Vec<End> = server.requests().iter().map(|entry| entry.end).collect();
    assert_eq!(ends, [End::Dropped, End::Dropped, End::Cut { events: 1 }]);
}

#[tokio::test]
async fn http_errors_have_the_providers_form_and_their_headers() {
    let script = Script::new("http")
        .step(HttpReply::missing_output("call_x"))
        .step(HttpReply::unauthorized())
        .step(HttpReply::previous_not_found(404, "resp_0"))
        .step(HttpReply::rate_limited("1.5").header("x-should-retry", "false"))
        .step(HttpReply::server_error())
        .step(HttpReply::text(200, "text/plain", "not JSON"))
        .step(HttpReply::text(200, "text/event-stream", ""));
    let server = start(script).await;
    let mut seen = Vec::new();
    for _ in 0..5 {
        let got = post(&server, &ask(json!("start"))).await;
        let headers = ["retry-after", "x-should-retry"].map(|name| got.header(name).map(str::to_owned));
        seen.push((got.status, got.json()["error"].clone(), headers));
    }
    let error = |message: &str, kind: &str, code: Value, param: Value| json!({ "message": message, "type": kind, "param": param, "code": code });
    let request = "invalid_request_error";
    let none = [None, None];
    let expected = [
        (
            400,
            error("No tool output found for function call call_x.", request, Value::Null, json!("input")),
            none.clone(),
        ),
        (401, error("Incorrect API key provided.", request, json!("invalid_api_key"), Value::Null), none.clone()),
        (
            404,
            error(
                "Previous response with id 'resp_0' not found.",
                request,
                json!("previous_response_not_found"),
                json!("previous_response_id"),
            ),
            none.clone(),
        ),
        (
            429,
            error("Rate limit reached.", request, json!("rate_limit_exceeded"), Value::Null),
            [Some("1.5".to_owned()), Some("false".to_owned())],
        ),
        (
            500,
            error(
                "The server had an error while processing the request.",
                "server_error",
                json!("server_error"),
                Value::Null,
            ),
            none,
        ),
    ];
    assert_eq!(seen, expected);
    let text = post(&server, &ask(json!("start"))).await;
    assert_eq!((text.status, text.header("content-type"), text.text().as_str()), (200, Some("text/plain"), "not JSON"));
    let empty = post(&server, &ask(json!("start"))).await;
    assert_eq!(
        (empty.status, empty.header("content-type"), empty.text().as_str()),
        (200, Some("text/event-stream"), "")
    );
    assert_eq!(server.violations(), vec![]);
}

#[tokio::test]
async fn every_framing_carries_the_same_events() {
    let usual = Framing::default();
    let framings = [
        usual.clone(),
        Framing { line_ending: LineEnding::CrLf, chunk_bytes: Some(7), done: true, ..usual.clone() },
        Framing { bom: true, event_lines: false, comments: true, chunk_bytes: Some(1), ..usual.clone() },
        Framing { line_ending: LineEnding::Cr, ..usual },
    ];
    let script = framings.iter().fold(Script::new("framing"), |script, framing| {
        script.step(Answer::new().text("ÿ €").framing(framing.clone()))
    });
    let server = start(script).await;
    let mut bodies = Vec::new();
    for framing in &framings {
        let got = post(&server, &ask(json!("start"))).await;
        if let Some(size) = framing.chunk_bytes {
            assert!(got.chunks.iter().all(|chunk| *chunk <= size), "{:?}", got.chunks);
        }
        bodies.push(got.text());
    }
    let types = |body: &str| events(body).iter().map(type_of).collect::<Vec<_>>();
    let expected = types(&bodies[0]);
    assert_eq!(expected.len(), 10);
    assert_eq!(types(&bodies[1]), expected);
    assert!(bodies[1].ends_with("\r\n\r\ndata: [DONE]\r\n\r\n"));
    assert_eq!(types(&bodies[2]), expected);
    assert!(bodies[2].starts_with("\u{feff}: keep-alive\ndata: {"));
    assert!(!bodies[2].contains("event:"));
    assert!(!bodies[3].contains('\n'));
    assert_eq!(types(&bodies[3].replace('\r', "\n")), expected);
}
