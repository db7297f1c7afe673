//! The journal as its owner sees it, under virtual time: L11, L36, L63.

use std::time::Duration;

use super::*;
use crate::limits;
use crate::seams::Seams;
use crate::testing::{Ending, Gate, StoreFault, StoreOp, finished, started};

const POISON: &str = "append failed: the test wants it";

#[test]
fn an_append_that_fails_for_good_poisons_the_coordinator() {
    // covers L11
    for fault in [StoreFault::Broken, StoreFault::Fenced] {
        let world = World::new();
        world.sim.run(async {
            let mut c = world.answered([background("a1", "pay"), background("a2", "look")]).await;
            world.executor.launched(2).await;
            let before = world.journal();
            world.store.fail_all(StoreOp::Append, fault.clone());
            assert_eq!(kind(c.register(call("s1", "note").into()).await), ErrorKind::Store);
            world.sim.idle().await;
            world.store.mend();
            let mut dropped = world.executor.dropped();
            dropped.sort();
            assert_eq!(dropped, ids(&["a1", "a2"]), "its jobs are aborted");

            let first = c.wait_job().await.expect_err("it is poisoned");
            assert_eq!(first.kind, ErrorKind::Store);
            let all = [
                c.register(call("s2", "note").into()).await,
                c.start_turn(Vec::new()).await.map(drop),
                c.begin_response(on("r1")).await,
                c.begin_transcript_message("m", on("r1")).await,
                world.read(&mut c, [finished("r2", "stop")]).await.map(drop),
                world.run(&mut c, 9).await.map(drop),
                c.settle_uncertain().await,
                c.wait_job().await.map(drop),
                c.prepare_delivery().await.map(drop),
                c.cancel().await,
                c.resume("why").await,
                c.reconcile(Reconcile::Abandon, "op").await,
                c.decide(&"a1".into(), wharf_core::step::Decision::Output { output: String::new() }).await,
                c.stage_summary(json!({})).await,
                c.commit_transcript("m").await,
                c.store_outcome(json!({})).await,
                c.end_turn("completed").await,
                c.park("why").await,
                c.release().await,
            ];
            for (at, result) in all.into_iter().enumerate() {
                assert_eq!(result, Err(first.clone()), "operation {at}");
            }
            assert_eq!(world.journal(), before);
            assert_eq!(states(&c)["a1"], "Running", "reading still works");
        });
        assert_eq!(world.executor.runs(), ["a1#1", "a2#1"], "the executor was never called for s1");
        assert_eq!(world.requester.asks(), []);
    }
}

#[test]
fn a_request_is_not_sent_if_its_record_is_not_durable() {
    // covers L11
    let world = World::new();
    world.requester.answer([finished("r1", "stop")]);
    world.sim.run(async {
        let mut c = world.started().await;
        world.store.fail_at(StoreOp::Append, 1, StoreFault::Broken);
        assert_eq!(world.run(&mut c, 9).await.map_err(|e| e.message), Err(POISON.to_owned()));
    });
    assert_eq!(world.requester.asks(), []);
}

#[test]
fn an_operation_that_was_dropped_in_mid_work_poisons_the_coordinator() {
    // covers L11
    let world = World::new();
    world.sim.run(async {
        let mut c = world.answered([background("a1", "pay")]).await;
        world.executor.launched(1).await;
        world.store.fail_at(StoreOp::Append, 1, StoreFault::Late(Gate::new()));
        let dropped = Box::pin(c.register(call("s1", "note").into()));
        futures::future::select(dropped, world.sim.sleep(Duration::from_secs(1))).await;
        assert_eq!(kind(c.wait_job().await), ErrorKind::Store);
        assert_eq!(kind(c.cancel().await), ErrorKind::Store);
        world.sim.idle().await;
        assert_eq!(world.executor.dropped(), ids(&["a1"]));
    });
    assert_eq!(world.executor.runs(), ["a1#1"]);
}

#[test]
fn the_lease_is_renewed_while_streaming_requesting_retrieving_and_waiting() {
    // covers L36
    let minutes = Duration::from_secs(5 * 60);
    let mut world = World::new();
    world.retriever = Some(ScriptedRetriever::new([]));
    let (slow, gate) = (Gate::new(), Gate::new());
    world.requester.answer_behind(
        &slow,
        [started("r1"), Step::Wait(minutes), Step::call(background("a1", "look")), finished("r1", "tool_calls")],
    );
    world.requester.answer([started("r2"), Step::Gate(gate)]);
    world.sim.run(async {
        let mut c = world.started().await;
        world.store.mend(); // counts from here
        let script = async {
            world.sim.sleep(minutes).await;
            let requesting = world.store.count(StoreOp::Renew);
            assert!(requesting >= 29, "{requesting} renewals while requesting");
            slow.open();
            world.executor.launched(1).await;
            let streaming = world.store.count(StoreOp::Renew) - requesting;
            assert!(streaming >= 29, "{streaming} renewals while streaming");
            world.sim.sleep(minutes).await;
            let waiting = world.store.count(StoreOp::Renew) - streaming - requesting;
            assert!(waiting >= 29, "{waiting} renewals while waiting");
            c_is_owner(&world).await;
            world.executor.settle("a1", Ending::output("1"));
            world.sim.sleep(minutes).await;
        };
        let run = Box::pin(world.run(&mut c, 9));
        futures::future::select(run, Box::pin(script)).await;
        // The second answer hangs; what became of it is asked, and that hangs too, up to its bound.
        let before = world.store.count(StoreOp::Renew);
        assert_eq!(kind(c.settle_uncertain().await), ErrorKind::Store);
        let retrieving = world.store.count(StoreOp::Renew) - before;
        assert!(retrieving >= 5, "{retrieving} renewals while retrieving");
        c_is_owner(&world).await;
    });
}

async fn c_is_owner(world: &World) {
    let error = world.open().await.map(drop).expect_err("the lease is held");
    assert!(error.message.contains("is in use by"), "{error}");
}

#[test]
fn a_stream_that_never_pauses_holds_up_neither_a_renewal_nor_a_cancel() {
    // covers L36, Q15
    let world = World::new();
    world.sim.run(async {
        let mut c = world.streaming().await;
        world.store.mend();
        let handle = c.handle();
        let sim = world.sim.clone();
        let mut pieces = 0;
        // Always ready, and each piece takes a second.
        let endless = futures::stream::poll_fn(move |_| {
            sim.advance(Duration::from_secs(1));
            pieces += 1;
            if pieces == 300 {
                handle.cancel();
            }
            std::task::Poll::Ready((pieces < 1_000).then(|| Ok(wharf_core::model::StreamEvent::Text("x".to_owned()))))
        });
        let read = c.read_response(Box::pin(endless), &mut world.observer.clone()).await;
        assert_eq!(kind(read), ErrorKind::Cancelled);
        assert_eq!(world.observer.seen().len(), 300);
        assert!((29..=31).contains(&world.store.count(StoreOp::Renew)), "{}", world.store.count(StoreOp::Renew));
    });
}

#[test]
fn a_renewal_that_fails_for_good_poisons_the_coordinator_and_aborts_its_jobs() {
    // covers L36
    for fault in [StoreFault::Broken, StoreFault::Fenced] {
        let world = World::new();
        world.sim.run(async {
            let mut c = world.answered([background("a1", "pay")]).await;
            world.executor.launched(1).await;
            world.store.fail_all(StoreOp::Renew, fault.clone());
            assert_eq!(kind(c.wait_job().await), ErrorKind::Store);
            assert_eq!(world.sim.now(), limits::RENEW_EVERY);
            world.sim.idle().await;
            assert_eq!(world.executor.dropped(), ids(&["a1"]));
            assert_eq!(kind(c.cancel().await), ErrorKind::Store);
        });
    }
}

#[test]
fn a_short_outage_is_not_a_lost_owner() {
    // covers L63
    let world = World::new();
    world.sim.run(async {
        let mut c = world.answered([background("a1", "pay")]).await;
        world.executor.launched(1).await;
        let (sim, end) = (world.sim.clone(), Duration::from_secs(39));
        world.store.set_rule(move |op, _| {
            let busy = if op == StoreOp::Append { StoreFault::Busy } else { StoreFault::LostRequest };
            (sim.now() < end).then_some(busy)
        });
        world.executor.settle("a1", Ending::output("paid"));
        assert_eq!(c.wait_job().await, Ok(true));
        assert!(world.sim.now() >= end && world.sim.now() < Duration::from_secs(40));
        assert_eq!(states(&c), json!({ "a1": ready("paid") }));
        c.register(call("s1", "note").into()).await.unwrap();
    });
    assert_eq!(world.tail(3), ["settled a1 done: paid", "accepted s1 note sync never", "started s1 #1"]);
}

#[test]
fn an_append_is_retried_until_a_third_of_the_lease_is_left() {
    // covers L63
    let world = World::new();
    world.sim.run(async {
        let mut c = world.answered([background("a1", "pay")]).await;
        world.executor.launched(1).await;
        world.store.fail_all(StoreOp::Append, StoreFault::Busy);
        let error = c.register(call("s1", "note").into()).await.expect_err("it never works");
        assert_eq!((error.kind, error.message.as_str()), (ErrorKind::Store, POISON));
        // Sixty seconds from the last append: it gave up before forty were over, and not much before.
        let (now, third) = (world.sim.now(), limits::LEASE_TTL * 2 / 3);
        assert!(now <= third && now + limits::RETRY_MAX >= third, "{now:?}");
        assert!(world.store.count(StoreOp::Append) > 15, "it tried {} times", world.store.count(StoreOp::Append));
        world.sim.idle().await;
        assert_eq!(world.executor.dropped(), ids(&["a1"]));
    });
    assert_eq!(world.executor.runs(), ["a1#1"]);
}

#[test]
fn a_renewal_is_retried_until_a_third_of_the_lease_is_left() {
    // covers L63, L36
    // field case STATE-6
    for fault in [StoreFault::Busy, StoreFault::LostRequest] {
        let world = World::new();
        world.sim.run(async {
            let mut c = world.answered([background("a1", "pay")]).await;
            world.executor.launched(1).await;
            world.store.fail_all(StoreOp::Renew, fault.clone());
            assert_eq!(kind(c.wait_job().await), ErrorKind::Store);
            let (now, third) = (world.sim.now(), limits::LEASE_TTL * 2 / 3);
            assert!(now <= third && now + limits::RETRY_MAX >= third, "{now:?}");
            world.sim.idle().await;
            assert_eq!(world.executor.dropped(), ids(&["a1"]), "it stopped before its lease ended");
            world.store.mend();
            c_is_owner(&world).await;
        });
    }
}

#[test]
fn a_store_that_does_not_answer_is_not_waited_for_beyond_the_lease() {
    // covers L63
    for op in [StoreOp::Append, StoreOp::Renew] {
        let world = World::new();
        world.sim.run(async {
            let mut c = world.answered([background("a1", "pay")]).await;
            world.executor.launched(1).await;
            world.store.fail_all(op, StoreFault::Late(Gate::new()));
            if op == StoreOp::Append {
                world.executor.settle("a1", Ending::output("paid"));
            }
            let error = c.wait_job().await.expect_err("nothing answers");
            assert_eq!(error.kind, ErrorKind::Store);
            assert!(error.message.ends_with("could not be renewed in time, so this process stopped acting"), "{error}");
            assert_eq!(world.sim.now(), limits::LEASE_TTL * 2 / 3);
        });
    }
}

#[test]
fn an_append_whose_answer_was_lost_is_found_by_reading_back() {
    // covers L63
    let world = World::new();
    world.sim.run(async {
        let mut c = world.answered([]).await;
        world.timeline.take();
        world.store.fail_at(StoreOp::Append, 1, StoreFault::LostAnswer);
        c.register(call("s1", "note").into()).await.unwrap();
        world.sim.idle().await;
        assert_eq!(
            world.timeline.take(),
            ["accepted s1 note sync never", "started s1 #1", "run s1 #1"],
            "it is there, so nothing is appended twice"
        );
        assert_eq!((world.store.count(StoreOp::Append), world.store.count(StoreOp::Load)), (1, 1));
        world.store.mend();
        c.register(call("s2", "note").into()).await.unwrap();
    });
    assert_eq!(world.tail(4)[2..], ["accepted s2 note sync never", "started s2 #1"]);
}

#[test]
fn an_append_that_was_lost_is_made_again() {
    // covers L63
    let world = World::new();
    world.sim.run(async {
        let mut c = world.answered([]).await;
        world.store.fail_at(StoreOp::Append, 1, StoreFault::LostRequest);
        c.register(call("s1", "note").into()).await.unwrap();
        world.sim.idle().await;
        assert_eq!((world.store.count(StoreOp::Append), world.store.count(StoreOp::Load)), (2, 1));
    });
    assert_eq!(world.tail(2), ["accepted s1 note sync never", "started s1 #1"]);
    assert_eq!(world.executor.runs(), ["s1#1"]);
}

#[test]
fn an_append_that_landed_while_nothing_could_be_read_is_found_later() {
    // covers L63
    let world = World::new();
    world.sim.run(async {
        let mut c = world.answered([]).await;
        // The answer is lost, reading back fails twice, and so the append is tried again: it is stale then, and found.
        world.store.set_rule(|op, count| match (op, count) {
            (StoreOp::Append, 1) => Some(StoreFault::LostAnswer),
            (StoreOp::Load, 1) => Some(StoreFault::Busy),
            (StoreOp::Load, 2) => Some(StoreFault::LostRequest),
            _ => None,
        });
        c.register(call("s1", "note").into()).await.unwrap();
        world.sim.idle().await;
        assert_eq!((world.store.count(StoreOp::Append), world.store.count(StoreOp::Load)), (3, 3));
    });
    assert_eq!(world.tail(3), ["committed", "accepted s1 note sync never", "started s1 #1"]);
    assert_eq!(world.executor.runs(), ["s1#1"]);
}

#[test]
fn records_of_another_owner_are_not_taken_for_ours() {
    // covers L63
    let world = World::new();
    world.sim.run(async {
        let mut c = world.answered([]).await;
        let before = world.journal();
        // The request is lost, and before it is made again somebody takes over and writes.
        world.store.fail_at(StoreOp::Append, 1, StoreFault::LostRequest);
        let script = async {
            while world.store.count(StoreOp::Load) == 0 {
                world.sim.idle().await;
            }
            let mut other = world.reopen().await.unwrap();
            other.register(call("s9", "look").into()).await.unwrap();
        };
        let (failed, ()) = futures::join!(c.register(call("s1", "note").into()), script);
        let failed = failed.expect_err("the lease is another's");
        assert_eq!((failed.kind, failed.message.contains("fenced")), (ErrorKind::Store, true), "{failed}");
        assert_eq!(world.journal()[before.len()..], ["accepted s9 look sync safe", "started s9 #1"]);
    });
    assert!(!world.executor.runs().contains(&"s1#1".to_owned()));
}

#[test]
fn an_owner_that_slept_past_its_lease_stops_by_its_own_clock() {
    // covers L63
    // field case STATE-6
    let world = World::new();
    world.sim.run(async {
        let mut c = world.answered([background("a1", "pay")]).await;
        world.executor.launched(1).await;
        world.store.mend();
        world.sim.advance(limits::LEASE_TTL);
        let error = c.register(call("s1", "note").into()).await.expect_err("it is too late");
        assert_eq!(error.kind, ErrorKind::Store);
        assert_eq!(world.store.count(StoreOp::Append), 0, "it does not even try");
        world.sim.idle().await;
        assert_eq!(world.executor.dropped(), ids(&["a1"]));
    });
    let world = World::new();
    world.sim.run(async {
        let mut c = world.answered([]).await;
        world.sim.advance(limits::LEASE_TTL - Duration::from_millis(1));
        assert_eq!(c.register(call("s1", "note").into()).await, Ok(()), "the lease is still there");
    });
}

#[test]
fn what_is_done_stays_done_where_the_lease_cannot_be_given_up() {
    // covers L40, N5
    for fault in [StoreFault::Broken, StoreFault::Fenced, StoreFault::Late(Gate::new())] {
        for parks in [false, true] {
            let world = World::new();
            world.requester.answer([finished("r1", "stop")]);
            world.sim.run(async {
                let mut c = world.started().await;
                if parks {
                    world.store.fail_all(StoreOp::Release, fault.clone());
                    assert_eq!(c.park("it waits").await, Ok(()));
                } else {
                    assert_eq!(world.run(&mut c, 1).await, Ok(Rest::Finished));
                    c.end_turn("completed").await.unwrap();
                    world.store.fail_all(StoreOp::Release, fault.clone());
                    assert_eq!(c.release().await, Ok(()));
                }
                assert_eq!(kind(c.wait_job().await), ErrorKind::Store, "it is unusable all the same");
            });
            let last = if parks { "parked: it waits" } else { "turn ended completed" };
            assert_eq!(world.tail(1), [last]);
        }
    }
}
