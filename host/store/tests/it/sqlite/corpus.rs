//! Databases that earlier versions wrote, kept as they were made: each opens in the newest version with all its content.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::executor::block_on;
use tempfile::TempDir;
use wharf_core::{BlobDigest, Fence, OrgId, Seq};
use wharf_store::{
    Acquire, Append, Claim, DeletionMark, InboxItem, InboxPut, JournalKey, Lease, Loaded, Open, SessionSummary,
    SqliteOptions, SqliteStore, Store, StoreError, StoredRecord,
};

use super::{TTL, owner, record};

/// When the databases were written, by the clock that they were given.
const WRITTEN: Duration = Duration::from_secs(1_700_000_000);

fn options() -> SqliteOptions {
    SqliteOptions { clock: Arc::new(|| WRITTEN), ..SqliteOptions::default() }
}

fn file(form: u64) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/corpus/form{form}.db"))
}

fn held() -> JournalKey {
    JournalKey::local("held")
}

fn finished() -> JournalKey {
    JournalKey { org: OrgId::new("acme"), session: "finished".into() }
}

fn blob() -> (BlobDigest, Vec<u8>) {
    (BlobDigest::new("sha256:01"), (0..5_000).map(|at| (at % 251) as u8).collect())
}

fn item(id: &str) -> InboxItem {
    InboxItem {
        id: id.into(),
        target: format!("call of {id}"),
        kind: "decision".into(),
        who: "ann".into(),
        at_ms: 7,
        digest: "sha256:02".into(),
        body: format!("{{\"item\":{id:?}}}"),
    }
}

fn lease(key: JournalKey, head: u64) -> Lease {
    Lease { key, owner: owner("a"), fence: Fence(1), head: Seq(head), ttl: TTL }
}

fn stored(seqs: std::ops::RangeInclusive<u64>) -> Vec<StoredRecord> {
    seqs.map(|seq| StoredRecord { seq: Seq(seq), fence: Fence(1), record: record(&format!("r{seq}")) }).collect()
}

/// What every form can hold: a session whose owner lives, with a snapshot, a blob and an inbox, and one that was let go.
fn write(store: &dyn Store) {
    block_on(async {
        let held = held();
        for id in ["i1", "i2", "i3"] {
            assert_eq!(store.put_inbox(&held, item(id)).await, Ok(InboxPut::Accepted));
        }
        let owned = store.acquire(&held, &owner("a"), TTL, Acquire::IfFree).await;
        assert_eq!(owned, Ok(lease(held.clone(), 0)));
        let owned = lease(held, 0);
        let first = Append {
            records: vec![record("r1"), record("r2")],
            blobs: vec![blob()],
            consumed: vec!["i2".into()],
            snapshot: Some("{\"folded\":2}".into()),
            ..Append::default()
        };
        assert_eq!(store.append(&owned, first).await, Ok(Seq(2)));
        let second = Append { expected: Seq(2), records: vec![record("r3")], ..Append::default() };
        assert_eq!(store.append(&owned, second).await, Ok(Seq(3)));
        let other = store.acquire(&finished(), &owner("a"), TTL, Acquire::IfFree).await.unwrap();
        let records = vec![record("r1"), record("r2")];
        assert_eq!(store.append(&other, Append { records, ..Append::default() }).await, Ok(Seq(2)));
        assert_eq!(store.release(&other).await, Ok(()));
    });
}

/// All that [`write`] wrote is there, and goes on.
fn expect_content(store: &dyn Store) {
    block_on(async {
        let (held, finished) = (held(), finished());
        let snapshot = Some((Seq(2), "{\"folded\":2}".to_owned()));
        assert_eq!(store.load(&held, Seq(0)).await, Ok(Loaded { snapshot, records: stored(3..=3), head: Seq(3) }));
        assert_eq!(store.history(&held, Seq(0), 10).await, Ok(stored(1..=3)));
        assert_eq!(store.blob(&held, &blob().0).await, Ok(Some(blob().1)));
        assert_eq!(store.inbox(&held).await, Ok(vec![item("i1"), item("i3")]));
        assert_eq!(store.put_inbox(&held, item("i2")).await, Ok(InboxPut::Repeated));
        let loaded = Loaded { snapshot: None, records: stored(1..=2), head: Seq(2) };
        assert_eq!(store.load(&finished, Seq(0)).await, Ok(loaded));
        let line =
            |key: &JournalKey, head, owner| SessionSummary { key: key.clone(), head: Seq(head), updated_ms: 5, owner };
        let lines = store.sessions(&OrgId::local(), 10).await;
        assert_eq!(lines, Ok(vec![line(&held, 3, Some((owner("a"), TTL)))]));
        assert_eq!(store.sessions(&finished.org, 10).await, Ok(vec![line(&finished, 2, None)]));
        let busy = StoreError::Busy { session: "held".into(), owner: "a".into(), left: TTL };
        assert_eq!(store.acquire(&held, &owner("b"), TTL, Acquire::IfFree).await, Err(busy));
        let again = store.acquire(&held, &owner("a"), TTL, Acquire::IfFree).await;
        assert_eq!(again, Ok(lease(held.clone(), 3)));
        let next =
            Append { expected: Seq(3), records: vec![record("r4")], consumed: vec!["i1".into()], ..Append::default() };
        assert_eq!(store.append(&lease(held, 3), next).await, Ok(Seq(4)));
        let next = store.acquire(&finished, &owner("b"), TTL, Acquire::IfFree).await;
        assert_eq!(next, Ok(Lease { owner: owner("b"), fence: Fence(2), ..lease(finished, 2) }));
    });
}

fn deleted() -> JournalKey {
    JournalKey::local("deleted")
}

fn mark() -> DeletionMark {
    DeletionMark { who: "ann".into(), at_ms: 9 }
}

fn gone<T>() -> Result<T, StoreError> {
    Err(StoreError::Deleted { session: "deleted".into(), who: "ann".into(), at_ms: 9 })
}

/// What form 2 adds: the mark of a deletion.
fn write_deletion(store: &dyn Store) {
    block_on(async {
        let lease = store.acquire(&deleted(), &owner("a"), TTL, Acquire::IfFree).await.unwrap();
        assert_eq!(store.append(&lease, super::append(0, "r1")).await, Ok(Seq(1)));
        assert_eq!(store.delete(&lease, mark()).await, Ok(()));
    });
}

fn open_for() -> JournalKey {
    JournalKey::local("open")
}

/// What form 3 adds: a session that a worker may go on with, and one that waits for an answer.
fn write_open(store: &dyn Store) {
    block_on(async {
        for (key, open) in [(open_for(), Open::For("h".into())), (JournalKey::local("waits"), Open::No)] {
            let lease = store.acquire(&key, &owner("a"), TTL, Acquire::IfFree).await.unwrap();
            let named = Append { open: Some(Open::For("h".into())), ..super::append(0, "r1") };
            assert_eq!(store.append(&lease, named).await, Ok(Seq(1)));
            let said = Append { expected: Seq(1), open: Some(open), ..Append::default() };
            assert_eq!(store.append(&lease, said).await, Ok(Seq(1)));
            assert_eq!(store.release(&lease).await, Ok(()));
        }
    });
}

/// Names of the sessions that a worker gets.
fn claimed(store: &dyn Store) -> Vec<String> {
    let claim = Claim { org: OrgId::local(), harnesses: vec!["h".into()], skip: Vec::new(), ttl: TTL };
    let next = || block_on(store.claim(&claim, &owner("w"))).unwrap();
    std::iter::from_fn(next).map(|lease| lease.key.session.to_string()).collect()
}

fn opened(form: u64) -> (TempDir, SqliteStore) {
    let dir = TempDir::new().unwrap();
    fs::copy(file(form), dir.path().join("wharf.db")).unwrap();
    let store = SqliteStore::open_with(dir.path(), options()).unwrap();
    (dir, store)
}

// covers M3, M6
#[test]
fn database_of_form_1_opens_with_all_its_content() {
    let (_dir, store) = opened(1);
    expect_content(&store);
    // With all that came since.
    write_deletion(&store);
    assert_eq!(block_on(store.load(&deleted(), Seq(0))), gone());
}

// covers M3, M6
#[test]
fn database_of_form_2_opens_with_all_its_content() {
    let (_dir, store) = opened(2);
    expect_content(&store);
    assert_eq!(block_on(store.load(&deleted(), Seq(0))), gone());
    assert_eq!(block_on(store.acquire(&deleted(), &owner("b"), TTL, Acquire::TakeOver)), gone());
    assert_eq!(claimed(&store), Vec::<String>::new(), "nothing was said of who may go on");
    write_open(&store);
    assert_eq!(claimed(&store), ["open"]);
}

// covers M3, M6
#[test]
fn database_of_form_3_opens_with_all_its_content() {
    let (_dir, store) = opened(3);
    assert_eq!(claimed(&store), ["open"]);
    assert_eq!(block_on(store.put_inbox(&JournalKey::local("waits"), item("i1"))), Ok(InboxPut::Accepted));
    assert_eq!(claimed(&store), ["waits"]);
    assert_eq!(block_on(store.load(&deleted(), Seq(0))), gone());
    assert_eq!(block_on(store.delete(&lease(held(), 3), mark())), Ok(()), "its owner lives");
}

/// Makes the newest form's file: run once when a form is new, and never again for it.
#[test]
#[ignore = "writes the corpus"]
fn file_for_the_newest_form() {
    let dir = TempDir::new().unwrap();
    let store = SqliteStore::open_with(dir.path(), options()).unwrap();
    write(&store);
    write_deletion(&store);
    write_open(&store);
    drop(store);
    let form = super::raw(dir.path()).pragma_query_value(None, "user_version", |row| row.get::<_, u32>(0)).unwrap();
    let file = file(form.into());
    assert!(!file.exists(), "it is made already: {}", file.display());
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::copy(dir.path().join("wharf.db"), file).unwrap();
}
