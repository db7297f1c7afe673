//! Appends on their way to the server. What waits is sent together, many sessions in one statement and one commit, by a few
//! tasks: while one statement is synced the next gathers.

use std::collections::HashSet;
use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::task::AbortHandle;

use super::failure::Failure;
use super::link::{Answer, Link, millis};
use crate::limits::{POSTGRES_APPENDS_AT_ONCE, WRITES_TOGETHER_BYTES_MAX, WRITES_TOGETHER_MAX, WRITES_WAITING_MAX};
use crate::sums::{record_sum, snapshot_sum};
use crate::{Append, JournalKey, Lease, Open, StoreError};

const WHAT: &str = "appending to the journal";

const APPEND: &str = "SELECT word, num, num2, bytes FROM wharf.append(
  $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26)";

/// An append that waits.
struct Job {
    lease: Lease,
    append: Arc<Append>,
    /// An earlier attempt may have been committed.
    doubt: bool,
    answer: oneshot::Sender<Result<Answer, Failure>>,
}

impl Job {
    fn bytes(&self) -> usize {
        self.append.records.iter().map(|record| record.body.len()).sum::<usize>()
            + self.append.snapshot.as_ref().map_or(0, String::len)
    }
}

/// The queue and its tasks.
pub(super) struct Appends {
    queue: mpsc::Sender<Job>,
    tasks: Vec<AbortHandle>,
}

/// Where appends are handed in.
#[derive(Clone)]
pub(super) struct Queue(mpsc::Sender<Job>);

impl Appends {
    pub(super) fn start(handle: &Handle, link: &Link) -> Self {
        let (queue, jobs) = mpsc::channel(WRITES_WAITING_MAX);
        let jobs = Arc::new(Mutex::new(Jobs { queue: jobs, kept: None }));
        let task = |_| handle.spawn(send_all(link.clone(), jobs.clone())).abort_handle();
        Self { queue, tasks: (0..POSTGRES_APPENDS_AT_ONCE).map(task).collect() }
    }

    pub(super) fn queue(&self) -> Queue {
        Queue(self.queue.clone())
    }
}

impl Drop for Appends {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

impl Queue {
    /// One attempt.
    pub(super) async fn attempt(&self, lease: Lease, append: Arc<Append>, doubt: bool) -> Result<Answer, Failure> {
        let (answer, answered) = oneshot::channel();
        let io = |why: String, transient| StoreError::Io { what: WHAT.to_owned(), why, transient };
        match self.0.try_send(Job { lease, append, doubt, answer }) {
            Ok(()) => {}
            Err(mpsc::error::TrySendError::Full(_)) => {
                return Err(io(format!("{WRITES_WAITING_MAX} writes wait already"), true).into());
            }
            Err(mpsc::error::TrySendError::Closed(_)) => {
                return Err(io("the store has stopped".to_owned(), false).into());
            }
        }
        answered.await.unwrap_or_else(|_| {
            Err(Failure { error: io("the store has stopped".to_owned(), false), doubt: true, connection: true })
        })
    }
}

/// What waits.
struct Jobs {
    queue: mpsc::Receiver<Job>,
    /// One of a session of which another one is being sent.
    kept: Option<Job>,
}

impl Jobs {
    /// Waits for something to send, then takes what else waits, up to what may share a commit; of each session one.
    async fn next(&mut self) -> Option<Vec<Job>> {
        let first = match self.kept.take() {
            Some(kept) => kept,
            None => self.queue.recv().await?,
        };
        let mut bytes = first.bytes();
        let mut keys: HashSet<JournalKey> = HashSet::from([first.lease.key.clone()]);
        let mut jobs = vec![first];
        while jobs.len() < WRITES_TOGETHER_MAX && bytes < WRITES_TOGETHER_BYTES_MAX {
            let Ok(job) = self.queue.try_recv() else { break };
            if !keys.insert(job.lease.key.clone()) {
                self.kept = Some(job);
                break;
            }
            bytes = bytes.saturating_add(job.bytes());
            jobs.push(job);
        }
        // Everybody locks rows in this order.
        jobs.sort_by(|one, other| one.lease.key.cmp(&other.lease.key));
        Some(jobs)
    }
}

async fn send_all(link: Link, jobs: Arc<Mutex<Jobs>>) {
    loop {
        // Let go of before it is sent, so that another task gathers meanwhile.
        let next = jobs.lock().await.next().await;
        let Some(next) = next else { return };
        send(&link, next).await;
    }
}

/// Sends them in one statement; one by one where the statement fails for a reason that may be one of theirs.
async fn send(link: &Link, jobs: Vec<Job>) {
    let failure = match ask(link, &jobs).await {
        Ok(answers) if answers.len() == jobs.len() => {
            for (job, answer) in jobs.into_iter().zip(answers) {
                // Refused only if nobody waits any more.
                let _ = job.answer.send(Ok(answer));
            }
            return;
        }
        Ok(answers) => {
            let why = format!("it gave {} answers to {} appends", answers.len(), jobs.len());
            let error = StoreError::Unknown { what: format!("{WHAT} in {}", link.place), why };
            Failure { error, doubt: true, connection: true }
        }
        Err(failure) => failure,
    };
    let alone = jobs.len() == 1 || failure.connection;
    for job in jobs {
        let end = if alone {
            Err(Failure { error: failure.error.clone(), doubt: failure.doubt, connection: failure.connection })
        } else {
            ask(link, std::slice::from_ref(&job)).await.and_then(|mut answers| {
                let nothing = || StoreError::Unknown { what: WHAT.to_owned(), why: "it answered nothing".to_owned() };
                answers.pop().ok_or_else(|| nothing().into())
            })
        };
        let _ = job.answer.send(end);
    }
}

async fn ask(link: &Link, jobs: &[Job]) -> Result<Vec<Answer>, Failure> {
    let of = |at: usize| i32::try_from(at + 1).unwrap_or(i32::MAX);
    let each = || jobs.iter().map(|job| (&job.lease, &*job.append));
    let orgs: Vec<&str> = each().map(|(lease, _)| lease.key.org.as_str()).collect();
    let sessions: Vec<&str> = each().map(|(lease, _)| lease.key.session.as_str()).collect();
    let tokens: Vec<&str> = each().map(|(lease, _)| lease.owner.token.as_str()).collect();
    let fences: Vec<i64> = each().map(|(lease, _)| lease.fence.0.cast_signed()).collect();
    let ttls: Vec<i64> = each().map(|(lease, _)| millis(lease.ttl)).collect();
    let expected: Vec<i64> = each().map(|(_, append)| append.expected.0.cast_signed()).collect();
    let doubts: Vec<bool> = jobs.iter().map(|job| job.doubt).collect();
    let counts: Vec<i32> = each().map(|(_, append)| i32::try_from(append.records.len()).unwrap_or(i32::MAX)).collect();
    let updated: Vec<Option<i64>> =
        each().map(|(_, append)| append.records.last().map(|last| last.at_ms.cast_signed())).collect();
    let snapshots: Vec<Option<&[u8]>> =
        each().map(|(_, append)| append.snapshot.as_ref().map(String::as_bytes)).collect();
    let snapshot_sums: Vec<Option<i64>> = each()
        .map(|(_, append)| {
            let head = wharf_core::Seq(append.expected.0.saturating_add(append.records.len() as u64));
            append.snapshot.as_ref().map(|text| snapshot_sum(head, text))
        })
        .collect();
    let open: Vec<Option<bool>> =
        each().map(|(_, append)| append.open.as_ref().map(|open| *open != Open::No)).collect();
    let open_for: Vec<Option<&str>> = each()
        .map(|(_, append)| match &append.open {
            Some(Open::For(harness)) => Some(harness.as_str()),
            Some(Open::No) | None => None,
        })
        .collect();
    let mut records = Records::default();
    let (mut consumed_of, mut consumed) = (Vec::new(), Vec::new());
    let (mut blobs_of, mut digests, mut sizes) = (Vec::new(), Vec::new(), Vec::new());
    for (at, (_, append)) in each().enumerate() {
        let mut seq = append.expected;
        for record in &append.records {
            seq = seq.next();
            records.of.push(of(at));
            records.ids.push(record.id.as_str());
            records.kinds.push(&record.kind);
            records.versions.push(i32::from(record.version));
            records.at.push(record.at_ms.cast_signed());
            records.bodies.push(record.body.as_bytes());
            records.sums.push(record_sum(seq, record));
        }
        for id in &append.consumed {
            consumed_of.push(of(at));
            consumed.push(id.as_str().as_bytes());
        }
        for (digest, bytes) in &append.blobs {
            blobs_of.push(of(at));
            digests.push(digest.as_str());
            sizes.push(i64::try_from(bytes.len()).unwrap_or(i64::MAX));
        }
    }
    link.ask(
        WHAT,
        APPEND,
        &[
            &link.now(),
            &orgs,
            &sessions,
            &tokens,
            &fences,
            &ttls,
            &expected,
            &doubts,
            &counts,
            &updated,
            &snapshots,
            &snapshot_sums,
            &open,
            &open_for,
            &records.of,
            &records.ids,
            &records.kinds,
            &records.versions,
            &records.at,
            &records.bodies,
            &records.sums,
            &consumed_of,
            &consumed,
            &blobs_of,
            &digests,
            &sizes,
        ],
    )
    .await
}

/// Records of all appends, column by column.
#[derive(Default)]
struct Records<'a> {
    of: Vec<i32>,
    ids: Vec<&'a str>,
    kinds: Vec<&'a str>,
    versions: Vec<i32>,
    at: Vec<i64>,
    bodies: Vec<&'a [u8]>,
    sums: Vec<i64>,
}
