//! What can be typed. It must never know what a command does.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{ArgGroup, Args, Parser, Subcommand};

use crate::demo::DemoArgs;

/// Runs agents whose tools are sandboxed WebAssembly components.
#[derive(Debug, Parser)]
#[command(
    name = "wharf",
    version,
    propagate_version = true,
    after_help = "Data goes to standard output, talk to standard error. Exit codes: 0 done, 1 failed, 2 wrong use or set-up, \
                  3 provider, 4 store, 5 corruption, 6 conflict, 7 the turn waits, 130 cancelled (docs/exit-codes.md).\n\
                  WHARF_LOG=debug shows what happens inside; it never shows prompts, arguments or outputs."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Shows a turn with real components, offline, with a scripted model
    #[command(after_help = "Examples:\n  wharf demo\n  wharf demo --crash   kills the process in mid-turn and goes on")]
    Demo(DemoArgs),
    /// Writes a commented harness file to begin with
    Init(InitArgs),
    /// Asks the model of a harness, and runs the tools that it calls
    Run(RunArgs),
    /// Loads a harness without asking anybody, and explains what each tool ends up with
    Check(CheckArgs),
    /// Looks at what a harness needs here: its keys, and where its sessions are kept
    Doctor(DoctorArgs),
    /// Looks at sessions, and goes on with them
    #[command(subcommand)]
    Session(SessionCommand),
    /// Goes on with the open turns of sessions that nobody has, without a terminal, until it is told to stop
    Work(WorkArgs),
    /// Looks at a component, or calls one of its tools
    #[command(subcommand)]
    Tool(ToolCommand),
    /// Serves the protocol of a provider from a script
    Simulate(SimulateArgs),
}

/// Which harness.
#[derive(Debug, Clone, Args)]
pub(crate) struct HarnessArg {
    /// The harness file; without it wharf.toml, then harness.toml in this folder
    #[arg(short = 'H', long = "harness", value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// A database that several machines share, postgres://USER@HOST/DATABASE, in place of the folder .wharf beside the
    /// harness; WHARF_STORE in the environment says it for every command
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) store: Option<String>,
}

/// `wharf init`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  wharf init\n  wharf init agents/docs.toml\n  wharf check -H agents/docs.toml")]
pub(crate) struct InitArgs {
    /// Where to write it
    #[arg(value_name = "FILE", default_value = "wharf.toml")]
    pub(crate) file: PathBuf,
    /// Replace a file that is there
    #[arg(long)]
    pub(crate) force: bool,
}

/// What a turn is run with.
#[derive(Debug, Clone, Args)]
pub(crate) struct TurnArgs {
    /// Another model than the harness names
    #[arg(long, value_name = "PROVIDER/MODEL")]
    pub(crate) model: Option<String>,
    /// Another limit of responses than the harness's
    #[arg(long, value_name = "N")]
    pub(crate) max_responses: Option<u64>,
    /// Ask for whole answers instead of streams
    #[arg(long)]
    pub(crate) no_stream: bool,
    /// Take the session over from a process that still has it
    #[arg(long)]
    pub(crate) take_over: bool,
    /// Print the result as one JSON object instead of the text
    #[arg(long)]
    pub(crate) json: bool,
}

/// `wharf run`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  wharf run \"Which files mention a lease?\"\n  wharf run -H docs.toml --session s1 \"And which of them \
                        is the oldest?\"\n  git diff | wharf run -H review.toml -\n  wharf run --json \"…\" | jq -r .text"
)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) harness: HarnessArg,
    /// Go on with this session, or begin it under this name; without it a new one
    #[arg(short, long, value_name = "ID")]
    pub(crate) session: Option<String>,
    #[command(flatten)]
    pub(crate) turn: TurnArgs,
    /// What to ask; - reads it from standard input
    #[arg(value_name = "QUESTION")]
    pub(crate) question: String,
}

/// `wharf work`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  wharf work -H docs.toml --store postgres://wharf@db.example/wharf\n  wharf work -H a.toml -H b.toml \
                        --at-once 50 --json\n  wharf work -H docs.toml --until-idle     once, from a timer\n\nA turn is left to people \
                        while it waits for one: an approval, an uncertain request, a cancel. SIGTERM starts nothing new, gives \
                        what runs 20 seconds, parks the turns for another worker, and ends with 0."
)]
pub(crate) struct WorkArgs {
    /// A harness whose sessions it runs; may be given several times. Without it wharf.toml, then harness.toml in this folder
    #[arg(short = 'H', long = "harness", value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// The database that the workers share, postgres://USER@HOST/DATABASE; WHARF_STORE in the environment, or the harness's
    /// store, say it too
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) store: Option<String>,
    /// Sessions that it runs at once
    #[arg(long, value_name = "N", default_value_t = wharf::limits::WORKER_SESSIONS)]
    pub(crate) at_once: usize,
    /// End once nothing runs and nothing waits
    #[arg(long)]
    pub(crate) until_idle: bool,
    /// Print a line of JSON for each session that is taken and let go
    #[arg(long)]
    pub(crate) json: bool,
}

/// `wharf check`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  wharf check\n  wharf check -H docs.toml --explain files.read_file\n  wharf check --json | jq \
                        '.tools[] | select(.replay.value != \"never\")'"
)]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    pub(crate) harness: HarnessArg,
    /// Say everything about one tool: each value with the line that decided it
    #[arg(long, value_name = "CAPABILITY.TOOL")]
    pub(crate) explain: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `wharf doctor`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  wharf doctor\n  wharf doctor --store postgres://wharf@db.example/wharf\n  wharf doctor --json | jq \
                        '.findings[] | select(.grade != \"ok\")'"
)]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    pub(crate) harness: HarnessArg,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `wharf session …`.
#[derive(Debug, Subcommand)]
pub(crate) enum SessionCommand {
    /// Lists the sessions of a harness, newest first
    #[command(after_help = "Example:\n  wharf session list -H docs.toml")]
    List(SessionListArgs),
    /// Shows what happened: records, responses, calls and a timeline
    #[command(after_help = "Examples:\n  wharf session show s1\n  wharf session show s1 --json | jq .calls")]
    Show(SessionArgs),
    /// Goes on with the open turn
    #[command(after_help = "Examples:\n  wharf session resume s1\n  wharf session resume s1 --max-responses 50")]
    Resume(ResumeArgs),
    /// Answers for a request of which nobody knows whether the provider accepted it
    #[command(
        after_help = "Examples:\n  wharf session reconcile s1 --receipt resp_123   it was accepted, by this response\n  \
                            wharf session reconcile s1 --resend             it was not: send it again\n  \
                            wharf session reconcile s1 --abandon            end the turn, send nothing"
    )]
    Reconcile(ReconcileArgs),
    /// Cancels what runs and what waits in the open turn, whichever process has it; the turn is kept
    #[command(after_help = "Example:\n  wharf session cancel s1")]
    Cancel(CancelArgs),
    /// Takes a session from the process that has it, which stops at its next step
    #[command(after_help = "Example:\n  wharf session takeover s1 && wharf session resume s1")]
    Takeover(TakeoverArgs),
    /// Writes the checkpoint of the open or last turn as JSON
    #[command(after_help = "Examples:\n  wharf session export s1 | jq .calls\n  wharf session export s1 -o s1.json")]
    Export(ExportArgs),
    /// Checks that a journal, or every one, keeps what it promises, and names the first record that does not
    #[command(
        after_help = "Takes no lease and changes nothing. Examples:\n  wharf session verify\n  wharf session verify s1 \
                            --all\n  wharf session verify --json | jq '.sessions[] | select(.sound != true)'"
    )]
    Verify(VerifyArgs),
    /// Deletes sessions as a whole; their names are not used again
    #[command(after_help = "Examples:\n  wharf session delete s1\n  wharf session delete s1 s2 --yes\n  \
                            wharf session delete s1 --take-over   even while a process has it")]
    Delete(DeleteArgs),
    /// Deletes sessions that are older than they are kept, and outputs that no record names
    #[command(
        after_help = "How long sessions are kept stands in the harness file: keep = \"90d\" under [sessions]. One with an open \
                            turn, or in use, stays.\nExamples:\n  wharf session gc --dry-run\n  wharf session gc --keep 30d"
    )]
    Gc(GcArgs),
}

/// `wharf session list`.
#[derive(Debug, Args)]
pub(crate) struct SessionListArgs {
    #[command(flatten)]
    pub(crate) harness: HarnessArg,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `wharf session show`.
#[derive(Debug, Args)]
pub(crate) struct SessionArgs {
    /// The session
    #[arg(value_name = "ID")]
    pub(crate) session: String,
    #[command(flatten)]
    pub(crate) harness: HarnessArg,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `wharf session cancel`.
#[derive(Debug, Args)]
pub(crate) struct CancelArgs {
    /// The session
    #[arg(value_name = "ID")]
    pub(crate) session: String,
    #[command(flatten)]
    pub(crate) harness: HarnessArg,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `wharf session takeover`.
#[derive(Debug, Args)]
pub(crate) struct TakeoverArgs {
    /// The session
    #[arg(value_name = "ID")]
    pub(crate) session: String,
    #[command(flatten)]
    pub(crate) harness: HarnessArg,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `wharf session export`.
#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// The session
    #[arg(value_name = "ID")]
    pub(crate) session: String,
    /// Put it into this file, whole or not at all, instead of printing it
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) harness: HarnessArg,
}

/// `wharf session verify`.
#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    /// The session; without it every one
    #[arg(value_name = "ID")]
    pub(crate) session: Option<String>,
    #[command(flatten)]
    pub(crate) harness: HarnessArg,
    /// List every breach that can be told, not the first alone
    #[arg(long)]
    pub(crate) all: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `wharf session delete`.
#[derive(Debug, Args)]
pub(crate) struct DeleteArgs {
    /// The sessions
    #[arg(value_name = "ID", required = true)]
    pub(crate) sessions: Vec<String>,
    #[command(flatten)]
    pub(crate) harness: HarnessArg,
    /// Do not ask
    #[arg(long, short)]
    pub(crate) yes: bool,
    /// Delete it also while a process has it, which stops at its next step
    #[arg(long)]
    pub(crate) take_over: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `wharf session gc`.
#[derive(Debug, Args)]
pub(crate) struct GcArgs {
    #[command(flatten)]
    pub(crate) harness: HarnessArg,
    /// Delete nothing, and say what would be deleted
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Keep sessions for this time, whatever the harness file says
    #[arg(long, value_name = "TIME")]
    pub(crate) keep: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `wharf session resume`.
#[derive(Debug, Args)]
pub(crate) struct ResumeArgs {
    /// The session
    #[arg(value_name = "ID")]
    pub(crate) session: String,
    #[command(flatten)]
    pub(crate) harness: HarnessArg,
    /// Go on although the harness grants more than when the turn began
    #[arg(long)]
    pub(crate) accept_wider: bool,
    #[command(flatten)]
    pub(crate) turn: TurnArgs,
}

/// `wharf session reconcile`.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("answer").required(true).args(["receipt", "resend", "abandon"])))]
pub(crate) struct ReconcileArgs {
    /// The session
    #[arg(value_name = "ID")]
    pub(crate) session: String,
    #[command(flatten)]
    pub(crate) harness: HarnessArg,
    /// It was accepted, by this response
    #[arg(long, value_name = "RESPONSE_ID")]
    pub(crate) receipt: Option<String>,
    /// It was not accepted, or it does no harm twice: send it again
    #[arg(long)]
    pub(crate) resend: bool,
    /// Send nothing, and end the turn
    #[arg(long)]
    pub(crate) abandon: bool,
    /// Go on although the harness grants more than when the turn began
    #[arg(long)]
    pub(crate) accept_wider: bool,
    #[command(flatten)]
    pub(crate) turn: TurnArgs,
}

/// `wharf tool …`.
#[derive(Debug, Subcommand)]
pub(crate) enum ToolCommand {
    /// Shows what a component is: imports, exports, tools, config
    Inspect(InspectArgs),
    /// Calls one tool once, under exactly these grants
    Call(CallArgs),
}

/// `wharf tool inspect`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  wharf tool inspect files.wasm\n  wharf tool inspect files.wasm --config '{\"read_only\":true}' --json"
)]
pub(crate) struct InspectArgs {
    /// The component
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// The config that it is asked for its tools with
    #[arg(long, value_name = "JSON", default_value = "{}")]
    pub(crate) config: String,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `wharf tool call`.
#[derive(Debug, Args)]
#[command(after_help = "Nothing is granted that is not named. Examples:\n  \
                        wharf tool call files.wasm list_files '{}' --dir docs:/\n  \
                        wharf tool call files.wasm write_file '{\"path\":\"a.txt\",\"text\":\"hi\"}' --dir out:/out:rw --config \
                        '{\"root\":\"/out\"}'\n  \
                        wharf tool call query.wasm query -  < program.jq")]
pub(crate) struct CallArgs {
    /// The component
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// The tool
    #[arg(value_name = "TOOL")]
    pub(crate) tool: String,
    /// Its input: JSON for a function, raw text for a custom tool; - reads it from standard input
    #[arg(value_name = "INPUT")]
    pub(crate) input: String,
    /// The component's config
    #[arg(long, value_name = "JSON", default_value = "{}")]
    pub(crate) config: String,
    /// Grant a folder: its path here, its path there, and rw to write
    #[arg(long = "dir", value_name = "HOST:GUEST[:rw]")]
    pub(crate) dirs: Vec<String>,
    /// Grant an environment value
    #[arg(long = "env", value_name = "NAME=VALUE")]
    pub(crate) env: Vec<String>,
    /// Longest time of the call
    #[arg(long, value_name = "TIME", default_value = "30s")]
    pub(crate) time: String,
    /// Print the outcome as the model would get it, with times, as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `wharf simulate`.
#[derive(Debug, Args)]
#[command(after_help = "Prints the address to use as a provider's base_url. Example:\n  \
                        wharf simulate examples/scripts/two-calls.toml --log requests.jsonl")]
pub(crate) struct SimulateArgs {
    /// The script (docs/simulate.md)
    #[arg(value_name = "SCRIPT")]
    pub(crate) script: PathBuf,
    /// The address to listen on, of this machine only; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    pub(crate) bind: SocketAddr,
    /// Append every request to this file, as lines of JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) log: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_commands_are_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn an_answer_and_a_wider_harness_go_in_one_command() {
        let words = ["wharf", "session", "reconcile", "s1", "--resend", "--accept-wider"];
        let Command::Session(SessionCommand::Reconcile(args)) = Cli::parse_from(words).command else {
            panic!("it is another command")
        };
        assert_eq!((args.resend, args.accept_wider), (true, true));
    }

    /// The commands that do something, with the words that call them.
    fn leaves(command: &clap::Command, path: &str, found: &mut Vec<(String, String)>) {
        let mut below = command.get_subcommands().filter(|one| !one.is_hide_set()).peekable();
        if below.peek().is_none() {
            found.push((path.to_owned(), command.get_after_help().map(ToString::to_string).unwrap_or_default()));
        }
        for one in below {
            leaves(one, &format!("{path} {}", one.get_name()), found);
        }
    }

    #[test]
    fn the_help_of_each_command_has_an_example_of_it() {
        let mut found = Vec::new();
        leaves(&Cli::command(), "wharf", &mut found);
        assert!(found.len() > 10, "{found:?}");
        for (path, help) in found {
            assert!(help.contains("Example"), "`{path} --help` has no example");
            assert!(help.contains(&path), "the example of `{path} --help` is about something else: {help}");
        }
    }
}
