//! `wharf run`: a question to the model of a harness.

use anyhow::Context as _;
use wharf::core::Error;

use crate::args::RunArgs;
use crate::exit::Exit;
use crate::open::HarnessFile;
use crate::turn::{self, Beginning};
use crate::{files, limits};

/// Runs the turn.
///
/// # Errors
/// Config errors, and whatever keeps the turn from running.
pub(crate) async fn run(args: RunArgs) -> anyhow::Result<Exit> {
    let file = HarnessFile::find(&args.harness)?;
    let question = if args.question == "-" {
        files::read_stdin(limits::INPUT_BYTES_MAX).context("the question cannot be read from standard input")?
    } else {
        args.question
    };
    if question.trim().is_empty() {
        return Err(Error::config("the question is empty").hint("wharf run \"What do you want to know?\"").into());
    }
    turn::run(&file, args.turn, args.session.as_deref(), Beginning::Question(question)).await
}
