//! The threads that read, each with a connection of its own: a reader sees the last commit and waits for no writer.

use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use futures::FutureExt as _;
use futures::channel::oneshot;
use rusqlite::Connection;

use super::failure::Failure;
use super::schema::Place;
use crate::limits::{READERS, READS_WAITING_MAX};
use crate::{StoreError, StoreFuture};

type Read = Box<dyn FnOnce(&mut Reader) + Send>;

/// The pool.
pub(super) struct Readers {
    queue: Option<SyncSender<Read>>,
    threads: Vec<JoinHandle<()>>,
}

/// One thread's state.
struct Reader {
    place: Place,
    // Absent after an error; opened again for the next read.
    conn: Option<Connection>,
}

impl Readers {
    pub(super) fn start(place: &Place) -> Result<Self, StoreError> {
        let (queue, reads) = sync_channel::<Read>(READS_WAITING_MAX);
        let reads = Arc::new(Mutex::new(reads));
        let mut threads = Vec::with_capacity(READERS);
        for number in 0..READERS {
            let mut reader = Reader { place: place.clone(), conn: Some(place.connect_to_read()?) };
            let reads = Arc::clone(&reads);
            let thread = thread::Builder::new().name(format!("wharf-read-{number}")).spawn(move || {
                while let Some(read) = next(&reads) {
                    read(&mut reader);
                }
            });
            threads.push(thread.map_err(|error| StoreError::Io {
                what: "starting a thread of the store".to_owned(),
                why: error.to_string(),
                transient: true,
            })?);
        }
        Ok(Self { queue: Some(queue), threads })
    }

    /// Runs `look` in a read transaction: all that it reads is of one moment.
    pub(super) fn read<T: Send + 'static>(
        &self,
        what: &'static str,
        look: impl FnOnce(&Connection, &Place) -> Result<T, Failure> + Send + 'static,
    ) -> StoreFuture<'static, T> {
        let (reply, answer) = oneshot::channel();
        let read: Read = Box::new(move |reader| {
            // Refused only if nobody waits any more.
            let _ = reply.send(reader.read(what, look));
        });
        let why = match self.queue.as_ref().map(|queue| queue.try_send(read)) {
            Some(Ok(())) => return answer.map(|end| end.unwrap_or_else(|_| Err(stopped(what)))).boxed(),
            Some(Err(TrySendError::Full(_))) => format!("{READS_WAITING_MAX} reads wait already"),
            Some(Err(TrySendError::Disconnected(_))) | None => "the store has stopped".to_owned(),
        };
        async move { Err(StoreError::Io { what: what.to_owned(), why, transient: true }) }.boxed()
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.queue = None;
        for thread in self.threads.drain(..) {
            // A panicked thread has nothing more to tell.
            let _ = thread.join();
        }
    }
}

fn next(reads: &Mutex<Receiver<Read>>) -> Option<Read> {
    reads.lock().unwrap_or_else(PoisonError::into_inner).recv().ok() // an error says that the store is closed
}

fn stopped(what: &str) -> StoreError {
    StoreError::Io { what: what.to_owned(), why: "the store has stopped".to_owned(), transient: false }
}

impl Reader {
    fn read<T>(
        &mut self,
        what: &str,
        look: impl FnOnce(&Connection, &Place) -> Result<T, Failure>,
    ) -> Result<T, StoreError> {
        self.place.check_same_file()?;
        let conn = match self.conn.take() {
            Some(conn) => conn,
            None => self.place.connect_to_read()?,
        };
        let found = conn
            .execute_batch("BEGIN")
            .map_err(Failure::from)
            .and_then(|()| look(&conn, &self.place))
            .and_then(|found| Ok(conn.execute_batch("COMMIT").map(|()| found)?))
            .map_err(|failure| self.place.fail(what, failure))?;
        self.conn = Some(conn);
        Ok(found)
    }
}
