//! `wharf init` and `wharf check`.

use crate::kit::{Room, dist, files, harness};

const NOWHERE: &str = "http://127.0.0.1:9/v1";

#[test]
fn what_init_writes_is_right_as_it_stands() {
    let room = Room::new();
    let ran = room.run(&["init"]).ends(0);
    assert_eq!(ran.out, "");
    assert!(ran.err.starts_with("wrote wharf.toml\n"), "{}", ran.err);
    let checked = room.run(&["check"]).ends(0);
    assert_eq!(checked.err, "");
    assert!(checked.out.starts_with("harness my-agent (wharf.toml)\nmodel   openai/gpt-6-astra"), "{}", checked.out);
    room.run(&["init", "agent.toml"]).ends(0);
    room.run(&["check", "-H", "agent.toml"]).ends(0);
}

#[test]
fn init_never_replaces_a_file_unless_told_to() {
    let room = Room::new();
    room.write("wharf.toml", "mine");
    room.run(&["init"]).ends(2).says(&[
        "error: \"wharf.toml\" is there already, and was not changed",
        "hint: name another file, or replace it: wharf init wharf.toml --force",
    ]);
    assert_eq!(room.read("wharf.toml"), "mine");
    room.run(&["init", "--force"]).ends(0);
    assert!(room.read("wharf.toml").contains("[harness]"));
    room.run(&["init", "no/such/folder/wharf.toml"]).ends(2);
}

/// A harness in which every rank decides something.
fn ranks() -> String {
    harness(
        NOWHERE,
        &format!(
            r#"[capabilities.files]
component = "{}"
config = {{ root = "/docs" }}
class = "disk"

[capabilities.files.grants]
fs = [{{ host = "./docs", guest = "/docs", access = "read-write" }}]
http = ["https://example.com/*"]

[capabilities.files.limits]
time = "5s"

[capabilities.files.tools."*_file"]
replay = "when-pure"

[capabilities.files.tools.read_file]
replay = "safe"

[capabilities.files.tools.edit_file]
approve = "always"

[defaults.limits]
output = "32KiB"
"#,
            dist("files.wasm")
        ),
    )
}

#[test]
fn check_says_what_each_tool_ends_up_with_and_which_line_decided() {
    let room = Room::warm();
    room.write("docs/a.txt", "a");
    room.write("wharf.toml", ranks());
    let ran = room.run(&["check"]).ends(0);
    let digest = ran.out.split("sha256:").nth(1).unwrap().split(')').next().unwrap();
    let out = ran.out.replace(digest, "DIGEST").replace(&dist("files.wasm"), "files.wasm");
    assert_eq!(
        out,
        r#"harness test (wharf.toml)
model   local/scripted, protocol openai-responses
        async calls: yes, continues stored responses: yes, can say what became of one: yes
key     none

capability files: 5 tools (component files.wasm, sha256:DIGEST)
  grants  folder ./docs as /docs, read-write
  grants  http https://example.com/*
  note    http is granted, and answered with denial in this version
   TOOL          REPLAY     ASYNC  APPROVAL    CLASS     TIME     MEMORY   OUTPUT      AT ONCE
   edit_file     never :26  no     always :32  disk :16  5 s :23  256 MiB  32 KiB :35  4
   list_files    never      no     never       disk :16  5 s :23  256 MiB  32 KiB :35  4
   read_file     safe :29   yes    never       disk :16  5 s :23  256 MiB  32 KiB :35  4
   search_files  never      no     never       disk :16  5 s :23  256 MiB  32 KiB :35  4
   write_file    never :26  no     never       disk :16  5 s :23  256 MiB  32 KiB :35  4
  note    edit_file asks for approval, which is not available in this version: such calls are refused

A number behind a value is the line that decided it; a value without one is built in. `wharf check --explain CAPABILITY.TOOL` says all of one tool.
"#
    );
}

#[test]
fn check_explains_one_tool_in_full() {
    let room = Room::warm();
    room.write("docs/a.txt", "a");
    room.write("wharf.toml", ranks());
    let ran = room.run(&["check", "--explain", "files.edit_file"]).ends(0);
    let (head, _) = ran.out.split_once("  claims").unwrap();
    assert_eq!(
        head,
        r#"files.edit_file in wharf.toml

  replay    never    wharf.toml:26:10 capabilities.files.tools."*_file".replay (pattern), when-pure: not pure, it may write in "/docs"
  async     no       built-in, replay is not safe
  approval  always   wharf.toml:32:11 capabilities.files.tools.edit_file.approve (exact name)
  class     disk     wharf.toml:16:9 capabilities.files.class (capability)
  refused   no       built-in
  time      5 s      wharf.toml:23:8 capabilities.files.limits.time (capability)
  memory    256 MiB  built-in
  output    32 KiB   wharf.toml:35:10 defaults.limits.output (harness default)
  at once   4        built-in

  approval is not available in this version: a call that needs it is refused

"#
    );
    let json = room.run(&["check", "--explain", "files.edit_file", "--json"]).ends(0).json();
    assert_eq!(json["replay"]["value"], "never");
    room.run(&["check", "--explain", "files.edti_file"]).ends(2).says(&[
        "error: there is no tool \"files.edti_file\" to explain",
        "hint: did you mean \"files.edit_file\", \"files.write_file\" or \"files.read_file\"?",
    ]);
}

#[test]
fn check_prints_all_of_it_as_json() {
    let room = Room::warm();
    room.write("docs/a.txt", "a");
    room.write("wharf.toml", harness(NOWHERE, &files()));
    let json = room.run(&["check", "--json"]).ends(0).json();
    assert_eq!(json["capabilities"][0]["status"], "loaded");
    let read = json["tools"].as_array().unwrap().iter().find(|tool| tool["name"] == "read_file").unwrap();
    assert_eq!(
        read["replay"],
        serde_json::json!({
            "value": "safe", "by": "pattern", "at": "wharf.toml:21:10",
            "key": "capabilities.files.tools.\"read_*\".replay", "note": null,
        })
    );
}
