//! What is too deep or too large to be kept harms itself, and never the journal.

use super::*;
use crate::limits::{
    BLOB_BYTES_MAX, CALL_PAYLOAD_BYTES_MAX, ID_BYTES_MAX, NOTICE_BYTES_MAX, REASON_BYTES_MAX, RECORD_BYTES_MAX,
    RECORD_DEPTH_MAX,
};
use crate::model::Usage;
use crate::reconcile::UncertaintyRules;

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

// covers N6, E2
#[test]
fn output_over_the_cap_of_a_blob_fails_its_call_once_and_its_beginning_is_kept() {
    type MakeEvent = Box<dyn Fn(String) -> Event>;
    let cases: [(&str, MakeEvent); 3] = [
        ("runs", Box::new(|output| ended("runs", &output))),
        ("asks", Box::new(|output| Event::Decided { id: "asks".into(), decision: Decision::Output { output } })),
        ("asks", Box::new(|output| Event::Decided { id: "asks".into(), decision: Decision::Decline { output } })),
    ];
    for (id, event) in cases {
        for (length, whole) in [(BLOB_BYTES_MAX, true), (BLOB_BYTES_MAX + 1, false), (BLOB_BYTES_MAX * 2, false)] {
            let mut host = Host::new();
            host.respond("resp_1", &[(sync("runs"), safe()), (sync("asks"), held(Hold::Output))]);
            host.act(event("x".repeat(length)));
            let Some(Record::CallSettled { output, how, .. }) = host.journal.last().cloned() else {
                panic!("{:?}", host.journal.last())
            };
            let kept = format!(
                "the output of this call has {length} bytes, over the limit of 16777216; its first 65536 bytes are: {}",
                "x".repeat(65536)
            );
            let settled = if whole { "x".repeat(length) } else { json!({ "error": kept }).to_string() };
            assert!(output == settled, "{id} {length}: {} bytes", output.len());
            assert_eq!(how == Settlement::Failed, !whole, "{id} {length}");
            // It has its result, so a crash does not run it again.
            host.crash();
            let policies = [("runs", safe()), ("asks", held(Hold::Output))];
            assert!(!ran(&host.open(&policies)).contains(&id));
        }
    }
}

// covers L48
#[test]
fn call_or_response_id_that_no_record_can_hold_is_the_providers_error_and_changes_nothing() {
    let refuse = || CallPolicy::refuse(RefusalReason::UnknownTool, "no such tool");
    // Each of these bytes takes six in a record.
    let full = "\u{1}".repeat(CALL_PAYLOAD_BYTES_MAX);
    for (policy, id) in [(start(), "a"), (refuse(), "b")] {
        let mut host = Host::new();
        host.begin();
        host.call(Call::custom(id, "query", full.as_str()), policy.clone());
        let long = "x".repeat(ID_BYTES_MAX + 1);
        for call in [
            Call::custom("c", "query", format!("{full}x")),
            Call::function("c", "read", format!("{full}x")),
            Call::function(long.as_str(), "read", "{}"),
            Call::function("c", long.as_str(), "{}"),
        ] {
            let event = host.called(call, policy.clone());
            host.refuses(ErrorKind::Provider, event);
        }
        assert_eq!(host.act(Event::ResponseStarted(long.as_str().into())), []);
        host.refuses(ErrorKind::Provider, completed(completion(&long)));
    }
}

// covers G14
#[test]
fn reason_of_a_settled_request_is_cut() {
    let mut host = Host::new();
    host.begin();
    let words = "\u{e9}".repeat(RECORD_BYTES_MAX);
    let failed = Outcome::Failed { code: String::new(), message: words };
    host.act(completed(Completion { outcome: failed, ..completion("resp_1") }));
    let why = host.journal.iter().find_map(|record| match record {
        Record::FlightSettled { why, .. } => Some(why.len()),
        _ => None,
    });
    assert_eq!(why, Some(REASON_BYTES_MAX - 1), "at the border of a letter");
}

// covers L59
#[test]
fn notice_of_a_lost_answer_quotes_the_beginning_of_long_texts_and_leaves_no_call_out() {
    let rules = UncertaintyRules { continue_after_lost: true, ..UncertaintyRules::default() };
    let mut host = Host::with(Settings { uncertainty: rules, ..Settings::default() });
    host.respond("resp_1", &[(sync("a"), start())]);
    host.ended("a", "out");
    host.act(Event::Prepare);
    host.begin();
    let lost = 30;
    for at in 0..lost {
        let id = format!("c{at}");
        host.call(Call::custom(id.as_str(), "pay", "\u{1}".repeat(5_000)).asynchronous(), start());
        host.ended(&id, &"y".repeat(6_000));
    }
    host.act(Event::StreamBroken);
    host.act(Event::Resolve(Evidence::Unasked { can_retrieve: false }));
    host.act(Event::Prepare);
    let [Item::Message { role: Role::User, text }] = &host.checkpoint().delivery().unwrap().after[..] else {
        panic!("{:?}", host.checkpoint().delivery())
    };
    let (input, output) = ("\\u0001".repeat(2048), "y".repeat(2048));
    let line = format!("- pay \"{input}\" (the first 2048 of 5000 bytes): \"{output}\" (the first 2048 of 6000 bytes)");
    let whole = NOTICE_BYTES_MAX / line.len();
    let short = format!("{} …", &line[..120]);
    let lines: Vec<&str> = text.lines().skip(1).collect();
    let expected = [vec![line.as_str(); whole], vec![short.as_str(); lost - whole]].concat();
    assert!(lines == expected, "{} lines, {} bytes", lines.len(), text.len());
}
