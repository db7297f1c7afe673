//! Opening a journal: lease, fold, uncertain requests, calls, launches, in this order (G1, L1); and the same settling of an
//! uncertain request in a process that lives on.

use std::collections::HashMap;

use futures::channel::mpsc;
use futures::future::{Either, select};
use wharf_core::model::{Completion, FinishedCall, Outcome, Retrieved};
use wharf_core::policy::{CallPolicy, ReplayClass};
use wharf_core::reconcile::{self, Evidence};
use wharf_core::record::Reconcile;
use wharf_core::session::Session;
use wharf_core::step::{Event, Machine, step};
use wharf_core::{CallId, CallState, Checkpoint, Error, ErrorKind, ResponseId};

use super::letters::Bell;
use super::{Coordinator, Options};
use crate::journal::Journal;
use crate::limits;

impl Coordinator {
    /// Takes the session's lease, folds its journal, settles what is uncertain, and launches what waits (L1).
    ///
    /// # Errors
    /// Busy, corruption, conflict (X14, L15), a store error where an operator has to answer (G16). The lease is given up
    /// again then; what was settled and journaled before stays (G3).
    pub async fn open(options: Options) -> Result<Self, Error> {
        let Options {
            store,
            key,
            label,
            acquire,
            claimed,
            executor,
            seams,
            settings,
            retriever,
            harness,
            accept_wider,
            listener,
            on_start,
            reconcile,
            for_new_turn,
        } = options;
        let (journal, session) = Journal::open(store, seams.clone(), &key, &label, claimed, acquire).await?;
        let (ended_sender, ended) = mpsc::unbounded();
        let (control_sender, control) = mpsc::unbounded();
        let mut coordinator = Self {
            machine: Machine::new(Session::default(), settings.clone()),
            journal,
            executor,
            seams,
            retriever,
            listener,
            tasks: HashMap::new(),
            ended,
            ended_sender,
            control,
            control_sender,
            to_retrieve: None,
            acting: false,
            closed: false,
            opened: false,
            stop_at: None,
            cut_off: false,
            bell: Bell::new(),
        };
        if let Some(on_start) = on_start {
            on_start(coordinator.handle());
        }
        let opened = match session {
            Ok(session) => {
                coordinator.machine = Machine::new(session, settings);
                coordinator.opened(harness, accept_wider, reconcile, for_new_turn).await
            }
            Err(error) => Err(error),
        };
        match opened {
            Ok(()) => Ok(coordinator),
            Err(error) => {
                coordinator.failed_with(&error);
                coordinator.abort().await;
                Err(error)
            }
        }
    }

    async fn opened(
        &mut self,
        harness: Option<wharf_core::record::HarnessFacts>,
        accept_wider: bool,
        reconcile: Option<(wharf_core::record::Reconcile, String)>,
        for_new_turn: bool,
    ) -> Result<(), Error> {
        if let Some(turn) = self.session().open_turn() {
            // Before anything of it is settled or started: the caller means another one.
            if for_new_turn {
                return Err(Error::store("a turn of this session is open").hint("wharf session resume SESSION"));
            }
            turn.checkpoint.check_damage()?;
        }
        if reconcile.is_none() {
            self.read_inbox_on_opening().await?;
        } else {
            self.listen_to_inbox();
        }
        // An operator who gives the turn up is asked nothing else.
        let abandons = matches!(reconcile, Some((Reconcile::Abandon, _)));
        if let (Some(facts), false) = (&harness, abandons) {
            crate::resume::compare(self.session(), facts, accept_wider)?;
        }
        match reconcile {
            Some((Reconcile::Receipt(id), who)) => self.accept_receipt(id, who).await?,
            Some((command, who)) => self.act(Event::Reconcile { command, who }).await?,
            None => self.settle_uncertain().await?,
        }
        // What the journal says is in force was compared or accepted by an earlier opening, with every call that was open.
        let accepted = accept_wider || (harness.is_some() && self.session().harness() == harness.as_ref());
        let policies = self.policies(accepted)?;
        if let (Some(facts), Some(_)) = (harness, self.session().open_turn()) {
            // A harness under which the calls may not be opened is not in force.
            step(&mut self.machine.clone(), Event::Opened { policies: policies.clone() })?;
            self.bind_harness(facts).await?;
        }
        self.act(Event::Opened { policies }).await?;
        self.opened = true;
        Ok(())
    }

    /// Takes an operator's word that this response took the request in flight: reads it, so that its calls and its text
    /// count as if they had streamed (G17).
    ///
    /// # Errors
    /// A store error, with nothing changed, where it cannot be read, is not at its end, or was not accepted (G20).
    pub(super) async fn accept_receipt(&mut self, id: ResponseId, who: String) -> Result<(), Error> {
        let (completion, calls) = self.read_receipt(&id, &who).await?;
        self.act(Event::ReceiptRead { id: id.clone(), who }).await?;
        self.take_retrieved(id, completion, calls).await
    }

    /// Reads the response that an operator names as the receipt. Changes nothing.
    ///
    /// # Errors
    /// As [`Coordinator::accept_receipt`].
    pub(super) async fn read_receipt(
        &mut self,
        id: &ResponseId,
        who: &str,
    ) -> Result<(Completion, Vec<FinishedCall>), Error> {
        // Nobody is asked for an answer to nothing.
        reconcile::receipt_read(self.session(), id, who)?;
        let maker = self.maker_in_flight();
        let refused = |why: &str| {
            Err(Error::store(format!("response {:?} {why}, so it cannot be taken as the receipt", id.as_str()))
                .hint("send the request again: wharf session reconcile SESSION --resend, or end the turn: --abandon"))
        };
        let asked = match self.can_retrieve(maker.as_deref()) {
            true => self.retrieve(maker.as_deref(), id).await?,
            false => None,
        };
        match asked {
            Some(Retrieved::Ended { completion, calls }) => match completion.outcome {
                Outcome::Completed | Outcome::Incomplete { .. } => Ok((completion, calls)),
                Outcome::Failed { .. } | Outcome::Cancelled => refused("failed or was cancelled at the provider"),
            },
            Some(Retrieved::InProgress) => refused("is still being made"),
            Some(Retrieved::NotFound) => refused("is not known to the provider"),
            None => refused("cannot be read from the provider"),
        }
    }

    fn can_retrieve(&self, maker: Option<&str>) -> bool {
        self.retriever.as_ref().is_some_and(|retriever| retriever.reaches(maker))
    }

    fn maker_in_flight(&self) -> Option<String> {
        self.session().open_turn().and_then(|turn| turn.flight.as_ref()?.begun.maker.clone())
    }

    /// Authorises each call that is not settled, in order (L1). Where a wider harness was accepted, open calls keep the replay
    /// class that they were made with.
    fn policies(&self, accept_wider: bool) -> Result<Vec<(CallId, CallPolicy)>, Error> {
        let Some(turn) = self.session().open_turn() else { return Ok(Vec::new()) };
        turn.checkpoint
            .live_calls()
            .filter(|p| matches!(p.state, CallState::Queued | CallState::Running))
            .filter(|p| !turn.checkpoint.is_orphan(&p.call.id))
            .map(|p| {
                let mut policy = self.executor.authorize(&p.call)?;
                if accept_wider && policy.replay != ReplayClass::Never {
                    policy.replay = p.replay;
                }
                Ok((p.call.id.clone(), policy))
            })
            .collect()
    }

    /// Settles a request whose fate is uncertain, after a crash or after a stream that broke (G13 to G20). Nothing to do if
    /// none is. Calls that run go on meanwhile (L57).
    ///
    /// # Errors
    /// A store error that names the commands where an operator has to answer (G16).
    pub async fn settle_uncertain(&mut self) -> Result<(), Error> {
        if self.answered_from_inbox().await? {
            return Ok(());
        }
        let maker = self.maker_in_flight();
        let can_retrieve = self.can_retrieve(maker.as_deref());
        self.act(Event::Resolve(Evidence::Unasked { can_retrieve })).await?;
        let Some(id) = self.to_retrieve.take() else { return Ok(()) };
        match self.retrieve(maker.as_deref(), &id).await? {
            Some(Retrieved::Ended { completion, calls }) => self.take_retrieved(id, completion, calls).await,
            Some(Retrieved::InProgress | Retrieved::NotFound) | None => {
                if self.answered_from_inbox().await? {
                    return Ok(());
                }
                self.act(Event::Resolve(Evidence::Unsettled)).await
            }
        }
    }

    /// Goes on with a response that was read as a whole as if it had streamed to its end (P21).
    pub(super) async fn take_retrieved(
        &mut self,
        id: ResponseId,
        mut completion: Completion,
        calls: Vec<FinishedCall>,
    ) -> Result<(), Error> {
        completion.id.get_or_insert(id);
        let accepted = matches!(completion.outcome, Outcome::Completed | Outcome::Incomplete { .. });
        // Of a response that counts as not accepted no call counts, so none is started only to be an orphan.
        for finished in calls.into_iter().filter(|_| accepted) {
            let stored = match self.session().open_turn() {
                Some(turn) => reconcile::is_stored(turn, &finished.call)?,
                None => false,
            };
            if !stored {
                self.register(finished).await?;
            }
        }
        match self.act(Event::Completed { completion: completion.clone(), first_token_ms: None }).await {
            Ok(()) => self.finish_pending_message(Some(&completion)).await,
            // Not accepted is an answer too: the calls are ready again and the turn goes on (G20).
            Err(error) if error.kind == ErrorKind::Provider && !self.is_in_flight() => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Asks until the response is at an end, within a bound. `None` if nobody could say.
    async fn retrieve(&mut self, maker: Option<&str>, id: &ResponseId) -> Result<Option<Retrieved>, Error> {
        let Some(retriever) = self.retriever.clone() else { return Ok(None) };
        let give_up = self.seams.now() + limits::RETRIEVE_WAIT;
        loop {
            let left = give_up.saturating_sub(self.seams.now());
            let asked = select(retriever.retrieve(maker, id), self.seams.sleep(left));
            match self.drive(asked).await? {
                Either::Left((Ok(Retrieved::InProgress), _)) => {
                    if self.seams.now() + limits::RETRIEVE_EVERY >= give_up {
                        return Ok(Some(Retrieved::InProgress));
                    }
                    let pause = self.seams.sleep(limits::RETRIEVE_EVERY);
                    self.drive(pause).await?;
                    if self.bell.answer_waits() {
                        return Ok(None); // somebody knows better
                    }
                }
                Either::Left((Ok(answer), _)) => return Ok(Some(answer)),
                Either::Left((Err(error), _)) => {
                    tracing::warn!(response = %id, error = %error.error, "a response could not be retrieved");
                    return Ok(None);
                }
                Either::Right(((), _)) => {
                    tracing::warn!(response = %id, "a response could not be retrieved in time");
                    return Ok(None);
                }
            }
        }
    }

    fn is_in_flight(&self) -> bool {
        self.checkpoint().is_some_and(Checkpoint::response_in_flight)
    }
}
