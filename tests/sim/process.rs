//! What one process does with the session: opens it, runs its turns as the library's session does, answers what it is told to
//! answer, and gives the lease up.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use wharf::coordinator::{Coordinator, Options, Rest};
use wharf::inbox::{take_over, tell};
use wharf::limits::SNAPSHOT_AFTER_BYTES;
use wharf_core::history::History;
use wharf_core::inbox::Command;
use wharf_core::model::{Item, Role};
use wharf_core::policy::Hold;
use wharf_core::reconcile::UncertaintyRules;
use wharf_core::record::{PauseReason, Reconcile};
use wharf_core::session::Session;
use wharf_core::step::{Decision, Settings};
use wharf_core::{CallId, Error, ErrorKind, ResponseId};
use wharf_store::Acquire;

use crate::outside::{Event, Owner, marked};
use crate::provider::Client;
use crate::script::{HoldPlan, Says, Script};
use crate::tools::Tools;
use crate::world::{Exit, World};

/// Requests of one turn. No script comes near.
const RESPONSES_MAX: u64 = 100;

/// As the library's session does.
const SETTLE_ATTEMPTS: u32 = 4;

/// How long somebody waits who tells the owner something.
const PATIENCE: Duration = Duration::from_secs(30);

/// How a session is opened.
pub struct Opening {
    pub how: Acquire,
    pub reconcile: Option<Reconcile>,
    /// Answers are given by the process that asks, instead of by the next one.
    pub answers_itself: bool,
}

/// Opens the session and goes on with it as far as it can.
pub async fn work(world: World, owner: Owner, opening: Opening) -> Exit {
    let mut options =
        Options::new(world.store().clone(), world.key(), Tools::shared(&world, owner), world.sim().shared());
    options.acquire = opening.how;
    options.settings = settings(world.script());
    options.retriever = world.script().retrieves.then(|| Arc::new(world.clone()) as _);
    options.reconcile = opening.reconcile.map(|command| (command, "operator".to_owned()));
    let known = world.clone();
    options.on_start = Some(Box::new(move |handle| {
        known.saw(Event::Opened(owner));
        known.lock().handles.insert(owner, handle);
    }));
    let mut coordinator = match Coordinator::open(options).await {
        Ok(coordinator) => coordinator,
        Err(error) => return failed(&error),
    };
    let mut client = Client { world: world.clone(), owner, history: History::new() };
    match turns(&world, &mut coordinator, &mut client, opening.answers_itself).await {
        Ok(exit) => exit,
        Err(error) => {
            // As the library's session does: what runs comes to its end, then the lease is given up.
            if let Err(failure) = coordinator.wind_down().await
                && failure.kind == ErrorKind::Corruption
            {
                return failed(&failure);
            }
            coordinator.abort().await;
            failed(&error)
        }
    }
}

fn settings(script: &Script) -> Settings {
    let says = |what| script.says.contains(&what);
    let rules = UncertaintyRules {
        resend_unknown: says(Says::ResendUnknown),
        continue_after_lost: says(Says::GoesOn),
        ..UncertaintyRules::default()
    };
    Settings { parallel: !says(Says::Serial), uncertainty: rules, ..Settings::default() }
}

/// What an error asks for.
fn failed(error: &Error) -> Exit {
    match error.hint.as_ref().is_some_and(|hint| hint.contains("reconcile")) {
        true if error.kind == ErrorKind::Store => Exit::NeedsAnswer,
        _ => Exit::Stopped(error.to_string()),
    }
}

async fn turns(world: &World, c: &mut Coordinator, client: &mut Client, answers: bool) -> Result<Exit, Error> {
    loop {
        if c.session().open_turn().is_none() {
            if let Some(shown) = shown(c.session()) {
                world.saw(shown);
            }
            let over = c.session().turns_ended();
            if over >= world.script().turns as u64 {
                c.release().await?;
                return Ok(Exit::Done);
            }
            let is_long = world.script().says.contains(&Says::LongInput) && over + 1 == world.script().turns as u64;
            let padding = " ".repeat(if is_long { SNAPSHOT_AFTER_BYTES } else { 0 });
            let said = Item::Message { role: Role::User, text: format!("input {}{padding}", over + 1) };
            c.start_turn(vec![said]).await?;
        }
        if let Some(exit) = turn(world, c, client, answers).await? {
            return Ok(exit);
        }
    }
}

/// How the last turn ended, as a person is shown it.
fn shown(session: &Session) -> Option<Event> {
    let turn = session.turn()?;
    Some(Event::Shown {
        turn: usize::try_from(session.turns_ended()).ok()?,
        status: turn.ended.clone()?,
        answer: session.latest_response_id().map(ResponseId::to_string),
    })
}

/// Runs the open turn to its end (then none), or until the process should go.
async fn turn(world: &World, c: &mut Coordinator, client: &mut Client, answers: bool) -> Result<Option<Exit>, Error> {
    let mut settled = 0;
    loop {
        if let Some(reason) = c.session().open_turn().and_then(|turn| turn.paused.clone()) {
            match reason {
                PauseReason::LostResponse { .. } if answers => c.reconcile(Reconcile::Resend, "operator").await?,
                PauseReason::LostResponse { .. } => {
                    c.park("a response was lost").await?;
                    return Ok(Some(Exit::Lost));
                }
                PauseReason::Held { calls } => decide(world, c, &calls).await?,
                PauseReason::Incomplete { .. } | PauseReason::UnknownTools { .. } | PauseReason::Shutdown => {
                    c.resume("somebody said so").await?;
                }
            }
        }
        match c.run(RESPONSES_MAX, client, &mut ()).await {
            Ok(Rest::Finished) => {
                c.store_outcome(json!({ "status": "completed" })).await?;
                c.end_turn("completed").await?;
                return Ok(None);
            }
            Ok(Rest::Paused(PauseReason::LostResponse { .. } | PauseReason::Held { .. })) if answers => {}
            Ok(Rest::Paused(reason)) => {
                c.park("the turn waits").await?;
                return Ok(Some(match reason {
                    PauseReason::LostResponse { .. } => Exit::Lost,
                    _ => Exit::Stopped("parked".to_owned()),
                }));
            }
            Err(error) => {
                let uncertain = c.checkpoint().is_some_and(|checkpoint| checkpoint.response_in_flight());
                if error.kind != ErrorKind::Provider || !uncertain || settled >= SETTLE_ATTEMPTS {
                    return Err(error);
                }
                settled += 1;
                match c.settle_uncertain().await {
                    Err(_) if c.is_cut_off() => {}
                    other => other?,
                }
            }
        }
    }
}

/// Decides about held calls as their scripts say.
async fn decide(world: &World, c: &mut Coordinator, calls: &[CallId]) -> Result<(), Error> {
    for id in calls {
        let Some(pending) = c.checkpoint().and_then(|checkpoint| checkpoint.call(id)) else { continue };
        let call = marked(pending.call.text());
        let plan = world.lock().calls.get(&call).copied();
        let (Some(hold), Some(plan)) = (pending.hold.clone(), plan) else { continue };
        let (decision, output) = match (hold, plan.hold) {
            (Hold::Output, _) => {
                let output = format!("{call} from outside");
                (Decision::Output { output: output.clone() }, Some(output))
            }
            (Hold::Approval, HoldPlan::Declined) => {
                let output = format!("{call} declined");
                (Decision::Decline { output: output.clone() }, Some(output))
            }
            (Hold::Approval, _) => (Decision::Approve { approval: format!("yes to {id}") }, None),
        };
        world.saw(Event::Decided { call, output });
        c.decide(id, decision).await?;
    }
    c.resume("decided").await
}

/// Somebody who is no owner tells the owner something.
pub async fn told(world: World, command: Command) -> Exit {
    let (store, seams) = (world.store().clone(), world.sim().shared());
    match tell(store, seams, &world.key(), &command, "somebody", PATIENCE).await {
        Ok(_) | Err(_) => Exit::Told,
    }
}

/// Somebody takes the session from its owner and lets it go.
pub async fn taken(world: World) -> Exit {
    let (store, seams) = (world.store().clone(), world.sim().shared());
    match take_over(store, seams, &world.key(), "somebody").await {
        Ok(()) | Err(_) => Exit::Told,
    }
}
