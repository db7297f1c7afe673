//! Wakes whoever waits for an inbox or for work, whichever process it came from (M9). The server tells of changes; behind that,
//! and while the connection on which it does is down, inboxes are looked at now and then.

use std::collections::HashSet;

use futures::stream::poll_fn;
use futures::{FutureExt as _, StreamExt as _};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_postgres::{AsyncMessage, Config};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::failure::{Failure, of_statement};
use super::link::Link;
use crate::limits::{INBOX_POLL, INBOX_WAITERS_MAX, POSTGRES_POLL};
use crate::{DeletionMark, JournalKey, StoreError, StoreFuture};

/// Channels of the schema's functions: of inboxes, whose words are the numbers of journals, and of work to claim.
const INBOX: &str = "wharf_inbox";
const WORK: &str = "wharf_work";

/// The tasks.
pub(super) struct Watch {
    waiters: mpsc::Sender<Waiter>,
    /// Counts the times at which work may have arrived.
    work: watch::Receiver<u64>,
    tasks: [AbortHandle; 2],
}

struct Waiter {
    key: JournalKey,
    seen: usize,
    /// Its number in the database, once it was looked at and is there.
    journal: Option<i64>,
    wake: oneshot::Sender<Result<(), StoreError>>,
}

/// What the server told.
enum Told {
    /// Somebody put an item there.
    Changed(i64),
    /// Something may have been missed.
    Anything,
}

impl Watch {
    pub(super) fn start(handle: &Handle, link: &Link, config: Config, tls: MakeRustlsConnect) -> Self {
        let (waiters, new) = mpsc::channel(INBOX_WAITERS_MAX);
        // What does not fit is made good by the next look, which comes anyway.
        let (tell, told) = mpsc::channel(INBOX_WAITERS_MAX);
        let (arrives, work) = watch::channel(0);
        let listening = handle.spawn(listen(config, tls, tell, arrives)).abort_handle();
        let looking = handle.spawn(look(link.clone(), new, told)).abort_handle();
        Self { waiters, work, tasks: [listening, looking] }
    }

    /// See [`crate::Store::work_arrives`].
    pub(super) fn work_arrives(&self) -> StoreFuture<'static, ()> {
        let mut work = self.work.clone();
        work.mark_unchanged();
        async move { work.changed().await.map_err(|_| failed("the store has stopped".to_owned(), false)) }.boxed()
    }

    /// See [`crate::Store::inbox_grows`].
    pub(super) fn inbox_grows(&self, key: &JournalKey, seen: usize) -> StoreFuture<'static, ()> {
        let (wake, woken) = oneshot::channel();
        if self.waiters.try_send(Waiter { key: key.clone(), seen, journal: None, wake }).is_err() {
            let why = format!("{INBOX_WAITERS_MAX} tasks wait already, or the store has stopped");
            return async move { Err(failed(why, true)) }.boxed();
        }
        woken.map(|end| end.unwrap_or_else(|_| Err(failed("the store has stopped".to_owned(), false)))).boxed()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

fn failed(why: String, transient: bool) -> StoreError {
    StoreError::Io { what: "waiting for the inbox".to_owned(), why, transient }
}

/// Keeps a connection on which the server tells.
async fn listen(config: Config, tls: MakeRustlsConnect, tell: mpsc::Sender<Told>, arrives: watch::Sender<u64>) {
    loop {
        if let Ok((client, mut connection)) = config.connect(tls.clone()).await {
            let mut messages = poll_fn(move |context| connection.poll_message(context));
            let start = async {
                let listening = client.batch_execute(&format!("LISTEN {INBOX}; LISTEN {WORK}")).await;
                // What was put before that, nobody told.
                arrives.send_modify(|count| *count += 1);
                (listening.is_ok() && tell.send(Told::Anything).await.is_ok()).then_some(())
            };
            let hear = async {
                while let Some(Ok(message)) = messages.next().await {
                    let AsyncMessage::Notification(note) = message else { continue };
                    if note.channel() == WORK {
                        arrives.send_modify(|count| *count += 1);
                    } else {
                        let told = note.payload().parse().map_or(Told::Anything, Told::Changed);
                        let _ = tell.try_send(told); // full: it looks at everything soon
                    }
                }
            };
            // The client is kept for as long as it is listened to.
            futures::future::join(start, hear).await;
            drop(client);
        }
        if tell.is_closed() {
            return;
        }
        sleep(INBOX_POLL).await;
        let _ = tell.try_send(Told::Anything);
    }
}

/// Looks at inboxes when there is a reason.
async fn look(link: Link, mut new: mpsc::Receiver<Waiter>, mut told: mpsc::Receiver<Told>) {
    let mut waiters: Vec<Waiter> = Vec::new();
    let mut next_look = Instant::now() + POSTGRES_POLL;
    loop {
        let mut changed: Option<HashSet<i64>> = Some(HashSet::new());
        let mut fresh = waiters.len();
        tokio::select! {
            waiter = new.recv() => match waiter {
                Some(waiter) => waiters.push(waiter),
                None => return,
            },
            word = told.recv() => match word {
                Some(word) => note(&mut changed, &word),
                None => return,
            },
            () = sleep_until(next_look), if !waiters.is_empty() => changed = None,
        }
        while let Ok(waiter) = new.try_recv() {
            waiters.push(waiter);
        }
        while let Ok(word) = told.try_recv() {
            note(&mut changed, &word);
        }
        if changed.is_none() {
            next_look = Instant::now() + POSTGRES_POLL;
        }
        let before = waiters.len();
        waiters.retain(|waiter| !waiter.wake.is_closed());
        if waiters.len() != before {
            fresh = 0; // positions moved: look at all, which costs little
        }
        let concerned = |(at, waiter): (usize, &Waiter)| -> bool {
            let told = |changed: &HashSet<i64>| match waiter.journal {
                Some(journal) => changed.contains(&journal),
                None => !changed.is_empty(),
            };
            at >= fresh || changed.as_ref().is_none_or(told)
        };
        let at: Vec<usize> = waiters.iter().enumerate().filter(|one| concerned(*one)).map(|(at, _)| at).collect();
        if at.is_empty() {
            continue;
        }
        match count(&link, &waiters, &at).await {
            Ok(counts) => answer(&mut waiters, &at, counts),
            Err(failure) => {
                tracing::debug!(error = %failure.error, "inboxes could not be looked at");
                // An outage may be short; whoever waits has a lease that says for how long it matters.
                next_look = next_look.min(Instant::now() + INBOX_POLL);
            }
        }
    }
}

/// `None` stands for a reason to look at all.
fn note(changed: &mut Option<HashSet<i64>>, word: &Told) {
    match word {
        Told::Changed(journal) => drop(changed.as_mut().map(|changed| changed.insert(*journal))),
        Told::Anything => *changed = None,
    }
}

/// What a look found of one session.
struct Count {
    journal: Option<i64>,
    waiting: i64,
    mark: Option<DeletionMark>,
}

async fn count(link: &Link, waiters: &[Waiter], at: &[usize]) -> Result<Vec<Count>, Failure> {
    let what = "waiting for the inbox";
    let sql = "SELECT j.id, (SELECT count(*) FROM wharf.inbox b WHERE b.journal = j.id AND NOT b.consumed),
                 j.deleted_ms, j.deleted_by
               FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS u(org, session, at)
               LEFT JOIN wharf.journal j ON j.org = u.org AND j.session = u.session ORDER BY u.at";
    let keys = || at.iter().filter_map(|at| waiters.get(*at)).map(|waiter| &waiter.key);
    let orgs: Vec<&str> = keys().map(|key| key.org.as_str()).collect();
    let sessions: Vec<&str> = keys().map(|key| key.session.as_str()).collect();
    let rows = link.query(what, sql, &[&orgs, &sessions]).await?;
    let read = |row: &tokio_postgres::Row| -> Result<Count, tokio_postgres::Error> {
        let deleted: Option<i64> = row.try_get(2)?;
        let who: Option<Vec<u8>> = row.try_get(3)?;
        let mark = deleted.zip(who).map(|(at_ms, who)| DeletionMark {
            who: String::from_utf8_lossy(&who).into_owned(),
            at_ms: at_ms.cast_unsigned(),
        });
        Ok(Count { journal: row.try_get(0)?, waiting: row.try_get(1)?, mark })
    };
    rows.iter().map(read).collect::<Result<_, _>>().map_err(|error| of_statement(&link.place, what, &error))
}

fn answer(waiters: &mut Vec<Waiter>, at: &[usize], counts: Vec<Count>) {
    let mut counts: std::collections::HashMap<usize, Count> = at.iter().copied().zip(counts).collect();
    let mut rest = Vec::with_capacity(waiters.len());
    for (at, mut waiter) in std::mem::take(waiters).into_iter().enumerate() {
        let Some(count) = counts.remove(&at) else {
            rest.push(waiter);
            continue;
        };
        // Refused only if nobody waits any more.
        if let Some(mark) = count.mark {
            let _ = waiter.wake.send(Err(mark.refusal(&waiter.key)));
        } else if usize::try_from(count.waiting).unwrap_or(0) > waiter.seen {
            let _ = waiter.wake.send(Ok(()));
        } else {
            waiter.journal = count.journal;
            rest.push(waiter);
        }
    }
    *waiters = rest;
}
