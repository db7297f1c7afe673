//! Damage to what a store gives back of a run, record by record: it folds, or the first record that does not fit is named.

use proptest::prelude::*;

use super::*;
use crate::record::tests::damage::{Change, change};

/// A record as a store has it.
#[derive(Debug, Clone)]
struct Stored {
    kind: &'static str,
    version: u16,
    body: String,
    blob: Option<Vec<u8>>,
}

fn stored(journal: &[Record]) -> Vec<Stored> {
    let encoded = journal.iter().map(|record| record.encode().unwrap());
    let encoded = encoded.map(|it| {
        let blob = it.blob.map(|(_, bytes)| bytes);
        Stored { kind: it.kind, version: it.version, body: it.body, blob }
    });
    encoded.collect()
}

/// As a host loads a journal: all records first, then their fold. An error comes with the number of the record that it
/// names, from 1.
fn load(stored: &[Stored]) -> Result<(Vec<Record>, Session), (usize, Error)> {
    let decode = |(at, it): (usize, &Stored)| {
        Record::decode(it.kind, it.version, &it.body, |_| it.blob.clone()).map_err(|error| (at + 1, error))
    };
    let records = stored.iter().enumerate().map(decode).collect::<Result<Vec<_>, _>>()?;
    match Session::fold(&records) {
        Ok(session) => Ok((records, session)),
        Err(error) => {
            let number = error.message.split(' ').nth(1).and_then(|number| number.parse().ok());
            Err((number.expect("an error of the fold names the record's number first"), error))
        }
    }
}

/// A member of one record is changed into the same member of another one of the kind: what is read is likely a record.
fn lend(stored: &mut [Stored], to: usize, from: usize, member: &prop::sample::Index) -> Option<()> {
    let mut body: Value = serde_json::from_str(&stored[to].body).unwrap();
    let other: Value = serde_json::from_str(&stored[from].body).unwrap();
    let names: Vec<String> = body.as_object().unwrap().keys().cloned().collect();
    let name = names.get(member.index(names.len().max(1)))?;
    body[name.as_str()] = other.get(name)?.clone();
    stored[to].body = body.to_string();
    Some(())
}

proptest! {
    #![proptest_config(some(200))]

    // covers B11, M3
    #[test]
    fn journal_with_a_member_changed_is_another_history_or_says_which_record_is_wrong(
        rules: u8, choices in choices(), at: prop::sample::Index, how: Change, member: prop::sample::Index, lent: bool,
    ) {
        let journal = run(rules, choices).host.journal;
        let mut damaged = stored(&journal);
        let at = at.index(journal.len());
        let same = |other: &usize| journal[*other].kind() == journal[at].kind() && *other != at;
        match (0..journal.len()).rev().find(same) {
            Some(other) if lent => drop(lend(&mut damaged, at, other, &member)),
            Some(_) | None => {
                let mut body: Value = serde_json::from_str(&damaged[at].body).unwrap();
                change(&mut body, &how);
                damaged[at].body = body.to_string();
            }
        }
        match load(&damaged) {
            Ok((records, session)) => {
                // Another history: one that could be written, and that says the same when it is read again.
                let (again, folded) = load(&stored(&records)).unwrap();
                prop_assert_eq!((again, folded), (records, session));
            }
            Err((number, error)) => {
                prop_assert_eq!(error.kind, ErrorKind::Corruption);
                prop_assert!(number > at, "what stands before the damage is not to blame: {error}");
                prop_assert!(load(&damaged[..number - 1]).is_ok(), "what stands before the named record folds: {error}");
                prop_assert!(load(&damaged[..number]).is_err(), "the named record is the one: {error}");
                let kind = damaged[number - 1].kind;
                prop_assert!(error.message.contains(kind), "{kind}: {error}");
            }
        }
    }
}

proptest! {
    #![proptest_config(some(60))]

    // covers M5
    #[test]
    fn journal_that_lost_its_end_is_a_state_of_its_past(rules: u8, choices in choices()) {
        let mut live = Run::new(rules);
        let mut states = vec![Session::default(), live.host.machine.session().clone()];
        let mut lengths = vec![0, live.host.journal.len()];
        for choice in choices {
            if live.host.machine.session().open_turn().is_none() {
                break;
            }
            let event = live.event(choice);
            live.feed(event);
            states.push(live.host.machine.session().clone());
            lengths.push(live.host.journal.len());
        }
        // An append is whole or not there, so a crash leaves one of these.
        for (length, state) in lengths.into_iter().zip(states) {
            let (_, folded) = load(&stored(&live.host.journal[..length])).unwrap();
            prop_assert!(folded == state, "the first {} records are another state", length);
        }
    }
}
