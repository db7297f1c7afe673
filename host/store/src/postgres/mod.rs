//! The store for many machines: journals in PostgreSQL 15 or newer.
//!
//! This module is the public type and how it is put together. Who may write is decided by functions of the schema, each one
//! statement, by the database's clock (form1.sql); nothing here looks at a time of its own but to bound its waits.

mod address;
mod appends;
mod failure;
mod health;
mod link;
mod reads;
mod schema;
mod watch;

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use wharf_core::{BlobDigest, Fence, InboxId, OrgId, Seq, SessionId};

use self::address::Address;
use self::appends::{Appends, Queue};
use self::failure::Failure;
pub use self::health::PostgresHealth;
use self::link::{Answer, Link, millis};
use self::watch::Watch;
use crate::limits::{BLOB_PIECE_BYTES, INBOX_ITEMS_MAX, LEASE_TTL, POSTGRES_PATIENCE, RETRY_PAUSE};
use crate::{
    Acquire, Append, Claim, Clock, DeletionMark, Fault, InboxItem, InboxPut, JournalKey, Lease, Loaded, Owner,
    SessionSummary, Stage, Store, StoreError, StoreFuture, StoredRecord, Swept, Write,
};

/// Journals in a PostgreSQL database that hosts on many machines may have open at once (M1).
///
/// A commit is on the server's disk before it is reported, whatever the server's own setting of `synchronous_commit` is (M4);
/// a server that runs with `fsync = off` breaks that promise, and nobody here can know. Leases follow the database's clock
/// alone. Its work is done on the tokio runtime on which it was opened; its futures may be polled anywhere.
///
/// What is deleted is gone for every reader at once; the server takes it off its disk with its next `VACUUM`.
///
/// ```no_run
/// use wharf_store::{PostgresOptions, PostgresStore};
///
/// # async fn open() -> Result<(), wharf_store::StoreError> {
/// let store = PostgresStore::open("postgres://wharf@db.example/wharf", PostgresOptions::default()).await?;
/// println!("{}", store.place());
/// # Ok(()) }
/// ```
pub struct PostgresStore {
    link: Link,
    handle: Handle,
    appends: Appends,
    watch: Watch,
    // When this process last got or renewed each lease that it has: what is left of one bounds how long a write is tried.
    granted: Arc<Mutex<HashMap<JournalKey, Instant>>>,
    // Ready once the last item that was put for a session is there: items of one caller stand in the order of its calls.
    putting: Arc<Mutex<HashMap<JournalKey, oneshot::Receiver<()>>>>,
}

/// How the PostgreSQL store behaves.
#[derive(Clone)]
pub struct PostgresOptions {
    /// Whether missing or older tables are made; needs a role that may. Without it such a database is an error.
    pub migrate: bool,
    /// What happens before a write is sent and after it is done, for tests; between, the server has it.
    pub fault: Option<Fault>,
    /// The time by which leases are judged, for tests. Without it the database's own clock, as it has to be where hosts
    /// share one.
    pub clock: Option<Clock>,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self { migrate: true, fault: None, clock: None }
    }
}

impl PostgresStore {
    /// Opens the database at an address, `postgres://USER:PASSWORD@HOST:PORT/DATABASE`, and makes wharf's tables in it if
    /// they are not there. Several hosts, separated by commas, are tried in turn, and only one that takes writes is used.
    ///
    /// TLS: without `sslmode` in the address a server on another machine has to have it, with a certificate that the
    /// system knows or that `sslrootcert=FILE` names; `sslmode=disable` is for ways that are safe by themselves.
    ///
    /// # Errors
    ///
    /// [`StoreError::Newer`] if a newer version made the tables, [`StoreError::Io`] otherwise. No error shows the address's
    /// password.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub async fn open(address: &str, options: PostgresOptions) -> Result<Self, StoreError> {
        let handle = Handle::current();
        let address = Address::parse(address)?;
        let link = Link::new(&address, options.clone())?;
        let migrate = options.migrate;
        let ready = persist(|| async {
            let mut client = link.client("connecting").await?;
            schema::prepare(&mut client, &link.place, migrate).await
        });
        // What was in doubt is looked at by the next one who opens it.
        ready.await.map_err(|(failure, _)| failure.error)?;
        let appends = Appends::start(&handle, &link);
        let watch = Watch::start(&handle, &link, address.config.clone(), address.tls()?);
        Ok(Self { link, handle, appends, watch, granted: Arc::default(), putting: Arc::default() })
    }

    /// Which database it is, for people: never a password.
    pub fn place(&self) -> &str {
        &self.link.place
    }

    /// Does work on the store's own runtime, whoever waits for it.
    fn run<T: Send + 'static>(
        &self,
        what: &'static str,
        work: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> StoreFuture<'static, T> {
        let lost = move |_| StoreError::Unknown { what: what.to_owned(), why: "the store has stopped".to_owned() };
        self.handle.spawn(work).map(move |end| end.map_err(lost)?).boxed()
    }

    fn read<T, F>(
        &self,
        what: &'static str,
        work: impl Fn(Link) -> F + Send + Sync + 'static,
    ) -> StoreFuture<'static, T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Failure>> + Send,
    {
        let link = self.link.clone();
        // Nothing is in doubt about what only reads.
        self.run(what, async move {
            persist(|| work(link.clone())).await.map(|(read, _)| read).map_err(|(failure, _)| failure.error)
        })
    }

    /// One attempt of a write whose answer is a row of `wharf.answer`, and what it means.
    fn once<T: Send + 'static>(
        &self,
        write: Write,
        work: impl Future<Output = Result<Answer, Failure>> + Send + 'static,
        meaning: impl FnOnce(Answer) -> Result<T, StoreError> + Send + 'static,
    ) -> StoreFuture<'static, T> {
        let (link, what) = (self.link.clone(), write.doing());
        self.run(what, async move {
            let done = attempt(&link, write, work).await.map_err(|failure| failure.into_error(what, false))?;
            meaning(done)
        })
    }

    /// A write that is the same twice as once, tried as long as a person would.
    fn repeatable<T, F>(
        &self,
        write: Write,
        work: impl Fn() -> F + Send + Sync + 'static,
        meaning: impl FnOnce(Answer) -> Result<T, StoreError> + Send + 'static,
    ) -> StoreFuture<'static, T>
    where
        T: Send + 'static,
        F: Future<Output = Result<Answer, Failure>> + Send,
    {
        let (link, what) = (self.link.clone(), write.doing());
        self.run(what, async move {
            let (done, _) = persist(|| attempt(&link, write, work()))
                .await
                .map_err(|(failure, doubt)| failure.into_error(what, doubt))?;
            meaning(done)
        })
    }

    /// A write of a lease's owner: tried until a third of the lease is left (L63), and a new beginning of it if it succeeds.
    /// The attempt is told whether an earlier one may have been done.
    fn as_owner<T, F>(
        &self,
        write: Write,
        lease: &Lease,
        work: impl Fn(bool) -> F + Send + Sync + 'static,
        meaning: impl FnOnce(Answer) -> Result<T, StoreError> + Send + 'static,
    ) -> StoreFuture<'static, T>
    where
        T: Send + 'static,
        F: Future<Output = Result<Answer, Failure>> + Send,
    {
        let begun = Instant::now();
        let until = self.retry_until(lease, begun);
        let (granted, key) = (Arc::clone(&self.granted), lease.key.clone());
        let (link, what) = (self.link.clone(), write.doing());
        self.run(what, async move {
            let told = |error: &StoreError| tracing::warn!(what, %error, "a write failed and is tried again");
            let (answer, _) = persist_until(until, told, |doubt| attempt(&link, write, work(doubt)))
                .await
                .map_err(|(failure, doubt)| failure.into_error(what, doubt))?;
            // A refusal is final, also after doubt: what may still be on its way to the server finds the same fence, head or
            // mark, or a later one, and is refused too.
            let done = meaning(answer)?;
            lock(&granted).insert(key, begun);
            Ok(done)
        })
    }

    /// When a third of the lease is left (L63). One that outlasts the clock is tried for as long as a usual one.
    fn retry_until(&self, lease: &Lease, now: Instant) -> Option<Instant> {
        let begun = lock(&self.granted).get(&lease.key).copied().unwrap_or(now);
        begun.checked_add(lease.ttl / 3 * 2).or_else(|| now.checked_add(LEASE_TTL))
    }
}

impl Drop for PostgresStore {
    fn drop(&mut self) {
        self.link.close();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Tries for as long as a person would, what is the same twice as once.
async fn persist<T, F: Future<Output = Result<T, Failure>>>(
    work: impl Fn() -> F,
) -> Result<(T, bool), (Failure, bool)> {
    let told = |error: &StoreError| tracing::debug!(%error, "the database is tried again");
    persist_until(Some(Instant::now() + POSTGRES_PATIENCE), told, |_| work()).await
}

/// Tries until it is done, fails for good, or it is time. An attempt is told whether an earlier one may have been done; what
/// comes of it comes with that too.
async fn persist_until<T, F: Future<Output = Result<T, Failure>>>(
    until: Option<Instant>,
    told: impl Fn(&StoreError),
    work: impl Fn(bool) -> F,
) -> Result<(T, bool), (Failure, bool)> {
    let (mut doubt, mut pause) = (false, RETRY_PAUSE.0);
    loop {
        let failure = match work(doubt).await {
            Ok(done) => return Ok((done, doubt)),
            Err(failure) => failure,
        };
        doubt |= failure.doubt;
        if !failure.may_pass() || until.is_none_or(|until| Instant::now() + pause >= until) {
            return Err((failure, doubt));
        }
        told(&failure.error);
        tokio::time::sleep(pause).await;
        pause = pause.saturating_mul(2).min(RETRY_PAUSE.1);
    }
}

/// One attempt, with what a test wants before and after it.
async fn attempt(
    link: &Link,
    write: Write,
    work: impl Future<Output = Result<Answer, Failure>>,
) -> Result<Answer, Failure> {
    link.pass(write, Stage::BeforeWrite)?;
    let answer = work.await?;
    link.pass(write, Stage::AfterSyncBeforeAnswer)?;
    Ok(answer)
}

/// What a word means that is no success.
fn refused(key: &JournalKey, expected: Seq, answer: &Answer) -> StoreError {
    let session = key.session.to_string();
    match answer.word.as_str() {
        "busy" => StoreError::Busy { session, owner: answer.text(), left: Duration::from_millis(answer.number()) },
        "fenced" => StoreError::Fenced { session },
        "stale" => StoreError::Stale { session, expected, found: Seq(answer.number()) },
        "deleted" => DeletionMark { who: answer.text(), at_ms: answer.number() }.refusal(key),
        "full" => StoreError::inbox_full(),
        "not-waiting" => StoreError::not_waiting(&InboxId::new(answer.text())),
        other => StoreError::Unknown {
            what: "a write".to_owned(),
            why: format!("the database answered {other:?}, which this version does not know"),
        },
    }
}

/// Names are text for the database, which has no NUL; content may be anything.
fn check_names<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<(), StoreError> {
    match names.into_iter().find(|name| name.contains('\0')) {
        Some(name) => Err(StoreError::Io {
            what: format!("writing {name:?} to PostgreSQL"),
            why: "names of sessions, owners and records may hold no NUL".to_owned(),
            transient: false,
        }),
        None => Ok(()),
    }
}

fn check_key(key: &JournalKey) -> Result<(), StoreError> {
    check_names([key.org.as_str(), key.session.as_str()])
}

fn fails<T: Send + 'static>(error: StoreError) -> StoreFuture<'static, T> {
    futures::future::ready(Err(error)).boxed()
}

/// Tells the next one that an item was put, or will not be any more, and forgets whom nobody waits for.
struct Over {
    done: Option<oneshot::Sender<()>>,
    putting: Arc<Mutex<HashMap<JournalKey, oneshot::Receiver<()>>>>,
}

impl Drop for Over {
    fn drop(&mut self) {
        self.done = None;
        lock(&self.putting).retain(|_, next| next.try_recv() == Err(oneshot::error::TryRecvError::Empty));
    }
}

/// Makes blobs durable, piece by piece, before the append that names them.
async fn put_blobs(link: &Link, lease: &Lease, append: &Append) -> Result<Option<Answer>, Failure> {
    let sql = "SELECT word, num, num2, bytes FROM wharf.put_piece($1, $2, $3, $4, $5, $6, $7, $8, $9)";
    let (org, session) = (lease.key.org.as_str(), lease.key.session.as_str());
    let (fence, expected) = (lease.fence.0.cast_signed(), append.expected.0.cast_signed());
    for (digest, bytes) in &append.blobs {
        for (number, piece) in (0_i32..).zip(bytes.chunks(BLOB_PIECE_BYTES)) {
            let answer = link
                .ask_one(
                    "writing a blob",
                    sql,
                    &[
                        &link.now(),
                        &org,
                        &session,
                        &lease.owner.token,
                        &fence,
                        &expected,
                        &digest.as_str(),
                        &number,
                        &piece,
                    ],
                )
                .await?;
            match answer.word.as_str() {
                "ok" => {}
                "whole" => break,
                _ => return Ok(Some(answer)),
            }
        }
    }
    Ok(None)
}

async fn append_once(
    link: Link,
    queue: Queue,
    lease: Lease,
    append: Arc<Append>,
    doubt: bool,
) -> Result<Answer, Failure> {
    // After doubt the records may be there: then the pieces are too, or they would be refused as stale.
    if !doubt && let Some(refused) = put_blobs(&link, &lease, &append).await? {
        return Ok(refused);
    }
    queue.attempt(lease, append, doubt).await
}

async fn release_once(link: &Link, lease: &Lease) -> Result<Answer, Failure> {
    let sql = "SELECT word, num, num2, bytes FROM wharf.release($1, $2, $3, $4, $5)";
    let (org, session) = (lease.key.org.as_str(), lease.key.session.as_str());
    let fence = lease.fence.0.cast_signed();
    link.ask_one(Write::Release.doing(), sql, &[&link.now(), &org, &session, &lease.owner.token, &fence]).await
}

async fn put_once(link: &Link, key: &JournalKey, item: &InboxItem) -> Result<Answer, Failure> {
    let sql = "SELECT word, num, num2, bytes FROM wharf.put_inbox($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)";
    let max = i64::try_from(INBOX_ITEMS_MAX).unwrap_or(i64::MAX);
    link.ask_one(
        Write::PutInbox.doing(),
        sql,
        &[
            &link.now(),
            &key.org.as_str(),
            &key.session.as_str(),
            &item.id.as_str().as_bytes(),
            &item.target.as_bytes(),
            &item.kind.as_bytes(),
            &item.who.as_bytes(),
            &item.at_ms.cast_signed(),
            &item.digest.as_bytes(),
            &item.body.as_bytes(),
            &max,
        ],
    )
    .await
}

impl Store for PostgresStore {
    fn acquire<'a>(
        &'a self,
        key: &'a JournalKey,
        owner: &'a Owner,
        ttl: Duration,
        how: Acquire,
    ) -> StoreFuture<'a, Lease> {
        if let Err(error) = check_key(key).and(check_names([owner.token.as_str()])) {
            return fails(error);
        }
        let what = Write::Acquire.doing();
        let begun = Instant::now();
        let (link, granted) = (self.link.clone(), Arc::clone(&self.granted));
        let (key, owner, theirs) = (key.clone(), owner.clone(), (key.clone(), owner.clone()));
        let asked = move || {
            let (link, (key, owner)) = (link.clone(), theirs.clone());
            async move {
                let sql = "SELECT word, num, num2, bytes FROM wharf.acquire($1, $2, $3, $4, $5, $6, $7)";
                let take_over = how == Acquire::TakeOver;
                let (org, session) = (key.org.as_str(), key.session.as_str());
                let label = owner.label.as_bytes();
                link.ask_one(what, sql, &[&link.now(), &org, &session, &owner.token, &label, &millis(ttl), &take_over])
                    .await
            }
        };
        // The same token gets the same fence again.
        self.repeatable(Write::Acquire, asked, move |answer| match answer.word.as_str() {
            "ok" => {
                lock(&granted).insert(key.clone(), begun);
                let head = Seq(answer.num2.unwrap_or_default().cast_unsigned());
                Ok(Lease { key, owner, fence: Fence(answer.number()), head, ttl })
            }
            _ => Err(refused(&key, Seq(0), &answer)),
        })
    }

    fn load<'a>(&'a self, key: &'a JournalKey, after: Seq) -> StoreFuture<'a, Loaded> {
        let key = key.clone();
        self.read("reading the journal", move |link| {
            let key = key.clone();
            async move { reads::load(&link, &key, after).await }
        })
    }

    fn history<'a>(&'a self, key: &'a JournalKey, after: Seq, limit: usize) -> StoreFuture<'a, Vec<StoredRecord>> {
        let key = key.clone();
        self.read("reading the journal", move |link| {
            let key = key.clone();
            async move { reads::history(&link, &key, after, limit).await }
        })
    }

    fn append<'a>(&'a self, lease: &'a Lease, append: Append) -> StoreFuture<'a, Seq> {
        let names = append.records.iter().flat_map(|record| [record.id.as_str(), &record.kind]);
        let digests = append.blobs.iter().map(|(digest, _)| digest.as_str());
        let checked = append
            .check_bounds()
            .and_then(|()| check_key(&lease.key))
            .and_then(|()| check_names(names.chain(digests).chain([lease.owner.token.as_str()])));
        if let Err(error) = checked {
            return fails(error);
        }
        let (link, queue, theirs) = (self.link.clone(), self.appends.queue(), lease.clone());
        let (key, expected) = (lease.key.clone(), append.expected);
        let append = Arc::new(append);
        self.as_owner(
            Write::Append,
            lease,
            move |doubt| append_once(link.clone(), queue.clone(), theirs.clone(), append.clone(), doubt),
            move |answer| match answer.word.as_str() {
                "ok" => Ok(Seq(answer.number())),
                _ => Err(refused(&key, expected, &answer)),
            },
        )
    }

    fn renew<'a>(&'a self, lease: &'a Lease) -> StoreFuture<'a, ()> {
        if let Err(error) = check_key(&lease.key).and(check_names([lease.owner.token.as_str()])) {
            return fails(error);
        }
        let what = Write::Renew.doing();
        let (link, theirs, key) = (self.link.clone(), lease.clone(), lease.key.clone());
        let attempt = move |_doubt| {
            let (link, lease) = (link.clone(), theirs.clone());
            async move {
                let sql = "SELECT word, num, num2, bytes FROM wharf.renew($1, $2, $3, $4, $5, $6)";
                let (org, session) = (lease.key.org.as_str(), lease.key.session.as_str());
                let (fence, ttl) = (lease.fence.0.cast_signed(), millis(lease.ttl));
                link.ask_one(what, sql, &[&link.now(), &org, &session, &lease.owner.token, &fence, &ttl]).await
            }
        };
        self.as_owner(Write::Renew, lease, attempt, move |answer| match answer.word.as_str() {
            "ok" => Ok(()),
            _ => Err(refused(&key, Seq(0), &answer)),
        })
    }

    fn release<'a>(&'a self, lease: &'a Lease) -> StoreFuture<'a, ()> {
        if let Err(error) = check_key(&lease.key).and(check_names([lease.owner.token.as_str()])) {
            return fails(error);
        }
        let what = Write::Release.doing();
        lock(&self.granted).remove(&lease.key);
        let (link, lease) = (self.link.clone(), lease.clone());
        self.run(what, async move {
            let released = persist(|| attempt(&link, Write::Release, release_once(&link, &lease))).await;
            let (answer, doubt) = released.map_err(|(failure, doubt)| failure.into_error(what, doubt))?;
            match answer.word.as_str() {
                "ok" => Ok(()),
                // The attempt whose answer was lost did it.
                "fenced" if doubt => Ok(()),
                _ => Err(refused(&lease.key, Seq(0), &answer)),
            }
        })
    }

    fn delete<'a>(&'a self, lease: &'a Lease, mark: DeletionMark) -> StoreFuture<'a, ()> {
        if let Err(error) = check_key(&lease.key).and(check_names([lease.owner.token.as_str()])) {
            return fails(error);
        }
        let what = Write::Delete.doing();
        let (link, theirs, key) = (self.link.clone(), lease.clone(), lease.key.clone());
        let attempt = move |doubt: bool| {
            let (link, lease, mark) = (link.clone(), theirs.clone(), mark.clone());
            async move {
                let sql = "SELECT word, num, num2, bytes FROM wharf.delete($1, $2, $3, $4, $5, $6, $7, $8)";
                let (org, session) = (lease.key.org.as_str(), lease.key.session.as_str());
                let (fence, at) = (lease.fence.0.cast_signed(), mark.at_ms.cast_signed());
                let who = mark.who.as_bytes();
                link.ask_one(what, sql, &[&link.now(), &org, &session, &lease.owner.token, &fence, &who, &at, &doubt])
                    .await
            }
        };
        let granted = Arc::clone(&self.granted);
        let deleted = self.as_owner(Write::Delete, lease, attempt, move |answer| match answer.word.as_str() {
            "ok" => Ok(()),
            _ => Err(refused(&key, Seq(0), &answer)),
        });
        async move {
            deleted.await?;
            lock(&granted).remove(&lease.key);
            Ok(())
        }
        .boxed()
    }

    fn sweep<'a>(&'a self, lease: &'a Lease, named: &'a BTreeSet<BlobDigest>) -> StoreFuture<'a, Swept> {
        let names = named.iter().map(BlobDigest::as_str).chain([lease.owner.token.as_str()]);
        if let Err(error) = check_key(&lease.key).and(check_names(names)) {
            return fails(error);
        }
        let what = Write::Sweep.doing();
        let (link, theirs, key, head) = (self.link.clone(), lease.clone(), lease.key.clone(), lease.head);
        let named: Vec<String> = named.iter().map(ToString::to_string).collect();
        let attempt = move |_doubt| {
            let (link, lease, named) = (link.clone(), theirs.clone(), named.clone());
            async move {
                let sql = "SELECT word, num, num2, bytes FROM wharf.sweep($1, $2, $3, $4, $5, $6, $7, $8)";
                let (org, session) = (lease.key.org.as_str(), lease.key.session.as_str());
                let (fence, head) = (lease.fence.0.cast_signed(), lease.head.0.cast_signed());
                let ttl = millis(lease.ttl);
                link.ask_one(what, sql, &[&link.now(), &org, &session, &lease.owner.token, &fence, &ttl, &head, &named])
                    .await
            }
        };
        self.as_owner(Write::Sweep, lease, attempt, move |answer| match answer.word.as_str() {
            "ok" => Ok(Swept { blobs: answer.number(), bytes: answer.num2.unwrap_or_default().cast_unsigned() }),
            _ => Err(refused(&key, head, &answer)),
        })
    }

    fn sessions<'a>(&'a self, org: &'a OrgId, limit: usize) -> StoreFuture<'a, Vec<SessionSummary>> {
        let org = org.clone();
        self.read("listing sessions", move |link| {
            let org = org.clone();
            async move { reads::sessions(&link, &org, limit).await }
        })
    }

    fn blob<'a>(&'a self, key: &'a JournalKey, digest: &'a BlobDigest) -> StoreFuture<'a, Option<Vec<u8>>> {
        let (key, digest) = (key.clone(), digest.clone());
        self.read("reading a blob", move |link| {
            let (key, digest) = (key.clone(), digest.clone());
            async move { reads::blob(&link, &key, &digest).await }
        })
    }

    fn put_inbox<'a>(&'a self, key: &'a JournalKey, item: InboxItem) -> StoreFuture<'a, InboxPut> {
        if let Err(error) = item.check_bounds().and_then(|()| check_key(key)) {
            return fails(error);
        }
        let what = Write::PutInbox.doing();
        let (link, key) = (self.link.clone(), key.clone());
        let (done, next) = oneshot::channel();
        let before = lock(&self.putting).insert(key.clone(), next);
        let putting = Arc::clone(&self.putting);
        self.run(what, async move {
            if let Some(before) = before {
                let _ = before.await; // it never says anything but that it is over
            }
            let _over = Over { done: Some(done), putting };
            let put = persist(|| attempt(&link, Write::PutInbox, put_once(&link, &key, &item)));
            let (answer, _) = put.await.map_err(|(failure, doubt)| failure.into_error(what, doubt))?;
            match answer.word.as_str() {
                "ok" => Ok(InboxPut::Accepted),
                "repeated" => Ok(InboxPut::Repeated),
                "late" => Ok(InboxPut::TooLate),
                _ => Err(refused(&key, Seq(0), &answer)),
            }
        })
    }

    fn inbox<'a>(&'a self, key: &'a JournalKey) -> StoreFuture<'a, Vec<InboxItem>> {
        let key = key.clone();
        self.read("reading the inbox", move |link| {
            let key = key.clone();
            async move { reads::inbox(&link, &key).await }
        })
    }

    fn inbox_grows<'a>(&'a self, key: &'a JournalKey, seen: usize) -> StoreFuture<'a, ()> {
        self.watch.inbox_grows(key, seen)
    }

    fn claim<'a>(&'a self, claim: &'a Claim, owner: &'a Owner) -> StoreFuture<'a, Option<Lease>> {
        let names = claim.harnesses.iter().map(String::as_str).chain(claim.skip.iter().map(SessionId::as_str));
        let checked =
            claim.check_bounds().and_then(|()| check_names(names.chain([claim.org.as_str(), owner.token.as_str()])));
        if let Err(error) = checked {
            return fails(error);
        }
        let begun = Instant::now();
        let (link, granted) = (self.link.clone(), Arc::clone(&self.granted));
        let (claim, owner, theirs) = (claim.clone(), owner.clone(), (claim.clone(), owner.clone()));
        let asked = async move {
            let (claim, owner) = theirs;
            let sql = "SELECT word, num, num2, bytes FROM wharf.claim($1, $2, $3, $4, $5, $6, $7)";
            let skip: Vec<&str> = claim.skip.iter().map(SessionId::as_str).collect();
            let (org, label) = (claim.org.as_str(), owner.label.as_bytes());
            link.ask_one(
                Write::Claim.doing(),
                sql,
                &[&link.now(), &org, &claim.harnesses, &skip, &owner.token, &label, &millis(claim.ttl)],
            )
            .await
        };
        self.once(Write::Claim, asked, move |answer| match answer.word.as_str() {
            "none" => Ok(None),
            "ok" => {
                let key = JournalKey { org: claim.org, session: answer.text().into() };
                lock(&granted).insert(key.clone(), begun);
                let head = Seq(answer.num2.unwrap_or_default().cast_unsigned());
                Ok(Some(Lease { key, owner, fence: Fence(answer.number()), head, ttl: claim.ttl }))
            }
            other => Err(StoreError::Unknown {
                what: Write::Claim.doing().to_owned(),
                why: format!("the database answered {other:?}, which this version does not know"),
            }),
        })
    }

    fn work_arrives<'a>(&'a self, _org: &'a OrgId) -> StoreFuture<'a, ()> {
        self.watch.work_arrives()
    }
}
