//! Commands that somebody who does not own a session leaves for its owner (conformance M8): what one is about, whether it
//! still fits when the owner reads it, and how it is stored. Only the owner turns a command into records.
//!
//! A command is bound to what its author saw by a digest. The owner of a session that has moved on since refuses it with the
//! reason, and that too is journaled.

use serde_json::{Value, json};

use crate::digest::Digest;
use crate::error::Error;
use crate::record::{PauseReason, Reconcile};
use crate::session::Session;

/// What can be left for a session's owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Cancel what runs and what waits in the open turn (H).
    Cancel,
    /// An operator's answer for an uncertain request, or the end of the turn (G17).
    Reconcile(Reconcile),
}

/// What a command is about, at the moment at which it is left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct About {
    /// The first command on a target wins. A target is free again once the owner has read what was left on it.
    pub target: String,
    /// Fits only what its author saw.
    pub digest: String,
}

/// A command as it stands in the inbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Letter {
    /// The inbox's id of it.
    pub id: String,
    /// [`Command::kind`].
    pub kind: String,
    /// [`About::target`].
    pub target: String,
    /// [`About::digest`].
    pub digest: String,
    /// [`Command::body`].
    pub body: String,
    /// Who left it, for people.
    pub who: String,
}

impl Command {
    /// The kinds of item that are commands; others are not for this module.
    pub const KINDS: [&str; 2] = ["cancel", "reconcile"];

    /// Its kind in an inbox.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Cancel => "cancel",
            Self::Reconcile(_) => "reconcile",
        }
    }

    /// Its body in an inbox: JSON text.
    pub fn body(&self) -> String {
        let body = match self {
            Self::Cancel => json!({}),
            Self::Reconcile(Reconcile::Receipt(id)) => json!({ "command": "receipt", "id": id.as_str() }),
            Self::Reconcile(Reconcile::Resend) => json!({ "command": "resend" }),
            Self::Reconcile(Reconcile::Abandon) => json!({ "command": "abandon" }),
        };
        body.to_string()
    }

    /// Reads kind and body.
    ///
    /// # Errors
    /// A config error that says what is wrong with it.
    pub fn parse(kind: &str, body: &str) -> Result<Self, Error> {
        let bad = |why: String| Error::config(format!("a {kind:?} command cannot be read: {why}"));
        let value: Value = serde_json::from_str(body).map_err(|error| bad(error.to_string()))?;
        let word = |name: &str| value.get(name).and_then(Value::as_str);
        match (kind, word("command")) {
            ("cancel", _) => Ok(Self::Cancel),
            ("reconcile", Some("resend")) => Ok(Self::Reconcile(Reconcile::Resend)),
            ("reconcile", Some("abandon")) => Ok(Self::Reconcile(Reconcile::Abandon)),
            ("reconcile", Some("receipt")) => match word("id") {
                Some(id) if !id.trim().is_empty() => Ok(Self::Reconcile(Reconcile::Receipt(id.into()))),
                Some(_) | None => Err(bad("it names no response".to_owned())),
            },
            ("reconcile", other) => Err(bad(format!("its command is {other:?}"))),
            (_, _) => Err(bad("no such kind is known".to_owned())),
        }
    }

    /// What it would be about now.
    ///
    /// # Errors
    /// A store error where there is nothing that it could be about: no turn is open, or nothing waits for this answer.
    pub fn about(&self, session: &Session) -> Result<About, Error> {
        let Some(turn) = session.open_turn() else {
            return Err(Error::store("no turn of this session is open"));
        };
        let seen = match self {
            // The turn as such, however far it is.
            Self::Cancel | Self::Reconcile(Reconcile::Abandon) => Value::Null,
            Self::Reconcile(Reconcile::Receipt(_) | Reconcile::Resend) => {
                let lost = matches!(turn.paused, Some(PauseReason::LostResponse { .. }));
                if turn.flight.is_none() && !lost {
                    return Err(Error::store("no request is in flight and nothing waits for an answer"));
                }
                json!({ "request": session.requests(), "in_flight": turn.flight.is_some() })
            }
        };
        let about = json!({ "kind": self.kind(), "turn": turn.id.as_str(), "seen": seen });
        Ok(About {
            target: format!("{} {} {}", self.kind(), turn.id, session.letters_read()),
            digest: Digest::of_json(&about).to_string(),
        })
    }
}

impl Letter {
    /// The command, if it still fits.
    ///
    /// # Errors
    /// Why it does not.
    pub fn open(&self, session: &Session) -> Result<Command, Error> {
        let command = Command::parse(&self.kind, &self.body)?;
        if command.about(session)?.digest != self.digest {
            return Err(Error::store("the session has moved on since this was said"));
        }
        Ok(command)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use crate::record::{Begun, Record};

    fn session(records: &[Record]) -> Session {
        Session::fold(records).unwrap()
    }

    fn begun(ordinal: u64) -> Record {
        Record::ResponseBegun(Begun { ordinal, whole_history: true, ..Begun::default() })
    }

    fn started(turn: &str) -> Record {
        Record::TurnStarted { turn: turn.into(), input: Vec::new(), closes: Vec::new() }
    }

    fn letter(command: &Command, seen: &Session) -> Letter {
        let About { target, digest } = command.about(seen).unwrap();
        let (kind, body) = (command.kind().to_owned(), command.body());
        Letter { id: "i1".into(), kind, target, digest, body, who: "op".into() }
    }

    // covers M8
    #[test]
    fn a_command_reads_back_as_what_it_is() {
        let commands = [
            Command::Cancel,
            Command::Reconcile(Reconcile::Resend),
            Command::Reconcile(Reconcile::Abandon),
            Command::Reconcile(Reconcile::Receipt("resp_1".into())),
        ];
        for command in commands {
            assert_eq!(Command::parse(command.kind(), &command.body()), Ok(command));
        }
        let why = |kind, body| Command::parse(kind, body).unwrap_err().message;
        assert_eq!(
            why("reconcile", r#"{"command":"receipt","id":" "}"#),
            r#"a "reconcile" command cannot be read: it names no response"#
        );
        assert_eq!(
            why("reconcile", r#"{"command":"again"}"#),
            r#"a "reconcile" command cannot be read: its command is Some("again")"#
        );
        assert_eq!(why("decision", "{}"), r#"a "decision" command cannot be read: no such kind is known"#);
        assert!(why("cancel", "{").starts_with(r#"a "cancel" command cannot be read: EOF"#));
    }

    // covers M8
    #[test]
    fn a_command_fits_what_its_author_saw_and_nothing_later() {
        let (mut before, resend) = (session(&[started("t1"), begun(1)]), Command::Reconcile(Reconcile::Resend));
        let (answer, cancel) = (letter(&resend, &before), letter(&Command::Cancel, &before));
        assert_eq!(answer.open(&before), Ok(resend.clone()));
        assert_eq!(cancel.open(&before), Ok(Command::Cancel));

        // The request was settled and another one is in flight.
        let fate = crate::record::FlightFate::Lost;
        before.apply(&Record::FlightSettled { fate, why: String::new(), orphans: Vec::new() }).unwrap();
        assert_eq!(
            answer.open(&before).unwrap_err().message,
            "no request is in flight and nothing waits for an answer"
        );
        before.apply(&begun(2)).unwrap();
        assert_eq!(answer.open(&before).unwrap_err().message, "the session has moved on since this was said");
        assert_eq!(cancel.open(&before), Ok(Command::Cancel), "the same turn is open");

        let other = session(&[started("t2"), begun(1)]);
        for letter in [&answer, &cancel] {
            assert_eq!(letter.open(&other).unwrap_err().message, "the session has moved on since this was said");
        }
        assert_eq!(cancel.open(&session(&[])).unwrap_err().message, "no turn of this session is open");
    }

    // covers M8
    #[test]
    fn a_target_is_free_again_once_its_command_was_read() {
        let mut session = session(&[started("t1")]);
        let first = Command::Cancel.about(&session).unwrap();
        assert_eq!(first.target, "cancel t1 0");
        let consumed = Record::InboxConsumed {
            id: "i1".into(),
            kind: "cancel".into(),
            target: first.target.clone(),
            who: "op".into(),
            refused: None,
        };
        session.apply(&consumed).unwrap();
        let second = Command::Cancel.about(&session).unwrap();
        assert_eq!((second.target.as_str(), &second.digest), ("cancel t1 1", &first.digest));
        let abandon = Command::Reconcile(Reconcile::Abandon).about(&session).unwrap();
        assert_eq!(abandon.target, "reconcile t1 1");
        assert_ne!(abandon.digest, second.digest, "the one cannot stand in for the other");
    }
}
