//! A journal for each invariant that breaks it, told from a sound one by one record.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use futures::FutureExt as _;
use serde_json::json;
use wharf_core::policy::{CallPolicy, Hold, RefusalReason, ReplayClass};
use wharf_core::record::{Begun, Closed, FlightFate, Settlement};
use wharf_core::session::Session;
use wharf_core::{Call, CallId, ErrorKind, Fence, RecordId};
use wharf_store::{Acquire, Append, MemoryStore, NewRecord, Owner};

use super::*;
use crate::coordinator::{Coordinator, Options, Rest};
use crate::testing::{
    Ending, FakeExecutor, ScriptedRequester, SimSeams, Step, StoreFault, StoreOp, TrialStore, finished, started,
};

fn turn(id: &str) -> Record {
    Record::TurnStarted { turn: id.into(), input: Vec::new(), closes: Vec::new() }
}

fn accepted(id: &str, replay: ReplayClass, key: Option<&str>, hold: Option<Hold>) -> Record {
    let call = Call::function(id, "tool", "{}").asynchronous();
    Record::CallAccepted { call, wire_call_id: None, replay, hold, idempotency_key: key.map(str::to_owned) }
}

fn never(id: &str) -> Record {
    accepted(id, ReplayClass::Never, None, None)
}

fn keyed(id: &str, key: &str) -> Record {
    accepted(id, ReplayClass::Keyed, Some(key), None)
}

fn held(id: &str) -> Record {
    accepted(id, ReplayClass::Safe, None, Some(Hold::Approval))
}

fn start(id: &str, attempt: u32) -> Record {
    Record::CallStarted { id: id.into(), attempt, idempotency_key: None, approval: None }
}

fn start_with(id: &str, attempt: u32, key: &str) -> Record {
    Record::CallStarted { id: id.into(), attempt, idempotency_key: Some(key.into()), approval: None }
}

fn start_by(id: &str, attempt: u32, approval: &str) -> Record {
    Record::CallStarted { id: id.into(), attempt, idempotency_key: None, approval: Some(approval.into()) }
}

fn release(id: &str, approval: &str) -> Record {
    Record::HoldReleased { id: id.into(), approval: approval.into() }
}

fn requeued(id: &str) -> Record {
    Record::CallRequeued { id: id.into() }
}

fn settled(id: &str) -> Record {
    Record::CallSettled { id: id.into(), output: "done".into(), how: Settlement::Done }
}

fn begun(ordinal: u64) -> Record {
    Record::ResponseBegun(Begun { ordinal, whole_history: true, ..Begun::default() })
}

fn completed(id: &str) -> Record {
    Record::ResponseCompleted { id: id.into() }
}

fn prepared(previous: &str, ids: &[&str]) -> Record {
    let call_ids = ids.iter().map(CallId::new).collect();
    Record::DeliveryPrepared { previous_response_id: previous.into(), call_ids, after: Vec::new() }
}

fn acknowledged(receipt: &str) -> Record {
    Record::DeliveryAcknowledged { receipt: receipt.into() }
}

fn letter(id: &str) -> Record {
    Record::InboxConsumed {
        id: id.into(),
        kind: "cancel".into(),
        target: "cancel".into(),
        who: "op".into(),
        refused: None,
    }
}

/// A turn in which `c1`, of class never, ran and was delivered: 10 records, the last of which acknowledges.
fn delivered() -> Vec<Record> {
    vec![
        turn("t1"),
        begun(1),
        never("c1"),
        start("c1", 1),
        completed("r1"),
        Record::FlightCleared,
        settled("c1"),
        prepared("r1", &["c1"]),
        begun(2),
        acknowledged("r2"),
    ]
}

fn with(mut records: Vec<Record>, more: impl IntoIterator<Item = Record>) -> Vec<Record> {
    records.extend(more);
    records
}

fn new(record: &Record, n: usize) -> NewRecord {
    let encoded = record.encode().unwrap();
    NewRecord {
        id: RecordId::new(format!("id{n}")),
        kind: encoded.kind.into(),
        version: encoded.version,
        at_ms: 1,
        body: encoded.body,
    }
}

fn stored(records: &[Record]) -> Vec<StoredRecord> {
    let one = |(n, record): (usize, &Record)| StoredRecord {
        seq: Seq(n as u64 + 1),
        fence: Fence(1),
        record: new(record, n),
    };
    records.iter().enumerate().map(one).collect()
}

/// Each breach as `number invariant: what is wrong`.
fn told(findings: &Findings) -> Vec<String> {
    findings.breaches.iter().map(|b| format!("{} {}: {}", b.seq, b.invariant.as_str(), b.what)).collect()
}

fn audited(records: &[StoredRecord]) -> Vec<String> {
    let mut audit = Audit::new(None);
    for record in records {
        audit.record(record, Output::Inline).unwrap();
    }
    let last = records.last().map_or(Seq(0), |last| last.seq);
    told(&audit.end(last, last))
}

#[track_caller]
fn breaks(records: Vec<Record>, expected: &[&str]) {
    assert_eq!(audited(&stored(&records)), expected);
}

fn key() -> JournalKey {
    JournalKey::local("s1")
}

/// A store with these records, as an owner would have written them.
fn store_of(records: &[Record]) -> MemoryStore {
    let store = MemoryStore::new();
    let owner = Owner { token: "a".into(), label: "a".into() };
    let lease = now(store.acquire(&key(), &owner, limits::RENEW_EVERY, Acquire::IfFree)).unwrap();
    let blobs = records.iter().filter_map(|record| record.encode().unwrap().blob).collect();
    let records = records.iter().enumerate().map(|(n, record)| new(record, n)).collect();
    now(store.append(&lease, Append { records, blobs, ..Append::default() })).unwrap();
    store
}

fn checked(store: &dyn Store) -> Result<Findings, Error> {
    now(verify(store, &key(), &mut |_| {}))
}

/// A memory store is ready at once.
fn now<T>(work: impl Future<Output = T>) -> T {
    work.now_or_never().expect("it is ready at once")
}

#[test]
fn the_journal_of_a_real_turn_is_sound() {
    // covers M1
    let sim = SimSeams::new();
    let store = TrialStore::new(&sim);
    let executor = FakeExecutor::new()
        .policy("add", CallPolicy::start())
        .policy("bank", CallPolicy::start().with_async().with_replay(ReplayClass::Keyed));
    executor.plan("c1", Ending::output("3"));
    executor.plan("c2", Ending::output("x".repeat(40_000)));
    let mut requester = ScriptedRequester::new(&sim);
    requester.answer([
        started("r1"),
        Step::call(Call::function("c2", "bank", "{}").asynchronous()),
        Step::sync_call(Call::function("c1", "add", "[1,2]")),
        finished("r1", "tool_calls"),
    ]);
    requester.answer([started("r2"), Step::text("three"), finished("r2", "stop")]);
    let options = Options::new(store.shared(), key(), executor.shared(), sim.shared());
    let mut reached = Vec::new();
    let findings = sim.run(async {
        let mut coordinator = Coordinator::open(options).await?;
        coordinator.start_turn(Vec::new()).await?;
        assert_eq!(coordinator.run(4, &mut requester, &mut ()).await, Ok(Rest::Finished));
        coordinator.store_outcome(json!({})).await?;
        coordinator.end_turn("completed").await?;
        // Its owner is alive, and nobody minds.
        verify(&*store.shared(), &key(), &mut |seq| reached.push(seq)).await
    });
    let records = store.journal(&key()).unwrap().len() as u64;
    assert_eq!(findings, Ok(Findings { records, blobs: 1, breaches: Vec::new(), to_the_end: true }));
    assert_eq!(reached, [Seq(records)]);
}

#[test]
fn sound_journals_of_every_way_to_run_a_call_are_sound() {
    for sound in [
        vec![],
        delivered(),
        vec![
            turn("t1"),
            begun(1),
            keyed("c1", "k1"),
            start_with("c1", 1, "k1"),
            requeued("c1"),
            start_with("c1", 2, "k1"),
        ],
        vec![
            turn("t1"),
            begun(1),
            held("c1"),
            release("c1", "a1"),
            start_by("c1", 1, "a1"),
            requeued("c1"),
            start("c1", 2),
        ],
        vec![letter("i1"), letter("i2")],
    ] {
        breaks(sound, &[]);
    }
}

#[test]
fn positions_ids_and_fences_are_checked_whatever_a_record_says() {
    // covers N4
    let change = |with: fn(&mut Vec<StoredRecord>)| {
        let mut records = stored(&delivered());
        with(&mut records);
        audited(&records)
    };
    assert_eq!(change(|all| drop(all.remove(3))), ["5 position: it stands where record 4 should"]);
    assert_eq!(
        change(|all| all[6].record.id = RecordId::new("id2")),
        ["7 record-id: its id id2 is that of an earlier record"]
    );
    assert_eq!(
        change(|all| all[4].fence = Fence(3)),
        (6..=10)
            .map(|n| format!("{n} fence: it was appended under fence 1, after a record under fence 3"))
            .collect::<Vec<_>>()
    );
}

#[test]
fn a_record_of_unknown_form_is_named_and_those_behind_it_are_looked_at() {
    // covers B11, M3
    let mut records = stored(&with(delivered(), [letter("i1"), letter("i1")]));
    records[2].record.body = "{".into();
    records[5].record.kind = "call.dreamt".into();
    assert_eq!(
        audited(&records),
        [
            r#"3 form: the body of a "call.accepted" record is not JSON: EOF while parsing an object at line 1 column 1"#,
            r#"6 form: record kind "call.dreamt" of version 1 is unknown"#,
            r#"12 inbox-once: item "i1" of the inbox was consumed before"#,
        ]
    );
}

#[test]
fn a_record_of_a_kind_that_is_not_known_may_be_of_a_newer_wharf() {
    let owner = Owner { token: "a".into(), label: "a".into() };
    let hint = |kind: &str| {
        let store = MemoryStore::new();
        let lease = now(store.acquire(&key(), &owner, limits::LEASE_TTL, Acquire::IfFree)).unwrap();
        let record = NewRecord { kind: kind.into(), body: "{}".into(), ..new(&letter("i1"), 0) };
        now(store.append(&lease, Append { records: vec![record], ..Append::default() })).unwrap();
        checked(&store).unwrap().first().unwrap().hint().to_owned()
    };
    assert_eq!(hint("call.dreamt"), "if a newer wharf wrote it, use that one");
    assert_eq!(hint("call.settled"), Invariant::Form.hint());
}

#[test]
fn a_record_of_a_newer_version_is_no_breach() {
    let mut records = stored(&delivered());
    records[3].record.version = 2;
    let mut audit = Audit::new(None);
    let error = records.iter().find_map(|record| audit.record(record, Output::Inline).err()).unwrap();
    assert_eq!(error.kind, ErrorKind::Store);
    assert_eq!(
        error.message,
        r#"record 4: record "call.started" has version 2; this version of wharf reads version 1"#
    );
}

#[test]
fn a_record_that_does_not_fit_those_before_it_is_named_once() {
    // covers B11
    let double = [begun(1), begun(2), completed("r9"), Record::FlightCleared];
    let expected = "3 fold: a response was begun while another one was in flight";
    breaks(with(vec![turn("t1")], double), &[expected]);
}

#[test]
fn damaged_calls_are_named() {
    // covers G2, G11
    let call = Call::function("c1", "tool", "{").asynchronous();
    let damaged =
        Record::CallAccepted { call, wire_call_id: None, replay: ReplayClass::Safe, hold: None, idempotency_key: None };
    let found = audited(&stored(&[turn("t1"), begun(1), damaged]));
    assert_eq!(found.len(), 1);
    assert!(found[0].starts_with(r#"3 checkpoint: call "c1" is damaged: "#), "{found:?}");
}

#[test]
fn a_call_is_registered_once_in_a_session() {
    // covers B13
    let ended = [
        Record::FlightCleared,
        Record::OutcomeStored { outcome: json!({}) },
        Record::TurnEnded { turn: "t1".into(), status: "completed".into() },
        turn("t2"),
        begun(3),
        never("c1"),
    ];
    breaks(with(delivered(), ended), &[r#"16 call-once: call "c1" was registered before"#]);
}

#[test]
fn no_call_starts_before_its_acceptance_or_after_a_refusal() {
    // covers L10, L46
    breaks(
        vec![turn("t1"), begun(1), start("c1", 1)],
        &[r#"3 accepted-first: call "c1" was started before it was accepted"#],
    );
    let refused = Record::CallRejected {
        call: Call::function("c1", "tool", "{"),
        wire_call_id: None,
        reason: RefusalReason::UnknownTool,
        output: "no".into(),
    };
    breaks(
        vec![turn("t1"), begun(1), refused, start("c1", 1)],
        &[r#"4 accepted-first: call "c1" was started, and it was refused"#],
    );
}

#[test]
fn a_call_of_class_never_is_started_at_most_once() {
    // covers G5, L15
    let again = r#"call "c1" must not run again and was started again"#;
    breaks(
        vec![turn("t1"), begun(1), never("c1"), start("c1", 1), start("c1", 2)],
        &[&format!("5 never-twice: {again}")],
    );
    let narrowed = Record::ReplayNarrowed { id: "c1".into() };
    let safe = accepted("c1", ReplayClass::Safe, None, None);
    breaks(
        vec![turn("t1"), begun(1), safe, start("c1", 1), requeued("c1"), narrowed, start("c1", 2)],
        &[&format!("7 never-twice: {again}")],
    );
}

#[test]
fn each_run_of_a_keyed_call_has_its_key_and_no_other_call_has_it() {
    // covers L56, G12
    let head = || vec![turn("t1"), begun(1)];
    breaks(
        with(head(), [accepted("c1", ReplayClass::Keyed, None, None)]),
        &[r#"3 one-key: call "c1" may run again with its key, and has none"#],
    );
    let other = r#"call "c1" was started with another key than it was accepted with"#;
    breaks(with(head(), [keyed("c1", "k1"), start_with("c1", 1, "k2")]), &[&format!("4 one-key: {other}")]);
    breaks(
        with(head(), [keyed("c1", "k1"), start_with("c1", 1, "k1"), requeued("c1"), start("c1", 2)]),
        &[&format!("6 one-key: {other}")],
    );
    breaks(with(head(), [keyed("c1", "k1"), keyed("c2", "k1")]), &[r#"4 one-key: call "c2" has the key of call "c1""#]);
}

#[test]
fn an_approval_is_used_once_and_no_held_call_starts_without_one() {
    // covers X16, L67
    let both = [held("c1"), held("c2"), release("c1", "a1"), start_by("c1", 1, "a1"), release("c2", "a1")];
    breaks(
        with(with(vec![turn("t1"), begun(1)], both), [start_by("c2", 1, "a1")]),
        &[r#"8 approval-once: call "c2" was started by approval "a1", which the start of call "c1" used up"#],
    );
    breaks(
        vec![turn("t1"), begun(1), held("c1"), release("c1", "a1"), start("c1", 1)],
        &[r#"5 approval-once: call "c1" waited for an approval and was started without one"#],
    );
}

#[test]
fn a_call_is_settled_once() {
    // covers E3
    breaks(with(delivered(), [settled("c1")]), &[r#"11 settled-once: call "c1" has its result already"#]);
}

#[test]
fn a_call_gets_one_output() {
    // covers J5
    let second = r#"call "c1" gets a second output"#;
    breaks(with(delivered(), [Record::FlightCleared, prepared("r2", &["c1"])]), &[&format!("12 one-output: {second}")]);
    let ended = [
        Record::FlightCleared,
        Record::TurnEnded { turn: "t1".into(), status: "completed".into() },
        Record::TurnStarted {
            turn: "t2".into(),
            input: Vec::new(),
            closes: vec![Closed { id: "c1".into(), output: Some("again".into()) }],
        },
    ];
    breaks(with(delivered(), ended), &[&format!("13 one-output: {second}")]);
    // One that was rolled back is no output.
    let mut again = delivered();
    again[9] = Record::FlightSettled { fate: FlightFate::Refused, why: "no".into(), orphans: Vec::new() };
    breaks(with(again, [prepared("r1", &["c1"])]), &[]);
}

#[test]
fn an_inbox_item_is_consumed_once() {
    // covers M8
    breaks(vec![letter("i1"), letter("i1")], &[r#"2 inbox-once: item "i1" of the inbox was consumed before"#]);
}

#[test]
fn a_broken_output_is_named_and_harms_nothing_else() {
    // covers B11
    let large = |id: &str| Record::CallSettled { id: id.into(), output: id.repeat(20_000), how: Settlement::Done };
    let records = [turn("t1"), begun(1), never("c1"), start("c1", 1), large("c1"), letter("i1"), letter("i1")];
    let digest = records[4].encode().unwrap().blob.unwrap().0;

    let sound = checked(&store_of(&records[..6])).unwrap();
    assert_eq!((sound.blobs, told(&sound)), (1, Vec::new()));

    let sim = SimSeams::new();
    let missing = TrialStore::new(&sim);
    let owner = Owner { token: "a".into(), label: "a".into() };
    let lease = now(missing.inner().acquire(&key(), &owner, limits::LEASE_TTL, Acquire::IfFree)).unwrap();
    let rows = records.iter().enumerate().map(|(n, record)| new(record, n)).collect::<Vec<_>>();
    now(missing.inner().append(&lease, Append { records: rows.clone(), ..Append::default() })).unwrap();
    let last = r#"7 inbox-once: item "i1" of the inbox was consumed before"#.to_owned();
    let found = checked(&missing).unwrap();
    assert_eq!(told(&found), [format!("5 output: the output {digest} that it names is missing"), last.clone()]);

    missing.fail_all(StoreOp::Blob, StoreFault::Damaged);
    let found = checked(&missing).unwrap();
    assert_eq!(told(&found), ["5 output: blob is damaged: the test wants it".to_owned(), last.clone()]);
    // Who cannot look must not say that it is damaged.
    missing.fail_all(StoreOp::Blob, StoreFault::Busy);
    assert_eq!(checked(&missing).unwrap_err().kind, ErrorKind::Store);

    let store = MemoryStore::new();
    let lease = now(store.acquire(&key(), &owner, limits::LEASE_TTL, Acquire::IfFree)).unwrap();
    let blobs = vec![(digest.clone(), b"other".to_vec())];
    now(store.append(&lease, Append { records: rows, blobs, ..Append::default() })).unwrap();
    let damaged = format!("5 output: the output {digest} that it names is damaged: its content has another digest");
    assert_eq!(told(&checked(&store).unwrap()), [damaged, last]);
}

#[test]
fn what_cannot_be_read_is_named_and_what_hangs_on_it_is_not_blamed() {
    // covers M3
    let records = stored(&with(delivered(), [letter("i1"), letter("i1")]));
    let mut audit = Audit::new(None);
    for (n, record) in records.iter().enumerate() {
        match n {
            2 => audit.unreadable(record.seq, "its page is damaged".into()),
            _ => audit.record(record, Output::Inline).unwrap(),
        }
    }
    assert_eq!(
        told(&audit.end(Seq(12), Seq(13))),
        [
            "3 readable: its page is damaged",
            r#"12 inbox-once: item "i1" of the inbox was consumed before"#,
            "13 position: the journal says that it ends at record 13, and its records end at 12",
        ]
    );
}

#[test]
fn a_snapshot_that_says_something_else_than_the_records_is_named() {
    // covers B11, N6
    let records = delivered();
    let snapshot = |upto: usize| Session::fold(&records[..upto]).unwrap().to_snapshot().unwrap();
    let with_snapshot = |seq: u64, text: String| {
        let mut audit = Audit::new(Some((Seq(seq), text)));
        stored(&records).iter().for_each(|record| audit.record(record, Output::Inline).unwrap());
        told(&audit.end(Seq(10), Seq(10)))
    };
    for upto in 1..=10 {
        assert_eq!(with_snapshot(upto as u64, snapshot(upto)), [""; 0]);
    }
    let differs = "4 snapshot: the snapshot at this record says something else than the records up to it";
    assert_eq!(with_snapshot(4, snapshot(3)), [differs]);
    let torn = snapshot(4)[..40].to_owned();
    let found = with_snapshot(4, torn);
    assert!(
        found.len() == 1 && found[0].starts_with("4 snapshot: the snapshot at this record is damaged: "),
        "{found:?}"
    );
    assert_eq!(
        with_snapshot(12, snapshot(10)),
        ["12 snapshot: there is a snapshot up to record 12, and the records end at 10"]
    );
    // One of another form is passed over by everybody.
    assert_eq!(with_snapshot(4, r#"{"form":99,"calls":[]}"#.into()), [""; 0]);
}

#[test]
fn a_snapshot_is_read_from_the_store() {
    let records = delivered();
    let store = store_of(&records);
    let owner = Owner { token: "a".into(), label: "a".into() };
    let lease = now(store.acquire(&key(), &owner, limits::LEASE_TTL, Acquire::IfFree)).unwrap();
    let text = Session::fold(&records[..3]).unwrap().to_snapshot().unwrap();
    now(store.append(&lease, Append { expected: Seq(10), snapshot: Some(text), ..Append::default() })).unwrap();
    let differs = "10 snapshot: the snapshot at this record says something else than the records up to it";
    assert_eq!(told(&checked(&store).unwrap()), [differs]);
}

#[test]
fn breaches_are_listed_up_to_a_bound() {
    let letters: Vec<Record> = (0..limits::BREACHES_MAX + 2).map(|_| letter("i1")).collect();
    let found = checked(&store_of(&letters)).unwrap();
    assert_eq!((found.breaches.len(), found.to_the_end), (limits::BREACHES_MAX, false));
    let found = checked(&store_of(&letters[..limits::BREACHES_MAX])).unwrap();
    assert_eq!((found.breaches.len(), found.to_the_end), (limits::BREACHES_MAX - 1, true));
}

#[test]
fn a_breach_as_an_error_names_the_record_its_kind_and_the_session() {
    let found = checked(&store_of(&[letter("i1"), letter("i1")])).unwrap();
    let error = found.first().unwrap().to_error(&key());
    assert_eq!(error.kind, ErrorKind::Corruption);
    assert_eq!(
        error.message,
        r#"record 2 (inbox.consumed) of session "s1": item "i1" of the inbox was consumed before"#
    );
    assert_eq!(error.hint.as_deref(), Some(Invariant::InboxOnce.hint()));
}

#[test]
fn words_for_invariants_differ() {
    let words: std::collections::HashSet<&str> = Invariant::ALL.iter().map(|one| one.as_str()).collect();
    assert_eq!(words.len(), Invariant::ALL.len());
}
