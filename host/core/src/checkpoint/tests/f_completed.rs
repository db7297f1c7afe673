//! F: a response was completed.

use serde_json::json;

use super::*;

// covers F1
#[test]
fn empty_response_id_is_refused() {
    let mut c = each_state();
    for empty in ["", " \t"] {
        c.refuses(ErrorKind::Config, |c| c.complete(empty));
    }
}

// covers F2
#[test]
fn response_is_not_counted_while_a_delivery_is_open() {
    let mut c = each_state();
    c.prepare().unwrap();
    for response in ["resp_3", "resp_2"] {
        c.refuses(ErrorKind::Config, |c| c.complete(response));
    }
}

// covers F3
#[test]
fn new_id_becomes_the_latest_and_counts_one() {
    let mut c = each_state();
    let mut expected = c.to_json();
    c.complete("resp_3").unwrap();
    expected["latest_response_id"] = json!("resp_3");
    expected["completed_responses"] = json!(3);
    assert_eq!(c.to_json(), expected);
}

// covers F3
#[test]
fn count_stops_at_its_end() {
    let mut c = Checkpoint { completed_responses: u64::MAX - 1, ..Checkpoint::default() };
    c.complete("a").unwrap();
    c.complete("b").unwrap();
    assert_eq!((c.completed_responses(), c.latest_response_id().unwrap().as_str()), (u64::MAX, "b"));
}

// covers F4
#[test]
fn latest_id_again_does_not_count() {
    let mut c = each_state();
    c.leaves_alone((), |c| c.complete("resp_2"));
    c.begin();
    c.leaves_alone((), |c| c.complete("resp_2"));
}

// covers F5
#[test]
fn mark_in_flight_is_not_touched() {
    let mut c = each_state();
    c.begin();
    let mut expected = c.to_json();
    c.complete("resp_3").unwrap();
    expected["latest_response_id"] = json!("resp_3");
    expected["completed_responses"] = json!(3);
    assert_eq!(expected["response_in_flight"], json!(true));
    assert_eq!(c.to_json(), expected);
}

// covers F6
#[test]
fn only_a_repeat_of_the_latest_id_is_recognised() {
    let mut c = Checkpoint::default();
    for response in ["a", "b", "b", "a"] {
        c.complete(response).unwrap();
    }
    assert_eq!((c.completed_responses(), c.latest_response_id().unwrap().as_str()), (3, "a"));
}
