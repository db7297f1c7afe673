//! What a turn does next (L30, L41 to L44, L51, L62).

use super::*;

// covers L41, L43
#[test]
fn turn_asks_first_then_delivers_and_ends_once_everything_is_delivered() {
    let mut host = Host::new();
    assert_eq!(host.next(), Next::Ask);
    host.respond("resp_1", &[(sync("a"), start())]);
    assert_eq!(host.next(), Next::WaitForJob);
    host.ended("a", "x");
    assert_eq!(host.next(), Next::Deliver);
    host.act(Event::Prepare);
    assert_eq!(host.next(), Next::Resolve, "a delivery is open");
    host.begin_on("resp_1");
    assert_eq!(host.next(), Next::Resolve, "a response is in flight");
    host.complete("resp_2");
    assert_eq!(host.next(), Next::Finished);
}

// covers L30
#[test]
fn delivery_waits_for_all_sync_calls_and_not_for_async_ones() {
    let mut host = Host::with(Settings { calls_at_once: 2, ..Settings::default() });
    host.respond("resp_1", &[(asynchronous("slow"), start()), (sync("a"), start()), (sync("b"), start())]);
    host.ended("a", "1");
    assert_eq!(host.next(), Next::WaitForJob, "b runs");
    host.ended("b", "2");
    assert_eq!(host.next(), Next::Deliver);
    host.act(Event::Prepare);
    assert_eq!(host.checkpoint().delivery().unwrap().call_ids, ["a".into(), "b".into()]);
    // One that waits for its class counts as one that runs.
    let mut host = Host::new();
    host.respond("resp_1", &[(sync("a"), start().with_class("x")), (sync("b"), start().with_class("x"))]);
    host.call(sync("c"), start());
    host.ended("c", "3");
    assert_eq!(host.next(), Next::WaitForJob);
}

// covers L30
#[test]
fn sync_call_with_neither_job_nor_hold_is_a_store_error() {
    let mut host = Host::new();
    host.respond("resp_1", &[(sync("a"), start()), (sync("b"), start())]);
    host.ended("b", "x");
    host.crash();
    // Not opened: nobody took care of the call.
    let error = host.machine.next().unwrap_err();
    assert_eq!((error.kind, error.message.as_str()), (ErrorKind::Store, "call \"a\" has neither a job nor a hold"));
    // A response that withholds its sync calls is no excuse for an async one.
    for (is_async, next) in [(true, Err(ErrorKind::Store)), (false, Ok(Next::Ask))] {
        let mut host = Host::new();
        host.begin();
        host.act(Event::Stop);
        host.call(Call { is_async, ..sync("a") }, start());
        host.act(completed(Completion { finish_reason: Some("steered".into()), ..completion("resp_1") }));
        host.crash();
        assert_eq!(host.machine.next().map_err(|error| error.kind), next);
    }
}

// covers L41, L44
#[test]
fn with_nothing_ready_and_jobs_alive_the_turn_waits_before_it_asks_again() {
    let mut host = Host::new();
    host.respond("resp_1", &[(asynchronous("slow"), start())]);
    assert_eq!(host.next(), Next::WaitForJob);
    host.ended("slow", "x");
    assert_eq!(host.next(), Next::Deliver);
    // Also where it would ask with nothing to deliver: after a superseded response.
    let mut host = Host::new();
    host.begin();
    host.call(asynchronous("slow"), start());
    host.act(completed(Completion { finish_reason: Some("steered".into()), ..completion("resp_1") }));
    assert_eq!(host.next(), Next::WaitForJob);
    host.ended("slow", "x");
    assert_eq!(host.next(), Next::Deliver, "a delivery goes before anything else");
}

// covers L62
#[test]
fn paused_turn_is_at_rest_once_nothing_runs() {
    let mut host = Host::new();
    host.respond("resp_1", &[(asynchronous("slow"), start())]);
    let reason = PauseReason::Incomplete { reason: "length".into() };
    host.act(Event::Pause(reason.clone()));
    assert_eq!(host.act(Event::Pause(reason.clone())), [], "once");
    assert_eq!(host.next(), Next::WaitForJob);
    host.ended("slow", "x");
    assert_eq!(host.next(), Next::Rest(reason));
    host.act(Event::Resume { why: "go on".into() });
    assert_eq!(host.next(), Next::Deliver);
}

#[test]
fn without_an_open_turn_there_is_nothing_to_do() {
    assert_eq!(Host::empty(Settings::default()).machine.next().unwrap_err().kind, ErrorKind::Config);
}
