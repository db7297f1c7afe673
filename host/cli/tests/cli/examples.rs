//! The examples that ship with wharf: each is run as its README says, from a copy, so that nothing is left in the sources.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::kit::{Room, Running, repository};

/// The parts of the repository that the examples need, in a room.
fn copied() -> Room {
    let room = Room::warm();
    for folder in ["docs", "guest-tools/dist", "examples/docs-helper", "examples/data-query", "examples/tool-rust/dist"]
    {
        copy(&repository().join(folder), &room.path().join(folder));
    }
    room
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        // Sessions of whoever has tried the example.
        if entry.file_name() == ".wharf" {
            continue;
        }
        if entry.file_type().unwrap().is_dir() {
            copy(&from, &to);
        } else {
            fs::copy(from, to).unwrap();
        }
    }
}

/// Plays an example's script as its README says, on another port, and gives the answer, and the session as JSON.
fn play(name: &str, address: &str, question: &str) -> (String, Value) {
    let room = copied();
    let (harness, script) = (format!("examples/{name}/harness.toml"), format!("examples/{name}/script.toml"));
    let readme = room.read(&format!("examples/{name}/README.md"));
    for line in [
        format!("cargo run -- simulate {script} --bind {address}\n"),
        format!("cargo run -- run -H {harness} \"{question}\"\n"),
    ] {
        assert!(readme.contains(&line), "the README of {name} does not say: {line}");
    }
    let simulate = Running::start(&room, &["simulate", &script]);
    let base_url = simulate.first_line();
    let text = room.read(&harness);
    let scripted = format!("\"http://{address}/v1\"");
    assert!(text.contains(&scripted), "{harness} is not for the address of its README");
    room.write(&harness, text.replace(&scripted, &format!("\"{base_url}\"")));
    let ran = room.run(&["run", "-H", &harness, "-s", "s1", question]).ends(0);
    simulate.signal("INT");
    // It ends with 1 if a request was not as the script expects it.
    simulate.ends(0);
    let shown = room.run(&["session", "show", "s1", "-H", &harness, "--json"]).ends(0).json();
    (ran.out, shown)
}

/// Tool, state, how it ended, and runs of each call.
fn calls(shown: &Value) -> Vec<Value> {
    let fields = |call: &Value| json!([call["tool"], call["state"], call["how"], call["attempts"]]);
    shown["calls"].as_array().unwrap().iter().map(fields).collect()
}

#[test]
fn docs_helper_answers_from_a_folder() {
    let (answer, shown) = play("docs-helper", "127.0.0.1:4011", "How does a turn end that I stop with Ctrl-C?");
    assert_eq!(
        answer,
        "I look for it in the documents.\nIt ends with 130, and what was gained is kept (exit-codes.md).\n"
    );
    assert_eq!(
        calls(&shown),
        [json!(["search_files", "delivered", "done", 1]), json!(["read_file", "delivered", "done", 1])]
    );
}

#[test]
fn data_query_computes_with_a_raw_program_and_a_tool_from_outside() {
    let (answer, shown) = play("data-query", "127.0.0.1:4012", "How many kilograms did we ship in March?");
    assert_eq!(answer, "I add the weights up.\nIn March, 3 orders with 45.36 kg in all were shipped (100 lb).\n");
    assert_eq!(
        calls(&shown),
        [json!(["query", "delivered", "done", 1]), json!(["convert_units", "delivered", "done", 1])]
    );
}

#[test]
fn no_example_lets_a_tool_write() {
    let room = copied();
    for (name, tools) in [
        ("docs-helper", vec!["list_files", "read_file", "search_files"]),
        ("data-query", vec!["query", "convert_units"]),
    ] {
        let ran = room.run(&["check", "-H", &format!("examples/{name}/harness.toml"), "--json"]).ends(0);
        let json = ran.json();
        let rows = json["tools"].as_array().unwrap();
        assert_eq!(rows.iter().map(|tool| tool["name"].as_str().unwrap()).collect::<Vec<_>>(), tools);
        // A tool that could write would not be pure, and so never run again.
        assert!(rows.iter().all(|tool| tool["replay"]["value"] == "safe"), "{rows:#?}");
    }
}

#[test]
fn the_other_examples_can_be_read() {
    let room = copied();
    let script = repository().join("examples/scripts/two-calls.toml");
    let simulate = Running::start(&room, &["simulate", script.to_str().unwrap()]);
    simulate.talks("serving 3 steps");
    simulate.signal("INT");
    simulate.ends(0);
    let demo = repository().join("examples/demo");
    // The demo makes the folder that its tools may write to.
    std::fs::create_dir_all(demo.join("witness")).unwrap();
    for name in ["harness.toml", "crash.toml"] {
        room.run(&["check", "-H", demo.join(name).to_str().unwrap()]).ends(0);
    }
}
