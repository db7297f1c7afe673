//! What models, operators and providers get wrong harms only itself: a tool that does not exist, arguments that are no JSON or
//! do not fit, an answer that is cut off, a component that cannot be loaded.

use serde_json::{Value, json};
use wharf::core::record::{PauseReason, Record};
use wharf::{CapabilityStatus, TurnOptions, TurnStatus};
use wharf_simulate::{Answer, Expect, Script};

use super::kit::{ASYNC, Desk, World, function_output, turn, user, within};

// covers L46, L47, L50, A19, U14
#[tokio::test]
async fn a_call_that_cannot_run_is_answered_and_the_others_run() {
    let script = Script::new("slips")
        .step(
            Answer::new()
                .function_call("call_1", "multipli", "{\"n\":1}")
                .function_call("call_2", "multiply", "{\"n\":")
                .function_call("call_3", "multiply", "{\"n\":\"two\"}")
                .function_call("call_4", "multiply", "")
                .function_call("call_5", "multiply", "{\"n\":5}"),
        )
        .step(Answer::new().text("I see."));
    let world = World::new(script).await;
    let desk = Desk::default();
    let session = world.desk(&desk, &format!("{ASYNC}{}", Desk::ENABLED)).await.session("s1");
    let result = turn(&session, "start").await;
    assert_eq!((result.text.as_str(), result.tool_calls), ("I see.", 5));
    assert_eq!(desk.calls(), [("multiply".to_owned(), "{\"n\":5}".to_owned(), 1)]);

    let wire = world.wire().remove(1);
    let outputs: Vec<Value> = wire["input"].as_array().unwrap().to_vec();
    let ids: Vec<&Value> = outputs.iter().map(|item| &item["call_id"]).collect();
    assert_eq!(ids, ["call_1", "call_2", "call_3", "call_4", "call_5"]);
    let errors: Vec<Value> =
        outputs[..4].iter().map(|item| serde_json::from_str(item["output"].as_str().unwrap()).unwrap()).collect();
    for (error, words) in errors.iter().zip([
        ["no tool \"multipli\"", "\"multiply\""],
        ["not JSON", "multiply"],
        ["does not fit its schema", "at /n"],
        ["does not fit its schema", "\"n\""],
    ]) {
        let members: Vec<&String> = error.as_object().unwrap().keys().collect();
        assert_eq!(members, ["error"]);
        let text = error["error"].as_str().unwrap();
        assert!(words.iter().all(|word| text.contains(word)), "{words:?} in {text}");
    }
    assert_eq!(outputs[4], function_output("call_5", r#"{"result":10,"error":null,"images":[]}"#));
    world.lawful();
}

// covers L51
#[tokio::test]
async fn a_model_that_goes_on_asking_for_tools_that_are_not_there_is_stopped() {
    let ask = |id: &str| Answer::new().function_call(id, "divide", "{}");
    let script = Script::new("stubborn")
        .step(ask("call_1"))
        .step(ask("call_2"))
        .step(ask("call_3"))
        .step(Answer::new().text("Then not."));
    let world = World::new(script).await;
    let harness = world.harness_with("model = \"sim/m\"\nunknown_tool_limit = 2", Desk::ENABLED);
    let session = world.agent(world.builder().native(Desk::default()), harness).await.session("s1");
    let paused = turn(&session, "start").await;
    assert_eq!(paused.status, TurnStatus::Paused(PauseReason::UnknownTools { count: 3 }));
    assert_eq!(world.server.requests().len(), 3);
    let result = within("resuming", session.resume(TurnOptions::default(), &mut ())).await.unwrap();
    assert_eq!((result.text.as_str(), result.llm_calls, result.tool_calls), ("Then not.", 4, 3));
    world.lawful();
}

// covers L66, X1
#[tokio::test]
async fn a_cut_answer_stops_the_turn_and_its_calls_run_when_it_is_resumed() {
    let script = Script::new("cut")
        .step(
            Answer::new().text("Half").function_call("call_1", "multiply", "{\"n\":2}").incomplete("max_output_tokens"),
        )
        .step(Answer::new().text("Four.").expect(Expect::new().latest()));
    let world = World::new(script).await;
    let desk = Desk::default();
    let session = world.desk(&desk, &format!("{ASYNC}{}", Desk::ENABLED)).await.session("s1");
    let paused = turn(&session, "start").await;
    let reason = "max_output_tokens".to_owned();
    assert_eq!(paused.status, TurnStatus::Paused(PauseReason::Incomplete { reason }));
    assert_eq!((paused.text.as_str(), desk.calls()), ("Half", vec![]));
    let result = within("resuming", session.resume(TurnOptions::default(), &mut ())).await.unwrap();
    assert_eq!((result.text.as_str(), result.is_success()), ("Four.", true));
    assert_eq!(
        world.wire(),
        [
            json!({ "on": null, "input": [user("start")] }),
            json!({ "on": "resp_1", "input": [function_output("call_1", r#"{"result":4,"error":null,"images":[]}"#)] }),
        ]
    );
    world.lawful();
}

// covers L49
#[tokio::test]
async fn an_equal_repeat_of_a_call_is_one_call() {
    let script = Script::new("twice")
        .step(Answer::new().async_function_call("call_1", "multiply", "{\"n\":2}").async_function_call(
            "call_1",
            "multiply",
            "{\"n\":2}",
        ))
        .step(Answer::new().text("Four."));
    let world = World::new(script).await;
    let desk = Desk::default();
    let lines = format!("{ASYNC}{}[capabilities.desk.tools.multiply]\nasync = true\n", Desk::ENABLED);
    let session = world.desk(&desk, &lines).await.session("s1");
    assert_eq!(turn(&session, "start").await.tool_calls, 1);
    assert_eq!(desk.calls().len(), 1);
    let accepted = world.records(&session).await;
    assert_eq!(accepted.iter().filter(|record| matches!(record, Record::CallAccepted { .. })).count(), 1);
    let output = function_output("call_1", r#"{"result":4,"error":null,"images":[]}"#);
    assert_eq!(world.wire()[1]["input"], json!([output]));
}

#[tokio::test]
async fn a_component_that_cannot_be_loaded_leaves_the_others_alone() {
    let script = Script::new("one of three")
        .step(Answer::new().function_call("call_1", "multiply", "{\"n\":2}"))
        .step(Answer::new().text("Four."));
    let world = World::new(script).await;
    world.write("broken.wasm", "no component at all");
    let lines = format!(
        "[capabilities.absent]\ncomponent = \"absent.wasm\"\n[capabilities.broken]\ncomponent = \"broken.wasm\"\n{}",
        Desk::ENABLED
    );
    let agent = world.try_agent(world.builder().native(Desk::default()), world.harness(&lines)).await.unwrap();
    let status = |name: &str| &agent.reports().iter().find(|report| report.name == name).unwrap().status;
    for name in ["absent", "broken"] {
        let CapabilityStatus::Refused(error) = status(name) else { panic!("{:?}", status(name)) };
        assert!(
            error.message.contains(&format!("{name}.wasm")) || error.message.contains(&format!("{name:?}")),
            "{error}"
        );
    }
    assert!(matches!(status("desk"), CapabilityStatus::Loaded { .. }));
    assert_eq!(turn(&agent.session("s1"), "start").await.text, "Four.");
    world.lawful();
}
