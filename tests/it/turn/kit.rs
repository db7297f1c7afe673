//! The parts of these tests: a folder with a scripted provider and a store that outlive any one process, a native
//! capability that remembers what it was given, and short forms for what is compared.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::watch;
use wharf::core::harness::Harness;
use wharf::core::record::Record;
use wharf::core::tool::{Blob, Claims, Content, Definition, Failure, FailureKind, InputFormat};
use wharf::core::{BlobDigest, Error};
use wharf::native::{About, NativeCall, NativeCapability, NativeError};
use wharf::sandbox::SandboxOptions;
use wharf::store::{JournalKey, MemoryStore, Store};
use wharf::{Agent, Builder, Session, Surroundings, TurnOptions, TurnResult, Wharf, records};
use wharf_simulate::{Options, Script, Server};
use wharf_tests::guest_path;

/// Nothing here takes this long; a test that waits for what never comes ends all the same.
const WAIT_MAX: Duration = Duration::from_secs(120);

/// Bounds a piece of work.
pub(super) async fn within<T>(what: &str, work: impl Future<Output = T>) -> T {
    tokio::time::timeout(WAIT_MAX, work).await.unwrap_or_else(|_| panic!("{what} did not come to an end"))
}

/// The lines by which the model takes async calls and is continued on its latest response.
pub(super) const ASYNC: &str = "[models.\"sim/m\"]\nasync = \"on\"\n";

/// What outlives a process: a folder, the provider, the store.
pub(super) struct World {
    folder: TempDir,
    pub(super) server: Server,
    pub(super) store: Arc<dyn Store>,
}

impl World {
    pub(super) async fn new(script: Script) -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            server: Server::start(script, Options::default()).await.unwrap(),
            store: Arc::new(MemoryStore::new()),
        }
    }

    /// A path in the folder.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file of the folder, with the folders above it.
    pub(super) fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// A harness on the provider of this world with model `sim/m`, and these further lines.
    pub(super) fn harness(&self, lines: &str) -> Harness {
        self.harness_with("instructions = \"Do what is asked.\"\nmodel = \"sim/m\"", lines)
    }

    /// The same with other lines in the table `[harness]`.
    pub(super) fn harness_with(&self, head: &str, lines: &str) -> Harness {
        let url = self.server.base_url();
        let text = format!(
            "[harness]\nname = \"test\"\n{head}\n\n[providers.sim]\ndriver = \"openai-responses\"\nbase_url = \"{url}\"\n\n{lines}"
        );
        Harness::parse("harness.toml", &text).unwrap()
    }

    /// A process over the world's store that has these native capabilities and can run components.
    pub(super) fn builder(&self) -> Builder {
        Wharf::builder().store(self.store.clone()).sandbox(sandbox())
    }

    pub(super) fn surroundings(&self) -> Surroundings {
        Surroundings { base: self.folder.path().to_owned(), ..Surroundings::default() }
    }

    /// An agent in a process of its own.
    pub(super) async fn agent(&self, builder: Builder, harness: Harness) -> Agent {
        let agent = self.try_agent(builder, harness).await.unwrap();
        for report in agent.reports() {
            if let wharf::CapabilityStatus::Refused(error) = &report.status {
                panic!("capability {} was refused: {error}", report.name);
            }
        }
        agent
    }

    pub(super) async fn try_agent(&self, builder: Builder, harness: Harness) -> Result<Agent, Error> {
        within("loading", builder.build().unwrap().load(harness, self.surroundings())).await
    }

    /// An agent with the native desk and the shipped components that the lines name.
    pub(super) async fn desk(&self, desk: &Desk, lines: &str) -> Agent {
        self.agent(self.builder().native(desk.clone()), self.harness(lines)).await
    }

    /// A session's records, as anybody reads them.
    pub(super) async fn records(&self, session: &Session) -> Vec<Record> {
        records(&*self.store, &JournalKey::local(session.id().clone())).await.unwrap()
    }

    /// The bodies of all requests for an answer.
    pub(super) fn bodies(&self) -> Vec<Value> {
        let posts = self.server.requests().into_iter().filter(|request| request.method == "POST");
        posts.map(|request| request.json().cloned().unwrap()).collect()
    }

    /// What each request continued, and its whole input.
    pub(super) fn wire(&self) -> Vec<Value> {
        let parts = |body: &Value| json!({ "on": body.get("previous_response_id"), "input": body["input"] });
        self.bodies().iter().map(parts).collect()
    }

    /// Fails if the provider saw anything unlawful.
    pub(super) fn lawful(&self) {
        assert_eq!(self.server.violations(), []);
    }
}

/// How components run in these tests. Compiled code is kept between runs, by digest.
pub(super) fn sandbox() -> SandboxOptions {
    SandboxOptions {
        cache: Some(Path::new(env!("CARGO_TARGET_TMPDIR")).join("turn-cache")),
        ..SandboxOptions::default()
    }
}

/// A turn without options or observer.
pub(super) async fn turn(session: &Session, input: &str) -> TurnResult {
    within("the turn", session.turn(input, TurnOptions::default(), &mut ())).await.unwrap()
}

/// The table of a component of ours; lines of the capability itself may follow.
pub(super) fn component(name: &str, guest: &str) -> String {
    format!("[capabilities.{name}]\ncomponent = {:?}\n", guest_path(guest).display().to_string())
}

pub(super) fn user(text: &str) -> Value {
    json!({ "type": "message", "role": "user", "content": text })
}

/// An output item of a function call.
pub(super) fn function_output(id: &str, text: &str) -> Value {
    json!({ "type": "function_call_output", "call_id": id, "output": text })
}

/// An output item of a custom call.
pub(super) fn custom_output(id: &str, text: &str) -> Value {
    json!({ "type": "custom_tool_call_output", "call_id": id, "output": text })
}

/// What is said inside a native tool and nowhere else.
pub(super) const INSIDE: &str = "password of the database: hunter2";

/// A native capability `desk`. Clones share what they remember.
#[derive(Clone, Default)]
pub(super) struct Desk(Arc<watch::Sender<Vec<NativeCall>>>);

impl Desk {
    /// The table that enables it.
    pub(super) const ENABLED: &str = "[capabilities.desk]\nnative = \"desk\"\n";

    /// Each call so far: own name, input as the tool saw it, attempt.
    pub(super) fn calls(&self) -> Vec<(String, String, u32)> {
        let calls = self.0.borrow();
        calls.iter().map(|call| (call.tool.to_string(), call.input.clone(), call.attempt)).collect()
    }

    /// Waits until a call has come.
    pub(super) async fn wait_for_a_call(&self) {
        self.0.subscribe().wait_for(|calls| !calls.is_empty()).await.unwrap();
    }

    /// The idempotency key of each call so far.
    pub(super) fn keys(&self) -> Vec<Option<String>> {
        self.0.borrow().iter().map(|call| call.idempotency_key.clone()).collect()
    }

    /// Ids of the calls so far, as the tool saw them.
    pub(super) fn ids(&self) -> Vec<String> {
        self.0.borrow().iter().map(|call| call.call_id.to_string()).collect()
    }
}

impl NativeCapability for Desk {
    fn about(&self) -> About {
        About {
            id: "desk".to_owned(),
            title: "Desk".to_owned(),
            description: "Tools of the tests.".to_owned(),
            instructions: "The desk is open all day.".to_owned(),
        }
    }

    fn config_schema(&self) -> Option<Value> {
        let factor = json!({ "type": "integer", "minimum": 1 });
        Some(json!({ "type": "object", "properties": { "factor": factor }, "additionalProperties": false }))
    }

    fn tools(&self, _config: &Value) -> Result<Vec<Definition>, Error> {
        let number = json!({ "type": "object", "properties": { "n": { "type": "integer" } }, "required": ["n"] });
        let tool = |name: &str, input: InputFormat| Definition {
            name: name.into(),
            title: Some(format!("Tool {name}")),
            category: Some("desk".to_owned()),
            description: format!("Does {name}."),
            input,
            output_schema: None,
            claims: Claims::default(),
        };
        let function = InputFormat::JsonSchema(number);
        Ok(vec![
            tool("multiply", function.clone()),
            tool("say", InputFormat::JsonSchema(json!({ "type": "string" }))),
            tool("paste", InputFormat::Text),
            tool("several", function.clone()),
            tool("picture", function.clone()),
            tool("archive", function.clone()),
            tool("refuse", function.clone()),
            tool("break", function.clone()),
            tool("long", function.clone()),
            tool("hang", function),
        ])
    }

    fn call(&self, call: NativeCall) -> BoxFuture<'static, Result<Vec<Content>, NativeError>> {
        self.0.send_modify(|calls| calls.push(call.clone()));
        let number = || serde_json::from_str::<Value>(&call.input).unwrap()["n"].as_i64().unwrap();
        let outcome = match call.tool.as_str() {
            "hang" if call.attempt == 1 => return Box::pin(std::future::pending()),
            "hang" => Ok(vec![Content::Text("woken up".to_owned())]),
            "multiply" => {
                let factor = call.config.get("factor").and_then(Value::as_i64).unwrap_or(2);
                Ok(vec![Content::Json((number() * factor).to_string())])
            }
            "say" | "paste" => Ok(vec![Content::Text(call.input.clone())]),
            "several" => {
                Ok(vec![Content::Text("two".to_owned()), Content::Json("{\"b\": 1.0, \"a\": [2]}".to_owned())])
            }
            "picture" => Ok(vec![Content::Text("a dot".to_owned()), Content::Blob(blob("image/png", None, b"dot"))]),
            "archive" => Ok(vec![Content::Blob(blob("application/zip", Some("a.zip"), b"zip"))]),
            "refuse" => Err(NativeError::Failure(Failure {
                retry_after_ms: Some(1500),
                details: Some(json!({ "shelf": 4 })),
                ..Failure::new(FailureKind::NotFound, "no such thing on the desk")
            })),
            "long" => Ok(vec![Content::Text("0123456789".repeat(usize::try_from(number()).unwrap()))]),
            _ => Err(NativeError::Internal(INSIDE.to_owned())),
        };
        Box::pin(async move { outcome })
    }
}

fn blob(media_type: &str, name: Option<&str>, bytes: &[u8]) -> Blob {
    let digest: BlobDigest = wharf::core::digest::Digest::of(bytes).to_string().into();
    Blob { media_type: media_type.to_owned(), name: name.map(str::to_owned), bytes: bytes.to_vec(), digest }
}
