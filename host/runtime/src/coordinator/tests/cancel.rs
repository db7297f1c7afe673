//! Cancelling, stopping and giving up: L31, L32, L40, L57, L60, L62, Q15.

use wharf_core::record::PauseReason;

use super::*;
use crate::seams::Seams;
use crate::testing::{Ending, Gate, finished, started};

const CANCELLED: &str = r#"{"error":"cancelled"}"#;

#[test]
fn cancelling_keeps_results_that_finished_before_and_cancels_the_rest() {
    // covers L31, L32, H1, H5
    let mut world = World::new();
    world.settings.calls_at_once = 3;
    world.sim.run(async {
        let calls =
            [background("a1", "pay"), background("a2", "pay"), background("a3", "look"), background("a4", "pay")];
        let mut c = world.answered(calls.into_iter().chain([call("h1", "gate")])).await;
        world.executor.launched(3).await;
        world.executor.settle("a1", Ending::output("one"));
        c.wait_job().await.unwrap();
        world.executor.launched(4).await;
        // Ended, but nobody took notice yet: this result came before the cancel too.
        world.executor.settle("a2", Ending::output("two"));
        world.sim.idle().await;
        c.cancel().await.unwrap();
        assert_eq!(
            states(&c),
            json!({
                "a1": ready("one"), "a2": ready("two"), "a3": ready(CANCELLED), "a4": ready(CANCELLED),
                "h1": ready(CANCELLED),
            })
        );
        assert_eq!(
            world.tail(4)[1..],
            [
                format!("settled a3 cancelled: {CANCELLED}"),
                format!("settled a4 cancelled: {CANCELLED}"),
                format!("settled h1 cancelled: {CANCELLED}"),
            ]
        );
        world.sim.idle().await;
        assert_eq!(world.executor.dropped(), ids(&["a3", "a4"]));
        assert_eq!(c.wait_job().await, Ok(false));
        assert!(!c.may_complete());
        let journal = world.journal();
        c.cancel().await.unwrap();
        assert_eq!(world.journal(), journal, "there is nothing left to cancel");

        world.requester.answer([finished("r2", "stop")]);
        assert_eq!(world.run(&mut c, 1).await, Ok(Rest::Finished));
    });
    let delivery = world.requester.asks().remove(0).delivery.unwrap();
    let outputs: Vec<_> = delivery.input.iter().map(|item| item["output"].clone()).collect();
    assert_eq!(outputs, ["one", "two", CANCELLED, CANCELLED, CANCELLED]);
}

#[test]
fn a_cancel_starts_nothing_in_the_place_of_what_ended() {
    // covers L31
    let mut world = World::new();
    world.settings.calls_at_once = 1;
    world.sim.run(async {
        let mut c = world.answered([background("a1", "pay"), background("a2", "pay")]).await;
        world.executor.launched(1).await;
        world.executor.settle("a1", Ending::output("one"));
        world.sim.idle().await;
        c.cancel().await.unwrap();
        world.sim.idle().await;
    });
    assert_eq!(world.executor.runs(), ["a1#1"]);
    assert_eq!(world.tail(2), ["settled a1 done: one".to_owned(), format!("settled a2 cancelled: {CANCELLED}")]);
}

#[test]
fn a_cancel_from_elsewhere_ends_the_run_with_its_own_error() {
    // covers Q15, L31, L57
    let world = World::new();
    let gate = Gate::new();
    world.requester.answer([
        started("r1"),
        Step::call(background("a1", "pay")),
        Step::sync_call(call("s1", "note")),
        Step::Gate(gate),
    ]);
    world.sim.run(async {
        let mut c = world.started().await;
        let handle = c.handle();
        let script = async {
            world.executor.launched(1).await;
            handle.cancel();
        };
        let (ended, ()) = futures::join!(world.run(&mut c, 9), script);
        assert_eq!(ended, Err(Error::cancelled("the turn was cancelled")));
        assert_eq!(states(&c), json!({ "a1": ready(CANCELLED), "s1": ready(CANCELLED) }));
        assert!(c.checkpoint().unwrap().response_in_flight(), "what the provider made of it is not known");
        world.sim.idle().await;
    });
    assert_eq!(world.executor.dropped(), ids(&["a1"]));
    assert_eq!(
        world.tail(2),
        [format!("settled a1 cancelled: {CANCELLED}"), format!("settled s1 cancelled: {CANCELLED}")]
    );
}

#[test]
fn a_cancel_that_came_before_the_run_sends_nothing() {
    // covers Q15
    let world = World::new();
    world.sim.run(async {
        let mut c = world.started().await;
        c.handle().cancel();
        assert_eq!(kind(world.run(&mut c, 9).await), ErrorKind::Cancelled);
        // Heard once: the next run is another matter.
        world.requester.answer([finished("r1", "stop")]);
        assert_eq!(world.run(&mut c, 9).await, Ok(Rest::Finished));
    });
    assert_eq!(world.requester.asks().len(), 1);
}

#[test]
fn a_result_that_comes_after_a_cancel_does_not_count() {
    // covers L31, E4
    let world = World::new();
    world.sim.run(async {
        let mut c = world.answered([background("a1", "pay"), background("a2", "pay")]).await;
        world.executor.launched(2).await;
        world.executor.settle("a1", Ending::output("late"));
        c.cancel().await.unwrap(); // the job of a1 was not polled again: its result is not there yet
        world.sim.idle().await;
        assert_eq!(c.wait_job().await, Ok(false));
        assert_eq!(states(&c), json!({ "a1": ready(CANCELLED), "a2": ready(CANCELLED) }));
    });
}

#[test]
fn a_stop_starts_nothing_new_and_brings_the_turn_to_rest() {
    // covers L62, L57
    let mut world = World::new();
    world.settings.calls_at_once = 1;
    world.requester.answer([
        Step::call(background("a1", "pay")),
        Step::call(background("a2", "pay")),
        Step::sync_call(call("s1", "note")),
        Step::Wait(std::time::Duration::from_secs(5)),
        finished("r1", "tool_calls"),
    ]);
    world.sim.run(async {
        let mut c = world.started().await;
        let handle = c.handle();
        let script = async {
            world.executor.launched(1).await;
            handle.stop();
            world.sim.sleep(std::time::Duration::from_secs(10)).await;
            world.executor.settle("a1", Ending::output("paid"));
        };
        let (rest, ()) = futures::join!(world.run(&mut c, 9), script);
        assert_eq!(rest, Ok(Rest::Paused(PauseReason::Shutdown)), "the call that ran was waited for");
        assert_eq!(states(&c), json!({ "a1": ready("paid"), "a2": "Queued", "s1": "Queued" }));
        assert_eq!(world.executor.runs(), ["a1#1"]);
        c.park("the host stops").await.unwrap();
        assert_eq!(world.tail(2), ["paused shutdown", "parked: the host stops"]);

        // Any process may open it later.
        for id in ["a2", "s1"] {
            world.executor.plan(id, Ending::output(id));
        }
        world.requester.answer([finished("r2", "stop")]);
        let mut c = world.open().await.unwrap();
        c.resume("a new host").await.unwrap();
        assert_eq!(world.run(&mut c, 9).await, Ok(Rest::Finished));
    });
    assert_eq!(world.executor.runs(), ["a1#1", "a2#1", "s1#1"]);
}

#[test]
fn a_shutdown_gives_what_runs_twenty_seconds_then_ends_it_and_what_may_run_again_does() {
    // covers L57, L62, H1, G4, G12
    let world = World::new();
    world.requester.answer([
        Step::call(background("n1", "pay")),
        Step::call(background("s1", "look")),
        Step::call(background("k1", "bank")),
        finished("r1", "tool_calls"),
    ]);
    world.sim.run(async {
        let mut c = world.started().await;
        let handle = c.handle();
        let script = async {
            world.executor.launched(3).await;
            world.sim.idle().await;
            handle.stop();
            world.sim.now()
        };
        let (rest, told) = futures::join!(world.run(&mut c, 9), script);
        assert_eq!(rest, Ok(Rest::Paused(PauseReason::Shutdown)));
        assert_eq!(world.sim.now() - told, crate::limits::SHUTDOWN_GRACE);
        assert_eq!(states(&c), json!({ "n1": ready(CANCELLED), "s1": "Queued", "k1": "Queued" }));
        world.sim.idle().await;
        assert_eq!(world.executor.dropped().len(), 3, "nothing of it runs on");
        c.park("the host stops").await.unwrap();

        for id in ["s1", "k1"] {
            world.executor.plan(id, Ending::output(id));
        }
        world.requester.answer([finished("r2", "stop")]);
        let mut c = world.open().await.unwrap();
        c.resume("a new host").await.unwrap();
        while c.wait_job().await.unwrap() {}
        assert_eq!(world.run(&mut c, 9).await, Ok(Rest::Finished));
    });
    let mut runs = world.executor.runs();
    runs.sort();
    assert_eq!(runs, ["k1#1", "k1#2", "n1#1", "s1#1", "s1#2"]);
    let asks = world.requester.asks();
    let sent = asks.iter().filter_map(|ask| ask.delivery.as_ref()).flat_map(|delivery| &delivery.input);
    let outputs: Vec<_> = sent.map(|item| item["output"].clone()).collect();
    assert_eq!(outputs, [CANCELLED, "s1", "k1"]);
}

#[test]
fn a_shutdown_does_not_wait_for_an_answer_that_takes_longer_and_the_next_opening_finds_out() {
    // covers L57, L62, G13
    let world = World::new();
    world.requester.answer([started("r1"), Step::call(background("n1", "pay")), Step::Gate(Gate::new())]);
    world.sim.run(async {
        let mut c = world.started().await;
        let handle = c.handle();
        let script = async {
            world.executor.launched(1).await;
            handle.stop();
            world.sim.now()
        };
        let (rest, told) = futures::join!(world.run(&mut c, 9), script);
        assert_eq!(rest, Ok(Rest::Paused(PauseReason::Shutdown)));
        assert_eq!(world.sim.now() - told, crate::limits::SHUTDOWN_GRACE);
        assert_eq!(states(&c), json!({ "n1": ready(CANCELLED) }));
        assert!(c.checkpoint().unwrap().response_in_flight(), "what the provider made of it is not known");
        c.park("the host stops").await.unwrap();
        let c = world.open().await.unwrap();
        assert!(!c.checkpoint().unwrap().response_in_flight());
        assert_eq!(
            c.session().turn().unwrap().paused,
            Some(PauseReason::LostResponse { calls: vec!["n1".into()] }),
            "somebody has to know that it was started"
        );
    });
}

#[test]
fn winding_down_waits_for_what_runs_and_starts_nothing_in_its_place() {
    // covers L57
    let mut world = World::new();
    world.settings.calls_at_once = 1;
    world.executor.plan("a1", Ending::output("paid"));
    world.sim.run(async {
        let mut c = world.streaming().await;
        let steps = [started("r1"), Step::call(background("a1", "pay")), Step::call(background("a2", "pay"))];
        world.read(&mut c, steps).await.unwrap_err();
        c.wind_down().await.unwrap();
        assert_eq!(states(&c), json!({ "a1": ready("paid"), "a2": "Queued" }));
        assert!(c.checkpoint().unwrap().response_in_flight(), "what is uncertain stays so");
        c.wind_down().await.unwrap();
    });
    assert_eq!(world.executor.runs(), ["a1#1"]);
    assert_eq!(world.executor.dropped(), []);
    assert_eq!(world.tail(1), ["settled a1 done: paid"]);
}

#[test]
fn a_stop_that_came_before_the_run_makes_no_request() {
    // covers L62
    let world = World::new();
    world.sim.run(async {
        let mut c = world.started().await;
        c.handle().stop();
        assert_eq!(world.run(&mut c, 9).await, Ok(Rest::Paused(PauseReason::Shutdown)));
    });
    assert_eq!(world.requester.asks(), []);
    assert_eq!(world.journal(), ["turn started", "paused shutdown"]);
}

#[test]
fn parking_is_for_turns_at_rest_and_leaves_the_coordinator_unusable() {
    // covers L40, L62
    let world = World::new();
    world.sim.run(async {
        let mut c = world.answered([background("a1", "pay")]).await;
        world.executor.launched(1).await;
        assert_eq!(kind(c.park("too early").await), ErrorKind::Store, "a1 runs");
        world.executor.settle("a1", Ending::output("1"));
        c.wait_job().await.unwrap();
        c.begin_response(on("r1")).await.unwrap();
        assert_eq!(kind(c.park("too early").await), ErrorKind::Store, "a request is in flight");
        let refused = failure(Fate::NotSent);
        c.act(wharf_core::step::Event::RequestFailed(refused)).await.expect_err("it is reported");
        c.park("nobody is here").await.unwrap();
        assert_eq!(c.park("again").await, Err(Error::store("the coordinator gave its lease up")));
        assert_eq!(c.wait_job().await, Err(Error::store("the coordinator gave its lease up")));
        assert_eq!(states(&c), json!({ "a1": ready("1") }), "reading still works");
        world.open().await.expect("the lease is free");
    });
    assert_eq!(world.tail(1), ["parked: nobody is here"]);
}

#[test]
fn abandoning_cancels_what_runs_clears_what_is_open_and_ends_the_turn() {
    // covers L60, G17
    let world = World::new();
    world.executor.plan("a1", Ending::output("done"));
    world.sim.run(async {
        let mut c = world.answered([background("a1", "pay"), background("a2", "pay"), background("h1", "gate")]).await;
        world.executor.launched(2).await;
        c.wait_job().await.unwrap();
        let Ok(crate::coordinator::Prepared::Delivery(_)) = c.prepare_delivery().await else { panic!("a1 is ready") };
        c.begin_transcript_message("m1", on("r1")).await.unwrap();
        world.read(&mut c, [Step::call(background("b1", "look"))]).await.expect_err("it breaks");
        world.sim.idle().await;
        c.reconcile(Reconcile::Abandon, "op").await.unwrap();
        world.sim.idle().await;
        let document = c.checkpoint().unwrap().to_json();
        assert_eq!(
            json!([
                document["delivery"],
                document["response_in_flight"],
                document["transcript_message_id"],
                document["orphans"],
                document["host_outcome"],
            ]),
            json!([null, false, null, ["a1", "a2", "h1", "b1"], { "status": "abandoned" }])
        );
        assert!(c.may_complete());
        c.release().await.unwrap();
    });
    assert_eq!(world.executor.dropped(), ids(&["a2", "b1"]));
    assert_eq!(
        world.tail(7),
        [
            "op: abandon".to_owned(),
            format!("settled a2 cancelled: {CANCELLED}"),
            format!("settled b1 cancelled: {CANCELLED}"),
            "flight abandoned orphans a1 a2 h1 b1".to_owned(),
            "transcript dropped".to_owned(),
            r#"outcome {"status":"abandoned"}"#.to_owned(),
            "turn ended abandoned".to_owned(),
        ]
    );
    // The next turn of the session goes on from the last accepted response.
    world.requester.answer([finished("r3", "stop")]);
    world.sim.run(async {
        let mut c = world.started().await;
        assert_eq!(world.run(&mut c, 1).await, Ok(Rest::Finished));
    });
    assert_eq!(world.requester.asks()[0].latest, Some("r1".into()));
}
