//! Wakes whoever waits for an inbox, whichever process put the item there (M9).
//!
//! SQLite tells nobody of another process's commit, but says for the price of a look at shared memory whether there was one.
//! That look is taken only while somebody waits.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use futures::FutureExt as _;
use futures::channel::oneshot;
use rusqlite::Connection;

use super::failure::Failure;
use super::inbox;
use super::schema::Place;
use crate::limits::{INBOX_POLL, INBOX_WAITERS_MAX};
use crate::{JournalKey, StoreError, StoreFuture};

/// The thread that looks.
pub(super) struct Watch {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiters: Vec<Waiter>,
    closed: bool,
}

struct Waiter {
    key: JournalKey,
    seen: usize,
    wake: oneshot::Sender<Result<(), StoreError>>,
    /// The database's version at the last count; counting again is needed only at another one.
    counted_at: Option<i64>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // The list is whole between any two statements that can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watch {
    pub(super) fn start(place: &Place) -> Result<Self, StoreError> {
        let mut conn = Some(place.connect_to_read()?);
        let shared = Arc::new(Shared::default());
        let (place, theirs) = (place.clone(), Arc::clone(&shared));
        let thread = thread::Builder::new().name("wharf-watch".to_owned()).spawn(move || {
            while let Some(waiters) = wait(&theirs) {
                let waiters = look(&place, &mut conn, waiters);
                theirs.lock().waiters.extend(waiters);
            }
        });
        let thread = thread.map_err(|error| StoreError::Io {
            what: "starting a thread of the store".to_owned(),
            why: error.to_string(),
            transient: true,
        })?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// See [`crate::Store::inbox_grows`].
    pub(super) fn inbox_grows(&self, key: &JournalKey, seen: usize) -> StoreFuture<'static, ()> {
        let (wake, woken) = oneshot::channel();
        let mut state = self.shared.lock();
        state.waiters.retain(|waiter| !waiter.wake.is_canceled());
        if state.waiters.len() >= INBOX_WAITERS_MAX {
            let why = format!("{INBOX_WAITERS_MAX} tasks wait already");
            return async move { Err(failed(why, true)) }.boxed();
        }
        state.waiters.push(Waiter { key: key.clone(), seen, wake, counted_at: None });
        drop(state);
        self.shared.changed.notify_one();
        woken.map(|end| end.unwrap_or_else(|_| Err(failed("the store has stopped".to_owned(), false)))).boxed()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            // A panicked thread has nothing more to tell.
            let _ = thread.join();
        }
    }
}

fn failed(why: String, transient: bool) -> StoreError {
    StoreError::Io { what: "waiting for the inbox".to_owned(), why, transient }
}

/// Takes the list of waiters: at once if there is a new one, else at the next time to look. `None` when the store closes.
fn wait(shared: &Shared) -> Option<Vec<Waiter>> {
    let idle = |state: &mut State| !state.closed && state.waiters.is_empty();
    let nothing_new = |state: &mut State| {
        !state.closed && state.waiters.iter().all(|waiter| waiter.counted_at.is_some() && !waiter.wake.is_canceled())
    };
    let state = shared.changed.wait_while(shared.lock(), idle).unwrap_or_else(PoisonError::into_inner);
    let (mut state, _) =
        shared.changed.wait_timeout_while(state, INBOX_POLL, nothing_new).unwrap_or_else(PoisonError::into_inner);
    (!state.closed).then(|| std::mem::take(&mut state.waiters))
}

/// Answers whoever can be answered and gives the others back.
fn look(place: &Place, conn: &mut Option<Connection>, waiters: Vec<Waiter>) -> Vec<Waiter> {
    let mut rest: Vec<Waiter> = Vec::with_capacity(waiters.len());
    let mut renewed = false;
    for mut waiter in waiters {
        if renewed {
            waiter.counted_at = None;
        }
        match grown(place, conn, &mut waiter) {
            // Refused only if nobody waits any more.
            Ok(true) => drop(waiter.wake.send(Ok(()))),
            Ok(false) if waiter.wake.is_canceled() => {}
            Ok(false) => rest.push(waiter),
            // The database is fine, the session is gone.
            Err(error @ StoreError::Deleted { .. }) => drop(waiter.wake.send(Err(error))),
            Err(error) => {
                // Another connection counts versions anew, so no count of this one's holds.
                *conn = None;
                renewed = true;
                rest.iter_mut().for_each(|waiter| waiter.counted_at = None);
                drop(waiter.wake.send(Err(error)));
            }
        }
    }
    rest
}

fn grown(place: &Place, conn: &mut Option<Connection>, waiter: &mut Waiter) -> Result<bool, StoreError> {
    place.check_same_file()?;
    if conn.is_none() {
        *conn = Some(place.connect_to_read()?);
    }
    let Some(conn) = conn.as_ref() else { return Ok(false) };
    let look = || -> Result<bool, Failure> {
        // The version first: a commit after this line only makes the next look count again.
        let version: i64 = conn.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0))?;
        if waiter.counted_at == Some(version) {
            return Ok(false);
        }
        waiter.counted_at = Some(version);
        Ok(inbox::count(conn, &waiter.key)? > waiter.seen)
    };
    let mut look = look;
    look().map_err(|failure| place.fail("waiting for the inbox", failure))
}
