//! The stream breaks while calls run: they run on, what they did is told and not sent on ids that the provider does not
//! know, and where nobody can say what became of a request, an operator does.

use serde_json::{Value, json};
use wharf::core::ErrorKind;
use wharf::core::record::{PauseReason, Reconcile};
use wharf::{TurnResult, TurnStatus};
use wharf_simulate::script::{Cut, CutHow, Retrieved};
use wharf_simulate::{Answer, Expect, Script, Server};

use super::kit::*;

fn told(tool: &str) -> Value {
    json!({ "on": null, "input": [user(INPUT), lost(&[(tool, &did(tool, "{}"))])] })
}

fn paused(call: &str) -> TurnStatus {
    TurnStatus::Paused(PauseReason::LostResponse { calls: vec![call.into()] })
}

#[tokio::test]
async fn a_call_of_a_lost_response_runs_on_and_the_model_is_told_instead_of_getting_an_output() {
    // covers L21, L57, L58, L59, G19, P19
    for how in [CutHow::Abort, CutHow::Clean] {
        let lost = breaks_after_a_call("call_slow", "slow", "break").cut(Cut { after_events: 6, extra_bytes: 9, how });
        let script = Script::new("lost")
            .step(lost)
            .step(Answer::new().text("Done.").expect(Expect::new().no_previous().only_outputs([])));
        let server = serve(script).await;
        let world = World::new();
        let process = world.process(Setup::on(&server)).await;
        let (result, ()) = tokio::join!(process.turn(process.options()), async {
            world.seen.wait_for("start call_slow #1").await;
            server.release("break");
            world.seen.wait_for("dropped as lost [call_slow]").await;
            world.release("slow");
        });
        assert_eq!(result.unwrap().text, "Done.", "{how:?}");
        drop(process);
        assert_eq!(wire(&server), [first_request(), get("resp_1"), told("slow")], "{how:?}");
        let found = world.journal().await;
        assert_eq!(
            found.lines(),
            [
                "turn",
                "ask 1",
                "begun resp_1",
                "accept call_slow",
                "start call_slow #1",
                "dropped as lost [call_slow]",
                "settle call_slow done",
                "ask 2",
                "begun resp_2",
                "accepted resp_2",
                "end completed",
            ]
        );
        assert_eq!(found.calls(), json!([["orphan", "call_slow", { "ready": did("slow", "{}") }]]));
        assert_eq!(found.rest(), over("resp_2"));
        assert_eq!(world.runs.all(), ["slow call_slow"]);
        assert_eq!(server.violations(), []);
    }
}

/// A turn whose first response is lost while a call that must not run twice runs.
async fn lost_payment(harness: &'static str) -> (World, Server, TurnResult) {
    let script = Script::new("payment")
        .step(breaks_after_a_call("call_pay", "pay", "break"))
        .step(Answer::new().text("Done.").expect(Expect::new().no_previous().only_outputs([])));
    let server = serve(script).await;
    let world = World::new();
    let process = world.process(Setup::on(&server).harness(harness)).await;
    let (result, ()) = tokio::join!(process.turn(process.options()), async {
        world.seen.wait_for("start call_pay #1").await;
        server.release("break");
        world.seen.wait_for("dropped as lost [call_pay]").await;
        world.release("pay");
    });
    (world, server, result.unwrap())
}

const LOST_PAYMENT: [&str; 8] = [
    "turn",
    "ask 1",
    "begun resp_1",
    "accept call_pay",
    "start call_pay #1",
    "dropped as lost [call_pay]",
    "pause for the lost [call_pay]",
    "settle call_pay done",
];

#[tokio::test]
async fn after_a_lost_response_with_a_payment_the_turn_waits_for_an_operator() {
    // covers L57, L58, L59, L62, G17
    let (world, server, result) = lost_payment("").await;
    assert_eq!(result.status, paused("call_pay"));
    let asked = [first_request(), get("resp_1")];
    assert_eq!(wire(&server), asked);
    let found = world.journal().await;
    assert_eq!(found.lines(), LOST_PAYMENT);
    assert_eq!(found.calls(), json!([["orphan", "call_pay", { "ready": did("pay", "{}") }]]));

    // Resuming is no answer, and a receipt is one to another question.
    let next = world.process(Setup::on(&server)).await;
    assert_eq!(next.resume(next.options()).await.unwrap().status, paused("call_pay"));
    let receipt = Reconcile::Receipt("resp_1".into());
    assert_eq!(next.reconcile(receipt, next.options()).await.unwrap_err().kind, ErrorKind::Store);
    assert_eq!(world.journal().await.lines(), LOST_PAYMENT);
    assert_eq!(wire(&server), asked);

    assert_eq!(next.reconcile(Reconcile::Resend, next.options()).await.unwrap().text, "Done.");
    drop(next);
    assert_eq!(wire(&server), [&asked[..], &[told("pay")]].concat());
    let found = world.journal().await;
    let answered = ["op says resend", "resume", "ask 2", "begun resp_2", "accepted resp_2", "end completed"];
    assert_eq!(found.lines(), [&LOST_PAYMENT[..], &answered].concat());
    assert_eq!(found.rest(), over("resp_2"));
    assert_eq!(world.runs.all(), ["pay call_pay"], "a payment is made once");
}

#[tokio::test]
async fn a_turn_that_waits_after_a_lost_response_can_be_abandoned() {
    // covers L60, G17
    let (world, server, _) = lost_payment("").await;
    let next = world.process(Setup::on(&server)).await;
    let result = next.reconcile(Reconcile::Abandon, next.options()).await.unwrap();
    assert_eq!(result.status, TurnStatus::Abandoned);
    drop(next);
    assert_eq!(wire(&server), [first_request(), get("resp_1")]);
    let found = world.journal().await;
    let answered = ["op says abandon", "dropped as abandoned []", "end abandoned"];
    assert_eq!(found.lines(), [&LOST_PAYMENT[..], &answered].concat());
    let checkpoint = &found.fold.turn().unwrap().checkpoint;
    assert_eq!(checkpoint.host_outcome(), Some(&json!({ "status": "abandoned" })));
    // The session lives on, and its model is told.
    let next = world.process(Setup::on(&server)).await;
    assert_eq!(next.turn(next.options()).await.unwrap().text, "Done.");
    let input = json!([user(INPUT), user(INPUT), lost(&[("pay", &did("pay", "{}"))])]);
    assert_eq!(wire(&server)[2..], [json!({ "on": null, "input": input })]);
    assert_eq!(world.runs.all(), ["pay call_pay"], "a payment is made once");
    assert_eq!(server.violations(), []);
}

#[tokio::test]
async fn where_the_harness_says_continue_the_model_is_told_of_the_payment_at_once() {
    // covers L59
    let (world, server, result) = lost_payment(r#"after_lost_response = "continue""#).await;
    assert_eq!(result.status, TurnStatus::Completed);
    assert_eq!(wire(&server), [first_request(), get("resp_1"), told("pay")]);
    assert_eq!(world.runs.all(), ["pay call_pay"]);
    let found = world.journal().await;
    let told = ["settle call_pay done", "ask 2", "begun resp_2", "accepted resp_2", "end completed"];
    assert_eq!(found.lines_from("settle"), told);
}

/// A turn in which the stream of a continuation breaks while two calls run, one of the accepted response and one of the
/// broken one, and nobody can be asked.
async fn broken_continuation(answered: Expect) -> (World, Server) {
    let script = Script::new("continuation")
        .step(Answer::new().async_function_call("call_slow", "slow", "{}").async_custom_call("call_fast", "fast", "x"))
        .step(
            breaks_after_a_call("call_pay", "pay", "break")
                .if_broken(Retrieved::Completed)
                .expect(Expect::new().latest().only_outputs(["call_fast"])),
        )
        .step(Answer::new().text("Done.").expect(answered));
    let server = serve(script).await;
    let world = World::new();
    world.release("fast");
    let process = world.process(Setup::on(&server).without_retrieval()).await;
    let (result, ()) = tokio::join!(process.turn(process.options()), async {
        world.seen.wait_for("start call_pay #1").await;
        server.release("break");
        server.wait_for_end(2).await.unwrap();
        world.release("slow");
        world.release("pay");
    });
    asks_an_operator(&result.unwrap_err(), r#"the delivery of "call_fast" on response "resp_1""#);
    drop(process);
    let found = world.journal().await;
    assert_eq!(
        found.calls(),
        json!([
            ["call", "call_slow", { "ready": did("slow", "{}") }],
            ["call", "call_fast", { "ready": did("fast", "x") }],
            ["call", "call_pay", { "ready": did("pay", "{}") }],
        ]),
        "what ran was waited for and journaled"
    );
    assert_eq!(found.rest(), uncertain(Some("call_fast"), Some("resp_1")));
    assert_eq!(wire(&server), sent());
    // Opening it again asks nobody.
    let next = world.process(Setup::on(&server).without_retrieval()).await;
    asks_an_operator(&next.resume(next.options()).await.unwrap_err(), "the delivery of \"call_fast\"");
    assert_eq!(world.journal().await.records, found.records);
    assert_eq!(wire(&server), sent());
    (world, server)
}

fn fast_output() -> Value {
    json!({ "type": "custom_tool_call_output", "call_id": "call_fast", "output": did("fast", "x") })
}

fn sent() -> Vec<Value> {
    vec![first_request(), json!({ "on": "resp_1", "input": [fast_output()] })]
}

async fn answer(world: &World, server: &Server, command: Reconcile) -> TurnResult {
    let next = world.process(Setup::on(server).without_retrieval()).await;
    let result = next.reconcile(command, next.options()).await.unwrap();
    assert_eq!(world.runs.all().len(), 3, "nothing ran twice");
    assert_eq!(server.violations(), []);
    result
}

#[tokio::test]
async fn a_broken_continuation_is_sent_again_with_what_was_gained_meanwhile_if_an_operator_says_so() {
    // covers G16, G17, L57, L58, L59
    let (world, server) =
        broken_continuation(Expect::new().previous("resp_1").only_outputs(["call_slow", "call_fast"])).await;
    assert_eq!(answer(&world, &server, Reconcile::Resend).await.text, "Done.");
    let slow = output("call_slow", &did("slow", "{}"));
    let again = json!({ "on": "resp_1", "input": [slow, fast_output(), lost(&[("pay", &did("pay", "{}"))])] });
    assert_eq!(wire(&server), [&sent()[..], &[again]].concat());
    let found = world.journal().await;
    assert_eq!(
        found.lines_from("op"),
        [
            "op says resend",
            "dropped as resend [call_pay]",
            "deliver call_slow call_fast on resp_1",
            "ask 3 on resp_1",
            "begun resp_3",
            "acknowledged by resp_3",
            "end completed",
        ]
    );
    assert_eq!(
        found.calls(),
        json!([
            ["call", "call_slow", "delivered"],
            ["call", "call_fast", "delivered"],
            ["orphan", "call_pay", { "ready": did("pay", "{}") }],
        ])
    );
    assert_eq!(found.rest(), over("resp_3"));
}

#[tokio::test]
async fn a_receipt_for_a_broken_continuation_makes_its_calls_count() {
    // covers G17, J7, L57
    let (world, server) = broken_continuation(Expect::new().latest().only_outputs(["call_slow", "call_pay"])).await;
    // Where nobody can read what it holds, it is no receipt.
    let receipt = || Reconcile::Receipt("resp_2".into());
    let before = world.journal().await.lines();
    let blind = world.process(Setup::on(&server).without_retrieval()).await;
    let refused = blind.reconcile(receipt(), blind.options()).await.unwrap_err();
    drop(blind);
    assert_eq!(refused.kind, ErrorKind::Store);
    assert_eq!(
        refused.message,
        r#"response "resp_2" cannot be read from the provider, so it cannot be taken as the receipt"#
    );
    assert_eq!((world.journal().await.lines(), wire(&server)), (before, sent().to_vec()));

    let next = world.process(Setup::on(&server)).await;
    assert_eq!(next.reconcile(receipt(), next.options()).await.unwrap().text, "Done.");
    drop(next);
    assert_eq!(world.runs.all().len(), 3, "nothing ran twice");
    assert_eq!(server.violations(), []);
    let results = [output("call_slow", &did("slow", "{}")), output("call_pay", &did("pay", "{}"))];
    let read = [get("resp_2"), json!({ "on": "resp_2", "input": results })];
    assert_eq!(wire(&server), [&sent()[..], &read].concat());
    let found = world.journal().await;
    assert_eq!(
        found.lines_from("op"),
        [
            "op says receipt resp_2",
            "acknowledged by resp_2",
            "deliver call_slow call_pay on resp_2",
            "ask 3 on resp_2",
            "begun resp_3",
            "acknowledged by resp_3",
            "end completed",
        ]
    );
    let all =
        [["call", "call_slow", "delivered"], ["call", "call_fast", "delivered"], ["call", "call_pay", "delivered"]];
    assert_eq!(found.calls(), json!(all));
    assert_eq!(found.rest(), over("resp_3"));
}

#[tokio::test]
async fn a_broken_continuation_that_is_abandoned_sends_nothing_and_the_session_goes_on() {
    // covers G17, L60
    let (world, server) = broken_continuation(Expect::new().previous("resp_1")).await;
    assert_eq!(answer(&world, &server, Reconcile::Abandon).await.status, TurnStatus::Abandoned);
    assert_eq!(wire(&server), sent());
    let found = world.journal().await;
    assert_eq!(
        found.lines_from("op"),
        ["op says abandon", "dropped as abandoned [call_slow call_fast call_pay]", "end abandoned"]
    );
    assert_eq!(
        found.calls(),
        json!([
            ["orphan", "call_slow", { "ready": did("slow", "{}") }],
            ["orphan", "call_fast", { "ready": did("fast", "x") }],
            ["orphan", "call_pay", { "ready": did("pay", "{}") }],
        ])
    );
    let next = world.process(Setup::on(&server).without_retrieval()).await;
    assert_eq!(next.turn(next.options()).await.unwrap().text, "Done.");
    // What the accepted response called is answered now, and of the broken one's call the model is told.
    let slow = output("call_slow", &did("slow", "{}"));
    let input = json!([slow, fast_output(), user(INPUT), lost(&[("pay", &did("pay", "{}"))])]);
    assert_eq!(wire(&server), [&sent()[..], &[json!({ "on": "resp_1", "input": input })]].concat());
}

#[tokio::test]
async fn abandoning_after_a_crash_settles_what_ran_as_cancelled() {
    // covers L60, G17, H1
    let script = Script::new("crash")
        .step(Answer::new().async_function_call("call_pay", "pay", "{}"))
        .step(Answer::new().text("Done.").expect(Expect::new().latest()));
    let server = serve(script).await;
    let world = World::new();
    let process = world.process(Setup::on(&server)).await;
    tokio::select! {
        result = process.turn(process.options()) => panic!("the turn waits for its call: {result:?}"),
        () = world.seen.wait_for("accepted resp_1") => {}
    }
    drop(process);
    let next = world.process(Setup::on(&server)).await;
    let result = next.reconcile(Reconcile::Abandon, next.after_a_crash()).await.unwrap();
    assert_eq!(result.status, TurnStatus::Abandoned);
    drop(next);
    let found = world.journal().await;
    assert_eq!(
        found.lines_from("op"),
        ["op says abandon", "settle call_pay cancelled", "dropped as abandoned [call_pay]", "end abandoned"]
    );
    assert_eq!(found.calls(), json!([["orphan", "call_pay", { "ready": r#"{"error":"cancelled"}"# }]]));
    assert_eq!(wire(&server), [first_request()]);
    let next = world.process(Setup::on(&server)).await;
    assert_eq!(next.turn(next.options()).await.unwrap().text, "Done.");
    let unknown = r#"{"error":"this call was cut off when its turn was abandoned: its outcome is unknown, and it must not be retried automatically"}"#;
    let input = json!([output("call_pay", unknown), user(INPUT)]);
    assert_eq!(wire(&server)[1..], [json!({ "on": "resp_1", "input": input })]);
    assert_eq!(world.runs.all(), ["pay call_pay"], "a payment is made once");
}
