//! Requests that were not accepted, and requests of which nobody knows: what is sent again by itself, and what never is.

use serde_json::{Value, json};
use wharf::TurnStatus;
use wharf::core::ErrorKind;
use wharf::core::record::Reconcile;
use wharf_simulate::{Answer, Expect, HttpReply, Script, Step};

use super::kit::*;

fn fast_call() -> Answer {
    Answer::new().async_custom_call("call_fast", "fast", "x")
}

fn fast_output() -> Value {
    json!({ "type": "custom_tool_call_output", "call_id": "call_fast", "output": did("fast", "x") })
}

#[tokio::test]
async fn a_refused_continuation_with_an_async_call_open_is_one_request_and_nothing_is_lost() {
    // covers O9, G14, G13, L45, L57
    let script = Script::new("refused")
        .step(Answer::new().async_function_call("call_slow", "slow", "{}").async_custom_call("call_fast", "fast", "x"))
        .step(Step::from(HttpReply::missing_output("call_slow")))
        .step(
            Answer::new()
                .text("Both are there.")
                .expect(Expect::new().latest().only_outputs(["call_slow", "call_fast"])),
        );
    let server = serve(script).await;
    let world = World::new();
    world.release("fast");
    let process = world.process(Setup::on(&server)).await;
    let (result, ()) = tokio::join!(process.turn(process.options()), async {
        world.seen.wait_for("dropped as refused []").await;
        // The call still runs, and its result is worth waiting for.
        world.release("slow");
    });
    let error = result.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Provider);
    assert_eq!(
        error.message,
        r#"provider "sim" answered 400 (invalid_request_error): No tool output found for function call call_slow."#
    );
    let sent = [first_request(), json!({ "on": "resp_1", "input": [fast_output()] })];
    assert_eq!(wire(&server), sent);
    drop(process);

    let found = world.journal().await;
    assert_eq!(
        found.calls(),
        json!([
            ["call", "call_slow", { "ready": did("slow", "{}") }],
            ["call", "call_fast", { "ready": did("fast", "x") }],
        ])
    );
    assert_eq!(found.rest(), at_rest("resp_1"));

    let next = world.process(Setup::on(&server)).await;
    assert_eq!(next.resume(next.options()).await.unwrap().status, TurnStatus::Completed);
    drop(next);
    let both = json!({ "on": "resp_1", "input": [output("call_slow", &did("slow", "{}")), fast_output()] });
    assert_eq!(wire(&server), [&sent[..], &[both]].concat());
    assert_eq!(world.journal().await.rest(), over("resp_2"));
    assert_eq!(world.runs.all(), ["slow call_slow", "fast call_fast"]);
    assert_eq!(server.violations(), []);
}

#[tokio::test]
async fn a_refused_continuation_that_carries_an_async_call_is_one_request_whatever_it_is_refused_for() {
    // covers O9, G14, V4
    let refusals = [
        HttpReply::missing_output("call_fast"),
        HttpReply::previous_not_found(400, "resp_1"),
        HttpReply::previous_not_found(404, "resp_1"),
        HttpReply::unauthorized(),
        HttpReply::rate_limited("0"),
    ];
    for refusal in refusals {
        let status = refusal.status;
        let script = Script::new("refused")
            .step(fast_call())
            .step(Step::from(refusal))
            .step(Answer::new().text("Done.").expect(Expect::new().latest().only_outputs(["call_fast"])));
        let server = serve(script).await;
        let world = World::new();
        world.release("fast");
        let process = world.process(Setup::on(&server)).await;
        assert_eq!(process.turn(process.options()).await.unwrap_err().kind, ErrorKind::Provider, "{status}");
        drop(process);
        let continuation = json!({ "on": "resp_1", "input": [fast_output()] });
        assert_eq!(wire(&server), [first_request(), continuation.clone()], "{status}");
        let found = world.journal().await;
        assert_eq!(
            found.lines_from("deliver"),
            ["deliver call_fast on resp_1", "ask 2 on resp_1", "dropped as refused []"]
        );
        assert_eq!(found.calls(), json!([["call", "call_fast", { "ready": did("fast", "x") }]]));
        assert_eq!(found.rest(), at_rest("resp_1"));

        let next = world.process(Setup::on(&server)).await;
        assert_eq!(next.resume(next.options()).await.unwrap().text, "Done.");
        assert_eq!(wire(&server), [first_request(), continuation.clone(), continuation], "{status}");
    }
}

#[tokio::test]
async fn a_refused_first_request_is_one_request_and_the_next_process_sends_it_again() {
    // covers G13, G14, L45, V4, V6
    for status in [400, 401, 403, 404, 409, 413, 422, 429] {
        let script = Script::new("refused")
            .step(Step::from(HttpReply::error(status, "no", "No.").header("retry-after", "0")))
            .step(Answer::new().text("Done."));
        let server = serve(script).await;
        let world = World::new();
        let process = world.process(Setup::on(&server)).await;
        let error = process.turn(process.options()).await.unwrap_err();
        assert_eq!(
            (error.kind, error.message),
            (ErrorKind::Provider, format!(r#"provider "sim" answered {status} (no): No."#))
        );
        drop(process);
        assert_eq!(wire(&server), [first_request()], "{status}");
        let found = world.journal().await;
        assert_eq!(found.lines(), ["turn", "ask 1", "dropped as refused []"]);
        assert_eq!(found.rest(), at_its_beginning());

        let next = world.process(Setup::on(&server)).await;
        assert_eq!(next.resume(next.options()).await.unwrap().text, "Done.");
        drop(next);
        assert_eq!(wire(&server), [first_request(), first_request()], "{status}");
        assert_eq!(
            world.journal().await.lines(),
            ["turn", "ask 1", "dropped as refused []", "ask 2", "begun resp_1", "accepted resp_1", "end completed"]
        );
    }
}

#[tokio::test]
async fn a_request_that_found_no_server_was_not_sent_and_goes_to_the_next_one() {
    // covers G13, G14
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = nobody.local_addr().unwrap();
    drop(nobody);
    let world = World::new();
    let process = world.process(Setup::at(format!("http://{address}/v1"))).await;
    let error = process.turn(process.options()).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Provider);
    assert!(
        error.message.starts_with(&format!("provider \"sim\" cannot be reached at http://{address}/v1")),
        "{error}"
    );
    drop(process);
    let found = world.journal().await;
    assert_eq!(found.lines(), ["turn", "ask 1", "dropped as not_sent []"]);
    assert_eq!(found.rest(), at_its_beginning());

    let server = serve(Script::new("there").step(Answer::new().text("Done."))).await;
    let next = world.process(Setup::on(&server)).await;
    assert_eq!(next.resume(next.options()).await.unwrap().text, "Done.");
    assert_eq!(wire(&server), [first_request()]);
}

/// Answers after which nobody knows whether the request was accepted.
fn unknown() -> [(&'static str, Step); 3] {
    [
        ("500", Step::from(HttpReply::server_error())),
        ("503", Step::from(HttpReply::error(503, "overloaded", "Overloaded."))),
        ("no answer", Step::drop_connection()),
    ]
}

#[tokio::test]
async fn a_first_request_of_unknown_fate_is_sent_again_once_and_then_an_operator_is_asked() {
    // covers G13, G16, G17, G19
    for (what, fault) in unknown() {
        let script = Script::new("unknown").step(fault.clone()).step(fault).step(Answer::new().text("Done."));
        let server = serve(script).await;
        let world = World::new();
        let process = world.process(Setup::on(&server)).await;
        let error = process.turn(process.options()).await.unwrap_err();
        asks_an_operator(&error, "the last request");
        drop(process);
        assert_eq!(wire(&server), [first_request(), first_request()], "{what}");
        let found = world.journal().await;
        assert_eq!(found.lines(), ["turn", "ask 1", "dropped as lost []", "ask 2"]);
        assert_eq!(found.rest(), uncertain(None, None));

        // Opening it again changes nothing and sends nothing.
        let next = world.process(Setup::on(&server)).await;
        asks_an_operator(&next.resume(next.options()).await.unwrap_err(), "the last request");
        assert_eq!(world.journal().await.records, found.records);
        assert_eq!(server.requests().len(), 2);
        assert_eq!(next.reconcile(Reconcile::Resend, next.options()).await.unwrap().text, "Done.");
        assert_eq!(server.requests().len(), 3);
        drop(next);
        assert_eq!(
            world.journal().await.lines_from("ask 2"),
            [
                "ask 2",
                "op says resend",
                "dropped as resend []",
                "ask 3",
                "begun resp_1",
                "accepted resp_1",
                "end completed"
            ]
        );
    }
}

#[tokio::test]
async fn a_continuation_of_unknown_fate_is_never_sent_again_by_itself() {
    // covers G13, G16, G17, G3
    for (what, fault) in unknown() {
        let script = Script::new("unknown")
            .step(fast_call())
            .step(fault)
            .step(Answer::new().text("Done.").expect(Expect::new().latest().only_outputs(["call_fast"])));
        let server = serve(script).await;
        let world = World::new();
        world.release("fast");
        let process = world.process(Setup::on(&server)).await;
        let error = process.turn(process.options()).await.unwrap_err();
        let delivery = r#"the delivery of "call_fast" on response "resp_1""#;
        asks_an_operator(&error, delivery);
        drop(process);
        let continuation = json!({ "on": "resp_1", "input": [fast_output()] });
        let sent = [first_request(), continuation.clone()];
        assert_eq!(wire(&server), sent, "{what}");
        let found = world.journal().await;
        assert_eq!(found.lines_from("deliver"), ["deliver call_fast on resp_1", "ask 2 on resp_1"]);
        assert_eq!(found.rest(), uncertain(Some("call_fast"), Some("resp_1")));

        for _ in 0..2 {
            let next = world.process(Setup::on(&server)).await;
            asks_an_operator(&next.resume(next.options()).await.unwrap_err(), delivery);
        }
        assert_eq!(world.journal().await.records, found.records);
        assert_eq!(wire(&server), sent, "{what}");
        let next = world.process(Setup::on(&server)).await;
        assert_eq!(next.reconcile(Reconcile::Resend, next.options()).await.unwrap().text, "Done.");
        assert_eq!(wire(&server), [&sent[..], &[continuation]].concat(), "{what}");
        assert_eq!(world.runs.all(), ["fast call_fast"]);
        assert_eq!(server.violations(), []);
    }
}

#[tokio::test]
async fn where_the_harness_says_resend_a_continuation_of_unknown_fate_is_sent_again_once() {
    // covers G19
    let script = Script::new("unknown")
        .step(fast_call())
        .step(Step::from(HttpReply::server_error()))
        .step(Answer::new().text("Done.").expect(Expect::new().latest().only_outputs(["call_fast"])));
    let server = serve(script).await;
    let world = World::new();
    world.release("fast");
    let process = world.process(Setup::on(&server).harness(r#"on_unknown = "resend""#)).await;
    assert_eq!(process.turn(process.options()).await.unwrap().text, "Done.");
    drop(process);
    let continuation = json!({ "on": "resp_1", "input": [fast_output()] });
    assert_eq!(wire(&server), [first_request(), continuation.clone(), continuation]);
    assert_eq!(
        world.journal().await.lines_from("deliver"),
        [
            "deliver call_fast on resp_1",
            "ask 2 on resp_1",
            "dropped as lost []",
            "deliver call_fast on resp_1",
            "ask 3 on resp_1",
            "begun resp_2",
            "acknowledged by resp_2",
            "end completed",
        ]
    );
}
