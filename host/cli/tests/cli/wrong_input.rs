//! Wrong use and wrong files: each is told with what, where and a hint, and ends with 2.

use crate::kit::{Room, dist, files, harness};

const NOWHERE: &str = "http://127.0.0.1:9/v1";

#[test]
fn a_missing_harness_says_what_was_looked_for() {
    let room = Room::new();
    for command in [&["check"][..], &["run", "hello"], &["session", "list"], &["session", "resume", "s1"]] {
        let ran = room.run(command).ends(2);
        assert_eq!(
            ran.err,
            "error: there is no harness file: looked for wharf.toml and harness.toml in ROOM\n\
             hint: make one with `wharf init`, or name one with -H FILE\n",
            "{command:?}"
        );
        assert_eq!(ran.out, "");
    }
    let ran = room.run(&["check", "-H", "sub/agent.toml"]).ends(2);
    assert_eq!(
        ran.err,
        "error: harness file \"sub/agent.toml\" cannot be read: No such file or directory (os error 2)\n\
         hint: make one with `wharf init sub/agent.toml`, or name another with -H FILE\n"
    );
    assert!(!room.has(".wharf"), "a refused command leaves nothing behind");
}

#[test]
fn a_harness_is_found_by_its_usual_names() {
    let room = Room::new();
    room.write("harness.toml", harness(NOWHERE, ""));
    assert!(room.run(&["check"]).ends(0).out.starts_with("harness test (harness.toml)\n"));
    room.write("wharf.toml", harness(NOWHERE, "").replace("\"test\"", "\"first\""));
    assert!(room.run(&["check"]).ends(0).out.starts_with("harness first (wharf.toml)\n"));
}

#[test]
fn an_unknown_key_is_told_with_its_place_and_what_was_meant() {
    let room = Room::new();
    room.write("wharf.toml", "[harness]\nname = \"t\"\nmodle = \"p/m\"\n");
    let ran = room.run(&["check"]).ends(2);
    assert_eq!(ran.err, "error: wharf.toml:3:1: harness.modle: is not a known key\nhint: did you mean \"model\"?\n");
}

#[test]
fn a_wrong_type_is_told_with_what_would_be_right() {
    let room = Room::new();
    room.write("wharf.toml", "[harness]\nname = 7\n");
    let ran = room.run(&["run", "hello"]).ends(2);
    assert_eq!(
        ran.err,
        "error: wharf.toml:2:8: harness.name: is a whole number, not a string\nhint: for example name = \"docs-helper\"\n"
    );
}

#[test]
fn all_faults_of_a_harness_are_told_at_once() {
    let room = Room::new();
    room.write(
        "wharf.toml",
        "[harness]\nname = \"t\"\nmodel = \"m\"\n\n[capabilities.files]\ncomponent = \"f.wasm\"\nreplay = \"often\"\n",
    );
    let ran = room.run(&["check"]).ends(2);
    assert_eq!(ran.err.lines().filter(|line| line.starts_with("error: ")).count(), 2, "{}", ran.err);
    assert_eq!(ran.err.lines().filter(|line| line.starts_with("hint: ")).count(), 2, "{}", ran.err);
}

#[test]
fn a_harness_that_is_not_text_is_refused() {
    let room = Room::new();
    room.write("wharf.toml", b"[harness]\nname = \"\xff\"\n");
    room.run(&["check"]).ends(2).says(&[
        "error: harness file \"wharf.toml\" cannot be read: it is not UTF-8: the first bad byte is at 18",
        "hint: make one with `wharf init wharf.toml`, or name another with -H FILE",
    ]);
}

#[test]
fn a_rule_for_a_tool_that_is_not_there_is_an_error() {
    let room = Room::warm();
    room.write("docs/a.txt", "a");
    room.write(
        "wharf.toml",
        harness(NOWHERE, &format!("{}\n[capabilities.files.tools.raed_file]\nreplay = \"safe\"\n", files())),
    );
    for command in [&["check"][..], &["run", "hello"]] {
        room.run(command).ends(2).says(&[
            "error: wharf.toml:26:1: capabilities.files.tools.raed_file: capability \"files\" offers no tool \"raed_file\"",
            "hint: did you mean \"read_file\", \"search_files\" or \"edit_file\"?",
        ]);
    }
}

#[test]
fn a_config_that_does_not_fit_is_an_error_with_the_schema() {
    let room = Room::warm();
    room.write(
        "wharf.toml",
        harness(
            NOWHERE,
            &format!("[capabilities.files]\ncomponent = \"{}\"\nconfig = {{ rot = \"/\" }}\n", dist("files.wasm")),
        ),
    );
    let ran = room.run(&["check"]).ends(2);
    assert!(ran.err.contains("the config of capability \"files\" does not fit"), "{}", ran.err);
    assert!(ran.err.contains("\nhint: its config schema: {"), "{}", ran.err);
}

#[test]
fn a_model_that_nobody_can_reach_is_a_config_error() {
    let room = Room::new();
    room.write("wharf.toml", harness(NOWHERE, ""));
    room.run(&["run", "--model", "scripted", "hello"]).ends(2).says(&[
        "error: model \"scripted\" names no provider",
        "hint: write it as provider/model, for example \"openai/gpt-6-astra\"",
    ]);
    room.run(&["run", "--model", "locla/x", "hello"]).ends(2).says(&[
        "error: model \"locla/x\" is on provider \"locla\", which is not known; known are \"local\"",
        "hint: did you mean \"local\"?",
    ]);
    room.write("wharf.toml", "[harness]\nname = \"t\"\n");
    room.run(&["run", "hello"]).ends(2).says(&[
        "error: no model: neither turn, session, harness nor default names one",
        "hint: add model = \"provider/model\" to [harness]",
    ]);
}

#[test]
fn a_key_that_is_not_there_is_told_before_anything_is_sent() {
    let room = Room::new();
    room.write(
        "wharf.toml",
        "[harness]\nname = \"t\"\nmodel = \"p/m\"\n[providers.p]\ndriver = \"openai-responses\"\napi_key = { env = \"NO_SUCH_KEY\" }\n",
    );
    room.run(&["run", "hello"]).ends(2).says(&[
        "error: the key of provider \"p\" is not there: environment variable NO_SUCH_KEY is not set",
        "hint: export NO_SUCH_KEY=…",
    ]);
    // A check is not about keys.
    assert!(room.run(&["check"]).ends(0).out.contains("NO_SUCH_KEY, which is not set"));
}

#[test]
fn questions_and_session_ids_have_to_say_something() {
    let room = Room::new();
    room.write("wharf.toml", harness(NOWHERE, ""));
    room.run(&["run", " "])
        .ends(2)
        .says(&["error: the question is empty", "hint: wharf run \"What do you want to know?\""]);
    room.run_with_stdin("\n", &["run", "-"]).ends(2).says(&["error: the question is empty"]);
    room.run(&["run", "-s", "a\u{1b}[2J", "hello"]).ends(2).says(&[
        "error: session id \"a\\u{1b}[2J\" has characters that cannot be shown",
        "hint: use letters, digits and dashes",
    ]);
}

#[test]
fn wrong_arguments_end_with_two_as_well() {
    let room = Room::new();
    for wrong in [&["chekc"][..], &["run"], &["run", "--max-responses", "many", "x"], &["session", "reconcile", "s"]] {
        let ran = room.run(wrong).ends(2);
        assert!(ran.err.starts_with("error: "), "{}", ran.err);
    }
    room.write("wharf.toml", harness(NOWHERE, ""));
    room.run_with_env(("WHARF_LOG", "=loud="), &["check"]).ends(2);
}
