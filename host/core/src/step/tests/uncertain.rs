//! Requests whose fate is uncertain (G10, G13 to G20).

use super::*;
use crate::reconcile::{Evidence, UncertaintyRules};

const UNASKED: Event = Event::Resolve(Evidence::Unasked { can_retrieve: true });
const CANNOT_ASK: Event = Event::Resolve(Evidence::Unasked { can_retrieve: false });
const UNSETTLED: Event = Event::Resolve(Evidence::Unsettled);

fn rules(uncertainty: UncertaintyRules) -> Settings {
    Settings { uncertainty, ..Settings::default() }
}

/// A delivery of call `a` on `resp_1`, prepared and not begun.
fn delivering(settings: Settings) -> Host {
    let mut host = Host::with(settings);
    host.respond("resp_1", &[(sync("a"), start())]);
    host.ended("a", "x");
    host.act(Event::Prepare);
    host
}

/// The same in flight, going on from the stored response.
fn continuing(settings: Settings) -> Host {
    let mut host = delivering(settings);
    host.begin_on("resp_1");
    host
}

/// The same in flight, carrying the whole history.
fn whole(settings: Settings) -> Host {
    let mut host = delivering(settings);
    host.begin();
    host
}

/// As before the delivery was prepared, but for what else `with` says.
fn rolled_back() -> Value {
    let mut host = Host::new();
    host.respond("resp_1", &[(sync("a"), start())]);
    host.ended("a", "x");
    host.checkpoint().to_json()
}

fn reconcile(command: Reconcile) -> Event {
    Event::Reconcile { command, who: "op".into() }
}

// covers G13, G14
#[test]
fn delivery_whose_request_was_never_begun_was_not_sent() {
    let mut host = delivering(Settings::default());
    host.crash();
    let effects = host.act(UNASKED);
    let [Effect::Append(records)] = &effects[..] else { panic!("{effects:?}") };
    assert!(
        matches!(&records[..], [Record::FlightSettled { fate: FlightFate::NotSent, orphans, .. }] if orphans.is_empty()),
        "{records:?}"
    );
    assert_eq!(host.checkpoint().to_json(), rolled_back());
    assert_eq!(host.open(&[]), []);
    assert_eq!(host.next(), Next::Deliver);
}

// covers G14
#[test]
fn request_that_was_not_sent_or_was_refused_is_rolled_back_and_journaled() {
    for (fate, journaled) in [(Fate::NotSent, FlightFate::NotSent), (Fate::Refused, FlightFate::Refused)] {
        for mut host in [continuing(Settings::default()), whole(Settings::default())] {
            let error = Error::provider("connection refused");
            let effects = host.act(Event::RequestFailed(RequestError::new(fate, error.clone())));
            let settled =
                Record::FlightSettled { fate: journaled, why: "connection refused".into(), orphans: Vec::new() };
            assert_eq!(effects, [Effect::Append(vec![settled]), Effect::Fail(error)]);
            assert_eq!(host.checkpoint().to_json(), rolled_back());
            // Nobody has to step in, now or after a crash.
            assert_eq!(host.next(), Next::Deliver);
            host.crash();
            assert_eq!((host.act(UNASKED), host.open(&[])), (Vec::new(), Vec::new()));
            assert_eq!(host.next(), Next::Deliver);
        }
    }
}

// covers L21, G14, G17, G19
#[test]
fn calls_that_wait_for_a_permit_start_once_the_broken_request_is_settled() {
    let settled: [Event; 4] = [
        Event::RequestFailed(RequestError::new(Fate::NotSent, Error::provider("no"))),
        CANNOT_ASK,
        reconcile(Reconcile::Resend),
        reconcile(Reconcile::Receipt("resp_2".into())),
    ];
    for event in settled {
        let mut host = Host::with(Settings { calls_at_once: 1, ..Settings::default() });
        host.respond("resp_1", &[(asynchronous("runs"), start()), (asynchronous("waits"), start())]);
        host.begin();
        host.act(Event::StreamBroken);
        assert_eq!(ran(&host.ended("runs", "x")), [""; 0]);
        assert_eq!(ran(&host.act(event.clone())), ["waits"], "{event:?}");
    }
}

// covers G13, G16
#[test]
fn crash_counts_as_unknown() {
    // The request was begun; nothing in the journal proves what became of it. It is neither resent nor rolled back.
    let mut host = continuing(Settings::default());
    host.crash();
    let before = host.checkpoint().to_json();
    host.refuses(ErrorKind::Store, CANNOT_ASK);
    assert_eq!(host.checkpoint().to_json(), before);
}

// covers G15
#[test]
fn unknown_is_asked_for_by_the_id_that_was_journaled() {
    let mut host = continuing(Settings::default());
    host.act(Event::ResponseStarted("resp_2".into()));
    host.crash();
    assert_eq!(host.act(UNASKED), [Effect::Retrieve("resp_2".into())]);
    // A driver that cannot is not asked, and without an id there is nothing to ask for.
    host.refuses(ErrorKind::Store, CANNOT_ASK);
    let mut host = continuing(Settings::default());
    host.crash();
    host.refuses(ErrorKind::Store, UNASKED);
}

// covers G15, G20
#[test]
fn retrieved_response_that_ended_is_the_receipt() {
    for outcome in [Outcome::Completed, Outcome::Incomplete { reason: "max_output_tokens".into() }] {
        let mut host = continuing(Settings::default());
        host.act(Event::ResponseStarted("resp_2".into()));
        host.call(asynchronous("b"), safe());
        host.crash();
        host.act(UNASKED);
        // Its calls come again, and one that the stream never brought.
        assert_eq!(host.call(asynchronous("b"), safe()), []);
        assert_eq!(ran(&host.call(asynchronous("c"), start())), [""; 0], "nothing starts before the calls are mended");
        assert_eq!(ran(&host.act(completed(Completion { outcome, ..completion("resp_2") }))), [""; 0]);
        let document = host.checkpoint().to_json();
        assert_eq!(
            json!([
                document["latest_response_id"],
                document["completed_responses"],
                document["delivery"],
                host.states()
            ]),
            json!(["resp_2", 2, null, { "a": "Delivered", "b": "Running", "c": "Queued" }])
        );
        assert_eq!(ran(&host.open(&[("b", safe()), ("c", start())])), ["b", "c"]);
    }
}

// covers G20, L58
#[test]
fn retrieved_response_that_failed_or_was_cancelled_was_not_accepted() {
    for outcome in [Outcome::Failed { code: String::new(), message: "broke".into() }, Outcome::Cancelled] {
        let mut host = continuing(Settings::default());
        host.act(Event::ResponseStarted("resp_2".into()));
        host.call(sync("b"), start());
        host.crash();
        host.act(UNASKED);
        let effects = host.act(completed(Completion { outcome, ..completion("resp_2") }));
        assert_eq!(failed(&effects).unwrap().kind, ErrorKind::Provider);
        let mut expected = rolled_back();
        expected["order"] = json!(["a", "b"]);
        expected["calls"]["b"] = json!({
            "call": sync("b").to_json(), "replay_safe": false, "replay_class": "never", "state": "Queued",
        });
        expected["orphans"] = json!(["b"]);
        assert_eq!(host.checkpoint().to_json(), expected);
        assert_eq!(host.open(&[]), []);
        assert_eq!(host.next(), Next::Deliver);
    }
}

// covers G20, G16, G19
#[test]
fn not_found_or_still_in_progress_proves_nothing() {
    // A stored continuation: refused, though the provider says that it knows no such response.
    let mut host = continuing(Settings::default());
    host.act(Event::ResponseStarted("resp_2".into()));
    host.crash();
    host.act(UNASKED);
    let before = host.checkpoint().to_json();
    host.refuses(ErrorKind::Store, UNSETTLED);
    assert_eq!(host.checkpoint().to_json(), before);
    // A whole history: lost, and sent again.
    let mut host = whole(Settings::default());
    host.act(Event::ResponseStarted("resp_2".into()));
    host.crash();
    assert_eq!(host.act(UNASKED), [Effect::Retrieve("resp_2".into())]);
    host.act(UNSETTLED);
    assert_eq!(host.checkpoint().to_json(), rolled_back());
}

// covers G16
#[test]
fn refusal_names_the_open_delivery_and_the_commands() {
    let mut host = continuing(Settings::default());
    host.crash();
    let error = host.refuses(ErrorKind::Store, CANNOT_ASK);
    assert_eq!(
        error.message,
        "it is not known whether the provider accepted the delivery of \"a\" on response \"resp_1\""
    );
    assert_eq!(error.hint.unwrap(), crate::reconcile::RECONCILE_HINT);
    // Without a delivery there is a request.
    let mut host = Host::new();
    host.respond("resp_1", &[]);
    host.begin_on("resp_1");
    host.crash();
    let error = host.refuses(ErrorKind::Store, UNASKED);
    assert_eq!(error.message, "it is not known whether the provider accepted the last request");
}

// covers G19
#[test]
fn lost_request_with_the_whole_history_is_sent_again_at_most_so_often() {
    for resend_lost in [0, 1, 3] {
        let mut host = whole(rules(UncertaintyRules { resend_lost, ..UncertaintyRules::default() }));
        for _ in 0..resend_lost {
            host.crash();
            let effects = host.act(CANNOT_ASK);
            let [Effect::Append(records)] = &effects[..] else { panic!("{effects:?}") };
            assert!(matches!(&records[..], [Record::FlightSettled { fate: FlightFate::Lost, .. }]), "{records:?}");
            assert_eq!(host.checkpoint().to_json(), rolled_back());
            host.open(&[]);
            assert_eq!(host.next(), Next::Deliver);
            host.act(Event::Prepare);
            host.begin();
        }
        host.crash();
        host.refuses(ErrorKind::Store, CANNOT_ASK);
    }
    // One that is accepted ends the count.
    let mut host = whole(Settings::default());
    host.act(Event::StreamBroken);
    host.act(UNSETTLED);
    host.act(Event::Prepare);
    host.begin();
    host.call(sync("b"), start());
    host.complete("resp_2");
    host.ended("b", "y");
    host.act(Event::Prepare);
    host.begin();
    host.act(Event::StreamBroken);
    host.act(UNSETTLED);
    assert_eq!(host.next(), Next::Deliver);
}

// covers G19
#[test]
fn stored_continuation_is_sent_again_only_if_the_harness_says_so() {
    let says = UncertaintyRules { resend_unknown: true, ..UncertaintyRules::default() };
    let mut host = continuing(rules(says));
    host.crash();
    host.act(CANNOT_ASK);
    assert_eq!(host.checkpoint().to_json(), rolled_back());
    let mut silent = continuing(Settings::default());
    silent.crash();
    silent.refuses(ErrorKind::Store, CANNOT_ASK);
    // Within the same count.
    host.open(&[]);
    host.act(Event::Prepare);
    host.begin_on("resp_1");
    host.crash();
    host.refuses(ErrorKind::Store, CANNOT_ASK);
}

// covers G17, G10
#[test]
fn receipt_accepts_the_response_that_the_operator_names() {
    let mut host = continuing(Settings::default());
    host.act(Event::ResponseStarted("resp_2".into()));
    host.call(sync("b"), start());
    host.crash();
    host.refuses(ErrorKind::Store, CANNOT_ASK);
    let before = host.journal.len();
    host.act(reconcile(Reconcile::Receipt("resp_2".into())));
    assert_eq!(
        host.journal[before..],
        [
            Record::Reconciled { command: Reconcile::Receipt("resp_2".into()), who: "op".into() },
            Record::DeliveryAcknowledged { receipt: "resp_2".into() },
            Record::FlightCleared,
        ]
    );
    assert_eq!(host.states(), json!({ "a": "Delivered", "b": "Queued" }));
    assert_eq!(ran(&host.open(&[("b", start())])), ["b"]);
    // In a process that lives on, the sync calls of the response are released at once.
    let mut host = continuing(Settings::default());
    host.call(sync("b"), start());
    host.act(Event::StreamBroken);
    assert_eq!(ran(&host.act(reconcile(Reconcile::Receipt("resp_2".into())))), ["b"]);
    // What cannot be a receipt is refused: an empty id, and the one that the delivery goes on from.
    let mut host = continuing(Settings::default());
    host.act(Event::StreamBroken);
    host.refuses(ErrorKind::Config, reconcile(Reconcile::Receipt("".into())));
    host.refuses(ErrorKind::Store, reconcile(Reconcile::Receipt("resp_1".into())));
}

// covers G17
#[test]
fn resend_rolls_back_and_sends_again() {
    let mut host = continuing(Settings::default());
    host.crash();
    host.refuses(ErrorKind::Store, CANNOT_ASK);
    let before = host.journal.len();
    host.act(reconcile(Reconcile::Resend));
    assert_eq!(
        host.journal[before..],
        [
            Record::Reconciled { command: Reconcile::Resend, who: "op".into() },
            Record::FlightSettled {
                fate: FlightFate::Resend,
                why: "an operator said: send again".into(),
                orphans: Vec::new(),
            },
        ]
    );
    assert_eq!(host.checkpoint().to_json(), rolled_back());
    host.open(&[]);
    assert_eq!(host.next(), Next::Deliver);
}

// covers G17, L60
#[test]
fn abandon_sends_nothing_and_ends_the_turn() {
    let mut host = continuing(Settings::default());
    host.crash();
    host.refuses(ErrorKind::Store, CANNOT_ASK);
    let before = host.journal.len();
    assert_eq!(host.act(reconcile(Reconcile::Abandon)).len(), 1, "an append and nothing else");
    assert_eq!(host.kinds_since(before), ["turn.reconciled", "flight.settled", "outcome.stored", "turn.ended"]);
    let mut expected = rolled_back();
    expected["orphans"] = json!(["a"]);
    expected["host_outcome"] = json!({ "status": "abandoned" });
    assert_eq!(host.checkpoint().to_json(), expected);
    assert_eq!(host.turn().ended.as_deref(), Some("abandoned"));
}

// covers G17
#[test]
fn commands_without_anything_to_answer_are_refused() {
    let mut host = Host::new();
    host.respond("resp_1", &[]);
    for command in [Reconcile::Receipt("resp_2".into()), Reconcile::Resend] {
        host.refuses(ErrorKind::Store, reconcile(command));
    }
    let mut nobody = Host::empty(Settings::default());
    for command in [Reconcile::Receipt("resp_2".into()), Reconcile::Resend, Reconcile::Abandon] {
        nobody.refuses(ErrorKind::Store, reconcile(command));
    }
}

/// What stands in the journal decides; what was asked changes nothing where nothing is uncertain.
// covers G13
#[test]
fn nothing_uncertain_is_nothing_to_do() {
    let mut host = Host::new();
    host.respond("resp_1", &[(sync("a"), start())]);
    for event in [UNASKED, CANNOT_ASK, UNSETTLED] {
        assert_eq!(host.act(event), []);
    }
    assert_eq!(Host::empty(Settings::default()).act(UNASKED), []);
}
