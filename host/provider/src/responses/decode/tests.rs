//! Streams as data: frames in, events out, whole values compared.

use serde_json::{Value, json};
use wharf_core::Call;

use super::*;

/// Decodes frames to the end. A text is raw data, anything else is JSON.
fn decode(frames: &[Value]) -> Vec<StreamEvent> {
    let mut decoder = Decoder::new();
    let mut events = Vec::new();
    for frame in frames {
        let data = frame.as_str().map(str::to_owned).unwrap_or_else(|| frame.to_string());
        events.extend(decoder.push("message", &data).unwrap());
    }
    events
}

/// The events and how the response ended.
fn ended(frames: &[Value]) -> (Vec<StreamEvent>, Completion) {
    let mut events = decode(frames);
    match events.pop() {
        Some(StreamEvent::Completed(completion)) => (events, completion),
        other => panic!("no terminal event but {other:?}"),
    }
}

fn created() -> Value {
    json!({"type": "response.created", "response": {"id": "resp_1", "status": "in_progress"}})
}

fn completed(output: Value) -> Value {
    json!({"type": "response.completed", "response": {"id": "resp_1", "status": "completed", "output": output}})
}

fn added(index: u64, item: Value) -> Value {
    json!({"type": "response.output_item.added", "output_index": index, "item": item})
}

fn done(index: u64, item: Value) -> Value {
    json!({"type": "response.output_item.done", "output_index": index, "item": item})
}

fn arguments(name: &str, item: &str, text: &str) -> Value {
    json!({"type": format!("response.function_call_arguments.{name}"), "item_id": item, "delta": text, "arguments": text})
}

fn function(n: u64, arguments: &str) -> Value {
    json!({"type": "function_call", "id": format!("fc_{n}"), "call_id": format!("call_{n}"), "name": "look",
        "arguments": arguments, "status": "completed"})
}

fn with(mut value: Value, name: &str, member: Value) -> Value {
    value[name] = member;
    value
}

fn without(mut value: Value, name: &str) -> Value {
    value.as_object_mut().unwrap().shift_remove(name);
    value
}

fn message(text: &str) -> Value {
    json!({"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
        "content": [{"type": "output_text", "text": text, "annotations": []}]})
}

fn text_delta(text: &str) -> Value {
    json!({"type": "response.output_text.delta", "item_id": "msg_1", "output_index": 0, "content_index": 0, "delta": text})
}

fn look(n: u64, arguments: &str) -> FinishedCall {
    FinishedCall::from(Call::function(format!("call_{n}"), "look", arguments))
}

fn look_async(n: u64, arguments: &str) -> FinishedCall {
    FinishedCall::from(Call::function(format!("call_{n}"), "look", arguments).asynchronous())
}

fn started() -> StreamEvent {
    StreamEvent::Started { id: "resp_1".into() }
}

fn say(text: &str) -> StreamEvent {
    StreamEvent::Text(text.into())
}

/// A completed answer that says `text`.
fn answer(text: &str, items: Vec<Value>) -> Completion {
    Completion {
        id: Some("resp_1".into()),
        outcome: Outcome::Completed,
        finish_reason: Some("stop".into()),
        usage: None,
        items,
        text: text.into(),
        refusal: None,
        model: None,
    }
}

fn called(items: Vec<Value>) -> Completion {
    Completion { finish_reason: Some("tool_calls".into()), ..answer("", items) }
}

#[test]
fn text_streams_and_is_whole_at_the_end() {
    // covers L55
    let (events, completion) = ended(&[
        created(),
        added(0, json!({"type": "message", "id": "msg_1", "role": "assistant", "content": []})),
        text_delta("Hel"),
        text_delta("lo"),
        json!({"type": "response.output_text.done", "item_id": "msg_1", "output_index": 0, "content_index": 0, "text": "Hello"}),
        done(0, message("Hello")),
        completed(json!([message("Hello")])),
    ]);
    assert_eq!(events, [started(), say("Hel"), say("lo")]);
    assert_eq!(completion, answer("Hello", vec![message("Hello")]));
}

#[test]
fn bare_streams_without_created_numbers_usage_or_model_work() {
    // covers P2
    let (events, completion) = ended(&[
        json!({"type": "response.output_text.delta", "delta": "Hi"}),
        json!({"type": "response.completed", "response": {"id": "resp_1", "status": "completed"}}),
    ]);
    assert_eq!(events, [say("Hi"), started()]);
    let made = json!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hi", "annotations": []}]});
    assert_eq!(completion, answer("Hi", vec![made.clone()]));

    // Not even an id: L17 is the coordinator's to say.
    let (events, completion) =
        ended(&[json!({"type": "response.output_text.delta", "delta": "Hi"}), json!({"type": "response.completed"})]);
    assert_eq!(events, [say("Hi")]);
    assert_eq!(completion, Completion { id: None, ..answer("Hi", vec![made]) });
}

#[test]
fn finished_async_functions_and_all_custom_calls_are_native() {
    // covers P3
    let custom = |flag: bool| {
        json!({"type": "custom_tool_call", "id": "ct_1", "call_id": "call_9", "name": "jq", "input": ".a\n| .b", "async": flag,
            "status": "completed"})
    };
    let function = with(function(1, "{}"), "async", json!(true));
    for flag in [true, false] {
        let frames = [created(), done(0, function.clone()), done(1, custom(flag)), completed(json!([]))];
        let (events, completion) = ended(&frames);
        let mut call = Call::custom("call_9", "jq", ".a\n| .b");
        call.is_async = flag;
        assert_eq!(
            events,
            [started(), StreamEvent::Call(look_async(1, "{}")), StreamEvent::Call(FinishedCall::from(call))]
        );
        assert_eq!(completion, called(vec![function.clone(), custom(flag)]));
    }
}

#[test]
fn each_finished_sync_function_gives_the_whole_set() {
    // covers P4
    let frames = [
        created(),
        done(0, function(1, "{}")),
        done(1, with(function(2, "{}"), "async", json!(true))),
        done(2, with(function(3, "[]"), "async", json!(false))),
        completed(json!([])),
    ];
    let (events, _) = ended(&frames);
    assert_eq!(
        events,
        [
            started(),
            StreamEvent::SyncCalls(vec![look(1, "{}")]),
            StreamEvent::Call(look_async(2, "{}")),
            StreamEvent::SyncCalls(vec![look(1, "{}"), look(3, "[]")]),
        ]
    );
}

#[test]
fn partial_calls_never_come_out_and_a_finished_sibling_does_not_release_them() {
    // covers P5
    let open = |item: Value| without(without(item, "status"), "arguments");
    let frames = [
        created(),
        // Announced whole, even as completed: still only announced.
        added(0, function(1, "{}")),
        added(1, with(open(function(2, "")), "async", json!(true))),
        arguments("delta", "fc_2", "{\"a\":1}"),
        arguments("done", "fc_2", "{\"a\":1}"),
        added(2, open(function(3, ""))),
        done(2, function(3, "{}")),
        // Its last frame says that it was cut, though its text is JSON.
        done(3, with(function(4, "{}"), "status", json!("incomplete"))),
        completed(json!([with(function(4, "{}"), "status", json!("incomplete"))])),
    ];
    let (events, completion) = ended(&frames);
    assert_eq!(events, [started(), StreamEvent::SyncCalls(vec![look(3, "{}")])]);
    assert_eq!(completion, called(vec![function(3, "{}")]));
}

#[test]
fn deltas_append_and_whole_frames_replace_and_empty_ones_carry_nothing() {
    // covers P6
    // PROV-1
    let announced = without(without(function(1, ""), "arguments"), "status");
    for (name, frames, expected) in [
        (
            "deltas alone",
            vec![arguments("delta", "fc_1", "{\"a\""), arguments("delta", "fc_1", ":1}"), done(0, function(1, ""))],
            "{\"a\":1}",
        ),
        (
            "done replaces deltas of which the first was lost",
            vec![arguments("delta", "fc_1", ":1}"), arguments("done", "fc_1", "{\"a\":1}"), done(0, function(1, ""))],
            "{\"a\":1}",
        ),
        (
            "empty done carries nothing",
            vec![arguments("delta", "fc_1", "{}"), arguments("done", "fc_1", ""), done(0, function(1, ""))],
            "{}",
        ),
        (
            "the item replaces all",
            vec![arguments("delta", "fc_1", "{"), done(0, function(1, "{\"b\":2}"))],
            "{\"b\":2}",
        ),
        (
            "null carries nothing",
            vec![arguments("delta", "fc_1", "{}"), done(0, with(function(1, ""), "arguments", json!(null)))],
            "{}",
        ),
        (
            "absent carries nothing",
            vec![arguments("delta", "fc_1", "{}"), done(0, without(function(1, ""), "arguments"))],
            "{}",
        ),
        ("arguments as an object", vec![done(0, with(function(1, ""), "arguments", json!({"a": 1})))], "{\"a\":1}"),
        ("nothing at all", vec![done(0, without(function(1, ""), "arguments"))], ""),
    ] {
        let mut all = vec![created(), added(0, announced.clone())];
        all.extend(frames);
        all.push(completed(json!([])));
        let (events, completion) = ended(&all);
        assert_eq!(events, [started(), StreamEvent::SyncCalls(vec![look(1, expected)])], "{name}");
        assert_eq!(completion, called(vec![function(1, expected)]), "{name}");
    }
}

#[test]
fn fragments_go_to_the_item_that_they_name() {
    // covers P7
    // PROV-2
    let open = |n: u64| without(without(function(n, ""), "status"), "arguments");
    let delta = |text: &str, name: &str, id: Value| {
        with(json!({"type": "response.function_call_arguments.delta", "delta": text}), name, id)
    };
    let bare = |n: u64| without(open(n), "id");
    for (name, frames) in [
        (
            "by item id",
            vec![
                added(0, open(1)),
                added(1, open(2)),
                delta("[1", "item_id", json!("fc_1")),
                delta("[2", "item_id", json!("fc_2")),
                delta("]", "item_id", json!("fc_1")),
                delta("]", "item_id", json!("fc_2")),
            ],
        ),
        (
            "by call id",
            vec![
                added(0, bare(1)),
                added(1, bare(2)),
                delta("[1", "call_id", json!("call_1")),
                delta("[2", "call_id", json!("call_2")),
                delta("]", "call_id", json!("call_1")),
                delta("]", "call_id", json!("call_2")),
            ],
        ),
        (
            "by place",
            vec![
                added(0, bare(1)),
                added(1, bare(2)),
                delta("[1", "output_index", json!(0)),
                delta("[2", "output_index", json!(1)),
                delta("]", "output_index", json!(0)),
                delta("]", "output_index", json!(1)),
            ],
        ),
        (
            "by item id, all at one place",
            vec![
                added(0, open(1)),
                added(0, open(2)),
                delta("[1", "item_id", json!("fc_1")),
                delta("[2", "item_id", json!("fc_2")),
                delta("]", "item_id", json!("fc_1")),
                delta("]", "item_id", json!("fc_2")),
            ],
        ),
        (
            "never announced",
            vec![
                delta("[1", "item_id", json!("fc_1")),
                delta("[2", "item_id", json!("fc_2")),
                delta("]", "item_id", json!("fc_1")),
                delta("]", "item_id", json!("fc_2")),
            ],
        ),
        (
            "by nothing, one after the other",
            vec![
                added(0, open(1)),
                delta("[1]", "x", json!(0)),
                done(0, open(1)),
                added(1, open(2)),
                delta("[2]", "x", json!(0)),
            ],
        ),
    ] {
        let mut all = vec![created()];
        all.extend(frames);
        let place = |n: u64| if name.ends_with("one place") { 0 } else { n };
        all.extend([done(place(0), open(1)), done(place(1), open(2)), completed(json!([]))]);
        let (events, _) = ended(&all);
        assert_eq!(events.last(), Some(&StreamEvent::SyncCalls(vec![look(1, "[1]"), look(2, "[2]")])), "{name}");
    }
}

#[test]
fn calls_that_stream_in_parallel_without_any_id_are_not_mixed() {
    // covers P7
    let open = |n: u64| without(without(without(function(n, ""), "id"), "status"), "arguments");
    let nowhere = |mut frame: Value| {
        frame.as_object_mut().unwrap().shift_remove("output_index");
        frame
    };
    let delta = |text: &str| json!({"type": "response.function_call_arguments.delta", "delta": text});
    let frames = [
        created(),
        nowhere(added(0, open(1))),
        nowhere(added(0, open(2))),
        delta("[1"),
        delta("[2"),
        nowhere(done(0, with(open(1), "arguments", json!("[1]")))),
        nowhere(done(0, with(open(2), "arguments", json!("[2]")))),
        completed(json!([])),
    ];
    let (events, _) = ended(&frames);
    assert_eq!(events.last(), Some(&StreamEvent::SyncCalls(vec![look(1, "[1]"), look(2, "[2]")])));
}

#[test]
fn a_call_whose_fragments_were_lost_is_malformed_and_not_without_arguments() {
    // covers P7, P9
    let open = |n: u64| without(without(function(n, ""), "id"), "arguments");
    let delta = |text: &str| json!({"type": "response.function_call_arguments.delta", "delta": text});
    let place = |frame: Value| without(frame, "output_index");
    let announced = |n: u64| place(added(0, without(open(n), "status")));
    let frames = [
        created(),
        announced(1),
        announced(2),
        delta("[1"),
        delta("[2"),
        place(done(0, open(1))),
        place(done(0, with(open(2), "arguments", json!("[2]")))),
        completed(json!([])),
    ];
    let (events, _) = ended(&frames);
    let lost = FinishedCall { malformed: true, ..look(1, "") };
    assert_eq!(events.last(), Some(&StreamEvent::SyncCalls(vec![lost, look(2, "[2]")])));
}

#[test]
fn ids_that_change_from_frame_to_frame_are_one_item() {
    let id = |item: Value, id: &str| with(item, "id", json!(id));
    let mut delta = text_delta("Hello");
    delta["item_id"] = json!("msg_b");
    let frames = [
        created(),
        added(0, json!({"type": "message", "id": "msg_a", "role": "assistant", "content": []})),
        delta,
        done(0, id(message("Hello"), "msg_c")),
        added(1, id(without(function(1, ""), "status"), "fc_a")),
        json!({"type": "response.function_call_arguments.delta", "item_id": "fc_b", "output_index": 1, "delta": "{}"}),
        done(1, id(function(1, ""), "fc_c")),
        completed(json!([id(message("Hello"), "msg_d"), id(function(1, "{}"), "fc_d")])),
    ];
    let (events, completion) = ended(&frames);
    assert_eq!(events, [started(), say("Hello"), StreamEvent::SyncCalls(vec![look(1, "{}")])]);
    assert_eq!(
        completion,
        Completion {
            text: "Hello".into(),
            ..called(vec![id(message("Hello"), "msg_c"), id(function(1, "{}"), "fc_c")])
        }
    );
}

#[test]
fn gaps_of_a_finished_item_are_filled_from_its_stream() {
    // covers P8
    let whole = with(function(1, "{\"a\":1}"), "async", json!(true));
    let announced = |lacks: &str| without(without(without(whole.clone(), "status"), "arguments"), lacks);
    for (name, frames) in [
        (
            "name and id only when announced",
            vec![
                added(0, announced("x")),
                arguments("delta", "fc_1", "{\"a\":1}"),
                done(0, without(without(without(whole.clone(), "name"), "call_id"), "arguments")),
            ],
        ),
        (
            "name only when announced, empty at the end",
            vec![added(0, announced("x")), done(0, with(whole.clone(), "name", json!("")))],
        ),
        ("name and id only at the end", vec![added(0, without(announced("name"), "call_id")), done(0, whole.clone())]),
        ("async only when announced", vec![added(0, announced("x")), done(0, without(whole.clone(), "async"))]),
        (
            "name with the arguments",
            vec![
                added(0, announced("name")),
                with(arguments("done", "fc_1", "{\"a\":1}"), "name", json!("look")),
                done(0, without(without(whole.clone(), "name"), "arguments")),
            ],
        ),
    ] {
        let mut all = vec![created()];
        all.extend(frames);
        all.push(completed(json!([])));
        let (events, completion) = ended(&all);
        assert_eq!(events, [started(), StreamEvent::Call(look_async(1, "{\"a\":1}"))], "{name}");
        // What is kept and sent back is whole, too.
        assert_eq!(completion, called(vec![whole.clone()]), "{name}");
    }
}

#[test]
fn custom_input_is_filled_from_its_stream_byte_for_byte() {
    // covers P8
    let item = json!({"type": "custom_tool_call", "id": "ct_1", "call_id": "call_1", "name": "jq"});
    let delta = |text: &str| json!({"type": "response.custom_tool_call_input.delta", "item_id": "ct_1", "output_index": 0, "delta": text});
    let frames = [
        created(),
        added(0, item.clone()),
        delta(".a\n"),
        delta(" | {\"b\" : 1.0}"),
        done(0, item.clone()),
        completed(json!([])),
    ];
    let (events, completion) = ended(&frames);
    let call = FinishedCall::from(Call::custom("call_1", "jq", ".a\n | {\"b\" : 1.0}"));
    assert_eq!(events, [started(), StreamEvent::Call(call)]);
    assert_eq!(completion, called(vec![with(item, "input", json!(".a\n | {\"b\" : 1.0}"))]));
}

#[test]
fn malformed_arguments_are_passed_on_as_they_came() {
    // covers P9
    for is_async in [true, false] {
        for (text, malformed) in
            [("{\"a\": ", true), ("not json", true), ("", false), (" \n", false), ("{ \"b\":1.0,\"a\":2 }", false)]
        {
            let item = with(function(1, text), "async", json!(is_async));
            let (events, _) = ended(&[created(), done(0, item), completed(json!([]))]);
            let mut call = Call::function("call_1", "look", text);
            call.is_async = is_async;
            let call = FinishedCall { call, malformed };
            let expected = if is_async { StreamEvent::Call(call) } else { StreamEvent::SyncCalls(vec![call]) };
            assert_eq!(events, [started(), expected], "{text:?}");
        }
    }
}

#[test]
fn terminal_list_brings_what_the_stream_lacked_and_nothing_twice() {
    // covers P10, P21, I6
    let async_call = with(function(2, "{}"), "async", json!(true));
    let list = json!([message("Hello"), function(1, "{}"), async_call, function(3, "{}")]);
    let rest = [StreamEvent::Call(look_async(2, "{}")), StreamEvent::SyncCalls(vec![look(1, "{}"), look(3, "{}")])];
    // Half of it streamed.
    let frames = [created(), text_delta("Hel"), done(1, function(1, "{}")), completed(list.clone())];
    let (events, completion) = ended(&frames);
    assert_eq!(events[..4], [started(), say("Hel"), StreamEvent::SyncCalls(vec![look(1, "{}")]), say("lo")]);
    assert_eq!(events[4..], rest);
    let expected = Completion { text: "Hello".into(), ..called(list.as_array().unwrap().clone()) };
    assert_eq!(completion, expected);
    // Nothing of it streamed.
    let (events, completion) = ended(&[created(), completed(list.clone())]);
    assert_eq!(events[..3], [started(), say("Hello"), StreamEvent::SyncCalls(vec![look(1, "{}")])]);
    assert_eq!(events[3..], rest, "in the order in which the model made them");
    assert_eq!(completion, expected);
    // All of it streamed, in another spelling of the arguments, and the list is there too, or is empty.
    for list in [json!([message("Hello"), function(1, "{ }"), async_call, function(3, "{}")]), json!([])] {
        let frames = [
            created(),
            done(0, message("Hello")),
            done(1, function(1, "{}")),
            done(2, async_call.clone()),
            done(3, function(3, "{}")),
            completed(list),
        ];
        let (events, completion) = ended(&frames);
        assert_eq!(
            events,
            [
                started(),
                say("Hello"),
                StreamEvent::SyncCalls(vec![look(1, "{}")]),
                StreamEvent::Call(look_async(2, "{}")),
                StreamEvent::SyncCalls(vec![look(1, "{}"), look(3, "{}")]),
            ]
        );
        assert_eq!(completion, expected);
    }
}

#[test]
fn only_completed_items_of_the_terminal_list_count() {
    // covers P10, L66
    let incomplete = |output: Value| {
        json!({"type": "response.incomplete", "response": {"id": "resp_1", "status": "incomplete", "output": output,
            "incomplete_details": {"reason": "max_output_tokens"}}})
    };
    for status in ["incomplete", "in_progress"] {
        let cut = with(function(1, "{}"), "status", json!(status));
        let (events, completion) = ended(&[created(), completed(json!([cut]))]);
        assert_eq!(events, [started()]);
        assert_eq!(completion, answer("", vec![]));
    }
    // Without a status, an item of a cut response may be the cut one; of a whole response it is not.
    let silent = without(function(1, "{}"), "status");
    let (events, _) = ended(&[created(), completed(json!([silent]))]);
    assert_eq!(events, [started(), StreamEvent::SyncCalls(vec![look(1, "{}")])]);
    let (events, completion) = ended(&[created(), incomplete(json!([silent, function(2, "{}")]))]);
    assert_eq!(events, [started(), StreamEvent::SyncCalls(vec![look(2, "{}")])]);
    assert_eq!(
        completion,
        Completion {
            outcome: Outcome::Incomplete { reason: "max_output_tokens".into() },
            finish_reason: Some("length".into()),
            ..answer("", vec![function(2, "{}")])
        }
    );
}

#[test]
fn finish_reason_is_in_neutral_words() {
    // covers P11
    let ended_as = |kind: &str, response: Value| {
        let (_, end) = ended(&[json!({"type": kind, "response": response})]);
        (end.outcome, end.finish_reason.unwrap())
    };
    let incomplete = |reason: &str| json!({"status": "incomplete", "incomplete_details": {"reason": reason}});
    let cut = |reason: &str| Outcome::Incomplete { reason: reason.into() };
    for (kind, response, outcome, reason) in [
        ("response.completed", json!({"status": "completed"}), Outcome::Completed, "stop"),
        (
            "response.completed",
            json!({"status": "completed", "output": [function(1, "{}")]}),
            Outcome::Completed,
            "tool_calls",
        ),
        ("response.incomplete", incomplete("max_output_tokens"), cut("max_output_tokens"), "length"),
        ("response.incomplete", incomplete("content_filter"), cut("content_filter"), "content_filter"),
        ("response.incomplete", incomplete("steered"), cut("steered"), "steered"),
        ("response.incomplete", incomplete("brand_new"), cut("brand_new"), "brand_new"),
        ("response.incomplete", json!({}), cut("incomplete"), "incomplete"),
        ("response.cancelled", json!({"status": "cancelled"}), Outcome::Cancelled, "cancelled"),
        // The relay's word for the end: the status tells.
        ("response.done", json!({"status": "completed"}), Outcome::Completed, "stop"),
        ("response.done", incomplete("content_filter"), cut("content_filter"), "content_filter"),
        ("response.done", json!({"status": "cancelled"}), Outcome::Cancelled, "cancelled"),
        ("response.completed", incomplete("max_output_tokens"), cut("max_output_tokens"), "length"),
        ("response.completed", json!({"status": "in_progress"}), Outcome::Completed, "stop"),
    ] {
        assert_eq!(ended_as(kind, response.clone()), (outcome, reason.to_owned()), "{kind} {response}");
    }
}

#[test]
fn failures_in_the_stream_carry_code_and_message_in_every_form() {
    // covers P12
    // PROV-6, SSE-10, SSE-11
    for (frame, code, message) in [
        (json!({"type": "error", "code": "server_error", "message": "down", "param": null}), "server_error", "down"),
        (json!({"type": "error", "error": {"code": "slow_down", "message": "less"}}), "slow_down", "less"),
        (
            json!({"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}),
            "overloaded_error",
            "busy",
        ),
        (json!({"error": {"code": 429, "message": "many"}}), "429", "many"),
        (json!({"type": "server_error", "error": {"message": "odd"}}), "", "odd"),
        (json!({"type": "response.error", "error": {"code": "x", "message": "relay"}}), "x", "relay"),
        (json!({"type": "error"}), "", "the provider gave no message"),
        (
            json!({"type": "response.failed", "response": {"status": "failed", "error": {"code": "rate_limit_exceeded", "message": "slow"}}}),
            "rate_limit_exceeded",
            "slow",
        ),
        (json!({"type": "response.failed", "response": {"error": null}}), "", "the provider gave no message"),
        (
            json!({"type": "response.done", "response": {"status": "failed", "error": {"code": "c", "message": "m"}}}),
            "c",
            "m",
        ),
    ] {
        // What streamed before stays shown; its calls are the caller's to orphan.
        let (events, completion) = ended(&[created(), done(0, function(1, "{}")), frame.clone(), completed(json!([]))]);
        assert_eq!(events, [started(), StreamEvent::SyncCalls(vec![look(1, "{}")])], "{frame}");
        let expected = Completion {
            outcome: Outcome::Failed { code: code.into(), message: message.into() },
            finish_reason: Some("error".into()),
            ..answer("", vec![function(1, "{}")])
        };
        assert_eq!(completion, expected, "{frame}");
        let error = crate::driver::outcome_error(&completion).unwrap();
        assert_eq!((error.code.as_str(), error.error.kind), (code, wharf_core::ErrorKind::Provider), "{frame}");
        assert!(error.error.message.ends_with(message), "{frame}");
    }
}

#[test]
fn failed_responses_release_nothing_more() {
    // covers P12, G20
    let failed = json!({"type": "response.failed", "response": {"id": "resp_1", "output": [function(1, "{}")], "error": {"code": "c", "message": "m"}}});
    assert_eq!(ended(&[created(), failed]).0, [started()]);
}

#[test]
fn markers_and_unknown_events_are_skipped() {
    // covers P13
    // PROV-5
    let frames = [
        json!("[DONE]"),
        created(),
        json!(""),
        json!({"type": "response.brand_new.delta", "delta": "x", "obfuscation": "abc"}),
        json!({"type": "ping"}),
        json!({"type": "response.web_search_call.searching", "item_id": "ws_1"}),
        json!({"type": "response.output_item.added", "item": {"type": "brand_new"}}),
        json!({"type": "response.output_item.done", "item": "odd"}),
        json!({"type": "response.output_text.delta", "delta": 7}),
        json!({"object": "list"}),
        json!("null"),
        json!("12"),
        json!("[1]"),
        json!("[DONE]"),
        text_delta("Hi"),
        completed(json!([{"type": "brand_new"}, "odd", message("Hi")])),
        json!("[DONE]"),
    ];
    let (events, completion) = ended(&frames);
    let brand_new = json!({"type": "brand_new"});
    assert_eq!(events, [started(), say("Hi"), StreamEvent::Opaque(brand_new.clone())]);
    assert_eq!(completion, answer("Hi", vec![brand_new, message("Hi")]));
}

#[test]
fn data_that_is_not_json_is_an_error_that_does_not_quote_it() {
    // covers P13
    let mut decoder = Decoder::new();
    let fault = decoder.push("message", "{\"secret\": ").unwrap_err();
    assert_eq!(fault, DecodeError::NotJson { fault: "it ends early at line 1, column 10".into(), bytes: 10 });
    assert_eq!(fault.to_string(), "an event of the answer is not JSON: it ends early at line 1, column 10 (10 bytes)");
    assert!(Decoder::new().push("response.created", "oops").is_err());
    // Under a name of somebody else's it is an unknown event.
    assert_eq!(Decoder::new().push("keepalive", "oops"), Ok(vec![]));
}

#[test]
fn type_may_stand_in_the_event_field_alone() {
    let mut decoder = Decoder::new();
    let events = decoder.push("response.created", r#"{"response":{"id":"resp_1"}}"#).unwrap();
    assert_eq!(events, [started()]);
    let events = decoder.push("error", r#"{"code":"c","message":"m"}"#).unwrap();
    assert!(
        matches!(&events[..], [StreamEvent::Completed(end)] if end.outcome == Outcome::Failed { code: "c".into(), message: "m".into() })
    );
}

#[test]
fn refusals_are_content_and_no_error() {
    // covers P14
    // PROV-10
    let refusal = json!({"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
        "content": [{"type": "refusal", "refusal": "I can't."}]});
    let delta = |text: &str| json!({"type": "response.refusal.delta", "item_id": "msg_1", "output_index": 0, "content_index": 0, "delta": text});
    let frames = [
        created(),
        delta("I "),
        delta("can"),
        json!({"type": "response.refusal.done", "item_id": "msg_1", "output_index": 0, "content_index": 0, "refusal": "I can't."}),
        done(0, refusal.clone()),
        completed(json!([refusal])),
    ];
    let (events, completion) = ended(&frames);
    let decline = |text: &str| StreamEvent::Refusal(text.into());
    assert_eq!(events, [started(), decline("I "), decline("can"), decline("'t.")]);
    let expected = Completion { refusal: Some("I can't.".into()), ..answer("", vec![refusal]) };
    assert_eq!(completion, expected);
    assert_eq!(crate::driver::outcome_error(&completion), None);
    let (events, completion) = ended(&[created(), completed(json!([expected.items[0]]))]);
    assert_eq!(events, [started(), decline("I can't.")]);
    assert_eq!(completion, expected);
}

#[test]
fn last_usage_seen_counts() {
    // covers P15
    // PROV-8
    let usage = |n: u64| json!({"input_tokens": n, "output_tokens": 1, "total_tokens": n + 1});
    let early = json!({"type": "response.in_progress", "response": {"id": "resp_1", "usage": usage(1)}});
    let beside = json!({"type": "response.output_text.delta", "delta": "x", "usage": usage(2)});
    let end = |usage: Value| json!({"type": "response.incomplete", "response": {"id": "resp_1", "usage": usage}});
    let fresh = |frames: &[Value]| ended(frames).1.usage.map(|usage| usage.fresh_input);
    assert_eq!(fresh(&[early.clone(), beside.clone(), end(usage(3))]), Some(3));
    assert_eq!(fresh(&[early.clone(), beside, end(json!(null))]), Some(2));
    assert_eq!(fresh(&[early, end(json!(null))]), Some(1));
    assert_eq!(fresh(&[end(json!(null))]), None);
    let failed = json!({"type": "response.failed", "response": {"usage": usage(9)}});
    assert_eq!(fresh(&[failed]), Some(9));
}

#[test]
fn reasoning_summaries_are_reasoning_and_raw_reasoning_is_not_stored() {
    // covers P16, O20
    let item = json!({"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "I think."}],
        "content": [{"type": "reasoning_text", "text": "raw"}], "encrypted_content": "abc"});
    let kept = without(item.clone(), "content");
    let frames = [
        created(),
        json!({"type": "response.reasoning_text.delta", "item_id": "rs_1", "output_index": 0, "content_index": 0, "delta": "raw"}),
        json!({"type": "response.reasoning.delta", "item_id": "rs_1", "delta": "raw"}),
        json!({"type": "response.reasoning_summary_text.delta", "item_id": "rs_1", "output_index": 0, "summary_index": 0, "delta": "I th"}),
        json!({"type": "response.reasoning_summary_text.done", "item_id": "rs_1", "output_index": 0, "summary_index": 0, "text": "I think"}),
        done(0, item.clone()),
        completed(json!([item, message("Hi")])),
    ];
    let think = |text: &str| StreamEvent::Reasoning(text.into());
    let (events, completion) = ended(&frames);
    assert_eq!(
        events,
        [started(), think("I th"), think("ink"), think("."), StreamEvent::Opaque(kept.clone()), say("Hi")]
    );
    assert_eq!(completion, answer("Hi", vec![kept.clone(), message("Hi")]));
    let (events, again) = ended(&[created(), completed(json!([item, message("Hi")]))]);
    assert_eq!(events, [started(), think("I think."), StreamEvent::Opaque(kept), say("Hi")]);
    assert_eq!(again, completion);
}

#[test]
fn nothing_after_the_terminal_event_counts() {
    // covers P18
    // SSE-12
    let mut decoder = Decoder::new();
    assert!(!decoder.ended());
    decoder.push("", &created().to_string()).unwrap();
    decoder.push("", &completed(json!([])).to_string()).unwrap();
    assert!(decoder.ended());
    for late in [json!({"type": "error", "message": "late"}), completed(json!([function(1, "{}")])), json!("not json")]
    {
        assert_eq!(decoder.push("", &late.to_string()), Ok(vec![]), "{late}");
    }
    assert_eq!(decoder.push("", "{"), Ok(vec![]));
}

#[test]
fn whole_response_has_the_outcome_of_the_streamed_one() {
    // covers P21, O19
    let reasoning = json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "abc"});
    let custom = json!({"type": "custom_tool_call", "id": "ct_1", "call_id": "call_9", "name": "jq", "input": ".", "status": "completed"});
    let items = [
        reasoning,
        message("Hello"),
        function(1, "{}"),
        with(function(2, "{}"), "async", json!(true)),
        custom,
        function(3, "{}"),
    ];
    let response = json!({"id": "resp_1", "object": "response", "status": "completed", "model": "m-1", "output": items,
        "usage": {"input_tokens": 5, "output_tokens": 7}});
    let mut frames = vec![created(), text_delta("Hel"), text_delta("lo")];
    frames.extend((0..).zip(&items).map(|(n, item)| done(n + 1, item.clone())));
    frames.push(json!({"type": "response.completed", "response": response}));
    let (_, streamed) = ended(&frames);
    let mut events = Decoder::new().whole(&response).unwrap();
    assert_eq!(events.pop(), Some(StreamEvent::Completed(streamed.clone())));
    let retrieved = super::super::retrieve::read(&response).unwrap();
    let jq = FinishedCall::from(Call::custom("call_9", "jq", "."));
    let calls = vec![look(1, "{}"), look_async(2, "{}"), jq, look(3, "{}")];
    assert_eq!(retrieved, wharf_core::model::Retrieved::Ended { completion: streamed, calls });
}

#[test]
fn a_call_without_id_or_name_makes_the_whole_response_fail() {
    // covers L48
    for (item, code, message) in [
        (without(function(1, "{}"), "call_id"), "call_without_id", "a finished function call has no call id"),
        (with(function(1, "{}"), "call_id", json!(" ")), "call_without_id", "a finished function call has no call id"),
        (without(function(1, "{}"), "name"), "call_without_name", "a finished function call has no name"),
        (
            json!({"type": "custom_tool_call", "call_id": "c"}),
            "call_without_name",
            "a finished custom tool call has no name",
        ),
    ] {
        for frames in [
            vec![created(), done(0, item.clone()), completed(json!([]))],
            vec![created(), completed(json!([item, function(2, "{}")]))],
        ] {
            let (events, completion) = ended(&frames);
            assert_eq!(events, [started()], "{item}");
            assert_eq!(completion.outcome, Outcome::Failed { code: code.into(), message: message.into() }, "{item}");
        }
    }
}

#[test]
fn a_repeated_item_is_one_call_and_one_that_differs_is_for_the_host_to_refuse() {
    let (events, _) = ended(&[created(), done(0, function(1, "{}")), done(0, function(1, "{}")), completed(json!([]))]);
    assert_eq!(events, [started(), StreamEvent::SyncCalls(vec![look(1, "{}")])]);
    let frames = [created(), done(0, function(1, "{}")), done(0, function(1, "[]")), completed(json!([]))];
    let (events, _) = ended(&frames);
    assert_eq!(events.last(), Some(&StreamEvent::SyncCalls(vec![look(1, "{}"), look(1, "[]")])));
}

#[test]
fn repeated_events_are_told_by_their_number_where_numbers_grow() {
    let number = |frame: Value, n: u64| with(frame, "sequence_number", json!(n));
    let frames = [
        number(created(), 0),
        number(text_delta("a"), 1),
        number(text_delta("b"), 2),
        number(text_delta("a"), 1),
        number(text_delta("b"), 2),
        number(text_delta("c"), 3),
        number(completed(json!([])), 3),
    ];
    assert_eq!(ended(&frames).1.text, "abc");
    // A server that always says 0 counts nothing.
    let frames = [created(), text_delta("a"), text_delta("a"), completed(json!([]))].map(|frame| number(frame, 0));
    assert_eq!(ended(&frames).1.text, "aa");
}

#[test]
fn terminal_id_is_trusted_and_the_first_one_was_told() {
    let frames = [created(), json!({"type": "response.completed", "response": {"id": "resp_2"}})];
    let (events, completion) = ended(&frames);
    assert_eq!(events, [started()]);
    assert_eq!(completion.id, Some("resp_2".into()));
}

#[test]
fn text_that_the_end_corrects_is_corrected_in_the_whole() {
    let (events, completion) = ended(&[created(), text_delta("Hxl"), completed(json!([message("Hello")]))]);
    assert_eq!(events, [started(), say("Hxl")]);
    assert_eq!(completion.text, "Hello");
}

#[test]
fn bounds_are_typed_errors() {
    let mut decoder = Decoder::new();
    let fill = |decoder: &mut Decoder, from: usize, to: usize| -> Result<(), DecodeError> {
        for n in from..to {
            decoder.push("", &added(n as u64, json!({"type": "reasoning", "id": format!("rs_{n}")})).to_string())?;
        }
        Ok(())
    };
    assert_eq!(fill(&mut decoder, 0, limits::ITEMS_MAX), Ok(()));
    assert_eq!(fill(&mut decoder, limits::ITEMS_MAX, limits::ITEMS_MAX + 1), Err(DecodeError::TooManyItems));

    let big = "x".repeat(wharf_core::limits::CALL_PAYLOAD_BYTES_MAX);
    let mut decoder = Decoder::new();
    assert_eq!(decoder.push("", &arguments("delta", "fc_1", &big).to_string()), Ok(vec![]));
    assert_eq!(decoder.push("", &arguments("delta", "fc_1", "x").to_string()), Err(DecodeError::PayloadTooLong));
    let item = function(1, &(big + "x"));
    assert_eq!(Decoder::new().push("", &done(0, item).to_string()), Err(DecodeError::PayloadTooLong));

    let piece = text_delta(&"x".repeat(limits::TEXT_BYTES_MAX / 4)).to_string();
    let mut decoder = Decoder::new();
    for _ in 0..4 {
        assert!(decoder.push("", &piece).is_ok());
    }
    assert_eq!(decoder.push("", &text_delta("x").to_string()), Err(DecodeError::TooMuchText));
}

/// Pushes frames to a decoder that may keep a mebibyte, until one is refused; gives why, and how many steps were taken.
fn until_refused(frames: impl Fn(u64) -> Vec<Value>) -> (DecodeError, u64) {
    let mut decoder = Decoder { bytes_max: 1 << 20, ..Decoder::new() };
    for n in 0..2000 {
        for frame in frames(n) {
            if let Err(fault) = decoder.push("", &frame.to_string()) {
                return (fault, n);
            }
        }
    }
    panic!("it is never refused");
}

#[test]
fn one_response_keeps_a_bounded_number_of_bytes_however_they_come() {
    assert_eq!(Decoder::new().bytes_max, limits::RESPONSE_BYTES_MAX);
    let text = "x".repeat(100 << 10);
    let item =
        |n: u64, kind: &str, member: &str| with(json!({"type": kind, "id": format!("i_{n}")}), member, json!(text));
    // How often the text fits, by how often it is kept.
    let (once, twice) = (10, 5);
    for (name, times, refused) in [
        ("items of unknown kinds", once, until_refused(|n| vec![done(n, item(n, "brand_new", "data"))])),
        ("reasoning", once, until_refused(|n| vec![done(n, item(n, "reasoning", "encrypted_content"))])),
        ("messages that say nothing", once, until_refused(|n| vec![done(n, item(n, "message", "note"))])),
        (
            "messages that say something",
            twice,
            until_refused(|n| vec![done(n, with(message(&text), "id", json!(format!("i_{n}"))))]),
        ),
        (
            "cut items that come again",
            once,
            until_refused(|_| vec![done(0, with(item(0, "brand_new", "data"), "status", json!("incomplete")))]),
        ),
        (
            "text that is not what was shown",
            once,
            until_refused(|n| {
                let named = |kind: &str| json!({"type": format!("response.{kind}"), "item_id": format!("i_{n}")});
                vec![
                    with(named("output_text.delta"), "delta", json!("-")),
                    with(named("output_text.done"), "text", json!(text)),
                ]
            }),
        ),
        ("ids", once, until_refused(|n| vec![added(n, json!({"type": "message", "id": format!("{n}{text}")}))])),
        (
            "ids that come later",
            once,
            until_refused(|n| {
                let item = json!({"type": "function_call", "id": format!("i_{n}")});
                vec![added(n, item.clone()), added(n, with(item, "call_id", json!(format!("{n}{text}"))))]
            }),
        ),
        ("kinds", once, until_refused(|n| vec![added(n, json!({"type": format!("{n}{text}")}))])),
        ("names", once, until_refused(|n| vec![added(n, item(n, "function_call", "name"))])),
        ("inputs that are announced", once, until_refused(|n| vec![added(n, item(n, "custom_tool_call", "input"))])),
        ("inputs that never end", once, until_refused(|n| vec![arguments("delta", &format!("i_{n}"), &text)])),
        ("inputs that end", once, until_refused(|n| vec![arguments("done", &format!("i_{n}"), &text)])),
        ("calls", twice, until_refused(|n| vec![done(n, function(n, &text))])),
    ] {
        assert_eq!(refused, (DecodeError::TooLarge, times), "{name}");
    }
    // Many small parts cost their places.
    let places =
        |n: u64| (16 * n..16 * n + 16).map(|place| with(text_delta("x"), "content_index", json!(place))).collect();
    assert_eq!(until_refused(places), (DecodeError::TooLarge, (1 << 20) / 16 / (1 + limits::VALUE_BYTES as u64)));
    // What is not kept does not count: unknown events, repeats of a finished item, text after its item's end.
    let mut decoder = Decoder { bytes_max: 1 << 20, ..Decoder::new() };
    for n in 0..100 {
        let events = decoder.push("", &done(0, item(0, "brand_new", "data")).to_string()).unwrap();
        assert_eq!(events.len(), usize::from(n == 0));
        for frame in [
            json!({"type": "response.brand_new", "data": text}),
            json!({"type": "response.new", "item": {"data": text}}),
        ] {
            assert_eq!(decoder.push("", &frame.to_string()), Ok(vec![]));
        }
    }
}

#[test]
fn many_small_values_are_counted_before_they_are_read() {
    let frame = |values: usize| format!(r#"{{"type":"response.new","data":[{}0]}}"#, "0,".repeat(values));
    // The object, the list, and the comma between the members.
    let most = limits::FRAME_VALUES_MAX - 3;
    assert_eq!(Decoder::new().push("", &frame(most)), Ok(vec![]));
    for values in [most + 1, 8 * most] {
        assert_eq!(Decoder::new().push("", &frame(values)), Err(DecodeError::TooManyValues));
    }
    // A kept item costs what its values take, not what they took on the wire.
    let values = vec![json!(0); 1600];
    let frames = |n: u64| vec![done(n, json!({"type": "brand_new", "id": n.to_string(), "data": values}))];
    assert_eq!(until_refused(frames), (DecodeError::TooLarge, 10));
}

#[test]
fn calls_of_one_response_are_bounded_together() {
    let text = "x".repeat(wharf_core::limits::CALL_PAYLOAD_BYTES_MAX);
    let fit = limits::CALLS_BYTES_MAX / text.len();
    let mut decoder = Decoder::new();
    for n in 0..fit {
        let n = n as u64;
        assert!(decoder.push("", &done(n, function(n, &text)).to_string()).is_ok_and(|events| events.len() == 1));
    }
    let more = done(99, function(99, "1")).to_string();
    assert_eq!(decoder.push("", &more), Err(DecodeError::TooMuchInput));
    // One id with always another input; each repeat is told until the bound.
    let mut decoder = Decoder::new();
    for n in 0..=limits::REPEATS_MAX {
        let events = decoder.push("", &done(0, function(1, &format!("[{n}]"))).to_string());
        match events {
            Ok(events) => assert!(matches!(&events[..], [StreamEvent::SyncCalls(set)] if set.len() == n + 1), "{n}"),
            Err(fault) => assert_eq!((n, fault), (limits::REPEATS_MAX, DecodeError::TooManyRepeats)),
        }
    }
    assert_eq!(decoder.push("", &done(0, function(1, "[0]")).to_string()), Ok(vec![]));
}

#[test]
fn events_in_any_order_give_whole_calls_or_none() {
    // covers P5, P6, P8
    // The arguments before the item, and its end without a beginning.
    let frames = [
        arguments("delta", "fc_1", "{\"a\""),
        arguments("delta", "fc_1", ":1}"),
        added(0, with(function(1, ""), "status", json!("in_progress"))),
        done(0, function(1, "")),
        done(1, function(2, "{}")),
        created(),
        completed(json!([])),
    ];
    let (events, completion) = ended(&frames);
    assert_eq!(
        events,
        [
            StreamEvent::SyncCalls(vec![look(1, "{\"a\":1}")]),
            StreamEvent::SyncCalls(vec![look(1, "{\"a\":1}"), look(2, "{}")]),
            started()
        ]
    );
    assert_eq!(completion, called(vec![function(1, "{\"a\":1}"), function(2, "{}")]));
    // Fragments, a second announcement and a second end come after the end: it stays what it was.
    let late = [
        created(),
        done(0, function(1, "{}")),
        arguments("delta", "fc_1", "{\"b\":2}"),
        arguments("done", "fc_1", "{\"b\":2}"),
        added(0, function(1, "")),
        completed(json!([function(1, "{}")])),
    ];
    let (events, completion) = ended(&late);
    assert_eq!(events, [started(), StreamEvent::SyncCalls(vec![look(1, "{}")])]);
    assert_eq!(completion, called(vec![function(1, "{}")]));
}

#[test]
fn items_that_claim_one_place_are_told_apart_by_their_ids() {
    // covers P7
    let frames = [
        created(),
        added(0, with(function(1, ""), "status", json!("in_progress"))),
        added(0, with(function(2, ""), "status", json!("in_progress"))),
        arguments("delta", "fc_2", "[2]"),
        arguments("delta", "fc_1", "[1]"),
        done(0, without(function(1, ""), "arguments")),
        done(0, without(function(2, ""), "arguments")),
        completed(json!([])),
    ];
    let (events, completion) = ended(&frames);
    assert_eq!(events.last(), Some(&StreamEvent::SyncCalls(vec![look(1, "[1]"), look(2, "[2]")])));
    assert_eq!(completion, called(vec![function(1, "[1]"), function(2, "[2]")]));
}

#[test]
fn a_terminal_event_without_a_list_keeps_what_was_streamed() {
    // covers P10, P2
    let opaque = json!({"type": "brand_new", "id": "n_1", "deep": {"a": [1, null, 1.5e300, "\u{0}"]}, "": true});
    let end = json!({"type": "response.completed", "response": {"id": "resp_1", "status": "completed"}});
    for end in [end.clone(), with(end, "response", json!(null))] {
        let frames = [created(), done(0, opaque.clone()), done(1, function(1, "{}")), text_delta("Hi"), end];
        let (events, completion) = ended(&frames);
        let said =
            [started(), StreamEvent::Opaque(opaque.clone()), StreamEvent::SyncCalls(vec![look(1, "{}")]), say("Hi")];
        assert_eq!(events, said);
        // Text whose item never came is kept as a message; it stood at the first place.
        let made = json!({"type": "message", "role": "assistant",
            "content": [{"type": "output_text", "text": "Hi", "annotations": []}]});
        let mut kept = completion.items.clone();
        kept.sort_by_key(|item| item["type"].as_str().map(str::to_owned));
        assert_eq!(kept, [opaque.clone(), function(1, "{}"), made]);
        assert_eq!((completion.text.as_str(), completion.outcome), ("Hi", Outcome::Completed));
    }
}

#[test]
fn ids_with_odd_characters_are_kept_as_they_are() {
    // covers P7
    let odd = "call\u{0}\r\n\u{1b}[2J\u{202e}/../\u{1f600}";
    let item = with(with(function(1, ""), "call_id", json!(odd)), "id", json!("fc_1\n"));
    let frames = [
        created(),
        added(0, with(item.clone(), "status", json!("in_progress"))),
        arguments("delta", "fc_1\n", "[1]"),
        arguments("delta", "fc_1", "[2]"),
        done(0, without(item.clone(), "arguments")),
        completed(json!([])),
    ];
    let (events, completion) = ended(&frames);
    let call = FinishedCall::from(Call::function(odd, "look", "[1]"));
    assert_eq!(events, [started(), StreamEvent::SyncCalls(vec![call])]);
    assert_eq!(completion, called(vec![with(item, "arguments", json!("[1]"))]));
}

#[test]
fn a_hundred_thousand_events_are_one_answer() {
    const COUNT: usize = 100_000;
    let mut decoder = Decoder::new();
    assert_eq!(decoder.push("", &created().to_string()), Ok(vec![started()]));
    let mut said = String::new();
    let unknown = json!({"type": "response.brand_new", "item_id": "x"}).to_string();
    for n in 0..COUNT {
        let frame = match n % 4 {
            0 => text_delta("ab").to_string(),
            1 => arguments("delta", "fc_1", "1").to_string(),
            2 => added(1, json!({"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "look"}))
                .to_string(),
            _ => unknown.clone(),
        };
        for event in decoder.push("", &frame).unwrap() {
            match event {
                StreamEvent::Text(text) => said.push_str(&text),
                other => panic!("{other:?}"),
            }
        }
    }
    let events = decoder.push("", &done(1, without(function(1, ""), "arguments")).to_string()).unwrap();
    assert_eq!(events, [StreamEvent::SyncCalls(vec![look(1, &"1".repeat(COUNT / 4))])]);
    let end = decoder.push("", &completed(json!([])).to_string()).unwrap();
    assert_eq!(said, "ab".repeat(COUNT / 4));
    let [StreamEvent::Completed(end)] = &end[..] else { panic!("{} events", end.len()) };
    assert_eq!((end.text == said, end.items.len(), &end.outcome), (true, 2, &Outcome::Completed));
}

#[test]
fn whole_answers_that_are_none_are_typed_errors() {
    let whole = |answer: Value| Decoder::new().whole(&answer);
    assert_eq!(whole(json!({"object": "list"})), Err(DecodeError::NotAResponse));
    assert_eq!(whole(json!([1])), Err(DecodeError::NotAResponse));
    for status in ["queued", "in_progress"] {
        let fault = DecodeError::NotEnded { status: status.into() };
        assert_eq!(whole(json!({"id": "r", "status": status})), Err(fault));
    }
    let events = whole(json!({"error": {"code": "c", "message": "m"}})).unwrap();
    assert!(
        matches!(&events[..], [StreamEvent::Completed(end)] if end.outcome == Outcome::Failed { code: "c".into(), message: "m".into() })
    );
}

proptest::proptest! {
    #![proptest_config(proptest::test_runner::Config { failure_persistence: None, ..Default::default() })]

    /// Frames from anybody in any order: never a panic, and nothing after the end.
    #[test]
    fn no_order_of_frames_panics(picks in proptest::collection::vec((0usize..14, 0u64..3, 0u64..3), 0..24)) {
        let mut decoder = Decoder::new();
        for (pick, n, m) in picks {
            let frame = match pick {
                0 => created(),
                1 => added(n, function(m, "")),
                2 => done(n, function(m, "{}")),
                3 => done(n, with(function(m, ""), "async", json!(true))),
                4 => arguments("delta", &format!("fc_{m}"), "{"),
                5 => arguments("done", &format!("fc_{m}"), "{}"),
                6 => text_delta("x"),
                7 => done(n, message("xy")),
                8 => json!({"type": "response.output_item.done", "item": {"type": "function_call"}}),
                9 => json!({"type": "response.function_call_arguments.delta", "delta": "x"}),
                10 => json!({"type": "response.output_item.added", "output_index": n, "item": {"type": "custom_tool_call"}}),
                11 => done(n, json!({"type": "reasoning"})),
                12 => json!({"type": "response.output_text.done", "text": "q", "output_index": m}),
                _ => completed(json!([function(n, "{}"), message("z"), function(m, "")])),
            };
            let was_ended = decoder.ended();
            let events = decoder.push("", &frame.to_string()).unwrap();
            assert!(!was_ended || events.is_empty());
            let last = events.iter().position(|event| matches!(event, StreamEvent::Completed(_)));
            assert!(last.is_none_or(|place| place + 1 == events.len() && decoder.ended()));
        }
    }
}
