//! Two calls of one response: each result goes back when it is there, on its own id, to the latest response.

use serde_json::json;
use wharf::{TurnOptions, TurnStatus};
use wharf_simulate::{Answer, Expect, Script};

use super::kit::*;

/// The calls as the public form of the journal shows them once both are delivered.
fn delivered_calls() -> serde_json::Value {
    json!({
        "call_slow": {
            "call": { "type": "function_call", "call_id": "call_slow", "name": "slow", "arguments": "{\"n\": 1}", "async": true },
            "replay_safe": true, "replay_class": "safe", "state": "Delivered",
        },
        "call_fast": {
            "call": { "type": "custom_tool_call", "call_id": "call_fast", "name": "fast", "input": "a\n b\r\n", "async": true },
            "replay_safe": true, "replay_class": "safe", "state": "Delivered",
        },
    })
}

fn both_calls() -> Answer {
    Answer::new().text("I look.").async_function_call("call_slow", "slow", r#"{"n": 1}"#).async_custom_call(
        "call_fast",
        "fast",
        "a\n b\r\n",
    )
}

fn requests() -> [serde_json::Value; 3] {
    let fast = did("fast", "a\n b\r\n");
    [
        first_request(),
        json!({ "on": "resp_1", "input": [{ "type": "custom_tool_call_output", "call_id": "call_fast", "output": fast }] }),
        json!({ "on": "resp_2", "input": [output("call_slow", &did("slow", r#"{"n": 1}"#))] }),
    ]
}

/// What another process finds: all is delivered, nothing is asked again.
async fn is_complete(world: &World, server: &wharf_simulate::Server) {
    let journal = world.journal().await;
    assert_eq!(journal.rest(), over("resp_3"));
    let public = journal.fold.turn().unwrap().checkpoint.to_json();
    assert_eq!(public["calls"], delivered_calls());
    assert_eq!(public["order"], json!(["call_slow", "call_fast"]));
    assert_eq!(public["completed_responses"], json!(3));
    let asked = server.requests().len();
    let again = world.process(Setup::on(server)).await;
    let result = again.resume(again.options()).await.unwrap();
    assert_eq!((result.status, result.text.as_str()), (TurnStatus::Completed, "Both are there."));
    assert_eq!((result.llm_calls, result.tool_calls), (3, 2));
    drop(again);
    assert_eq!(server.requests().len(), asked, "a turn that is over asks nobody");
    assert_eq!(world.journal().await.fold, journal.fold, "looking at it changes nothing");
    assert_eq!(server.violations(), []);
}

#[tokio::test]
async fn a_fast_result_goes_to_the_latest_response_and_a_slow_one_to_the_response_after_it_while_text_arrives() {
    // covers K1, K3, L10, L14, L25, L26, L41, L42, L44, I6, I7, I9, J5, M6, M7, O4, Q2, Q4, Q8, A8, A10
    let script = Script::new("two calls")
        .step(
            both_calls()
                .wait_for("both run")
                .text("Meanwhile I think.")
                .wait_for("fast is settled")
                .expect(Expect::new().no_previous().stream(true)),
        )
        .step(Answer::new().text("Fast is there.").expect(Expect::new().latest().only_outputs(["call_fast"])))
        .step(Answer::new().text("Both are there.").expect(Expect::new().latest().only_outputs(["call_slow"])));
    let server = serve(script).await;
    let world = World::new();
    let process = world.process(Setup::on(&server)).await;
    let (result, ()) = tokio::join!(process.turn(process.options()), async {
        world.runs.wait_for("slow call_slow").await;
        world.runs.wait_for("fast call_fast").await;
        server.release("both run");
        world.seen.wait_for("text Meanwhile I think.").await;
        world.release("fast");
        world.seen.wait_for("settle call_fast done").await;
        server.release("fast is settled");
        world.seen.wait_for("acknowledged by resp_2").await;
        world.release("slow");
    });
    let result = result.unwrap();
    assert_eq!((result.status, result.text.as_str()), (TurnStatus::Completed, "Both are there."));
    assert_eq!(
        world.seen.all(),
        [
            "turn",
            "ask 1",
            "begun resp_1",
            "text I look.",
            "accept call_slow",
            "start call_slow #1",
            "accept call_fast",
            "start call_fast #1",
            "text Meanwhile I think.",
            "settle call_fast done",
            "accepted resp_1",
            "deliver call_fast on resp_1",
            "ask 2 on resp_1",
            "begun resp_2",
            "text Fast is there.",
            "acknowledged by resp_2",
            "settle call_slow done",
            "deliver call_slow on resp_2",
            "ask 3 on resp_2",
            "begun resp_3",
            "text Both are there.",
            "acknowledged by resp_3",
            "end completed",
        ]
    );
    assert_eq!(wire(&server), requests());
    drop(process);
    is_complete(&world, &server).await;
    assert_eq!(world.runs.all(), ["slow call_slow", "fast call_fast"]);
}

#[tokio::test]
async fn without_a_stream_both_results_go_back_in_the_same_way() {
    // covers P21, L41, L44, I6, I7, J5, K1, O13
    let script = Script::new("two calls, whole")
        .step(both_calls().expect(Expect::new().no_previous().stream(false)))
        .step(
            Answer::new()
                .text("Fast is there.")
                .expect(Expect::new().latest().only_outputs(["call_fast"]).stream(false)),
        )
        .step(
            Answer::new()
                .text("Both are there.")
                .expect(Expect::new().latest().only_outputs(["call_slow"]).stream(false)),
        );
    let server = serve(script).await;
    let world = World::new();
    let process = world.process(Setup::on(&server)).await;
    let options = TurnOptions { no_stream: true, ..process.options() };
    let (result, ()) = tokio::join!(process.turn(options), async {
        world.runs.wait_for("slow call_slow").await;
        world.seen.wait_for("accepted resp_1").await;
        world.release("fast");
        // The model's next text comes while the slow call runs.
        world.seen.wait_for("acknowledged by resp_2").await;
        world.release("slow");
    });
    assert_eq!(result.unwrap().text, "Both are there.");
    assert_eq!(
        world.seen.all(),
        [
            "turn",
            "ask 1",
            "begun resp_1",
            "text I look.",
            "accept call_slow",
            "start call_slow #1",
            "accept call_fast",
            "start call_fast #1",
            "accepted resp_1",
            "settle call_fast done",
            "deliver call_fast on resp_1",
            "ask 2 on resp_1",
            "begun resp_2",
            "text Fast is there.",
            "acknowledged by resp_2",
            "settle call_slow done",
            "deliver call_slow on resp_2",
            "ask 3 on resp_2",
            "begun resp_3",
            "text Both are there.",
            "acknowledged by resp_3",
            "end completed",
        ]
    );
    assert_eq!(wire(&server), requests());
    drop(process);
    is_complete(&world, &server).await;
}
