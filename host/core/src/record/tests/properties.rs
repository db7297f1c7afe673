//! What holds for any record and for any text in place of one.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::arbitrary::{foreign, record, text};
use super::damage::{Change, change};
use super::some;
use crate::error::{Error, ErrorKind};
use crate::ids::BlobDigest;
use crate::limits::{BLOB_BYTES_MAX, INLINE_OUTPUT_BYTES_MAX, RECORD_DEPTH_MAX};
use crate::record::{Encoded, Record, Settlement};

fn decode(stored: &Encoded) -> Result<Record, Error> {
    Record::decode(stored.kind, stored.version, &stored.body, |digest| {
        stored.blob.clone().filter(|(named, _)| named == digest).map(|(_, bytes)| bytes)
    })
}

/// The record that is left of a call's settlement whose blob is damaged so.
fn without_output(record: &Record, digest: &BlobDigest, what: &str) -> Record {
    let Record::CallSettled { id, how, .. } = record else { panic!("{record:?} has no output") };
    let output = json!({ "error": format!("the stored output {digest} is {what}") }).to_string();
    Record::CallSettled { id: id.clone(), output, how: *how }
}

proptest! {
    #![proptest_config(some(1500))]

    // covers N6, B6
    #[test]
    fn any_record_reads_back_as_an_equal_one_and_is_written_as_it_was(record in record()) {
        let stored = record.encode().unwrap();
        prop_assert_eq!((stored.kind, stored.version), (record.kind(), 1));
        prop_assert_eq!(Record::named_blob(stored.kind, &stored.body), stored.blob.clone().map(|(digest, _)| digest));
        let output = match &record {
            Record::CallSettled { output, .. } if output.len() > INLINE_OUTPUT_BYTES_MAX => Some(output.as_bytes()),
            _ => None,
        };
        prop_assert_eq!(stored.blob.as_ref().map(|(_, bytes)| &bytes[..]), output);
        let read = decode(&stored).unwrap();
        prop_assert_eq!(&read, &record);
        prop_assert_eq!(read.encode().unwrap(), stored);
    }

    // covers N6
    #[test]
    fn foreign_json_of_any_depth_reads_back_or_is_not_written(inner in foreign(), levels in 80..160_usize, list: bool) {
        let wrap = |inner, _| match list {
            true => Value::Array(vec![inner]),
            false => Value::Object([("in".to_owned(), inner)].into_iter().collect()),
        };
        let outcome: Value = (0..levels).fold(inner, wrap);
        let record = Record::OutcomeStored { outcome: outcome.clone() };
        let body = crate::schema::depth(&json!({ "outcome": outcome }));
        match record.encode() {
            Ok(stored) => prop_assert_eq!(decode(&stored), Ok(record)),
            Err(error) => {
                prop_assert!(body > RECORD_DEPTH_MAX);
                let message = format!(r#"a "outcome.stored" record is nested deeper than {RECORD_DEPTH_MAX} levels"#);
                prop_assert_eq!(error, Error::store(message));
            }
        }
    }

    // covers B11, M3
    #[test]
    fn record_with_a_member_changed_is_another_record_or_says_which_member_is_wrong(record in record(), how: Change) {
        let stored = record.encode().unwrap();
        let mut body: Value = serde_json::from_str(&stored.body).unwrap();
        let Some(path) = change(&mut body, &how) else { return Ok(()) };
        let changed = Encoded { body: body.to_string(), ..stored };
        match decode(&changed) {
            Ok(read) => {
                let again = read.encode().unwrap();
                prop_assert_eq!(decode(&again), Ok(read), "what is read can be written");
            }
            Err(Error { kind, message, .. }) => {
                prop_assert_eq!(kind, ErrorKind::Corruption);
                prop_assert!(message.contains(&format!("{:?}", record.kind())), "{path:?}: {message}");
                prop_assert!(message.contains(&format!("member {}", path[0])), "{path:?}: {message}");
            }
        }
    }

    // covers B11, M3
    #[test]
    fn any_text_in_place_of_a_body_is_a_record_or_a_corruption_of_its_kind(
        record in record(), at: prop::sample::Index, length in 0..9_usize, with in prop::option::of(text()), whole: bool,
    ) {
        let stored = record.encode().unwrap();
        let mut bytes = stored.body.clone().into_bytes();
        if whole {
            bytes.truncate(at.index(bytes.len()));
        } else {
            let from = at.index(bytes.len());
            let to = (from + length).min(bytes.len());
            bytes.splice(from..to, with.unwrap_or_default().into_bytes());
        }
        let changed = Encoded { body: String::from_utf8_lossy(&bytes).into_owned(), ..stored };
        let _ = Record::named_blob(changed.kind, &changed.body);
        if let Err(Error { kind, message, .. }) = decode(&changed) {
            prop_assert_eq!(kind, ErrorKind::Corruption);
            prop_assert!(message.contains(&format!("{:?}", record.kind())), "{message}");
        }
        prop_assert!(!whole || decode(&changed).is_err(), "a body that was cut off is no record");
    }

    // covers B11
    #[test]
    fn any_texts_are_read_without_a_panic(kind in text(), version: u16, body in text(), known in record()) {
        for kind in [kind.as_str(), known.kind()] {
            for version in [version, 1] {
                let _ = Record::named_blob(kind, &body);
                if let Err(error) = Record::decode(kind, version, &body, |_| None) {
                    prop_assert!(error.message.contains(&format!("{kind:?}")), "{error}");
                    prop_assert_eq!(error.kind == ErrorKind::Store, version > 1);
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(some(40))]

    // covers N6
    #[test]
    fn missing_or_damaged_blob_harms_its_own_output_alone(
        id in text(), fill in "[ -~]{1,40}", at: prop::sample::Index, bit in 0..8_u8, cut: prop::sample::Index,
    ) {
        let output = fill.repeat(INLINE_OUTPUT_BYTES_MAX / fill.len() + 1);
        let record = Record::CallSettled { id: id.into(), output, how: Settlement::Outside };
        let stored = record.encode().unwrap();
        let (digest, bytes) = stored.blob.clone().unwrap();
        let read = |bytes| decode(&Encoded { blob: bytes, ..stored.clone() });
        prop_assert_eq!(read(None), Ok(without_output(&record, &digest, "missing")));
        let mut flipped = bytes.clone();
        flipped[at.index(bytes.len())] ^= 1 << bit;
        let shorter = bytes[..cut.index(bytes.len())].to_vec();
        for damaged in [flipped, shorter, Vec::new()] {
            let found = read(Some((digest.clone(), damaged)));
            prop_assert_eq!(found, Ok(without_output(&record, &digest, "damaged")));
        }
    }
}

// covers N6
#[test]
fn output_at_the_cap_of_a_blob_reads_back() {
    let output = "é".repeat(BLOB_BYTES_MAX / 2);
    let record = Record::CallSettled { id: "c1".into(), output, how: Settlement::Done };
    let stored = record.encode().unwrap();
    assert!(decode(&stored) == Ok(record), "sixteen mebibytes are not printed");
}
