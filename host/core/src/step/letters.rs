//! What the owner does with a command from the inbox (M8): the record that says that it was read stands in one append with
//! what it led to, or with the reason why it led to nothing.

use super::{Effect, Event, JobOutcome, Machine, step};
use crate::error::Error;
use crate::ids::CallId;
use crate::inbox::{Command, Letter};
use crate::record::{Reconcile, Record};

impl Machine {
    /// Does what a letter says, if it still fits. With a cancel the results of these jobs, which had ended by then, stay.
    ///
    /// # Errors
    /// None that concerns the letter: one that does not fit is consumed with the reason, and ends in [`Effect::Fail`].
    pub(super) fn letter(&mut self, letter: Letter, ended: Vec<(CallId, JobOutcome)>) -> Result<Vec<Effect>, Error> {
        let done = letter.open(&self.session).and_then(|command| self.obey(command, &letter.who, ended));
        let mut effects = match done {
            Ok(effects) => effects,
            // It changed nothing, as every error of `step`.
            Err(error) if self.poisoned.is_none() => return self.refuse_letter(letter, error),
            Err(error) => return Err(error),
        };
        let read = read(letter, None);
        self.fold(std::slice::from_ref(&read))?;
        let append = effects.iter_mut().find_map(|effect| match effect {
            Effect::Append(records) => Some(records),
            Effect::Run(_) | Effect::Abort(_) | Effect::Retrieve(_) | Effect::Fail(_) => None,
        });
        match append {
            Some(records) => records.insert(0, read),
            None => effects.insert(0, Effect::Append(vec![read])),
        }
        Ok(effects)
    }

    /// Consumes a letter that leads to nothing.
    pub(super) fn refuse_letter(&mut self, letter: Letter, why: Error) -> Result<Vec<Effect>, Error> {
        let mut effects = self.commit(vec![read(letter, Some(why.message.clone()))])?;
        effects.push(Effect::Fail(why));
        Ok(effects)
    }

    fn obey(&mut self, command: Command, who: &str, ended: Vec<(CallId, JobOutcome)>) -> Result<Vec<Effect>, Error> {
        let who = who.to_owned();
        match command {
            Command::Cancel => {
                self.check_damage_on_opening()?;
                self.cancel_after(ended)
            }
            Command::Reconcile(Reconcile::Receipt(_) | Reconcile::Resend) if self.is_being_answered() => {
                Err(Error::store("the request is being answered, so nothing about it is uncertain"))
            }
            Command::Reconcile(Reconcile::Receipt(id)) => step(self, Event::ReceiptRead { id, who }),
            Command::Reconcile(command) => self.reconciled(&command, &who),
        }
    }
}

fn read(letter: Letter, refused: Option<String>) -> Record {
    let Letter { id, kind, target, who, digest: _, body: _ } = letter;
    Record::InboxConsumed { id, kind, target, who, refused }
}
