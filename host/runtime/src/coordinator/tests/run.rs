//! The loop of a turn: L41 to L45, L50, L51.

use wharf_core::record::PauseReason;

use super::super::{Ask, request_fn};
use super::*;
use crate::testing::{Ending, finished, started};

#[test]
fn a_run_asks_delivers_and_ends_once_everything_is_delivered() {
    // covers L41, L42, L43
    let world = World::new();
    world.executor.plan("s1", Ending::output("1"));
    world.requester.answer([started("r1"), Step::sync_call(call("s1", "note")), finished("r1", "tool_calls")]);
    world.requester.answer([started("r2"), finished("r2", "stop")]);
    world.sim.run(async {
        let mut c = world.started().await;
        assert_eq!(world.run(&mut c, 2).await, Ok(Rest::Finished));
        assert!(c.may_complete());
        assert_eq!(world.run(&mut c, 2).await, Ok(Rest::Finished), "there is nothing more to do");
    });
    let asks = world.requester.asks();
    assert_eq!(asks[0], Ask::default());
    assert_eq!(
        asks[1],
        Ask {
            delivery: Some(wharf_core::model::Delivery {
                previous_response_id: "r1".into(),
                call_ids: ids(&["s1"]),
                input: vec![json!({ "type": "function_call_output", "call_id": "s1", "output": "1" })],
                after: Vec::new(),
            }),
            latest: Some("r1".into()),
            ..Ask::default()
        }
    );
    assert_eq!(asks.len(), 2);
}

#[test]
fn with_nothing_ready_a_run_waits_for_a_job_and_never_asks_in_between() {
    // covers L41, L44, L27
    let world = World::new();
    world.requester.answer([
        Step::call(background("a1", "look")),
        Step::call(background("a2", "look")),
        finished("r1", "stop"),
    ]);
    world.requester.answer([finished("r2", "stop")]);
    world.requester.answer([finished("r3", "stop")]);
    world.sim.run(async {
        let mut c = world.started().await;
        let script = async {
            world.executor.launched(2).await;
            world.sim.sleep(std::time::Duration::from_secs(100)).await;
            assert_eq!(world.requester.asks().len(), 1);
            world.executor.settle("a2", Ending::output("2"));
            world.sim.idle().await;
            assert_eq!(world.requester.asks().len(), 2);
            world.executor.settle("a1", Ending::output("1"));
        };
        assert_eq!(futures::join!(world.run(&mut c, 9), script).0, Ok(Rest::Finished));
    });
    let delivered: Vec<_> =
        world.requester.asks().into_iter().map(|ask| ask.delivery.map(|d| d.call_ids).unwrap_or_default()).collect();
    assert_eq!(delivered, [ids(&[]), ids(&["a2"]), ids(&["a1"])]);
}

use crate::seams::Seams;

#[test]
fn at_the_limit_a_run_is_a_config_error_and_pending_work_stays() {
    // covers L43
    let world = World::new();
    world.executor.plan("s1", Ending::output("1"));
    world.requester.answer([Step::sync_call(call("s1", "note")), finished("r1", "tool_calls")]);
    world.requester.answer([finished("r2", "stop")]);
    world.sim.run(async {
        let mut c = world.started().await;
        assert_eq!(kind(world.run(&mut c, 0).await), ErrorKind::Config);
        assert_eq!((world.requester.asks().len(), world.journal()), (0, vec!["turn started".to_owned()]));
        assert_eq!(kind(world.run(&mut c, 1).await), ErrorKind::Config);
        assert_eq!(states(&c), json!({ "s1": ready("1") }));
        c.park("the limit is reached").await.unwrap();
        let mut c = world.open().await.unwrap();
        assert_eq!(world.run(&mut c, 1).await, Ok(Rest::Finished));
    });
    assert_eq!(world.requester.asks().len(), 2);
}

#[test]
fn an_error_of_the_request_function_is_returned_and_the_journal_remains() {
    // covers L45, G14
    for fate in [Fate::NotSent, Fate::Refused] {
        let world = World::new();
        world.executor.plan("s1", Ending::output("1"));
        world.requester.answer([Step::sync_call(call("s1", "note")), finished("r1", "tool_calls")]);
        world.requester.fail(failure(fate));
        world.requester.answer([finished("r2", "stop")]);
        world.sim.run(async {
            let mut c = world.started().await;
            assert_eq!(world.run(&mut c, 9).await, Err(failure(fate).error));
            assert_eq!(states(&c), json!({ "s1": ready("1") }));
            assert_eq!(
                world.tail(4),
                [
                    "delivery s1 on r1".to_owned(),
                    "begun 2 on r1 message".to_owned(),
                    format!("flight {}", fate.as_str()),
                    "transcript dropped".to_owned(),
                ]
            );
            // Nothing was accepted, so the same delivery is sent again, and the caller decides when.
            assert_eq!(world.run(&mut c, 9).await, Ok(Rest::Finished));
        });
        let asks = world.requester.asks();
        assert_eq!(asks.len(), 3);
        assert_eq!(asks[1], asks[2]);
    }
}

#[test]
fn a_request_that_cannot_be_planned_is_not_sent_and_its_delivery_is_rolled_back() {
    // covers L45, Q9
    let world = World::new();
    world.executor.plan("s1", Ending::output("1"));
    world.requester.answer([Step::sync_call(call("s1", "note")), finished("r1", "tool_calls")]);
    world.requester.answer([finished("r2", "stop")]);
    world.sim.run(async {
        let mut c = world.started().await;
        assert_eq!(kind(world.run(&mut c, 1).await), ErrorKind::Config);
        let refused = Error::config("the model takes no async calls and outputs are pending");
        world.requester.set_plan(Some(Err(refused.clone())));
        assert_eq!(world.run(&mut c, 9).await, Err(refused));
        assert_eq!(world.tail(2), ["delivery s1 on r1", "flight not_sent"]);
        assert_eq!(world.requester.asks().len(), 1);
        world.requester.set_plan(None);
        assert_eq!(world.run(&mut c, 9).await, Ok(Rest::Finished));
    });
}

#[test]
fn a_closure_asks_and_what_it_gets_is_the_delivery_and_the_latest_id() {
    // covers L42
    let world = World::new();
    world.executor.plan("s1", Ending::output("1"));
    let asked = Arc::new(std::sync::Mutex::new(Vec::new()));
    let (sim, log) = (world.sim.clone(), asked.clone());
    let mut requester = request_fn(move |ask: Ask| {
        let steps = match log.lock().unwrap().len() {
            0 => vec![Step::sync_call(call("s1", "note")), finished("r1", "tool_calls")],
            _ => vec![finished("r2", "stop")],
        };
        log.lock().unwrap().push((ask.delivery.map(|delivery| delivery.call_ids), ask.latest));
        futures::future::ready(Ok(stream(&sim, steps)))
    });
    world.sim.run(async {
        let mut c = world.started().await;
        assert_eq!(c.run(2, &mut requester, &mut ()).await, Ok(Rest::Finished));
    });
    assert_eq!(*asked.lock().unwrap(), [(None, None), (Some(ids(&["s1"])), Some("r1".into()))]);
    assert!(world.journal().contains(&"begun 1 whole message".to_owned()));
    assert!(world.journal().contains(&"begun 2 on r1 message".to_owned()));
}

#[test]
fn too_many_unknown_tools_stop_the_turn_with_a_reason() {
    // covers L51, L50, L62
    let mut world = World::new();
    world.settings.unknown_tools_max = 2;
    for n in 1..=3 {
        world
            .requester
            .answer([Step::sync_call(call(&format!("u{n}"), "nope")), finished(&format!("r{n}"), "tool_calls")]);
    }
    world.requester.answer([finished("r4", "stop")]);
    world.sim.run(async {
        let mut c = world.started().await;
        assert_eq!(world.run(&mut c, 9).await, Ok(Rest::Paused(PauseReason::UnknownTools { count: 3 })));
        assert_eq!(world.requester.asks().len(), 3, "two were answered, the third is over the limit");
        assert_eq!(world.tail(1), ["paused unknown tools 3"]);
        c.park("it waits").await.unwrap();
        let mut c = world.open().await.unwrap();
        assert_eq!(world.run(&mut c, 9).await, Ok(Rest::Paused(PauseReason::UnknownTools { count: 3 })));
        c.resume("go on").await.unwrap();
        assert_eq!(world.run(&mut c, 9).await, Ok(Rest::Finished));
    });
    let outputs: Vec<_> = world.requester.asks().into_iter().filter_map(|ask| Some(ask.delivery?.call_ids)).collect();
    assert_eq!(outputs, [ids(&["u1"]), ids(&["u2"]), ids(&["u3"])]);
    assert_eq!(world.executor.runs(), [""; 0]);
}
