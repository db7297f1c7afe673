//! Requests whose fate is uncertain: G13 to G20, L57 to L59, and the operator's commands.

use wharf_core::checkpoint::INTERRUPTED;
use wharf_core::model::{Completion, Item, Outcome, Retrieved, Role};
use wharf_core::record::PauseReason;

use super::*;
use crate::limits;
use crate::seams::Seams;
use crate::testing::{Ending, completion, finished, started};

const COMMANDS: &str = "answer with `wharf session reconcile SESSION --resend` to send it again, with `--receipt \
                        RESPONSE_ID` if that response took it, or with `--abandon` to end the turn";

impl World {
    /// A process that began a request, read these events of its answer, and is gone.
    async fn crashed(&self, plan: Plan, steps: impl IntoIterator<Item = Step>) {
        let mut c = match self.records().is_empty() {
            true => self.started().await,
            false => self.reopen().await.expect("it opens"),
        };
        c.begin_transcript_message("m", plan).await.expect("it begins");
        self.read(&mut c, steps).await.expect_err("no terminal event comes");
        self.sim.idle().await;
    }

    /// The same, where the request delivered the output of call `s1` on response `r1`.
    async fn crashed_delivery(&self, steps: impl IntoIterator<Item = Step>) {
        self.executor.plan("s1", Ending::output("1"));
        let mut c = self.answered([call("s1", "note")]).await;
        let prepared = c.prepare_delivery().await;
        assert!(matches!(prepared, Ok(crate::coordinator::Prepared::Delivery(_))), "{prepared:?}");
        c.begin_transcript_message("m", on("r1")).await.expect("it begins");
        self.read(&mut c, steps).await.expect_err("no terminal event comes");
        self.sim.idle().await;
    }

    fn retrieves(&mut self, answer: Retrieved) -> ScriptedRetriever {
        let retriever = ScriptedRetriever::new([Ok(answer)]);
        self.retriever = Some(retriever.clone());
        retriever
    }
}

fn ended(completion: Completion, calls: Vec<Call>) -> Retrieved {
    Retrieved::Ended { completion, calls: calls.into_iter().map(Into::into).collect() }
}

#[test]
fn a_delivery_whose_request_was_never_begun_was_not_sent() {
    // covers G13, G14
    let world = World::new();
    world.executor.plan("s1", Ending::output("1"));
    world.requester.answer([finished("r2", "stop")]);
    world.sim.run(async {
        let mut c = world.answered([call("s1", "note")]).await;
        c.prepare_delivery().await.unwrap();
        drop(c);
        let mut c = world.reopen().await.unwrap();
        assert_eq!(world.tail(2), ["delivery s1 on r1", "flight not_sent"]);
        assert_eq!(states(&c), json!({ "s1": ready("1") }));
        assert_eq!(world.run(&mut c, 1).await, Ok(Rest::Finished));
    });
    assert_eq!(world.requester.asks()[0].delivery.as_ref().unwrap().call_ids, ids(&["s1"]));
}

#[test]
fn a_completed_response_that_is_retrieved_is_the_receipt() {
    // covers G15, G20, G10
    let mut world = World::new();
    let held = Completion { text: "done".to_owned(), ..completion("r2", "stop") };
    let retriever = world.retrieves(ended(held, vec![background("a1", "look")]));
    world.sim.run(async {
        world.crashed_delivery([started("r2"), Step::text("do")]).await;
        let c = world.reopen().await.unwrap();
        world.sim.idle().await;
        assert_eq!(states(&c), json!({ "s1": "Delivered", "a1": "Running" }));
        assert_eq!(c.checkpoint().unwrap().latest_response_id(), Some(&"r2".into()));
        assert_eq!(c.session().turn().unwrap().last_response.as_ref().unwrap().text, "done");
    });
    assert_eq!(retriever.asked(), ["r2".into()]);
    assert_eq!(
        world.tail(8)[1..],
        [
            "accepted a1 look async safe",
            "acknowledged by r2",
            "recorded r2 stop",
            "flight cleared",
            "summary",
            "committed",
            "started a1 #1",
        ]
    );
    assert_eq!(world.requester.asks(), []);
}

#[test]
fn a_call_that_streamed_and_comes_again_by_retrieval_is_one_call() {
    // covers G15, L16
    let mut world = World::new();
    let calls = vec![background("a1", "look"), call("s1", "note")];
    world.retrieves(ended(completion("r1", "tool_calls"), calls.clone()));
    world.sim.run(async {
        world.crashed(whole(), [vec![started("r1")], made(calls)].concat()).await;
        assert_eq!(world.executor.runs(), ["a1#1"]);
        let _c = world.reopen().await.unwrap();
        world.sim.idle().await;
    });
    assert_eq!(world.executor.runs(), ["a1#1", "a1#2", "s1#1"]);
}

#[test]
fn calls_of_a_retrieved_response_start_only_after_recovery() {
    // covers G1, L1, L15
    let mut world = World::new();
    world.retrieves(ended(completion("r1", "stop"), vec![background("a2", "look"), background("a3", "write")]));
    world.sim.run(async {
        world.crashed(whole(), [started("r1"), Step::call(background("a1", "bank"))]).await;
        world.executor.set_policy("bank", Ok(CallPolicy::start().with_async().with_replay(ReplayClass::Safe)));
        assert_eq!(kind(world.reopen().await.map(drop)), ErrorKind::Conflict);
        world.sim.idle().await;
    });
    assert_eq!(world.executor.runs(), ["a1#1"], "a conflict relaunches nothing, what was retrieved included");
}

#[test]
fn an_incomplete_response_that_is_retrieved_is_the_receipt_and_stops_the_turn() {
    // covers G20, L66
    let mut world = World::new();
    let cut = Completion {
        outcome: Outcome::Incomplete { reason: "max_output_tokens".to_owned() },
        ..completion("r2", "length")
    };
    world.retrieves(ended(cut, vec![call("s2", "note")]));
    world.sim.run(async {
        world.crashed_delivery([started("r2")]).await;
        let mut c = world.reopen().await.unwrap();
        world.sim.idle().await;
        assert_eq!(states(&c), json!({ "s1": "Delivered", "s2": "Queued" }));
        let reason = PauseReason::Incomplete { reason: "max_output_tokens".to_owned() };
        assert_eq!(world.run(&mut c, 1).await, Ok(Rest::Paused(reason)));
    });
    assert_eq!(world.executor.runs(), ["s1#1"]);
}

#[test]
fn a_failed_or_cancelled_response_that_is_retrieved_was_not_accepted_and_its_calls_never_start() {
    // covers G20, G14, L58
    for outcome in
        [Outcome::Cancelled, Outcome::Failed { code: "server_error".to_owned(), message: "it broke".to_owned() }]
    {
        let mut world = World::new();
        let failed = Completion { outcome: outcome.clone(), ..completion("r2", "error") };
        world.retrieves(ended(failed, vec![background("a2", "look"), call("s2", "note")]));
        world.requester.answer([finished("r3", "stop")]);
        world.sim.run(async {
            world.crashed_delivery([started("r2")]).await;
            let mut c = world.reopen().await.unwrap();
            assert_eq!(world.tail(2), ["flight not_accepted", "transcript dropped"]);
            assert_eq!(states(&c), json!({ "s1": ready("1") }));
            assert_eq!(world.run(&mut c, 1).await, Ok(Rest::Finished), "{outcome:?}");
        });
        assert_eq!(world.executor.runs(), ["s1#1"]);
        assert_eq!(world.requester.asks()[0].delivery.as_ref().unwrap().call_ids, ids(&["s1"]));
    }
}

#[test]
fn a_response_in_progress_is_waited_for() {
    // covers G20
    let mut world = World::new();
    let answers = vec![
        Ok(Retrieved::InProgress),
        Ok(Retrieved::InProgress),
        Ok(Retrieved::InProgress),
        Ok(ended(completion("r1", "stop"), Vec::new())),
    ];
    let retriever = ScriptedRetriever::new(answers);
    world.retriever = Some(retriever.clone());
    world.sim.run(async {
        world.crashed(whole(), [started("r1")]).await;
        let mut c = world.reopen().await.unwrap();
        assert_eq!(world.sim.now(), 3 * limits::RETRIEVE_EVERY);
        assert_eq!(world.run(&mut c, 0).await, Ok(Rest::Finished));
    });
    assert_eq!(retriever.asked().len(), 4);
}

#[test]
fn what_retrieval_cannot_settle_counts_as_lost_where_nothing_stored_depends_on_it() {
    // covers G19, G20, G15
    let hung = ScriptedRetriever::new([]);
    for (retriever, asked) in [
        (ScriptedRetriever::new([Ok(Retrieved::NotFound)]), 1..=1),
        (ScriptedRetriever::new([Ok(Retrieved::InProgress)]), 29..=31),
        (ScriptedRetriever::new([Err(failure(Fate::Unknown))]), 1..=1),
        (hung, 1..=1),
    ] {
        let mut world = World::new();
        world.retriever = Some(retriever.clone());
        world.requester.answer([finished("r2", "stop")]);
        world.sim.run(async {
            world.crashed(whole(), [started("r1")]).await;
            let mut c = world.reopen().await.unwrap();
            assert!(world.sim.now() <= limits::RETRIEVE_WAIT, "{:?}", world.sim.now());
            assert_eq!(world.tail(2), ["flight lost", "transcript dropped"]);
            assert_eq!(world.run(&mut c, 1).await, Ok(Rest::Finished));
        });
        assert!(asked.contains(&retriever.asked().len()), "{} times", retriever.asked().len());
        assert_eq!(world.requester.asks().len(), 1);
    }
}

#[test]
fn a_response_whose_id_was_never_seen_is_not_asked_for() {
    // covers G15, G19
    let mut world = World::new();
    let retriever = world.retrieves(ended(completion("r1", "stop"), Vec::new()));
    world.sim.run(async {
        world.crashed(whole(), [Step::text("hel")]).await;
        world.reopen().await.unwrap();
    });
    assert_eq!(retriever.asked(), []);
    assert_eq!(world.tail(2), ["flight lost", "transcript dropped"]);
}

#[test]
fn a_lost_request_is_sent_again_as_often_as_the_harness_says() {
    // covers G19
    // field case PROV-18
    for resend_lost in [0, 1, 2] {
        let mut world = World::new();
        world.settings.uncertainty.resend_lost = resend_lost;
        world.sim.run(async {
            for _ in 0..resend_lost {
                world.crashed(whole(), []).await;
                world.reopen().await.expect("it is lost, and may be sent again");
            }
            world.crashed(whole(), []).await;
            let before = world.journal();
            let error = world.reopen().await.map(drop).expect_err("it was lost too often");
            assert_eq!((error.kind, error.hint.as_deref()), (ErrorKind::Store, Some(COMMANDS)));
            assert_eq!(world.journal(), before);
        });
        let lost = world.journal().iter().filter(|line| *line == "flight lost").count();
        assert_eq!(lost, usize::try_from(resend_lost).unwrap());
    }
}

#[test]
fn an_accepted_response_in_between_counts_the_losses_anew() {
    // covers G19
    let world = World::new();
    world.sim.run(async {
        world.crashed(whole(), []).await;
        let mut c = world.reopen().await.unwrap();
        c.begin_response(whole()).await.unwrap();
        world.read(&mut c, [finished("r1", "stop")]).await.unwrap();
        drop(c);
        world.crashed(whole(), []).await;
        world.reopen().await.expect("this is its first loss");
    });
}

#[test]
fn an_unknown_delivery_on_a_stored_response_is_never_sent_again_blindly() {
    // covers G16, G3
    // field case PROV-17, PROV-16
    for retriever in [None, Some(ScriptedRetriever::new([Ok(Retrieved::NotFound)]))] {
        let mut world = World::new();
        world.retriever = retriever;
        world.sim.run(async {
            world.crashed_delivery([started("r2"), Step::Fail(failure(Fate::Unknown))]).await;
            let before = world.journal();
            let error = world.reopen().await.map(drop).expect_err("nobody can tell");
            assert_eq!(
                error,
                Error::store("it is not known whether the provider accepted the delivery of \"s1\" on response \"r1\"")
                    .hint(COMMANDS)
            );
            assert_eq!(world.journal(), before);
            assert_eq!(kind(world.open().await.map(drop)), ErrorKind::Store);
        });
        assert_eq!(world.requester.asks(), []);
        assert_eq!(world.executor.runs(), ["s1#1"]);
    }
}

#[test]
fn an_unknown_delivery_is_sent_again_where_the_harness_says_so() {
    // covers G19
    let mut world = World::new();
    world.settings.uncertainty.resend_unknown = true;
    world.requester.answer([finished("r3", "stop")]);
    world.sim.run(async {
        world.crashed_delivery([started("r2")]).await;
        let mut c = world.reopen().await.unwrap();
        assert_eq!(world.tail(2), ["flight lost", "transcript dropped"]);
        assert_eq!(world.run(&mut c, 1).await, Ok(Rest::Finished));
    });
    assert_eq!(world.requester.asks()[0].delivery.as_ref().unwrap().call_ids, ids(&["s1"]));
}

#[test]
fn an_operator_gives_the_receipt() {
    // covers G17, G18
    let mut world = World::new();
    world.reconcile = Some(Reconcile::Receipt("r2".into()));
    let read = Completion { text: "done".to_owned(), ..completion("r2", "tool_calls") };
    let calls = vec![background("a2", "look"), call("s2", "note"), background("a3", "look")];
    let retriever = world.retrieves(ended(read, calls));
    world.sim.run(async {
        // Of three calls two streamed, and nothing said what the response is called.
        world.crashed_delivery([Step::sync_call(call("s2", "note")), Step::call(background("a2", "look"))]).await;
        let mut c = world.reopen().await.unwrap();
        assert_eq!(
            world.tail(12),
            [
                "op: receipt r2",
                "response r2",
                "accepted a3 look async safe",
                "acknowledged by r2",
                "recorded r2 tool_calls",
                "flight cleared",
                "summary",
                "committed",
                "requeued a2",
                "started s2 #1",
                "started a2 #2",
                "started a3 #1",
            ]
        );
        world.executor.launched(5).await;
        assert_eq!(c.session().turn().unwrap().last_response.as_ref().unwrap().text, "done");
        for id in ["s2", "a2", "a3"] {
            world.executor.settle(id, Ending::output("2"));
        }
        world.requester.answer([finished("r3", "stop")]);
        world.requester.answer([finished("r4", "stop")]);
        assert_eq!(world.run(&mut c, 9).await, Ok(Rest::Finished));
    });
    assert_eq!(world.requester.asks()[0].latest, Some("r2".into()));
    assert_eq!(retriever.asked(), ["r2".into()]);
}

#[test]
fn a_receipt_for_a_response_that_nobody_can_read_changes_nothing_and_says_what_to_use_instead() {
    // covers G17, G20
    let of = |outcome| Ok(ended(Completion { outcome, ..completion("r2", "stop") }, Vec::new()));
    let failed = Outcome::Failed { code: "server_error".to_owned(), message: "no".to_owned() };
    let cases = [
        (None, "r2", "cannot be read from the provider"),
        (Some(Err(failure(Fate::Unknown))), "r2", "cannot be read from the provider"),
        (Some(Ok(Retrieved::NotFound)), "r2", "is not known to the provider"),
        (Some(Ok(Retrieved::InProgress)), "r2", "is still being made"),
        (Some(of(failed)), "r2", "failed or was cancelled at the provider"),
        (Some(of(Outcome::Cancelled)), "r2", "failed or was cancelled at the provider"),
        // Another one than the one that streamed, and the one that was accepted before.
        (Some(of(Outcome::Completed)), "r9", ""),
        (Some(of(Outcome::Completed)), "r1", ""),
    ];
    for (answer, id, why) in cases {
        let mut world = World::new();
        world.retriever = answer.map(|answer| ScriptedRetriever::new([answer]));
        world.sim.clone().run(async {
            world.crashed_delivery([started("r2"), Step::call(background("a2", "pay"))]).await;
            let before = world.journal();
            world.reconcile = Some(Reconcile::Receipt(id.into()));
            let error = world.reopen().await.map(drop).expect_err("nobody can read it");
            assert_eq!(error.kind, ErrorKind::Store);
            let said = match id {
                "r1" => {
                    r#"response "r1" was accepted before; it is not the answer to the request in flight"#.to_owned()
                }
                "r9" => r#"the request in flight was answered by response "r2", not by "r9""#.to_owned(),
                _ => format!(r#"response "r2" {why}, so it cannot be taken as the receipt"#),
            };
            assert_eq!(error.message, said);
            assert_eq!(error.hint.is_some_and(|hint| hint.contains("--resend")), !why.is_empty());
            assert_eq!(world.journal(), before);
        });
        assert_eq!(world.executor.runs(), ["s1#1", "a2#1"]);
    }
}

#[test]
fn a_call_that_is_read_again_keeps_what_it_was_registered_with() {
    // covers G15, L15, C3
    // What the provider spells anew, and what policy says now.
    let again = Call::function("a1", "look", " { } ");
    let narrower = CallPolicy::start().with_replay(ReplayClass::Never);
    let mut world = World::new();
    world.retrieves(ended(completion("r1", "tool_calls"), vec![again]));
    world.sim.run(async {
        world.crashed(whole(), [started("r1"), Step::call(background("a1", "look"))]).await;
        world.executor.set_policy("look", Ok(narrower));
        let c = world.reopen().await.unwrap();
        assert_eq!(states(&c), json!({ "a1": ready(&json!({ "error": INTERRUPTED }).to_string()) }));
        let stored = c.checkpoint().unwrap().call(&"a1".into()).unwrap();
        assert_eq!(stored.call, background("a1", "look"));
    });
    assert_eq!(
        world.tail(7),
        [
            "completed r1",
            "recorded r1 tool_calls",
            "flight cleared",
            "summary",
            "committed",
            "narrowed a1",
            format!("settled a1 interrupted: {}", json!({ "error": INTERRUPTED })).as_str(),
        ]
    );
    assert_eq!(world.executor.runs(), ["a1#1"]);
}

#[test]
fn another_call_under_the_id_of_one_that_streamed_is_the_providers_error() {
    // covers L49, G15
    for other in [call("a1", "pay"), Call::function("a1", "look", r#"{"n":1}"#), Call::custom("a1", "look", "{}")] {
        let mut world = World::new();
        world.retrieves(ended(completion("r1", "tool_calls"), vec![other]));
        world.sim.run(async {
            world.crashed(whole(), [started("r1"), Step::call(background("a1", "look"))]).await;
            let before = world.journal();
            let error = world.reopen().await.map(drop).expect_err("it is another call");
            assert_eq!(error.kind, ErrorKind::Provider);
            assert_eq!(error.message, r#"call "a1" is another one now than when it streamed"#);
            assert_eq!(error.hint.as_deref(), Some(COMMANDS));
            assert_eq!(world.journal(), before);
        });
    }
}

#[test]
fn an_operator_says_send_again() {
    // covers G17
    let mut world = World::new();
    world.reconcile = Some(Reconcile::Resend);
    world.requester.answer([finished("r3", "stop")]);
    world.sim.run(async {
        world.crashed_delivery([Step::sync_call(call("s2", "note"))]).await;
        let mut c = world.reopen().await.unwrap();
        assert_eq!(world.tail(3), ["op: resend", "flight resend orphans s2", "transcript dropped"]);
        assert_eq!(world.run(&mut c, 1).await, Ok(Rest::Finished));
    });
    assert_eq!(world.requester.asks()[0].delivery.as_ref().unwrap().call_ids, ids(&["s1"]));
    assert_eq!(world.executor.runs(), ["s1#1"], "a call that was withdrawn never starts");
}

#[test]
fn an_operator_gives_the_turn_up() {
    // covers G17, L60
    let mut world = World::new();
    world.reconcile = Some(Reconcile::Abandon);
    world.sim.run(async {
        world.crashed_delivery([started("r2")]).await;
        let mut c = world.reopen().await.unwrap();
        assert!(c.session().open_turn().is_none());
        c.release().await.unwrap();
    });
    assert_eq!(
        world.tail(5),
        [
            "op: abandon",
            "flight abandoned orphans s1",
            "transcript dropped",
            r#"outcome {"status":"abandoned"}"#,
            "turn ended abandoned",
        ]
    );
    assert_eq!(world.requester.asks(), []);
}

#[test]
fn an_answer_to_nothing_is_an_error_and_changes_nothing() {
    // covers G17
    for command in [Reconcile::Receipt("r9".into()), Reconcile::Resend] {
        let mut world = World::new();
        world.reconcile = Some(command);
        world.sim.run(async {
            let mut c = world.started().await;
            c.abort().await;
            let before = world.journal();
            assert_eq!(kind(world.open().await.map(drop)), ErrorKind::Store);
            assert_eq!(world.journal(), before);
        });
    }
}

#[test]
fn a_receipt_in_a_process_that_lives_on_releases_the_sync_calls() {
    // covers G17, L20, L57
    let mut world = World::new();
    world.retrieves(ended(completion("r1", "tool_calls"), vec![background("a1", "pay"), call("s1", "note")]));
    world.sim.run(async {
        let mut c = world.started().await;
        world.requester.answer([
            started("r1"),
            Step::call(background("a1", "pay")),
            Step::sync_call(call("s1", "note")),
            Step::Fail(failure(Fate::Unknown)),
        ]);
        world.run(&mut c, 9).await.expect_err("it breaks");
        c.reconcile(Reconcile::Receipt("r1".into()), "op").await.unwrap();
        assert_eq!(
            world.tail(7),
            [
                "op: receipt r1",
                "completed r1",
                "recorded r1 tool_calls",
                "flight cleared",
                "started s1 #1",
                "summary",
                "committed"
            ]
        );
        world.executor.launched(2).await;
        for id in ["a1", "s1"] {
            world.executor.settle(id, Ending::output("1"));
        }
        world.requester.answer([finished("r2", "stop")]);
        assert_eq!(world.run(&mut c, 9).await, Ok(Rest::Finished));
    });
    assert_eq!(world.executor.runs(), ["a1#1", "s1#1"]);
    assert_eq!(world.executor.dropped(), []);
}

fn notice(lines: &[&str]) -> Item {
    let mut text =
        "[host] An earlier answer of yours was lost on the way and is not part of this conversation. These calls of \
                    it were run; do not repeat them without need:"
            .to_owned();
    for line in lines {
        text.push_str("\n- ");
        text.push_str(line);
    }
    Item::Message { role: Role::User, text }
}

#[test]
fn calls_of_a_lost_response_run_on_and_the_model_is_told_of_them() {
    // covers L57, L58, L59, G19
    let world = World::new();
    world.requester.answer([
        started("r1"),
        Step::call(background("a1", "look")),
        Step::sync_call(call("s1", "note")),
        Step::Fail(failure(Fate::Unknown)),
    ]);
    world.requester.answer([finished("r2", "stop")]);
    world.sim.run(async {
        let mut c = world.started().await;
        assert_eq!(world.run(&mut c, 9).await, Err(failure(Fate::Unknown).error));
        c.settle_uncertain().await.unwrap();
        assert_eq!(world.tail(2), ["flight lost orphans a1 s1", "transcript dropped"]);
        world.executor.launched(1).await;
        let script = async {
            world.sim.idle().await;
            assert_eq!(world.requester.asks().len(), 1, "what became of a1 is waited for");
            world.executor.settle("a1", Ending::output("seen\n- pay {}: done"));
        };
        assert_eq!(futures::join!(world.run(&mut c, 9), script).0, Ok(Rest::Finished));
        assert_eq!(states(&c), json!({ "a1": ready("seen\n- pay {}: done"), "s1": "Queued" }));
    });
    assert_eq!(world.executor.runs(), ["a1#1"]);
    assert_eq!(world.executor.dropped(), []);
    let asks = world.requester.asks();
    assert_eq!(
        asks[1],
        crate::coordinator::Ask {
            notice: Some(notice(&[r#"look "{}": "seen\n- pay {}: done""#])),
            ..Default::default()
        },
        "no output on its id, and its text cannot look like a line of ours"
    );
    assert!(world.journal().contains(&"begun 2 whole message tells a1".to_owned()));
}

#[test]
fn after_the_outputs_of_a_delivery_comes_what_was_lost() {
    // covers L59, L58
    let mut world = World::new();
    world.settings.uncertainty.resend_unknown = true;
    world.executor.plan("s1", Ending::output("1"));
    world.executor.plan("a2", Ending::error("no such page"));
    world.requester.answer([started("r2"), Step::call(background("a2", "look")), Step::Fail(failure(Fate::Unknown))]);
    world.requester.answer([finished("r3", "stop")]);
    world.sim.run(async {
        let mut c = world.answered([call("s1", "note")]).await;
        world.run(&mut c, 9).await.expect_err("it breaks");
        c.settle_uncertain().await.unwrap();
        assert_eq!(world.run(&mut c, 9).await, Ok(Rest::Finished));
    });
    let delivery = world.requester.asks().remove(1).delivery.unwrap();
    assert_eq!(delivery.call_ids, ids(&["s1"]));
    assert_eq!(delivery.after, [notice(&[r#"look "{}": "{\"error\":\"no such page\"}""#])]);
}

#[test]
fn a_started_call_of_class_never_in_a_lost_response_waits_for_an_operator() {
    // covers L59, L62, G17
    let world = World::new();
    world.executor.plan("p1", Ending::output("paid"));
    world.requester.answer([Step::call(background("p1", "pay")), Step::Fail(failure(Fate::Unknown))]);
    world.requester.answer([finished("r2", "stop")]);
    world.sim.run(async {
        let mut c = world.started().await;
        world.run(&mut c, 9).await.expect_err("it breaks");
        c.settle_uncertain().await.unwrap();
        let waits = Ok(Rest::Paused(PauseReason::LostResponse { calls: ids(&["p1"]) }));
        assert_eq!(world.run(&mut c, 9).await, waits);
        assert_eq!(kind(c.resume("just go on").await), ErrorKind::Store, "a resume is no answer");
        assert_eq!(world.run(&mut c, 9).await, waits);
        c.park("an operator has to answer").await.unwrap();

        let mut c = world.open().await.unwrap();
        assert_eq!(world.run(&mut c, 9).await, waits);
        c.reconcile(Reconcile::Resend, "op").await.unwrap();
        assert_eq!(world.run(&mut c, 9).await, Ok(Rest::Finished));
    });
    assert_eq!(world.executor.runs(), ["p1#1"]);
    let asks = world.requester.asks();
    assert_eq!((asks.len(), asks[1].notice.clone()), (2, Some(notice(&[r#"pay "{}": "paid""#]))));
}

#[test]
fn the_harness_may_let_a_turn_go_on_after_a_lost_response() {
    // covers L59
    let mut world = World::new();
    world.settings.uncertainty.continue_after_lost = true;
    world.executor.plan("p1", Ending::output("paid"));
    world.requester.answer([Step::call(background("p1", "pay")), Step::Fail(failure(Fate::Unknown))]);
    world.requester.answer([finished("r2", "stop")]);
    world.sim.run(async {
        let mut c = world.started().await;
        world.run(&mut c, 9).await.expect_err("it breaks");
        c.settle_uncertain().await.unwrap();
        assert_eq!(world.run(&mut c, 9).await, Ok(Rest::Finished));
    });
    assert_eq!(world.executor.runs(), ["p1#1"]);
    assert_eq!(world.requester.asks()[1].notice, Some(notice(&[r#"pay "{}": "paid""#])));
}

#[test]
fn what_a_lost_request_told_is_told_again() {
    // covers L59, G19
    let mut world = World::new();
    world.settings.uncertainty.resend_lost = 2;
    world.executor.plan("a1", Ending::output("seen"));
    world.requester.answer([Step::call(background("a1", "look")), Step::Fail(failure(Fate::Unknown))]);
    world.requester.fail(failure(Fate::Unknown));
    world.requester.answer([finished("r3", "stop")]);
    world.sim.run(async {
        let mut c = world.started().await;
        for _ in 0..2 {
            assert_eq!(kind(world.run(&mut c, 9).await), ErrorKind::Provider);
            c.settle_uncertain().await.unwrap();
        }
        assert_eq!(world.run(&mut c, 9).await, Ok(Rest::Finished));
    });
    let told = Some(notice(&[r#"look "{}": "seen""#]));
    let notices: Vec<_> = world.requester.asks().into_iter().map(|ask| ask.notice).collect();
    assert_eq!(notices, [None, told.clone(), told]);
    assert_eq!(world.executor.runs(), ["a1#1"]);
}

#[test]
fn an_orphan_that_was_running_at_a_crash_is_not_run_again() {
    // covers L58, G4, G12
    let world = World::new();
    world.sim.run(async {
        let mut c = world.started().await;
        world.requester.answer([
            Step::call(background("a1", "look")),
            Step::call(background("b1", "bank")),
            Step::Fail(failure(Fate::Unknown)),
        ]);
        world.run(&mut c, 9).await.expect_err("it breaks");
        c.settle_uncertain().await.unwrap();
        world.executor.launched(2).await;
        drop(c);
        let c = world.reopen().await.unwrap();
        world.sim.idle().await;
        let interrupted = ready(&json!({ "error": wharf_core::checkpoint::INTERRUPTED }).to_string());
        assert_eq!(states(&c), json!({ "a1": interrupted, "b1": interrupted }));
    });
    assert_eq!(world.executor.runs(), ["a1#1", "b1#1"]);
}
