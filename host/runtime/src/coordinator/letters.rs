//! Commands that others left in the session's inbox (M8, M9): the owner is woken while it waits for anything else, and reads
//! what is there on opening.

use futures::FutureExt as _;
use futures::future::{BoxFuture, pending};
use wharf_core::inbox::{Command, Letter};
use wharf_core::record::Reconcile;
use wharf_core::step::Event;
use wharf_core::{Error, ErrorKind};
use wharf_store::InboxItem;

use super::Coordinator;

/// Whether more is in the inbox than was looked at, as something to wait for.
pub(super) struct Bell {
    /// Items that stay where they are: those for others, and answers for which it is too early.
    left: usize,
    /// True if an answer is among them.
    answer_waits: bool,
    /// Rings when there are more. None after a store that could not say, until the lease is renewed.
    waits: Option<BoxFuture<'static, bool>>,
}

impl Bell {
    pub(super) fn new() -> Self {
        Self { left: 0, answer_waits: false, waits: None }
    }

    /// Ready once more is there; false if nobody can say any more.
    pub(super) fn rings(&mut self) -> BoxFuture<'_, bool> {
        match &mut self.waits {
            Some(waits) => waits.boxed(),
            None => pending().boxed(),
        }
    }

    pub(super) fn is_deaf(&self) -> bool {
        self.waits.is_none()
    }

    pub(super) fn answer_waits(&self) -> bool {
        self.answer_waits
    }
}

/// A letter that the owner can act on; `None` for what is not a command.
fn letter(item: InboxItem) -> Option<Letter> {
    let InboxItem { id, target, kind, who, at_ms: _, digest, body } = item;
    Command::KINDS.contains(&kind.as_str()).then(|| Letter { id: id.to_string(), kind, target, digest, body, who })
}

impl Coordinator {
    /// Listens for what comes from now on.
    pub(super) fn listen_to_inbox(&mut self) {
        let grows = self.journal.inbox_grows(self.bell.left);
        self.bell.waits = Some(
            grows
                .map(|grown| match grown {
                    Ok(()) => true,
                    Err(error) => {
                        tracing::debug!(%error, "the inbox cannot be watched now");
                        false
                    }
                })
                .boxed(),
        );
    }

    /// The inbox has grown, or could not be watched.
    pub(super) async fn bell_rang(&mut self, really: bool) -> Result<(), Error> {
        self.bell.waits = None;
        if really { self.read_inbox().await } else { Ok(()) }
    }

    /// Does what the commands in the inbox say, in their order. An answer for a request that is uncertain stays until this
    /// process has done what it can by itself: see [`Coordinator::answered_from_inbox`].
    ///
    /// # Errors
    /// A cancelled error after a cancel or an abandonment; store errors.
    pub(super) async fn read_inbox(&mut self) -> Result<(), Error> {
        let mut waiting = 0;
        let (letters, others) = self.letters().await?;
        for letter in letters {
            if self.machine.is_uncertain() && is_answer(&letter) {
                waiting += 1;
            } else {
                self.obey(letter).await?;
            }
        }
        self.bell.answer_waits = waiting > 0;
        self.bell.left = others + waiting;
        self.listen_to_inbox();
        Ok(())
    }

    /// The commands that wait, and how much else is in the inbox.
    async fn letters(&mut self) -> Result<(Vec<Letter>, usize), Error> {
        let items = self.journal.inbox().await?;
        let all = items.len();
        let letters: Vec<Letter> = items.into_iter().filter_map(letter).collect();
        let others = all - letters.len();
        Ok((letters, others))
    }

    /// Does what one says. A letter that does not fit is consumed and harms nobody.
    ///
    /// # Errors
    /// As [`Coordinator::read_inbox`].
    async fn obey(&mut self, letter: Letter) -> Result<(), Error> {
        let command = letter.open(self.session());
        let who = letter.who.clone();
        // Only a cancel ends what would settle them.
        let ended = if command == Ok(Command::Cancel) { self.take_ended() } else { Vec::new() };
        match (self.act(Event::Letter { letter, ended }).await, command) {
            (Ok(()), Ok(Command::Cancel)) => Err(Error::cancelled(format!("the turn was cancelled by {who}"))),
            (Ok(()), Ok(Command::Reconcile(Reconcile::Abandon))) => {
                Err(Error::cancelled(format!("the turn was abandoned by {who}")))
            }
            (Ok(()), _) => Ok(()),
            (Err(error), _) => self.unless_refused(&error),
        }
    }

    /// A refused letter is no failure of ours.
    fn unless_refused(&self, error: &Error) -> Result<(), Error> {
        self.check_usable()?;
        tracing::debug!(%error, "a command from the inbox was refused");
        Ok(())
    }

    /// What an opening does with the inbox before it settles anything: the commands are older than what its caller wants. A
    /// cancel has its effect and stops nobody; an answer is taken in place of one's own finding out.
    ///
    /// # Errors
    /// Store errors, and what [`Coordinator::reconcile`] gives.
    pub(super) async fn read_inbox_on_opening(&mut self) -> Result<(), Error> {
        let (letters, others) = self.letters().await?;
        for letter in letters {
            match self.answer(letter).await {
                Err(error) if error.kind == ErrorKind::Cancelled && !self.is_cut_off() => self.check_usable()?,
                other => other?,
            }
        }
        self.bell.left = others;
        self.listen_to_inbox();
        Ok(())
    }

    /// Takes the first answer in the inbox that counts for the request that is uncertain. True if there was one.
    ///
    /// # Errors
    /// Store errors, and what [`Coordinator::reconcile`] gives.
    pub(super) async fn answered_from_inbox(&mut self) -> Result<bool, Error> {
        if !self.bell.answer_waits {
            return Ok(false);
        }
        self.bell.answer_waits = false;
        for letter in self.letters().await?.0.into_iter().filter(is_answer) {
            if !self.machine.is_uncertain() {
                break;
            }
            self.answer(letter).await?;
        }
        self.read_inbox().await?;
        Ok(!self.machine.is_uncertain())
    }

    /// Like [`Coordinator::obey`], with a receipt's response read first (G17).
    async fn answer(&mut self, letter: Letter) -> Result<(), Error> {
        let Ok(Command::Reconcile(Reconcile::Receipt(id))) = letter.open(self.session()) else {
            return self.obey(letter).await;
        };
        match self.read_receipt(&id, &letter.who).await {
            Ok((completion, calls)) => match self.act(Event::Letter { letter, ended: Vec::new() }).await {
                Ok(()) => self.take_retrieved(id, completion, calls).await,
                Err(error) => self.unless_refused(&error),
            },
            Err(why) if self.check_usable().is_ok() && why.kind != ErrorKind::Cancelled => {
                match self.act(Event::LetterRefused { letter, why }).await {
                    Ok(()) => Ok(()),
                    Err(error) => self.unless_refused(&error),
                }
            }
            Err(error) => Err(error),
        }
    }
}

/// Whether it answers for an uncertain request.
fn is_answer(letter: &Letter) -> bool {
    matches!(
        Command::parse(&letter.kind, &letter.body),
        Ok(Command::Reconcile(Reconcile::Receipt(_) | Reconcile::Resend))
    )
}
