//! Where the log goes: standard error, filtered by `WHARF_LOG`. No log line of ours has a prompt, an argument, an output or
//! a key; this module keeps those of others down that might.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;
use wharf::core::Error;

/// The variable that says what is logged.
const VARIABLE: &str = "WHARF_LOG";

/// Crates that see bodies and keys; below `info` they may tell of them.
const QUIET: [&str; 7] = ["hyper", "hyper_util", "h2", "reqwest", "rustls", "axum", "tokio_postgres"];

/// Of a connection that broke the store tells what it means; that it broke is no news beside that.
const SILENT: &str = "deadpool=off";

/// Starts logging.
///
/// # Errors
/// A config error for a filter that cannot be read.
pub(crate) fn start() -> Result<(), Error> {
    let text = std::env::var(VARIABLE).unwrap_or_default(); // absent, or not text: the default
    let fault = |why: String| {
        Error::config(format!("{VARIABLE}={text:?} is no filter: {why}"))
            .hint(format!("{VARIABLE}=info, or {VARIABLE}=wharf=debug,wharf_store=trace"))
    };
    let mut filter = EnvFilter::builder()
        .with_default_directive(LevelFilter::WARN.into())
        .parse(&text)
        .map_err(|error| fault(error.to_string()))?;
    filter = filter.add_directive(SILENT.parse().map_err(|_| fault("deadpool is no target".to_owned()))?);
    for name in QUIET {
        let directive = format!("{name}=info").parse().map_err(|_| fault(format!("{name} is no target")))?;
        filter = filter.add_directive(directive);
    }
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none())
        .without_time()
        .try_init()
        .map_err(|error| Error::config(format!("the log cannot be started: {error}")))
}
