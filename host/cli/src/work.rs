//! `wharf work`: goes on with turns that nobody has, until it is told to stop. What it did is told line by line.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;
use wharf::core::Error;
use wharf::limits::SHUTDOWN_GRACE;
use wharf::store::Store;
use wharf::worker::{WorkOptions, Worked, work};
use wharf::{Agent, TurnStatus};

use crate::args::{HarnessArg, WorkArgs};
use crate::exit::Exit;
use crate::open::{self, HarnessFile};
use crate::say::{duration, plain};
use crate::story::pause_text;
use crate::{screen, store};

/// Works.
///
/// # Errors
/// Whatever keeps a harness from being loaded or the store from being opened.
pub(crate) async fn run(args: WorkArgs) -> anyhow::Result<Exit> {
    let named = if args.files.is_empty() { vec![None] } else { args.files.iter().cloned().map(Some).collect() };
    let mut agents: Vec<Agent> = Vec::with_capacity(named.len());
    let mut shared: Option<(String, Arc<dyn Store>)> = None;
    for file in named {
        let file = HarnessFile::find(&HarnessArg { file, store: args.store.clone() })?;
        let harness = file.read()?;
        let place = file.place(Some(&harness))?;
        let store = match &shared {
            Some((first, store)) if *first == place.identity() => store.clone(),
            Some(_) => {
                return Err(Error::config(format!(
                    "{} keeps its sessions elsewhere than the first harness",
                    file.path.display()
                ))
                .hint("start a worker for each store, or name one for all with --store")
                .into());
            }
            None => store::open(&place).await?,
        };
        shared = Some((place.identity(), store.clone()));
        let agent = file.load(&file.wharf(Some(store))?, harness).await?;
        open::warn_of_refused(&agent);
        agents.push(agent);
    }
    let stop = told_to_stop()?;
    let names: Vec<String> = agents.iter().map(|agent| plain(agent.harness().name())).collect();
    screen::say(&format!("working for {}; SIGTERM stops it", names.join(", ")));
    let options = WorkOptions { at_once: args.at_once, until_idle: args.until_idle };
    let mut broken = Ok(());
    work(agents, options, stop, |worked| {
        tell(&worked);
        if args.json && broken.is_ok() {
            broken = screen::print(&format!("{}\n", as_json(&worked)));
        }
    })
    .await?;
    broken?;
    screen::say("done: no session is held any more");
    Ok(Exit::Ok)
}

/// Ready when somebody says stop; another time ends the process.
fn told_to_stop() -> std::io::Result<impl Future<Output = ()> + Send> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let (say, told) = oneshot::channel();
    tokio::spawn(async move {
        let mut say = Some(say);
        loop {
            tokio::select! {
                Some(()) = terminate.recv() => {}
                Some(()) = interrupt.recv() => {}
                else => return,
            }
            let Some(say) = say.take() else {
                screen::say("ended at once; its sessions are free again within a minute");
                std::process::exit(Exit::Cancelled.code().into());
            };
            screen::say(&format!(
                "stopping: what runs has {} s to come to its end; once more to end at once",
                SHUTDOWN_GRACE.as_secs()
            ));
            say.send(()).ok(); // it may have come to its end by itself
        }
    });
    Ok(async {
        // The task above lives as long as the process.
        told.await.ok();
    })
}

fn tell(worked: &Worked) {
    match worked {
        Worked::Claimed { session } => screen::say(&format!("session {}: goes on", plain(session.as_str()))),
        Worked::Ended { session, result: Ok(result), .. } => {
            let how = match &result.status {
                TurnStatus::Completed => "the turn is done".to_owned(),
                TurnStatus::Abandoned => "the turn was abandoned".to_owned(),
                TurnStatus::Paused(reason) => format!("the turn waits: {}", pause_text(reason)),
            };
            screen::say(&format!("session {}: {how}", plain(session.as_str())));
        }
        Worked::Ended { session, result: Err(error), again } => {
            screen::warning(&format!("session {}: {}", plain(session.as_str()), plain(&error.message)));
            match again {
                Some(time) => screen::hint(&format!("tried again in {}", duration(*time))),
                None => {
                    let hint = error.hint.as_deref().unwrap_or("wharf session resume SESSION");
                    screen::hint(&plain(hint).replace("SESSION", session.as_str()));
                }
            }
        }
        Worked::StoreFailed(error) => screen::warning(&format!("{}; trying again", plain(&error.message))),
    }
}

fn as_json(worked: &Worked) -> Value {
    match worked {
        Worked::Claimed { session } => json!({ "event": "claimed", "session": session.as_str() }),
        Worked::Ended { session, result, again } => {
            let status = match result {
                Ok(result) => match result.status {
                    TurnStatus::Completed => "completed",
                    TurnStatus::Abandoned => "abandoned",
                    TurnStatus::Paused(_) => "paused",
                },
                Err(_) => "failed",
            };
            let error = result
                .as_ref()
                .err()
                .map(|error| json!({ "kind": error.kind.as_str(), "message": error.message, "hint": error.hint }));
            let again_ms = again.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
            json!({ "event": "ended", "session": session.as_str(), "status": status, "error": error, "again_ms": again_ms })
        }
        Worked::StoreFailed(error) => {
            json!({ "event": "store_failed", "error": { "kind": error.kind.as_str(), "message": error.message } })
        }
    }
}
