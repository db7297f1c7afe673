//! K: may it complete.

use serde_json::json;

use super::*;

/// Everything delivered.
fn done() -> Checkpoint {
    let mut c = Checkpoint::default();
    c.add(call("a"), ReplayClass::Never).unwrap();
    c.complete("resp_1").unwrap();
    c.give("a", "x").unwrap();
    c.prepare().unwrap();
    c.receipt("resp_2").unwrap();
    c
}

// covers K1
#[test]
fn each_open_thing_alone_stands_in_the_way() {
    assert!(done().may_complete());
    let open: [fn(&mut Checkpoint); 6] = [
        |c| c.transcript_message_id = Some("msg".into()),
        Checkpoint::begin,
        |c| {
            c.delivery = Some(Delivery {
                previous_response_id: "resp_1".into(),
                call_ids: Vec::new(),
                input: Vec::new(),
                after: Vec::new(),
            });
        },
        |c| {
            c.add(call("queued"), ReplayClass::Never).unwrap();
        },
        |c| {
            c.add(call("running"), ReplayClass::Never).unwrap();
            c.run("running").unwrap();
        },
        |c| {
            c.add(call("ready"), ReplayClass::Never).unwrap();
            c.give("ready", "x").unwrap();
        },
    ];
    for make in open {
        let mut c = done();
        make(&mut c);
        assert!(!c.may_complete());
        assert!(!Checkpoint::from_json(&c.to_json()).unwrap().may_complete());
        assert_eq!(kind(c.store_outcome(json!({}))), ErrorKind::Store);
    }
}

// covers K1
#[test]
fn orphan_counts_as_finished_unless_it_runs() {
    for state in ["queued", "ready", "running"] {
        let mut c = done();
        c.add(call(state), ReplayClass::Safe).unwrap();
        match state {
            "ready" => drop(c.give(state, "x").unwrap()),
            "running" => c.run(state).unwrap(),
            _ => {}
        }
        assert!(!c.may_complete());
        c.make_orphans(&[state]);
        assert_eq!(c.may_complete(), state != "running", "{state}");
        assert_eq!(Checkpoint::from_json(&c.to_json()).unwrap().may_complete(), state != "running", "{state}");
    }
    // Once it has ended it counts too.
    let mut c = done();
    c.add(call("running"), ReplayClass::Safe).unwrap();
    c.run("running").unwrap();
    c.make_orphans(&["running"]);
    c.give("running", "x").unwrap();
    assert!(c.may_complete());
}

// covers K2
#[test]
fn outcome_and_background_record_have_no_influence() {
    for base in [done(), each_state()] {
        let mut c = base.clone();
        c.host_outcome = Some(json!({ "status": "failed" }));
        c.background_response = Some(json!({ "id": "bg" }));
        assert_eq!(c.may_complete(), base.may_complete());
    }
    assert!(!each_state().may_complete());
}

// covers K3
#[test]
fn false_once_a_delivery_is_prepared_and_true_after_the_last_is_acknowledged() {
    let mut c = Checkpoint::default();
    c.complete("resp_1").unwrap();
    for id in ["a", "b"] {
        c.add(call(id), ReplayClass::Never).unwrap();
    }
    c.give("a", "x").unwrap();
    c.prepare().unwrap();
    assert!(!c.may_complete());
    c.receipt("resp_2").unwrap();
    assert!(!c.may_complete(), "one is left");
    c.give("b", "y").unwrap();
    c.prepare().unwrap();
    assert!(!c.may_complete());
    c.receipt("resp_3").unwrap();
    assert!(c.may_complete());
}

/// What is finished costs a step nothing: neither tombstones nor orphans are looked at again (design section 8).
#[test]
fn finished_calls_are_not_live() {
    let mut c = done();
    c.add(call("withdrawn"), ReplayClass::Never).unwrap();
    c.add(call("settled"), ReplayClass::Never).unwrap();
    c.add(call("live"), ReplayClass::Never).unwrap();
    c.run("settled").unwrap();
    c.make_orphans(&["withdrawn", "settled"]);
    let live = |c: &Checkpoint| c.live_calls().map(|p| p.call.id.as_str().to_owned()).collect::<Vec<_>>();
    assert_eq!(live(&c), ["settled", "live"]);
    c.give("settled", "x").unwrap();
    assert_eq!(live(&c), ["live"]);
    assert_eq!(live(&Checkpoint::from_json(&c.to_json()).unwrap()), ["live"]);
}
