//! Round trips of every kind.

mod arbitrary;
pub(crate) mod damage;
mod properties;

use proptest::prelude::ProptestConfig;
use serde_json::{Value, json};

use super::*;
use crate::error::Error;
use crate::limits::{BLOB_BYTES_MAX, RECORD_BYTES_MAX, RECORD_DEPTH_MAX};

/// So many cases, or as many as `PROPTEST_CASES` says.
pub(crate) fn some(cases: u32) -> ProptestConfig {
    // The default is the variable's number where there is one, and this one otherwise.
    const UNASKED: u32 = 256;
    let default = ProptestConfig::default();
    let cases = if default.cases == UNASKED { cases } else { default.cases };
    ProptestConfig { cases, failure_persistence: None, ..default }
}

fn summary(levels: usize) -> Record {
    Record::SummaryStaged { summary: (1..levels).fold(json!(1), |inner, _| json!([inner])) }
}

// covers N6
#[test]
fn record_that_could_not_be_read_back_is_not_made() {
    let there_and_back = |record: &Record| {
        let stored = record.encode().map_err(|error| error.message)?;
        Record::decode(stored.kind, stored.version, &stored.body, |_| None).map_err(|error| error.message)
    };
    let deepest = summary(RECORD_DEPTH_MAX);
    assert_eq!(there_and_back(&deepest), Ok(deepest));
    for levels in [RECORD_DEPTH_MAX + 1, 128, 200] {
        let refused = r#"a "summary.staged" record is nested deeper than 100 levels"#;
        assert_eq!(there_and_back(&summary(levels)), Err(refused.to_owned()));
    }
}

// covers N6
#[test]
fn record_or_output_over_its_cap_is_not_made() {
    let frame = r#"{"summary":""}"#.len();
    let record = |size: usize| Record::SummaryStaged { summary: Value::from("x".repeat(size - frame)) }.encode();
    assert_eq!(record(RECORD_BYTES_MAX).map(|stored| stored.body.len()), Ok(RECORD_BYTES_MAX));
    let refused = r#"a "summary.staged" record has 8388609 bytes, over the limit of 8388608"#;
    assert_eq!(record(RECORD_BYTES_MAX + 1), Err(Error::store(refused)));
    let settled =
        |size: usize| Record::CallSettled { id: "c1".into(), output: "x".repeat(size), how: Settlement::Done }.encode();
    assert_eq!(settled(BLOB_BYTES_MAX).map(|stored| stored.blob.unwrap().1.len()), Ok(BLOB_BYTES_MAX));
    let refused = r#"a "call.settled" record has an output of 16777217 bytes, over the limit of 16777216"#;
    assert_eq!(settled(BLOB_BYTES_MAX + 1), Err(Error::store(refused)));
}

// STATE-7: members that came later are optional.
#[test]
fn records_of_before_a_member_was_kept_still_load() {
    let started = |closes| Record::TurnStarted { turn: "turn_1".into(), input: Vec::new(), closes };
    let begun = Begun { ordinal: 2, continues: Some("resp_1".into()), ..Begun::default() };
    let cases = [
        (
            started(Vec::new()),
            started(vec![
                Closed { id: "done".into(), output: None },
                Closed { id: "never".into(), output: Some("{}".into()) },
            ]),
            vec!["closes"],
        ),
        (
            Record::ResponseBegun(begun.clone()),
            Record::ResponseBegun(Begun {
                maker: Some("one/m".into()),
                notice: Some("[host] lost".into()),
                told: vec!["c1".into()],
                ..begun
            }),
            vec!["maker", "notice"],
        ),
    ];
    for (old, new, members) in cases {
        let stored = new.encode().unwrap();
        let load = |body: &str| Record::decode(stored.kind, stored.version, body, |_| None);
        assert_eq!(load(&stored.body), Ok(new));
        let mut body: Value = serde_json::from_str(&old.encode().unwrap().body).unwrap();
        for member in members {
            assert!(body.as_object_mut().unwrap().remove(member).is_some(), "{member} is written");
        }
        assert_eq!(load(&body.to_string()), Ok(old));
    }
}

// covers M3, B11
#[test]
fn record_of_another_version_or_of_an_unknown_kind_is_refused_by_name() {
    let refused = |kind: &str, version| Record::decode(kind, version, "{}", |_| None).unwrap_err();
    let newer = r#"record "flight.cleared" has version 2; this version of wharf reads version 1"#;
    assert_eq!(refused("flight.cleared", 2), Error::store(newer).hint("use the newer wharf that wrote it"));
    let odd = r#"record "flight.cleared" has version 0, and versions count from 1"#;
    assert_eq!(refused("flight.cleared", 0), Error::corruption(odd));
    let unknown = r#"record kind "flight.new" of version 1 is unknown"#;
    let hint = "if a newer wharf wrote it, use that one";
    assert_eq!(refused("flight.new", 1), Error::corruption(unknown).hint(hint));
}

// covers B11
#[test]
fn damage_inside_of_a_member_names_the_record_the_member_and_what_is_wrong() {
    let cases = [
        (
            "turn.started",
            json!({ "turn": "t", "input": [{ "type": "message", "role": "oracle", "text": "" }] }),
            r#"member input of a "turn.started" record is damaged: member role of an item is "oracle", which is not known"#,
        ),
        (
            "turn.started",
            json!({ "turn": "t", "input": [], "closes": [{ "id": 7 }] }),
            r#"member closes of a "turn.started" record is damaged: member id of a closed call is a number, not a string"#,
        ),
        (
            "call.rejected",
            json!({ "call": { "type": "function_call", "call_id": "c", "name": "n" }, "reason": "policy", "output": "" }),
            r#"member call of a "call.rejected" record is damaged: a call has no member arguments"#,
        ),
        (
            "response.recorded",
            json!({ "id": "r", "outcome": { "status": "incomplete" }, "items": [], "text": "" }),
            r#"member outcome of a "response.recorded" record is damaged: an outcome has no member reason"#,
        ),
        (
            "call.settled",
            json!({ "id": "c", "how": "done" }),
            r#"a "call.settled" record has neither member output nor member blob"#,
        ),
        ("outcome.stored", json!({}), r#"a "outcome.stored" record has no member outcome"#),
    ];
    for (kind, body, message) in cases {
        assert_eq!(Record::decode(kind, 1, &body.to_string(), |_| None), Err(Error::corruption(message)));
    }
}

// covers N6
#[test]
fn blob_that_is_not_text_harms_its_own_output_alone() {
    let bytes = b"\xff\xfe".to_vec();
    let digest = crate::digest::Digest::of(&bytes);
    let body = json!({ "id": "c", "how": "done", "blob": digest.to_string(), "length": 2 }).to_string();
    let output = json!({ "error": format!("the stored output {digest} is not text") }).to_string();
    let settled = Record::CallSettled { id: "c".into(), output, how: Settlement::Done };
    assert_eq!(Record::decode("call.settled", 1, &body, |_| Some(bytes)), Ok(settled));
}
