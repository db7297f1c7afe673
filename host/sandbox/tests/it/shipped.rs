//! The components that are shipped, in the sandbox: what a Rust tool with the SDK and the standard library needs is there,
//! and its grants are all that it has.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use wharf_core::grants::{FileAccess, Limits};
use wharf_core::tool::{Claims, FailureKind, InputFormat};
use wharf_sandbox::{CallOutcome, Capability, Invocation, LoadError, Roots};

use crate::kit::{Given, call, given, grant, load_in, sandbox, text_of};

async fn shipped(name: &str, given: Given) -> Capability {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../guest-tools/dist").join(name).with_extension("wasm");
    load_in(&sandbox(), std::fs::read(path).unwrap(), given).await.unwrap()
}

fn folder(host: &Path, access: FileAccess) -> Given {
    given(vec![grant(host, access)], Roots::default())
}

fn with_config(tool: &str, input: &str, config: serde_json::Value) -> Invocation {
    Invocation { config: config.to_string(), ..call(tool, input) }
}

// covers Z11
#[tokio::test]
async fn files_says_what_it_offers_and_refuses_a_bad_config() {
    let files = shipped("files", Given::default()).await;
    let schema = files.config_schema().await.unwrap().unwrap();
    assert_eq!(schema["type"], "object");
    let names = async |config: &str| {
        let definitions = files.definitions(config).await.unwrap();
        definitions.iter().map(|definition| definition.name.as_str().to_owned()).collect::<Vec<_>>()
    };
    let reading = ["read_file", "list_files", "search_files"];
    assert_eq!(names(r#"{"root":"/data","read_only":true}"#).await, reading);
    assert_eq!(names(r#"{"root":"/data"}"#).await, [&reading[..], &["write_file", "edit_file"]].concat());
    let read = &files.definitions("{}").await.unwrap()[0];
    assert_eq!(read.category.as_deref(), Some("files"));
    assert_eq!(read.claims, Claims { read_only: true, idempotent: true, destructive: false, open_world: false });
    assert!(matches!(&read.input, InputFormat::JsonSchema(schema) if schema["type"] == "object"));
    let description = files.describe(r#"{"root":"/data"}"#).await.unwrap().unwrap();
    assert!(description.instructions.contains("/data"), "{description:?}");
    let error = files.definitions(r#"{"rot":"/data"}"#).await.unwrap_err();
    assert!(matches!(&error, LoadError::ConfigRefused { failure, .. } if failure.message.contains("rot")), "{error:?}");
}

#[tokio::test]
async fn files_reads_what_is_granted_and_writes_only_where_it_may() {
    let place = tempfile::tempdir().unwrap();
    std::fs::write(place.path().join("hello.txt"), "hello\nworld\n").unwrap();
    let config = json!({"root": "/data"});
    let read = with_config("read_file", r#"{"path":"hello.txt"}"#, config.clone());
    let write = with_config("write_file", r#"{"path":"new.txt","content":"new"}"#, config.clone());

    let without = shipped("files", Given::default()).await;
    let outcome = without.invoke(read.clone(), Arc::new(())).await.outcome;
    assert!(matches!(&outcome, CallOutcome::Failure(_)), "{outcome:?}");

    let reader = shipped("files", folder(place.path(), FileAccess::Read)).await;
    let outcome = reader.invoke(read.clone(), Arc::new(())).await.outcome;
    assert!(text_of(&outcome).contains("hello") && text_of(&outcome).contains("world"), "{outcome:?}");
    let outcome = reader.invoke(write.clone(), Arc::new(())).await.outcome;
    assert!(matches!(&outcome, CallOutcome::Failure(_)), "{outcome:?}");
    assert!(!place.path().join("new.txt").exists());
    let missing = with_config("read_file", r#"{"path":"missing.txt"}"#, config.clone());
    let outcome = reader.invoke(missing, Arc::new(())).await.outcome;
    assert!(matches!(&outcome, CallOutcome::Failure(failure) if failure.kind == FailureKind::NotFound), "{outcome:?}");

    let writer = shipped("files", folder(place.path(), FileAccess::ReadWrite)).await;
    let outcome = writer.invoke(write, Arc::new(())).await.outcome;
    assert!(matches!(&outcome, CallOutcome::Success(_)), "{outcome:?}");
    assert_eq!(std::fs::read_to_string(place.path().join("new.txt")).unwrap(), "new");
}

// covers Q19
#[tokio::test]
async fn query_gets_its_program_with_line_breaks_and_quotes_as_they_were() {
    let query = shipped("query", Given::default()).await;
    let definitions = query.definitions("{}").await.unwrap();
    assert_eq!(definitions[0].input, InputFormat::Text);
    let program = ".items[]\n| select(.name == \"a \\\"b\\\"\")\n| .id\n---\n{\"items\":[{\"name\":\"a \\\"b\\\"\",\"id\":18446744073709551615},{\"name\":\"c\",\"id\":2}]}";
    let outcome = query.invoke(call("query", program), Arc::new(())).await.outcome;
    assert_eq!(outcome.into_envelope(), r#"{"result":18446744073709551615,"error":null,"images":[]}"#);
}

// LIM-1: a tool that sleeps in its language's own library ends at its limit; a shorter sleep does not.
#[tokio::test]
async fn slow_ends_at_its_limit_while_it_sleeps_and_leaves_its_mark_only_once_it_wrote() {
    let place = tempfile::tempdir().unwrap();
    let note = |before_ms: u64| {
        with_config(
            "note",
            r#"{"text":"buy bread"}"#,
            json!({"notes_root": "/data", "note_before_ms": before_ms, "note_after_ms": 0}),
        )
    };
    let notes = || {
        std::fs::read_dir(place.path())
            .unwrap()
            .map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap())
            .collect::<String>()
    };
    let limits = Limits { time: Duration::from_millis(200), ..Limits::default() };
    let slow = shipped("slow", Given { limits, ..folder(place.path(), FileAccess::ReadWrite) }).await;
    let outcome = slow.invoke(note(30_000), Arc::new(())).await.outcome;
    assert_eq!(outcome, CallOutcome::TimedOut { limit: Duration::from_millis(200) });
    assert_eq!(notes(), "");
    let slow = shipped("slow", folder(place.path(), FileAccess::ReadWrite)).await;
    let outcome = slow.invoke(note(1), Arc::new(())).await.outcome;
    assert!(matches!(&outcome, CallOutcome::Success(_)), "{outcome:?}");
    assert!(notes().contains("buy bread") && notes().contains("call-1"), "{}", notes());
}
