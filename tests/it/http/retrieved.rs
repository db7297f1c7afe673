//! A response whose stream broke is asked for by its id: what each answer means, and exactly which requests are made.

use serde_json::{Value, json};
use wharf::TurnStatus;
use wharf::core::record::PauseReason;
use wharf_simulate::script::{Omitted, Retrieved};
use wharf_simulate::{Answer, Expect, Script, Server};

use super::kit::*;

/// How often a response that stays in progress is asked for: each two seconds, while another look still fits the minute.
const LOOKS: usize = 30;

/// An answer with a call that breaks off behind the call, and what a GET says of it then.
fn broken(says: impl IntoIterator<Item = Retrieved>, is_really: Retrieved) -> Answer {
    breaks_after_a_call("call_slow", "slow", "break").retrieve(says).if_broken(is_really)
}

/// Runs a turn whose first response breaks off like this; whatever is asked next is answered with "Done.".
async fn run(answer: Answer, next: Expect) -> (World, Server, Result<wharf::TurnResult, wharf::core::Error>) {
    let server = serve(Script::new("broken").step(answer).step(Answer::new().text("Done.").expect(next))).await;
    let world = World::new();
    world.release("slow");
    let process = world.process(Setup::on(&server)).await;
    let (result, ()) = tokio::join!(process.turn(process.options()), async {
        world.seen.wait_for("settle call_slow done").await;
        server.release("break");
    });
    assert_eq!(server.violations(), []);
    (world, server, result)
}

fn delivery() -> Value {
    json!({ "on": "resp_1", "input": [output("call_slow", &did("slow", "{}"))] })
}

fn told() -> Value {
    json!({ "on": null, "input": [user(INPUT), lost(&[("slow", &did("slow", "{}"))])] })
}

const BEGINNING: [&str; 6] =
    ["turn", "ask 1", "begun resp_1", "accept call_slow", "start call_slow #1", "settle call_slow done"];

fn journal(rest: &[&str]) -> Vec<String> {
    BEGINNING.iter().chain(rest).map(|line| (*line).to_owned()).collect()
}

#[tokio::test]
async fn a_response_that_turns_out_completed_is_the_receipt_and_its_calls_count() {
    // covers G15, G20, O19, P21
    let next = Expect::new().latest().only_outputs(["call_slow"]);
    let (world, server, result) = run(broken([], Retrieved::Completed), next).await;
    assert_eq!(result.unwrap().text, "Done.");
    assert_eq!(wire(&server), [first_request(), get("resp_1"), delivery()]);
    let journal_now = world.journal().await;
    assert_eq!(
        journal_now.lines(),
        journal(&[
            "accepted resp_1",
            "deliver call_slow on resp_1",
            "ask 2 on resp_1",
            "begun resp_2",
            "acknowledged by resp_2",
            "end completed",
        ])
    );
    assert_eq!(journal_now.calls(), json!([["call", "call_slow", "delivered"]]));
    assert_eq!(world.runs.all(), ["slow call_slow"]);
}

#[tokio::test]
async fn a_response_in_progress_is_asked_for_again_until_it_is_completed() {
    // covers G15, G20
    let says = [Retrieved::Queued, Retrieved::InProgress, Retrieved::Completed];
    let next = Expect::new().latest().only_outputs(["call_slow"]);
    let (world, server, result) = run(broken(says, Retrieved::Completed), next).await;
    assert_eq!(result.unwrap().text, "Done.");
    assert_eq!(wire(&server), [first_request(), get("resp_1"), get("resp_1"), get("resp_1"), delivery()]);
    assert_eq!(world.journal().await.rest(), over("resp_2"));
}

#[tokio::test]
async fn a_response_that_stays_in_progress_counts_as_lost_after_a_bound() {
    // covers G15, G19, G20, L58, L59
    let (world, server, result) =
        run(broken([Retrieved::InProgress], Retrieved::NotFound), Expect::new().no_previous()).await;
    assert_eq!(result.unwrap().text, "Done.");
    let asked = [vec![first_request()], vec![get("resp_1"); LOOKS], vec![told()]].concat();
    assert_eq!(wire(&server), asked);
    let journal_now = world.journal().await;
    assert_eq!(
        journal_now.lines(),
        journal(&["dropped as lost [call_slow]", "ask 2", "begun resp_2", "accepted resp_2", "end completed"])
    );
    assert_eq!(journal_now.calls(), json!([["orphan", "call_slow", { "ready": did("slow", "{}") }]]));
}

#[tokio::test]
async fn a_response_that_turns_out_incomplete_is_the_receipt_and_the_turn_stops_with_its_reason() {
    // covers G15, G20, L66
    let answer = broken([], Retrieved::Incomplete).incomplete("max_output_tokens");
    let (world, server, result) = run(answer, Expect::new().latest().only_outputs(["call_slow"])).await;
    let reason = PauseReason::Incomplete { reason: "max_output_tokens".to_owned() };
    assert_eq!(result.unwrap().status, TurnStatus::Paused(reason));
    let asked = [first_request(), get("resp_1")];
    assert_eq!(wire(&server), asked);
    let found = world.journal().await;
    assert_eq!(found.lines(), journal(&["accepted resp_1", "pause for max_output_tokens"]));
    assert_eq!(found.rest(), at_rest("resp_1"));

    let next = world.process(Setup::on(&server)).await;
    assert_eq!(next.resume(next.options()).await.unwrap().text, "Done.");
    assert_eq!(wire(&server), [&asked[..], &[delivery()]].concat());
}

#[tokio::test]
async fn a_response_that_turns_out_failed_or_cancelled_was_not_accepted_and_the_model_is_asked_anew() {
    // covers G15, G20, L58, L59
    for state in [Retrieved::Failed, Retrieved::Cancelled] {
        let (world, server, result) = run(broken([], state), Expect::new().no_previous()).await;
        assert_eq!(result.unwrap().text, "Done.", "{state:?}");
        assert_eq!(wire(&server), [first_request(), get("resp_1"), told()], "{state:?}");
        let journal_now = world.journal().await;
        assert_eq!(
            journal_now.lines(),
            journal(&[
                "dropped as not_accepted [call_slow]",
                "ask 2",
                "begun resp_2",
                "accepted resp_2",
                "end completed"
            ])
        );
        assert_eq!(journal_now.calls(), json!([["orphan", "call_slow", { "ready": did("slow", "{}") }]]));
    }
}

#[tokio::test]
async fn a_response_that_is_not_found_proves_nothing() {
    // covers G15, G19, G20
    let (world, server, result) = run(broken([], Retrieved::NotFound), Expect::new().no_previous()).await;
    assert_eq!(result.unwrap().text, "Done.");
    assert_eq!(wire(&server), [first_request(), get("resp_1"), told()]);
    assert_eq!(
        world.journal().await.lines(),
        journal(&["dropped as lost [call_slow]", "ask 2", "begun resp_2", "accepted resp_2", "end completed"])
    );
}

#[tokio::test]
async fn calls_that_never_streamed_are_taken_from_the_retrieved_response() {
    // covers G15, G20, P10
    let answer = Answer::new()
        .text("I look.")
        .function_call("call_note", "note", "{}")
        .abort_after(2)
        .if_broken(Retrieved::Completed);
    let script = Script::new("early")
        .step(answer)
        .step(Answer::new().text("Done.").expect(Expect::new().latest().only_outputs(["call_note"])));
    let server = serve(script).await;
    let world = World::new();
    world.release("note");
    let process = world.process(Setup::on(&server)).await;
    assert_eq!(process.turn(process.options()).await.unwrap().text, "Done.");
    drop(process);
    let delivery = json!({ "on": "resp_1", "input": [output("call_note", &did("note", "{}"))] });
    assert_eq!(wire(&server), [first_request(), get("resp_1"), delivery]);
    assert_eq!(
        world.journal().await.lines(),
        [
            "turn",
            "ask 1",
            "begun resp_1",
            "accept call_note",
            "accepted resp_1",
            "start call_note #1",
            "settle call_note done",
            "deliver call_note on resp_1",
            "ask 2 on resp_1",
            "begun resp_2",
            "acknowledged by resp_2",
            "end completed",
        ]
    );
}

#[tokio::test]
async fn a_response_whose_id_was_never_seen_or_that_cannot_be_asked_for_is_not_asked_for() {
    // covers G15, G19, L55
    let unseen = Answer::new().text("I look.").omit(Omitted::Created).omit(Omitted::InProgress).abort_after(1);
    let seen = Answer::new().text("I look.").abort_after(3).if_broken(Retrieved::Completed);
    for (answer, retrieval, begun) in [(unseen, true, false), (seen, false, true)] {
        let script =
            Script::new("unasked").step(answer).step(Answer::new().text("Done.").expect(Expect::new().no_previous()));
        let server = serve(script).await;
        let world = World::new();
        let setup = Setup::on(&server);
        let process = world.process(if retrieval { setup } else { setup.without_retrieval() }).await;
        assert_eq!(process.turn(process.options()).await.unwrap().text, "Done.");
        drop(process);
        assert_eq!(wire(&server), [first_request(), first_request()]);
        let lines = world.journal().await.lines();
        assert_eq!(lines.contains(&"begun resp_1".to_owned()), begun);
        assert!(lines.contains(&"dropped as lost []".to_owned()), "{lines:?}");
    }
}

#[tokio::test]
async fn a_second_loss_in_a_row_is_not_sent_a_third_time() {
    // covers G16, G19
    let lost = || Answer::new().text("I look.").abort_after(3);
    let server = serve(Script::new("lost").step(lost()).step(lost())).await;
    let world = World::new();
    let process = world.process(Setup::on(&server)).await;
    let error = process.turn(process.options()).await.unwrap_err();
    asks_an_operator(&error, "the last request");
    assert_eq!(wire(&server), [first_request(), get("resp_1"), first_request(), get("resp_2")]);
    drop(process);
    let found = world.journal().await;
    assert_eq!(found.lines(), ["turn", "ask 1", "begun resp_1", "dropped as lost []", "ask 2", "begun resp_2"]);
    // Each opening asks again, because an answer may be there by now; nothing is sent.
    let next = world.process(Setup::on(&server)).await;
    asks_an_operator(&next.resume(next.options()).await.unwrap_err(), "the last request");
    assert_eq!(wire(&server)[4..], [get("resp_2")]);
    assert_eq!(world.journal().await.records, found.records);
}

#[tokio::test]
async fn a_broken_continuation_is_settled_by_retrieval_as_well() {
    // covers G15, G20, J7
    let script = Script::new("continuation")
        .step(Answer::new().async_custom_call("call_fast", "fast", "x"))
        .step(Answer::new().text("All is done.").abort_after(3).if_broken(Retrieved::Completed));
    let server = serve(script).await;
    let world = World::new();
    world.release("fast");
    let process = world.process(Setup::on(&server)).await;
    let result = process.turn(process.options()).await.unwrap();
    assert_eq!((result.status, result.text.as_str()), (TurnStatus::Completed, "All is done."));
    drop(process);
    let fast = json!({ "type": "custom_tool_call_output", "call_id": "call_fast", "output": did("fast", "x") });
    assert_eq!(wire(&server), [first_request(), json!({ "on": "resp_1", "input": [fast] }), get("resp_2")]);
    let found = world.journal().await;
    assert_eq!(
        found.lines_from("deliver"),
        ["deliver call_fast on resp_1", "ask 2 on resp_1", "begun resp_2", "acknowledged by resp_2", "end completed"]
    );
    assert_eq!(found.rest(), over("resp_2"));
}
