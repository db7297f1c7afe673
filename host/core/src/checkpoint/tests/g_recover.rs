//! G1 to G12: what opening does to calls. G13 to G20 are in the tests of `step`.

use serde_json::{Value, json};

use super::*;
use crate::checkpoint::INTERRUPTED;

/// A running call of each class, and one each that is not running.
fn running_of_each_class() -> Checkpoint {
    let mut c = each_state();
    c.add(call("safe"), ReplayClass::Safe).unwrap();
    let keyed =
        Registration { idempotency_key: Some("key".into()), ..Registration::new(call("keyed"), ReplayClass::Keyed) };
    c.fold(&c.register(&keyed).unwrap().unwrap());
    c.run("safe").unwrap();
    c.run("keyed").unwrap();
    c
}

fn interrupted() -> Value {
    ready(&json!({ "error": INTERRUPTED }).to_string())
}

/// The same, as it comes back from its document.
fn through_json(c: &Checkpoint) -> Checkpoint {
    Checkpoint::from_json(&serde_json::from_str(&c.to_json().to_string()).unwrap()).unwrap()
}

/// A document whose member was changed by hand.
fn damaged(with: impl FnOnce(&mut Value)) -> Checkpoint {
    let mut document = running_of_each_class().to_json();
    with(&mut document);
    Checkpoint::from_json(&document).unwrap()
}

// covers G4, G5, G6, G12
#[test]
fn running_calls_are_mended_by_their_class_and_others_stay() {
    let mut c = running_of_each_class();
    let mut expected = c.to_json();
    c.mend().unwrap();
    expected["calls"]["running"]["state"] = interrupted();
    expected["calls"]["safe"]["state"] = json!("Queued");
    expected["calls"]["keyed"]["state"] = json!("Queued");
    assert_eq!(c.to_json(), expected);
}

// covers G5
#[test]
fn interrupted_call_says_that_its_outcome_is_uncertain_and_that_it_must_not_be_retried() {
    for said in ["interrupted", "uncertain", "must not be retried automatically"] {
        assert!(INTERRUPTED.contains(said), "{said}");
    }
    let mut c = each_state();
    c.mend().unwrap();
    let output: Value = serde_json::from_str(c.states()["running"]["Ready"]["output"].as_str().unwrap()).unwrap();
    assert_eq!(output, json!({ "error": INTERRUPTED }));
}

// covers G12, L56
#[test]
fn keyed_call_runs_again_with_the_key_of_its_first_run() {
    let mut c = running_of_each_class();
    c.mend().unwrap();
    assert_eq!(
        c.start(&id("keyed"), 2, None).unwrap(),
        Record::CallStarted { id: id("keyed"), attempt: 2, idempotency_key: Some("key".into()), approval: None }
    );
}

// covers G4, G12
#[test]
fn running_orphan_is_interrupted_whatever_its_class() {
    let mut c = running_of_each_class();
    c.make_orphans(&["safe", "keyed", "running", "queued"]);
    let mut expected = c.to_json();
    c.mend().unwrap();
    for id in ["safe", "keyed", "running"] {
        expected["calls"][id]["state"] = interrupted();
    }
    assert_eq!(c.to_json(), expected);
}

// covers G7
#[test]
fn recovering_twice_is_recovering_once() {
    let mut c = running_of_each_class();
    c.make_orphans(&["queued"]);
    c.mend().unwrap();
    c.leaves_alone((), Checkpoint::mend);
    assert_eq!(c.recover().unwrap(), []);
}

// covers G8
#[test]
fn recovering_a_default_checkpoint_does_nothing() {
    Checkpoint::default().leaves_alone((), Checkpoint::mend);
}

// covers G9
#[test]
fn trip_through_the_document_changes_no_result() {
    let mut c = running_of_each_class();
    c.make_orphans(&["safe"]);
    let mut travelled = through_json(&c);
    assert_eq!(travelled.recover(), c.recover());
    c.mend().unwrap();
    travelled.mend().unwrap();
    assert_eq!(travelled, c);
}

// covers G1, G2, G3, G9
#[test]
fn each_inconsistency_of_the_registry_is_corruption_before_any_change() {
    let cases: [(&str, Checkpoint, &str); 5] = [
        ("order is shorter", damaged(|d| drop(d["order"].as_array_mut().unwrap().pop())), "in order"),
        ("order repeats", damaged(|d| d["order"][0] = json!("ready")), "twice"),
        ("key is another", damaged(|d| d["calls"]["safe"]["call"]["call_id"] = json!("other")), "other"),
        ("id is missing", damaged(|d| d["order"][0] = json!("ghost")), "ghost"),
        ("orphan is unknown", damaged(|d| d["orphans"] = json!(["ghost"])), "ghost"),
    ];
    for (what, mut c, named) in cases {
        let error = c.refuses(ErrorKind::Corruption, Checkpoint::mend);
        assert!(error.message.contains(named), "{what}: {error}");
        // The damage survives a trip through the document: it is not mended by writing it.
        let mut travelled = through_json(&c);
        assert_eq!(travelled.refuses(ErrorKind::Corruption, Checkpoint::mend), error, "{what}");
    }
}

// covers G11, G3
#[test]
fn damaged_arguments_are_corruption_before_any_change_unless_the_call_was_rejected() {
    for (member, value) in [("arguments", "{"), ("name", "")] {
        let mut c = damaged(|d| d["calls"]["delivered"]["call"][member] = json!(value));
        let error = c.refuses(ErrorKind::Corruption, Checkpoint::mend);
        assert!(error.message.contains("delivered"), "{error}");
    }
    let mut rejected = running_of_each_class();
    rejected.add_rejected(&Call::function("bad", "tool", "{"), "no").unwrap();
    rejected.mend().unwrap();
    assert_eq!(rejected.states()["safe"], json!("Queued"));
}

// covers G1, G3
#[test]
fn damage_is_found_before_uncertainty_and_uncertainty_before_any_change() {
    let uncertain: [fn(&mut Checkpoint); 3] =
        [|c| c.transcript_message_id = Some("msg".into()), |c| drop(c.prepare().unwrap()), Checkpoint::begin];
    let mut messages = Vec::new();
    for make in uncertain {
        let mut c = running_of_each_class();
        make(&mut c);
        messages.push(c.refuses(ErrorKind::Store, Checkpoint::mend).message);
        let mut document = c.to_json();
        document["calls"]["ready"]["call"]["arguments"] = json!("{");
        Checkpoint::from_json(&document).unwrap().refuses(ErrorKind::Corruption, Checkpoint::mend);
    }
    messages.dedup();
    assert_eq!(messages.len(), 3, "each uncertainty says which it is");
    // All at once: transcript, then delivery, then response.
    let mut c = running_of_each_class();
    c.prepare().unwrap();
    c.begin();
    assert_eq!(c.refuses(ErrorKind::Store, Checkpoint::mend).message, messages[1]);
    c.transcript_message_id = Some("msg".into());
    assert_eq!(c.refuses(ErrorKind::Store, Checkpoint::mend).message, messages[0]);
}

// covers G10
#[test]
fn receipt_of_the_open_delivery_lets_recovery_go_on() {
    let mut c = running_of_each_class();
    c.prepare().unwrap();
    c.refuses(ErrorKind::Store, Checkpoint::mend);
    c.receipt("resp_3").unwrap();
    c.mend().unwrap();
    assert_eq!(
        c.states(),
        json!({
            "queued": "Queued", "running": interrupted(), "ready": "Delivered", "delivered": "Delivered",
            "safe": "Queued", "keyed": "Queued",
        })
    );
}
