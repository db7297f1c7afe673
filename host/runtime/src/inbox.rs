//! Telling the owner of a session to cancel its turn, or an operator's answer, from any process (M8). Where nobody owns the
//! session, a cancel is done here.

use std::sync::Arc;
use std::time::Duration;

use wharf_core::inbox::{About, Command, Letter};
use wharf_core::session::Session;
use wharf_core::step::{Effect, Event, Machine, Settings, step};
use wharf_core::{Error, InboxId, Record, Seq};
use wharf_store::{Acquire, InboxItem, InboxPut, JournalKey, Store, StoreError};

use crate::journal::{self, Journal};
use crate::limits;
use crate::seams::Seams;

/// What became of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    /// Nobody owned the session, and it was done here.
    Done,
    /// Nobody owns the session: open it with this answer. Nothing was left in the inbox before that was known.
    Free,
    /// The owner did it.
    Taken {
        /// Who, for people.
        owner: String,
    },
    /// The owner read it and did not do it.
    Refused {
        /// Who, for people.
        owner: String,
        /// Why.
        why: String,
    },
    /// It is in the inbox, and the owner did not read it in time.
    Waiting {
        /// Who, for people.
        owner: String,
    },
}

/// Leaves a command for the owner of a session and waits for its answer, or does it where nobody owns the session.
///
/// # Errors
/// A store error where the command is about nothing (no turn is open), where another command on the same was left before,
/// and where the store fails; a corruption error for a journal that cannot be read.
pub async fn tell(
    store: Arc<dyn Store>,
    seams: Arc<dyn Seams>,
    key: &JournalKey,
    command: &Command,
    who: &str,
    patience: Duration,
) -> Result<Told, Error> {
    let give_up = seams.now() + patience;
    let mut left: Option<(InboxId, Seq)> = None;
    let mut next_try = seams.now();
    let mut owner = String::new();
    loop {
        if let Some((id, after)) = &mut left
            && let Some(refused) = read_by_owner(&*store, key, id, after).await?
        {
            return Ok(match refused {
                None => Told::Taken { owner },
                Some(why) => Told::Refused { owner, why },
            });
        }
        if seams.now() >= next_try {
            next_try = seams.now() + limits::OWNER_LOOK_EVERY;
            match Journal::acquire(store.clone(), seams.clone(), key, who, Acquire::IfFree).await {
                Ok(mut journal) => {
                    let done = match command {
                        Command::Cancel => cancel(&mut journal, &*store, key, who, &*seams).await.map(|()| Told::Done),
                        Command::Reconcile(_) => Ok(Told::Free),
                    };
                    journal.release_quietly().await;
                    return done;
                }
                Err(StoreError::Busy { owner: busy, .. }) => owner = busy,
                Err(error) => return Err(error.into()),
            }
        }
        if left.is_none() {
            let folded = journal::fold(&*store, key).await?;
            left = Some((leave(&*store, key, &folded.session, command, who, &*seams).await?, folded.head));
        }
        if seams.now() >= give_up {
            return Ok(Told::Waiting { owner });
        }
        seams.sleep(limits::ANSWER_LOOK_EVERY).await;
    }
}

/// Puts a command into the inbox.
async fn leave(
    store: &dyn Store,
    key: &JournalKey,
    session: &Session,
    command: &Command,
    who: &str,
    seams: &dyn Seams,
) -> Result<InboxId, Error> {
    let About { target, digest } = command.about(session)?;
    let id = InboxId::new(seams.fresh());
    let item = InboxItem {
        id: id.clone(),
        target,
        kind: command.kind().to_owned(),
        who: who.to_owned(),
        at_ms: seams.wall_ms(),
        digest,
        body: command.body(),
    };
    match store.put_inbox(key, item).await? {
        InboxPut::Accepted | InboxPut::Repeated => Ok(id),
        InboxPut::TooLate => {
            Err(Error::store("another command about the same was left before and waits for the session's owner")
                .hint("look at what became of it: wharf session show SESSION"))
        }
    }
}

/// Whether the owner has read an item: `Some(None)` if it was done, `Some(reason)` if not.
async fn read_by_owner(
    store: &dyn Store,
    key: &JournalKey,
    item: &InboxId,
    after: &mut Seq,
) -> Result<Option<Option<String>>, Error> {
    let stored = store.history(key, *after, limits::SESSIONS_LISTED_MAX).await?;
    if let Some(last) = stored.last() {
        *after = last.seq;
    }
    for record in stored {
        let record = &record.record;
        if record.kind == "inbox.consumed"
            && let Record::InboxConsumed { id, refused, .. } =
                Record::decode(&record.kind, record.version, &record.body, |_| None)?
            && id == item.as_str()
        {
            return Ok(Some(refused));
        }
    }
    Ok(None)
}

/// Cancels as the owner: what another process left running is settled as cancelled, an uncertain request stays so, and the
/// turn is parked (H, L62).
async fn cancel(
    journal: &mut Journal,
    store: &dyn Store,
    key: &JournalKey,
    who: &str,
    seams: &dyn Seams,
) -> Result<(), Error> {
    let session = journal.read().await?;
    let id = leave(store, key, &session, &Command::Cancel, who, seams).await;
    let items = journal.inbox().await?;
    // Whoever left the same before has said it too.
    let about = Command::Cancel.about(&session)?;
    let Some(item) = items.into_iter().find(|item| item.target == about.target) else { return id.map(drop) };
    let InboxItem { id, target, kind, who, at_ms: _, digest, body } = item;
    let letter = Letter { id: id.to_string(), kind, target, digest, body, who };
    let mut machine = Machine::new(session, Settings::default());
    let mut records = Vec::new();
    for effect in step(&mut machine, Event::Letter { letter, ended: Vec::new() })? {
        match effect {
            Effect::Append(more) => records.extend(more),
            Effect::Fail(error) => return Err(error),
            // Nothing runs here, and a cancel starts nothing.
            Effect::Run(_) | Effect::Abort(_) | Effect::Retrieve(_) => {}
        }
    }
    records.push(Record::Parked { why: "the turn was cancelled".to_owned() });
    journal.hands_off();
    journal.append(&records, machine.session()).await?;
    Ok(())
}

/// Takes a session from whoever has it, and lets it go: the former owner finds out at its next append or renewal, which fail in
/// the store itself (M2), and stops acting. Where a turn is open, that it was taken is journaled.
///
/// # Errors
/// Store and corruption errors.
pub async fn take_over(store: Arc<dyn Store>, seams: Arc<dyn Seams>, key: &JournalKey, who: &str) -> Result<(), Error> {
    let mut journal = Journal::acquire(store, seams, key, who, Acquire::TakeOver).await?;
    // Else a worker would have it at once.
    journal.hands_off();
    let done = async {
        let session = journal.read().await?;
        if session.open_turn().is_some() {
            // It changes nothing of the fold.
            journal.append(&[Record::Parked { why: format!("{who} took the session over") }], &session).await?;
        }
        Ok(())
    }
    .await;
    journal.release_quietly().await;
    done
}
