//! Commands from the inbox (M8).

use super::*;
use crate::inbox::{About, Command, Letter};

fn letter(host: &Host, command: &Command) -> Letter {
    let About { target, digest } = command.about(host.machine.session()).unwrap();
    let (kind, body) = (command.kind().to_owned(), command.body());
    Letter { id: format!("letter on {target}"), kind, target, digest, body, who: "op".into() }
}

fn read(letter: &Letter, refused: Option<&str>) -> Record {
    Record::InboxConsumed {
        id: letter.id.clone(),
        kind: letter.kind.clone(),
        target: letter.target.clone(),
        who: "op".into(),
        refused: refused.map(str::to_owned),
    }
}

fn delivered(letter: &Letter) -> Event {
    Event::Letter { letter: letter.clone(), ended: Vec::new() }
}

#[track_caller]
fn append(effects: &[Effect]) -> &[Record] {
    let Some(Effect::Append(records)) = effects.first() else { panic!("{effects:?}") };
    records
}

// covers M8, L31, H1
#[test]
fn cancel_from_the_inbox_is_one_append_with_what_it_cancels() {
    let mut host = Host::new();
    host.respond("resp_1", &[(sync("a"), start()), (sync("b"), start()), (sync("h"), held(Hold::Approval))]);
    let letter = letter(&host, &Command::Cancel);
    let ended = vec![("a".into(), JobOutcome::Output("done".into()))];
    let effects = host.act(Event::Letter { letter: letter.clone(), ended });
    let settled = |id: &str, output: &str, how| Record::CallSettled { id: id.into(), output: output.into(), how };
    let cancelled = r#"{"error":"cancelled"}"#;
    assert_eq!(
        append(&effects),
        [
            read(&letter, None),
            settled("a", "done", Settlement::Done),
            settled("b", cancelled, Settlement::Cancelled),
            settled("h", cancelled, Settlement::Cancelled),
        ]
    );
    assert_eq!(aborted(&effects), ["b"]);
    // Where nothing is left to cancel, that it was read is journaled all the same.
    let again = self::letter(&host, &Command::Cancel);
    assert_eq!(host.act(delivered(&again)), [Effect::Append(vec![read(&again, None)])]);
}

// covers M8, G17, L60
#[test]
fn abandoning_from_the_inbox_ends_the_turn_whatever_it_does() {
    let mut host = Host::new();
    host.respond("resp_1", &[(sync("a"), start())]);
    host.ended("a", "x");
    host.act(Event::Prepare);
    host.begin_on("resp_1");
    host.call(asynchronous("b"), start());
    let letter = letter(&host, &Command::Reconcile(Reconcile::Abandon));
    let effects = host.act(delivered(&letter));
    assert_eq!(append(&effects)[0], read(&letter, None));
    assert_eq!(aborted(&effects), ["b"]);
    assert_eq!(host.turn().ended.as_deref(), Some("abandoned"));
}

// covers M8, G17
#[test]
fn an_answer_counts_while_its_request_is_uncertain_and_not_while_it_is_being_answered() {
    let resend = Command::Reconcile(Reconcile::Resend);
    let mut host = Host::new();
    host.begin();
    let early = letter(&host, &resend);
    let effects = host.act(delivered(&early));
    let why = "the request is being answered, so nothing about it is uncertain";
    assert_eq!(effects, [Effect::Append(vec![read(&early, Some(why))]), Effect::Fail(Error::store(why))]);

    host.act(Event::StreamBroken);
    let fits = letter(&host, &resend);
    let effects = host.act(delivered(&fits));
    assert_eq!(append(&effects)[0], read(&fits, None));
    assert!(matches!(append(&effects)[1], Record::Reconciled { command: Reconcile::Resend, .. }), "{effects:?}");
    assert_eq!(host.next(), Next::Ask);
    // Read twice it would be another answer: the turn has moved on.
    let why = "no request is in flight and nothing waits for an answer";
    assert_eq!(append(&host.act(delivered(&fits))), [read(&fits, Some(why))]);
}

// covers M8, G17, G20
#[test]
fn a_receipt_from_the_inbox_stands_before_what_it_leads_to() {
    let mut host = Host::new();
    host.begin();
    host.act(Event::StreamBroken);
    let letter = letter(&host, &Command::Reconcile(Reconcile::Receipt("resp_1".into())));
    let effects = host.act(delivered(&letter));
    let receipt = Record::Reconciled { command: Reconcile::Receipt("resp_1".into()), who: "op".into() };
    assert_eq!(append(&effects), [read(&letter, None), receipt, Record::ResponseStarted { id: "resp_1".into() }]);
}

// covers M8
#[test]
fn a_letter_that_cannot_be_done_is_consumed_with_the_reason_and_changes_nothing_else() {
    let mut host = Host::new();
    host.call(sync("a"), start());
    let before = host.checkpoint().to_json();
    let mut letter = letter(&host, &Command::Cancel);
    letter.body = "{".into();
    let effects = host.act(delivered(&letter));
    let [Record::InboxConsumed { refused: Some(why), .. }] = append(&effects) else { panic!("{effects:?}") };
    assert!(why.starts_with("a \"cancel\" command cannot be read"), "{why}");
    assert_eq!(failed(&effects).map(|error| error.message.as_str()), Some(why.as_str()));
    assert_eq!(host.checkpoint().to_json(), before);

    let why = Error::store("response \"resp_9\" is not known to the provider");
    let effects = host.act(Event::LetterRefused { letter: letter.clone(), why: why.clone() });
    assert_eq!(effects, [Effect::Append(vec![read(&letter, Some(&why.message))]), Effect::Fail(why)]);
}
