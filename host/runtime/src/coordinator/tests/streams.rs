//! Reading responses: L12, L14, L16 to L26, L48, L49, L55, L57, L66.

use wharf_core::model::{Completion, FinishedCall, Outcome, StreamEvent};
use wharf_core::record::PauseReason;

use super::*;
use crate::testing::{Ending, Gate, Seen, completion, finished, started};

#[test]
fn an_async_call_starts_while_its_stream_is_open_and_a_sync_call_waits_for_the_end() {
    // covers L12, L14, L20, L25, L55
    let world = World::new();
    let gate = Gate::new();
    world.sim.run(async {
        let mut c = world.streaming().await;
        let steps = [
            started("r1"),
            Step::call(background("a1", "pay")),
            Step::sync_call(call("s1", "note")),
            Step::Gate(gate.clone()),
            finished("r1", "tool_calls"),
        ];
        let script = async {
            world.sim.idle().await;
            assert_eq!(world.executor.runs(), ["a1#1"]);
            assert_eq!(
                world.journal()[1..],
                [
                    "begun 1 whole",
                    "response r1",
                    "accepted a1 pay async never",
                    "started a1 #1",
                    "accepted s1 note sync never"
                ]
            );
            gate.open();
        };
        let (read, ()) = futures::join!(world.read(&mut c, steps), script);
        assert_eq!(read, Ok(completion("r1", "tool_calls")));
        assert_eq!(states(&c), json!({ "a1": "Running", "s1": "Running" }), "the stream is over, the jobs are not");
        assert!(!c.checkpoint().unwrap().response_in_flight());
        world.sim.idle().await;
    });
    assert_eq!(world.executor.runs(), ["a1#1", "s1#1"]);
    assert_eq!(world.tail(4), ["completed r1", "recorded r1 tool_calls", "flight cleared", "started s1 #1"]);
}

#[test]
fn waiting_sync_calls_are_launched_in_order_and_held_ones_are_not() {
    // covers L20
    let world = World::new();
    world.sim.run(async {
        let c = world
            .answered([call("s2", "note"), call("h1", "gate"), call("s1", "note"), background("a1", "look")])
            .await;
        world.sim.idle().await;
        assert_eq!(states(&c), json!({ "s2": "Running", "h1": "Queued", "s1": "Running", "a1": "Running" }));
    });
    assert_eq!(world.executor.runs(), ["a1#1", "s2#1", "s1#1"]);
}

#[test]
fn a_call_of_the_accumulated_set_is_registered_once_with_its_raw_text() {
    // covers L16, L9, L49
    let world = World::new();
    world.sim.run(async {
        let mut c = world.streaming().await;
        let raw = Call::function("c1", "note", "{ \"b\": 1.0,\n \"a\": [] }");
        let steps = [
            Step::sync_call(raw.clone()),
            Step::sync_calls([raw.clone(), call("c2", "note")]),
            Step::Event(StreamEvent::SyncCalls(vec![
                FinishedCall::from(raw.clone()),
                FinishedCall::from(call("c2", "note")),
            ])),
            finished("r1", "tool_calls"),
        ];
        world.read(&mut c, steps).await.unwrap();
        world.sim.idle().await;
        assert_eq!(world.executor.launches()[0].call, raw);
    });
    assert_eq!(world.executor.runs(), ["c1#1", "c2#1"]);
    assert_eq!(world.journal()[2..4], ["accepted c1 note sync never", "accepted c2 note sync never"],);
}

#[test]
fn a_completion_without_a_response_id_is_a_provider_error_and_stays_in_flight() {
    // covers L17
    for id in [None, Some(ResponseId::new("")), Some(ResponseId::new(" "))] {
        let world = World::new();
        world.sim.run(async {
            let mut c = world.streaming().await;
            let steps = [
                Step::sync_call(call("s1", "note")),
                Step::completed(Completion { id, ..completion("x", "tool_calls") }),
            ];
            let failed = world.read(&mut c, steps).await;
            assert_eq!(failed, Err(Error::provider("a response was completed without a response id")));
            assert!(c.checkpoint().unwrap().response_in_flight());
            world.sim.idle().await;
        });
        assert_eq!(world.journal(), ["turn started", "begun 1 whole", "accepted s1 note sync never"]);
        assert_eq!(world.executor.runs(), [""; 0]);
    }
}

#[test]
fn only_these_finish_reasons_release_sync_calls() {
    // covers L18
    for reason in [None, Some("stop"), Some("tool_calls"), Some("end_turn")] {
        let world = World::new();
        world.sim.run(async {
            let mut c = world.streaming().await;
            let ended = Completion { finish_reason: reason.map(str::to_owned), ..completion("r1", "") };
            world.read(&mut c, [Step::sync_call(call("s1", "note")), Step::completed(ended)]).await.unwrap();
            world.sim.idle().await;
        });
        assert_eq!(world.executor.runs(), ["s1#1"], "{reason:?}");
    }
    for reason in ["length", "content_filter", "steered", "something_new"] {
        let world = World::new();
        world.sim.run(async {
            let mut c = world.streaming().await;
            world.read(&mut c, [Step::sync_call(call("s1", "note")), finished("r1", reason)]).await.unwrap();
            world.sim.idle().await;
            assert_eq!(states(&c), json!({ "s1": "Queued" }), "{reason}");
        });
        assert_eq!(world.executor.runs(), [""; 0], "{reason}");
    }
}

#[test]
fn a_cancelled_or_failed_response_is_a_provider_error_and_counts_as_not_accepted() {
    // covers L18, L66, L58
    let failed = |outcome| Completion { outcome, finish_reason: None, ..completion("r1", "") };
    for (ended, message) in [
        (completion("r1", "cancelled"), "the response was cancelled at the provider"),
        (completion("r1", "error"), "the response ended with an error"),
        (failed(Outcome::Cancelled), "the response was cancelled at the provider"),
        (
            failed(Outcome::Failed { code: "server_error".to_owned(), message: "it broke".to_owned() }),
            "the response failed: it broke (server_error)",
        ),
    ] {
        let world = World::new();
        world.executor.plan("a1", Ending::output("seen"));
        world.sim.run(async {
            let mut c = world.streaming().await;
            let steps = [
                started("r1"),
                Step::call(background("a1", "look")),
                Step::sync_call(call("s1", "note")),
                Step::completed(ended),
            ];
            assert_eq!(world.read(&mut c, steps).await, Err(Error::provider(message)));
            assert!(!c.checkpoint().unwrap().response_in_flight());
            assert_eq!(c.wait_job().await, Ok(true), "what was started runs on");
            assert_eq!(c.checkpoint().unwrap().orphans(), ids(&["a1", "s1"]));
            assert_eq!(states(&c), json!({ "a1": ready("seen"), "s1": "Queued" }));
        });
        assert_eq!(world.executor.runs(), ["a1#1"], "{message}");
        assert_eq!(world.tail(2), ["flight not_accepted orphans a1 s1", "settled a1 done: seen"]);
    }
}

#[test]
fn an_incomplete_response_is_a_receipt_and_stops_the_turn_until_it_is_resumed() {
    // covers L66, L62, L18
    let world = World::new();
    world.sim.run(async {
        let mut c = world.started().await;
        let cut = Completion {
            outcome: Outcome::Incomplete { reason: "max_output_tokens".to_owned() },
            ..completion("r1", "length")
        };
        let steps = [
            started("r1"),
            Step::call(background("a1", "look")),
            Step::sync_call(call("s1", "note")),
            Step::completed(cut),
        ];
        world.requester.answer(steps);
        let script = async {
            world.executor.launched(1).await;
            world.sim.idle().await;
            world.executor.settle("a1", Ending::output("1"));
        };
        let reason = PauseReason::Incomplete { reason: "max_output_tokens".to_owned() };
        assert_eq!(futures::join!(world.run(&mut c, 4), script).0, Ok(Rest::Paused(reason)));
        assert_eq!(
            world.tail(7),
            [
                "completed r1",
                "recorded r1 length",
                "flight cleared",
                "paused incomplete max_output_tokens",
                "summary",
                "committed",
                "settled a1 done: 1",
            ]
        );
        c.park("it waits").await.unwrap();

        let mut c = world.open().await.unwrap();
        world.sim.idle().await;
        assert_eq!(world.executor.runs(), ["a1#1"], "opening does not resume");
        c.resume("somebody said so").await.unwrap();
        world.sim.idle().await;
        assert_eq!(world.executor.runs(), ["a1#1", "s1#1"]);
        world.executor.settle("s1", Ending::output("2"));
        world.requester.answer([finished("r2", "stop")]);
        assert_eq!(world.run(&mut c, 4).await, Ok(Rest::Finished));
    });
    assert_eq!(world.requester.asks()[1].delivery.as_ref().unwrap().call_ids, ids(&["a1", "s1"]));
}

#[test]
fn a_superseded_response_keeps_its_sync_calls_for_the_successor() {
    // covers L18
    let world = World::new();
    world.executor.plan("s1", Ending::output("1"));
    world.executor.plan("s2", Ending::output("2"));
    world.requester.answer([started("r1"), Step::sync_call(call("s1", "note")), finished("r1", "steered")]);
    world.requester.answer([started("r2"), Step::sync_call(call("s2", "note")), finished("r2", "tool_calls")]);
    world.requester.answer([finished("r3", "stop")]);
    world.sim.run(async {
        let mut c = world.started().await;
        assert_eq!(world.run(&mut c, 3).await, Ok(Rest::Finished));
    });
    assert_eq!(world.executor.runs(), ["s1#1", "s2#1"]);
    let asks = world.requester.asks();
    assert_eq!((asks[1].delivery.clone(), asks[1].latest.clone()), (None, Some("r1".into())));
    assert_eq!(asks[2].delivery.as_ref().unwrap().call_ids, ids(&["s1", "s2"]));
    assert_eq!(asks.len(), 3);
}

#[test]
fn an_accepted_completion_acknowledges_the_delivery_or_counts_a_response() {
    // covers L19, L20
    let world = World::new();
    world.executor.plan("s1", Ending::output("1"));
    world.requester.answer([Step::sync_call(call("s1", "note")), finished("r1", "tool_calls")]);
    world.requester.answer([finished("r2", "stop")]);
    world.sim.run(async {
        let mut c = world.started().await;
        assert_eq!(world.run(&mut c, 2).await, Ok(Rest::Finished));
        let document = c.checkpoint().unwrap().to_json();
        assert_eq!(
            json!([
                document["completed_responses"],
                document["latest_response_id"],
                document["delivery"],
                document["calls"]["s1"]["state"]
            ]),
            json!([2, "r2", null, "Delivered"])
        );
    });
    assert_eq!(
        world.journal(),
        [
            "turn started",
            "begun 1 whole message",
            "accepted s1 note sync never",
            "completed r1",
            "recorded r1 tool_calls",
            "flight cleared",
            "started s1 #1",
            "summary",
            "committed",
            "settled s1 done: 1",
            "delivery s1 on r1",
            "begun 2 on r1 message",
            "acknowledged by r2",
            "recorded r2 stop",
            "flight cleared",
            "summary",
            "committed",
        ]
    );
}

#[test]
fn a_broken_stream_stays_in_flight_starts_nothing_and_aborts_nothing() {
    // covers L21, L57
    let broken = Error::provider("the stream ended before its terminal event");
    for (end, error) in [(None, broken), (Some(failure(Fate::Unknown)), failure(Fate::Unknown).error)] {
        let mut world = World::new();
        world.settings.calls_at_once = 1;
        world.sim.run(async {
            let mut c = world.streaming().await;
            let steps = [
                started("r1"),
                Step::call(background("a1", "pay")),
                Step::call(background("a2", "pay")),
                Step::sync_call(call("s1", "note")),
            ];
            let steps = steps.into_iter().chain(end.map(Step::Fail));
            assert_eq!(world.read(&mut c, steps).await, Err(error));
            world.sim.idle().await;
            assert_eq!(c.running(), 1);
            world.executor.settle("a1", Ending::output("paid"));
            assert_eq!(c.wait_job().await, Ok(true));
            world.sim.idle().await;
            assert_eq!(states(&c), json!({ "a1": ready("paid"), "a2": "Queued", "s1": "Queued" }));
            assert_eq!(c.wait_job().await, Ok(false), "nothing will start, so there is nothing to wait for");
            assert!(c.checkpoint().unwrap().response_in_flight());
            assert_eq!(kind(world.run(&mut c, 9).await), ErrorKind::Store, "no request before it is settled");
        });
        assert_eq!(world.executor.runs(), ["a1#1"]);
        assert_eq!(world.executor.dropped(), []);
        assert_eq!(world.requester.asks(), []);
        assert_eq!(world.tail(1), ["settled a1 done: paid"]);
    }
}

#[test]
fn responses_begin_one_at_a_time_and_are_read_only_once_begun() {
    // covers L22, L23
    let world = World::new();
    world.sim.run(async {
        let mut c = world.started().await;
        let unbegun = world.read(&mut c, [started("r1"), finished("r1", "stop")]).await;
        assert_eq!(unbegun, Err(Error::store("an event of a response came, and none was begun")));
        c.begin_response(whole()).await.unwrap();
        let second = c.begin_response(whole()).await;
        assert_eq!(second, Err(Error::store("a response cannot begin while another one is in flight")));
        world.read(&mut c, [finished("r1", "stop")]).await.unwrap();
    });
    assert_eq!(
        world.journal(),
        ["turn started", "begun 1 whole", "completed r1", "recorded r1 stop", "flight cleared"]
    );
}

#[test]
fn the_observer_sees_text_reasoning_and_completion_in_order_and_no_calls() {
    // covers L24, L26
    let world = World::new();
    world.executor.plan("s1", Ending::output("1"));
    world.requester.answer([
        started("r1"),
        Step::Event(StreamEvent::Reasoning("hm".to_owned())),
        Step::text("Let me "),
        Step::sync_call(call("s1", "note")),
        Step::Event(StreamEvent::Opaque(json!({ "type": "reasoning" }))),
        Step::text("look."),
        finished("r1", "tool_calls"),
    ]);
    world.requester.answer([
        Step::text("Done"),
        Step::Event(StreamEvent::Refusal("no more".to_owned())),
        finished("r2", "stop"),
    ]);
    world.sim.run(async {
        let mut c = world.started().await;
        world.run(&mut c, 2).await.unwrap();
    });
    let text = |text: &str| Seen::Text(text.to_owned());
    assert_eq!(
        world.observer.seen(),
        [
            Seen::Reasoning("hm".to_owned()),
            text("Let me "),
            text("look."),
            Seen::Completed(Some("r1".into())),
            text("Done"),
            Seen::Refusal("no more".to_owned()),
            Seen::Completed(Some("r2".into())),
        ]
    );
}

#[test]
fn a_call_without_id_or_name_makes_the_whole_response_an_error() {
    // covers L48
    for (bad, message) in [
        (call("", "note"), r#"a call of tool "note" has no call id"#),
        (background("c2", " "), r#"call "c2" has no tool name"#),
    ] {
        let world = World::new();
        world.sim.run(async {
            let mut c = world.streaming().await;
            let steps = [Step::sync_call(call("s1", "note")), Step::call(bad), finished("r1", "tool_calls")];
            assert_eq!(world.read(&mut c, steps).await, Err(Error::provider(message)));
            world.sim.idle().await;
            assert!(c.checkpoint().unwrap().response_in_flight());
            // Nobody reads on, so nothing starts before the response is settled.
            c.register(background("a1", "look").into()).await.unwrap();
            world.sim.idle().await;
        });
        assert_eq!(world.executor.runs(), [""; 0]);
        assert_eq!(world.tail(2), ["accepted s1 note sync never", "accepted a1 look async safe"]);
    }
}

#[test]
fn a_used_id_with_another_payload_is_refused_by_name_and_an_equal_repeat_is_one_call() {
    // covers L49
    for other in [
        Call::function("c1", "pay", r#"{"to":"b"}"#).asynchronous(),
        call("c1", "pay"),
        Call::custom("c1", "pay", "{}").asynchronous(),
        background("c1", "look"),
    ] {
        let world = World::new();
        world.sim.run(async {
            let mut c = world.streaming().await;
            let first = background("c1", "pay");
            let steps = [Step::call(first.clone()), Step::call(first), Step::call(other), finished("r1", "tool_calls")];
            let refused = world.read(&mut c, steps).await.expect_err("it is refused");
            assert_eq!(refused.kind, ErrorKind::Config);
            assert!(refused.message.contains(r#"call id "c1" is used twice"#), "{refused}");
            world.sim.idle().await;
        });
        assert_eq!(world.executor.runs(), ["c1#1"]);
        assert_eq!(world.journal()[2..], ["accepted c1 pay async never", "started c1 #1"]);
    }
}

#[test]
fn an_id_that_an_earlier_response_used_is_another_call() {
    // covers L49
    let world = World::new();
    for (id, output) in [("c1", "one"), ("c1~r2.0", "two")] {
        world.executor.plan(id, Ending::output(output));
    }
    world.requester.answer([Step::sync_call(call("c1", "note")), finished("r1", "tool_calls")]);
    world.requester.answer([Step::sync_call(call("c1", "note")), finished("r2", "tool_calls")]);
    world.requester.answer([finished("r3", "stop")]);
    world.sim.run(async {
        let mut c = world.started().await;
        assert_eq!(world.run(&mut c, 3).await, Ok(Rest::Finished));
    });
    let sent: Vec<Value> =
        world.requester.asks().iter().filter_map(|ask| Some(ask.delivery.as_ref()?.input[0].clone())).collect();
    assert_eq!(
        sent,
        [
            json!({ "type": "function_call_output", "call_id": "c1", "output": "one" }),
            json!({ "type": "function_call_output", "call_id": "c1", "output": "two" }),
        ]
    );
    assert_eq!(world.executor.runs(), ["c1#1", "c1~r2.0#1"]);
}

#[test]
fn the_response_id_is_journaled_at_the_first_event_that_carries_it() {
    // covers L55
    let world = World::new();
    let gate = Gate::new();
    world.sim.run(async {
        let mut c = world.streaming().await;
        let steps = [started("r1"), started("r1"), Step::Gate(gate.clone()), finished("r1", "stop")];
        let script = async {
            world.sim.idle().await;
            assert_eq!(world.journal(), ["turn started", "begun 1 whole", "response r1"]);
            gate.open();
        };
        futures::join!(world.read(&mut c, steps), script).0.unwrap();
    });
    assert_eq!(world.tail(4), ["response r1", "completed r1", "recorded r1 stop", "flight cleared"]);
}

#[test]
fn what_a_response_holds_is_journaled_verbatim() {
    // covers L19
    let world = World::new();
    let held = Completion {
        items: vec![json!({ "type": "reasoning", "encrypted": "x" }), json!({ "type": "message" })],
        text: "hello".to_owned(),
        refusal: Some("not that".to_owned()),
        model: Some("m-1".to_owned()),
        usage: Some(wharf_core::model::Usage { fresh_input: 7, total: 9, ..Default::default() }),
        ..completion("r1", "stop")
    };
    world.sim.run(async {
        let mut c = world.streaming().await;
        let steps =
            [Step::Wait(std::time::Duration::from_millis(250)), Step::text("hello"), Step::completed(held.clone())];
        assert_eq!(world.read(&mut c, steps).await, Ok(held.clone()));
    });
    assert_eq!(
        world.records()[3],
        Record::ResponseRecorded(wharf_core::record::ResponseFacts {
            id: "r1".into(),
            outcome: held.outcome,
            finish_reason: held.finish_reason,
            items: held.items,
            text: held.text,
            refusal: held.refusal,
            usage: held.usage,
            model: held.model,
            first_token_ms: Some(250),
        })
    );
}
