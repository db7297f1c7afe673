//! Carrying out effects, and waiting for several things at once: the next event, the end of a job, the next renewal, a word
//! from outside.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::pin;

use futures::FutureExt;
use futures::StreamExt;
use futures::future::{Either, select};
use wharf_core::step::{Effect, Event, JobOutcome, Launch, step};
use wharf_core::{CallId, Error, Seq};

use super::{Control, Coordinator};

impl Coordinator {
    /// Decides about an event and carries out what follows, in order.
    pub(super) async fn act(&mut self, event: Event) -> Result<(), Error> {
        if self.acting {
            // What was begun then is not known to be durable, so nothing may be built on it.
            let dropped =
                self.check_usable().err().unwrap_or_else(|| Error::store("an operation was dropped in mid-work"));
            return Err(self.poison(dropped));
        }
        self.check_usable()?;
        let effects = step(&mut self.machine, event)?;
        self.acting = true;
        let done = self.carry_out(effects).await;
        self.acting = false;
        done
    }

    async fn carry_out(&mut self, effects: Vec<Effect>) -> Result<(), Error> {
        let mut failed = None;
        for effect in effects {
            match effect {
                Effect::Append(records) => match self.journal.append(&records).await {
                    Ok(head) => {
                        for listener in self.history.iter_mut().chain(&mut self.listener) {
                            let first = head.0.saturating_sub(records.len() as u64);
                            for (at, record) in records.iter().enumerate() {
                                listener(Seq(first + 1 + at as u64), record);
                            }
                        }
                    }
                    Err(error) => return Err(self.poison(error)),
                },
                Effect::Run(launch) => self.launch(launch),
                Effect::Abort(id) => drop(self.tasks.remove(&id)),
                Effect::Retrieve(id) => self.to_retrieve = Some(id),
                Effect::Fail(error) => failed = Some(error),
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// The journal is lost to us: nothing is done any more, what runs is aborted (L11, L36).
    fn poison(&mut self, error: Error) -> Error {
        self.tasks.clear();
        // A machine that is poisoned already keeps its first error.
        match step(&mut self.machine, Event::JournalFailed(error.clone())) {
            Ok(_) => error,
            Err(first) => first,
        }
    }

    fn launch(&mut self, launch: Launch) {
        let id = launch.call.id.clone();
        let sender = self.ended_sender.clone();
        let executor = self.executor.clone();
        // Inside of the task, so that an executor which panics before it gives a future harms its own call alone (L29).
        let job = AssertUnwindSafe(async move { executor.execute(launch).await }).catch_unwind();
        let done_id = id.clone();
        let task = self.seams.spawn(
            "call",
            Box::pin(async move {
                let outcome = match job.await {
                    Ok(Ok(output)) => JobOutcome::Output(output),
                    Ok(Err(message)) => JobOutcome::Error(message),
                    Err(_panic) => JobOutcome::Crashed,
                };
                // The coordinator is gone: its journal says that the call was running.
                sender.unbounded_send((done_id, outcome)).ok();
            }),
        );
        self.tasks.insert(id, task);
    }

    pub(super) async fn job_ended(&mut self, id: CallId, outcome: JobOutcome) -> Result<(), Error> {
        self.tasks.remove(&id);
        self.act(Event::JobEnded { id, outcome }).await
    }

    /// Waits for `work`; settles jobs, renews the lease and listens meanwhile.
    pub(super) async fn drive<T>(&mut self, work: impl Future<Output = T>) -> Result<T, Error> {
        let mut work = pin!(work);
        loop {
            match self.meanwhile(&mut work).await? {
                Round::Done(done) => return Ok(done),
                Round::JobEnded | Round::Other => continue,
            }
        }
    }

    /// Waits until one job has ended, and is settled.
    pub(super) async fn drive_until_job(&mut self) -> Result<(), Error> {
        let mut never = std::future::pending::<()>();
        loop {
            if let Round::JobEnded = self.meanwhile(&mut never).await? {
                return Ok(());
            }
        }
    }

    /// One round of waiting. What else is there comes before the work: work that always can go on must hold up neither a
    /// renewal nor a cancel (L36).
    async fn meanwhile<T>(&mut self, work: &mut (impl Future<Output = T> + Unpin)) -> Result<Round<T>, Error> {
        let renewal = self.seams.sleep(self.journal.renew_in());
        let other = {
            let side = select(select(self.control.next(), self.ended.next()), renewal);
            match select(side, work).await {
                Either::Right((done, _)) => return Ok(Round::Done(done)),
                Either::Left((Either::Left((Either::Left((control, _)), _)), _)) => Other::Control(control),
                Either::Left((Either::Left((Either::Right((ended, _)), _)), _)) => Other::Ended(ended),
                Either::Left((Either::Right(((), _)), _)) => Other::Renew,
            }
        };
        match other {
            Other::Ended(Some((id, outcome))) => {
                self.job_ended(id, outcome).await?;
                return Ok(Round::JobEnded);
            }
            Other::Control(Some(control)) => self.hear(control).await?,
            // Both channels are ours at both ends, so they never close.
            Other::Ended(None) | Other::Control(None) => {}
            Other::Renew => {
                if let Err(error) = self.journal.renew().await {
                    return Err(self.poison(error));
                }
            }
        }
        Ok(Round::Other)
    }

    /// What was said from outside before this moment.
    pub(super) async fn hear_all(&mut self) -> Result<(), Error> {
        while let Ok(control) = self.control.try_recv() {
            self.hear(control).await?;
        }
        Ok(())
    }

    async fn hear(&mut self, control: Control) -> Result<(), Error> {
        match control {
            Control::Cancel => {
                self.cancel().await?;
                Err(Error::cancelled("the turn was cancelled"))
            }
            Control::Stop => self.act(Event::Stop).await,
        }
    }
}

/// What a round of waiting brought.
enum Round<T> {
    /// The work is done.
    Done(T),
    /// A job has ended and was handled.
    JobEnded,
    /// The lease was renewed, or something was said from outside.
    Other,
}

enum Other {
    Ended(Option<(CallId, JobOutcome)>),
    Control(Option<Control>),
    Renew,
}
