//! What can be read of a session by anybody, while its turn runs too (Z9, Z10).

use serde_json::json;
use wharf::TurnOptions;
use wharf::core::model::Role;
use wharf::core::transcript::Message;
use wharf::core::{Call, Seq};
use wharf_simulate::{Answer, Script};

use super::kit::{ASYNC, Desk, World, turn, within};

fn text(role: Role, text: &str) -> Message {
    Message::Text { role, text: text.to_owned() }
}

// covers Z9, Q2
#[tokio::test]
async fn messages_have_roles_texts_native_calls_and_results_by_id() {
    let script = Script::new("two kinds")
        .step(Answer::new().text("Two things.").function_call("call_1", "multiply", "{ \"n\": 2 }").custom_call(
            "call_2",
            "paste",
            "a\r\n b\n",
        ))
        .step(Answer::new().text("Done."))
        .step(Answer::new().text("Bye."));
    let world = World::new(script).await;
    let session = world.desk(&Desk::default(), &format!("{ASYNC}{}", Desk::ENABLED)).await.session("s1");
    assert_eq!(session.messages().await.unwrap(), []);
    turn(&session, "start").await;
    turn(&session, "bye").await;
    let result = |id: &str, output: &str| Message::Result { call_id: id.into(), output: output.to_owned() };
    assert_eq!(
        session.messages().await.unwrap(),
        [
            text(Role::User, "start"),
            text(Role::Assistant, "Two things."),
            Message::Call(Call::function("call_1", "multiply", "{ \"n\": 2 }")),
            Message::Call(Call::custom("call_2", "paste", "a\r\n b\n")),
            result("call_1", r#"{"result":4,"error":null,"images":[]}"#),
            result("call_2", r#"{"result":"a\r\n b\n","error":null,"images":[]}"#),
            text(Role::Assistant, "Done."),
            text(Role::User, "bye"),
            text(Role::Assistant, "Bye."),
        ]
    );
}

// covers Z10, Q3
#[tokio::test]
async fn events_are_a_list_that_can_be_followed_from_any_number() {
    let script = Script::new("followed")
        .step(Answer::new().text("Let me see.").function_call("call_1", "multiply", "{\"n\":2}"))
        .step(Answer::new().text("Fo").wait_for("somebody looked").text("ur."));
    let world = World::new(script).await;
    let agent = world.desk(&Desk::default(), &format!("{ASYNC}{}", Desk::ENABLED)).await;
    let (session, reader) = (agent.session("s1"), agent.session("s1"));
    let runs = tokio::spawn(async move {
        within("the turn", session.turn("start", TurnOptions::default(), &mut ())).await.unwrap()
    });
    within("the second answer", world.server.wait_for_gate("somebody looked")).await.unwrap();
    let early = reader.events(Seq(0)).await.unwrap();
    let seen = early.last().unwrap().seq;
    assert_eq!(early.last().unwrap().name, "response.started");
    world.server.release("somebody looked");
    runs.await.unwrap();

    let all = reader.events(Seq(0)).await.unwrap();
    let late = reader.events(seen).await.unwrap();
    // Reading on from a number gives what follows it: nothing twice, nothing left out.
    assert_eq!([early, late.clone()].concat(), all);
    assert_eq!(reader.events(all.last().unwrap().seq).await.unwrap(), []);
    assert!(all.windows(2).all(|pair| pair[0].seq < pair[1].seq), "{all:?}");
    let turn_id = all[0].details["turn"].clone();
    let told: Vec<_> = all.iter().map(|event| json!([event.name, event.details])).collect();
    assert_eq!(
        told,
        [
            json!(["turn.started", { "turn": turn_id }]),
            json!(["response.started", { "step_index": 0 }]),
            json!(["call.accepted", {
                "call_id": "call_1", "name": "multiply", "async": false, "replay": "never", "hold": null,
            }]),
            json!(["response.completed", {
                "response_id": "resp_1", "status": "completed", "finish_reason": "tool_calls",
            }]),
            json!(["call.started", { "call_id": "call_1", "attempt": 1 }]),
            json!(["call.completed", { "call_id": "call_1", "how": "done", "is_error": false }]),
            json!(["delivery.prepared", { "previous_response_id": "resp_1", "call_ids": ["call_1"] }]),
            json!(["response.started", { "step_index": 1 }]),
            json!(["delivery.acknowledged", { "receipt": "resp_2" }]),
            json!(["response.completed", {
                "response_id": "resp_2", "status": "completed", "finish_reason": "stop",
            }]),
            json!(["turn.completed", { "turn": turn_id }]),
        ]
    );
    assert_eq!(late.iter().filter(|event| event.name == "turn.completed").count(), 1);
}
