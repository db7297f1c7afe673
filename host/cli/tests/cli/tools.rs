//! `wharf tool` and `wharf simulate`: a component, and a provider, without a harness.

use serde_json::json;
use wharf_simulate::{Answer, Script};

use crate::kit::{Room, Running, blocking, dist, example, files, harness, model, settled_json};

#[test]
fn inspect_shows_what_a_component_asks_for_and_what_it_offers() {
    let room = Room::warm();
    let file = example("tool-rust/dist/tool-rust.wasm");
    let ran = room.run(&["tool", "inspect", &file]).ends(0);
    assert_eq!(ran.err, "");
    let (first, rest) = ran.out.split_once('\n').unwrap();
    assert!(first.starts_with("sha256:"), "{first}");
    assert!(
        rest.starts_with(
            "made for wharf:tool@0.1.0-draft\n\nimports (without any grant)\n  wharf:tool/types@0.1.0-draft     served\n"
        ),
        "{rest}"
    );
    assert!(
        rest.contains(
            "\ntools\n  convert_units (Convert units)\n      Converts a length, a mass or a temperature to another \
             unit.\n      claims, not believed: read-only, idempotent\n      input  JSON: {"
        ),
        "{rest}"
    );
    let json = room.run(&["tool", "inspect", &file, "--json"]).ends(0).json();
    assert_eq!(json["tools"][0]["name"], "convert_units");
}

#[test]
fn a_call_has_its_result_on_standard_output() {
    let room = Room::warm();
    let file = example("tool-rust/dist/tool-rust.wasm");
    let input = r#"{"value":26.2,"from":"mile","to":"kilometre"}"#;
    let ran = room.run(&["tool", "call", &file, "convert_units", input]).ends(0);
    assert_eq!(ran.out, "{\"value\":42.1648128,\"unit\":\"kilometre\"}\n");
    // Raw text, from standard input.
    let program = ".[] | select(. > 1)\n---\n[1, 2, 3]";
    let ran = room.run_with_stdin(program, &["tool", "call", &dist("query.wasm"), "query", "-"]).ends(0);
    assert_eq!(ran.out, "2\n3\n");
    let json = room.run(&["tool", "call", &file, "convert_units", input, "--json"]).ends(0).json();
    let mut json = settled_json(&json);
    json.as_object_mut().unwrap().remove("memory_peak_bytes");
    let nothing = json!({ "text": "", "truncated": false, "total_bytes": 0 });
    assert_eq!(
        json,
        json!({
            "result": { "value": 42.1648128, "unit": "kilometre" }, "error": null, "images": [], "elapsed_ms": "TIME",
            "stdout": nothing, "stderr": nothing,
        })
    );
}

#[test]
fn a_tool_sees_only_the_folders_that_the_call_grants() {
    let room = Room::warm();
    room.write("docs/a.txt", "here");
    let files = dist("files.wasm");
    let call =
        |tool: &str, input: &str, more: &[&str]| room.run(&[&["tool", "call", &files, tool, input], more].concat());
    assert_eq!(call("list_files", "{}", &["--dir", "docs:/"]).ends(0).out, "a.txt  (4 bytes)\n");
    let ran = call("list_files", "{}", &[]).ends(1);
    assert_eq!(ran.out, "");
    ran.says(&[
        "error: tool \"list_files\" failed (denied): .: no folder that holds it is granted",
        "hint: nothing is granted that is not named: --dir ./docs:/docs, --env NAME=VALUE",
    ]);
    // Reading is not writing.
    let write = r#"{"path":"b.txt","content":"mine"}"#;
    call("write_file", write, &["--dir", "docs:/"]).ends(1);
    assert!(!room.has("docs/b.txt"));
    call("write_file", write, &["--dir", "docs:/:rw"]).ends(0);
    assert_eq!(room.read("docs/b.txt"), "mine");
}

#[test]
fn wrong_calls_are_told_with_what_would_be_right() {
    let room = Room::warm();
    let files = dist("files.wasm");
    let call = |tool: &str, input: &str, more: &[&str]| {
        room.run(&[&["tool", "call", &files, tool, input], more].concat()).ends(2)
    };
    call("lst_files", "{}", &[]).says(&[
        "error: the component offers no tool \"lst_files\"",
        "hint: did you mean \"list_files\" or \"search_files\"?",
    ]);
    call("read_file", "a.txt", &[]).says(&[
        "error: the input of tool \"read_file\" is not JSON: expected value at line 1 column 1",
        "hint: it is a function: give a JSON object that fits its schema (`wharf tool inspect`)",
    ]);
    call("read_file", "{\"pth\":\"a\"}", &[]).says(&[
        "error: the input of tool \"read_file\" does not fit: Additional properties are not allowed ('pth' was unexpected)",
        "hint: `wharf tool inspect` shows its schema",
    ]);
    call("list_files", "{}", &["--config", "{\"rot\":\"/\"}"]).says(&[
        "error: --config does not fit: Additional properties are not allowed ('rot' was unexpected)",
        "hint: `wharf tool inspect` shows the schema of its config",
    ]);
    call("list_files", "{}", &["--config", "/docs"]).says(&[
        "error: --config is not JSON: expected value at line 1 column 1",
        "hint: give a JSON object: --config '{\"root\":\"/docs\"}'",
    ]);
    call("list_files", "{}", &["--dir", "docs"]).says(&[
        "error: --dir \"docs\" does not say under which path the tool sees it",
        "hint: --dir ./docs:/docs to read, --dir ./out:/out:rw to write",
    ]);
    let ran = call("list_files", "{}", &["--dir", "none:/"]);
    assert!(
        ran.err.starts_with("error: capability \"files\" cannot be granted the folder \"./none\": "),
        "{}",
        ran.err
    );
    call("list_files", "{}", &["--time", "10"])
        .says(&["error: --time \"10\" is no time", "hint: --time 10s, --time 500ms, --time 1m30s"]);
}

#[test]
fn simulate_serves_a_script_that_a_turn_can_be_run_against() {
    let room = Room::warm();
    room.write("docs/a.txt", "here");
    room.write("script.toml", "[[step]]\n[[step.item]]\ntype = \"text\"\ntext = \"Hello.\"\n");
    let simulate = Running::start(&room, &["simulate", "script.toml", "--log", "requests.jsonl"]);
    let base_url = simulate.first_line();
    room.write("wharf.toml", harness(&base_url, &files()));
    assert_eq!(room.run(&["run", "hello"]).ends(0).out, "Hello.\n");
    simulate.signal("INT");
    let ran = simulate.ends(0);
    assert_eq!(ran.out, format!("{base_url}\n"));
    assert_eq!(ran.err, "serving 1 step until Ctrl-C\n1 request answered\n");
    let log = room.read("requests.jsonl");
    let kinds: Vec<serde_json::Value> =
        log.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["kind"].clone()).collect();
    assert_eq!(kinds, ["request", "answered", "end"]);
}

#[test]
fn simulate_tells_what_a_client_did_wrong_and_ends_with_one() {
    let room = Room::warm();
    room.write("docs/a.txt", "here");
    room.write(
        "script.toml",
        "[[step]]\n[step.expect]\ntools = [\"no_such_tool\"]\n[[step.item]]\ntype = \"text\"\ntext = \"x\"\n",
    );
    let simulate = Running::start(&room, &["simulate", "script.toml"]);
    room.write("wharf.toml", harness(&simulate.first_line(), &files()));
    room.run(&["run", "hello"]).ends(3);
    simulate.signal("TERM");
    let ran = simulate.ends(1);
    assert!(
        ran.err.lines().any(|line| line.starts_with("warning: request 1") && line.contains("no_such_tool")),
        "{}",
        ran.err
    );
}

#[test]
fn simulate_refuses_scripts_and_addresses_that_are_no_good() {
    let room = Room::new();
    room.run(&["simulate", "none.toml"]).ends(2).says(&[
        "error: cannot read script none.toml: No such file or directory (os error 2)",
        "hint: give the path of a script; examples/scripts/two-calls.toml is one",
    ]);
    room.write("script.toml", "[[stpe]]\n");
    let ran = room.run(&["simulate", "script.toml"]).ends(2);
    assert!(ran.err.contains("script.toml:1:") && ran.err.contains("\nhint: "), "{}", ran.err);
    room.write("script.toml", "[[step]]\n");
    room.run(&["simulate", "script.toml", "--bind", "0.0.0.0:0"]).ends(2).says(&[
        "error: may not listen on 0.0.0.0:0: it is not a loopback address",
        "hint: use 127.0.0.1, or ask for any address explicitly",
    ]);
}

#[tokio::test(flavor = "multi_thread")]
async fn simulate_says_who_has_its_port() {
    let server = model(Script::new("s").step(Answer::new().text("x"))).await;
    let room = Room::new();
    room.write("script.toml", "[[step]]\n");
    let address = server.address().to_string();
    let ran = blocking(|| room.run(&["simulate", "script.toml", "--bind", &address])).ends(2);
    ran.says(&[
        &format!("error: cannot listen on {address}: Address already in use (os error 98)"),
        "hint: choose another port, or 0 for one that is free",
    ]);
}
