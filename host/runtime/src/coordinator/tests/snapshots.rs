//! Snapshots bound what an opening reads, and hold nothing that the records do not (design section 8).

use futures::FutureExt as _;
use wharf_core::Seq;
use wharf_core::session::Session;
use wharf_store::{Acquire, Append, Loaded, Owner, Store as _};

use super::*;
use crate::limits;
use crate::testing::{Ending, finished};

impl World {
    /// Turns, each with a call whose arguments are of this size, until a snapshot has been written.
    async fn until_snapshot(&self, bytes: usize) -> usize {
        for turns in 1.. {
            let mut c = self.started().await;
            let call = Call::custom(format!("c{turns}"), "note", "x".repeat(bytes));
            self.executor.plan(call.id.as_str(), Ending::output("done"));
            self.requester.answer([Step::sync_call(call), finished(&format!("r{turns}a"), "tool_calls")]);
            self.requester.answer([finished(&format!("r{turns}b"), "stop")]);
            assert_eq!(self.run(&mut c, 9).await, Ok(Rest::Finished));
            c.store_outcome(json!({})).await.unwrap();
            c.end_turn("completed").await.unwrap();
            c.release().await.unwrap();
            if self.loaded().await.snapshot.is_some() {
                return turns;
            }
        }
        0
    }

    async fn loaded(&self) -> Loaded {
        self.store.inner().load(&self.key, Seq(0)).await.unwrap()
    }

    fn folded(&self) -> Session {
        Session::fold(&self.records()).unwrap()
    }
}

#[test]
fn a_snapshot_comes_with_a_record_and_is_the_fold_up_to_it() {
    // covers M6, N1
    let world = World::new();
    let turns = world.sim.run(world.until_snapshot(10_000));
    assert!(turns > limits::SNAPSHOT_AFTER_BYTES / 12_000, "not before so much was written: {turns}");
    let Loaded { snapshot: Some((seq, text)), records, head } = world.loaded().now_or_never().unwrap() else {
        panic!("there is one")
    };
    let all = world.records();
    let upto = usize::try_from(seq.0).unwrap();
    assert_eq!(Session::from_snapshot(&text), Session::fold(&all[..upto]));
    assert_eq!((records.len(), head), (all.len() - upto, Seq(all.len() as u64)));
    assert!(records.len() < 20, "a turn at most: {}", records.len());
    // Ended turns leave little behind: a snapshot does not grow with them.
    assert!(text.len() < 30_000, "{}", text.len());

    world.sim.run(async {
        let c = world.open().await.unwrap();
        assert_eq!(c.session(), &world.folded(), "opened from the snapshot");
    });
}

#[test]
fn a_snapshot_that_this_version_cannot_read_is_passed_over_for_the_records() {
    // covers M6
    let world = World::new();
    world.sim.run(async {
        world.until_snapshot(50_000).await;
        let owner = Owner { token: "t".into(), label: "test".into() };
        let store = world.store.inner();
        let lease = store.acquire(&world.key, &owner, limits::LEASE_TTL, Acquire::IfFree).await.unwrap();
        let newer = Some(r#"{"form":999,"future":true}"#.to_owned());
        store.append(&lease, Append { expected: lease.head, snapshot: newer, ..Append::default() }).await.unwrap();
        store.release(&lease).await.unwrap();
        let before = world.folded();
        let c = world.open().await.unwrap();
        assert_eq!(c.session(), &before);
    });
}

#[test]
fn a_long_turn_is_not_snapshotted_at_each_step() {
    // covers M6
    let mut world = World::new();
    world.settings.calls_at_once = 1;
    let mut sizes = Vec::new();
    world.sim.run(async {
        let mut c = world.started().await;
        let mut last = None;
        for n in 0..400 {
            let call = Call::custom(format!("c{n}"), "note", "x".repeat(2_000));
            world.executor.plan(call.id.as_str(), Ending::output("done"));
            c.register(call.into()).await.unwrap();
            while c.wait_job().await.unwrap() {}
            let snapshot = world.loaded().await.snapshot;
            if snapshot.as_ref().map(|(seq, _)| *seq) != last {
                last = snapshot.as_ref().map(|(seq, _)| *seq);
                sizes.extend(snapshot.map(|(_, text)| text.len()));
            }
        }
        assert_eq!(c.session(), &world.folded());
    });
    let records: usize = world.records().iter().map(|record| record.encode().unwrap().body.len()).sum();
    assert!(!sizes.is_empty());
    assert!(sizes.iter().sum::<usize>() <= records / 2, "{sizes:?} of {records} bytes of records");
}
