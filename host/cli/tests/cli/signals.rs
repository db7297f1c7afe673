//! Ctrl-C and SIGTERM: the turn is put in order, and goes on later.

use wharf_simulate::{Answer, Expect, Script};

use crate::kit::{Room, Running, blocking, dist, harness, model, outputs};

#[tokio::test(flavor = "multi_thread")]
async fn ctrl_c_while_the_model_speaks_cancels_the_turn_and_resume_goes_on() {
    let script = Script::new("s")
        .step(Answer::new().text("I think. ").wait_for("never").text("Gone."))
        .step(Answer::new().text("Whole.").expect(Expect::new().contains("hello")));
    let server = model(script).await;
    let room = Room::with_model(&server.base_url());
    blocking(|| {
        let running = Running::start(&room, &["run", "-s", "s1", "hello"]);
        running.says("I think. ");
        running.signal("INT");
        let ran = running.ends(130);
        assert_eq!(ran.out, "I think. \n");
        assert_eq!(
            ran.err,
            "cancelling the turn; once more to end at once\n\
             cancelled; what was gained is kept in session s1\n\
             hint: the turn is kept; go on with: wharf session resume s1\n"
        );
        // The lease was given up: nobody has to wait for it.
        let listed = room.run(&["session", "list", "--json"]).ends(0).json();
        assert_eq!(listed["sessions"][0]["owner"], serde_json::Value::Null);
        assert_eq!(room.run(&["session", "resume", "s1"]).ends(0).out, "Whole.\n");
    });
}

/// A tool that takes ten minutes over each file.
fn slow() -> String {
    format!(
        r#"[capabilities.slow]
component = "{}"
config = {{ root = "/docs", pace_ms = 600000 }}

[capabilities.slow.grants]
fs = [{{ host = "./docs", guest = "/docs" }}]

[capabilities.slow.limits]
time = "20m"

[capabilities.slow.tools.word_stats]
replay = "safe"
"#,
        dist("slow.wasm")
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn ctrl_c_while_a_tool_runs_ends_it_and_the_model_hears_of_it_when_the_turn_goes_on() {
    let script = Script::new("s")
        .step(Answer::new().text("I count.").function_call("call_1", "word_stats", r#"{"path":"."}"#))
        .step(Answer::new().text("Then not.").expect(Expect::new().latest().only_outputs(["call_1"])));
    let server = model(script).await;
    let room = Room::with_model(&server.base_url());
    room.write("wharf.toml", harness(&server.base_url(), &slow()));
    blocking(|| {
        let running = Running::start(&room, &["run", "-s", "s1", "hello"]);
        running.talks("started  word_stats (call_1)");
        // The line ends with its response, which is accepted by then.
        running.says("I count.\n");
        running.signal("INT");
        let ran = running.ends(130);
        ran.says(&[
            "cancelled; what was gained is kept in session s1",
            "hint: the turn is kept; go on with: wharf session resume s1",
        ]);
        let shown = room.run(&["session", "show", "s1", "--json"]).ends(0).json();
        let call = &shown["calls"][0];
        assert_eq!((&call["state"], &call["how"]), (&"ready".into(), &"cancelled".into()));
        assert_eq!(room.run(&["session", "resume", "s1"]).ends(0).out, "Then not.\n");
    });
    let delivered = outputs(&server, 2);
    assert_eq!(delivered, [("call_1".to_owned(), r#"{"error":"cancelled"}"#.to_owned())]);
    assert_eq!(server.violations(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_lets_the_answer_come_to_its_end_and_parks_the_turn() {
    let script = Script::new("s").step(Answer::new().text("I think. ").wait_for("go").text("Done."));
    let server = model(script).await;
    let room = Room::with_model(&server.base_url());
    blocking(|| {
        let running = Running::start(&room, &["run", "-s", "s1", "hello"]);
        running.says("I think. ");
        running.signal("TERM");
        running.talks("stopping: what runs has 20 s to come to its end; once more to end at once\n");
        server.release("go");
        let ran = running.ends(0);
        assert_eq!(ran.out, "I think. Done.\n");
        ran.says(&[
            "session s1: the turn waits: the host was told to stop",
            "hint: go on with: wharf session resume s1",
        ]);
        assert_eq!(room.run(&["session", "resume", "s1", "--json"]).ends(0).json()["text"], "I think. Done.");
    });
    assert_eq!(server.requests().len(), 1, "the answer was there already");
}

// covers L57, L62, G4
#[tokio::test(flavor = "multi_thread")]
async fn sigterm_ends_what_still_runs_after_its_time_and_what_may_run_again_does() {
    let both = Expect::new().latest().only_outputs(["call_1", "call_2"]);
    let script = Script::new("s")
        .step(Answer::new().function_call("call_1", "word_stats", r#"{"path":"."}"#).function_call(
            "call_2",
            "note",
            r#"{"text":"paid"}"#,
        ))
        .step(Answer::new().text("Both.").expect(both));
    let server = model(script).await;
    let room = Room::with_model(&server.base_url());
    std::fs::create_dir(room.path().join("notes")).unwrap();
    let notes = r#"guest = "/docs" }, { host = "./notes", guest = "/notes", access = "read-write" }]"#;
    let lines = |wait_ms: u64| {
        let config = format!(r#"notes_root = "/notes", pace_ms = {wait_ms}, note_after_ms = {wait_ms}"#);
        slow().replace("pace_ms = 600000", &config).replace(r#"guest = "/docs" }]"#, notes)
    };
    room.write("wharf.toml", harness(&server.base_url(), &lines(600_000)));
    blocking(|| {
        let running = Running::start(&room, &["run", "-s", "s1", "hello"]);
        running.talks("started  word_stats (call_1)");
        running.talks("started  note (call_2)");
        running.signal("TERM");
        running.ends(0).says(&["session s1: the turn waits: the host was told to stop"]);
        let shown = room.run(&["session", "show", "s1", "--json"]).ends(0).json();
        let calls: Vec<_> = shown["calls"]
            .as_array()
            .unwrap()
            .iter()
            .map(|call| [call["state"].clone(), call["how"].clone()])
            .collect();
        assert_eq!(calls, [["queued".into(), serde_json::Value::Null], ["ready".into(), "cancelled".into()]]);
        // The tool is quick now: another config is another component, which has to be accepted.
        room.write("wharf.toml", harness(&server.base_url(), &lines(0)));
        assert_eq!(room.run(&["session", "resume", "s1", "--accept-wider"]).ends(0).out, "Both.\n");
    });
    let delivered = outputs(&server, 2);
    assert!(delivered[0].1.contains("\"files\""), "{delivered:?}");
    assert_eq!(delivered[1], ("call_2".to_owned(), r#"{"error":"cancelled"}"#.to_owned()));
    assert_eq!(server.violations(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_ctrl_c_ends_at_once() {
    let script =
        Script::new("s").step(Answer::new().text("I think. ").wait_for("never")).step(Answer::new().text("On."));
    let server = model(script).await;
    let room = Room::with_model(&server.base_url());
    blocking(|| {
        let running = Running::start(&room, &["run", "-s", "s1", "hello"]);
        running.says("I think. ");
        running.signal("TERM");
        running.talks("stopping: what runs has 20 s");
        running.signal("INT");
        let ran = running.ends(130);
        assert_eq!(ran.err.lines().last(), Some("ended at once; the session is free again within a minute"));
        // Whoever does not want to wait for the lease takes the session over.
        room.run(&["session", "resume", "s1"]).ends(4);
        assert_eq!(room.run(&["session", "resume", "s1", "--take-over"]).ends(0).out, "On.\n");
    });
}
