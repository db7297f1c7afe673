//! `wharf simulate`: the scripted provider as a command.

use tokio::signal::unix::{SignalKind, signal};
use wharf_simulate::{Options, Script, Server};

use crate::args::SimulateArgs;
use crate::exit::Exit;
use crate::say::{count, plain};
use crate::screen;

/// Serves until it is told to stop.
///
/// # Errors
/// A script that is no good, an address that cannot be had.
pub(crate) async fn run(args: SimulateArgs) -> anyhow::Result<Exit> {
    let script = Script::load(&args.script)?;
    let steps = script.steps.len() as u64;
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let options = Options { bind: args.bind, log_file: args.log, ..Options::default() };
    let server = Server::start(script, options).await?;
    screen::say(&format!("serving {} until Ctrl-C", count(steps, "step", "steps")));
    screen::print(&server.base_url())?;
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    let (requests, violations) = (server.requests().len() as u64, server.violations());
    screen::say(&format!("{} answered", count(requests, "request", "requests")));
    for violation in &violations {
        screen::warning(&plain(&violation.to_string()));
    }
    server.shutdown().await;
    Ok(if violations.is_empty() { Exit::Ok } else { Exit::Failed })
}
