//! A folder of one's own, the program in it, and a scripted model for it to talk to.

use std::fs;
use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use wharf_simulate::{Options, Script, Server};

/// Where the program keeps compiled code in its home, which is the room.
const CACHE: &str = ".cache/wharf";

/// A folder that a test works in.
pub(crate) struct Room(TempDir);

/// How a run of the program ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Room {
    pub(crate) fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    /// One in which the components of the repository are compiled already, as in a folder that one has worked in before.
    pub(crate) fn warm() -> Self {
        let room = Self::new();
        fs::DirBuilder::new().mode(0o700).recursive(true).create(room.path().join(CACHE)).unwrap();
        for entry in fs::read_dir(compiled()).unwrap() {
            let entry = entry.unwrap();
            fs::copy(entry.path(), room.path().join(CACHE).join(entry.file_name())).unwrap();
        }
        room
    }

    /// One that has a file to read in `docs`, a harness with `files` over it, and a model at this address.
    pub(crate) fn with_model(base_url: &str) -> Self {
        let room = Self::warm();
        room.write("docs/a.txt", "the first line\nthe second line\n");
        room.write("wharf.toml", harness(base_url, &files()));
        room
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// Writes a file, and the folders above it.
    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path().join(name)).unwrap()
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.path().join(name).exists()
    }

    /// The program with these arguments, in this folder, with nothing of the tester's environment.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_wharf"));
        command.args(arguments).current_dir(self.path()).env_clear().env("HOME", self.path()).stdin(Stdio::null());
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Ran {
        self.finish(self.command(arguments).output().unwrap())
    }

    pub(crate) fn run_with_env(&self, env: (&str, &str), arguments: &[&str]) -> Ran {
        self.finish(self.command(arguments).env(env.0, env.1).output().unwrap())
    }

    pub(crate) fn run_with_stdin(&self, stdin: &str, arguments: &[&str]) -> Ran {
        let mut child = self.spawn(self.command(arguments).stdin(Stdio::piped()));
        child.stdin.take().unwrap().write_all(stdin.as_bytes()).unwrap();
        self.finish(child.wait_with_output().unwrap())
    }

    pub(crate) fn spawn(&self, command: &mut Command) -> Child {
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// What a process left, with this folder's path as `ROOM`.
    pub(crate) fn finish(&self, output: Output) -> Ran {
        let room = self.path().canonicalize().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap().replace(room.to_str().unwrap(), "ROOM");
        Ran { code: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
    }
}

impl Ran {
    /// Asserts the exit code, showing everything if it is another.
    #[track_caller]
    pub(crate) fn ends(self, code: i32) -> Self {
        assert_eq!(self.code, code, "\n--- stdout\n{}\n--- stderr\n{}", self.out, self.err);
        self
    }

    /// Asserts that these lines stand in standard error, next to each other.
    #[track_caller]
    pub(crate) fn says(self, lines: &[&str]) -> Self {
        let all: Vec<&str> = self.err.lines().collect();
        assert!(all.windows(lines.len()).any(|part| part == lines), "\nexpected {lines:#?}\nin\n{}", self.err);
        self
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}\n{}\n{}", self.out, self.err))
    }

    /// The session that was talked of.
    pub(crate) fn session(&self) -> String {
        self.json()["session"].as_str().unwrap().to_owned()
    }
}

/// A cache of compiled components, made once for all tests: compiling takes seconds.
fn compiled() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        let room = Path::new(env!("CARGO_TARGET_TMPDIR")).join("compiled");
        fs::create_dir_all(&room).unwrap();
        let example = example("tool-rust/dist/tool-rust.wasm");
        for component in [dist("files.wasm"), dist("query.wasm"), dist("slow.wasm"), example] {
            let mut command = Command::new(env!("CARGO_BIN_EXE_wharf"));
            command.args(["tool", "inspect", &component]).current_dir(&room).env_clear().env("HOME", &room);
            let output = command.output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
        room.join(CACHE)
    })
}

/// The repository.
pub(crate) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// A component that ships with wharf.
pub(crate) fn dist(name: &str) -> String {
    repository().join("guest-tools/dist").join(name).to_str().unwrap().to_owned()
}

/// A harness with a provider at this address and whatever follows.
pub(crate) fn harness(base_url: &str, rest: &str) -> String {
    format!(
        r#"[harness]
name = "test"
instructions = "Be brief."
model = "local/scripted"

[providers.local]
driver = "openai-responses"
base_url = "{base_url}"

[models."local/scripted"]
async = "on"

{rest}"#
    )
}

/// The component `files` over the folder `docs`.
pub(crate) fn files() -> String {
    format!(
        r#"[capabilities.files]
component = "{}"
config = {{ root = "/docs" }}

[capabilities.files.grants]
fs = [{{ host = "./docs", guest = "/docs" }}]

[capabilities.files.tools."read_*"]
replay = "safe"

[capabilities.files.tools.write_file]
refuse = "this harness only reads"
"#,
        dist("files.wasm")
    )
}

/// A component that ships as an example.
pub(crate) fn example(name: &str) -> String {
    repository().join("examples").join(name).to_str().unwrap().to_owned()
}

/// A scripted model.
pub(crate) async fn model(script: Script) -> Server {
    Server::start(script, Options::default()).await.unwrap()
}

/// Runs what blocks, while the scripted model goes on.
pub(crate) fn blocking<T>(work: impl FnOnce() -> T) -> T {
    tokio::task::block_in_place(work)
}

/// The outputs that a model got with its n-th request, from 1, by call id.
pub(crate) fn outputs(server: &Server, n: usize) -> Vec<(String, String)> {
    let requests = server.requests();
    let body = requests[n - 1].json().unwrap();
    let items = body["input"].as_array().into_iter().flatten();
    let output = |item: &Value| Some((item["call_id"].as_str()?.to_owned(), item["output"].as_str()?.to_owned()));
    items.filter_map(output).collect()
}

/// Output without what differs from run to run, and without the padding of tables: ids become `ID`, points in time and
/// durations `TIME`.
pub(crate) fn settled(text: &str) -> String {
    let line = |line: &str| {
        let indent = &line[..line.len() - line.trim_start().len()];
        let mut out: Vec<String> = Vec::new();
        let mut words = line.split_whitespace().peekable();
        while let Some(word) = words.next() {
            let core = word.trim_end_matches([':', ',']);
            let tail = &word[core.len()..];
            let is_number = core.chars().all(|c| c.is_ascii_digit() || c == '.');
            if is_number && words.peek().is_some_and(|unit| matches!(unit.trim_end_matches([',', ':']), "ms" | "s")) {
                let unit = words.next().unwrap_or_default();
                out.push(format!("TIME{}", unit.trim_start_matches(char::is_alphabetic)));
            } else if is_id(core) {
                out.push(format!("ID{tail}"));
            } else if let Some((name, id)) = core.split_once('=').filter(|(_, id)| is_id(id)) {
                let _ = id; // the name stays
                out.push(format!("{name}=ID{tail}"));
            } else if is_moment(core) {
                out.push(format!("TIME{tail}"));
            } else {
                out.push(word.to_owned());
            }
        }
        format!("{indent}{}\n", out.join(" "))
    };
    text.lines().map(line).collect()
}

/// JSON with the same things settled; counted milliseconds too.
pub(crate) fn settled_json(value: &Value) -> Value {
    match value {
        Value::String(text) if is_moment(text) => "TIME".into(),
        Value::String(text) if is_id(text) => "ID".into(),
        Value::Array(values) => values.iter().map(settled_json).collect(),
        Value::Object(members) => {
            let member = |(name, value): (&String, &Value)| {
                let is_count = name.ends_with("_ms") && value.is_number();
                (name.clone(), if is_count { "TIME".into() } else { settled_json(value) })
            };
            Value::Object(members.iter().map(member).collect())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

fn is_id(text: &str) -> bool {
    text.len() == 36 && text.matches('-').count() == 4
}

fn is_moment(text: &str) -> bool {
    text.len() == "2026-01-01T00:00:00.000Z".len() && text.ends_with('Z') && text.contains('T')
}

/// A run of the program that goes on beside the test.
pub(crate) struct Running {
    child: Child,
    out: Stream,
    err: Stream,
}

impl Running {
    /// Starts it.
    pub(crate) fn start(room: &Room, arguments: &[&str]) -> Self {
        let mut child = room.spawn(&mut room.command(arguments));
        let out = Stream::read(child.stdout.take().unwrap());
        let err = Stream::read(child.stderr.take().unwrap());
        Self { child, out, err }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits until this text has come on standard output.
    pub(crate) fn says(&self, text: &str) {
        self.out.wait_for(text);
    }

    /// Waits until this text has come on standard error.
    pub(crate) fn talks(&self, text: &str) {
        self.err.wait_for(text);
    }

    /// The first line of standard output.
    pub(crate) fn first_line(&self) -> String {
        self.out.wait_for("\n").lines().next().unwrap().to_owned()
    }

    /// Sends a signal: `INT`, `TERM`, `KILL`.
    pub(crate) fn signal(&self, name: &str) {
        let done = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status().unwrap();
        assert!(done.success());
    }

    /// Waits until it has ended, and asserts its exit code; -1 where a signal ended it.
    pub(crate) fn ends(mut self, code: i32) -> Ran {
        let status = self.child.wait().unwrap();
        let ran = Ran { code: status.code().unwrap_or(-1), out: self.out.all(), err: self.err.all() };
        ran.ends(code)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It has ended already, unless the test failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a stream has brought so far, and whether it is at its end.
struct Stream(Arc<(Mutex<(String, bool)>, Condvar)>);

impl Stream {
    fn read(source: impl Read + Send + 'static) -> Self {
        let shared = Arc::new((Mutex::new((String::new(), false)), Condvar::new()));
        let ours = shared.clone();
        std::thread::spawn(move || {
            let mut source = BufReader::new(source);
            loop {
                let bytes = source.fill_buf().unwrap_or_default();
                let (text, n) = (String::from_utf8_lossy(bytes).into_owned(), bytes.len());
                source.consume(n);
                let mut state = ours.0.lock().unwrap();
                state.0.push_str(&text);
                state.1 = n == 0;
                ours.1.notify_all();
                if n == 0 {
                    return;
                }
            }
        });
        Self(shared)
    }

    #[track_caller]
    fn wait_for(&self, text: &str) -> String {
        let waits = |state: &mut (String, bool)| !state.0.contains(text) && !state.1;
        let (state, _) = self.0.1.wait_timeout_while(self.0.0.lock().unwrap(), PATIENCE, waits).unwrap();
        assert!(state.0.contains(text), "{text:?} never came in\n{}", state.0);
        state.0.clone()
    }

    fn all(&self) -> String {
        let (state, _) = self.0.1.wait_timeout_while(self.0.0.lock().unwrap(), PATIENCE, |state| !state.1).unwrap();
        state.0.clone()
    }
}

/// Longest wait for something that has to come; only a failing test waits so long.
const PATIENCE: Duration = Duration::from_secs(60);
