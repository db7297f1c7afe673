//! B: the exported document.

use serde_json::{Value, json};

use super::*;
use crate::checkpoint::CallState;
use crate::model::{Item, Role};
use crate::policy::Hold;
use crate::record::FlightFate;
use crate::session::Session;

/// One call as the document has it.
fn entry(c: &Checkpoint, call: &str) -> Value {
    c.to_json()["calls"][call].clone()
}

/// Something in every member.
fn full() -> Checkpoint {
    let mut c = each_state();
    c.add(Call::custom("lost", "raw", "a\n b").asynchronous(), ReplayClass::Safe).unwrap();
    c.make_orphans(&["lost"]);
    c.prepare().unwrap();
    c.fold(&Record::ResponseBegun(Begun { message_id: Some("msg_1".into()), ..Begun::default() }));
    c.host_responses.push(json!({ "tokens": 3 }));
    c.host_outcome = Some(json!({ "status": "x" }));
    c.background_response = Some(json!({ "id": "bg" }));
    c
}

// covers B1
#[test]
fn states_are_plain_words_and_ready_is_an_object_with_its_output() {
    let states = json!({
        "queued": "Queued", "running": "Running", "ready": { "Ready": { "output": "out" } }, "delivered": "Delivered",
    });
    assert_eq!(each_state().states(), states);
    let read = Checkpoint::from_json(&each_state().to_json()).unwrap();
    let read: Vec<CallState> = read.calls().map(|p| p.state.clone()).collect();
    assert_eq!(
        read,
        [CallState::Queued, CallState::Running, CallState::Ready { output: "out".into() }, CallState::Delivered]
    );
}

// covers B2, B9, B14
#[test]
fn document_has_exactly_its_members() {
    let plain = |id: &str, state: Value| {
        json!({
            "call": { "type": "function_call", "call_id": id, "name": "tool", "arguments": "{}", "async": false },
            "replay_safe": false, "replay_class": "never", "state": state,
        })
    };
    assert_eq!(
        full().to_json(),
        json!({
            "latest_response_id": "resp_2",
            "transcript_message_id": "msg_1",
            "host_outcome": { "status": "x" },
            "completed_responses": 2,
            "host_responses": [{ "tokens": 3 }],
            "response_in_flight": true,
            "calls": {
                "queued": plain("queued", json!("Queued")),
                "running": plain("running", json!("Running")),
                "ready": plain("ready", ready("out")),
                "delivered": plain("delivered", json!("Delivered")),
                "lost": {
                    "call": { "type": "custom_tool_call", "call_id": "lost", "name": "raw", "input": "a\n b", "async": true },
                    "replay_safe": true, "replay_class": "safe", "state": "Queued",
                },
            },
            "order": ["queued", "running", "ready", "delivered", "lost"],
            "delivery": {
                "previous_response_id": "resp_2",
                "call_ids": ["ready"],
                "input": [{ "type": "function_call_output", "call_id": "ready", "output": "out" }],
            },
            "background_response": { "id": "bg" },
            "orphans": ["lost"],
        })
    );
}

// covers B3, B7
#[test]
fn absent_members_take_their_defaults() {
    let read = Checkpoint::from_json(&json!({ "calls": {}, "order": [] })).unwrap();
    assert_eq!(read, Checkpoint::default());
    assert!(read.may_complete());
    assert_eq!(read.calls().count(), 0);
    // Each one alone, so that no default hangs on another member.
    for member in [
        "latest_response_id",
        "transcript_message_id",
        "host_outcome",
        "completed_responses",
        "host_responses",
        "response_in_flight",
        "delivery",
        "background_response",
    ] {
        let mut document = full().to_json();
        document.as_object_mut().unwrap().remove(member);
        let mut expected = full();
        match member {
            "latest_response_id" => expected.latest_response_id = None,
            "transcript_message_id" => expected.transcript_message_id = None,
            "host_outcome" => expected.host_outcome = None,
            "completed_responses" => expected.completed_responses = 0,
            "host_responses" => expected.host_responses = Vec::new(),
            "response_in_flight" => expected.response_in_flight = false,
            "delivery" => expected.delivery = None,
            _ => expected.background_response = None,
        }
        assert_eq!(Checkpoint::from_json(&document).unwrap(), expected, "{member}");
    }
}

// covers B4
#[test]
fn calls_and_order_have_to_be_there() {
    for member in ["calls", "order"] {
        let mut document = full().to_json();
        document.as_object_mut().unwrap().remove(member);
        let error = Checkpoint::from_json(&document).unwrap_err();
        assert_eq!((error.kind, error.message), (ErrorKind::Corruption, format!("member {member} is missing")));
    }
}

// covers B5, B14
#[test]
fn only_background_and_orphans_are_left_out_when_empty() {
    assert_eq!(
        Checkpoint::default().to_json(),
        json!({
            "latest_response_id": null, "transcript_message_id": null, "host_outcome": null, "completed_responses": 0,
            "host_responses": [], "response_in_flight": false, "calls": {}, "order": [], "delivery": null,
        })
    );
}

// covers B6
#[test]
fn document_reads_back_as_an_equal_checkpoint() {
    for c in [Checkpoint::default(), each_state(), full()] {
        let text = c.to_json().to_string();
        let read = Checkpoint::from_json(&serde_json::from_str(&text).unwrap()).unwrap();
        assert_eq!(read, c);
        assert_eq!(read.to_json().to_string(), text);
    }
}

// covers B7
#[test]
fn default_checkpoint_has_no_calls_and_may_complete() {
    let c = Checkpoint::default();
    assert_eq!((c.calls().count(), c.order.len(), c.may_complete()), (0, 0, true));
}

// covers B8, B10
#[test]
fn call_is_written_with_its_class_and_with_other_members_only_when_set() {
    let mut c = Checkpoint::default();
    let everything = Registration {
        hold: Some(Hold::Approval),
        idempotency_key: Some("key_1".into()),
        wire_call_id: Some("wire_1".into()),
        ..Registration::new(call("keyed"), ReplayClass::Keyed)
    };
    c.fold(&c.register(&everything).unwrap().unwrap());
    let output = Registration { hold: Some(Hold::Output), ..Registration::new(call("safe"), ReplayClass::Safe) };
    c.fold(&c.register(&output).unwrap().unwrap());
    c.add(call("never"), ReplayClass::Never).unwrap();
    let written = |id: &str| call(id).to_json();
    assert_eq!(
        c.to_json()["calls"],
        json!({
            "keyed": {
                "call": written("keyed"), "replay_safe": false, "replay_class": "keyed", "state": "Queued",
                "hold": "approval", "idempotency_key": "key_1", "wire_call_id": "wire_1",
            },
            "safe": {
                "call": written("safe"), "replay_safe": true, "replay_class": "safe", "state": "Queued", "hold": "output",
            },
            "never": { "call": written("never"), "replay_safe": false, "replay_class": "never", "state": "Queued" },
        })
    );
    assert_eq!(Checkpoint::from_json(&c.to_json()).unwrap(), c);
    // A started call has no more members than one that waits.
    c.run("never").unwrap();
    assert_eq!(
        entry(&c, "never"),
        json!({ "call": written("never"), "replay_safe": false, "replay_class": "never", "state": "Running" })
    );
}

// covers B8, B10
#[test]
fn document_without_class_reads_the_old_flag() {
    let read = |members: Value| {
        let mut entry = json!({ "call": call("a").to_json(), "state": "Running" });
        entry.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        Checkpoint::from_json(&json!({ "calls": { "a": entry }, "order": ["a"] })).map(|c| c.calls[&id("a")].replay)
    };
    assert_eq!(read(json!({ "replay_safe": true })).unwrap(), ReplayClass::Safe);
    assert_eq!(read(json!({ "replay_safe": false })).unwrap(), ReplayClass::Never);
    assert_eq!(read(json!({})).unwrap(), ReplayClass::Never);
    // The class goes before the flag.
    assert_eq!(read(json!({ "replay_safe": true, "replay_class": "never" })).unwrap(), ReplayClass::Never);
    assert_eq!(read(json!({ "replay_safe": false, "replay_class": "keyed" })).unwrap(), ReplayClass::Keyed);
    assert_eq!(read(json!({ "replay_safe": false, "replay_class": "safe" })).unwrap(), ReplayClass::Safe);
    assert_eq!(kind(read(json!({ "replay_safe": true, "replay_class": "always" }))), ErrorKind::Corruption);
    assert_eq!(ReplayClass::default(), ReplayClass::Never);
}

// covers B9
#[test]
fn delivery_has_its_three_members_and_what_stands_behind_only_when_set() {
    let mut c = each_state();
    let after = vec![Item::Message { role: Role::User, text: "and".into() }];
    c.fold(&c.prepare_delivery(after).unwrap().unwrap());
    assert_eq!(
        c.to_json()["delivery"],
        json!({
            "previous_response_id": "resp_2", "call_ids": ["ready"],
            "input": [{ "type": "function_call_output", "call_id": "ready", "output": "out" }],
            "after": [{ "type": "message", "role": "user", "text": "and" }],
        })
    );
    assert_eq!(Checkpoint::from_json(&c.to_json()).unwrap(), c);
}

// covers B12
#[test]
fn rejected_call_is_stored_with_its_raw_text_and_is_marked() {
    let mut c = Checkpoint::default();
    let broken = Call::function("bad", "tool", "{ \"a\": 01, }\r\n");
    assert!(c.add_rejected(&broken, "not JSON").unwrap());
    assert_eq!(
        c.to_json()["calls"],
        json!({
            "bad": {
                "call": {
                    "type": "function_call", "call_id": "bad", "name": "tool", "arguments": "{ \"a\": 01, }\r\n",
                    "async": false,
                },
                "replay_safe": false, "replay_class": "never", "state": ready(r#"{"error":"not JSON"}"#), "rejected": true,
            },
        })
    );
    // Recovery tells it from damage: only the mark makes the difference.
    let mut document = c.to_json();
    Checkpoint::from_json(&document).unwrap().check_damage().unwrap();
    document["calls"]["bad"].as_object_mut().unwrap().remove("rejected");
    assert_eq!(kind(Checkpoint::from_json(&document).unwrap().check_damage()), ErrorKind::Corruption);
}

// covers B14
#[test]
fn orphans_are_listed_and_stay_in_calls_and_order() {
    let mut c = each_state();
    let before = c.to_json();
    c.make_orphans(&["running", "queued"]);
    let mut expected = before.clone();
    expected["orphans"] = json!(["running", "queued"]);
    assert_eq!(c.to_json(), expected);
    // Becoming one twice is becoming one.
    c.make_orphans(&["queued"]);
    assert_eq!(c.to_json(), expected);
    // A queued one is withdrawn: it never starts.
    let error = c.refuses(ErrorKind::Config, |c| c.run("queued"));
    assert_eq!(error.message, "call \"queued\" cannot be started: it is withdrawn");
}

// covers B11
#[test]
fn record_that_contradicts_the_state_is_corruption_that_names_it() {
    let response = |text: &str| ResponseId::new(text);
    let settled = |call: &str| Record::CallSettled { id: id(call), output: "o".into(), how: Settlement::Done };
    let started = |call: &str| Record::CallStarted { id: id(call), attempt: 1, idempotency_key: None, approval: None };
    let accepted = |name: &str| Record::CallAccepted {
        call: call(name),
        wire_call_id: None,
        replay: ReplayClass::Never,
        hold: None,
        idempotency_key: None,
    };
    let prepared = |previous: &str, calls: &[&str]| Record::DeliveryPrepared {
        previous_response_id: response(previous),
        call_ids: calls.iter().map(|text| id(text)).collect(),
        after: Vec::new(),
    };
    let lost = |orphans: &[&str]| Record::FlightSettled {
        fate: FlightFate::Lost,
        why: String::new(),
        orphans: orphans.iter().map(|text| id(text)).collect(),
    };
    let resting = each_state();
    let mut delivering = each_state();
    delivering.prepare().unwrap();
    let mut sent = delivering.clone();
    sent.begin();
    let mut flying = each_state();
    flying.fold(&Record::ResponseBegun(Begun { message_id: Some("msg".into()), ..Begun::default() }));
    let mut other = each_state();
    let held = Registration { hold: Some(Hold::Approval), ..Registration::new(call("held"), ReplayClass::Never) };
    other.fold(&other.register(&held).unwrap().unwrap());
    other.add(call("safe"), ReplayClass::Safe).unwrap();
    other.run("safe").unwrap();
    let keyed =
        Registration { idempotency_key: Some("k".into()), ..Registration::new(call("keyed"), ReplayClass::Keyed) };
    other.fold(&other.register(&keyed).unwrap().unwrap());
    other.make_orphans(&["queued", "safe", "ready"]);
    let mut pending = each_state();
    pending.transcript_message_id = Some("msg".into());
    let text = |word: &str| word.to_owned();
    let cases: Vec<(&Checkpoint, Record, &str)> = vec![
        (&resting, accepted("queued"), "queued"),
        (
            &resting,
            Record::CallRejected {
                call: call("ready"),
                wire_call_id: None,
                reason: RefusalReason::Policy,
                output: text(""),
            },
            "ready",
        ),
        (&resting, started("ghost"), "ghost"),
        (&resting, started("running"), "running"),
        (&resting, started("ready"), "ready"),
        (&resting, started("delivered"), "delivered"),
        (&other, started("held"), "held"),
        (&other, started("queued"), "withdrawn"),
        (&other, started("keyed"), "keyed"), // without its key
        (&resting, settled("ghost"), "ghost"),
        (&resting, settled("ready"), "ready"),
        (&resting, settled("delivered"), "delivered"),
        (&resting, Record::CallRequeued { id: id("queued") }, "queued"),
        (&resting, Record::CallRequeued { id: id("running") }, "running"), // of class never
        (&other, Record::CallRequeued { id: id("safe") }, "safe"),         // an orphan
        (&resting, Record::CallRequeued { id: id("ready") }, "ready"),
        (&resting, Record::HoldReleased { id: id("queued"), approval: text("a") }, "queued"),
        (&resting, Record::ReplayNarrowed { id: id("ready") }, "ready"),
        (&resting, Record::ReplayNarrowed { id: id("ghost") }, "ghost"),
        (&resting, Record::CallsOrphaned { ids: vec![id("queued"), id("ghost")] }, "ghost"),
        (&flying, Record::ResponseBegun(Begun::default()), "in flight"),
        (&pending, Record::ResponseBegun(Begun { message_id: Some(text("m")), ..Begun::default() }), "transcript"),
        (&delivering, Record::ResponseCompleted { id: response("resp_9") }, "resp_9"),
        (&resting, prepared("resp_1", &["ready"]), "resp_1"),
        (&resting, prepared("resp_2", &["ghost"]), "ghost"),
        (&resting, prepared("resp_2", &["ready", "running"]), "running"),
        (&resting, prepared("resp_2", &["ready", "ready"]), "twice"),
        (&other, prepared("resp_2", &["ready"]), "orphan"),
        (&delivering, prepared("resp_2", &["ready"]), "delivery"),
        (&flying, prepared("resp_2", &["ready"]), "in flight"),
        (&resting, Record::DeliveryAcknowledged { receipt: response("resp_9") }, "resp_9"),
        (&delivering, Record::DeliveryAcknowledged { receipt: response("resp_2") }, "resp_2"),
        (&resting, Record::FlightCleared, "in flight"),
        (&sent, Record::FlightCleared, "receipt"),
        (&resting, lost(&[]), "not accepted"),
        (&flying, lost(&["queued", "ghost"]), "ghost"),
        (&resting, Record::SummaryStaged { summary: Value::Null }, "transcript"),
        (&flying, Record::SummaryStaged { summary: Value::Null }, "in flight"),
        (&flying, Record::TranscriptCommitted { message_id: text("msg") }, "in flight"),
        (&pending, Record::TranscriptCommitted { message_id: text("other") }, "other"),
        (&resting, Record::TranscriptDropped, "transcript"),
        (&resting, Record::OutcomeStored { outcome: Value::Null }, "outcome"),
    ];
    for (state, record, named) in cases {
        let mut c = state.clone();
        let error = c.refuses(ErrorKind::Corruption, |c| c.apply(&record));
        assert!(error.message.contains(named), "{}: {error}", record.kind());
    }
}

// covers B11
#[test]
fn folding_a_journal_names_the_number_and_the_kind_of_the_record_that_contradicts_it() {
    let records = [
        Record::TurnStarted { turn: "turn_1".into(), input: Vec::new(), closes: Vec::new() },
        Record::CallStarted { id: id("ghost"), attempt: 1, idempotency_key: None, approval: None },
    ];
    let error = Session::fold(&records).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Corruption);
    assert_eq!(
        error.message,
        "record 2 (call.started) contradicts the journal: call \"ghost\" was started, and is unknown"
    );
}

// covers B11
#[test]
fn damaged_members_are_corruption_that_names_the_member() {
    for (member, value, named) in [
        ("latest_response_id", json!(3), "latest_response_id"),
        ("completed_responses", json!(-1), "completed_responses"),
        ("host_responses", json!({}), "host_responses"),
        ("response_in_flight", json!("yes"), "response_in_flight"),
        ("calls", json!([]), "calls"),
        ("order", json!({}), "order"),
        ("order", json!([1]), "order"),
        ("orphans", json!("a"), "orphans"),
        ("orphans", json!([null]), "orphans"),
        ("delivery", json!([]), "delivery"),
        ("delivery", json!({ "call_ids": [], "input": [] }), "previous_response_id"),
        ("delivery", json!({ "previous_response_id": "r", "input": [] }), "call_ids"),
        ("delivery", json!({ "previous_response_id": "r", "call_ids": [] }), "input"),
        ("calls", json!({ "a": { "state": "Queued" } }), "calls.a.call"),
        ("calls", json!({ "a": { "call": call("a").to_json() } }), "calls.a.state"),
        ("calls", json!({ "a": { "call": call("a").to_json(), "state": "Resting" } }), "calls.a.state"),
        ("calls", json!({ "a": { "call": call("a").to_json(), "state": { "Ready": {} } } }), "calls.a.state"),
        ("calls", json!({ "a": { "call": call("a").to_json(), "state": "Queued", "hold": "x" } }), "calls.a.hold"),
        ("calls", json!({ "a": 1 }), "calls.a"),
    ] {
        let mut document = full().to_json();
        document[member] = value;
        let error = Checkpoint::from_json(&document).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Corruption);
        assert!(error.message.contains(named), "{error}");
    }
}
