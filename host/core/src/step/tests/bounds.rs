//! What is too deep or too large to be kept harms itself, and never the journal.

use super::*;
use crate::limits::{RECORD_BYTES_MAX, RECORD_DEPTH_MAX};
use crate::model::Usage;

fn nested(levels: usize) -> Value {
    (0..levels).fold(json!(1), |inner, _| json!([inner]))
}

/// The last response, as it stands in the journal.
fn last(host: &Host) -> crate::record::ResponseFacts {
    host.turn().last_response.clone().unwrap()
}

// covers P16
// field case PROV-5
#[test]
fn item_or_usage_that_could_not_be_read_back_is_left_out_and_the_turn_goes_on() {
    // An item stands in a list in the record, the provider's usage in ours; the journal's form is checked by `Host`.
    let (kept, left_out) = (RECORD_DEPTH_MAX - 2, RECORD_DEPTH_MAX - 1);
    let item = |levels: usize| json!({ "type": "thing", "of": nested(levels - 1) });
    let usage = |levels: usize| Usage { total: 3, raw: Some(json!({ "of": nested(levels - 1) })), ..Usage::default() };
    let said = |levels: usize, and: usize| Completion {
        items: vec![item(levels), json!({ "type": "message" })],
        usage: Some(usage(and)),
        text: "hi".into(),
        ..completion("resp_1")
    };
    let mut host = Host::new();
    host.begin();
    host.act(completed(said(kept, kept)));
    assert_eq!((last(&host).items.len(), last(&host).usage), (2, Some(usage(kept))));
    for levels in [left_out, 125, 300] {
        let mut host = Host::new();
        host.begin();
        host.act(completed(said(levels, levels)));
        assert_eq!(last(&host).items, [json!({ "type": "message" })]);
        assert_eq!(last(&host).usage, Some(Usage { total: 3, raw: None, ..Usage::default() }));
        assert_eq!((last(&host).text.as_str(), host.next()), ("hi", Next::Finished));
    }
}

// covers L58, L66
#[test]
fn response_that_no_record_can_hold_is_not_accepted_and_its_delivery_is_ready_again() {
    let deep = json!({ "type": "message", "content": nested(RECORD_DEPTH_MAX) });
    let large = json!({ "type": "image_generation_call", "result": "x".repeat(RECORD_BYTES_MAX) });
    for (item, why) in [(deep, "nested deeper than 100 levels"), (large, "over the limit of 8388608")] {
        let mut host = Host::new();
        host.respond("resp_1", &[(sync("a"), start())]);
        host.ended("a", "out");
        host.act(Event::Prepare);
        host.begin_on("resp_1");
        host.call(asynchronous("b"), safe());
        let effects = host.act(completed(Completion { items: vec![item], ..completion("resp_2") }));
        let error = failed(&effects).unwrap();
        assert!(error.message.starts_with("response \"resp_2\" cannot be kept"), "{error}");
        assert_eq!((error.kind, error.message.contains(why)), (ErrorKind::Provider, true), "{error}");
        assert_eq!(host.states(), json!({ "a": ready("out"), "b": "Running" }));
        assert_eq!(host.checkpoint().orphans(), ["b".into()]);
        assert_eq!(
            (host.checkpoint().latest_response_id(), host.checkpoint().delivery()),
            (Some(&"resp_1".into()), None)
        );
        assert!(!host.checkpoint().response_in_flight());
    }
}
