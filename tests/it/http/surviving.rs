//! A call that runs when its turn stops with an error is not killed half way: it runs to its end, and its result is
//! journaled for whoever goes on.

use serde_json::{Value, json};
use wharf::core::ErrorKind;
use wharf::{TurnOptions, TurnStatus};
use wharf_simulate::{Answer, Expect, HttpReply, Script, Server, Step};

use super::kit::*;

fn payment() -> Answer {
    Answer::new().async_function_call("call_pay", "pay", "{}").async_custom_call("call_fast", "fast", "x")
}

fn outputs() -> Value {
    let fast = json!({ "type": "custom_tool_call_output", "call_id": "call_fast", "output": did("fast", "x") });
    json!([output("call_pay", &did("pay", "{}")), fast])
}

/// The payment was made once, its result is there, and the next process delivers it.
async fn survived(world: &World, server: &Server) {
    let found = world.journal().await;
    assert_eq!(found.calls()[0], json!(["call", "call_pay", { "ready": did("pay", "{}") }]));
    assert_eq!(found.rest(), at_rest("resp_1"));
    let next = world.process(Setup::on(server)).await;
    assert_eq!(next.resume(next.options()).await.unwrap().status, TurnStatus::Completed);
    drop(next);
    assert_eq!(wire(server).last(), Some(&json!({ "on": "resp_1", "input": outputs() })));
    assert_eq!(world.runs.all(), ["pay call_pay", "fast call_fast"], "a payment is made once");
    assert_eq!(server.violations(), []);
}

#[tokio::test]
async fn a_payment_runs_to_its_end_although_the_next_request_is_refused() {
    // covers L57, L45
    let script = Script::new("refused")
        .step(payment())
        .step(Step::from(HttpReply::rate_limited("0")))
        .step(Answer::new().text("Paid.").expect(Expect::new().latest().only_outputs(["call_pay", "call_fast"])));
    let server = serve(script).await;
    let world = World::new();
    world.release("fast");
    let process = world.process(Setup::on(&server)).await;
    let (result, ()) = tokio::join!(process.turn(process.options()), async {
        world.seen.wait_for("dropped as refused []").await;
        world.release("pay");
    });
    assert_eq!(result.unwrap_err().kind, ErrorKind::Provider);
    drop(process);
    survived(&world, &server).await;
}

#[tokio::test]
async fn a_payment_runs_to_its_end_although_the_limit_of_responses_is_reached() {
    // covers L57, L43
    let script = Script::new("limit")
        .step(payment())
        .step(Answer::new().text("Paid.").expect(Expect::new().latest().only_outputs(["call_pay", "call_fast"])));
    let server = serve(script).await;
    let world = World::new();
    world.release("fast");
    let process = world.process(Setup::on(&server)).await;
    let options = TurnOptions { max_responses: Some(1), ..process.options() };
    let (result, ()) = tokio::join!(process.turn(options), async {
        world.seen.wait_for("settle call_fast done").await;
        world.seen.wait_for("accepted resp_1").await;
        world.release("pay");
    });
    assert_eq!(result.unwrap_err().kind, ErrorKind::Config);
    drop(process);
    survived(&world, &server).await;
}
