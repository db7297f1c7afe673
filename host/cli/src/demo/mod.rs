//! The demonstration: a turn with real components and a scripted model, offline.

use anyhow::bail;

use crate::exit::Exit;

/// `wharf demo`.
#[derive(Debug, clap::Args)]
pub(crate) struct DemoArgs {
    /// Kill the host in the middle of two calls, and show which of them is run again
    #[arg(long)]
    crash: bool,
}

/// Runs it.
///
/// # Errors
/// Always: it is not built yet.
pub(crate) async fn run(args: DemoArgs) -> anyhow::Result<Exit> {
    bail!("the demonstration{} is not built yet", if args.crash { " of a crash" } else { "" })
}
