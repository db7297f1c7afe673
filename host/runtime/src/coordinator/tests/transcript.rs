//! Transcript messages, outcomes and release: L37 to L40, G18, Q13.

use wharf_core::model::{Completion, Outcome, Retrieved, Usage};

use super::*;
use crate::testing::{StoreFault, StoreOp, completion, finished, started};

#[test]
fn a_message_and_its_request_begin_in_one_save() {
    // covers L37
    let world = World::new();
    world.sim.run(async {
        let mut c = world.started().await;
        world.store.mend();
        c.begin_transcript_message("m1", whole()).await.unwrap();
        assert_eq!(world.store.count(StoreOp::Append), 1);
        assert_eq!(world.tail(1), ["begun 1 whole message"]);
        let document = c.checkpoint().unwrap().to_json();
        assert_eq!(json!([document["transcript_message_id"], document["response_in_flight"]]), json!(["m1", true]));
        assert_eq!(kind(c.begin_transcript_message("m2", whole()).await), ErrorKind::Store);
        world.read(&mut c, [finished("r1", "stop")]).await.unwrap();
        assert_eq!(
            c.begin_transcript_message("m2", on("r1")).await,
            Err(Error::store("a transcript message cannot begin while another one is open"))
        );
    });
    assert_eq!(world.tail(3), ["completed r1", "recorded r1 stop", "flight cleared"]);
}

#[test]
fn a_summary_is_staged_once_for_each_response_and_never_in_flight() {
    // covers L38, Q13
    let world = World::new();
    world.sim.run(async {
        let mut c = world.started().await;
        assert_eq!(kind(c.stage_summary(json!(1)).await), ErrorKind::Store, "no message is open");
        c.begin_transcript_message("m1", whole()).await.unwrap();
        assert_eq!(kind(c.stage_summary(json!(1)).await), ErrorKind::Store, "in flight");
        world.read(&mut c, [finished("r1", "stop")]).await.unwrap();
        c.stage_summary(json!({ "tokens": 7 })).await.unwrap();
        assert_eq!(kind(c.stage_summary(json!(2)).await), ErrorKind::Store, "one too many");
        assert_eq!(c.checkpoint().unwrap().host_responses(), [json!({ "tokens": 7 })]);
    });
    assert_eq!(world.tail(1), ["summary"]);
}

#[test]
fn a_message_is_committed_by_its_own_id_once_nothing_is_in_flight() {
    // covers L39
    let world = World::new();
    world.sim.run(async {
        let mut c = world.started().await;
        c.begin_transcript_message("m1", whole()).await.unwrap();
        assert_eq!(kind(c.commit_transcript("m1").await), ErrorKind::Store, "in flight");
        world.read(&mut c, [finished("r1", "stop")]).await.unwrap();
        assert_eq!(kind(c.commit_transcript("m2").await), ErrorKind::Store, "another id");
        assert!(!c.may_complete());
        c.commit_transcript("m1").await.unwrap();
        assert!(c.may_complete());
        assert_eq!(kind(c.commit_transcript("m1").await), ErrorKind::Store, "it is committed");
    });
    assert_eq!(world.tail(1), ["committed"]);
}

#[test]
fn outcome_and_release_need_a_turn_that_may_complete() {
    // covers L40
    let world = World::new();
    world.sim.run(async {
        let mut c = world.answered([call("h1", "gate")]).await;
        let before = world.journal();
        assert_eq!(kind(c.store_outcome(json!("x")).await), ErrorKind::Store);
        assert_eq!(kind(c.end_turn("completed").await), ErrorKind::Store);
        assert_eq!(kind(c.release().await), ErrorKind::Store);
        assert_eq!(world.journal(), before);
        let declined = wharf_core::step::Decision::Decline { output: "no".to_owned() };
        c.decide(&"h1".into(), declined).await.unwrap();
        world.requester.answer([finished("r2", "stop")]);
        assert_eq!(world.run(&mut c, 9).await, Ok(Rest::Finished));
        c.store_outcome(json!({ "text": "done" })).await.unwrap();
        c.end_turn("completed").await.unwrap();
        c.release().await.unwrap();
        assert_eq!(c.release().await, Err(Error::store("the coordinator gave its lease up")));
        assert_eq!(c.start_turn(Vec::new()).await, Err(Error::store("the coordinator gave its lease up")));
        assert_eq!(c.checkpoint().unwrap().host_outcome(), Some(&json!({ "text": "done" })));
        world.open().await.expect("the lease is free");
    });
    assert_eq!(world.tail(2), [r#"outcome {"text":"done"}"#, "turn ended completed"]);
}

#[test]
fn a_run_leaves_one_summary_for_each_response_with_usage_and_first_token_time() {
    // covers L38, Q13
    let world = World::new();
    world.executor.plan("s1", crate::testing::Ending::output("1"));
    let used = |n: u64| Some(Usage { fresh_input: n, visible_output: 2 * n, total: 3 * n, ..Usage::default() });
    let item = json!({ "type": "function_call", "call_id": "s1" });
    world.requester.answer([
        started("r1"),
        Step::Wait(std::time::Duration::from_millis(40)),
        Step::text("let me look"),
        Step::sync_call(call("s1", "note")),
        Step::completed(Completion {
            usage: used(10),
            model: Some("m-1".to_owned()),
            items: vec![item],
            ..completion("r1", "tool_calls")
        }),
    ]);
    world.requester.answer([Step::completed(Completion { usage: used(7), ..completion("r2", "stop") })]);
    world.sim.run(async {
        let mut c = world.started().await;
        assert_eq!(world.run(&mut c, 9).await, Ok(Rest::Finished));
        drop(c);
        let c = world.reopen().await.unwrap();
        let usage = |n: u64| {
            json!({
                "fresh_input": n, "cache_read": 0, "cache_write": 0, "visible_output": 2 * n, "reasoning": 0, "total": 3 * n,
            })
        };
        assert_eq!(
            c.checkpoint().unwrap().host_responses(),
            [
                json!({
                    "response_id": "r1", "model": "m-1", "finish_reason": "tool_calls", "tool_calls": 1,
                    "first_token_ms": 40, "usage": usage(10),
                }),
                json!({
                    "response_id": "r2", "model": null, "finish_reason": "stop", "tool_calls": 0,
                    "first_token_ms": null, "usage": usage(7),
                }),
            ]
        );
    });
}

#[test]
fn a_message_whose_summary_was_staged_is_committed_on_opening() {
    // covers G18, L39
    let world = World::new();
    world.requester.answer([finished("r1", "stop")]);
    world.sim.run(async {
        let mut c = world.started().await;
        // begun, accepted, summary, and the fourth is lost with the process.
        world.store.fail_at(StoreOp::Append, 4, StoreFault::Broken);
        world.run(&mut c, 9).await.expect_err("the store broke");
        world.store.mend();
        drop(c);
        let mut c = world.reopen().await.unwrap();
        assert_eq!(world.tail(2), ["summary", "committed"]);
        assert_eq!(world.run(&mut c, 9).await, Ok(Rest::Finished));
    });
    assert_eq!(world.requester.asks().len(), 1);
}

#[test]
fn a_message_whose_response_was_accepted_gets_its_summary_on_opening() {
    // covers G18
    let world = World::new();
    world.requester.answer([finished("r1", "stop")]);
    world.sim.run(async {
        let mut c = world.started().await;
        world.store.fail_at(StoreOp::Append, 3, StoreFault::Broken);
        world.run(&mut c, 9).await.expect_err("the store broke");
        world.store.mend();
        drop(c);
        let mut c = world.reopen().await.unwrap();
        assert_eq!(world.tail(3), ["flight cleared", "summary", "committed"]);
        assert_eq!(c.checkpoint().unwrap().host_responses(), [json!({ "response_id": "r1" })]);
        assert_eq!(world.run(&mut c, 9).await, Ok(Rest::Finished));
    });
    assert_eq!(world.requester.asks().len(), 1);
}

#[test]
fn a_message_is_finished_in_a_process_that_lives_on_too() {
    // covers G18, L57
    let mut world = World::new();
    let held = Completion { usage: Some(Usage { total: 9, ..Usage::default() }), ..completion("r1", "stop") };
    world.retriever = Some(ScriptedRetriever::new([Ok(Retrieved::Ended { completion: held, calls: Vec::new() })]));
    world.requester.answer([started("r1"), Step::Fail(failure(Fate::Unknown))]);
    world.sim.run(async {
        let mut c = world.started().await;
        assert_eq!(world.run(&mut c, 9).await, Err(failure(Fate::Unknown).error));
        c.settle_uncertain().await.unwrap();
        assert_eq!(world.tail(3), ["flight cleared", "summary", "committed"]);
        assert_eq!(c.checkpoint().unwrap().host_responses()[0]["usage"]["total"], 9);
        assert_eq!(world.run(&mut c, 9).await, Ok(Rest::Finished));
    });
    assert_eq!(world.requester.asks().len(), 1);
}

#[test]
fn a_message_whose_response_was_not_accepted_is_dropped() {
    // covers G18, L66
    let world = World::new();
    world.requester.answer([Step::completed(Completion {
        outcome: Outcome::Failed { code: String::new(), message: "it broke".to_owned() },
        ..completion("r1", "error")
    })]);
    world.requester.answer([finished("r2", "stop")]);
    world.sim.run(async {
        let mut c = world.started().await;
        assert_eq!(kind(world.run(&mut c, 9).await), ErrorKind::Provider);
        assert_eq!(world.tail(2), ["flight not_accepted", "transcript dropped"]);
        assert_eq!(world.run(&mut c, 9).await, Ok(Rest::Finished));
        assert_eq!(c.checkpoint().unwrap().host_responses().len(), 1);
    });
}
