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
use crate::limits;

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
                Effect::Append(records) => match self.journal.append(&records, self.machine.session()).await {
                    Ok(head) => {
                        if let Some(listener) = &mut self.listener {
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

    /// Waits for `work`; settles jobs, renews the lease and listens meanwhile. A cancelled error once a shutdown's time is
    /// over.
    pub(super) async fn drive<T>(&mut self, work: impl Future<Output = T>) -> Result<T, Error> {
        let mut work = pin!(work);
        loop {
            match self.meanwhile(&mut work).await? {
                Round::Done(done) => return Ok(done),
                Round::CutOff => return Err(Error::cancelled("the host stops")),
                Round::JobEnded | Round::Other => continue,
            }
        }
    }

    /// Waits until one job has ended and is settled, or until all were ended by a shutdown.
    pub(super) async fn drive_until_job(&mut self) -> Result<(), Error> {
        let mut never = std::future::pending::<()>();
        loop {
            match self.meanwhile(&mut never).await? {
                Round::JobEnded | Round::CutOff => return Ok(()),
                Round::Done(()) | Round::Other => {}
            }
        }
    }

    /// One round of waiting. What else is there comes before the work: work that always can go on must hold up neither a
    /// renewal nor a cancel (L36).
    async fn meanwhile<T>(&mut self, work: &mut (impl Future<Output = T> + Unpin)) -> Result<Round<T>, Error> {
        if self.cut_off {
            return Ok(Round::CutOff);
        }
        let renew_in = self.journal.renew_in();
        let stop_in = self.stop_at.map(|at| at.saturating_sub(self.seams.now()));
        let (sleep, at_its_end) = match stop_in {
            Some(stop_in) if stop_in <= renew_in => (stop_in, Other::CutOff),
            Some(_) | None => (renew_in, Other::Renew),
        };
        let timer = self.seams.sleep(sleep);
        let other = {
            let told = select(self.control.next(), self.ended.next());
            let side = select(select(told, self.bell.rings()), timer);
            match select(side, work).await {
                Either::Right((done, _)) => return Ok(Round::Done(done)),
                Either::Left((Either::Left((Either::Left((Either::Left((control, _)), _)), _)), _)) => {
                    Other::Control(control)
                }
                Either::Left((Either::Left((Either::Left((Either::Right((ended, _)), _)), _)), _)) => {
                    Other::Ended(ended)
                }
                Either::Left((Either::Left((Either::Right((rang, _)), _)), _)) => Other::Bell(rang),
                Either::Left((Either::Right(((), _)), _)) => at_its_end,
            }
        };
        match other {
            Other::Ended(Some((id, outcome))) => {
                self.job_ended(id, outcome).await?;
                return Ok(Round::JobEnded);
            }
            Other::Control(Some(control)) => self.hear(control).await?,
            Other::Bell(rang) => self.bell_rang(rang).await?,
            // Both channels are ours at both ends, so they never close.
            Other::Ended(None) | Other::Control(None) => {}
            Other::CutOff => {
                self.cut_off().await?;
                return Ok(Round::CutOff);
            }
            Other::Renew => {
                if let Err(error) = self.journal.renew().await {
                    return Err(self.poison(error));
                }
                if self.bell.is_deaf() {
                    self.listen_to_inbox();
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
                // Before that nothing of ours runs, and what another process left is not ours to call cancelled.
                if self.opened {
                    self.cancel().await?;
                }
                Err(Error::cancelled("the turn was cancelled"))
            }
            Control::Stop => {
                self.stop_at.get_or_insert(self.seams.now() + limits::SHUTDOWN_GRACE);
                self.act(Event::Stop).await
            }
        }
    }

    /// Ends what runs: the time that a shutdown gave is over.
    async fn cut_off(&mut self) -> Result<(), Error> {
        self.cut_off = true;
        if !self.opened {
            return Ok(());
        }
        let ended = self.take_ended();
        self.act(Event::CutOff(ended)).await
    }

    /// Jobs that have ended and were not settled yet.
    pub(super) fn take_ended(&mut self) -> Vec<(CallId, JobOutcome)> {
        let mut ended = Vec::new();
        while let Ok((id, outcome)) = self.ended.try_recv() {
            self.tasks.remove(&id);
            ended.push((id, outcome));
        }
        ended
    }
}

/// What a round of waiting brought.
enum Round<T> {
    /// The work is done.
    Done(T),
    /// A job has ended and was handled.
    JobEnded,
    /// A shutdown's time is over; nothing runs any more.
    CutOff,
    /// The lease was renewed, or something was said from outside.
    Other,
}

enum Other {
    Ended(Option<(CallId, JobOutcome)>),
    Control(Option<Control>),
    /// True if something is in the inbox.
    Bell(bool),
    Renew,
    CutOff,
}
