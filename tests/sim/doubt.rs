//! The checker can fail: worlds that are wrong by hand, each of which has to be reported, and right ones that are not.

use wharf_core::policy::ReplayClass;

use crate::check::check;
use crate::outside::{Event, Line, Outside, Rules, mark};

/// A world in which an answer `r1` with the async call `c`, of this class, is followed by `r2`, which gets its output.
fn good(class: ReplayClass) -> Outside {
    let rules = Rules { class, is_async: true, held: false, refused: false };
    let key = (class == ReplayClass::Keyed).then(|| "k".to_owned());
    let events = vec![
        Event::Opened(1),
        durable(1, "response.begun", "{}"),
        Event::Sent { owner: 1, request: 1, lines: vec![input()] },
        made(1, "r1", &["c"]),
        durable(1, "call.started", r#"{"id":"c"}"#),
        Event::Started { owner: 1, call: "c".into(), key },
        Event::Ended { owner: 1, call: "c".into(), output: Some("out".into()) },
        durable(1, "call.settled", r#"{"id":"c"}"#),
        durable(1, "response.begun", "{}"),
        Event::Sent {
            owner: 1,
            request: 2,
            lines: vec![input(), Line::Answer("r1".into()), Line::Call("c".into()), output("out")],
        },
        made(2, "r2", &[]),
        Event::Shown { turn: 1, status: "completed".into(), answer: Some("r2".into()) },
        Event::Gone(1),
    ];
    Outside { rules: [("c".to_owned(), rules)].into(), events }
}

const START: usize = 5;
const END: usize = 6;
const SETTLED: usize = 7;
const SENT: usize = 9;

fn input() -> Line {
    Line::User("input 1".into())
}

fn output(text: &str) -> Line {
    Line::Output("c".into(), text.into())
}

fn durable(owner: usize, kind: &str, text: &str) -> Event {
    Event::Durable { owner, kind: kind.into(), text: text.into() }
}

fn made(request: usize, response: &str, calls: &[&str]) -> Event {
    let calls = calls.iter().map(|call| (*call).to_owned()).collect();
    Event::Made { request, response: response.into(), calls, accepted: true }
}

fn lines(world: &mut Outside) -> &mut Vec<Line> {
    let Event::Sent { lines, .. } = &mut world.events[SENT] else { panic!("no request stands there") };
    lines
}

/// The world of this class after a change has a breach that begins like this.
fn bad(class: ReplayClass, change: impl FnOnce(&mut Outside), begins: &str) {
    let mut world = good(class);
    assert_eq!(check(&world), Vec::<String>::new());
    change(&mut world);
    let breaches = check(&world);
    assert!(breaches.iter().any(|breach| breach.starts_with(begins)), "{begins:?} is not among {breaches:?}");
}

#[test]
fn a_second_start_of_a_never_call_is_reported() {
    bad(ReplayClass::Never, |world| world.events.insert(START, world.events[START].clone()), "never: c");
}

#[test]
fn a_second_start_after_policy_forbade_it_is_reported() {
    let again = |world: &mut Outside| {
        let start = world.events[START].clone();
        world
            .events
            .splice(START + 1..START + 1, [durable(1, "call.started", r#"{"id":"c"}"#), Event::Narrowed, start]);
    };
    bad(ReplayClass::Safe, again, "never: c was started again");
}

#[test]
fn another_key_and_a_shared_key_are_reported() {
    let other = Event::Started { owner: 1, call: "c".into(), key: Some("k2".into()) };
    bad(ReplayClass::Keyed, |world| world.events.insert(START, other), "key: c ran");
    let shared = |world: &mut Outside| {
        world.rules.insert("d".into(), world.rules["c"].clone());
        world.events.insert(START, Event::Started { owner: 1, call: "d".into(), key: Some("k".into()) });
    };
    bad(ReplayClass::Keyed, shared, "key: d shares");
}

#[test]
fn a_start_that_policy_or_an_approval_forbids_is_reported() {
    let rule =
        |change: fn(&mut Rules)| move |world: &mut Outside| change(world.rules.get_mut("c").expect("it is there"));
    bad(ReplayClass::Safe, rule(|rules| rules.refused = true), "refused: c");
    bad(ReplayClass::Safe, rule(|rules| rules.held = true), "held: c");
}

#[test]
fn a_start_after_the_result_is_reported() {
    bad(ReplayClass::Safe, |world| world.events.insert(SETTLED + 1, world.events[START].clone()), "result: c");
}

#[test]
fn what_is_done_before_its_record_is_reported() {
    bad(ReplayClass::Never, |world| drop(world.events.remove(START - 1)), "durable: c");
    bad(ReplayClass::Never, |world| drop(world.events.remove(SENT - 1)), "durable: request 2");
}

#[test]
fn an_owner_that_was_replaced_or_is_gone_and_acts_is_reported() {
    bad(ReplayClass::Never, |world| world.events.insert(SENT, Event::Opened(2)), "owner: 1 sent request 2");
    bad(ReplayClass::Never, |world| world.events.insert(SETTLED, Event::Opened(2)), "owner: 1 appended call.settled");
    bad(ReplayClass::Never, |world| world.events.insert(END, Event::Gone(1)), "owner: 1 ran c");
}

#[test]
fn a_lost_and_a_made_up_result_are_reported() {
    let says = |text: &'static str| {
        move |world: &mut Outside| {
            *lines(world).last_mut().expect("the output is last") = output(text);
        }
    };
    bad(ReplayClass::Never, says(r#"{"error":"unknown"}"#), "result lost: c");
    bad(ReplayClass::Never, says("something else"), "result lost: c");
    let never_ended = |world: &mut Outside| drop(world.events.remove(END));
    bad(ReplayClass::Never, never_ended, "result made up:");
}

#[test]
fn a_result_is_excused_where_its_owner_was_lost_before_it_was_durable_and_only_there() {
    let mut world = good(ReplayClass::Never);
    *lines(&mut world).last_mut().expect("the output is last") = output(r#"{"error":"unknown"}"#);
    world.events.insert(SETTLED, Event::Disturbed(1));
    assert!(check(&world)[0].starts_with("result lost: c"), "it was durable");
    let Event::Durable { owner, .. } = &mut world.events[SETTLED + 1] else { panic!("no record stands there") };
    *owner = 2; // another one said what it could not know
    world.events.insert(SETTLED + 1, Event::Opened(2));
    for event in &mut world.events[SETTLED + 3..] {
        if let Event::Durable { owner, .. } | Event::Sent { owner, .. } = event {
            *owner = 2;
        }
    }
    assert_eq!(check(&world), Vec::<String>::new());
    // Being replaced is enough, but not before this owner had the session, and not once it gave it up.
    world.events.retain(|event| *event != Event::Disturbed(1));
    assert_eq!(check(&world), Vec::<String>::new());
    let opened = world.events.iter().position(|event| *event == Event::Opened(2)).expect("it is there");
    world.events.insert(opened, Event::Gone(1));
    assert!(check(&world)[0].starts_with("result lost: c"), "it gave the session up");
}

#[test]
fn an_output_that_is_missing_comes_twice_or_is_for_an_orphan_is_reported() {
    bad(ReplayClass::Never, |world| drop(lines(world).pop()), "output lost: c");
    bad(ReplayClass::Never, |world| lines(world).push(output("out")), "output twice:");
    bad(ReplayClass::Never, |world| drop(lines(world).remove(2)), "orphan: request 2");
}

#[test]
fn an_orphan_that_is_told_never_or_twice_and_a_call_that_is_no_orphan_and_is_told_are_reported() {
    let notice = || Line::Host(format!("[host] lost: {}", mark("c")));
    let orphaned = move |notices: usize| {
        move |world: &mut Outside| {
            *lines(world) = vec![input()];
            let notices = std::iter::repeat_with(|| Line::Host(format!("[host] lost: {}", mark("c")))).take(notices);
            lines(world).extend(notices);
        }
    };
    bad(ReplayClass::Never, orphaned(0), "told: the orphan c");
    bad(ReplayClass::Never, orphaned(2), "told: the orphan c");
    bad(ReplayClass::Never, move |world| lines(world).push(notice()), "told: c");
    let mut world = good(ReplayClass::Never);
    orphaned(1)(&mut world);
    assert_eq!(check(&world), Vec::<String>::new());
    world.rules.get_mut("c").expect("it is there").is_async = false;
    assert!(check(&world)[0].starts_with("sync: c"));
}

#[test]
fn history_that_is_rewritten_and_input_that_is_lost_are_reported() {
    bad(ReplayClass::Never, |world| lines(world)[0] = Line::User("another".into()), "history:");
    bad(ReplayClass::Never, |world| drop(lines(world).remove(0)), "input: what the user said in turn 1");
    bad(ReplayClass::Never, |world| lines(world).insert(3, Line::Call("c".into())), "history: c stands twice");
}

#[test]
fn a_turn_that_is_stuck_or_shown_with_an_answer_that_nobody_accepted_is_reported() {
    bad(ReplayClass::Never, |world| world.events.push(Event::Stuck("so".into())), "stuck: so");
    bad(ReplayClass::Never, |world| world.events.retain(|e| !matches!(e, Event::Shown { .. })), "stuck: no turn ended");
    let failed = |world: &mut Outside| {
        for event in &mut world.events {
            if let Event::Made { accepted, request: 2, .. } = event {
                *accepted = false;
            }
        }
    };
    bad(ReplayClass::Never, failed, "shown: r2");
}
