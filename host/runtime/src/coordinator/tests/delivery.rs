//! Preparing deliveries: L30, L35, and what of group I shows at this level.

use wharf_core::model::Delivery;
use wharf_core::record::PauseReason;

use super::*;
use crate::coordinator::Prepared;
use crate::testing::{Ending, Gate, StoreFault, StoreOp, finished};

#[test]
fn preparing_waits_for_the_sync_calls_and_saves_before_it_returns() {
    // covers L30
    let world = World::new();
    world.sim.run(async {
        let mut c = world.answered([background("a1", "look"), call("s1", "note"), background("a2", "look")]).await;
        world.executor.launched(3).await;
        world.executor.settle("a2", Ending::output("2"));
        let script = async {
            world.sim.idle().await;
            assert!(!world.journal().iter().any(|line| line.starts_with("delivery")), "s1 still runs");
            world.executor.settle("s1", Ending::output("1"));
        };
        let (prepared, ()) = futures::join!(c.prepare_delivery(), script);
        let output = |id: &str, text: &str| json!({ "type": "function_call_output", "call_id": id, "output": text });
        let delivery = Delivery {
            previous_response_id: "r1".into(),
            call_ids: ids(&["s1", "a2"]),
            input: vec![output("s1", "1"), output("a2", "2")],
            after: Vec::new(),
        };
        assert_eq!(prepared, Ok(Prepared::Delivery(delivery.clone())));
        assert_eq!(world.tail(1), ["delivery s1 a2 on r1"]);
        assert_eq!(c.checkpoint().unwrap().delivery(), Some(&delivery));
        assert_eq!(kind(c.prepare_delivery().await), ErrorKind::Store, "one is open");
        assert_eq!(states(&c)["a1"], "Running");
    });
}

#[test]
fn preparing_does_not_wait_for_async_calls_and_finds_nothing() {
    // covers L30
    let world = World::new();
    world.sim.run(async {
        let mut c = world.answered([background("a1", "look")]).await;
        assert_eq!(c.prepare_delivery().await, Ok(Prepared::Nothing));
        c.begin_response(on("r1")).await.unwrap();
        assert_eq!(kind(c.prepare_delivery().await), ErrorKind::Store, "a response is in flight");
    });
}

#[test]
fn while_a_sync_call_is_held_nothing_is_sent() {
    // covers L30, L61
    let world = World::new();
    world.sim.run(async {
        let mut c = world.answered([call("h1", "gate"), call("s1", "note"), background("a1", "look")]).await;
        world.executor.launched(2).await;
        let script = async {
            world.sim.idle().await;
            world.executor.settle("s1", Ending::output("1"));
        };
        let paused = Prepared::Paused(PauseReason::Held { calls: ids(&["h1"]) });
        let (prepared, ()) = futures::join!(c.prepare_delivery(), script);
        assert_eq!(prepared, Ok(paused.clone()), "it waited for s1, and a1 may go on");
        assert_eq!(states(&c), json!({ "h1": "Queued", "s1": ready("1"), "a1": "Running" }));
        world.executor.settle("a1", Ending::output("2"));
        c.wait_job().await.unwrap();
        assert_eq!(c.prepare_delivery().await, Ok(paused));
        assert_eq!(world.run(&mut c, 9).await, Ok(Rest::Paused(PauseReason::Held { calls: ids(&["h1"]) })));
    });
    assert_eq!(world.requester.asks(), []);
    assert!(!world.journal().iter().any(|line| line.starts_with("delivery")));
}

#[test]
fn a_ready_call_without_a_response_to_go_on_from_is_an_error() {
    // covers L30, I4
    let world = World::new();
    world.executor.plan("s1", Ending::output("1"));
    world.sim.run(async {
        let mut c = world.started().await;
        c.register(call("s1", "note").into()).await.unwrap();
        assert_eq!(kind(c.prepare_delivery().await), ErrorKind::Store);
    });
    assert_eq!(world.tail(1), ["settled s1 done: 1"]);
}

#[test]
fn jobs_go_on_while_a_save_is_pending() {
    // covers L35
    let world = World::new();
    let gate = Gate::new();
    world.sim.run(async {
        let mut c = world.answered([background("a1", "look"), background("a2", "look")]).await;
        world.executor.launched(2).await;
        world.store.fail_at(StoreOp::Append, 1, StoreFault::Late(gate.clone()));
        let script = async {
            world.sim.idle().await;
            assert!(gate.is_reached(), "the save is pending");
            // Both jobs run to their end meanwhile; their results wait to be saved.
            world.executor.settle("a1", Ending::output("1"));
            world.executor.settle("a2", Ending::output("2"));
            world.sim.idle().await;
            assert_eq!(world.executor.dropped(), []);
            gate.open();
        };
        let (done, ()) = futures::join!(c.register(call("s1", "note").into()), script);
        assert_eq!(done, Ok(()));
        while c.running() > 1 {
            c.wait_job().await.unwrap();
        }
        assert_eq!(states(&c), json!({ "a1": ready("1"), "a2": ready("2"), "s1": "Running" }));
    });
}

#[test]
fn one_delivery_takes_what_is_ready_and_a_later_one_the_rest() {
    // covers L30, L41
    let world = World::new();
    world.executor.plan("a1", Ending::output("1"));
    world.requester.answer([finished("r2", "stop")]);
    world.requester.answer([finished("r3", "stop")]);
    world.sim.run(async {
        let mut c = world.answered([background("a2", "look"), background("a1", "look")]).await;
        let script = async {
            world.sim.idle().await;
            assert_eq!(world.requester.asks().len(), 1, "a2 runs, and a1 is delivered meanwhile");
            world.executor.settle("a2", Ending::output("2"));
        };
        assert_eq!(futures::join!(world.run(&mut c, 9), script).0, Ok(Rest::Finished));
    });
    let asked: Vec<_> = world
        .requester
        .asks()
        .into_iter()
        .map(|ask| {
            let delivery = ask.delivery.expect("each has one");
            (delivery.previous_response_id, delivery.call_ids, ask.latest, ask.async_open)
        })
        .collect();
    assert_eq!(
        asked,
        [("r1".into(), ids(&["a1"]), Some("r1".into()), true), ("r2".into(), ids(&["a2"]), Some("r2".into()), true),]
    );
}
