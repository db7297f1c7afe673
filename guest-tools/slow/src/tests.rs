//! The tools as the host calls them. Pauses are zero: tests wait for nothing.

use std::fs;

use tempfile::TempDir;
use wharf_tool_sdk::{Claims, Content, Failure, FailureKind, testing};

use crate::Slow;

fn room() -> (TempDir, String) {
    let folder = TempDir::new().expect("a folder");
    for (path, content) in [
        ("docs/a.md", &b"one two\nthree\n"[..]),
        ("docs/sub/b.md", b"four"),
        ("docs/x.bin", b"\0"),
        ("docs/README", b"five six\n"),
    ] {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().expect("a parent")).expect("folder");
        fs::write(path, content).expect("file");
    }
    fs::create_dir(folder.path().join("notes")).expect("folder");
    let at = folder.path().display();
    let config = format!(r#"{{"root":"{at}/docs","notes_root":"{at}/notes","witness":true}}"#);
    (folder, config)
}

#[test]
fn words_are_counted_by_extension_and_each_file_is_reported() {
    let (_folder, config) = room();
    let host = testing::FakeHost::default();
    let answer = testing::invoke_in::<Slow>(&host, testing::invocation("word_stats", "", &config));
    let expected = r#"{"files":3,"lines":4,"words":6,"by_extension":{"-":{"files":1,"lines":1,"words":2},"md":{"files":2,"lines":3,"words":4}},"skipped":1}"#;
    assert_eq!(answer, Ok(vec![Content::Json(expected.to_owned())]));
    let messages: Vec<String> =
        host.reports().into_iter().map(|(message, done, total)| format!("{message} {done:?}/{total:?}")).collect();
    assert_eq!(
        messages,
        [
            "counting README Some(0)/Some(4)",
            "counting a.md Some(1)/Some(4)",
            "counting sub/b.md Some(2)/Some(4)",
            "counting x.bin Some(3)/Some(4)",
            "counted Some(4)/Some(4)",
        ]
    );
}

#[test]
fn extension_and_path_narrow_the_count() {
    let (_folder, config) = room();
    let words = |input: &str| {
        let contents = testing::invoke::<Slow>("word_stats", input, &config)?;
        let [Content::Json(json)] = contents.as_slice() else { panic!("one JSON") };
        Ok(serde_json::from_str::<serde_json::Value>(json).expect("JSON")["words"].clone())
    };
    assert_eq!(words(r#"{"extension":"md"}"#), Ok(serde_json::json!(4)));
    assert_eq!(words(r#"{"path":"sub"}"#), Ok(serde_json::json!(1)));
    assert_eq!(words(r#"{"path":"nope"}"#).map_err(|failure: Failure| failure.kind), Err(FailureKind::NotFound));
    assert_eq!(words(r#"{"extension":"*.md"}"#), Ok(serde_json::json!(4)));
    assert_eq!(words(r#"{"extension":"rs"}"#), Ok(serde_json::json!(0)));
    assert_eq!(
        words(r#"{"path":"../notes"}"#).map_err(|failure: Failure| failure.kind),
        Err(FailureKind::InvalidInput)
    );
}

#[test]
fn every_run_leaves_a_line_with_call_and_attempt() {
    let (folder, config) = room();
    let run = |tool: &str, input: &str, call_id: &str, attempt: u32| {
        let mut invocation = testing::invocation(tool, input, &config);
        invocation.call_id = call_id.to_owned();
        invocation.attempt = attempt;
        testing::invoke_in::<Slow>(&testing::FakeHost::default(), invocation).map(|_| ())
    };
    assert_eq!(run("word_stats", r#"{"path":"sub"}"#, "call_a", 1), Ok(()));
    assert_eq!(run("word_stats", r#"{"path":"sub"}"#, "call_a", 2), Ok(()));
    assert_eq!(run("note", r#"{"text":"hello you"}"#, "call_b", 1), Ok(()));
    assert_eq!(
        run("note", r#"{"text":"a\nb"}"#, "call_c", 1).map_err(|failure| failure.kind),
        Err(FailureKind::InvalidInput)
    );
    let content = |file: &str| fs::read_to_string(folder.path().join("notes").join(file)).expect("the file is there");
    assert_eq!(content("runs.log"), "word_stats\tcall_a\t1\tsub\nword_stats\tcall_a\t2\tsub\n");
    assert_eq!(content("notes.log"), "note\tcall_b\t1\thello you\n");
}

#[test]
fn tools_follow_from_the_config() {
    let offered = |config: &str| {
        let definitions = testing::definitions::<Slow>(config).map_err(|failure| failure.message)?;
        Ok(definitions.into_iter().map(|definition| (definition.name, definition.claims)).collect::<Vec<_>>())
    };
    let stats = "word_stats".to_owned();
    assert_eq!(offered("{}"), Ok(vec![(stats.clone(), Claims::READ_ONLY | Claims::IDEMPOTENT)]));
    assert_eq!(
        offered(r#"{"notes_root":"/notes","witness":true}"#),
        Ok(vec![(stats, Claims::empty()), ("note".to_owned(), Claims::empty())])
    );
    assert_eq!(
        offered(r#"{"witness":true}"#),
        Err("witness is true, but there is no notes_root to write to; hint: set notes_root".to_owned())
    );
    assert_eq!(offered(r#"{"pace_ms":600001}"#), Err("pace_ms is 600001; at most 600000 is possible".to_owned()));
    assert_eq!(
        offered(r#"{"pace":5}"#),
        Err("unknown config key \"pace\"; hint: did you mean \"pace_ms\"?".to_owned())
    );
}
