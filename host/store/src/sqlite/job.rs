//! One write on its way through the writer: what it does, how long it may be tried, and who waits for its answer.

use std::time::Instant;

use futures::channel::oneshot;

use super::failure::Failure;
use super::writer::Attempt;
use crate::{StoreError, Write};

/// A write that waits.
pub(super) struct Job {
    pub(super) write: Write,
    /// For messages.
    pub(super) what: &'static str,
    /// About how much it writes.
    pub(super) bytes: usize,
    /// Until when a failure is not the end of it; `None` if it is tried once.
    pub(super) retry_until: Option<Instant>,
    pub(super) attempts: u32,
    /// An earlier attempt may have been committed.
    pub(super) doubt: bool,
    pub(super) step: Box<dyn Step>,
}

impl Job {
    /// Answers with an error. After an attempt in doubt no error says that nothing happened, a refusal neither: until the
    /// next commit writes over it, what was not synced may still come back with a power cut (L63).
    pub(super) fn end(self, error: StoreError) {
        let error = if self.doubt && !matches!(error, StoreError::Unknown { .. }) {
            StoreError::Unknown { what: self.what.to_owned(), why: error.to_string() }
        } else {
            error
        };
        self.step.answer(Err(error));
    }

    /// True if running it after it may have been committed does no harm: an append looks for its records and a deletion
    /// for its mark first; a renewal, a sweep and an item put twice are the same as once.
    pub(super) fn may_repeat(&self) -> bool {
        match self.write {
            Write::Append | Write::Renew | Write::PutInbox | Write::Acquire | Write::Delete | Write::Sweep => true,
            // A claim done twice would take two sessions.
            Write::Release | Write::Claim => false,
        }
    }
}

/// How far a step came in one transaction.
pub(super) enum Ran<T> {
    /// To its end.
    Done(T),
    /// It wants another transaction.
    More,
}

/// The work of a job and its answer.
pub(super) trait Step: Send {
    /// Does the work in the attempt's transaction. May be called again if that is not committed.
    fn run(&mut self, attempt: &Attempt<'_>) -> Result<Ran<()>, Failure>;

    /// Tells whoever waits. With `Ok` it tells what the last run gave.
    fn answer(self: Box<Self>, end: Result<(), StoreError>);
}

/// A step from a closure.
pub(super) struct Typed<T, F> {
    run: F,
    value: Option<T>,
    reply: oneshot::Sender<Result<T, StoreError>>,
}

impl<T, F> Typed<T, F>
where
    F: FnMut(&Attempt<'_>) -> Result<Ran<T>, Failure>,
{
    pub(super) fn new(run: F) -> (Self, oneshot::Receiver<Result<T, StoreError>>) {
        let (reply, answer) = oneshot::channel();
        (Self { run, value: None, reply }, answer)
    }
}

impl<T, F> Step for Typed<T, F>
where
    T: Send,
    F: FnMut(&Attempt<'_>) -> Result<Ran<T>, Failure> + Send,
{
    fn run(&mut self, attempt: &Attempt<'_>) -> Result<Ran<()>, Failure> {
        Ok(match (self.run)(attempt)? {
            Ran::Done(value) => {
                self.value = Some(value);
                Ran::Done(())
            }
            Ran::More => Ran::More,
        })
    }

    fn answer(self: Box<Self>, end: Result<(), StoreError>) {
        let end = match (end, self.value) {
            (Ok(()), Some(value)) => Ok(value),
            (Ok(()), None) => Err(StoreError::Unknown {
                what: "the write".to_owned(),
                why: "it was committed without an answer".to_owned(),
            }),
            (Err(error), _) => Err(error),
        };
        // Refused only if nobody waits any more, which is allowed.
        let _ = self.reply.send(end);
    }
}
