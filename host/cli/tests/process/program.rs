//! The program in a folder of its own: a harness with the witness, processes of it, and what they leave.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use tokio::io::AsyncReadExt as _;
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::journals::{Database, Journals};
use crate::plan::Point;

/// The session of every round: each has a journal of its own.
pub(crate) const SESSION: &str = "s1";

/// A process that takes longer than this is stuck: shutdown alone may take 20 s.
const PATIENCE: Duration = Duration::from_secs(60);

/// Between two looks into the witness: a file of another process cannot be waited for.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// How often a command is tried while the database is away, and the pause between.
const LOOKS_MAX: usize = 100;
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// Where the program keeps compiled code for all rounds.
fn home() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("process-home")
}

/// The witness; rebuilt from source if `WHARF_GUESTS` says where.
fn witness() -> PathBuf {
    match std::env::var_os("WHARF_GUESTS") {
        Some(folder) => PathBuf::from(folder).join("witness.wasm"),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/guests/witness/dist/witness.wasm"),
    }
}

/// Has the witness compiled once, for all rounds.
pub(crate) async fn warm() {
    fs::create_dir_all(home()).expect("a home");
    let mut command = command(&home());
    command.args(["tool", "inspect"]).arg(witness());
    let output = command.output().await.expect("the program starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn command(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wharf"));
    command.current_dir(folder).env_clear().env("HOME", home()).stdin(Stdio::null()).kill_on_drop(true);
    command
}

/// The folder of a round, and its database, if journals are in one.
pub(crate) struct Room(TempDir, Option<Database>);

/// A line of the witness.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ran {
    pub(crate) tool: String,
    pub(crate) call: String,
    pub(crate) attempt: u64,
    pub(crate) key: String,
}

/// How a process ended.
#[derive(Debug, Clone)]
pub(crate) struct Ended {
    /// None for a signal.
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ended {
    /// It came to nothing because the database was away: what a person would try again.
    pub(crate) fn lacked_its_database(&self) -> bool {
        self.code == Some(4) && self.err.contains("PostgreSQL database") && !self.err.contains("fenced: ")
    }

    pub(crate) fn json(&self) -> Result<Value, String> {
        serde_json::from_str(&self.out).map_err(|error| format!("no JSON ({error}) in {self:#?}"))
    }
}

impl Room {
    pub(crate) fn new(base_url: &str, journals: &Journals) -> Self {
        let room = Self(TempDir::new().expect("a folder"), journals.database());
        fs::create_dir_all(room.path("witness/hold")).expect("a folder");
        let harness = format!(
            r#"[harness]
name = "crash"
instructions = "Be brief."
model = "local/scripted"

[providers.local]
driver = "openai-responses"
base_url = "{base_url}"

[models."local/scripted"]
async = "on"

[capabilities.witness]
component = {:?}

[capabilities.witness.grants]
fs = [{{ host = "./witness", guest = "/witness", access = "read-write" }}]

[capabilities.witness.limits]
time = "2m"

[capabilities.witness.tools.pay]
async = true

[capabilities.witness.tools.look]
replay = "safe"

[capabilities.witness.tools.book]
replay = "keyed"
"#,
            witness().canonicalize().expect("the witness is built")
        );
        fs::write(room.path("wharf.toml"), harness).expect("a harness");
        room
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Keeps the folder, for whoever wants to look into it.
    pub(crate) fn keep(self) -> PathBuf {
        self.0.keep()
    }

    /// Starts the program. It stops at `point` by itself if that is a write to the journal.
    pub(crate) fn start(&self, arguments: &[&str], point: Option<Point>) -> Process {
        let mut command = command(self.0.path());
        if let Some(database) = &self.1 {
            command.env("WHARF_STORE", database.address());
        }
        if let Some(Point::Write(write, n, stage)) = point {
            command.env("WHARF_STOP_AT", format!("{write}:{n}:{stage}"));
        }
        let mut child =
            command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
        let mut stdout = child.stdout.take().expect("piped");
        let out = tokio::spawn(async move {
            let mut text = Vec::new();
            // A pipe of a killed process ends; what came before counts.
            stdout.read_to_end(&mut text).await.ok();
            String::from_utf8_lossy(&text).into_owned()
        });
        let mut stderr = child.stderr.take().expect("piped");
        let (said, err) = watch::channel(String::new());
        tokio::spawn(async move {
            let mut bytes = [0; 4096];
            while let Ok(n @ 1..) = stderr.read(&mut bytes).await {
                said.send_modify(|text| text.push_str(&String::from_utf8_lossy(&bytes[..n])));
            }
        });
        Process { child, out, err }
    }

    /// Runs the program to its end.
    pub(crate) async fn run(&self, arguments: &[&str]) -> Result<Ended, String> {
        self.start(arguments, None).ends().await
    }

    /// Runs a command that only looks; again, where the database was not there for it.
    pub(crate) async fn look(&self, arguments: &[&str]) -> Result<Ended, String> {
        for _ in 0..LOOKS_MAX {
            let ended = self.run(arguments).await?;
            if !ended.lacked_its_database() {
                return Ok(ended);
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        self.run(arguments).await
    }

    pub(crate) fn database(&self) -> Option<&Database> {
        self.1.as_ref()
    }

    /// The lines that runs have left so far.
    pub(crate) fn witness(&self) -> Vec<Ran> {
        // There is no file before the first run.
        let text = fs::read_to_string(self.path("witness/log")).unwrap_or_default();
        let line = |line: &str| {
            let words: Vec<&str> = line.split(' ').collect();
            let [tool, call, attempt, key] = words[..] else { panic!("a torn line of the witness: {line:?}") };
            let attempt = attempt.parse().expect("a number");
            Ran { tool: tool.to_owned(), call: call.to_owned(), attempt, key: key.to_owned() }
        };
        text.lines().map(line).collect()
    }

    /// Lets runs of these calls stay once they have left their line.
    pub(crate) fn hold(&self, calls: &[String]) {
        for call in calls {
            fs::write(self.path("witness/hold").join(call), "").expect("a file");
        }
    }

    /// Lets every run come to its end.
    pub(crate) fn let_go(&self) {
        for entry in fs::read_dir(self.path("witness/hold")).expect("the folder") {
            fs::remove_file(entry.expect("an entry").path()).expect("removed");
        }
    }

    /// Waits until one of these calls has left a line that is not among those.
    pub(crate) async fn ran(&self, calls: &[String], before: &[Ran]) {
        let before: BTreeSet<&Ran> = before.iter().collect();
        while !self.witness().iter().any(|ran| calls.contains(&ran.call) && !before.contains(ran)) {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

/// A process that runs.
pub(crate) struct Process {
    child: Child,
    out: JoinHandle<String>,
    err: watch::Receiver<String>,
}

impl Process {
    pub(crate) fn id(&self) -> u32 {
        self.child.id().unwrap_or_default()
    }

    pub(crate) fn kill(&mut self) {
        // It may have ended at the same moment.
        self.child.start_kill().ok();
    }

    /// Sends a signal: `TERM`, `STOP`, `CONT`.
    pub(crate) async fn signal(&self, name: &str) {
        if let Some(id) = self.child.id() {
            // As above.
            let name = format!("-{name}");
            Command::new("kill").args([&name, &id.to_string()]).stderr(Stdio::null()).status().await.ok();
        }
    }

    /// SIGTERM; done when it says that it heard it, or has ended.
    pub(crate) async fn terminate(&mut self) {
        self.signal("TERM").await;
        self.says("stopping: ").await;
    }

    /// Waits until it says this, or says no more.
    async fn says(&mut self, text: &str) {
        // The sender goes when the pipe is at its end.
        self.err.wait_for(|err| err.contains(text)).await.ok();
    }

    /// What it has said so far, and whatever comes.
    pub(crate) fn err(&self) -> watch::Receiver<String> {
        self.err.clone()
    }

    /// Waits until there is an exit code; what it said is read later.
    pub(crate) async fn exits(&mut self) {
        // Only a child that was never started has none.
        self.child.wait().await.ok();
    }

    /// Waits until it has ended.
    pub(crate) async fn ends(mut self) -> Result<Ended, String> {
        let Ok(status) = tokio::time::timeout(PATIENCE, self.child.wait()).await else {
            return Err(format!("a process is stuck; it said {:?}", *self.err.borrow()));
        };
        let code = status.map_err(|error| error.to_string())?.code();
        let out = self.out.await.map_err(|error| error.to_string())?;
        while self.err.changed().await.is_ok() {}
        let err = self.err.borrow().clone();
        Ok(Ended { code, out, err })
    }
}
