//! Promise 1, durable before doing, over whole turns: from what store, executor and requester wrote down (L10, L67).

use super::*;
use crate::testing::{Ending, finished, started};

/// Checks a timeline: each run follows its own start record, each request its own begun record, and both were durable by
/// then. A start record is for one run, a begun record for one request.
pub(super) fn durable_before_doing(timeline: &[String]) {
    let mut starts: Vec<String> = Vec::new();
    let mut begun = 0;
    for line in timeline {
        if let Some(rest) = line.strip_prefix("started ") {
            starts.push(rest.split(' ').take(2).collect::<Vec<_>>().join(" "));
        } else if line.starts_with("begun ") {
            begun += 1;
        } else if let Some(run) = line.strip_prefix("run ") {
            let at = starts.iter().position(|start| start == run);
            assert!(at.is_some(), "run {run} without a durable start record of its own");
            starts.remove(at.unwrap_or_default());
        } else if line == "send" {
            assert!(begun > 0, "a request was sent without a durable record of its own");
            begun -= 1;
        }
    }
}

#[test]
fn no_call_runs_and_no_request_is_sent_without_an_earlier_durable_record() {
    // covers L10
    let world = World::new();
    for id in ["a1", "s1", "b1"] {
        world.executor.plan(id, Ending::output("1"));
    }
    world.requester.answer([
        started("r1"),
        Step::call(background("a1", "pay")),
        Step::sync_call(call("s1", "note")),
        finished("r1", "tool_calls"),
    ]);
    world.requester.answer([started("r2"), Step::call(background("b1", "bank")), finished("r2", "stop")]);
    world.requester.answer([finished("r3", "stop")]);
    world.sim.run(async {
        let mut c = world.started().await;
        assert_eq!(world.run(&mut c, 9).await, Ok(Rest::Finished));
    });
    let timeline = world.timeline.lines();
    durable_before_doing(&timeline);
    let done: Vec<&str> =
        timeline.iter().map(String::as_str).filter(|line| line.starts_with("run ") || *line == "send").collect();
    assert_eq!(done, ["send", "run a1 #1", "run s1 #1", "send", "run b1 #1", "send"]);
}

#[test]
fn a_call_and_its_start_share_one_append() {
    // covers L10
    use crate::testing::StoreOp;
    let world = World::new();
    world.sim.run(async {
        let mut c = world.streaming().await;
        world.store.mend();
        c.register(background("a1", "pay").into()).await.unwrap();
        assert_eq!(world.store.count(StoreOp::Append), 1);
    });
    assert_eq!(world.tail(2), ["accepted a1 pay async never", "started a1 #1"]);
}

#[test]
fn the_listener_is_told_of_durable_records_with_their_positions() {
    // covers L10
    let world = World::new();
    let told = Arc::new(std::sync::Mutex::new(Vec::new()));
    world.executor.plan("a1", Ending::output("1"));
    world.requester.answer([finished("r2", "stop")]);
    world.sim.run(async {
        let c = world.answered([background("a1", "look"), background("h1", "form")]).await;
        drop(c);
        let mut options = world.options();
        options.acquire = Acquire::TakeOver;
        let log = told.clone();
        options.listener = Some(Box::new(move |seq, record| log.lock().unwrap().push((seq.0, record.clone()))));
        let mut c = Coordinator::open(options).await.unwrap();
        world.run(&mut c, 9).await.unwrap();
    });
    let records = world.records();
    let told = told.lock().unwrap();
    let first = usize::try_from(told[0].0).unwrap() - 1;
    let expected: Vec<(u64, Record)> =
        records[first..].iter().cloned().enumerate().map(|(at, record)| ((first + at + 1) as u64, record)).collect();
    assert_eq!(*told, expected, "each record from the opening on, once, in order");
    assert!(matches!(told[0].1, Record::CallRequeued { .. }));
}
