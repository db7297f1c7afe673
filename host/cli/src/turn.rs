//! Runs a turn for a person: text as it comes, talk about calls, and at the end how to go on. `run`, `session resume` and
//! `session reconcile` are this with different beginnings.

use std::sync::Arc;
use std::time::Instant;

use serde_json::{Value, json};
use wharf::core::harness::ModelRef;
use wharf::core::record::{PauseReason, Reconcile};
use wharf::core::{Error, ErrorKind};
use wharf::store::JournalKey;
use wharf::{Session, TurnOptions, TurnResult, TurnStatus};

use crate::args::TurnArgs;
use crate::exit::{self, Exit};
use crate::open::{self, HarnessFile};
use crate::say::{count, duration, plain, shell};
use crate::screen::{self, Screen};
use crate::signals::Signals;
use crate::story::{Story, entries, pause_json, pause_text, read_on};
use crate::watch::Watch;

/// How a turn begins.
pub(crate) enum Beginning {
    /// With a question.
    Question(String),
    /// It is open already.
    Resume {
        /// Go on although the harness grants more than before.
        accept_wider: bool,
    },
    /// With an operator's answer.
    Reconcile {
        /// What.
        answer: Reconcile,
        /// As for a resume.
        accept_wider: bool,
    },
}

/// Runs a turn of this session, or of a new one.
///
/// # Errors
/// Whatever keeps the turn from running. A turn that runs and fails is told here, and is an exit.
pub(crate) async fn run(
    file: &HarnessFile,
    args: TurnArgs,
    session: Option<&str>,
    beginning: Beginning,
) -> anyhow::Result<Exit> {
    let key = session.map(open::session_key).transpose()?;
    let model = args.model.as_deref().map(ModelRef::parse).transpose()?;
    let harness = file.read()?;
    let signals = Signals::listen()?;
    let store = file.store(&harness).await?;
    if let (Some(key), Beginning::Resume { .. } | Beginning::Reconcile { .. }) = (&key, &beginning) {
        open::existing_session(&*store, key.session.as_str()).await?;
    }
    let wharf = file.wharf(Some(store.clone()))?;
    let agent = file.load(&wharf, harness).await?;
    open::warn_of_refused(&agent);
    if agent.tools().iter().next().is_none() && agent.harness().capabilities().any(|one| one.enabled) {
        screen::warning("the model has no tools");
    }
    let session = match &key {
        Some(key) => agent.session(key.session.clone()),
        None => agent.new_session(),
    };
    let key = JournalKey::local(session.id().clone());
    let mut records = entries(&*store, &key).await?;
    let screen = Arc::new(if args.json { Screen::without_text() } else { Screen::with_text() });
    let mut watch = Watch::new(screen.clone(), &Story::of(&records));
    let begun = Instant::now();
    let abandons = matches!(beginning, Beginning::Reconcile { answer: Reconcile::Abandon, .. });
    let turn = Turn { file, args: &args, session: &session, signals: &signals, model };
    let done = turn.drive(beginning, &mut watch).await;
    screen.end_text();
    let stopped = signals.over();

    read_on(&*store, &key, &mut records).await?;
    let after = Story::of(&records);
    let next = Next { session: session.id().as_str(), flag: &file.flag, is_open: after.is_open() };
    let exit = match &done {
        Ok(result) => told(result, &next, begun, abandons),
        // It was still being opened: nothing of the turn was done by this process.
        Err(error) if stopped && error.kind == ErrorKind::Cancelled => {
            screen::say(&format!("stopped; session {} is as it was", plain(next.session)));
            screen::hint(&format!("go on with: {}", next.resume()));
            Exit::Ok
        }
        Err(error) => failed(error, &next),
    };
    if args.json {
        screen::print_json(&as_json(done.as_ref(), &next))?;
    }
    screen.check()?;
    Ok(exit)
}

struct Turn<'t> {
    file: &'t HarnessFile,
    args: &'t TurnArgs,
    session: &'t Session,
    signals: &'t Signals,
    model: Option<ModelRef>,
}

impl Turn<'_> {
    async fn drive(self, beginning: Beginning, watch: &mut Watch) -> Result<TurnResult, Error> {
        let (records, notes, signals) = (watch.clone(), watch.clone(), self.signals.clone());
        let options = TurnOptions {
            model: self.model,
            max_responses: self.args.max_responses,
            records: Some(Box::new(move |_, record| records.record(record))),
            tools: Some(Arc::new(move |note| notes.note(&note))),
            on_start: Some(Box::new(move |handle| signals.working(handle))),
            accept_wider: match beginning {
                Beginning::Question(_) => false,
                Beginning::Resume { accept_wider } | Beginning::Reconcile { accept_wider, .. } => accept_wider,
            },
            take_over: self.args.take_over,
            claimed: None,
            no_stream: self.args.no_stream,
        };
        self.signals.opening();
        tracing::debug!(session = %self.session.id(), harness = %self.file.path.display(), "a turn begins");
        match beginning {
            Beginning::Question(question) => self.session.turn(&question, options, watch).await,
            Beginning::Resume { .. } => self.session.resume(options, watch).await,
            Beginning::Reconcile { answer, .. } => self.session.reconcile(answer, &who(), options, watch).await,
        }
    }
}

/// Who answers: a word for people.
pub(crate) fn who() -> String {
    std::env::var("USER").unwrap_or_else(|_| "an operator".to_owned()) // there may be no such variable
}

/// How one can go on.
struct Next<'n> {
    session: &'n str,
    flag: &'n str,
    is_open: bool,
}

impl Next<'_> {
    fn resume(&self) -> String {
        format!("wharf session resume {}{}", shell(self.session), self.flag)
    }

    /// A hint of the library with the session's name in it.
    fn hint(&self, hint: &str) -> String {
        hint.replace("SESSION", &format!("{}{}", shell(self.session), self.flag))
    }
}

fn told(result: &TurnResult, next: &Next<'_>, begun: Instant, abandons: bool) -> Exit {
    let tokens = result.usage.get("total").and_then(Value::as_u64).unwrap_or(0);
    let facts = format!(
        "{}, {}, {tokens} tokens, {}",
        count(result.llm_calls, "response", "responses"),
        count(result.tool_calls, "call", "calls"),
        duration(begun.elapsed())
    );
    match &result.status {
        TurnStatus::Completed => {
            screen::say(&format!("{}session {}: {facts}{:#}", screen::DIM, plain(next.session), screen::DIM));
            if result.refusal.is_some() {
                screen::error("the model declined to answer");
                return Exit::Failed;
            }
            Exit::Ok
        }
        TurnStatus::Abandoned => {
            screen::say(&format!("session {}: the turn was abandoned", plain(next.session)));
            if abandons { Exit::Ok } else { Exit::Failed }
        }
        TurnStatus::Paused(reason) => {
            screen::say(&format!("session {}: the turn waits: {}", plain(next.session), pause_text(reason)));
            screen::hint(&format!("go on with: {}", next.resume()));
            // Stopping is what was asked for.
            if *reason == PauseReason::Shutdown { Exit::Ok } else { Exit::Paused }
        }
    }
}

fn failed(error: &Error, next: &Next<'_>) -> Exit {
    let exit = Exit::of(error.kind);
    if exit == Exit::Cancelled {
        screen::say(&format!("cancelled; what was gained is kept in session {}", plain(next.session)));
    } else {
        for told in exit::faults(&error.clone().into()) {
            screen::error(&told.message);
            if let Some(hint) = told.hint {
                screen::hint(&next.hint(&hint));
            }
        }
    }
    let needs_answer = error.hint.as_deref().is_some_and(|hint| hint.contains("SESSION"));
    if next.is_open && !needs_answer {
        screen::hint(&format!("the turn is kept; go on with: {}", next.resume()));
    }
    exit
}

fn as_json(done: Result<&TurnResult, &Error>, next: &Next<'_>) -> Value {
    match done {
        Ok(result) => json!({
            "session": next.session,
            "status": match &result.status {
                TurnStatus::Completed => "completed",
                TurnStatus::Abandoned => "abandoned",
                TurnStatus::Paused(_) => "paused",
            },
            "paused": match &result.status {
                TurnStatus::Paused(reason) => pause_json(reason),
                TurnStatus::Completed | TurnStatus::Abandoned => Value::Null,
            },
            "text": result.text,
            "refusal": result.refusal,
            "usage": result.usage,
            "llm_calls": result.llm_calls,
            "tool_calls": result.tool_calls,
            "error": null,
        }),
        Err(error) => json!({
            "session": next.session,
            "status": "failed",
            "error": {
                "kind": error.kind.as_str(),
                "message": error.message,
                "hint": error.hint.as_deref().map(|hint| next.hint(hint)),
            },
            "resumable": next.is_open,
        }),
    }
}
