//! The `wharf` command: arguments, terminal, exit codes. What it does is the library's (`host/runtime`); nothing is
//! decided here.

mod args;
mod cache;
mod check;
mod demo;
mod doctor;
mod exit;
mod files;
mod init;
mod limits;
mod logging;
mod open;
mod progress;
mod run;
mod say;
mod screen;
mod session;
mod signals;
mod simulate;
#[cfg(debug_assertions)]
mod stop_at;
mod store;
mod story;
mod table;
mod timeline;
mod tool;
mod turn;
mod watch;
mod work;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::Parser as _;

use crate::args::{Cli, Command, SessionCommand, ToolCommand};
use crate::exit::Exit;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let exit = start(cli.command).unwrap_or_else(|error| exit::report(&error));
    ExitCode::from(exit.code())
}

fn start(command: Command) -> anyhow::Result<Exit> {
    logging::start()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("the threads of the host do not start")?;
    let done = runtime.block_on(dispatch(command));
    // What still runs, a read of standard input say, has nobody who waits for it.
    runtime.shutdown_timeout(Duration::from_millis(100));
    done
}

async fn dispatch(command: Command) -> anyhow::Result<Exit> {
    match command {
        Command::Demo(args) => demo::run(args).await,
        Command::Init(args) => init::run(&args),
        Command::Run(args) => run::run(args).await,
        Command::Check(args) => check::run(args).await,
        Command::Doctor(args) => doctor::run(args).await,
        Command::Session(SessionCommand::List(args)) => session::list(args).await,
        Command::Session(SessionCommand::Show(args)) => session::show(args).await,
        Command::Session(SessionCommand::Resume(args)) => session::resume(args).await,
        Command::Session(SessionCommand::Reconcile(args)) => session::reconcile(args).await,
        Command::Session(SessionCommand::Cancel(args)) => session::cancel(args).await,
        Command::Session(SessionCommand::Takeover(args)) => session::takeover(args).await,
        Command::Session(SessionCommand::Export(args)) => session::export(args).await,
        Command::Session(SessionCommand::Verify(args)) => session::verify(args).await,
        Command::Session(SessionCommand::Delete(args)) => session::delete(args).await,
        Command::Session(SessionCommand::Gc(args)) => session::gc(args).await,
        Command::Work(args) => work::run(args).await,
        Command::Tool(ToolCommand::Inspect(args)) => tool::inspect(args).await,
        Command::Tool(ToolCommand::Call(args)) => tool::call(args).await,
        Command::Simulate(args) => simulate::run(args).await,
    }
}
