//! Several turns on one session: what the next one continues, what is read from the journal instead of asked again, and who
//! may open it.

use std::sync::Arc;

use serde_json::{Value, json};
use wharf::core::record::{Reconcile, Record};
use wharf::core::{ErrorKind, Seq};
use wharf::store::{SqliteStore, Store};
use wharf::{TurnOptions, TurnStatus};
use wharf_simulate::{Answer, Expect, Script};

use super::kit::{ASYNC, Desk, World, function_output, turn, user, within};

const TWICE: &str = r#"{"result":4,"error":null,"images":[]}"#;
const THRICE: &str = r#"{"result":6,"error":null,"images":[]}"#;

fn call(id: &str, n: u32) -> Answer {
    Answer::new().function_call(id, "multiply", format!("{{\"n\":{n}}}"))
}

// covers N1
#[tokio::test]
async fn a_second_turn_continues_the_last_response_of_the_first() {
    let script = Script::new("two turns")
        .step(call("call_1", 2))
        .step(Answer::new().text("Four."))
        .step(Answer::new().text("You are welcome."));
    let world = World::new(script).await;
    let desk = Desk::default();
    let lines = format!("{ASYNC}{}", Desk::ENABLED);
    // Another process has the second turn.
    turn(&world.desk(&desk, &lines).await.session("s1"), "double 2").await;
    let second = turn(&world.desk(&desk, &lines).await.session("s1"), "thank you").await;
    assert_eq!((second.text.as_str(), second.llm_calls, second.tool_calls), ("You are welcome.", 1, 0));
    assert_eq!(
        world.wire(),
        [
            json!({ "on": null, "input": [user("double 2")] }),
            json!({ "on": "resp_1", "input": [function_output("call_1", TWICE)] }),
            json!({ "on": "resp_2", "input": [user("thank you")] }),
        ]
    );
    world.lawful();
}

// covers Z9
#[tokio::test]
async fn a_model_without_continuation_gets_the_whole_history_each_time() {
    let script = Script::new("two turns")
        .step(Answer::new().reasoning("I think.").text("Let me see.").function_call("call_1", "multiply", "{\"n\":2}"))
        .step(Answer::new().text("Four."))
        .step(Answer::new().text("You are welcome."));
    let world = World::new(script).await;
    let desk = Desk::default();
    turn(&world.desk(&desk, Desk::ENABLED).await.session("s1"), "double 2").await;
    turn(&world.desk(&desk, Desk::ENABLED).await.session("s1"), "thank you").await;

    let kinds = |body: &Value| -> Vec<Value> {
        let short = |item: &Value| match item["type"].as_str().unwrap() {
            "message" => json!([item["role"], item["content"]]),
            "function_call" => json!(["call", item["call_id"], item["name"], item["arguments"]]),
            "function_call_output" => json!(["output", item["call_id"], item["output"]]),
            kind => json!([kind]),
        };
        body["input"].as_array().unwrap().iter().map(short).collect()
    };
    let said = |text: &str| json!(["assistant", text]);
    let history = [
        json!(["user", "double 2"]),
        // What the provider thought is sent back to it as it came (O20).
        json!(["reasoning"]),
        said("Let me see."),
        json!(["call", "call_1", "multiply", "{\"n\":2}"]),
        json!(["output", "call_1", TWICE]),
        said("Four."),
        json!(["user", "thank you"]),
    ];
    let inputs: Vec<Vec<Value>> = world.bodies().iter().map(kinds).collect();
    assert_eq!(inputs, [history[..1].to_vec(), history[..5].to_vec(), history.to_vec()]);
    for body in world.bodies() {
        assert_eq!(body.get("previous_response_id"), None, "{body}");
        assert!(body["tools"].as_array().unwrap().iter().all(|tool| tool.get("async").is_none()), "{body}");
    }
    world.lawful();
}

// covers N1, Z9
#[tokio::test]
async fn two_sessions_at_once_do_not_see_each_other() {
    let answers = |name: &str, n: u32, output: &str| {
        let first = Answer::new().wait_for("both ask").function_call("call_1", "multiply", format!("{{\"n\":{n}}}"));
        let second = Answer::new().text(format!("{name} has it."));
        (first.expect(Expect::new().contains(name).lacks(output)), second.expect(Expect::new().contains(output)))
    };
    let ((one, two), (three, four)) = (answers("Ann", 2, TWICE), answers("Bob", 3, THRICE));
    let script = Script::new("two at once").first_match().step(two).step(four).step(one).step(three);
    let world = World::new(script).await;
    let desk = Desk::default();
    let agent = world.desk(&desk, &format!("{ASYNC}{}", Desk::ENABLED)).await;
    let (ann, bob) = (agent.session("ann"), agent.session("bob"));
    let both_ask = async {
        world.server.wait_for_request(2).await.unwrap();
        world.server.release("both ask");
    };
    let (of_ann, of_bob, ()) = tokio::join!(turn(&ann, "I am Ann"), turn(&bob, "I am Bob"), both_ask);
    assert_eq!((of_ann.text.as_str(), of_bob.text.as_str()), ("Ann has it.", "Bob has it."));
    // The provider's ids are the same, and each session has its own call of that id.
    assert_eq!(desk.ids(), ["call_1", "call_1"]);
    for (session, name) in [(&ann, "Ann"), (&bob, "Bob")] {
        let other = if name == "Ann" { "Bob" } else { "Ann" };
        let messages = session.messages().await.unwrap();
        assert_eq!(messages.len(), 4, "{messages:?}");
        assert!(!format!("{messages:?}").contains(other), "{messages:?}");
    }
    world.lawful();
}

// covers Q8
#[tokio::test]
async fn resuming_a_finished_turn_asks_nobody() {
    let script = Script::new("one turn").step(call("call_1", 2)).step(Answer::new().text("Four."));
    let world = World::new(script).await;
    let session = world.desk(&Desk::default(), Desk::ENABLED).await.session("s1");
    let first = turn(&session, "double 2").await;
    let records = world.records(&session).await;

    for _ in 0..2 {
        // The lease is free afterwards, else the second time would find it taken.
        let again = within("resuming", session.resume(TurnOptions::default(), &mut ())).await.unwrap();
        assert_eq!(again, first);
    }
    assert_eq!(world.server.requests().len(), 2);
    assert_eq!(world.records(&session).await, records);
}

#[tokio::test]
async fn a_session_without_a_turn_has_nothing_to_resume() {
    let world = World::new(Script::new("nothing")).await;
    let session = world.desk(&Desk::default(), "").await.session("s1");
    let error = within("resuming", session.resume(TurnOptions::default(), &mut ())).await.unwrap_err();
    assert_eq!((error.kind, error.message.as_str()), (ErrorKind::Config, "this session has no turn to resume"));
    assert_eq!(world.records(&session).await, []);
}

// covers N2
#[tokio::test]
async fn a_session_that_is_in_use_says_by_whom() {
    let script =
        Script::new("slow").step(Answer::new().text("Let me").wait_for("the other one was refused").text(" see."));
    let world = World::new(script).await;
    let desk = Desk::default();
    let first = world.agent(world.builder().native(desk.clone()).label("the first"), world.harness("")).await;
    let second = world.agent(world.builder().native(desk).label("the second"), world.harness("")).await;
    let (one, other) = (first.session("s1"), second.session("s1"));
    let runs = tokio::spawn(async move { turn(&one, "start").await });
    within("the request", world.server.wait_for_gate("the other one was refused")).await.unwrap();

    let records = world.records(&other).await;
    for refused in [
        within("a second turn", other.turn("me too", TurnOptions::default(), &mut ())).await,
        within("resuming", other.resume(TurnOptions::default(), &mut ())).await,
        within("giving up", other.reconcile(Reconcile::Abandon, "op", TurnOptions::default(), &mut ())).await,
    ] {
        let error = refused.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Store, "{error}");
        assert!(error.message.contains("\"s1\"") && error.message.contains("the first"), "{error}");
    }
    // Looking needs no lease (M1).
    assert_eq!(world.records(&other).await, records);
    assert!(!other.events(Seq(0)).await.unwrap().is_empty());
    // Another session of the same store is free.
    assert_eq!(second.session("s2").messages().await.unwrap(), []);

    world.server.release("the other one was refused");
    assert_eq!(runs.await.unwrap().text, "Let me see.");
    assert_eq!(world.server.requests().len(), 1);
    world.lawful();
}

// covers B13, Z9
#[tokio::test]
async fn a_call_id_that_the_provider_uses_again_is_another_call() {
    let script = Script::new("the same id three times")
        .step(call("call_1", 2))
        .step(call("call_1", 3))
        .step(Answer::new().text("Four and six."))
        .step(call("call_1", 2))
        .step(Answer::new().text("Four again."));
    for lines in [ASYNC, ""] {
        let world = World::new(script.clone()).await;
        let desk = Desk::default();
        let session = world.desk(&desk, &format!("{lines}{}", Desk::ENABLED)).await.session("s1");
        assert_eq!(turn(&session, "start").await.tool_calls, 2);
        assert_eq!(turn(&session, "again").await.tool_calls, 1);

        // The tool and the journal have one key for each call; the wire has the provider's id.
        assert_eq!(desk.ids(), ["call_1", "call_1~r2.0", "call_1~r4.0"]);
        let outputs: Vec<Vec<Value>> = world.wire().iter().map(outputs_of).collect();
        let [four, six] = [TWICE, THRICE].map(|output| function_output("call_1", output));
        let each = [vec![], vec![four.clone()], vec![six.clone()], vec![], vec![four.clone()]];
        let all = [vec![], vec![four.clone()], vec![four.clone(), six.clone()]];
        let rest = [vec![four.clone(), six.clone()], vec![four.clone(), six, four]];
        assert_eq!(outputs, if lines.is_empty() { [&all[..], &rest[..]].concat() } else { each.to_vec() });
        world.lawful();
    }
}

/// The output items of a request, in order.
fn outputs_of(wire: &Value) -> Vec<Value> {
    let items = wire["input"].as_array().unwrap().iter();
    items.filter(|item| item["type"] == "function_call_output").cloned().collect()
}

#[tokio::test]
async fn a_large_output_is_kept_beside_the_journal_and_sent_whole() {
    let script = Script::new("large")
        .step(Answer::new().function_call("call_1", "long", "{\"n\":4000}"))
        .step(Answer::new().text("Long."))
        .step(Answer::new().text("Still here."));
    let world = World::new(script).await;
    let folder = world.path("journal");
    let open = || Arc::new(SqliteStore::open(&folder).unwrap()) as Arc<dyn Store>;
    let desk = Desk::default();
    let output = format!(r#"{{"result":"{}","error":null,"images":[]}}"#, "0123456789".repeat(4000));
    for input in ["start", "and then"] {
        let builder = world.builder().native(desk.clone()).store(open());
        let agent = world.agent(builder, world.harness(Desk::ENABLED)).await;
        turn(&agent.session("s1"), input).await;
    }
    // The second process read it back for the history, byte for byte.
    let wire = world.wire();
    assert_eq!(wire[1]["input"][2], function_output("call_1", &output));
    assert_eq!(wire[2]["input"][2], function_output("call_1", &output));
    assert_eq!(desk.calls().len(), 1);

    let store = open();
    let key = wharf::store::JournalKey::local("s1");
    let loaded = within("reading", store.load(&key, Seq(0))).await.unwrap();
    let named = loaded.records.iter().filter_map(|stored| Record::named_blob(&stored.record.kind, &stored.record.body));
    let [digest] = &named.collect::<Vec<_>>()[..] else { panic!("one record should name a blob") };
    assert_eq!(digest.as_str(), wharf::core::digest::Digest::of(output.as_bytes()).to_string());
    assert_eq!(store.blob(&key, digest).await.unwrap(), Some(output.into_bytes()));
    assert!(loaded.records.iter().all(|stored| stored.record.body.len() < 32 << 10));
    world.lawful();
}

#[tokio::test]
async fn a_turn_is_not_begun_while_another_one_is_open() {
    let script = Script::new("cut").step(Answer::new().text("Half an").incomplete("max_output_tokens"));
    let world = World::new(script).await;
    let session = world.desk(&Desk::default(), "").await.session("s1");
    let paused = turn(&session, "start").await;
    assert_eq!((&paused.text[..], paused.is_success()), ("Half an", false));
    assert!(matches!(paused.status, TurnStatus::Paused(_)), "{paused:?}");
    let records = world.records(&session).await;
    let error = within("a second turn", session.turn("more", TurnOptions::default(), &mut ())).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Store, "{error}");
    assert_eq!(error.hint.as_deref(), Some("wharf session resume SESSION"), "{error}");
    assert_eq!(world.records(&session).await, records);
}
