//! The one thread that writes.
//!
//! What waits is committed together: one transaction, one sync, however many sessions wait (design section 8). Each write
//! has a savepoint of its own, so that a refused or failing one harms only itself. A failed append or renewal is tried again
//! for as long as L63 says. It knows what a write needs and how it ends, never what it writes.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};

use rusqlite::Connection;

use super::failure::Failure;
use super::job::{Job, Ran};
use super::schema::{FileId, Place};
use super::scrub::scrub;
use crate::limits::{RETRY_PAUSE, SCRUB_PAUSE, WRITES_TOGETHER_BYTES_MAX, WRITES_TOGETHER_MAX};
use crate::{Clock, Fault, FaultAction, FaultPoint, Stage, StoreError, Write};

/// Counts since the store was opened.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) commits: AtomicU64,
    pub(super) writes: AtomicU64,
    pub(super) retries: AtomicU64,
}

/// What the thread works with.
pub(super) struct Writer {
    pub(super) place: Place,
    pub(super) clock: Clock,
    pub(super) fault: Option<Fault>,
    pub(super) counters: Arc<Counters>,
    /// Absent after an error that leaves its state in doubt; opened again for the next transaction.
    pub(super) conn: Option<Opened>,
    /// A fault hook stopped the machine.
    pub(super) down: bool,
    /// When what was deleted is to be taken off the disk, if it could not be at once.
    pub(super) scrub: Option<Instant>,
}

/// A connection and the log that it writes to.
pub(super) struct Opened {
    conn: Connection,
    log: Option<FileId>,
}

impl Opened {
    pub(super) fn by(place: &Place) -> Result<Self, StoreError> {
        let conn = place.connect()?;
        Ok(Self { log: place.log(), conn })
    }
}

/// What a write works with during one attempt.
pub(super) struct Attempt<'a> {
    pub(super) conn: &'a Connection,
    /// The store's time, since 1970; the same for all writes of the transaction.
    pub(super) now: Duration,
    /// An earlier attempt may have been committed.
    pub(super) doubt: bool,
}

/// How one write of a transaction ended, if the transaction was committed.
enum Outcome {
    Done,
    More,
    /// For good.
    Refused(StoreError),
    /// Perhaps not for good.
    Failed(StoreError),
}

/// Why a transaction was not committed.
enum Broken {
    /// No write of it is to blame.
    Before(StoreError),
    /// One write broke the transaction.
    Inside(StoreError),
    /// The commit itself failed. `doubt`: it may be there after all.
    Commit { error: StoreError, doubt: bool },
}

impl Writer {
    /// Serves until every sender is gone and all that waits is answered.
    pub(super) fn run(mut self, queue: &Receiver<Job>) {
        let mut again: Vec<Job> = Vec::new();
        let mut later: Vec<(Instant, Job)> = Vec::new();
        let mut open = true;
        while open || !again.is_empty() || !later.is_empty() {
            let mut jobs = std::mem::take(&mut again);
            let due = if jobs.is_empty() { later.iter().map(|(due, _)| *due).min() } else { Some(Instant::now()) };
            if open && let ControlFlow::Break(()) = gather(queue, due, &mut jobs) {
                open = false;
            }
            let now = Instant::now();
            for (due, mut job) in std::mem::take(&mut later) {
                if open && due > now {
                    later.push((due, job));
                    continue;
                }
                if !open {
                    job.retry_until = None; // one last attempt: nobody waits for a store that closes
                }
                jobs.push(job);
            }
            if !jobs.is_empty() {
                self.commit(jobs, &mut again, &mut later);
            }
        }
        if self.scrub.is_some() {
            self.scrub();
        }
    }

    /// Runs jobs in one transaction, or in one each if a job breaks it for the others.
    fn commit(&mut self, mut jobs: Vec<Job>, again: &mut Vec<Job>, later: &mut Vec<(Instant, Job)>) {
        match self.transact(&mut jobs) {
            Ok(outcomes) => {
                let deleted =
                    |(job, outcome): (&Job, &Outcome)| job.write == Write::Delete && matches!(outcome, Outcome::Done);
                if jobs.iter().zip(&outcomes).any(deleted) || self.scrub.is_some_and(|due| due <= Instant::now()) {
                    self.scrub();
                }
                for (job, outcome) in jobs.into_iter().zip(outcomes) {
                    match outcome {
                        Outcome::Done => job.step.answer(Ok(())),
                        Outcome::More => again.push(job),
                        Outcome::Refused(error) => job.end(error),
                        Outcome::Failed(error) => self.failed(job, error, later),
                    }
                }
            }
            Err(Broken::Before(error)) => {
                for job in jobs {
                    self.failed(job, error.clone(), later);
                }
            }
            Err(Broken::Inside(error)) => self.apart(jobs, &error, again, later),
            Err(Broken::Commit { error, doubt }) => {
                for job in &mut jobs {
                    job.doubt |= doubt;
                }
                self.apart(jobs, &error, again, later);
            }
        }
    }

    /// Takes what was deleted off the disk. The deletion stands whether or not that succeeds.
    fn scrub(&mut self) {
        let Some(opened) = self.conn.as_ref().filter(|_| !self.down) else { return };
        let later = Some(Instant::now() + SCRUB_PAUSE);
        self.scrub = match scrub(&opened.conn) {
            Ok(true) => None,
            Ok(false) => {
                tracing::info!("what was deleted stays in the log while others read from it");
                later
            }
            Err(failure) => {
                let error = self.place.fail("overwriting what was deleted", failure);
                tracing::warn!(%error, "what was deleted is not overwritten yet");
                self.conn = None;
                later
            }
        };
    }

    fn apart(&mut self, mut jobs: Vec<Job>, error: &StoreError, again: &mut Vec<Job>, later: &mut Vec<(Instant, Job)>) {
        if jobs.len() == 1 {
            for job in jobs.drain(..) {
                self.failed(job, error.clone(), later);
            }
            return;
        }
        for mut job in jobs {
            if job.doubt && !job.may_repeat() {
                // Running it again could do it twice, and there is no telling whether it was done.
                self.failed(job, error.clone(), later);
                continue;
            }
            job.attempts += 1;
            self.commit(vec![job], again, later);
        }
    }

    /// Puts the job off, or gives it up.
    fn failed(&self, mut job: Job, error: StoreError, later: &mut Vec<(Instant, Job)>) {
        let may_pass = match &error {
            StoreError::Io { transient, .. } => *transient,
            StoreError::Unknown { .. } => true,
            StoreError::Busy { .. }
            | StoreError::Fenced { .. }
            | StoreError::Deleted { .. }
            | StoreError::Stale { .. }
            | StoreError::Corrupt { .. }
            | StoreError::Newer { .. }
            | StoreError::TooLarge { .. } => false,
        };
        let pause = RETRY_PAUSE.0.saturating_mul(1 << job.attempts.min(16)).min(RETRY_PAUSE.1);
        let due = Instant::now() + pause;
        if may_pass && !self.down && job.retry_until.is_some_and(|until| due < until) {
            tracing::warn!(what = job.what, attempts = job.attempts, %error, "a write failed and is tried again");
            job.attempts += 1;
            self.counters.retries.fetch_add(1, Ordering::Relaxed);
            later.push((due, job));
            return;
        }
        job.end(error);
    }

    fn transact(&mut self, jobs: &mut [Job]) -> Result<Vec<Outcome>, Broken> {
        if self.down {
            return Err(Broken::Before(crashed()));
        }
        self.place.check_same_file().map_err(Broken::Before)?;
        // The connection is kept then: when it is closed, what it wrote to that log goes into the database.
        let log = self.conn.as_ref().and_then(|opened| opened.log);
        self.place.check_same_log(log).map_err(Broken::Before)?;
        let opened = match self.conn.take() {
            Some(opened) => opened,
            None => Opened::by(&self.place).map_err(Broken::Before)?,
        };
        let done = self.transact_on(&opened.conn, jobs);
        // An error may leave caches and locks in a state that nobody has tested; a fresh connection has none.
        if done.is_ok() {
            self.conn = Some(opened);
        }
        done
    }

    fn transact_on(&mut self, conn: &Connection, jobs: &mut [Job]) -> Result<Vec<Outcome>, Broken> {
        let before = |place: &Place, failure| Broken::Before(place.fail("writing", failure));
        conn.prepare_cached("BEGIN IMMEDIATE")
            .and_then(|mut begin| begin.execute([]))
            .map_err(|error| before(&self.place, error.into()))?;
        self.place.check_form(conn).map_err(|failure| before(&self.place, failure))?;
        let now = (self.clock)();
        let mut outcomes = Vec::with_capacity(jobs.len());
        for job in jobs.iter_mut() {
            outcomes.push(self.attempt(conn, now, job)?);
        }
        let torn = self
            .pass_all(jobs, &outcomes, Stage::AfterWriteBeforeSync)
            .map_err(|error| Broken::Commit { error, doubt: false })?;
        conn.prepare_cached("COMMIT")
            .and_then(|mut commit| commit.execute([]))
            .map_err(|error| self.broken_commit(&error))?;
        self.counters.commits.fetch_add(1, Ordering::Relaxed);
        let done = outcomes.iter().filter(|outcome| matches!(outcome, Outcome::Done)).count();
        self.counters.writes.fetch_add(done as u64, Ordering::Relaxed);
        if torn {
            self.down = true;
            return Err(Broken::Commit { error: crashed(), doubt: true });
        }
        self.pass_all(jobs, &outcomes, Stage::AfterSyncBeforeAnswer)
            .map_err(|error| Broken::Commit { error, doubt: true })?;
        Ok(outcomes)
    }

    fn attempt(&mut self, conn: &Connection, now: Duration, job: &mut Job) -> Result<Outcome, Broken> {
        let inside = |place: &Place, error: rusqlite::Error| Broken::Inside(place.explain("writing", &error));
        match self.pass(FaultPoint { write: job.write, stage: Stage::BeforeWrite }, false) {
            Ok(_) => {}
            Err(error) if self.down => return Err(Broken::Before(error)),
            Err(error) => return Ok(Outcome::Failed(error)),
        }
        let savepoint = |sql: &str| {
            conn.prepare_cached(sql)
                .and_then(|mut statement| statement.execute([]))
                .map_err(|error| inside(&self.place, error))
        };
        savepoint("SAVEPOINT job")?;
        let outcome = match job.step.run(&Attempt { conn, now, doubt: job.doubt }) {
            Ok(Ran::Done(())) => Outcome::Done,
            Ok(Ran::More) => Outcome::More,
            Err(Failure::Refused(error)) => {
                savepoint("ROLLBACK TO job")?;
                Outcome::Refused(error)
            }
            // A full disk or an I/O error ends the whole transaction; others leave it as the savepoint found it.
            Err(Failure::Sql(error)) if conn.is_autocommit() => return Err(inside(&self.place, error)),
            Err(Failure::Sql(error)) => {
                savepoint("ROLLBACK TO job")?;
                Outcome::Failed(self.place.explain(job.what, &error))
            }
        };
        savepoint("RELEASE job")?;
        Ok(outcome)
    }

    /// A commit that found no room or no lock is known not to have happened. Of any other failure (a sync, most of all)
    /// nobody can say: the log may hold the whole transaction, and the next opening would find it.
    fn broken_commit(&self, error: &rusqlite::Error) -> Broken {
        let doubt = !matches!(
            error.sqlite_error_code(),
            Some(
                rusqlite::ErrorCode::DiskFull | rusqlite::ErrorCode::DatabaseBusy | rusqlite::ErrorCode::DatabaseLocked
            )
        );
        let error = self.place.explain("committing", error);
        if !doubt {
            return Broken::Commit { error, doubt };
        }
        let error = StoreError::Unknown {
            what: format!("committing to {}", self.place.path().display()),
            why: error.to_string(),
        };
        Broken::Commit { error, doubt }
    }

    /// True if the machine is to stop when this transaction is on the disk.
    fn pass_all(&mut self, jobs: &[Job], outcomes: &[Outcome], stage: Stage) -> Result<bool, StoreError> {
        let mut torn = false;
        for (job, outcome) in jobs.iter().zip(outcomes) {
            let part = stage == Stage::AfterWriteBeforeSync && matches!(outcome, Outcome::More);
            torn |= self.pass(FaultPoint { write: job.write, stage }, part)?;
        }
        Ok(torn)
    }

    /// True for a tear, which only a write meets that has come to an end of a part and not to its own.
    fn pass(&mut self, point: FaultPoint, part: bool) -> Result<bool, StoreError> {
        match self.fault.as_ref().map_or(FaultAction::Go, |fault| fault(point)) {
            FaultAction::Go => Ok(false),
            FaultAction::Tear if part => Ok(true),
            FaultAction::Fail(error) => Err(error),
            FaultAction::Crash | FaultAction::Tear => {
                self.down = true;
                Err(crashed())
            }
        }
    }
}

fn crashed() -> StoreError {
    StoreError::Unknown { what: "the operation".to_owned(), why: "the store crashed".to_owned() }
}

/// Waits for something to do, then takes what else waits, up to what may share a commit. Breaks when nothing will come any
/// more.
fn gather(queue: &Receiver<Job>, due: Option<Instant>, jobs: &mut Vec<Job>) -> ControlFlow<()> {
    let first = match due {
        None => queue.recv().map_err(|_| RecvTimeoutError::Disconnected),
        Some(due) => queue.recv_timeout(due.saturating_duration_since(Instant::now())),
    };
    match first {
        Ok(job) => jobs.push(job),
        Err(RecvTimeoutError::Timeout) => return ControlFlow::Continue(()),
        Err(RecvTimeoutError::Disconnected) => return ControlFlow::Break(()),
    }
    let mut bytes: usize = jobs.iter().map(|job| job.bytes).sum();
    while jobs.len() < WRITES_TOGETHER_MAX && bytes < WRITES_TOGETHER_BYTES_MAX {
        match queue.try_recv() {
            Ok(job) => {
                bytes = bytes.saturating_add(job.bytes);
                jobs.push(job);
            }
            Err(TryRecvError::Empty) => break,
            Err(TryRecvError::Disconnected) => return ControlFlow::Break(()),
        }
    }
    ControlFlow::Continue(())
}
