//! Going on under another harness: X14, L52, L15.

use std::collections::BTreeMap;

use super::*;
use crate::testing::{Ending, finished};

/// The facts of a harness with one capability, whose `pay` has this replay class and which reaches these folders.
fn facts(replay: &str, folders: &[(&str, bool)], conversation: &str) -> HarnessFacts {
    capabilities(&[("files", "sha256:1", replay, folders)], conversation)
}

type Capability<'a> = (&'a str, &'a str, &'a str, &'a [(&'a str, bool)]);

fn capabilities(list: &[Capability<'_>], conversation: &str) -> HarnessFacts {
    let mut authorities = serde_json::Map::new();
    let mut components = BTreeMap::new();
    for (name, component, replay, folders) in list {
        let fs: serde_json::Map<_, _> = folders
            .iter()
            .map(|(guest, write)| ((*guest).to_owned(), json!({ "host": format!("/host{guest}"), "write": write })))
            .collect();
        let value = json!({
            "component": component,
            "grants": { "fs": fs, "http": {}, "env": {}, "secrets": {}, "tools": [], "state": false },
            "tools": { "pay": { "replay": replay, "async": true, "approve": "never", "refused": false } },
        });
        authorities.insert((*name).to_owned(), value);
        components.insert(*name, *component);
    }
    let authority_value = Value::Object(authorities);
    HarnessFacts {
        name: "h".to_owned(),
        component: format!("{components:?}"),
        authority: authority_value.to_string(),
        conversation: conversation.to_owned(),
        authority_value,
    }
}

/// A session whose turn has an open call under `before`, opened under `now`.
fn open_under(before: &HarnessFacts, now: &HarnessFacts, accept: bool) -> (World, Result<(), Error>) {
    let mut world = World::new();
    world.harness = Some(before.clone());
    let result = world.sim.run(async {
        let mut c = world.open().await.unwrap();
        c.bind_harness(before.clone()).await.unwrap();
        c.start_turn(Vec::new()).await.unwrap();
        c.register(background("h1", "gate").into()).await.unwrap();
        c.park("it waits").await.unwrap();
        let mut options = world.options();
        options.harness = Some(now.clone());
        options.accept_wider = accept;
        Coordinator::open(options).await.map(drop)
    });
    (world, result)
}

fn bound(world: &World) -> Vec<Record> {
    world.records().into_iter().filter(|record| matches!(record, Record::HarnessBound(_))).collect()
}

const READ: &[(&str, bool)] = &[("/docs", false)];
const WRITE: &[(&str, bool)] = &[("/docs", true)];
const BOTH: &[(&str, bool)] = &[("/docs", false), ("/etc", false)];

#[test]
fn an_equal_harness_goes_on_and_appends_nothing() {
    // covers X14, L52
    let same = facts("never", READ, "c1");
    let (world, result) = open_under(&same, &same, false);
    assert_eq!(result, Ok(()));
    assert_eq!(bound(&world), [Record::HarnessBound(same)]);
    assert_eq!(world.tail(1), ["parked: it waits"]);
}

#[test]
fn a_narrower_authority_goes_on_and_is_journaled() {
    // covers X14, L52
    for (before, now) in [
        (facts("never", WRITE, "c1"), facts("never", READ, "c1")),
        (facts("never", BOTH, "c1"), facts("never", READ, "c1")),
        (facts("safe", READ, "c1"), facts("never", READ, "c1")),
        (
            capabilities(&[("files", "sha256:1", "never", READ), ("web", "sha256:2", "never", &[])], "c1"),
            facts("never", READ, "c1"),
        ),
    ] {
        let (world, result) = open_under(&before, &now, false);
        assert_eq!(result, Ok(()));
        assert_eq!(bound(&world), [Record::HarnessBound(before), Record::HarnessBound(now)]);
    }
}

#[test]
fn a_wider_authority_is_a_conflict_for_open_calls_that_names_it_and_may_be_accepted() {
    // covers X14, L52
    for (before, now, what) in [
        (
            facts("never", READ, "c1"),
            facts("never", WRITE, "c1"),
            r#"capability "files": folder "/docs" is writable now"#,
        ),
        (facts("never", READ, "c1"), facts("never", BOTH, "c1"), r#"capability "files": folder "/etc" is new"#),
        (
            facts("never", READ, "c1"),
            facts("safe", READ, "c1"),
            r#"capability "files": replay of "pay" is safe, was never"#,
        ),
        (
            facts("never", READ, "c1"),
            capabilities(&[("files", "sha256:9", "never", READ)], "c1"),
            r#"capability "files": component is sha256:9, was sha256:1"#,
        ),
        (
            facts("never", READ, "c1"),
            capabilities(&[("files", "sha256:1", "never", READ), ("web", "sha256:2", "never", &[])], "c1"),
            r#"capability "web" is new"#,
        ),
    ] {
        let (world, result) = open_under(&before, &now, false);
        let message = format!(r#"harness "h" allows more than when the open calls of this turn were made: {what}"#);
        let hint = "put the harness back, or accept the change: wharf session resume SESSION --accept-wider (a `wharf \
                    session reconcile` takes --accept-wider too)";
        assert_eq!(result, Err(Error::conflict(message).hint(hint)));
        assert_eq!(bound(&world), [Record::HarnessBound(before.clone())]);
        assert_eq!(world.tail(1), ["parked: it waits"]);

        let (world, result) = open_under(&before, &now, true);
        assert_eq!(result, Ok(()));
        assert_eq!(bound(&world), [Record::HarnessBound(before), Record::HarnessBound(now)]);
    }
}

#[test]
fn many_differences_are_listed_up_to_a_bound() {
    // covers X14
    let names: Vec<String> = (0..20).map(|n| format!("/f{n:02}")).collect();
    let folders: Vec<(&str, bool)> = names.iter().map(|name| (name.as_str(), false)).collect();
    let (_, result) = open_under(&facts("never", &[], "c1"), &facts("never", &folders, "c1"), false);
    let message = result.expect_err("it is wider").message;
    assert_eq!(message.matches(" is new").count(), crate::limits::DIFFERENCES_SHOWN_MAX);
    assert!(message.ends_with("; and 12 more"), "{message}");
}

#[test]
fn what_cannot_be_compared_counts_as_wider() {
    // covers X14
    let parsed = facts("never", READ, "c1");
    let odd = |authority: &str, value: Value| HarnessFacts {
        authority: authority.to_owned(),
        authority_value: value,
        ..parsed.clone()
    };
    let mut broken = parsed.authority_value.clone();
    broken["files"]["tools"]["pay"]["replay"] = "sometimes".into();
    for (before, now) in [
        (odd("a", Value::Null), odd("b", Value::Null)),
        (odd("a", broken), parsed.clone()),
        (odd("a", parsed.authority_value.clone()), odd("b", parsed.authority_value.clone())),
        (parsed.clone(), HarnessFacts { component: "other".to_owned(), ..parsed.clone() }),
    ] {
        let (_, result) = open_under(&before, &now, false);
        assert_eq!(kind(result), ErrorKind::Conflict);
    }
    let same = odd("a", Value::Null);
    assert_eq!(open_under(&same, &same, false).1, Ok(()), "equal digests need no comparison");
}

#[test]
fn a_change_of_the_conversation_alone_is_journaled_and_stands_in_nobodys_way() {
    // covers X14, L52
    let (before, now) = (facts("never", READ, "c1"), facts("never", READ, "c2"));
    let (world, result) = open_under(&before, &now, false);
    assert_eq!(result, Ok(()));
    assert_eq!(bound(&world), [Record::HarnessBound(before), Record::HarnessBound(now)]);
}

#[test]
fn a_wider_harness_without_open_calls_goes_on() {
    // covers X14
    let (before, now) = (facts("never", READ, "c1"), facts("never", WRITE, "c1"));
    let mut world = World::new();
    world.executor.plan("n1", Ending::output("1"));
    world.sim.run(async {
        let mut c = world.open().await.unwrap();
        c.bind_harness(before.clone()).await.unwrap();
        c.start_turn(Vec::new()).await.unwrap();
        world.requester.answer([Step::sync_call(call("n1", "note")), finished("r1", "tool_calls")]);
        assert_eq!(kind(world.run(&mut c, 1).await), ErrorKind::Config);
        c.park("the limit").await.unwrap();
    });
    world.harness = Some(now.clone());
    world.requester.answer([finished("r2", "stop")]);
    world.sim.run(async {
        let mut c = world.open().await.expect("its only call has its result");
        assert_eq!(world.run(&mut c, 1).await, Ok(Rest::Finished));
    });
    assert_eq!(bound(&world), [Record::HarnessBound(before), Record::HarnessBound(now)]);
}

#[test]
fn between_turns_any_harness_may_come() {
    // covers X14
    let (before, now) = (facts("never", READ, "c1"), facts("safe", WRITE, "c2"));
    let mut world = World::new();
    world.requester.answer([finished("r1", "stop")]);
    world.sim.run(async {
        let mut c = world.open().await.unwrap();
        c.bind_harness(before.clone()).await.unwrap();
        c.start_turn(Vec::new()).await.unwrap();
        assert_eq!(world.run(&mut c, 1).await, Ok(Rest::Finished));
        c.end_turn("completed").await.unwrap();
        c.release().await.unwrap();
    });
    world.harness = Some(now.clone());
    world.sim.run(async {
        let mut c = world.open().await.unwrap();
        assert_eq!(bound(&world), [Record::HarnessBound(before.clone())], "nothing to go on with, nothing to say");
        c.bind_harness(now.clone()).await.unwrap();
        c.bind_harness(now.clone()).await.unwrap();
    });
    assert_eq!(bound(&world), [Record::HarnessBound(before), Record::HarnessBound(now)]);
}

#[test]
fn who_gives_the_turn_up_is_not_asked_about_its_harness() {
    // covers X14, G17
    let (before, now) = (facts("never", READ, "c1"), facts("never", WRITE, "c1"));
    let (mut world, result) = open_under(&before, &now, false);
    assert_eq!(kind(result), ErrorKind::Conflict);
    world.harness = Some(now);
    world.reconcile = Some(Reconcile::Abandon);
    world.sim.run(async {
        world.open().await.expect("the turn is given up");
    });
    assert_eq!(world.tail(1), ["turn ended abandoned"]);
}

/// A crashed turn with a running call of class never, made under `before`; by now policy says `safe`.
async fn wider_by_now(world: &mut World) -> HarnessFacts {
    let (before, now) = (facts("never", READ, "c1"), facts("safe", READ, "c1"));
    world.harness = Some(before.clone());
    let mut c = world.open().await.unwrap();
    c.bind_harness(before).await.unwrap();
    c.start_turn(Vec::new()).await.unwrap();
    c.begin_response(whole()).await.unwrap();
    let steps =
        [crate::testing::started("r1"), Step::call(background("h1", "gate")), Step::call(background("p1", "pay"))];
    world.read(&mut c, steps).await.expect_err("it breaks");
    world.executor.launched(1).await;
    drop(c);
    for (tool, policy) in [("pay", CallPolicy::start()), ("gate", CallPolicy::hold(Hold::Approval))] {
        world.executor.set_policy(tool, Ok(policy.with_async().with_replay(ReplayClass::Safe)));
    }
    world.harness = Some(now.clone());
    now
}

#[test]
fn a_wider_harness_and_an_uncertain_request_are_answered_for_in_one_command() {
    // covers X14, G16, G17
    let mut world = World::new();
    world.settings.uncertainty.resend_lost = 0;
    world.sim.clone().run(async {
        let now = wider_by_now(&mut world).await;
        let before = world.journal();
        assert_eq!(kind(world.reopen().await.map(drop)), ErrorKind::Conflict);
        world.accept_wider = true;
        assert_eq!(kind(world.reopen().await.map(drop)), ErrorKind::Store, "its request is uncertain");
        world.reconcile = Some(Reconcile::Resend);
        world.accept_wider = false;
        assert_eq!(kind(world.reopen().await.map(drop)), ErrorKind::Conflict);
        assert_eq!(world.journal(), before);
        world.accept_wider = true;
        world.reopen().await.unwrap();
        assert_eq!(bound(&world)[1..], [Record::HarnessBound(now)]);
    });
}

#[test]
fn a_wider_harness_that_was_accepted_is_no_conflict_at_the_next_opening() {
    // covers X14, L15
    let mut world = World::new();
    world.sim.clone().run(async {
        wider_by_now(&mut world).await;
        world.accept_wider = true;
        world.reconcile = None;
        let read = wharf_core::model::Retrieved::Ended {
            completion: crate::testing::completion("r1", "tool_calls"),
            calls: vec![background("h1", "gate").into(), background("p1", "pay").into()],
        };
        world.retriever = Some(ScriptedRetriever::new([Ok(read)]));
        drop(world.reopen().await.unwrap());
        world.accept_wider = false;
        let c = world.reopen().await.unwrap();
        // The call that was made under the narrower rule keeps it.
        let held = c.checkpoint().unwrap().call(&"h1".into()).unwrap();
        assert_eq!((held.replay, held.hold.clone()), (ReplayClass::Never, Some(Hold::Approval)));
    });
    assert_eq!(world.executor.runs(), ["p1#1"]);
}

#[test]
fn a_harness_under_which_an_open_call_cannot_be_opened_is_never_in_force() {
    // covers L15, X14
    let mut world = World::new();
    let (before, now) = (facts("safe", WRITE, "c1"), facts("safe", READ, "c1"));
    world.harness = Some(before.clone());
    world.sim.clone().run(async {
        let mut c = world.open().await.unwrap();
        c.bind_harness(before.clone()).await.unwrap();
        c.start_turn(Vec::new()).await.unwrap();
        c.register(background("l1", "look").into()).await.unwrap();
        drop(c);
        world.executor.set_policy("look", Ok(CallPolicy::start().with_async().with_replay(ReplayClass::Keyed)));
        world.harness = Some(now);
        for _ in 0..2 {
            assert_eq!(kind(world.reopen().await.map(drop)), ErrorKind::Conflict);
        }
        assert_eq!(bound(&world), [Record::HarnessBound(before)]);
    });
}
