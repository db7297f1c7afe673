//! Damage to what a store gives back of a run, record by record: it folds, or the first record that does not fit is named.

use std::collections::HashMap;

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

/// What a call of the open turn has been through, as its records alone say.
struct Past {
    replay: ReplayClass,
    starts: u32,
    runs: bool,
    settled: bool,
}

/// Whether a history that folds could have been: told from its records, without the fold.
fn check_possible(records: &[Record]) {
    let (mut calls, mut requests, mut in_flight) = (HashMap::new(), 0, false);
    let fresh = |replay, settled| Past { replay, starts: 0, runs: false, settled };
    for record in records {
        match record {
            Record::TurnStarted { .. } => calls.clear(),
            Record::CallAccepted { call, replay, .. } => {
                assert!(calls.insert(&call.id, fresh(*replay, false)).is_none(), "{record:?}");
            }
            Record::CallRejected { call, .. } => {
                assert!(calls.insert(&call.id, fresh(ReplayClass::Never, true)).is_none(), "{record:?}");
            }
            Record::CallStarted { id, attempt, .. } => {
                let call = calls.get_mut(id).unwrap();
                assert!(!call.runs && !call.settled && *attempt == call.starts + 1, "{record:?}");
                assert!(call.starts == 0 || call.replay != ReplayClass::Never, "{record:?}");
                (call.starts, call.runs) = (*attempt, true);
            }
            Record::CallSettled { id, .. } => {
                let call = calls.get_mut(id).unwrap();
                assert!(!call.settled, "{record:?}");
                (call.runs, call.settled) = (false, true);
            }
            Record::CallRequeued { id } => {
                let call = calls.get_mut(id).unwrap();
                assert!(call.runs && call.replay != ReplayClass::Never, "{record:?}");
                call.runs = false;
            }
            Record::ReplayNarrowed { id } => calls.get_mut(id).unwrap().replay = ReplayClass::Never,
            Record::DeliveryPrepared { call_ids, .. } => {
                assert!(call_ids.iter().all(|id| calls[id].settled), "{record:?}");
            }
            Record::ResponseBegun(begun) => {
                requests += 1;
                assert!(!in_flight && begun.ordinal == requests, "{record:?}");
                in_flight = true;
            }
            Record::FlightCleared => assert!(std::mem::replace(&mut in_flight, false), "{record:?}"),
            Record::FlightSettled { .. } => in_flight = false,
            Record::TurnEnded { .. } => assert!(!in_flight && calls.values().all(|call| !call.runs), "{record:?}"),
            _ => {}
        }
    }
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
                check_possible(&records);
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
    #![proptest_config(some(400))]

    // covers B11, G5
    #[test]
    fn journal_with_a_record_lost_doubled_or_moved_is_a_possible_history_if_it_folds(
        rules: u8, choices in choices(), at: prop::sample::Index, near in 0..6_usize, how in 0..3_u8,
    ) {
        let mut journal = run(rules, choices).host.journal;
        check_possible(&journal);
        let at = at.index(journal.len());
        let to = (at + near).min(journal.len() - 1);
        match how {
            0 => drop(journal.remove(at)),
            1 => journal.insert(to, journal[at].clone()),
            _ => journal.swap(at, to),
        }
        if Session::fold(&journal).is_ok() {
            check_possible(&journal);
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
