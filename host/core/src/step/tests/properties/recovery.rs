//! Opening what a crash left, at any place and again: it comes to one state, whatever was interrupted on the way.

use proptest::prelude::*;

use super::*;

/// Opens what is durable and settles what is uncertain, and starts nothing, so that what recovery itself does is all that is
/// journaled. Answers its appends; none where an operator has to answer first, or the rules changed.
fn recover(run: &Run, journal: &[Record]) -> Option<Vec<Vec<Record>>> {
    let mut host = Host { journal: journal.to_vec(), ..run.host.clone() };
    host.crash();
    let policies = run.policies.iter().map(|(id, policy)| (id.clone(), policy.clone())).collect();
    host.act(Event::Stop);
    let mut appends = Vec::new();
    for event in [Event::Resolve(Evidence::Unasked { can_retrieve: false }), Event::Opened { policies }] {
        let durable = host.journal.len();
        match host.feed(event) {
            Ok(effects) if failed(&effects).is_none() => assert_eq!(ran(&effects), [""; 0]),
            Ok(_) => {}
            Err(error) => {
                assert_ne!(error.kind, ErrorKind::Corruption, "{error}");
                return None;
            }
        }
        appends.extend(host.journal.get(durable..).filter(|append| !append.is_empty()).map(<[Record]>::to_vec));
    }
    Some(appends)
}

proptest! {
    #![proptest_config(some(60))]

    // covers G7, G9, M5
    #[test]
    fn recovery_that_is_interrupted_anywhere_and_done_again_comes_to_the_state_of_one_that_is_not(
        rules: u8, choices in choices(),
    ) {
        let run = run(rules, choices);
        let journal = &run.host.journal;
        for length in 0..=journal.len() {
            let Some(done) = recover(&run, &journal[..length]) else { continue };
            let whole = [&journal[..length], &done.concat()].concat();
            let state = Session::fold(&whole).unwrap();
            // An append is whole or not there: a crash falls between two.
            for kept in 0..=done.len() {
                let interrupted = [&journal[..length], &done[..kept].concat()].concat();
                let rest = recover(&run, &interrupted).unwrap();
                let again = [&interrupted[..], &rest.concat()].concat();
                prop_assert_eq!(&Session::fold(&again).unwrap(), &state, "after {} of {:?}: {:?}", kept, done, rest);
            }
            prop_assert_eq!(recover(&run, &whole), Some(Vec::new()), "twice is once");
        }
    }
}
