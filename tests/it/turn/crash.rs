//! What becomes of a component's call when its host stops in the middle of it: policy alone decides (Z15).

use std::sync::Arc;

use tokio::sync::watch;
use wharf::core::record::Record;
use wharf::core::{CallId, ErrorKind};
use wharf::store::{SqliteStore, Store};
use wharf::{Agent, ToolNote, TurnOptions};
use wharf_simulate::{Answer, Expect, Script};

use super::kit::{ASYNC, Desk, World, component, within};

/// What the model is told of a call that was cut off and is not run again (G5).
const INTERRUPTED: &str = "{\"error\":\"this call was interrupted: the host stopped while it ran, its outcome is uncertain, \
                           and it must not be retried automatically\"}";

/// What a second run gives, which finds the folder empty.
const COUNTED: &str = "{\"result\":{\"files\":0,\"lines\":0,\"words\":0,\"by_extension\":{},\"skipped\":0},\
                       \"error\":null,\"images\":[]}";

struct Crash {
    tool: &'static str,
    input: &'static str,
    /// Further lines of the component's config.
    config: &'static str,
    /// The rule of the tool, if there is one.
    rule: &'static str,
}

/// What is left of a call after a crash and a second process.
#[derive(Debug, PartialEq)]
struct After {
    claims_harmless: bool,
    /// Attempts by the journal.
    started: Vec<u32>,
    /// Lines that the component wrote: tool, call, attempt.
    witness: Vec<String>,
    /// What the model was told.
    told: String,
}

fn agent_lines(crash: &Crash) -> String {
    let Crash { tool, config, rule, .. } = crash;
    let rule = if rule.is_empty() { String::new() } else { format!("[capabilities.stats.tools.{tool}]\n{rule}\n") };
    format!(
        "{ASYNC}{}config = {{ root = \"/docs\", {config} }}\n\
         [capabilities.stats.grants]\nfs = [{{ host = \"docs\", guest = \"/docs\", access = \"read\" }}, \
         {{ host = \"notes\", guest = \"/notes\", access = \"read-write\" }}]\n\
         [capabilities.stats.limits]\ntime = \"10m\"\n{rule}",
        component("stats", "slow")
    )
}

async fn crash_in_the_middle_of(crash: Crash) -> After {
    let first = Answer::new().function_call("call_1", crash.tool, crash.input);
    let second = Answer::new().text("Done.").expect(Expect::new().latest().only_outputs(["call_1"]));
    let world = World::new(Script::new("a crash").step(first).step(second)).await;
    world.write("docs/a.txt", "one\n");
    world.write("notes/.keep", "");
    let journal = world.path("journal");
    let open = || Arc::new(SqliteStore::open(&journal).unwrap()) as Arc<dyn Store>;
    let process = async || world.agent(world.builder().store(open()), world.harness(&agent_lines(&crash))).await;

    // The first process stops once the component has said that it is under way.
    let agent: Agent = process().await;
    let claims = agent.tools().get(crash.tool).unwrap().definition().claims;
    let (say, mut said) = watch::channel(false);
    let options = TurnOptions {
        tools: Some(Arc::new(move |note| {
            if matches!(note, ToolNote::Progress { .. }) {
                say.send_replace(true);
            }
        })),
        ..TurnOptions::default()
    };
    let session = agent.session("s1");
    let runs = async { session.turn("start", options, &mut ()).await };
    within("the call", async {
        tokio::select! {
            result = runs => panic!("the turn came to an end: {result:?}"),
            _ = said.wait_for(|said| *said) => {}
        }
    })
    .await;
    drop((session, agent));

    // Without this file the tool has nothing to wait for, so that a second run ends at once.
    std::fs::remove_file(world.path("docs/a.txt")).unwrap();
    let session = process().await.session("s1");
    let options = TurnOptions { take_over: true, ..TurnOptions::default() };
    let result = within("the second process", session.resume(options, &mut ())).await.unwrap();
    assert_eq!((result.text.as_str(), result.tool_calls), ("Done.", 1));
    world.lawful();

    let store = open();
    let key = wharf::store::JournalKey::local("s1");
    let records = wharf::records(&*store, &key).await.unwrap();
    let id = CallId::new("call_1");
    let started = records.iter().filter_map(|record| match record {
        Record::CallStarted { id: started, attempt, .. } if *started == id => Some(*attempt),
        _ => None,
    });
    After {
        claims_harmless: claims.read_only && claims.idempotent,
        started: started.collect(),
        witness: lines(&world.path("notes/runs.log")),
        told: world.wire()[1]["input"][0]["output"].as_str().unwrap().to_owned(),
    }
}

fn lines(path: &std::path::Path) -> Vec<String> {
    std::fs::read_to_string(path).unwrap_or_default().lines().map(|line| line.trim().replace('\t', " ")).collect()
}

const COUNT: Crash = Crash { tool: "word_stats", input: "{}", config: "pace_ms = 60000", rule: "" };
const WITNESSED: &str = "pace_ms = 60000, notes_root = \"/notes\", witness = true";
// covers Z15, L53
#[tokio::test]
async fn a_call_is_not_run_again_whatever_its_component_claims() {
    let after = After { claims_harmless: true, started: vec![1], witness: vec![], told: INTERRUPTED.to_owned() };
    assert_eq!(crash_in_the_middle_of(COUNT).await, after);
}

// covers Z15
#[tokio::test]
async fn a_call_is_run_again_where_a_rule_says_so() {
    let after = After { claims_harmless: true, started: vec![1, 2], witness: vec![], told: COUNTED.to_owned() };
    assert_eq!(crash_in_the_middle_of(Crash { rule: "replay = \"safe\"", ..COUNT }).await, after);
}

// covers Z15
#[tokio::test]
async fn each_run_of_a_replayed_call_leaves_its_own_mark() {
    let runs = ["word_stats call_1 1", "word_stats call_1 2"].map(str::to_owned).to_vec();
    let after = After { claims_harmless: false, started: vec![1, 2], witness: runs, told: COUNTED.to_owned() };
    assert_eq!(crash_in_the_middle_of(Crash { config: WITNESSED, rule: "replay = \"safe\"", ..COUNT }).await, after);

    let after = After {
        claims_harmless: false,
        started: vec![1],
        witness: vec!["word_stats call_1 1".to_owned()],
        told: INTERRUPTED.to_owned(),
    };
    assert_eq!(crash_in_the_middle_of(Crash { config: WITNESSED, ..COUNT }).await, after);
}

// covers G12, L56
#[tokio::test]
async fn a_keyed_call_is_run_again_with_the_key_that_it_had() {
    let first = Answer::new().function_call("call_1", "hang", "{\"n\":1}");
    let second = Answer::new().function_call("call_2", "multiply", "{\"n\":1}");
    let script = Script::new("a crash").step(first).step(second).step(Answer::new().text("Done."));
    let world = World::new(script).await;
    let desk = Desk::default();
    let lines = format!("{ASYNC}{}[capabilities.desk.tools]\n\"*\" = {{ replay = \"keyed\" }}\n", Desk::ENABLED);
    let agent = world.desk(&desk, &lines).await;
    let session = agent.session("s1");
    let turn = async { session.turn("start", TurnOptions::default(), &mut ()).await };
    within("the call", async {
        tokio::select! {
            result = turn => panic!("the turn came to an end: {result:?}"),
            () = desk.wait_for_a_call() => {}
        }
    })
    .await;
    drop((session, agent));

    let session = world.desk(&desk, &lines).await.session("s1");
    let options = TurnOptions { take_over: true, ..TurnOptions::default() };
    assert_eq!(within("resuming", session.resume(options, &mut ())).await.unwrap().text, "Done.");
    let calls: Vec<(String, u32)> = desk.calls().into_iter().map(|(tool, _, attempt)| (tool, attempt)).collect();
    assert_eq!(calls, [("hang".to_owned(), 1), ("hang".to_owned(), 2), ("multiply".to_owned(), 1)]);
    let [one, again, other] = &desk.keys()[..] else { panic!("{:?}", desk.keys()) };
    assert!(one.is_some() && one == again && other.is_some() && other != one, "{:?}", desk.keys());
    world.lawful();
}

#[tokio::test]
async fn a_session_of_a_process_that_died_is_taken_over_only_if_asked() {
    let script = Script::new("a crash").step(Answer::new().text("Let me").wait_for("nobody").text(" see."));
    let world = World::new(script).await;
    let agent = world.agent(world.builder().label("the dead"), world.harness("")).await;
    let session = agent.session("s1");
    let runs = async { session.turn("start", TurnOptions::default(), &mut ()).await };
    within("the request", async {
        tokio::select! {
            result = runs => panic!("the turn came to an end: {result:?}"),
            reached = world.server.wait_for_gate("nobody") => reached.unwrap(),
        }
    })
    .await;
    drop((session, agent));

    let session = world.agent(world.builder(), world.harness("")).await.session("s1");
    let error = within("resuming", session.resume(TurnOptions::default(), &mut ())).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Store, "{error}");
    assert!(error.message.contains("the dead"), "{error}");
    world.server.release("nobody");
}
