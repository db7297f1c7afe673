//! Commands through the inbox, from another process (M8, M9).

use std::time::Duration;

use futures::join;
use wharf_core::inbox::{About, Command};
use wharf_core::model::Retrieved;
use wharf_core::record::PauseReason;
use wharf_core::session::Session;
use wharf_store::{InboxItem, InboxPut, Store as _};

use super::*;
use crate::inbox::{Told, tell};
use crate::limits;
use crate::seams::Seams;
use crate::testing::{Ending, Gate, StoreFault, StoreOp, completion, finished, started};

const CANCELLED: &str = r#"{"error":"cancelled"}"#;
const RESEND: Command = Command::Reconcile(Reconcile::Resend);
const ABANDON: Command = Command::Reconcile(Reconcile::Abandon);

impl World {
    async fn tell(&self, command: Command) -> Result<Told, Error> {
        tell(self.store.shared(), self.sim.shared(), &self.key, &command, "op", limits::COMMAND_WAIT).await
    }

    /// Leaves a command without waiting for anybody.
    async fn leave(&self, command: &Command) -> InboxPut {
        let about = command.about(&Session::fold(&self.records()).unwrap()).unwrap();
        self.put(command, about).await
    }

    async fn put(&self, command: &Command, about: About) -> InboxPut {
        let item = InboxItem {
            id: self.sim.fresh().into(),
            target: about.target,
            kind: command.kind().into(),
            who: "op".into(),
            at_ms: 0,
            digest: about.digest,
            body: command.body(),
        };
        self.store.inner().put_inbox(&self.key, item).await.unwrap()
    }

    async fn waiting(&self) -> usize {
        self.store.inner().inbox(&self.key).await.unwrap().len()
    }
}

fn taken() -> Result<Told, Error> {
    Ok(Told::Taken { owner: format!("pid {}", std::process::id()) })
}

fn refused(why: &str) -> Result<Told, Error> {
    Ok(Told::Refused { owner: format!("pid {}", std::process::id()), why: why.to_owned() })
}

#[test]
fn a_cancel_from_another_process_reaches_the_owner_while_the_model_speaks() {
    // covers M8, M9, Q15, L31, H1
    let world = World::new();
    world.requester.answer([
        started("r1"),
        Step::call(background("a1", "pay")),
        Step::sync_call(call("s1", "note")),
        Step::Gate(Gate::new()),
    ]);
    world.sim.run(async {
        let mut c = world.started().await;
        let script = async {
            world.executor.launched(1).await;
            let asked = world.sim.now();
            let told = world.tell(Command::Cancel).await;
            (told, world.sim.now() - asked)
        };
        let (ended, (told, took)) = join!(world.run(&mut c, 9), script);
        assert_eq!(ended, Err(Error::cancelled("the turn was cancelled by op")));
        assert_eq!(told, taken());
        assert!(took <= wharf_store::limits::INBOX_WAKE_MAX, "{took:?}");
        assert_eq!(states(&c), json!({ "a1": ready(CANCELLED), "s1": ready(CANCELLED) }));
        world.sim.idle().await;
        assert_eq!(world.waiting().await, 0);
    });
    assert_eq!(world.executor.dropped(), ids(&["a1"]));
    let settled = [format!("settled a1 cancelled: {CANCELLED}"), format!("settled s1 cancelled: {CANCELLED}")];
    let tail = world.tail(3);
    assert!(tail[0].starts_with("inbox cancel cancel "), "{tail:?}");
    assert_eq!(tail[1..], settled);
}

#[test]
fn a_cancel_reaches_the_owner_while_it_waits_for_a_call_alone() {
    // covers M8, L31
    let world = World::new();
    world.sim.run(async {
        let mut c = world.answered([background("a1", "pay"), background("a2", "pay")]).await;
        world.executor.launched(2).await;
        world.executor.settle("a1", Ending::output("paid"));
        let (ended, told) = join!(
            async {
                while c.wait_job().await? {}
                Ok::<_, Error>(())
            },
            world.tell(Command::Cancel)
        );
        assert_eq!(ended, Err(Error::cancelled("the turn was cancelled by op")));
        assert_eq!(told, taken());
        assert_eq!(states(&c), json!({ "a1": ready("paid"), "a2": ready(CANCELLED) }));
    });
}

#[test]
fn a_cancel_of_a_session_without_an_owner_is_done_by_whoever_commands_it() {
    // covers M8, H1, H3
    let world = World::new();
    world.sim.run(async {
        let mut c = world.answered([background("a1", "pay"), background("h1", "gate")]).await;
        world.executor.launched(1).await;
        c.abort().await;
        drop(c);
        assert_eq!(world.tell(Command::Cancel).await, Ok(Told::Done));
        let tail = world.tail(4);
        assert!(tail[0].starts_with("inbox cancel cancel "), "{tail:?}");
        assert_eq!(
            tail[1..],
            [
                format!("settled a1 cancelled: {CANCELLED}"),
                format!("settled h1 cancelled: {CANCELLED}"),
                "parked: the turn was cancelled".to_owned(),
            ]
        );
        // Again there is nothing to cancel, and it does no harm.
        assert_eq!(world.tell(Command::Cancel).await, Ok(Told::Done));
        assert_eq!(world.waiting().await, 0);
        world.open().await.expect("its lease is free and the turn is open");
    });
}

#[test]
fn a_command_about_nothing_is_an_error_and_leaves_nothing() {
    // covers M8
    let world = World::new();
    world.requester.answer([finished("r1", "stop")]);
    world.sim.run(async {
        let mut c = world.started().await;
        world.run(&mut c, 1).await.unwrap();
        // The owner is alive and nothing is uncertain.
        assert_eq!(
            world.tell(RESEND).await,
            Err(Error::store("no request is in flight and nothing waits for an answer"))
        );
        c.store_outcome(json!({})).await.unwrap();
        c.end_turn("completed").await.unwrap();
        for command in [Command::Cancel, ABANDON] {
            assert_eq!(world.tell(command).await, Err(Error::store("no turn of this session is open")));
        }
        assert_eq!(world.waiting().await, 0);
    });
}

#[test]
fn an_abandonment_from_another_process_ends_the_turn_under_its_owner() {
    // covers M8, G17, L60
    let world = World::new();
    world.requester.answer([started("r1"), Step::call(background("a1", "pay")), Step::Gate(Gate::new())]);
    world.sim.run(async {
        let mut c = world.started().await;
        let script = async {
            world.executor.launched(1).await;
            world.tell(ABANDON).await
        };
        let (ended, told) = join!(world.run(&mut c, 9), script);
        assert_eq!(ended, Err(Error::cancelled("the turn was abandoned by op")));
        assert_eq!(told, taken());
        assert_eq!(c.session().turn().unwrap().ended.as_deref(), Some("abandoned"));
    });
    assert_eq!(world.tail(2), [r#"outcome {"status":"abandoned"}"#, "turn ended abandoned"]);
}

#[test]
fn an_answer_for_a_request_that_is_being_answered_is_refused_and_harms_nothing() {
    // covers M8, G17
    let world = World::new();
    let gate = Gate::new();
    world.requester.answer([started("r1"), Step::Gate(gate.clone()), finished("r1", "stop")]);
    world.sim.run(async {
        let mut c = world.started().await;
        let script = async {
            world.sim.idle().await;
            let told =
                (world.tell(RESEND).await, world.tell(Command::Reconcile(Reconcile::Receipt("r7".into()))).await);
            gate.open();
            told
        };
        let (ended, told) = join!(world.run(&mut c, 9), script);
        let why = "the request is being answered, so nothing about it is uncertain";
        assert_eq!((ended, told), (Ok(Rest::Finished), (refused(why), refused(why))));
    });
}

#[test]
fn an_answer_that_comes_while_the_owner_finds_out_itself_is_taken_when_it_finds_nothing() {
    // covers M8, G15, G16, G17
    let mut world = World::new();
    world.retrieves_for_ever();
    world.executor.plan("s1", Ending::output("1"));
    world.requester.answer([started("r2")]);
    world.requester.answer([finished("r3", "stop")]);
    world.sim.run(async {
        let mut c = world.answered([call("s1", "note")]).await;
        let work = async {
            assert_eq!(kind(world.run(&mut c, 1).await), ErrorKind::Provider);
            c.settle_uncertain().await?;
            world.run(&mut c, 1).await
        };
        let script = async {
            world.sim.sleep(Duration::from_secs(3)).await;
            world.tell(RESEND).await
        };
        let asked = world.sim.now();
        assert_eq!(join!(work, script), (Ok(Rest::Finished), taken()));
        assert!(world.sim.now() - asked < limits::RETRIEVE_WAIT, "it was not waited for to its end");
    });
    let sent: Vec<_> = world.requester.asks().into_iter().map(|ask| ask.delivery.map(|d| d.call_ids)).collect();
    assert_eq!(sent, [Some(ids(&["s1"])), Some(ids(&["s1"]))]);
}

impl World {
    fn retrieves_for_ever(&mut self) {
        let answers = std::iter::repeat_with(|| Ok(Retrieved::InProgress)).take(100);
        self.retriever = Some(ScriptedRetriever::new(answers));
    }
}

#[test]
fn what_was_left_for_an_owner_that_died_is_done_by_the_next_one_before_it_settles_anything() {
    // covers M8, G17
    let world = World::new();
    world.executor.plan("s1", Ending::output("1"));
    world.requester.answer([started("r2")]);
    world.sim.run(async {
        let mut c = world.answered([call("s1", "note")]).await;
        assert_eq!(kind(world.run(&mut c, 1).await), ErrorKind::Provider);
        drop(c);
        assert_eq!(world.leave(&RESEND).await, InboxPut::Accepted);
        // Without it this opening would ask for an operator's answer (G16).
        let c = world.reopen().await.unwrap();
        assert_eq!(states(&c), json!({ "s1": ready("1") }));
        assert_eq!(world.waiting().await, 0);
    });
    let tail = world.tail(4);
    assert!(tail[0].starts_with("inbox reconcile reconcile "), "{tail:?}");
    assert_eq!(tail[1], "op: resend");
}

#[test]
fn a_receipt_that_was_left_is_read_before_it_counts_and_refused_with_the_reason_otherwise() {
    // covers M8, G17, G20
    for (answer, counts) in [
        (Retrieved::Ended { completion: completion("r2", "stop"), calls: Vec::new() }, true),
        (Retrieved::NotFound, false),
    ] {
        let mut world = World::new();
        world.executor.plan("s1", Ending::output("1"));
        world.requester.answer([]);
        world.retriever = Some(ScriptedRetriever::new([Ok(answer)]));
        world.sim.run(async {
            let mut c = world.answered([call("s1", "note")]).await;
            assert_eq!(kind(world.run(&mut c, 1).await), ErrorKind::Provider);
            drop(c);
            world.leave(&Command::Reconcile(Reconcile::Receipt("r2".into()))).await;
            let opened = world.reopen().await.map(|c| states(&c));
            if counts {
                assert_eq!(opened, Ok(json!({ "s1": "Delivered" })));
            } else {
                assert!(opened.unwrap_err().message.starts_with("it is not known whether the provider accepted"));
                let Some(Record::InboxConsumed { refused: Some(why), .. }) = world.records().pop() else {
                    panic!("{:?}", world.journal())
                };
                assert_eq!(why, "response \"r2\" is not known to the provider, so it cannot be taken as the receipt");
            }
            assert_eq!(world.waiting().await, 0, "it is read once");
        });
    }
}

#[test]
fn a_cancel_that_was_left_for_an_owner_that_died_has_its_effect_and_stops_nobody() {
    // covers M8, H1
    let world = World::new();
    world.requester.answer([finished("r2", "stop")]);
    world.sim.run(async {
        let c = world.answered([background("a1", "look")]).await;
        world.executor.launched(1).await;
        drop(c);
        world.leave(&Command::Cancel).await;
        let mut c = world.reopen().await.unwrap();
        assert_eq!(states(&c), json!({ "a1": ready(CANCELLED) }));
        assert_eq!(world.run(&mut c, 1).await, Ok(Rest::Finished), "whoever opened it wants it to go on");
    });
    assert_eq!(world.executor.runs(), ["a1#1"], "it is not run again");
}

#[test]
fn the_first_of_two_commands_on_the_same_wins_and_a_stale_one_is_refused() {
    // covers M8
    let world = World::new();
    world.sim.run(async {
        let c = world.answered([background("a1", "pay")]).await;
        drop(c);
        let about = ABANDON.about(&Session::fold(&world.records()).unwrap()).unwrap();
        assert_eq!(world.leave(&ABANDON).await, InboxPut::Accepted);
        assert_eq!(world.put(&Command::Reconcile(Reconcile::Resend), about).await, InboxPut::TooLate);
        // Left by somebody who saw another turn.
        let stale = About { target: "cancel another".into(), digest: "of another turn".into() };
        assert_eq!(world.put(&Command::Cancel, stale).await, InboxPut::Accepted);
        let c = world.reopen().await.unwrap();
        assert_eq!(c.session().turn().unwrap().ended.as_deref(), Some("abandoned"));
        assert_eq!(world.waiting().await, 0);
    });
    let Some(Record::InboxConsumed { target, refused: Some(why), .. }) = world.records().pop() else {
        panic!("{:?}", world.journal())
    };
    assert_eq!((target.as_str(), why.as_str()), ("cancel another", "no turn of this session is open"));
}

#[test]
fn items_that_are_no_commands_stay_where_they_are_and_wake_nobody_twice() {
    // covers M8
    let world = World::new();
    world.sim.run(async {
        let mut c = world.answered([background("a1", "pay")]).await;
        world.executor.launched(1).await;
        let item = InboxItem {
            id: "i1".into(),
            target: "h1".into(),
            kind: "decision".into(),
            who: "op".into(),
            at_ms: 0,
            digest: String::new(),
            body: "{}".into(),
        };
        world.store.inner().put_inbox(&world.key, item).await.unwrap();
        let script = async {
            world.sim.sleep(Duration::from_secs(1)).await;
            world.tell(Command::Cancel).await
        };
        let (ended, told) = join!(c.wait_job(), script);
        assert_eq!((ended.map(drop), told), (Err(Error::cancelled("the turn was cancelled by op")), taken()));
        assert_eq!(world.waiting().await, 1);
    });
}

#[test]
fn an_owner_whose_journal_fails_at_a_command_stops_acting_and_the_command_waits_for_the_next() {
    // covers M8, L11
    let world = World::new();
    world.sim.run(async {
        let mut c = world.answered([background("a1", "pay")]).await;
        world.executor.launched(1).await;
        world.store.fail_all(StoreOp::Append, StoreFault::Broken);
        world.leave(&Command::Cancel).await;
        assert_eq!(kind(c.wait_job().await), ErrorKind::Store);
        world.sim.idle().await;
        assert_eq!(world.executor.dropped(), ids(&["a1"]));
        world.store.mend();
        assert_eq!(world.waiting().await, 1);
        let c = world.reopen().await.unwrap();
        assert_eq!(states(&c), json!({ "a1": ready(CANCELLED) }));
    });
    assert_eq!(world.waiting_now(), 0);
}

impl World {
    fn waiting_now(&self) -> usize {
        self.sim.run(self.waiting())
    }
}

#[test]
fn a_paused_turn_waits_for_an_answer_through_the_inbox_too() {
    // covers M8, L59, G17
    let world = World::new();
    world.requester.answer([finished("r2", "stop")]);
    world.sim.run(async {
        let mut c = world.streaming().await;
        world.read(&mut c, [started("r1"), Step::call(background("a1", "pay"))]).await.unwrap_err();
        world.executor.launched(1).await;
        c.settle_uncertain().await.unwrap();
        assert!(matches!(c.session().turn().unwrap().paused, Some(PauseReason::LostResponse { .. })));
        // It still runs, so the turn is not at rest.
        let script = async {
            let told = world.tell(RESEND).await;
            world.executor.settle("a1", Ending::output("paid"));
            told
        };
        assert_eq!(join!(world.run(&mut c, 1), script), (Ok(Rest::Finished), taken()));
    });
}
