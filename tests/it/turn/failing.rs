//! A journal that fails under a running turn, on the real embedded store: acting stops, what runs is cancelled, the message
//! says what to do, and nothing that was reported is lost (L11, L63).

use std::path::Path;
use std::sync::Arc;

use futures::future::BoxFuture;
use serde_json::{Value, json};
use tokio::sync::watch;
use wharf::core::tool::{Claims, Content, Definition, InputFormat};
use wharf::core::{Error, ErrorKind};
use wharf::native::{About, NativeCall, NativeCapability, NativeError};
use wharf::store::{SqliteOptions, SqliteStore};
use wharf::{Session, TurnOptions};
use wharf_simulate::{Answer, Expect, Script};

use super::kit::{ASYNC, World, function_output, within};

/// A tool that never ends, and says when it was started and when it was dropped.
#[derive(Clone, Default)]
struct Endless(Arc<watch::Sender<(u32, u32)>>);

impl Endless {
    const LINES: &str =
        "[capabilities.endless]\nnative = \"endless\"\n[capabilities.endless.tools.wait]\nasync = true\n";

    async fn started(&self) {
        within("starting", self.0.subscribe().wait_for(|(started, _)| *started == 1)).await.unwrap();
    }

    /// Waits until what ran is dropped: a task that is aborted is gone at its runtime's next step.
    async fn cancelled(&self) {
        within("the cancellation", self.0.subscribe().wait_for(|(_, dropped)| *dropped == 1)).await.unwrap();
    }

    /// How often it was started, and how often what ran was dropped.
    fn seen(&self) -> (u32, u32) {
        *self.0.borrow()
    }
}

struct Running(Endless);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.0.send_modify(|(_, dropped)| *dropped += 1);
    }
}

impl NativeCapability for Endless {
    fn about(&self) -> About {
        About { id: "endless".to_owned(), ..About::default() }
    }

    fn tools(&self, _config: &Value) -> Result<Vec<Definition>, Error> {
        Ok(vec![Definition {
            name: "wait".into(),
            title: None,
            category: None,
            description: "Waits.".to_owned(),
            input: InputFormat::JsonSchema(json!({ "type": "object" })),
            output_schema: None,
            claims: Claims::default(),
        }])
    }

    fn call(&self, _call: NativeCall) -> BoxFuture<'static, Result<Vec<Content>, NativeError>> {
        self.0.send_modify(|(started, _)| *started += 1);
        let running = Running(self.clone());
        Box::pin(async move {
            let _running = running;
            std::future::pending().await
        })
    }
}

/// A turn whose first answer stays open behind the call of `wait` until `then` is released, and says so much after it.
async fn world(after: &str) -> World {
    let script = Script::new("failing")
        .step(Answer::new().async_function_call("call_1", "wait", "{}").wait_for("then").text(after))
        .step(Answer::new().text("Well.").expect(Expect::new().latest()));
    World::new(script).await
}

fn store(folder: &Path, bytes_max: Option<u64>) -> Arc<SqliteStore> {
    Arc::new(SqliteStore::open_with(folder, SqliteOptions { bytes_max, ..SqliteOptions::default() }).unwrap())
}

async fn session(world: &World, store: Arc<SqliteStore>, tool: &Endless) -> Session {
    let builder = world.builder().native(tool.clone()).store(store);
    world.agent(builder, world.harness(&format!("{ASYNC}{}", Endless::LINES))).await.session("s1")
}

// covers L11, L57, L63
#[tokio::test]
async fn a_turn_whose_journal_is_removed_stops_acting_and_says_so() {
    let world = world("Gone.").await;
    let (tool, folder) = (Endless::default(), world.path("journal"));
    let session = session(&world, store(&folder, None), &tool).await;
    let mut nobody = ();
    let (error, ()) = within("the turn", async {
        tokio::join!(session.turn("start", TurnOptions::default(), &mut nobody), async {
            tool.started().await;
            std::fs::remove_file(folder.join("wharf.db")).unwrap();
            world.server.release("then");
        })
    })
    .await;
    let error = error.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Store);
    assert!(error.message.ends_with("the file was removed or replaced while it was open"), "{error}");
    assert!(error.hint.is_some(), "{error}");
    tool.cancelled().await;
    assert_eq!(tool.seen(), (1, 1), "what ran is cancelled");
    assert_eq!(world.server.requests().len(), 1, "and nothing more is sent");
}

// covers L11, L57, L63, M4
#[tokio::test]
async fn a_turn_whose_disk_is_full_stops_acting_and_goes_on_once_there_is_room() {
    // The answer is larger than what is left.
    let world = world(&"x".repeat(300_000)).await;
    let (tool, folder) = (Endless::default(), world.path("journal"));
    let full = session(&world, store(&folder, Some(200 << 10)), &tool).await;
    let mut nobody = ();
    let (error, ()) = within("the turn", async {
        tokio::join!(full.turn("start", TurnOptions::default(), &mut nobody), async {
            tool.started().await;
            world.server.release("then");
        })
    })
    .await;
    drop(full);
    let error = error.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Store);
    assert!(error.message.contains("full"), "{error}");
    assert!(error.hint.as_deref().is_some_and(|hint| hint.contains("disk")), "{error}");
    tool.cancelled().await;
    assert_eq!(tool.seen(), (1, 1), "what ran is cancelled");
    assert_eq!(world.server.requests().len(), 1, "and nothing more is sent");

    // With room, the provider is asked what became of the answer, and the call that ran is not run again.
    let session = session(&world, store(&folder, None), &tool).await;
    let options = TurnOptions { take_over: true, ..TurnOptions::default() };
    let result = within("resuming", session.resume(options, &mut ())).await.unwrap();
    assert_eq!(result.text, "Well.");
    assert_eq!(tool.seen(), (1, 1));
    let interrupted = json!({ "error": wharf::core::checkpoint::INTERRUPTED }).to_string();
    assert_eq!(world.wire().last().unwrap()["input"], json!([function_output("call_1", &interrupted)]));
    world.lawful();
}
