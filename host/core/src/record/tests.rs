//! Round trips of every kind.

use serde_json::{Value, json};

use super::*;
use crate::error::Error;
use crate::limits::{BLOB_BYTES_MAX, RECORD_BYTES_MAX, RECORD_DEPTH_MAX};

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
