//! A turn that was given up leaves no call without an output: the provider would take no further request (PROV-12).

use serde_json::json;
use tokio::sync::watch;
use wharf::core::CallId;
use wharf::core::record::{Reconcile, Record};
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
    // Its outcome is stored like any other (Q8).
    let again = within("resuming", session.resume(TurnOptions::default(), &mut ())).await.unwrap();
    assert_eq!((again, world.server.requests().len()), (given_up, 1));
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

/// Gives the session's turn up.
async fn give_up(session: &wharf::Session, options: TurnOptions) {
    let mut nobody = ();
    let given_up = session.reconcile(Reconcile::Abandon, "op", options, &mut nobody);
    assert_eq!(within("giving up", given_up).await.unwrap().status, TurnStatus::Abandoned);
}

// covers L60
#[tokio::test]
async fn the_next_turn_tells_what_was_gained_and_what_nobody_knows() {
    let script = Script::new("a crash between two calls")
        .step(Answer::new().function_call("call_1", "multiply", "{\"n\":2}").function_call(
            "call_2",
            "hang",
            "{\"n\":1}",
        ))
        .step(Answer::new().text("I see."));
    let world = World::new(script).await;
    let desk = Desk::default();
    let lines = format!("{ASYNC}{}", Desk::ENABLED);
    // The process ends when the first call has its result and the second one runs.
    let session = world.desk(&desk, &lines).await.session("s1");
    let (say, mut said) = watch::channel((false, false));
    let options = TurnOptions {
        records: Some(Box::new(move |_, record| {
            say.send_modify(|(settled, runs)| match record {
                Record::CallSettled { id, .. } => *settled |= id.as_str() == "call_1",
                Record::CallStarted { id, .. } => *runs |= id.as_str() == "call_2",
                _ => {}
            });
        })),
        ..TurnOptions::default()
    };
    let runs = async { session.turn("start", options, &mut ()).await };
    within("both calls", async {
        tokio::select! {
            result = runs => panic!("the turn came to an end: {result:?}"),
            _ = said.wait_for(|both| *both == (true, true)) => {}
        }
    })
    .await;

    let session = world.desk(&desk, &lines).await.session("s1");
    give_up(&session, TurnOptions { take_over: true, ..TurnOptions::default() }).await;
    assert_eq!(turn(&session, "what now").await.text, "I see.");
    let unknown = "{\"error\":\"this call was cut off when its turn was abandoned: its outcome is unknown, and it must not be \
                   retried automatically\"}";
    assert_eq!(
        world.wire()[1],
        json!({ "on": "resp_1", "input": [
            function_output("call_1", r#"{"result":4,"error":null,"images":[]}"#),
            function_output("call_2", unknown),
            user("what now"),
        ] })
    );
    assert_eq!(desk.calls().len(), 2);
    world.lawful();
}

// covers L58, L59, L60
#[tokio::test]
async fn calls_of_a_lost_answer_get_no_output_and_are_told_of_in_one_framed_item() {
    let script = Script::new("a lost answer")
        .step(Answer::new().async_function_call("call_1", "multiply", "{\"n\":2}").text("Lost.").abort_after(6))
        .step(Answer::new().text("I see."));
    let world = World::new(script).await;
    let desk = Desk::default();
    let lines = format!("{ASYNC}{}[capabilities.desk.tools.multiply]\nasync = true\n", Desk::ENABLED);
    let session = world.desk(&desk, &lines).await.session("s1");
    let paused = turn(&session, "start").await;
    assert!(matches!(paused.status, TurnStatus::Paused(_)), "{paused:?}");
    give_up(&session, TurnOptions::default()).await;
    assert_eq!(turn(&session, "what now").await.text, "I see.");

    let told = "[host] An earlier answer of yours was lost on the way and is not part of this conversation. These calls of \
                it were run; do not repeat them without need:\n\
                - multiply \"{\\\"n\\\":2}\": \"{\\\"result\\\":4,\\\"error\\\":null,\\\"images\\\":[]}\"";
    let posts = world.wire();
    assert_eq!(posts[1], json!({ "on": null, "input": [user("start"), user("what now"), user(told)] }));
    assert_eq!(desk.calls().len(), 1);
    world.lawful();
}
