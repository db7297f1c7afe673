//! Responses as they are meant: streamed, whole, retrieved, cancelled.

use serde_json::{Value, json};
use wharf_simulate::script::{Chunk, Item, Omitted, ReasoningItem, Retrieved, TextItem, Usage};
use wharf_simulate::{Answer, End, Script};

use crate::client::{BodyEnd, ask, get, go_on, open, post, post_path, start, type_of};

fn response(id: &str, status: &str) -> Value {
    json!({
        "id": id,
        "object": "response",
        "created_at": 1_800_000_001_u64,
        "status": status,
        "error": null,
        "incomplete_details": null,
        "instructions": null,
        "max_output_tokens": null,
        "metadata": {},
        "model": "m",
        "output": [],
        "parallel_tool_calls": true,
        "previous_response_id": null,
        "reasoning": { "effort": null, "summary": null },
        "store": true,
        "tool_choice": "auto",
        "tools": [],
        "truncation": "disabled",
        "usage": null,
    })
}

#[tokio::test]
async fn a_text_is_streamed_event_by_event_as_the_protocol_says() {
    let text = TextItem::new("Hi you").phase("final_answer");
    let usage = Usage { input: 10, cached: 4, cache_write: 1, output: 5, reasoning: 2 };
    let server = start(Script::new("text").step(Answer::new().item(text).usage(usage))).await;
    let got = post(&server, &ask(json!("start"))).await;
    let item = |status: &str, content: Value| {
        json!({ "id": "msg_1_0", "type": "message", "status": status, "role": "assistant",
            "content": content, "phase": "final_answer" })
    };
    let part = |text: &str| json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": [] });
    let done = item("completed", json!([part("Hi you")]));
    let mut completed = response("resp_1", "completed");
    completed["output"] = json!([done]);
    completed["usage"] = json!({
        "input_tokens": 10,
        "input_tokens_details": { "cached_tokens": 4, "cache_write_tokens": 1 },
        "output_tokens": 5,
        "output_tokens_details": { "reasoning_tokens": 2 },
        "total_tokens": 15,
    });
    let expected = vec![
        json!({ "type": "response.created", "response": response("resp_1", "in_progress"), "sequence_number": 0 }),
        json!({ "type": "response.in_progress", "response": response("resp_1", "in_progress"), "sequence_number": 1 }),
        json!({ "type": "response.output_item.added", "output_index": 0, "item": item("in_progress", json!([])),
            "sequence_number": 2 }),
        json!({ "type": "response.content_part.added", "item_id": "msg_1_0", "output_index": 0, "content_index": 0,
            "part": part(""), "sequence_number": 3 }),
        json!({ "type": "response.output_text.delta", "item_id": "msg_1_0", "output_index": 0, "content_index": 0,
            "delta": "Hi ", "logprobs": [], "sequence_number": 4 }),
        json!({ "type": "response.output_text.delta", "item_id": "msg_1_0", "output_index": 0, "content_index": 0,
            "delta": "you", "logprobs": [], "sequence_number": 5 }),
        json!({ "type": "response.output_text.done", "item_id": "msg_1_0", "output_index": 0, "content_index": 0,
            "text": "Hi you", "logprobs": [], "sequence_number": 6 }),
        json!({ "type": "response.content_part.done", "item_id": "msg_1_0", "output_index": 0, "content_index": 0,
            "part": part("Hi you"), "sequence_number": 7 }),
        json!({ "type": "response.output_item.done", "output_index": 0, "item": done, "sequence_number": 8 }),
        json!({ "type": "response.completed", "response": completed, "sequence_number": 9 }),
    ];
    assert_eq!(got.events(), expected);
    assert_eq!((got.status, got.end), (200, BodyEnd::Proper));
    assert_eq!(got.header("content-type"), Some("text/event-stream; charset=utf-8"));
    assert!(got.text().starts_with("event: response.created\ndata: {"));
    // An event is a chunk, so a client sees each as soon as it is sent.
    assert_eq!(got.chunks.len(), expected.len());
    assert_eq!(server.wait_for_end(1).await.map(|entry| entry.end), Ok(End::Streamed { events: 10 }));
}

#[tokio::test]
async fn each_kind_of_item_has_its_events_and_its_place_in_the_output() {
    let other = json!({ "type": "web_search_call", "id": "ws_1", "status": "completed" });
    let answer = Answer::new()
        .item(ReasoningItem {
            summary: "Thinking".to_owned(),
            pace: Default::default(),
            encrypted: Some("opaque".to_owned()),
        })
        .refusal("No.")
        .async_custom_call("call_1", "sql", "select\n1")
        .item(Item::Other(other.clone()));
    let server = start(Script::new("items").step(answer)).await;
    let got = post(&server, &ask(json!("start"))).await;
    let types = got.types();
    let expected = [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.reasoning_summary_part.added",
        "response.reasoning_summary_text.delta",
        "response.reasoning_summary_text.done",
        "response.reasoning_summary_part.done",
        "response.output_item.done",
        "response.output_item.added",
        "response.content_part.added",
        "response.refusal.delta",
        "response.refusal.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.output_item.added",
        "response.custom_tool_call_input.delta",
        "response.custom_tool_call_input.done",
        "response.output_item.done",
        "response.output_item.added",
        "response.output_item.done",
        "response.completed",
    ];
    assert_eq!(types, expected);
    let output = json!([
        { "id": "rs_1_0", "type": "reasoning", "summary": [{ "type": "summary_text", "text": "Thinking" }],
            "encrypted_content": "opaque" },
        { "id": "msg_1_1", "type": "message", "status": "completed", "role": "assistant",
            "content": [{ "type": "refusal", "refusal": "No." }] },
        { "id": "ctc_1_2", "type": "custom_tool_call", "status": "completed", "call_id": "call_1", "name": "sql",
            "input": "select\n1", "async": true },
        other,
    ]);
    assert_eq!(got.events().last().map(|event| event["response"]["output"].clone()), Some(output));
}

#[tokio::test]
async fn a_request_without_stream_gets_the_same_outcome_whole() {
    let answer = || Answer::new().text("Hi").async_function_call("call_1", "f", "{}").usage(Usage::new(1, 2));
    let script = Script::new("whole").step(answer()).step(answer().failed("server_error", "Broke."));
    let streamed = start(script.clone()).await;
    let whole = start(script).await;
    for status in ["completed", "failed"] {
        let stream = post(&streamed, &ask(json!("start"))).await;
        let got = post(&whole, &json!({ "model": "m", "input": "start" })).await;
        let last = stream.events().last().map(|event| event["response"].clone());
        assert_eq!(Some(got.json()), last);
        assert_eq!(got.json()["status"], status);
        assert_eq!(got.header("content-type"), Some("application/json"));
    }
    assert_eq!(whole.wait_for_end(1).await.map(|entry| entry.end), Ok(End::Whole { status: 200 }));
}

#[tokio::test]
async fn each_end_of_a_response_has_its_terminal_event_and_its_retrieved_state() {
    let error = ("rate_limit_exceeded", "Slow down.");
    let script =
        Script::new("ends")
            .step(Answer::new().incomplete("content_filter"))
            .step(Answer::new().failed(error.0, error.1))
            .step(Answer::new().finish(wharf_simulate::script::Finish::Cancelled))
            .step(Answer::new().finish(wharf_simulate::script::Finish::Error {
                code: error.0.to_owned(),
                message: error.1.to_owned(),
            }));
    let server = start(script).await;
    let mut seen = Vec::new();
    for n in 1..=4 {
        let last = post(&server, &ask(json!("start"))).await.events().last().cloned().unwrap_or_default();
        let stored = get(&server, &format!("/v1/responses/resp_{n}")).await.json();
        let facts = |response: &Value| {
            [&response["status"], &response["incomplete_details"], &response["error"]].map(Value::clone)
        };
        seen.push((type_of(&last), facts(&stored)));
        if n < 4 {
            assert_eq!(last["response"], stored);
        } else {
            assert_eq!(
                last,
                json!({ "type": "error", "code": error.0, "message": error.1, "param": null, "sequence_number": 2 })
            );
        }
    }
    let object = json!({ "code": error.0, "message": error.1 });
    let expected = [
        ("response.incomplete", [json!("incomplete"), json!({ "reason": "content_filter" }), Value::Null]),
        ("response.failed", [json!("failed"), Value::Null, object.clone()]),
        ("response.cancelled", [json!("cancelled"), Value::Null, Value::Null]),
        ("error", [json!("failed"), Value::Null, object]),
    ];
    assert_eq!(seen, expected.map(|(kind, facts)| (kind.to_owned(), facts)));
}

#[tokio::test]
async fn a_response_is_retrieved_in_progress_while_it_streams_and_completed_after() {
    let server = start(Script::new("get").step(Answer::new().text("a").wait_for("go").text("b"))).await;
    let stream = open(&server, &ask(json!("start"))).await;
    server.wait_for_gate("go").await.expect("the stream comes to the gate");
    let during = get(&server, "/v1/responses/resp_1").await.json();
    assert_eq!(during, response("resp_1", "in_progress"));
    server.release("go");
    let last = stream.finish().await.and_then(|got| got.events().last().cloned()).unwrap_or_default();
    assert_eq!(get(&server, "/v1/responses/resp_1").await.json(), last["response"]);
    let read_on = get(&server, "/v1/responses/resp_1?stream=true&starting_after=1").await;
    assert_eq!(read_on.status, 404);
    let unknown = get(&server, "/v1/responses/resp_9").await.error();
    assert_eq!(unknown, (404, json!("response_not_found"), "Response with id 'resp_9' not found.".to_owned()));
}

#[tokio::test]
async fn retrieval_says_what_the_script_wants_and_repeats_the_last() {
    let told = [Retrieved::Queued, Retrieved::InProgress, Retrieved::NotFound, Retrieved::Failed];
    let server = start(Script::new("told").step(Answer::new().text("a").retrieve(told))).await;
    post(&server, &ask(json!("start"))).await;
    let mut seen = Vec::new();
    for _ in 0..5 {
        let got = get(&server, "/v1/responses/resp_1").await;
        seen.push((got.status, got.json()["status"].clone()));
    }
    let word = |word: &str| (200, json!(word));
    let expected = [word("queued"), word("in_progress"), (404, Value::Null), word("failed"), word("failed")];
    assert_eq!(seen, expected);
}

#[tokio::test]
async fn a_cancel_ends_the_stream_and_repeating_it_is_safe() {
    let server = start(Script::new("cancel").step(Answer::new().wait_for("never")).step(Answer::new())).await;
    let stream = open(&server, &ask(json!("start"))).await;
    server.wait_for_gate("never").await.expect("the stream comes to the gate");
    let first = post_path(&server, "/v1/responses/resp_1/cancel").await;
    let mut cancelled = response("resp_1", "cancelled");
    cancelled["usage"] = json!({
        "input_tokens": 0,
        "input_tokens_details": { "cached_tokens": 0, "cache_write_tokens": 0 },
        "output_tokens": 0,
        "output_tokens_details": { "reasoning_tokens": 0 },
        "total_tokens": 0,
    });
    assert_eq!((first.status, first.json()), (200, cancelled.clone()));
    let got = stream.finish().await.expect("an answer");
    let expected = json!({ "type": "response.cancelled", "response": cancelled, "sequence_number": 2 });
    assert_eq!(got.events().last(), Some(&expected));
    let again = post_path(&server, "/v1/responses/resp_1/cancel").await;
    assert_eq!(again.json(), cancelled);
    // The deny twins: a response that is over, and one that never was.
    post(&server, &ask(json!("start"))).await;
    let late = post_path(&server, "/v1/responses/resp_2/cancel").await.error();
    let refused = (400, json!("response_not_cancellable"), "Cannot cancel a completed response.".to_owned());
    assert_eq!(late, refused);
    assert_eq!(post_path(&server, "/v1/responses/resp_9/cancel").await.status, 404);
}

#[tokio::test]
async fn what_the_script_omits_is_absent() {
    let omitted = [
        Omitted::Created,
        Omitted::InProgress,
        Omitted::SequenceNumbers,
        Omitted::Deltas,
        Omitted::Added,
        Omitted::TerminalOutput,
    ];
    let bare = omitted.into_iter().fold(Answer::new().text("Hi you").no_usage(), Answer::omit);
    let server = start(Script::new("bare").step(bare)).await;
    let got = post(&server, &ask(json!("start"))).await;
    let item = json!({ "id": "msg_1_0", "type": "message", "status": "completed", "role": "assistant",
        "content": [{ "type": "output_text", "text": "Hi you", "annotations": [], "logprobs": [] }] });
    let expected = [
        json!({ "type": "response.output_item.done", "output_index": 0, "item": item }),
        json!({ "type": "response.completed", "response": response("resp_1", "completed") }),
    ];
    assert_eq!(got.events(), expected);
    let stored = get(&server, "/v1/responses/resp_1").await.json();
    assert_eq!(stored["output"], json!([item]));
}

#[tokio::test]
async fn raw_events_count_like_scripted_ones() {
    let item = json!({ "type": "function_call", "call_id": "call_1", "name": "f", "arguments": "" });
    let raw = json!({ "type": "response.output_item.done", "item": item, "sequence_number": 77 });
    let terminal = json!({ "type": "response.done", "response": { "id": "resp_other" } });
    let answer = Answer::new()
        .raw(raw.clone())
        .raw(terminal)
        .finish(wharf_simulate::script::Finish::Nothing)
        .item(Item::Comment("late".to_owned()));
    let script = Script::new("raw").step(answer).step(Answer::new());
    let server = start(script).await;
    let got = post(&server, &ask(json!("start"))).await;
    let last = json!({ "type": "response.done", "response": { "id": "resp_other" }, "sequence_number": 3 });
    assert_eq!(got.events().get(2..), Some(&[raw, last][..]));
    assert!(got.text().ends_with("\n\n: late\n\n"));
    let refused = post(&server, &go_on("resp_1", json!([]))).await.error();
    assert_eq!(refused.2, "No tool output found for function call call_1.");
    let stored = get(&server, "/v1/responses/resp_1").await.json();
    assert_eq!((&stored["status"], &stored["output"]), (&json!("completed"), &json!([item])));
}

#[tokio::test]
async fn the_request_is_echoed_and_ids_have_the_scripted_prefix() {
    let mut answer = Answer::new().item(TextItem::new("abc").pace(Chunk::Chars(1), Default::default()));
    answer.model = Some("other-model".to_owned());
    let server = start(Script::new("echo").id_prefix("resp_demo_").step(answer)).await;
    let mut request = ask(json!("start"));
    request["instructions"] = json!("be brief");
    request["metadata"] = json!({ "a": "b" });
    request["tools"] = json!([{ "type": "function", "name": "f" }]);
    let created = post(&server, &request).await.events()[0]["response"].clone();
    let mut expected = response("resp_demo_1", "in_progress");
    for key in ["instructions", "metadata", "tools"] {
        expected[key] = request[key].clone();
    }
    expected["model"] = json!("other-model");
    assert_eq!(created, expected);
}
