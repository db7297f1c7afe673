//! Registering and running calls: L2 to L10, L13, L27 to L29, L46, L47, L50, L53, L54, L56, L64, L65.

use wharf_core::policy::RefusalReason;

use super::*;
use crate::testing::Ending;

#[test]
fn a_sync_call_outside_of_a_response_starts_at_once_and_its_text_is_the_output() {
    // covers L13, L10, L65, L27
    let world = World::new();
    world.sim.run(async {
        let mut c = world.started().await;
        c.register(call("c1", "note").into()).await.unwrap();
        world.sim.idle().await;
        assert_eq!(world.executor.runs(), ["c1#1"]);
        assert_eq!(states(&c), json!({ "c1": "Running" }));
        world.executor.settle("c1", Ending::output("  { kept as it is }\n"));
        assert_eq!(c.wait_job().await, Ok(true));
        assert_eq!(states(&c), json!({ "c1": ready("  { kept as it is }\n") }));
        assert_eq!(c.wait_job().await, Ok(false));
    });
    assert_eq!(
        world.timeline.lines(),
        [
            "turn started",
            "accepted c1 note sync never",
            "started c1 #1",
            "run c1 #1",
            "settled c1 done:   { kept as it is }\n",
        ]
    );
}

#[test]
fn the_executor_gets_the_call_as_it_was_registered() {
    // covers L10, L64
    let world = World::new();
    world.sim.run(async {
        let mut c = world.started().await;
        let made = Call::custom("c1", "bank", "line one\n\"two\"").asynchronous();
        c.register(made.clone().into()).await.unwrap();
        world.sim.idle().await;
        let launch = world.executor.launches().remove(0);
        let Record::CallAccepted { idempotency_key, replay, .. } = &world.records()[1] else { panic!("not accepted") };
        assert_eq!(*replay, ReplayClass::Keyed);
        assert_eq!(
            launch,
            wharf_core::step::Launch {
                call: made,
                attempt: 1,
                idempotency_key: idempotency_key.clone(),
                replay: ReplayClass::Keyed,
            }
        );
    });
}

#[test]
fn an_authorisation_that_fails_leaves_no_entry_and_runs_nothing() {
    // covers L7
    let world = World::new();
    world.executor.set_policy("note", Err(Error::config("no answer can be given")));
    world.sim.run(async {
        let mut c = world.started().await;
        assert_eq!(c.register(call("c1", "note").into()).await, Err(Error::config("no answer can be given")));
        world.sim.idle().await;
        assert_eq!(states(&c), json!({}));
        assert_eq!(c.register(call("c2", "look").into()).await, Ok(()));
        world.sim.idle().await;
    });
    assert_eq!(world.journal(), ["turn started", "accepted c2 look sync safe", "started c2 #1"]);
    assert_eq!(world.executor.runs(), ["c2#1"]);
}

#[test]
fn an_async_call_of_a_tool_that_may_not_run_async_is_refused_and_the_turn_goes_on() {
    // covers L8, L54
    let world = World::new();
    world.executor.plan("c2", Ending::output("2"));
    world.sim.run(async {
        let mut c = world.answered([background("c1", "note"), background("c2", "pay")]).await;
        c.wait_job().await.unwrap();
        let refused = r#"{"error":"tool \"note\" may not run async here; call it again without async"}"#;
        assert_eq!(states(&c), json!({ "c1": ready(refused), "c2": ready("2") }));
        assert!(c.checkpoint().unwrap().call(&"c1".into()).unwrap().rejected);
        assert_eq!(world.journal()[3], format!("rejected c1 note async not_async: {refused}"));
    });
    assert_eq!(world.executor.runs(), ["c2#1"]);
}

#[test]
fn a_repeated_call_is_authorised_again_and_not_run_again() {
    // covers L9
    let world = World::new();
    world.sim.run(async {
        let mut c = world.started().await;
        c.register(call("c1", "note").into()).await.unwrap();
        c.register(call("c1", "note").into()).await.unwrap();
        world.sim.idle().await;
        world.executor.settle("c1", Ending::output("1"));
        c.wait_job().await.unwrap();
        c.register(call("c1", "note").into()).await.unwrap();
        world.sim.idle().await;
    });
    assert_eq!(world.executor.authorized(), ids(&["c1", "c1", "c1"]));
    assert_eq!(world.executor.runs(), ["c1#1"]);
    assert_eq!(world.journal(), ["turn started", "accepted c1 note sync never", "started c1 #1", "settled c1 done: 1"]);
}

#[test]
fn a_cap_of_zero_counts_as_one() {
    // covers L2, L3
    most_at_once(0, true, &["look", "pay", "bank"], 1);
}

#[test]
fn no_more_calls_run_than_the_cap_allows() {
    // covers L3
    most_at_once(2, true, &["look", "pay", "bank", "note", "look"], 2);
}

#[test]
fn with_parallel_off_one_call_runs_at_a_time() {
    // covers L4
    most_at_once(8, false, &["look", "pay", "bank"], 1);
}

/// Runs a call of each tool under a cap, settles them one by one, and compares how many ran together.
fn most_at_once(cap: usize, parallel: bool, tools: &[&str], expected: usize) {
    let mut world = World::new();
    world.settings.calls_at_once = cap;
    world.settings.parallel = parallel;
    world.sim.run(async {
        let mut c = world.started().await;
        let names: Vec<String> = (0..tools.len()).map(|n| format!("c{n}")).collect();
        for (name, tool) in names.iter().zip(tools) {
            c.register(call(name, tool).into()).await.unwrap();
        }
        world.sim.idle().await;
        for (at, name) in names.iter().enumerate() {
            assert_eq!(c.running(), expected.min(names.len() - at), "before {name} ends");
            world.executor.settle(name, Ending::output("done"));
            assert_eq!(c.wait_job().await, Ok(true));
            world.sim.idle().await;
        }
        assert_eq!(c.wait_job().await, Ok(false));
        let started: Vec<String> = names.iter().map(|name| format!("{name}#1")).collect();
        assert_eq!(world.executor.runs(), started, "in the order in which they came");
    });
    assert_eq!(world.executor.most_at_once(), expected);
}

#[test]
fn calls_of_one_class_run_one_at_a_time_in_order_and_others_overlap_with_them() {
    // covers L5
    let world = World::new();
    world.sim.run(async {
        let mut c = world.started().await;
        for (id, tool) in [("w1", "write"), ("e1", "edit"), ("w2", "write"), ("n1", "note"), ("p1", "pay")] {
            c.register(call(id, tool).into()).await.unwrap();
        }
        world.sim.idle().await;
        assert_eq!(world.executor.runs(), ["w1#1", "n1#1", "p1#1"]);
        world.executor.settle("w1", Ending::output("w1"));
        c.wait_job().await.unwrap();
        world.sim.idle().await;
        assert_eq!(world.executor.runs()[3..], ["e1#1"]);
        world.executor.settle("e1", Ending::error("broken"));
        c.wait_job().await.unwrap();
        world.sim.idle().await;
        assert_eq!(world.executor.runs()[4..], ["w2#1"]);
    });
}

#[test]
fn a_call_takes_its_class_before_a_permit() {
    // covers L6
    let mut world = World::new();
    world.settings.calls_at_once = 2;
    world.sim.run(async {
        let mut c = world.started().await;
        // e1 waits for its class and must not hold the second permit meanwhile: n1 gets it.
        for (id, tool) in [("w1", "write"), ("e1", "edit"), ("n1", "note"), ("n2", "note")] {
            c.register(call(id, tool).into()).await.unwrap();
        }
        world.sim.idle().await;
        assert_eq!(world.executor.runs(), ["w1#1", "n1#1"]);
        // n2 asked for a permit before e1 had its class, but e1 has it now and stands before n2.
        world.executor.settle("w1", Ending::output("w1"));
        c.wait_job().await.unwrap();
        world.sim.idle().await;
        assert_eq!(world.executor.runs()[2..], ["e1#1"]);
        world.executor.settle("n1", Ending::output("n1"));
        c.wait_job().await.unwrap();
        world.sim.idle().await;
        assert_eq!(world.executor.runs()[3..], ["n2#1"]);
    });
    assert_eq!(world.executor.most_at_once(), 2);
}

#[test]
fn an_executor_error_becomes_an_output_and_the_others_run_on() {
    // covers L28
    let world = World::new();
    world.sim.run(async {
        let mut c = world.started().await;
        c.register(call("c1", "note").into()).await.unwrap();
        c.register(call("c2", "note").into()).await.unwrap();
        world.sim.idle().await;
        world.executor.settle("c1", Ending::error("no \"such\" file"));
        assert_eq!(c.wait_job().await, Ok(true));
        assert_eq!(states(&c), json!({ "c1": ready(r#"{"error":"no \"such\" file"}"#), "c2": "Running" }));
        world.executor.settle("c2", Ending::output("2"));
        assert_eq!(c.wait_job().await, Ok(true));
    });
    assert_eq!(world.tail(2), [r#"settled c1 failed: {"error":"no \"such\" file"}"#, "settled c2 done: 2"]);
}

#[test]
fn a_job_that_crashes_is_a_cancelled_call_and_harms_itself_alone() {
    // covers L29
    struct Bad(FakeExecutor);
    impl super::super::Executor for Bad {
        fn authorize(&self, call: &Call) -> Result<CallPolicy, Error> {
            self.0.authorize(call)
        }
        fn execute(
            &self,
            launch: wharf_core::step::Launch,
        ) -> futures::future::BoxFuture<'static, Result<String, String>> {
            assert!(launch.call.id.as_str() != "early", "the executor crashes before it gives a future");
            self.0.execute(launch)
        }
    }
    let world = World::new();
    world.executor.plan("late", Ending::Panic);
    world.executor.plan("good", Ending::output("fine"));
    world.sim.run(async {
        let mut options = world.options();
        options.executor = Arc::new(Bad(world.executor.clone()));
        let mut c = Coordinator::open(options).await.unwrap();
        c.start_turn(Vec::new()).await.unwrap();
        for id in ["late", "early", "good"] {
            c.register(call(id, "note").into()).await.unwrap();
        }
        while c.wait_job().await.unwrap() {}
        let crashed = r#"{"error":"cancelled: the tool's job crashed"}"#;
        assert_eq!(states(&c), json!({ "late": ready(crashed), "early": ready(crashed), "good": ready("fine") }));
    });
    let crashed = |line: &String| line.starts_with("settled") && line.contains(" crashed: ");
    assert_eq!(world.journal().iter().filter(|line| crashed(line)).count(), 2);
}

#[test]
fn malformed_arguments_are_journaled_with_their_raw_text_and_never_run() {
    // covers L46
    let world = World::new();
    world.sim.run(async {
        let broken = Call::function("c1", "pay", r#"{"amount": 1"#).asynchronous();
        let c = world.answered([broken.clone()]).await;
        let pending = c.checkpoint().unwrap().call(&"c1".into()).unwrap().clone();
        assert_eq!((pending.call, pending.rejected), (broken, true));
        let wharf_core::CallState::Ready { output } = pending.state else { panic!("it has no output") };
        assert!(
            output.starts_with(r#"{"error":"the arguments of call \"c1\" of tool \"pay\" are not JSON: "#),
            "{output}"
        );
        assert!(output.ends_with(r#"; send the call again with valid JSON"}"#), "{output}");
        assert_eq!(world.journal()[3], format!("rejected c1 pay async malformed_arguments: {output}"));
    });
    assert_eq!(world.executor.runs(), [""; 0]);
}

#[test]
fn what_policy_refuses_is_a_result_for_the_model_and_the_turn_goes_on() {
    // covers L47, L50, L64, L53
    let world = World::new();
    let at = "arguments do not fit the schema at /path: 7 is no string";
    world.executor.set_policy("note", Ok(CallPolicy::refuse(RefusalReason::InvalidInput, at)));
    world.executor.set_policy("pay", Ok(CallPolicy::refuse(RefusalReason::Policy, "paying is not allowed")));
    world.executor.plan("c4", Ending::output("seen"));
    world.requester.answer(
        [crate::testing::started("r1")]
            .into_iter()
            .chain(made([call("c1", "note"), call("c2", "noet"), background("c3", "pay"), call("c4", "look")]))
            .chain([crate::testing::finished("r1", "tool_calls")]),
    );
    world.requester.answer([crate::testing::finished("r2", "stop")]);
    world.sim.run(async {
        let mut c = world.started().await;
        assert_eq!(world.run(&mut c, 2).await, Ok(Rest::Finished));
    });
    let unknown = r#"unknown tool \"noet\"; close names: bank, edit, form, gate, look, note, pay, write"#;
    assert_eq!(
        world.requester.asks()[1].delivery.as_ref().unwrap().input,
        [
            json!({ "type": "function_call_output", "call_id": "c1", "output": format!(r#"{{"error":"{at}"}}"#) }),
            json!({ "type": "function_call_output", "call_id": "c2", "output": format!(r#"{{"error":"{unknown}"}}"#) }),
            json!({ "type": "function_call_output", "call_id": "c3", "output": r#"{"error":"paying is not allowed"}"# }),
            json!({ "type": "function_call_output", "call_id": "c4", "output": "seen" }),
        ]
    );
    let rejected: Vec<String> = world.journal().into_iter().filter(|line| line.starts_with("rejected")).collect();
    assert_eq!(
        rejected,
        [
            format!(r#"rejected c1 note sync invalid_input: {{"error":"{at}"}}"#),
            format!(r#"rejected c2 noet sync unknown_tool: {{"error":"{unknown}"}}"#),
            r#"rejected c3 pay async policy: {"error":"paying is not allowed"}"#.to_owned(),
        ]
    );
    assert_eq!(world.executor.runs(), ["c4#1"]);
}

#[test]
fn a_keyed_call_keeps_its_key_over_runs_and_shares_it_with_no_other() {
    // covers L56, G12
    let world = World::new();
    world.sim.run(async {
        let mut c =
            world.answered([background("b1", "bank"), background("b2", "bank"), background("l1", "look")]).await;
        world.executor.launched(3).await;
        world.executor.settle("b2", Ending::output("2"));
        c.wait_job().await.unwrap();
        drop(c);
        let _c = world.reopen().await.unwrap();
        world.executor.launched(5).await;
    });
    let keys: Vec<(String, Option<String>)> = world
        .executor
        .launches()
        .into_iter()
        .map(|l| (format!("{}#{}", l.call.id, l.attempt), l.idempotency_key))
        .collect();
    let key = |name: &str| keys.iter().find(|(run, _)| run == name).and_then(|(_, key)| key.clone());
    assert_eq!(keys.len(), 5);
    assert_eq!(key("b1#1"), key("b1#2"));
    assert!(key("b1#1").is_some() && key("b2#1").is_some());
    assert_ne!(key("b1#1"), key("b2#1"));
    assert_eq!((key("l1#1"), key("l1#2")), (None, None));
}

#[test]
fn the_end_of_an_orphan_is_noticed_although_another_call_starts_in_its_place() {
    // covers L27, L58, L59
    let mut world = World::new();
    world.settings.calls_at_once = 1;
    world.settings.uncertainty.continue_after_lost = true;
    world.sim.run(async {
        let mut c = world.streaming().await;
        let steps = [crate::testing::started("r1"), Step::call(background("a1", "pay"))];
        world.read(&mut c, steps).await.expect_err("it breaks");
        c.settle_uncertain().await.unwrap();
        c.begin_response(whole()).await.unwrap();
        let steps = [
            crate::testing::started("r2"),
            Step::call(background("a2", "pay")),
            crate::testing::finished("r2", "stop"),
        ];
        world.read(&mut c, steps).await.unwrap();
        assert_eq!(states(&c), json!({ "a1": "Running", "a2": "Queued" }));
        world.executor.launched(1).await;
        world.executor.settle("a1", Ending::output("paid"));
        assert_eq!(c.wait_job().await, Ok(true));
        assert_eq!(states(&c), json!({ "a1": ready("paid"), "a2": "Running" }));
    });
}
