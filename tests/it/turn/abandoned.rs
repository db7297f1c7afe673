//! A turn that was given up leaves no call without an output: the provider would take no further request (PROV-12).

use serde_json::json;
use wharf::core::CallId;
use wharf::core::record::Reconcile;
use wharf::{TurnOptions, TurnStatus};
use wharf_simulate::{Answer, Script};

use super::kit::{ASYNC, Desk, World, function_output, turn, user, within};

/// The response asked for two calls and was cut off, so that neither started; then the turn is given up, and another one
/// begins.
async fn after_an_abandoned_turn(lines: &str) -> (World, Desk) {
    let script = Script::new("abandoned")
        .step(
            Answer::new()
                .function_call("call_1", "multiply", "{\"n\":2}")
                .function_call("call_2", "multiply", "{\"n\":3}")
                .incomplete("max_output_tokens"),
        )
        .step(Answer::new().text("Never mind."));
    let world = World::new(script).await;
    let desk = Desk::default();
    let session = world.desk(&desk, &format!("{lines}{}", Desk::ENABLED)).await.session("s1");
    turn(&session, "start").await;
    let mut nobody = ();
    let given_up = session.reconcile(Reconcile::Abandon, "op", TurnOptions::default(), &mut nobody);
    let given_up = within("giving up", given_up).await.unwrap();
    assert_eq!((given_up.status.clone(), given_up.is_success()), (TurnStatus::Abandoned, false));
    let next = turn(&session, "something else").await;
    assert_eq!((next.text.as_str(), next.tool_calls), ("Never mind.", 0));
    assert_eq!(desk.calls(), []);
    world.lawful();
    (world, desk)
}

// covers L60, Q8
#[tokio::test]
async fn what_an_abandoned_turn_left_open_is_closed_before_the_next_input() {
    let (world, _) = after_an_abandoned_turn(ASYNC).await;
    let not_executed = r#"{"error":"this call was not executed: its turn was abandoned before it could start"}"#;
    assert_eq!(
        world.wire(),
        [
            json!({ "on": null, "input": [user("start")] }),
            json!({ "on": "resp_1", "input": [
                function_output("call_1", not_executed), function_output("call_2", not_executed), user("something else"),
            ] }),
        ]
    );
}

// covers L60
#[tokio::test]
async fn a_replayed_history_has_an_output_for_each_call_of_an_abandoned_turn() {
    let (world, _) = after_an_abandoned_turn("").await;
    let wire = world.wire();
    let ids = |kind: &str| -> Vec<CallId> {
        let items = wire[1]["input"].as_array().unwrap().iter().filter(|item| item["type"] == kind);
        items.map(|item| item["call_id"].as_str().unwrap().into()).collect()
    };
    let both: [CallId; 2] = ["call_1".into(), "call_2".into()];
    assert_eq!((ids("function_call"), ids("function_call_output")), (both.to_vec(), both.to_vec()));
    assert_eq!(wire[1]["input"].as_array().unwrap().last(), Some(&user("something else")));
}
