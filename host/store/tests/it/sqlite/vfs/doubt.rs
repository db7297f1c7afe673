//! What a failed sync leaves behind, and what may be said of it.

use std::sync::Arc;
use std::time::Duration;

use futures::executor::block_on;
use tempfile::TempDir;
use wharf_core::Seq;
use wharf_faultvfs::{Fault, FaultVfs, Image, Kind, Plan};
use wharf_store::{Acquire, SqliteOptions, SqliteStore, Store as _, StoreError};

use super::super::{TTL, append, frozen_clock, history, owned, owner, stored};
use super::SHORT;

fn options(vfs: &FaultVfs) -> SqliteOptions {
    SqliteOptions { vfs: Some(vfs.name().to_owned()), ..frozen_clock() }
}

/// Appends `r1` and says how many operations from its beginning the next append like it syncs.
fn steps_to_sync(vfs: &FaultVfs, store: &SqliteStore, lease: &wharf_store::Lease) -> usize {
    block_on(store.append(lease, append(0, "r1"))).unwrap();
    let before = vfs.count();
    block_on(store.append(lease, append(1, "r2"))).unwrap();
    let operations = vfs.operations();
    operations[before..].iter().position(|operation| operation.kind == Kind::Sync).unwrap() + 1
}

// covers L63
#[test]
fn append_in_doubt_whose_lease_has_ended_is_not_said_to_have_failed() {
    let (dir, vfs) = (TempDir::new().unwrap(), Arc::new(FaultVfs::register()));
    let disk = Arc::clone(&vfs);
    // The clock jumps while the append fails: at the second attempt the lease is over.
    let clock = Arc::new(move || Duration::from_secs(1_700_000_000) + TTL * 2 * u32::from(disk.failures() > 0));
    let store = SqliteStore::open_with(dir.path(), SqliteOptions { clock, ..options(&vfs) }).unwrap();
    let lease = owned(&store, "s", TTL);
    let steps = steps_to_sync(&vfs, &store, &lease);
    let at = vfs.count() + steps;
    vfs.plan(Some(Plan { at, fault: Fault::Error, lasting: false }));
    let told = block_on(store.append(&lease, append(2, "r3")));
    let after = TempDir::new().unwrap();
    vfs.image(Image::Written, after.path()).unwrap();
    let found = SqliteStore::open_with(after.path(), frozen_clock()).unwrap();
    assert_eq!(history(&found, &lease), stored(&lease, &["r1", "r2", "r3"]), "the power cut brings it");
    assert!(matches!(told, Err(StoreError::Unknown { .. })), "{told:?}");
}

// covers M4, L63
#[test]
fn what_was_not_synced_and_is_found_on_opening_is_on_the_disk_before_anything_is_built_on_it() {
    let (dir, vfs) = (TempDir::new().unwrap(), FaultVfs::register());
    let store = SqliteStore::open_with(dir.path(), options(&vfs)).unwrap();
    let lease = owned(&store, "s", SHORT);
    let steps = steps_to_sync(&vfs, &store, &lease);
    // From here on no sync succeeds, that at closing neither: the log stays, with an append that the system has forgotten.
    vfs.plan(Some(Plan { at: vfs.count() + steps, fault: Fault::Error, lasting: true }));
    let told = block_on(store.append(&lease, append(2, "r3")));
    assert!(matches!(told, Err(StoreError::Unknown { .. })), "{told:?}");
    drop(store);
    vfs.plan(None);
    let store = SqliteStore::open_with(dir.path(), options(&vfs)).unwrap();
    let next = block_on(store.acquire(&lease.key, &owner("next"), SHORT, Acquire::TakeOver)).unwrap();
    assert_eq!(next.head, Seq(3), "it is found");
    assert_eq!(block_on(store.append(&next, append(3, "r4"))), Ok(Seq(4)));
    let after = TempDir::new().unwrap();
    vfs.image(Image::Synced, after.path()).unwrap();
    let found = SqliteStore::open_with(after.path(), frozen_clock()).unwrap();
    let ids: Vec<String> = history(&found, &lease).iter().map(|stored| stored.record.id.to_string()).collect();
    assert_eq!(ids, ["r1", "r2", "r3", "r4"]);
}
