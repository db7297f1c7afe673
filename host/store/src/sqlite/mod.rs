//! The embedded store: journals in one SQLite database, for one machine and as many processes as it has.
//!
//! This module is the public type and how it is put together. It runs on threads of its own and needs no executor; its
//! futures wait on a channel. Nothing of SQLite shows outside.

mod blobs;
mod failure;
mod inbox;
mod job;
mod journal;
mod leases;
mod reader;
mod removal;
mod schema;
mod scrub;
mod watch;
mod writer;

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use futures::FutureExt as _;
use futures::channel::oneshot;
use wharf_core::{BlobDigest, OrgId, Seq};

use self::failure::Failure;
use self::job::{Job, Ran, Typed};
use self::journal::Appended;
use self::reader::Readers;
use self::schema::Place;
use self::watch::Watch;
use self::writer::{Attempt, Counters, Opened, Writer};
use crate::limits::{BUSY_TIMEOUT, LEASE_TTL, WRITES_WAITING_MAX};
use crate::{
    Acquire, Append, Claim, Clock, DeletionMark, Fault, InboxItem, InboxPut, JournalKey, Lease, Loaded, Owner,
    SessionSummary, Store, StoreError, StoreFuture, StoredRecord, Swept, Write,
};

/// Journals in one SQLite database that several processes may have open at once (M1).
///
/// A commit is synced before it is reported (M4). Dropping the store finishes what waits, which takes about a sync.
///
/// What was deleted is overwritten on the disk before the deletion is reported, in the database and in its log; deletions that
/// wait together share that work, which takes about a second for a database of 64 MiB. There are two exceptions. While
/// another process reads from the log it cannot be emptied; that is then done at the next chance: after a later write, when
/// the store is closed, or when the last process closes the database. And in a database larger than
/// [`limits::COMPACT_BYTES_MAX`](crate::limits::COMPACT_BYTES_MAX), or if the machine stops right after the commit, pieces of
/// single rows, which SQLite once moved to another page, may stay in the free part of the old one until something else is
/// written there or the next deletion comes; SQLite's `VACUUM` overwrites them at any time. What the file system or the disk
/// keeps of former content is beyond a store.
///
/// ```
/// use wharf_store::{JournalKey, Loaded, SqliteStore, Store};
/// use wharf_core::Seq;
///
/// # let folder = tempfile::tempdir()?;
/// let store = SqliteStore::open(folder.path().join(".wharf"))?;
/// let loaded = futures::executor::block_on(store.load(&JournalKey::local("s1"), Seq(0)))?;
/// assert_eq!(loaded, Loaded::default());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct SqliteStore {
    path: PathBuf,
    clock: Clock,
    counters: Arc<Counters>,
    // When this process last got or renewed each lease that it has: what is left of one bounds how long a write is tried.
    granted: Mutex<HashMap<JournalKey, Instant>>,
    queue: Option<SyncSender<Job>>,
    writer: Option<JoinHandle<()>>,
    readers: Readers,
    watch: Watch,
}

/// How the embedded store behaves.
#[derive(Clone)]
pub struct SqliteOptions {
    /// Time since 1970 on this machine, for leases. It may jump: it decides who may try, never who is right.
    pub clock: Clock,
    /// How long one attempt waits for another process.
    pub busy_timeout: Duration,
    /// The database may not grow beyond this; `None` for the disk's size.
    pub bytes_max: Option<u64>,
    /// What happens at each point of each write, for tests. `Crash` stops the handle as if the process had ended.
    pub fault: Option<Fault>,
    /// Name of the SQLite VFS that every connection of the store goes through; `None` for the system's own. For tests that
    /// put faults under SQLite: it is to be registered before the store is opened, and to stand for the same files.
    pub vfs: Option<String>,
}

impl Default for SqliteOptions {
    fn default() -> Self {
        Self {
            // A clock before 1970 counts as 1970: leases then never end by themselves, and takeover still works.
            clock: Arc::new(|| SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()),
            busy_timeout: BUSY_TIMEOUT,
            bytes_max: None,
            fault: None,
            vfs: None,
        }
    }
}

/// What the store did since it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SqliteStats {
    /// Transactions committed; each is one sync at most.
    pub commits: u64,
    /// Writes in them.
    pub writes: u64,
    /// Attempts after a failure (L63).
    pub retries: u64,
}

impl SqliteStore {
    /// Opens `<dir>/wharf.db`, and makes both if they are absent, readable by their owner only. Blocks for some
    /// milliseconds.
    ///
    /// # Errors
    ///
    /// [`StoreError::Corrupt`] if the file is not a database of ours, [`StoreError::Newer`] if a newer version wrote it,
    /// [`StoreError::Io`] otherwise. The file is then as it was.
    pub fn open(dir: impl AsRef<Path>) -> Result<Self, StoreError> {
        Self::open_with(dir, SqliteOptions::default())
    }

    /// [`SqliteStore::open`] with a clock and limits of one's own.
    ///
    /// # Errors
    ///
    /// As [`SqliteStore::open`].
    pub fn open_with(dir: impl AsRef<Path>, options: SqliteOptions) -> Result<Self, StoreError> {
        let place = Place::prepare(dir.as_ref(), &options)?;
        let SqliteOptions { clock, fault, .. } = options;
        let readers = Readers::start(&place)?;
        let watch = Watch::start(&place)?;
        let counters = Arc::new(Counters::default());
        let path = place.path().to_owned();
        let writer = Writer {
            conn: Some(Opened::by(&place)?),
            place,
            clock: Arc::clone(&clock),
            fault,
            counters: Arc::clone(&counters),
            down: false,
            scrub: None,
        };
        let (queue, jobs) = sync_channel(WRITES_WAITING_MAX);
        let writer = thread::Builder::new().name("wharf-write".to_owned()).spawn(move || writer.run(&jobs));
        let writer = writer.map_err(|error| StoreError::Io {
            what: "starting a thread of the store".to_owned(),
            why: error.to_string(),
            transient: true,
        })?;
        let granted = Mutex::default();
        Ok(Self { path, clock, counters, granted, queue: Some(queue), writer: Some(writer), readers, watch })
    }

    /// The database file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Counts since it was opened.
    pub fn stats(&self) -> SqliteStats {
        SqliteStats {
            commits: self.counters.commits.load(Ordering::Relaxed),
            writes: self.counters.writes.load(Ordering::Relaxed),
            retries: self.counters.retries.load(Ordering::Relaxed),
        }
    }

    fn write<T: Send + 'static>(
        &self,
        write: Write,
        bytes: usize,
        retry_until: Option<Instant>,
        run: impl FnMut(&Attempt<'_>) -> Result<Ran<T>, Failure> + Send + 'static,
    ) -> StoreFuture<'static, T> {
        let what = write.doing();
        let (step, answer): (_, oneshot::Receiver<Result<T, StoreError>>) = Typed::new(run);
        let job = Job { write, what, bytes, retry_until, attempts: 0, doubt: false, step: Box::new(step) };
        let (why, transient) = match self.queue.as_ref().map(|queue| queue.try_send(job)) {
            Some(Ok(())) => {
                let lost = move |_| {
                    Err(StoreError::Unknown { what: what.to_owned(), why: "the store has stopped".to_owned() })
                };
                return answer.map(move |end| end.unwrap_or_else(lost)).boxed();
            }
            Some(Err(TrySendError::Full(_))) => (format!("{WRITES_WAITING_MAX} writes wait already"), true),
            Some(Err(TrySendError::Disconnected(_))) | None => ("the store has stopped".to_owned(), false),
        };
        async move { Err(StoreError::Io { what: what.to_owned(), why, transient }) }.boxed()
    }

    /// A write of a lease's owner: tried until a third of the lease is left (L63), and a new beginning of it if it succeeds.
    fn write_as_owner<'a, T: Send + 'static>(
        &'a self,
        write: Write,
        bytes: usize,
        lease: &'a Lease,
        run: impl FnMut(&Attempt<'_>) -> Result<Ran<T>, Failure> + Send + 'static,
    ) -> StoreFuture<'a, T> {
        let now = Instant::now();
        let answer = self.write(write, bytes, self.retry_until(lease, now), run);
        async move {
            let done = answer.await?;
            self.granted().insert(lease.key.clone(), now);
            Ok(done)
        }
        .boxed()
    }

    /// When a third of the lease is left (L63). One that outlasts the clock is tried for as long as a usual one.
    fn retry_until(&self, lease: &Lease, now: Instant) -> Option<Instant> {
        let begun = self.granted().get(&lease.key).copied().unwrap_or(now);
        begun.checked_add(lease.ttl / 3 * 2).or_else(|| now.checked_add(LEASE_TTL))
    }

    fn granted(&self) -> std::sync::MutexGuard<'_, HashMap<JournalKey, Instant>> {
        self.granted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        self.queue = None;
        if let Some(writer) = self.writer.take() {
            // A panicked thread has nothing more to tell.
            let _ = writer.join();
        }
    }
}

impl Store for SqliteStore {
    fn acquire<'a>(
        &'a self,
        key: &'a JournalKey,
        owner: &'a Owner,
        ttl: Duration,
        how: Acquire,
    ) -> StoreFuture<'a, Lease> {
        let begun = Instant::now();
        let (theirs, owner) = (key.clone(), owner.clone());
        let answer = self.write(Write::Acquire, 0, None, move |attempt| {
            Ok(Ran::Done(leases::take(attempt.conn, &theirs, &owner, ttl, how, attempt.now)?))
        });
        async move {
            let lease = answer.await??;
            self.granted().insert(key.clone(), begun);
            Ok(lease)
        }
        .boxed()
    }

    fn load<'a>(&'a self, key: &'a JournalKey, after: Seq) -> StoreFuture<'a, Loaded> {
        let key = key.clone();
        self.readers.read("reading the journal", move |conn, place| journal::load(conn, place, &key, after))
    }

    fn history<'a>(&'a self, key: &'a JournalKey, after: Seq, limit: usize) -> StoreFuture<'a, Vec<StoredRecord>> {
        let key = key.clone();
        self.readers.read("reading the journal", move |conn, place| journal::history(conn, place, &key, after, limit))
    }

    fn append<'a>(&'a self, lease: &'a Lease, append: Append) -> StoreFuture<'a, Seq> {
        if let Err(error) = append.check_bounds() {
            return async move { Err(error) }.boxed();
        }
        let bytes = append.records.iter().map(|record| record.body.len()).sum::<usize>()
            + append.snapshot.as_ref().map_or(0, String::len)
            + append.blobs.iter().map(|(_, bytes)| bytes.len()).sum::<usize>().min(crate::limits::BLOB_PIECE_BYTES);
        let theirs = lease.clone();
        self.write_as_owner(Write::Append, bytes, lease, move |attempt| {
            match journal::append(attempt.conn, &theirs, &append, attempt.now, attempt.doubt)? {
                Appended::Whole(head) => Ok(Ran::Done(head)),
                Appended::More => Ok(Ran::More),
            }
        })
    }

    fn renew<'a>(&'a self, lease: &'a Lease) -> StoreFuture<'a, ()> {
        let theirs = lease.clone();
        self.write_as_owner(Write::Renew, 0, lease, move |attempt| {
            Ok(Ran::Done(leases::renew(attempt.conn, &theirs, attempt.now)?))
        })
    }

    fn release<'a>(&'a self, lease: &'a Lease) -> StoreFuture<'a, ()> {
        self.granted().remove(&lease.key);
        let lease = lease.clone();
        self.write(Write::Release, 0, None, move |attempt| {
            Ok(Ran::Done(leases::release(attempt.conn, &lease, attempt.now)?))
        })
    }

    fn delete<'a>(&'a self, lease: &'a Lease, mark: DeletionMark) -> StoreFuture<'a, ()> {
        let until = self.retry_until(lease, Instant::now());
        let theirs = lease.clone();
        let answer = self.write(Write::Delete, 0, until, move |attempt| {
            Ok(Ran::Done(removal::delete(attempt.conn, &theirs, &mark, attempt.now, attempt.doubt)?))
        });
        async move {
            answer.await?;
            self.granted().remove(&lease.key);
            Ok(())
        }
        .boxed()
    }

    fn sweep<'a>(&'a self, lease: &'a Lease, named: &'a BTreeSet<BlobDigest>) -> StoreFuture<'a, Swept> {
        let (theirs, named) = (lease.clone(), named.clone());
        self.write_as_owner(Write::Sweep, 0, lease, move |attempt| {
            Ok(Ran::Done(removal::sweep(attempt.conn, &theirs, &named, attempt.now)?))
        })
    }

    fn sessions<'a>(&'a self, org: &'a OrgId, limit: usize) -> StoreFuture<'a, Vec<SessionSummary>> {
        let (org, now) = (org.clone(), (self.clock)());
        self.readers.read("listing sessions", move |conn, _| journal::sessions(conn, &org, limit, now))
    }

    fn blob<'a>(&'a self, key: &'a JournalKey, digest: &'a BlobDigest) -> StoreFuture<'a, Option<Vec<u8>>> {
        let (key, digest) = (key.clone(), digest.clone());
        self.readers.read("reading a blob", move |conn, place| blobs::read(conn, place, &key, &digest))
    }

    fn put_inbox<'a>(&'a self, key: &'a JournalKey, item: InboxItem) -> StoreFuture<'a, InboxPut> {
        if let Err(error) = item.check_bounds() {
            return async move { Err(error) }.boxed();
        }
        let (key, bytes) = (key.clone(), item.body.len());
        self.write(Write::PutInbox, bytes, None, move |attempt| {
            Ok(Ran::Done(inbox::put(attempt.conn, &key, &item, attempt.now)?))
        })
    }

    fn inbox<'a>(&'a self, key: &'a JournalKey) -> StoreFuture<'a, Vec<InboxItem>> {
        let key = key.clone();
        self.readers.read("reading the inbox", move |conn, _| inbox::list(conn, &key))
    }

    fn claim<'a>(&'a self, claim: &'a Claim, owner: &'a Owner) -> StoreFuture<'a, Option<Lease>> {
        if let Err(error) = claim.check_bounds() {
            return async move { Err(error) }.boxed();
        }
        let begun = Instant::now();
        let (claim, owner) = (claim.clone(), owner.clone());
        let answer = self.write(Write::Claim, 0, None, move |attempt| {
            Ok(Ran::Done(leases::claim(attempt.conn, &claim, &owner, attempt.now)?))
        });
        async move {
            let claimed = answer.await?;
            if let Some(lease) = &claimed {
                self.granted().insert(lease.key.clone(), begun);
            }
            Ok(claimed)
        }
        .boxed()
    }

    fn inbox_grows<'a>(&'a self, key: &'a JournalKey, seen: usize) -> StoreFuture<'a, ()> {
        self.watch.inbox_grows(key, seen)
    }
}
