//! `wharf demo --crash`: this process holds the simulated provider; a child runs the turn, is killed with SIGKILL in the
//! middle of two calls, and is started again. What is claimed at the end comes from the provider's request log and from the
//! files that the tools themselves wrote, not from the child.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use serde_json::Value;
use tokio::process::{Child, Command};
use wharf::core::record::Record;
use wharf::{Observer, TurnOptions};
use wharf_simulate::{Options, Script, Server};

use super::screen::{Screen, Who, preview};

/// How long the parent waits for both calls to have left their first line, or for the second child to end.
const WAIT_MAX: Duration = Duration::from_secs(120);

/// Time between two looks at the witness files.
const LOOK_EVERY: Duration = Duration::from_millis(25);

pub(super) async fn run() -> anyhow::Result<()> {
    let folder = super::folder()?;
    let witness = Witness::fresh(&folder.join("witness"))?;
    let server = Server::start(Script::load(folder.join("crash-script.toml"))?, Options::default()).await?;
    let session = format!("crash-{}", std::process::id());
    let mut screen = Screen::new();
    screen.line(Who::Host, "provider", &format!("a scripted model on {}", server.base_url()));

    let mut first = spawn("start", &server.base_url(), &session)?;
    screen.line(Who::Host, "child", "a process runs the turn: word_stats (replay = safe) and note (replay = never)");
    tokio::select! {
        started = witness.both_started() => started?,
        ended = first.wait() => bail!("the child ended before it was killed: {}", ended?),
    }
    // Both calls run; the first response is over, so the child waits for them.
    server.wait_for_end(1).await.context("the first response never ended")?;
    first.kill().await.context("the child cannot be killed")?;
    screen.line(Who::Refuse, "kill", "SIGKILL, with both calls running");
    screen.line(Who::Host, "witness", &witness.summary()?);

    let mut second = spawn("resume", &server.base_url(), &session)?;
    screen.line(Who::Host, "child", "a new process opens the journal and goes on");
    let status = tokio::time::timeout(WAIT_MAX, second.wait()).await.context("the second child did not end")??;
    ensure!(status.success(), "the second child failed: {status}");

    screen.plain("");
    screen.plain("What the tools wrote themselves (examples/demo/witness):");
    let (stats, notes) = (witness.lines("runs.log")?, witness.lines("notes.log")?);
    for line in stats.iter().chain(&notes) {
        screen.plain(&format!("  {}", line.replace('\t', "  ")));
    }
    screen.plain("What the provider received:");
    let mut outputs = Vec::new();
    for request in server.requests() {
        let wharf_simulate::RequestBody::Json(body) = &request.body else { continue };
        for item in body.get("input").and_then(Value::as_array).into_iter().flatten() {
            if let (Some(id), Some(output)) =
                (item.get("call_id").and_then(Value::as_str), item.get("output").and_then(Value::as_str))
            {
                screen.plain(&format!("  request {}  {id}  {}", request.order, preview(output)));
                outputs.push((id.to_owned(), output.to_owned()));
            }
        }
    }
    let count = |id: &str| outputs.iter().filter(|(call, _)| call == id).count();
    ensure!(stats.len() == 2, "word_stats ran {} times, not twice", stats.len());
    ensure!(notes.len() == 1, "note ran {} times, not once", notes.len());
    ensure!(count("call_stats") == 1 && count("call_note") == 1, "an output was not delivered exactly once");
    ensure!(server.violations().is_empty(), "the provider saw unlawful requests: {:?}", server.violations());
    screen.plain("");
    screen.plain("word_stats (safe) was run again. note (never) was not: its outcome is told as uncertain.");
    screen.plain("Each call got exactly one output on its own id.");
    let harness = folder.join("crash.toml");
    screen.plain(&format!("look     cargo run -- session show {session} -H {}", harness.display()));
    Ok(())
}

fn spawn(how: &str, provider_url: &str, session: &str) -> anyhow::Result<Child> {
    let program = std::env::current_exe().context("the program's own file is not known")?;
    Command::new(program)
        .args(["demo", "--crash-child", how, "--provider-url", provider_url, "--session", session])
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .context("the child cannot be started")
}

/// The process that is killed, or the one that goes on.
pub(super) async fn child(resume: bool, provider_url: &str, session: &str) -> anyhow::Result<()> {
    let file = super::folder()?.join("crash.toml");
    let agent = super::load(&file, provider_url, |text| {
        let mut err = anstream::stderr().lock();
        std::io::Write::write_fmt(&mut err, format_args!("        child    {text}\n")).ok(); // only talk
    })
    .await?;
    let session = agent.session(session);
    let options = TurnOptions {
        take_over: resume, // the killed owner's lease has not ended yet
        records: Some(Box::new(move |_, record| tell(record))),
        ..TurnOptions::default()
    };
    if resume {
        session.resume(options, &mut Silent).await?;
    } else {
        session.turn("Count the sources and note the payment.", options, &mut Silent).await?;
    }
    Ok(())
}

struct Silent;

impl Observer for Silent {}

fn tell(record: &Record) {
    let text = match record {
        Record::CallStarted { id, attempt, .. } => format!("start    {id}, run {attempt}"),
        Record::CallRequeued { id } => format!("requeue  {id}"),
        Record::CallSettled { id, output, .. } => format!("settle   {id}  {}", preview(output)),
        Record::DeliveryPrepared { call_ids, previous_response_id, .. } => {
            let ids: Vec<&str> = call_ids.iter().map(|id| id.as_str()).collect();
            format!("deliver  {} on {previous_response_id}", ids.join(", "))
        }
        _ => return, // only what the demo is about is told
    };
    let mut out = anstream::stdout().lock();
    std::io::Write::write_fmt(&mut out, format_args!("        child    {text}\n")).ok(); // only talk
}

/// The files that the tools write, each run one line.
struct Witness(PathBuf);

impl Witness {
    /// An empty witness folder.
    fn fresh(folder: &Path) -> anyhow::Result<Self> {
        std::fs::create_dir_all(folder).with_context(|| format!("{} cannot be made", folder.display()))?;
        for name in ["runs.log", "notes.log"] {
            match std::fs::remove_file(folder.join(name)) {
                Ok(()) => {}
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
                Err(e) => return Err(e).with_context(|| format!("{} cannot be emptied", folder.display())),
            }
        }
        Ok(Self(folder.to_path_buf()))
    }

    fn lines(&self, name: &str) -> anyhow::Result<Vec<String>> {
        match std::fs::read_to_string(self.0.join(name)) {
            Ok(text) => Ok(text.lines().map(str::to_owned).collect()),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(e) => Err(e).with_context(|| format!("the witness {name} cannot be read")),
        }
    }

    /// Ready once each call has left a line.
    async fn both_started(&self) -> anyhow::Result<()> {
        tokio::time::timeout(WAIT_MAX, async {
            while self.lines("runs.log")?.is_empty() || self.lines("notes.log")?.is_empty() {
                tokio::time::sleep(LOOK_EVERY).await;
            }
            anyhow::Ok(())
        })
        .await
        .context("the calls did not start")?
    }

    fn summary(&self) -> anyhow::Result<String> {
        Ok(format!(
            "word_stats began {} time, note was written {} time",
            self.lines("runs.log")?.len(),
            self.lines("notes.log")?.len()
        ))
    }
}
