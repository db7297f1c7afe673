//! The embedded store answers whatever it is asked as the memory store does.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::executor::block_on;
use proptest::prelude::*;
use wharf_core::{BlobDigest, OrgId, Seq};
use wharf_store::conformance::Fixture as _;
use wharf_store::{Acquire, Append, Claim, DeletionMark, InboxItem, JournalKey, Lease, MemoryStore, Open, Store};

use super::{OnDisk, TTL, owner, record};

#[derive(Debug, Clone)]
enum Step {
    Acquire { session: u8, owner: u8, take_over: bool },
    Append { lease: usize, expected: u64, records: u8, blob: bool, snapshot: bool, consumed: Vec<u8> },
    Renew(usize),
    Release(usize),
    Delete(usize),
    Sweep { lease: usize, head: u64, named: bool },
    Put { session: u8, id: u8, target: u8 },
    Claim(u8),
    Advance(u8),
    Reopen,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (0..2_u8, 0..3_u8, any::<bool>())
            .prop_map(|(session, owner, take_over)| Step::Acquire { session, owner, take_over }),
        6 => (0..6_usize, 0..6_u64, 0..3_u8, any::<bool>(), any::<bool>(), prop::collection::vec(0..4_u8, 0..2))
            .prop_map(|(lease, expected, records, blob, snapshot, consumed)| {
                Step::Append { lease, expected, records, blob, snapshot, consumed }
            }),
        1 => (0..6_usize).prop_map(Step::Renew),
        1 => (0..6_usize).prop_map(Step::Release),
        1 => (0..6_usize).prop_map(Step::Delete),
        2 => (0..6_usize, 0..4_u64, any::<bool>()).prop_map(|(lease, head, named)| Step::Sweep { lease, head, named }),
        2 => (0..2_u8, 0..4_u8, 0..4_u8).prop_map(|(session, id, target)| Step::Put { session, id, target }),
        1 => (0..3_u8).prop_map(Step::Claim),
        1 => (1..70_u8).prop_map(Step::Advance),
        1 => Just(Step::Reopen),
    ];
    prop::collection::vec(step, 1..40)
}

fn key(session: u8) -> JournalKey {
    JournalKey::local(format!("s{session}"))
}

/// Runs one step and writes down the answer. Leases are kept by their order, so that old ones are tried too.
fn run(store: &dyn Store, leases: &mut Vec<Lease>, number: usize, step: &Step) -> String {
    let absent = Lease { key: key(0), owner: owner("nobody"), fence: wharf_core::Fence(1), head: Seq(0), ttl: TTL };
    let lease = |leases: &[Lease], back: usize| {
        // Counted from the newest: most steps then are of a live owner.
        leases.len().checked_sub(back + 1).and_then(|at| leases.get(at)).cloned().unwrap_or_else(|| absent.clone())
    };
    match step {
        Step::Acquire { session, owner: who, take_over } => {
            let how = if *take_over { Acquire::TakeOver } else { Acquire::IfFree };
            let lease = block_on(store.acquire(&key(*session), &owner(&format!("o{who}")), TTL, how));
            leases.extend(lease.clone());
            format!("{lease:?}")
        }
        Step::Append { lease: back, expected, records, blob, snapshot, consumed } => {
            let append = Append {
                expected: Seq(*expected),
                records: (0..*records).map(|at| record(&format!("{number}-{at}"))).collect(),
                blobs: if *blob { vec![(BlobDigest::new("sha256:01"), b"blob".to_vec())] } else { vec![] },
                consumed: consumed.iter().map(|id| format!("i{id}").into()).collect(),
                snapshot: snapshot.then(|| format!("snapshot {number}")),
                open: [None, Some(Open::For("h".to_owned())), Some(Open::No)].into_iter().nth(number % 3).flatten(),
            };
            format!("{:?}", block_on(store.append(&lease(leases, *back), append)))
        }
        Step::Renew(back) => format!("{:?}", block_on(store.renew(&lease(leases, *back)))),
        Step::Release(back) => format!("{:?}", block_on(store.release(&lease(leases, *back)))),
        Step::Delete(back) => {
            let mark = DeletionMark { who: "ann".into(), at_ms: number as u64 };
            format!("{:?}", block_on(store.delete(&lease(leases, *back), mark)))
        }
        Step::Sweep { lease: back, head, named } => {
            let named: BTreeSet<_> = named.then(|| BlobDigest::new("sha256:01")).into_iter().collect();
            let lease = Lease { head: Seq(*head), ..lease(leases, *back) };
            format!("{:?}", block_on(store.sweep(&lease, &named)))
        }
        Step::Put { session, id, target } => {
            let item = InboxItem {
                id: format!("i{id}").into(),
                target: format!("t{target}"),
                kind: "output".into(),
                who: "me".into(),
                at_ms: 9,
                digest: "d".into(),
                body: "{}".into(),
            };
            format!("{:?}", block_on(store.put_inbox(&key(*session), item)))
        }
        Step::Claim(skip) => {
            let skip = vec![key(*skip).session];
            let claim = Claim { org: OrgId::local(), harnesses: vec!["h".to_owned()], skip, ttl: TTL };
            let lease = block_on(store.claim(&claim, &owner(&format!("c{number}"))));
            leases.extend(lease.clone().ok().flatten());
            format!("{lease:?}")
        }
        Step::Advance(_) | Step::Reopen => String::new(),
    }
}

/// All that can be read.
fn view(store: &dyn Store) -> String {
    block_on(async {
        let mut view = format!("{:#?}", store.sessions(&OrgId::local(), 10).await);
        for key in [key(0), key(1)] {
            view += &format!(
                "{:#?}",
                (
                    store.load(&key, Seq(0)).await,
                    store.load(&key, Seq(2)).await,
                    store.history(&key, Seq(0), 100).await,
                    store.inbox(&key).await,
                    store.blob(&key, &BlobDigest::new("sha256:01")).await,
                )
            );
        }
        view
    })
}

// covers N7
#[test]
fn embedded_store_and_memory_store_agree_on_every_answer() {
    let config = ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() };
    proptest!(config, |(steps in steps())| {
        let mut disk = OnDisk::new();
        let now = Arc::new(Mutex::new(Duration::from_secs(1_700_000_000)));
        let clock = Arc::clone(&now);
        let memory = MemoryStore::with_clock(Arc::new(move || *clock.lock().unwrap()));
        let (mut of_disk, mut of_memory) = (Vec::new(), Vec::new());
        for (number, step) in steps.iter().enumerate() {
            match step {
                Step::Advance(seconds) => {
                    disk.advance(Duration::from_secs(u64::from(*seconds)));
                    *now.lock().unwrap() += Duration::from_secs(u64::from(*seconds));
                }
                Step::Reopen => {
                    disk.reopen();
                    memory.crash();
                }
                Step::Acquire { .. }
                | Step::Append { .. }
                | Step::Renew(_)
                | Step::Release(_)
                | Step::Delete(_)
                | Step::Sweep { .. }
                | Step::Put { .. }
                | Step::Claim(_) => {}
            }
            let disk_says = run(disk.store(), &mut of_disk, number, step);
            let memory_says = run(&memory, &mut of_memory, number, step);
            prop_assert_eq!(disk_says, memory_says, "step {}: {:?}", number, step);
        }
        prop_assert_eq!(view(disk.store()), view(&memory));
    });
}
