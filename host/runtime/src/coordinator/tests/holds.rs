//! Calls that wait for somebody: L61, L62, L67, X7, X18.

use wharf_core::record::PauseReason;
use wharf_core::step::Decision;

use super::*;
use crate::testing::{Ending, finished, started};

fn approve(approval: &str) -> Decision {
    Decision::Approve { approval: approval.to_owned() }
}

#[test]
fn a_held_async_call_blocks_nothing() {
    // covers L61
    let world = World::new();
    world.executor.plan("s1", Ending::output("1"));
    world.requester.answer([
        started("r1"),
        Step::call(background("h1", "gate")),
        Step::sync_call(call("s1", "note")),
        finished("r1", "tool_calls"),
    ]);
    world.requester.answer([finished("r2", "stop")]);
    world.sim.run(async {
        let mut c = world.started().await;
        assert_eq!(world.run(&mut c, 9).await, Ok(Rest::Paused(PauseReason::Held { calls: ids(&["h1"]) })));
        assert_eq!(states(&c), json!({ "h1": "Queued", "s1": "Delivered" }));
        assert_eq!(c.checkpoint().unwrap().to_json()["calls"]["h1"]["hold"], "approval");
        assert_eq!(kind(c.store_outcome(json!({})).await), ErrorKind::Store);
        c.park("it waits").await.unwrap();
    });
    assert_eq!(world.requester.asks()[1].delivery.as_ref().unwrap().call_ids, ids(&["s1"]));
    assert_eq!(world.executor.runs(), ["s1#1"]);
    assert_eq!(world.tail(2), ["paused held h1", "parked: it waits"]);
}

#[test]
fn an_approval_starts_the_call_and_is_used_up_by_the_start_record_itself() {
    // covers L61, L67, L62
    let world = World::new();
    world.sim.run(async {
        let mut c = world.answered([call("h1", "gate")]).await;
        assert_eq!(world.run(&mut c, 9).await, Ok(Rest::Paused(PauseReason::Held { calls: ids(&["h1"]) })));
        c.park("it waits").await.unwrap();

        let mut c = world.open().await.unwrap();
        world.sim.idle().await;
        assert_eq!(world.executor.runs(), [""; 0], "opening does not approve");
        c.decide(&"h1".into(), approve("ok-7")).await.unwrap();
        assert_eq!(world.tail(2), ["released h1 by ok-7", "started h1 #1 approval ok-7"]);
        c.resume("decided").await.unwrap();
        world.requester.answer([finished("r2", "stop")]);
        let script = async {
            world.sim.idle().await;
            world.executor.settle("h1", Ending::output("done"));
        };
        assert_eq!(futures::join!(world.run(&mut c, 9), script).0, Ok(Rest::Finished));
        assert_eq!(
            c.decide(&"h1".into(), approve("ok-7")).await,
            Err(Error::config(r#"call "h1" is not held"#)),
            "an approval is for one start"
        );
    });
    assert_eq!(world.executor.runs(), ["h1#1"]);
}

#[test]
fn an_approved_call_that_was_interrupted_does_not_spend_its_approval_again() {
    // covers L67, G5
    let world = World::new();
    world.sim.run(async {
        let mut c = world.answered([background("h1", "gate")]).await;
        c.decide(&"h1".into(), approve("ok-7")).await.unwrap();
        world.executor.launched(1).await;
        drop(c);
        let c = world.reopen().await.unwrap();
        world.sim.idle().await;
        assert_eq!(states(&c)["h1"], ready(&json!({ "error": wharf_core::checkpoint::INTERRUPTED }).to_string()));
    });
    assert_eq!(world.executor.runs(), ["h1#1"]);
    assert_eq!(world.journal().iter().filter(|line| line.contains("approval ok-7")).count(), 1);
}

#[test]
fn no_crash_falls_between_start_and_approval() {
    // covers L67
    use crate::testing::{StoreFault, StoreOp};
    let mut world = World::new();
    world.settings.calls_at_once = 1;
    world.sim.run(async {
        // The only permit is taken, so the approved call waits: released, its approval unspent.
        let mut c = world.answered([background("a1", "pay"), background("h1", "gate")]).await;
        world.executor.launched(1).await;
        c.decide(&"h1".into(), approve("ok-7")).await.unwrap();
        assert_eq!(world.tail(1), ["released h1 by ok-7"]);
        // The append that settles a1 and starts h1 is one: either both are there, or neither.
        world.store.fail_at(StoreOp::Append, 1, StoreFault::Broken);
        world.executor.settle("a1", Ending::output("1"));
        c.wait_job().await.expect_err("the store broke");
        drop(c);
        world.store.mend();
        world.sim.idle().await;
        assert_eq!(world.executor.runs(), ["a1#1"]);

        let _c = world.reopen().await.unwrap();
        world.sim.idle().await;
        assert_eq!(world.executor.runs(), ["a1#1", "h1#1"]);
        assert_eq!(world.tail(1), ["started h1 #1 approval ok-7"]);
    });
}

#[test]
fn an_outside_output_settles_a_call_without_running_it() {
    // covers L61
    let world = World::new();
    world.requester.answer([finished("r2", "stop")]);
    world.sim.run(async {
        let mut c = world.answered([call("f1", "form")]).await;
        assert_eq!(world.run(&mut c, 9).await, Ok(Rest::Paused(PauseReason::Held { calls: ids(&["f1"]) })));
        c.decide(&"f1".into(), Decision::Output { output: "from outside".to_owned() }).await.unwrap();
        c.resume("it came").await.unwrap();
        assert_eq!(world.run(&mut c, 9).await, Ok(Rest::Finished));
    });
    assert_eq!(world.executor.runs(), [""; 0]);
    assert!(world.journal().contains(&"settled f1 outside: from outside".to_owned()));
    assert_eq!(world.requester.asks()[0].delivery.as_ref().unwrap().input[0]["output"], "from outside");
}

#[test]
fn a_declined_call_is_a_result_that_says_so_and_the_turn_goes_on() {
    // covers L61, X18
    let world = World::new();
    world.requester.answer([finished("r2", "stop")]);
    let said = r#"{"error":"ann declined this call: too expensive; it was not executed"}"#;
    world.sim.run(async {
        let mut c = world.answered([call("h1", "gate")]).await;
        c.decide(&"h1".into(), Decision::Decline { output: said.to_owned() }).await.unwrap();
        assert_eq!(world.run(&mut c, 9).await, Ok(Rest::Finished));
    });
    assert_eq!(world.executor.runs(), [""; 0]);
    assert!(world.journal().contains(&format!("settled h1 declined: {said}")));
    assert_eq!(world.requester.asks()[0].delivery.as_ref().unwrap().input[0]["output"], said);
}

#[test]
fn an_output_is_no_approval_and_an_approval_is_no_output() {
    // covers L61, X7
    let world = World::new();
    world.sim.run(async {
        let mut c = world.answered([call("h1", "gate"), call("f1", "form")]).await;
        let before = world.journal();
        let output = Decision::Output { output: "{}".to_owned() };
        for (id, decision) in [("h1", output.clone()), ("f1", approve("ok")), ("x1", approve("ok")), ("x1", output)] {
            assert_eq!(kind(c.decide(&id.into(), decision).await), ErrorKind::Config);
        }
        world.sim.idle().await;
        assert_eq!(world.journal(), before);
        assert_eq!(states(&c), json!({ "h1": "Queued", "f1": "Queued" }));
    });
    assert_eq!(world.executor.runs(), [""; 0]);
}

#[test]
fn a_resume_that_leaves_a_held_call_rests_again_and_says_which() {
    // covers L61, L62, X4
    let world = World::new();
    world.executor.plan("h1", Ending::output("1"));
    world.sim.run(async {
        let mut c = world.answered([call("h1", "gate"), call("h2", "gate")]).await;
        let waits = |calls: &[&str]| Ok(Rest::Paused(PauseReason::Held { calls: ids(calls) }));
        assert_eq!(world.run(&mut c, 9).await, waits(&["h1", "h2"]));
        c.decide(&"h1".into(), approve("ok")).await.unwrap();
        c.resume("one is decided").await.unwrap();
        assert_eq!(world.run(&mut c, 9).await, waits(&["h2"]));
        assert_eq!(states(&c), json!({ "h1": ready("1"), "h2": "Queued" }));
    });
    assert_eq!(world.requester.asks(), []);
}
