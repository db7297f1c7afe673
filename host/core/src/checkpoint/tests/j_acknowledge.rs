//! J: acknowledging a delivery.

use serde_json::json;

use super::*;

fn delivering() -> Checkpoint {
    let mut c = each_state();
    c.prepare().unwrap();
    c
}

// covers J1
#[test]
fn empty_receipt_is_refused() {
    for mut c in [each_state(), delivering()] {
        for empty in ["", " "] {
            c.refuses(ErrorKind::Config, |c| c.receipt(empty));
        }
    }
}

// covers J2
#[test]
fn response_that_a_delivery_goes_on_from_cannot_be_its_receipt() {
    delivering().refuses(ErrorKind::Store, |c| c.receipt("resp_2"));
}

// covers J3
#[test]
fn latest_id_again_without_a_delivery_changes_nothing() {
    each_state().leaves_alone((), |c| c.receipt("resp_2"));
}

// covers J4
#[test]
fn other_receipt_without_a_delivery_is_refused() {
    for other in ["resp_1", "resp_3"] {
        each_state().refuses(ErrorKind::Store, |c| c.receipt(other));
    }
    Checkpoint::default().refuses(ErrorKind::Store, |c| c.receipt("resp_1"));
}

// covers J5, J7
#[test]
fn receipt_delivers_the_calls_clears_the_delivery_and_counts() {
    // The same whether it comes with the stream or is found later, in a checkpoint that was read back.
    for mut c in [delivering(), Checkpoint::from_json(&delivering().to_json()).unwrap()] {
        let mut expected = c.to_json();
        c.receipt("resp_3").unwrap();
        expected["calls"]["ready"]["state"] = json!("Delivered");
        expected["delivery"] = json!(null);
        expected["completed_responses"] = json!(3);
        expected["latest_response_id"] = json!("resp_3");
        assert_eq!(c.to_json(), expected);
    }
}

// covers J5
#[test]
fn receipt_that_is_the_latest_id_already_does_not_count_again() {
    let mut c = delivering();
    // The host counted the response before it knew that it took the delivery along.
    c.latest_response_id = Some("resp_3".into());
    c.completed_responses = 3;
    c.receipt("resp_3").unwrap();
    let document = c.to_json();
    assert_eq!(
        json!([
            document["completed_responses"],
            document["latest_response_id"],
            document["delivery"],
            c.states()["ready"]
        ]),
        json!([3, "resp_3", null, "Delivered"])
    );
}

// covers J6
#[test]
fn call_that_became_ready_after_preparation_stays_ready() {
    let mut c = delivering();
    c.give("running", "later").unwrap();
    c.receipt("resp_3").unwrap();
    assert_eq!(
        c.states(),
        json!({ "queued": "Queued", "running": ready("later"), "ready": "Delivered", "delivered": "Delivered" })
    );
    assert_eq!(c.prepare().unwrap().unwrap().call_ids, [id("running")]);
}

// covers J8
#[test]
fn delivery_of_an_unknown_call_is_corruption() {
    let mut document = delivering().to_json();
    document["delivery"]["call_ids"] = json!(["ready", "ghost"]);
    let mut c = Checkpoint::from_json(&document).unwrap();
    let error = c.refuses(ErrorKind::Corruption, |c| c.receipt("resp_3"));
    assert_eq!(error.message, "the open delivery names call \"ghost\", which is unknown");
    // The same record in a journal.
    c.refuses(ErrorKind::Corruption, |c| c.apply(&Record::DeliveryAcknowledged { receipt: "resp_3".into() }));
}

// covers J9
#[test]
fn mark_in_flight_is_not_touched_by_a_receipt() {
    let mut c = delivering();
    c.begin();
    c.receipt("resp_3").unwrap();
    assert!(c.response_in_flight());
    let mut at_rest = delivering();
    at_rest.receipt("resp_3").unwrap();
    assert!(!at_rest.response_in_flight());
}
