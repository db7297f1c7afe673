//! Opening a journal: L1, L15, L33, L34, and what of group G shows at this level.

use wharf_core::policy::RefusalReason;
use wharf_core::record::Settlement;
use wharf_store::{Append, NewRecord, Owner, Store};

use super::*;
use crate::testing::{Ending, StoreFault, StoreOp, finished};

const INTERRUPTED: &str = wharf_core::checkpoint::INTERRUPTED;

#[test]
fn opening_recovers_saves_and_then_launches_what_waits_in_order() {
    // covers L1, G4, G5, G6, G12
    let world = World::new();
    world.sim.run(async {
        let c = world
            .answered([
                background("l1", "look"),
                background("p1", "pay"),
                background("b1", "bank"),
                background("h1", "gate"),
                call("n1", "note"),
            ])
            .await;
        world.executor.launched(4).await;
        drop(c);
        world.timeline.take();
        let c = world.reopen().await.unwrap();
        world.sim.idle().await;
        let interrupted = json!({ "error": INTERRUPTED }).to_string();
        assert_eq!(
            states(&c),
            json!({ "l1": "Running", "p1": ready(&interrupted), "b1": "Running", "h1": "Queued", "n1": ready(&interrupted) })
        );
        let key = world.executor.launches()[2].idempotency_key.clone().unwrap();
        assert_eq!(
            world.timeline.take(),
            [
                "requeued l1".to_owned(),
                format!("settled p1 interrupted: {interrupted}"),
                "requeued b1".to_owned(),
                format!("settled n1 interrupted: {interrupted}"),
                "started l1 #2".to_owned(),
                format!("started b1 #2 key {key}"),
                "run l1 #2".to_owned(),
                "run b1 #2".to_owned(),
            ]
        );
    });
    assert_eq!(world.executor.runs(), ["l1#1", "p1#1", "b1#1", "n1#1", "l1#2", "b1#2"]);
}

#[test]
fn an_error_in_any_step_fails_the_opening_and_gives_the_lease_up() {
    // covers L1
    let world = World::new();
    world.sim.run(async {
        let mut c = world.answered([background("l1", "look")]).await;
        world.executor.launched(1).await;
        c.abort().await;

        world.store.fail_at(StoreOp::Acquire, 1, StoreFault::Broken);
        assert_eq!(kind(world.open().await.map(drop)), ErrorKind::Store);
        world.store.fail_at(StoreOp::Load, 1, StoreFault::Broken);
        assert_eq!(kind(world.open().await.map(drop)), ErrorKind::Store);
        world.store.fail_at(StoreOp::Append, 1, StoreFault::Broken);
        assert_eq!(kind(world.open().await.map(drop)), ErrorKind::Store);
        world.store.mend();
        world.executor.set_policy("look", Err(Error::config("no answer")));
        assert_eq!(world.open().await.map(drop), Err(Error::config("no answer")));
        world.sim.idle().await;
        assert_eq!(world.executor.runs(), ["l1#1"]);
        assert_eq!(world.tail(1), ["committed"], "nothing was changed");

        world.executor.set_policy("look", Ok(CallPolicy::start().with_async().with_replay(ReplayClass::Safe)));
        let _c = world.open().await.expect("nobody holds the lease");
        world.sim.idle().await;
    });
    assert_eq!(world.executor.runs(), ["l1#1", "l1#2"]);
}

#[test]
fn dropping_the_coordinator_aborts_its_tasks() {
    // covers L33, L57
    let world = World::new();
    world.sim.run(async {
        let c = world.answered([background("l1", "look"), background("p1", "pay")]).await;
        world.executor.launched(2).await;
        drop(c);
    });
    let mut dropped = world.executor.dropped();
    dropped.sort();
    assert_eq!(dropped, ids(&["l1", "p1"]));
    assert_eq!(world.tail(1), ["committed"], "what became of them is not known");
}

#[test]
fn safe_calls_run_once_more_after_a_drop_and_both_results_are_delivered() {
    // covers L34
    let world = World::new();
    world.sim.run(async {
        let mut c = world.answered([background("l1", "look"), background("l2", "look")]).await;
        world.executor.launched(2).await;
        world.executor.settle("l1", Ending::output("one"));
        c.wait_job().await.unwrap();
        drop(c);
        world.executor.plan("l2", Ending::output("two"));
        world.requester.answer([finished("r2", "stop")]);
        world.requester.answer([finished("r3", "stop")]);
        let mut c = world.reopen().await.unwrap();
        assert_eq!(world.run(&mut c, 9).await, Ok(Rest::Finished));
    });
    assert_eq!(world.executor.runs(), ["l1#1", "l2#1", "l2#2"]);
    let delivered: Vec<_> =
        world.requester.asks().into_iter().filter_map(|ask| Some(ask.delivery?.input)).flatten().collect();
    let output = |id: &str, text: &str| json!({ "type": "function_call_output", "call_id": id, "output": text });
    assert_eq!(delivered, [output("l1", "one"), output("l2", "two")]);
}

#[test]
fn large_outputs_come_back_whole() {
    // covers L34, L65
    let world = World::new();
    let large = "é".repeat(40_000);
    world.sim.run(async {
        let mut c = world.answered([background("l1", "look")]).await;
        world.executor.launched(1).await;
        world.executor.settle("l1", Ending::output(large.as_str()));
        c.wait_job().await.unwrap();
        drop(c);
        let c = world.reopen().await.unwrap();
        assert_eq!(states(&c), json!({ "l1": ready(&large) }));
    });
}

#[test]
fn a_narrower_replay_class_replaces_the_stored_one_before_recovery() {
    // covers L15, L53
    let world = World::new();
    world.sim.run(async {
        let c = world.answered([background("l1", "look"), background("b1", "bank")]).await;
        world.executor.launched(2).await;
        drop(c);
        world.executor.set_policy("look", Ok(CallPolicy::start().with_async()));
        world.executor.set_policy("bank", Ok(CallPolicy::start().with_async()));
        let c = world.reopen().await.unwrap();
        world.sim.idle().await;
        let interrupted = json!({ "error": INTERRUPTED }).to_string();
        assert_eq!(states(&c), json!({ "l1": ready(&interrupted), "b1": ready(&interrupted) }));
    });
    assert_eq!(world.executor.runs(), ["l1#1", "b1#1"]);
    assert_eq!(world.tail(4)[..2], ["narrowed l1", "narrowed b1"]);
}

#[test]
fn any_other_change_of_the_replay_class_is_a_conflict_and_nothing_is_launched_again() {
    // covers L15, L53
    for (tool, now) in [
        ("pay", ReplayClass::Safe),
        ("pay", ReplayClass::Keyed),
        ("look", ReplayClass::Keyed),
        ("bank", ReplayClass::Safe),
    ] {
        let mut world = World::new();
        world.sim.run(async {
            let c = world.answered([background("l0", "look"), background("c1", tool)]).await;
            world.executor.launched(2).await;
            drop(c);
        });
        let before = world.journal();
        world.executor.set_policy(tool, Ok(CallPolicy::start().with_async().with_replay(now)));
        world.sim.run(async {
            assert_eq!(kind(world.reopen().await.map(drop)), ErrorKind::Conflict, "{tool} {now}");
            world.sim.idle().await;
        });
        assert_eq!((world.journal(), world.executor.runs().len()), (before, 2), "{tool} {now}");

        // Who accepts the change goes on; the open call keeps the class that it was made with.
        world.accept_wider = true;
        world.sim.run(async {
            let _c = world.reopen().await.expect("it was accepted");
            world.sim.idle().await;
        });
        let again = world.executor.runs().iter().any(|run| run == "c1#2");
        assert_eq!(again, tool != "pay", "{tool} {now}");
    }
}

#[test]
fn a_waiting_call_that_policy_refuses_now_is_settled_with_the_reason() {
    // covers L1, L64
    let mut world = World::new();
    world.settings.calls_at_once = 1;
    world.sim.run(async {
        let c = world.answered([background("p1", "pay"), background("w1", "write")]).await;
        world.executor.launched(1).await;
        drop(c);
        world.executor.set_policy("write", Ok(CallPolicy::refuse(RefusalReason::Policy, "not any more")));
        let c = world.reopen().await.unwrap();
        world.sim.idle().await;
        assert_eq!(states(&c)["w1"], ready(r#"{"error":"not any more"}"#));
    });
    assert_eq!(world.executor.runs(), ["p1#1"]);
}

#[test]
fn damage_on_disk_is_found_before_anything_is_mended() {
    // covers G1, G3, G11, B11
    let world = World::new();
    world.sim.run(async {
        let c = world.answered([background("l1", "look")]).await;
        world.executor.launched(1).await;
        drop(c);
        let damage = Record::CallSettled { id: "l9".into(), output: String::new(), how: Settlement::Done };
        append_foreign(&world, &damage).await;
        let before = world.journal();
        let error = world.reopen().await.map(drop).expect_err("it is damaged");
        assert_eq!(error.kind, ErrorKind::Corruption);
        assert_eq!(
            error.message,
            r#"record 11 (call.settled) contradicts the journal: call "l9" was settled, and is unknown"#
        );
        assert_eq!(world.journal(), before);
        world.sim.idle().await;
    });
    assert_eq!(world.executor.runs(), ["l1#1"]);
}

/// Writes a record past the coordinator, as a fault on disk or another program would.
async fn append_foreign(world: &World, record: &Record) {
    let owner = Owner { token: "foreign".to_owned(), label: "foreign".to_owned() };
    let store = world.store.inner();
    let lease = store.acquire(&world.key, &owner, std::time::Duration::from_secs(60), Acquire::TakeOver).await.unwrap();
    let encoded = record.encode().unwrap();
    let new = NewRecord {
        id: "foreign-1".into(),
        kind: encoded.kind.to_owned(),
        version: encoded.version,
        at_ms: 0,
        body: encoded.body,
    };
    let append = Append { expected: lease.head, records: vec![new], ..Append::default() };
    store.append(&lease, append).await.unwrap();
}

#[test]
fn a_session_in_use_is_busy_and_a_takeover_stops_its_owner() {
    // covers L1
    // field case STATE-2
    let world = World::new();
    world.sim.run(async {
        let mut first = world.answered([background("p1", "pay")]).await;
        world.executor.launched(1).await;
        let busy = world.open().await.map(drop).expect_err("it is in use");
        assert_eq!(busy.kind, ErrorKind::Store);
        assert!(busy.message.contains("is in use by pid "), "{busy}");

        let second = world.reopen().await.unwrap();
        world.executor.settle("p1", Ending::output("paid"));
        let fenced = first.wait_job().await.expect_err("the lease is another's");
        assert_eq!((fenced.kind, fenced.message.contains("fenced")), (ErrorKind::Store, true));
        assert_eq!(states(&second)["p1"], ready(&json!({ "error": INTERRUPTED }).to_string()));
    });
    assert_eq!(world.tail(1)[0].split(':').next(), Some("settled p1 interrupted"));
}

#[test]
fn opening_for_another_turn_is_refused_before_anything_of_the_open_one_is_settled_or_started() {
    // covers L1, N1
    let world = World::new();
    world.sim.run(async {
        let mut c = world.streaming().await;
        let steps =
            [crate::testing::started("r1"), Step::call(background("p1", "pay")), Step::call(background("l1", "look"))];
        world.read(&mut c, steps).await.expect_err("it breaks");
        world.executor.launched(2).await;
        drop(c);
        let before = world.journal();
        let options = Options { for_new_turn: true, acquire: Acquire::TakeOver, ..world.options() };
        let error = Coordinator::open(options).await.map(drop).expect_err("a turn is open");
        let hint = "wharf session resume SESSION";
        assert_eq!(error, Error::store("a turn of this session is open").hint(hint));
        assert_eq!(world.journal(), before);
        // The lease is free again, and the turn goes on where it was.
        let c = world.open().await.unwrap();
        world.sim.idle().await;
        assert_eq!(states(&c)["p1"], ready(&json!({ "error": INTERRUPTED }).to_string()));
    });
    assert_eq!(world.executor.runs(), ["p1#1", "l1#1"]);
}

#[test]
fn an_output_that_the_store_cannot_read_now_fails_the_opening_and_is_no_missing_one() {
    // covers L1
    use crate::testing::{StoreFault, StoreOp};
    let world = World::new();
    let long = "x".repeat(wharf_core::limits::INLINE_OUTPUT_BYTES_MAX + 1);
    world.sim.run(async {
        world.executor.plan("s1", Ending::output(&long));
        let mut c = world.answered([call("s1", "note")]).await;
        assert_eq!(c.wait_job().await, Ok(true));
        drop(c);
        let before = world.journal();
        for fault in [StoreFault::Broken, StoreFault::Busy] {
            world.store.fail_all(StoreOp::Blob, fault);
            assert_eq!(kind(world.reopen().await.map(drop)), ErrorKind::Store);
            world.store.mend();
            assert_eq!(world.journal(), before);
        }
        // One that is damaged for good harms itself alone.
        world.store.fail_all(StoreOp::Blob, StoreFault::Damaged);
        let c = world.reopen().await.unwrap();
        let output = states(&c)["s1"]["Ready"]["output"].as_str().unwrap().to_owned();
        assert!(output.contains("is missing"), "{output}");
        drop(c);
        world.store.mend();
        assert_eq!(states(&world.reopen().await.unwrap()), json!({ "s1": ready(&long) }));
    });
}
