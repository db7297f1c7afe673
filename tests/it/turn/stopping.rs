//! Turns that are cancelled, stopped or come to a limit, and how they go on (Q15, Q16, L43, L62, Q14).

use serde_json::{Value, json};
use tokio::sync::{oneshot, watch};
use wharf::coordinator::Handle;
use wharf::core::ErrorKind;
use wharf::core::record::{PauseReason, Record};
use wharf::{Session, TurnOptions, TurnStatus};
use wharf_simulate::{Answer, Expect, Script};

use super::kit::{ASYNC, Desk, World, component, custom_output, function_output, turn, user, within};

/// Options that hand the turn's handle out.
fn with_handle() -> (TurnOptions, oneshot::Receiver<Handle>) {
    let (give, handle) = oneshot::channel();
    let give = |handle| assert!(give.send(handle).is_ok(), "nobody waits for the handle");
    (TurnOptions { on_start: Some(Box::new(give)), ..TurnOptions::default() }, handle)
}

async fn resume(session: &Session) -> wharf::TurnResult {
    within("resuming", session.resume(TurnOptions::default(), &mut ())).await.unwrap()
}

// covers Q14, Q15, H1
#[tokio::test]
async fn a_cancelled_turn_journals_what_became_of_its_calls_and_can_go_on() {
    let script = Script::new("cancelled")
        .step(Answer::new().function_call("call_1", "hang", "{\"n\":1}").function_call(
            "call_2",
            "multiply",
            "{\"n\":2}",
        ))
        .step(Answer::new().text("As you like.").expect(Expect::new().latest()));
    let world = World::new(script).await;
    let desk = Desk::default();
    let session = world.desk(&desk, &format!("{ASYNC}{}", Desk::ENABLED)).await.session("s1");
    let (mut options, handle) = with_handle();
    let (say, mut settled) = watch::channel(false);
    options.records = Some(Box::new(move |_, record| {
        if matches!(record, Record::CallSettled { .. }) {
            say.send_replace(true);
        }
    }));
    let cancels = async {
        let handle = handle.await.unwrap();
        settled.wait_for(|settled| *settled).await.unwrap();
        handle.cancel();
    };
    let mut nobody = ();
    let (ended, ()) =
        within("the turn", async { tokio::join!(session.turn("start", options, &mut nobody), cancels) }).await;
    assert_eq!(ended.unwrap_err().kind, ErrorKind::Cancelled);
    assert_eq!(world.server.requests().len(), 1);

    let result = resume(&session).await;
    assert_eq!((result.text.as_str(), result.tool_calls), ("As you like.", 2));
    assert_eq!(
        world.wire()[1]["input"],
        json!([
            function_output("call_1", r#"{"error":"cancelled"}"#),
            function_output("call_2", r#"{"result":4,"error":null,"images":[]}"#),
        ])
    );
    assert_eq!(desk.calls().len(), 2, "neither ran again");
    world.lawful();
}

// covers L62, Q1
#[tokio::test]
async fn a_stopped_turn_starts_nothing_new_and_any_process_goes_on_with_it() {
    let script = Script::new("stopped")
        .step(Answer::new().text("I").wait_for("it was stopped").function_call("call_1", "multiply", "{\"n\":2}"))
        .step(Answer::new().text("Four."));
    let world = World::new(script).await;
    let desk = Desk::default();
    let lines = format!("{ASYNC}{}", Desk::ENABLED);
    let session = world.desk(&desk, &lines).await.session("s1");
    let (options, handle) = with_handle();
    let stops = async {
        handle.await.unwrap().stop();
        world.server.wait_for_gate("it was stopped").await.unwrap();
        world.server.release("it was stopped");
    };
    let mut nobody = ();
    let (stopped, ()) =
        within("the turn", async { tokio::join!(session.turn("start", options, &mut nobody), stops) }).await;
    let stopped = stopped.unwrap();
    assert_eq!(stopped.status, TurnStatus::Paused(PauseReason::Shutdown));
    assert_eq!((stopped.text.as_str(), stopped.llm_calls, stopped.tool_calls), ("I", 1, 1));
    assert_eq!(desk.calls(), []);

    // Its lease is free: nobody has to be asked.
    let session = world.desk(&desk, &lines).await.session("s1");
    assert_eq!(resume(&session).await.text, "Four.");
    assert_eq!(desk.calls(), [("multiply".to_owned(), "{\"n\":2}".to_owned(), 1)]);
    world.lawful();
}

// covers Q16, L43
#[tokio::test]
async fn a_turn_at_its_limit_of_responses_keeps_what_it_has() {
    let script = Script::new("limits")
        .step(Answer::new().function_call("call_1", "multiply", "{\"n\":2}"))
        .step(Answer::new().text("Four."));
    let world = World::new(script).await;
    let harness = world.harness_with("model = \"sim/m\"\nmax_responses = 1", &format!("{ASYNC}{}", Desk::ENABLED));
    let desk = Desk::default();
    let session = world.agent(world.builder().native(desk.clone()), harness).await.session("s1");
    let error = within("the turn", session.turn("start", TurnOptions::default(), &mut ())).await.unwrap_err();
    assert_eq!(
        (error.kind, error.message.as_str()),
        (ErrorKind::Config, "the limit of responses is reached after 1 of them, and work is pending")
    );
    // The same limit again gains nothing; one more response is one more.
    assert_eq!(within("resuming", session.resume(TurnOptions::default(), &mut ())).await.unwrap_err(), error);
    assert_eq!(world.server.requests().len(), 1);
    let options = TurnOptions { max_responses: Some(2), ..TurnOptions::default() };
    let result = within("resuming", session.resume(options, &mut ())).await.unwrap();
    assert_eq!((result.text.as_str(), result.llm_calls), ("Four.", 2));
    assert_eq!(desk.calls().len(), 1);
    world.lawful();
}

#[tokio::test]
async fn a_turn_can_ask_for_whole_answers_instead_of_streams() {
    let whole = || Expect::new().stream(false);
    let script = Script::new("whole")
        .step(
            Answer::new()
                .text("Let me see.")
                .function_call("call_1", "multiply", "{\"n\":2}")
                .custom_call("call_2", "paste", "a\n\nb")
                .expect(whole()),
        )
        .step(Answer::new().text("Done.").expect(whole()));
    let world = World::new(script).await;
    let session = world.desk(&Desk::default(), &format!("{ASYNC}{}", Desk::ENABLED)).await.session("s1");
    let options = TurnOptions { no_stream: true, ..TurnOptions::default() };
    let result = within("the turn", session.turn("start", options, &mut ())).await.unwrap();
    assert_eq!((result.text.as_str(), result.llm_calls, result.tool_calls), ("Done.", 2, 2));
    assert_eq!(
        world.wire(),
        [
            json!({ "on": null, "input": [user("start")] }),
            json!({ "on": "resp_1", "input": [
                function_output("call_1", r#"{"result":4,"error":null,"images":[]}"#),
                custom_output("call_2", r#"{"result":"a\n\nb","error":null,"images":[]}"#),
            ] }),
        ]
    );
    world.lawful();
}

// covers Q18
#[tokio::test]
async fn what_a_component_gives_beyond_its_limit_is_cut_and_says_so() {
    let lines = format!("{}[capabilities.query.limits]\noutput = \"1KiB\"\n", component("query", "query"));
    let script = Script::new("long")
        .step(Answer::new().custom_call("call_1", "query", "[range(1000)]\n---\n0").custom_call(
            "call_2",
            "query",
            "[range(3)]\n---\n0",
        ))
        .step(Answer::new().text("Long."));
    let world = World::new(script).await;
    let session = world.agent(world.builder(), world.harness(&lines)).await.session("s1");
    turn(&session, "start").await;
    let body = &world.bodies()[1]["input"];
    let output = |at: usize| body[at]["output"].as_str().unwrap();
    let whole = json!((0..1000).collect::<Vec<u32>>()).to_string();
    let (head, tail) = (&whole[..512], &whole[whole.len() - 512..]);
    let shown = format!(
        "[JSON of {} bytes, over the limit: what follows is its beginning and end, not valid JSON]\n{head}\n\
         [… {} bytes cut …]\n{tail}",
        whole.len(),
        whole.len() - 1024
    );
    assert_eq!(
        serde_json::from_str::<Value>(output(3)).unwrap(),
        json!({ "result": shown, "error": null, "images": [] })
    );
    assert_eq!(output(4), r#"{"result":[0,1,2],"error":null,"images":[]}"#);
    world.lawful();
}
