//! The demonstration: a turn with real components and a scripted model, offline. `--crash` kills the host in its middle.

mod crash;
mod screen;
mod turn;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::ValueEnum;
use wharf::core::Error;
use wharf::sandbox::SandboxOptions;
use wharf::{Agent, Wharf};

use crate::exit::Exit;
use crate::open::HarnessFile;
use crate::progress::compile_text;
use crate::{cache, files};

/// The provider of the demo's harness files, whose address is replaced.
const PROVIDER: &str = "demo";

/// `wharf demo`.
#[derive(Debug, clap::Args)]
pub(crate) struct DemoArgs {
    /// Kill the host in the middle of two calls, and show which of them is run again
    #[arg(long)]
    crash: bool,
    /// The process that is killed, or the one that goes on
    #[arg(long, hide = true, requires = "provider_url", requires = "session")]
    crash_child: Option<CrashChild>,
    /// Where the scripted model is
    #[arg(long, hide = true)]
    provider_url: Option<String>,
    /// Which session
    #[arg(long, hide = true)]
    session: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum CrashChild {
    Start,
    Resume,
}

/// Runs it.
///
/// # Errors
/// Whatever keeps it from showing what it is there to show.
pub(crate) async fn run(args: DemoArgs) -> anyhow::Result<Exit> {
    match (args.crash_child, &args.provider_url, &args.session) {
        (Some(child), Some(url), Some(session)) => crash::child(child == CrashChild::Resume, url, session).await?,
        _ if args.crash => crash::run().await?,
        _ => turn::run().await?,
    }
    Ok(Exit::Ok)
}

/// The folder with the demo's files: below this folder, else where the program was built.
fn folder() -> Result<PathBuf, Error> {
    let here = PathBuf::from("examples/demo");
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/demo");
    [here, built].into_iter().find(|folder| files::is_dir(folder)).ok_or_else(|| {
        Error::config("the files of the demo are not here: examples/demo is in the repository of wharf")
            .hint("run it from a checkout")
    })
}

/// The agent of one of its harness files, with the scripted model at this address.
async fn load(file: &Path, base_url: &str, say: impl Fn(&str) + Send + Sync + 'static) -> anyhow::Result<Agent> {
    let found = HarnessFile::at(file);
    let harness = found.read()?;
    let wharf = Wharf::builder()
        .store(found.store(&harness).await?)
        .provider_address(PROVIDER, base_url)
        .sandbox(SandboxOptions {
            cache: cache::folder(),
            on_compile: Some(Arc::new(move |event| {
                if let Some(text) = compile_text(&event) {
                    say(&text);
                }
            })),
            threads: None,
        })
        .build()?;
    Ok(found.load(&wharf, harness).await?)
}
