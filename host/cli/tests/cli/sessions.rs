//! `wharf run` and `wharf session`: answers on standard output, talk on standard error, JSON where it is asked for.

use serde_json::{Value, json};
use wharf_simulate::script::Usage;
use wharf_simulate::{Answer, Expect, Script};

use crate::kit::{Room, blocking, model, settled, settled_json};

/// A turn with one tool, and a second turn that goes on from it.
fn script() -> Script {
    Script::new("s")
        .step(
            Answer::new()
                .text("I look.")
                .function_call("call_1", "read_file", r#"{"path":"a.txt"}"#)
                .usage(Usage::new(100, 20))
                .expect(Expect::new().contains("What does it say?").tool("read_file").stream(true)),
        )
        .step(
            Answer::new()
                .text("Two lines.")
                .usage(Usage::new(150, 5))
                .expect(Expect::new().latest().only_outputs(["call_1"])),
        )
        .step(
            Answer::new()
                .text("The first.")
                .usage(Usage::new(10, 5))
                .expect(Expect::new().latest().contains("Which is the shorter?")),
        )
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_go_to_standard_output_and_talk_to_standard_error() {
    let server = model(script()).await;
    let room = Room::with_model(&server.base_url());
    let ran = blocking(|| room.run(&["run", "-s", "s1", "What does it say?"])).ends(0);
    assert_eq!(ran.out, "I look.\nTwo lines.\n");
    assert_eq!(
        settled(&ran.err),
        "  started read_file (call_1) {\"path\":\"a.txt\"}\n     done read_file (call_1) after TIME 71 B\n delivers \
         read_file (call_1) on resp_1\nsession s1: 2 responses, 1 call, 275 tokens, TIME\n"
    );
    // The second turn goes on from the first, with a question from standard input and the result as JSON.
    let ran = blocking(|| room.run_with_stdin("Which is the shorter?", &["run", "-s", "s1", "--json", "-"])).ends(0);
    assert_eq!(
        ran.json(),
        json!({
            "session": "s1", "status": "completed", "paused": null, "text": "The first.", "refusal": null,
            "usage": {
                "fresh_input": 10, "cache_read": 0, "cache_write": 0, "visible_output": 5, "reasoning": 0, "total": 15,
            },
            "llm_calls": 1, "tool_calls": 0, "error": null,
        })
    );
    assert_eq!(server.violations(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_can_be_asked_for_whole() {
    let script = Script::new("s").step(Answer::new().text("Hello.").expect(Expect::new().stream(false)));
    let server = model(script).await;
    let room = Room::with_model(&server.base_url());
    let ran = blocking(|| room.run(&["run", "--no-stream", "hello"])).ends(0);
    assert_eq!(ran.out, "Hello.\n");
    assert_eq!(server.violations(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_without_a_name_gets_one_that_resume_takes() {
    let server = model(Script::new("s").step(Answer::new().text("Hello."))).await;
    let room = Room::with_model(&server.base_url());
    let id = blocking(|| room.run(&["run", "--json", "hello"])).ends(0).session();
    // A turn that is over is told again, without a request.
    let again = blocking(|| room.run(&["session", "resume", &id, "--json"])).ends(0).json();
    assert_eq!((&again["text"], &again["session"]), (&json!("Hello."), &json!(id)));
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn list_shows_each_session_newest_first() {
    let server = model(Script::new("s").step(Answer::new().text("One.")).step(Answer::new().text("Two."))).await;
    let room = Room::with_model(&server.base_url());
    let ran = blocking(|| room.run(&["session", "list"])).ends(0);
    assert_eq!((ran.out.as_str(), ran.err.as_str()), ("", "no sessions yet; `wharf run` makes them\n"));
    assert!(!room.has(".wharf/wharf.db"), "looking makes no database");
    for session in ["older", "newer"] {
        blocking(|| room.run(&["run", "-s", session, "hello"])).ends(0);
    }
    let ran = blocking(|| room.run(&["session", "list"])).ends(0);
    assert_eq!(
        settled(&ran.out),
        " SESSION STATE RECORDS UPDATED IN USE BY\n newer done 11 TIME\n older done 11 TIME\n"
    );
    let json = blocking(|| room.run(&["session", "list", "--json"])).ends(0).json();
    let row = |id| json!({ "session": id, "state": "done", "records": 11, "updated": "TIME", "owner": null });
    assert_eq!(settled_json(&json), json!({ "sessions": [row("newer"), row("older")] }));
}

#[tokio::test(flavor = "multi_thread")]
async fn show_tells_records_responses_calls_and_a_timeline() {
    let server = model(script()).await;
    let room = Room::with_model(&server.base_url());
    blocking(|| room.run(&["run", "-s", "s1", "What does it say?"])).ends(0);
    let ran = blocking(|| room.run(&["session", "show", "s1"])).ends(0);
    assert_eq!(ran.err, "");
    let text = settled(&ran.out);
    let (before, timeline) = text.split_once("\ntimeline\n").unwrap();
    let (head, rest) = before.split_once("\nrecords\n").unwrap();
    let (_, tables) = rest.split_once("\nresponses\n").unwrap();
    assert_eq!(head, "session s1: 22 records\nturn 1 TIME: completed in TIME\n    What does it say?\n");
    assert_eq!(
        tables,
        " # ID STATE TOOK FIRST TEXT TOKENS TEXT\n \
         1 resp_1 completed TIME TIME 120 I look.\n \
         2 resp_2 completed TIME TIME 155 Two lines.\n\n\
         calls\n \
         ID TOOL ASYNC REPLAY RUNS STATE HOW RAN DELIVERED\n \
         call_1 read_file no safe 1 delivered done TIME TIME\n"
    );
    let names: Vec<&str> = timeline.lines().filter_map(|line| line.split(' ').next()).take(3).collect();
    assert_eq!(names, ["resp_1", "read_file", "resp_2"]);

    let json = blocking(|| room.run(&["session", "show", "s1", "--json"])).ends(0).json();
    let shown = settled_json(&json);
    assert_eq!(
        shown["turns"],
        json!([{ "turn": "ID", "input": "What does it say?", "state": "completed", "begun": "TIME", "ended": "TIME" }])
    );
    assert_eq!(
        shown["calls"],
        json!([{
            "id": "call_1", "tool": "read_file", "async": false, "replay": "safe", "attempts": 1, "state": "delivered",
            "how": "done", "accepted": "TIME", "runs": [{ "begun": "TIME", "ended": "TIME" }], "settled": "TIME",
            "delivered": "TIME",
        }])
    );
    let response = |number: u64, tokens: u64, text: &str| {
        json!({
            "number": number, "id": format!("resp_{number}"), "state": "completed", "begun": "TIME", "ended": "TIME",
            "first_token_ms": "TIME", "tokens": tokens, "text": text,
        })
    };
    assert_eq!(shown["responses"], json!([response(1, 120, "I look."), response(2, 155, "Two lines.")]));
    let records = shown["records"].as_array().unwrap();
    assert_eq!(
        records.iter().map(|one| one["seq"].as_u64().unwrap()).collect::<Vec<_>>(),
        (1..=22).collect::<Vec<_>>()
    );
    let of_the_call: Vec<&Value> =
        records.iter().map(|one| &one["kind"]).filter(|kind| kind.as_str().unwrap().starts_with("call.")).collect();
    assert_eq!(of_the_call, ["call.accepted", "call.started", "call.settled"]);
    // The export is the checkpoint, whole.
    let export = blocking(|| room.run(&["session", "export", "s1"])).ends(0).json();
    assert!(export.is_object(), "{export}");
    // Into a file it is put whole, in the place of what was there (M4, M5).
    room.write("s1.json", "what was there before");
    assert_eq!(blocking(|| room.run(&["session", "export", "s1", "-o", "s1.json"])).ends(0).out, "");
    let file: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(room.path().join("s1.json")).unwrap()).unwrap();
    assert_eq!(file, export);
    let parts = std::fs::read_dir(room.path())
        .unwrap()
        .filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().ends_with(".part"));
    assert_eq!(parts.count(), 0);
    let nowhere = blocking(|| room.run(&["session", "export", "s1", "-o", "no/such/folder.json"])).ends(2);
    nowhere.says(&["hint: name a file in a folder that is there"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_has_enough_is_no_failure() {
    let server = model(Script::new("s").step(Answer::new().text("Hello."))).await;
    let room = Room::with_model(&server.base_url());
    blocking(|| {
        room.run(&["run", "-s", "s1", "hello"]).ends(0);
        let mut child = room.spawn(&mut room.command(&["session", "show", "s1", "--json"]));
        drop(child.stdout.take());
        let ran = room.finish(child.wait_with_output().unwrap()).ends(0);
        assert_eq!(ran.err, "");
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_that_are_not_there_are_told_with_close_names() {
    let server = model(Script::new("s").step(Answer::new().text("Hello."))).await;
    let room = Room::with_model(&server.base_url());
    let resume = |id: &str| room.run(&["session", "resume", id]);
    blocking(|| {
        resume("review-1").ends(2).says(&[
            "error: there is no session \"review-1\": there are none in ./.wharf",
            "hint: sessions are kept in .wharf beside the harness file; name that file with -H",
        ]);
        room.run(&["run", "-s", "review-1", "hello"]).ends(0);
        resume("reveiw-1")
            .ends(2)
            .says(&["error: there is no session \"reveiw-1\"", "hint: did you mean \"review-1\"?"]);
        for command in ["show", "export"] {
            room.run(&["session", command, "other"])
                .ends(2)
                .says(&["error: there is no session \"other\"", "hint: `wharf session list` shows which there are"]);
        }
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn hints_name_the_harness_file_that_was_given() {
    let room = Room::warm();
    let server = model(Script::new("s").step(wharf_simulate::HttpReply::error(401, "invalid_api_key", "No."))).await;
    room.write("agents/my docs.toml", crate::kit::harness(&server.base_url(), ""));
    let ran = blocking(|| room.run(&["run", "-H", "agents/my docs.toml", "-s", "s1", "hello"])).ends(3);
    ran.says(&["hint: the turn is kept; go on with: wharf session resume s1 -H 'agents/my docs.toml'"]);
    assert!(room.has("agents/.wharf/wharf.db"), "sessions are kept beside the harness file");
}

#[tokio::test(flavor = "multi_thread")]
async fn colour_is_for_terminals_only() {
    let script = Script::new("s")
        .step(Answer::new().function_call("call_1", "read_file", r#"{"path":"a.txt"}"#))
        .step(Answer::new().text("Done."))
        .step(Answer::new().text("Done."));
    let server = model(script).await;
    let room = Room::with_model(&server.base_url());
    let run = |forced: bool| {
        let mut command = room.command(&["run", "hello"]);
        command.env("TERM", "xterm-256color");
        if forced {
            command.env("CLICOLOR_FORCE", "1");
        }
        room.finish(command.output().unwrap()).ends(0)
    };
    let plain = blocking(|| run(false));
    assert!(!plain.out.contains('\u{1b}') && !plain.err.contains('\u{1b}'), "{plain:?}");
    let coloured = blocking(|| run(true));
    assert!(coloured.err.contains('\u{1b}') && !coloured.out.contains('\u{1b}'), "answers are data: {coloured:?}");
}
