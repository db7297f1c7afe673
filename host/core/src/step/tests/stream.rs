//! The events of a response (L17 to L23, L55, L66).

use super::*;

fn ending(outcome: Outcome, finish_reason: Option<&str>) -> Event {
    completed(Completion { outcome, finish_reason: finish_reason.map(str::to_owned), ..completion("resp_1") })
}

fn incomplete(reason: &str) -> Outcome {
    Outcome::Incomplete { reason: reason.into() }
}

/// A response in flight with a sync call that waits for it.
fn with_sync_call() -> Host {
    let mut host = Host::new();
    host.begin();
    host.call(sync("a"), start());
    host
}

// covers L22
#[test]
fn second_response_cannot_begin() {
    let mut host = with_sync_call();
    let begin = Event::RequestBegun { message_id: None, continues: None, whole_history: true, maker: None };
    host.refuses(ErrorKind::Store, begin);
}

// covers L37
#[test]
fn transcript_message_begins_in_one_record_with_its_response_and_only_one_at_a_time() {
    let begin = |id: &str| Event::RequestBegun {
        message_id: Some(id.into()),
        continues: None,
        whole_history: true,
        maker: None,
    };
    let mut host = Host::new();
    let before = host.journal.len();
    host.act(begin("msg_1"));
    assert_eq!(host.kinds_since(before), ["response.begun"]);
    assert_eq!(
        (host.checkpoint().transcript_message_id(), host.checkpoint().response_in_flight()),
        (Some("msg_1"), true)
    );
    host.complete("resp_1");
    host.refuses(ErrorKind::Store, begin("msg_2"));
}

// covers L23
#[test]
fn event_without_a_begun_response_is_refused() {
    let mut host = Host::new();
    host.refuses(ErrorKind::Store, Event::ResponseStarted("resp_1".into()));
    host.refuses(ErrorKind::Store, completed(completion("resp_1")));
    let failure = RequestError::new(Fate::Refused, Error::provider("no"));
    host.refuses(ErrorKind::Store, Event::RequestFailed(failure));
}

// covers L55
#[test]
fn response_id_is_durable_at_the_first_event_that_carries_it() {
    let mut host = Host::new();
    host.begin();
    assert_eq!(
        host.act(Event::ResponseStarted("resp_1".into())),
        [Effect::Append(vec![Record::ResponseStarted { id: "resp_1".into() }])]
    );
    assert_eq!(host.act(Event::ResponseStarted("resp_1".into())), [], "once");
    let mut nameless = Host::new();
    nameless.begin();
    assert_eq!(nameless.act(Event::ResponseStarted(" ".into())), [], "an event without an id says nothing");
    host.crash();
    assert_eq!(host.turn().flight.as_ref().unwrap().id, Some("resp_1".into()));
    assert_eq!(host.act(Event::Resolve(Evidence::Unasked { can_retrieve: true })), [Effect::Retrieve("resp_1".into())]);
}

// covers L17
#[test]
fn completion_without_an_id_is_a_provider_error_that_leaves_the_response_in_flight() {
    for id in [None, Some(""), Some(" ")] {
        let mut host = with_sync_call();
        host.call(asynchronous("runs"), start());
        let completion = Completion { id: id.map(Into::into), ..completion("") };
        host.refuses(ErrorKind::Provider, completed(completion));
        assert!(host.checkpoint().response_in_flight());
        // As after a broken stream, nothing new starts.
        assert_eq!(ran(&host.call(asynchronous("new"), start())), [""; 0]);
        assert_eq!(host.next(), Next::Resolve);
    }
}

// covers L18, L19, L20
#[test]
fn whole_response_counts_and_releases_its_sync_calls() {
    for finish in [None, Some("stop"), Some("tool_calls"), Some("end_turn")] {
        let mut host = with_sync_call();
        let effects = host.act(ending(Outcome::Completed, finish));
        assert_eq!(ran(&effects), ["a"], "{finish:?}");
        let document = host.checkpoint().to_json();
        assert_eq!(
            json!([document["latest_response_id"], document["completed_responses"], document["response_in_flight"]]),
            json!(["resp_1", 1, false])
        );
    }
}

// covers L18, L66
#[test]
fn incomplete_response_counts_and_stops_the_turn_until_it_is_resumed() {
    // Whatever says it: the outcome, the finish reason, or both.
    for (outcome, finish, reason) in [
        (incomplete("max_output_tokens"), Some("length"), "max_output_tokens"),
        (incomplete("max_output_tokens"), None, "max_output_tokens"),
        (incomplete("content_filter"), Some("stop"), "content_filter"),
        (Outcome::Completed, Some("length"), "length"),
        (Outcome::Completed, Some("something_new"), "something_new"),
    ] {
        let mut host = with_sync_call();
        host.call(asynchronous("runs"), start());
        let effects = host.act(ending(outcome, finish));
        assert_eq!(ran(&effects), [""; 0]);
        let document = host.checkpoint().to_json();
        assert_eq!(
            json!([document["latest_response_id"], document["completed_responses"], document["response_in_flight"]]),
            json!(["resp_1", 1, false])
        );
        // At rest once what runs has ended, also after a crash.
        assert_eq!(host.next(), Next::WaitForJob);
        host.ended("runs", "x");
        host.crash();
        assert_eq!(host.open(&[("a", start())]), []);
        assert_eq!(host.next(), Next::Rest(PauseReason::Incomplete { reason: reason.into() }));
        assert_eq!(host.states()["a"], json!("Queued"));
        assert_eq!(ran(&host.act(Event::Resume { why: "go on".into() })), ["a"]);
        host.ended("a", "y");
        assert_eq!(host.next(), Next::Deliver);
    }
}

// covers L66
#[test]
fn cut_answer_without_calls_never_passes_for_the_last_one() {
    let mut host = Host::new();
    host.begin();
    host.act(ending(incomplete("max_output_tokens"), Some("length")));
    assert!(host.checkpoint().may_complete());
    assert_eq!(host.next(), Next::Rest(PauseReason::Incomplete { reason: "max_output_tokens".into() }));
    host.act(Event::Resume { why: "go on".into() });
    assert_eq!(host.next(), Next::Ask);
    host.begin_on("resp_1");
    host.complete("resp_2");
    assert_eq!(host.next(), Next::Finished);
}

// covers L18
#[test]
fn steered_response_counts_and_its_sync_calls_wait_for_the_successor() {
    for (outcome, finish) in
        [(incomplete("steered"), Some("steered")), (Outcome::Completed, Some("steered")), (incomplete("steered"), None)]
    {
        let mut host = with_sync_call();
        host.call(sync("held"), held(Hold::Approval));
        assert_eq!(ran(&host.act(ending(outcome, finish))), [""; 0]);
        assert_eq!(host.checkpoint().completed_responses(), 1);
        assert_eq!(host.turn().paused, None, "it is neither uncertain nor a pause");
        assert_eq!(ran(&host.act(approve("held", "yes"))), [""; 0], "it waits for the successor too");
        assert_eq!(host.next(), Next::Ask);
        // Neither a crash nor a resume releases them.
        host.crash();
        host.open(&[("a", start()), ("held", held(Hold::Approval))]);
        host.act(Event::Resume { why: "open".into() });
        assert_eq!(host.states(), json!({ "a": "Queued", "held": "Queued" }));
        host.begin_on("resp_1");
        assert_eq!(ran(&host.act(completed(completion("resp_2")))), ["a", "held"]);
    }
    // One without calls is not the end either.
    let mut host = Host::new();
    host.begin();
    host.act(ending(incomplete("steered"), Some("steered")));
    assert_eq!(host.next(), Next::Ask);
}

// covers L18, L66, L58
#[test]
fn failed_or_cancelled_response_is_a_provider_error_and_settled_as_not_accepted() {
    let failure = |code: &str| Outcome::Failed { code: code.into(), message: "overloaded".into() };
    for (outcome, finish, message) in [
        (failure("busy"), None, "the response failed: overloaded (busy)"),
        (failure(""), Some("error"), "the response failed: overloaded"),
        (Outcome::Cancelled, None, "the response was cancelled at the provider"),
        (Outcome::Completed, Some("cancelled"), "the response was cancelled at the provider"),
        (Outcome::Completed, Some("error"), "the response ended with an error"),
        (incomplete("x"), Some("error"), "the response ended with an error"),
    ] {
        let mut host = with_sync_call();
        let effects = host.act(ending(outcome, finish));
        assert_eq!(
            effects,
            [
                Effect::Append(vec![Record::FlightSettled {
                    fate: FlightFate::NotAccepted,
                    why: message.into(),
                    orphans: vec!["a".into()],
                }]),
                Effect::Fail(Error::provider(message)),
            ]
        );
        let document = host.checkpoint().to_json();
        assert_eq!(
            json!([document["latest_response_id"], document["completed_responses"], document["response_in_flight"]]),
            json!([null, 0, false])
        );
        assert_eq!(json!([document["orphans"], document["calls"]["a"]["state"]]), json!([["a"], "Queued"]));
    }
}

// covers L19, J5, G20
#[test]
fn terminal_event_is_the_receipt_of_the_delivery_that_the_request_carried() {
    for outcome in [Outcome::Completed, incomplete("max_output_tokens")] {
        let mut host = Host::new();
        host.respond("resp_0", &[(sync("a"), start())]);
        host.ended("a", "x");
        host.act(Event::Prepare);
        host.begin_on("resp_0");
        let before = host.journal.len();
        host.act(ending(outcome.clone(), None));
        assert_eq!(host.kinds_since(before)[..3], ["delivery.acknowledged", "response.recorded", "flight.cleared"]);
        let document = host.checkpoint().to_json();
        assert_eq!(
            json!([
                document["latest_response_id"],
                document["completed_responses"],
                document["delivery"],
                host.states()
            ]),
            json!(["resp_1", 2, null, { "a": "Delivered" }])
        );
    }
}

// covers L66
#[test]
fn accepted_response_that_a_provider_gives_again_answers_no_other_request() {
    // With a delivery it would be no receipt (J2), without one it would not count (F4) and be asked for again and again.
    for delivers in [true, false] {
        let mut host = Host::new();
        host.respond("resp_1", &[(sync("a"), start())]);
        host.ended("a", "x");
        if delivers {
            host.act(Event::Prepare);
        }
        let before = host.checkpoint().to_json();
        host.begin_on("resp_1");
        host.call(asynchronous("b"), safe());
        let effects = host.act(completed(completion("resp_1")));
        let error = failed(&effects).unwrap();
        assert_eq!(error.kind, ErrorKind::Provider);
        assert!(error.message.starts_with("response \"resp_1\" was accepted before"), "{error}");
        assert_eq!(host.states(), json!({ "a": ready("x"), "b": "Running" }));
        let document = host.checkpoint().to_json();
        let counted = json!([document["completed_responses"], document["response_in_flight"], document["delivery"]]);
        assert_eq!((counted, &document["orphans"]), (json!([1, false, null]), &json!(["b"])));
        assert_eq!(document["latest_response_id"], before["latest_response_id"]);
    }
}

// covers L21, L57
#[test]
fn broken_stream_aborts_nothing_starts_nothing_and_leaves_the_response_in_flight() {
    let mut host = Host::with(Settings { calls_at_once: 1, ..Settings::default() });
    host.begin();
    assert_eq!(ran(&host.call(asynchronous("runs"), start())), ["runs"]);
    host.call(asynchronous("waits"), start());
    host.call(sync("queued"), start());
    let before = host.checkpoint().to_json();
    assert_eq!(host.act(Event::StreamBroken), [], "nothing is aborted");
    assert_eq!(host.checkpoint().to_json(), before);
    assert_eq!(host.machine.running(), 1);
    // No new start, no new request; the outcome of what runs is kept.
    assert_eq!(ran(&host.ended("runs", "worth knowing")), [""; 0]);
    assert_eq!(host.states(), json!({ "runs": ready("worth knowing"), "waits": "Queued", "queued": "Queued" }));
    host.refuses(
        ErrorKind::Store,
        Event::RequestBegun { message_id: None, continues: None, whole_history: true, maker: None },
    );
    assert_eq!(host.next(), Next::Resolve);
    // Where nothing is in flight nothing broke.
    let mut idle = Host::new();
    idle.act(Event::StreamBroken);
    assert_eq!(ran(&idle.call(sync("a"), start())), ["a"]);
    // The same for a request whose failure leaves its fate open.
    let mut host = with_sync_call();
    let unknown = RequestError::new(Fate::Unknown, Error::provider("timed out"));
    let effects = host.act(Event::RequestFailed(unknown));
    assert_eq!(effects, [Effect::Fail(Error::provider("timed out"))]);
    assert_eq!(ran(&host.call(asynchronous("new"), start())), [""; 0]);
    assert_eq!(host.next(), Next::Resolve);
}

// covers L38, L39
#[test]
fn summary_and_commit_follow_the_response_of_their_message() {
    let mut host = Host::new();
    host.refuses(ErrorKind::Store, Event::SummaryStaged(json!({})));
    host.act(Event::RequestBegun {
        message_id: Some("msg_1".into()),
        continues: None,
        whole_history: true,
        maker: None,
    });
    host.refuses(ErrorKind::Store, Event::SummaryStaged(json!({})));
    host.refuses(ErrorKind::Store, Event::TranscriptCommitted("msg_1".into()));
    host.complete("resp_1");
    host.act(Event::SummaryStaged(json!({ "n": 1 })));
    host.refuses(ErrorKind::Store, Event::SummaryStaged(json!({ "n": 2 })));
    host.refuses(ErrorKind::Store, Event::TranscriptCommitted("msg_2".into()));
    assert!(!host.checkpoint().may_complete());
    host.act(Event::TranscriptCommitted("msg_1".into()));
    let document = host.checkpoint().to_json();
    assert_eq!(json!([document["host_responses"], document["transcript_message_id"]]), json!([[{ "n": 1 }], null]));
}

// covers L40
#[test]
fn outcome_and_end_need_a_turn_that_may_complete() {
    let mut host = with_sync_call();
    let end = || Event::TurnEnded { status: "completed".into() };
    host.refuses(ErrorKind::Store, Event::OutcomeStored(json!({})));
    host.refuses(ErrorKind::Store, end());
    host.complete("resp_1");
    host.ended("a", "x");
    host.refuses(ErrorKind::Store, Event::OutcomeStored(json!({})));
    host.act(Event::Prepare);
    host.begin_on("resp_1");
    host.complete("resp_2");
    host.act(Event::OutcomeStored(json!({ "text": "hi" })));
    assert_eq!(host.checkpoint().host_outcome(), Some(&json!({ "text": "hi" })));
    host.act(end());
    assert!(host.machine.session().open_turn().is_none());
    // The next turn begins with the session's latest response.
    host.act(Event::TurnStarted { turn: "turn_2".into(), input: Vec::new() });
    assert_eq!(host.checkpoint().latest_response_id().unwrap().as_str(), "resp_2");
    host.refuses(ErrorKind::Store, Event::TurnStarted { turn: "turn_3".into(), input: Vec::new() });
}
