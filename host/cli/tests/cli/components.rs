//! Components that cannot be used: `check` and `tool inspect` end with 2, a turn goes on without them.

use wharf_simulate::{Answer, Script};

use crate::kit::{Room, blocking, harness, model};

const NOWHERE: &str = "http://127.0.0.1:9/v1";

/// A component by its text, and what is said of it.
struct Bad {
    bytes: Vec<u8>,
    error: &'static str,
    hint: &'static str,
}

fn wat(text: &str) -> Vec<u8> {
    wat::parse_str(text).unwrap()
}

fn bad() -> Vec<Bad> {
    vec![
        Bad {
            bytes: b"#!/bin/sh\n".to_vec(),
            error: "capability \"odd\" is not a component: the file does not begin like WebAssembly",
            hint: "give the path of a component, a file ending in .wasm",
        },
        Bad {
            bytes: wat("(module)"),
            error: "capability \"odd\" is not a component: it is a core module",
            hint: "make a component of it with `wasm-tools component new`, or build for wasm32-wasip2",
        },
        Bad {
            bytes: wat(
                r#"(component (import "wasi:keyvalue/store@0.2.0" (instance)) (import "acme:db/rows" (instance)))"#,
            ),
            error: "capability \"odd\" imports what nobody serves: wasi:keyvalue/store@0.2.0 (unknown), acme:db/rows (unknown)",
            hint: "components get standard WASI 0.2 and 0.3 and wharf:tool, nothing else; compose other imports in before",
        },
        Bad {
            bytes: wat("(component)"),
            error: "capability \"odd\" exports no tools; it exports nothing",
            hint: "export wharf:tool/tools@0.1.0-draft; `wharf tool inspect` shows what a file exports",
        },
        Bad {
            bytes: wat(r#"(component (type $t (enum "a")) (export "colour" (type $t)))"#),
            error: "capability \"odd\" exports no tools; it exports colour",
            hint: "export wharf:tool/tools@0.1.0-draft; `wharf tool inspect` shows what a file exports",
        },
    ]
}

const ODD: &str = "[capabilities.odd]\ncomponent = \"./odd.wasm\"\n";

#[test]
fn check_tells_what_is_wrong_with_a_component_and_at_which_line_it_is_named() {
    let room = Room::new();
    room.write("wharf.toml", harness(NOWHERE, ODD));
    for one in bad() {
        room.write("odd.wasm", &one.bytes);
        let ran = room.run(&["check"]).ends(2);
        assert_eq!(ran.err, format!("error: wharf.toml:13:1: {}\nhint: {}\n", one.error, one.hint));
        assert!(ran.out.contains("\ncapability odd: refused, the others live (component ./odd.wasm)\n"), "{}", ran.out);
    }
}

#[test]
fn a_component_that_is_not_there_is_told_with_where_paths_begin() {
    let room = Room::new();
    room.write("agents/wharf.toml", harness(NOWHERE, ODD));
    room.run(&["check", "-H", "agents/wharf.toml"]).ends(2).says(&[
        "error: agents/wharf.toml:13:1: component \"agents/./odd.wasm\" cannot be read: No such file or directory (os error 2)",
        "hint: the path is relative to the harness file",
    ]);
}

#[test]
fn a_component_by_itself_is_told_the_same() {
    let room = Room::new();
    for one in bad() {
        room.write("odd.wasm", &one.bytes);
        let ran = room.run(&["tool", "call", "odd.wasm", "any", "{}"]).ends(2);
        assert_eq!(ran.err, format!("error: {}\nhint: {}\n", one.error, one.hint));
        assert!(!room.has(".wharf"), "looking at a component leaves nothing behind");
    }
    room.run(&["tool", "inspect", "none.wasm"]).ends(2).says(&[
        "error: component \"none.wasm\" cannot be read: No such file or directory (os error 2)",
        "hint: give the path of a component, a file ending in .wasm",
    ]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_component_harms_only_itself() {
    for one in bad() {
        let server = model(Script::new("s").step(Answer::new().text("I have no such tool."))).await;
        let ran = blocking(|| {
            let room = Room::new();
            room.write("odd.wasm", &one.bytes);
            room.write("wharf.toml", harness(&server.base_url(), ODD));
            room.run(&["run", "hello"]).ends(0)
        });
        assert_eq!(ran.out, "I have no such tool.\n");
        ran.says(&[
            &format!("warning: left out: wharf.toml:13:1: {}", one.error),
            &format!("hint: {}", one.hint),
            "warning: the model has no tools",
        ]);
    }
}

#[test]
fn a_rule_for_a_tool_of_a_refused_component_is_not_the_fault() {
    let room = Room::new();
    room.write("wharf.toml", harness(NOWHERE, &format!("{ODD}\n[capabilities.odd.tools.any]\nreplay = \"safe\"\n")));
    room.write("odd.wasm", "text");
    let ran = room.run(&["check"]).ends(2);
    assert_eq!(ran.err.lines().filter(|line| line.starts_with("error: ")).count(), 1, "{}", ran.err);
}
