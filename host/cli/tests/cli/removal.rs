//! `wharf session delete` and `wharf session gc`: what goes, what stays, and what is said of a session that is gone.

use serde_json::json;
use wharf_simulate::{Answer, Script};

use crate::kit::{Room, Running, blocking, model};

const NEVER: &str = "it never comes";

/// A room in which `s1` and `s2` are done.
async fn used() -> Room {
    let script = Script::new("s").step(Answer::new().text("One.")).step(Answer::new().text("Two."));
    let server = model(script).await;
    let room = Room::with_model(&server.base_url());
    blocking(|| {
        for name in ["s1", "s2"] {
            room.run(&["run", "-s", name, "hello"]).ends(0);
        }
    });
    room
}

/// The names of the sessions that there are.
fn listed(room: &Room) -> Vec<String> {
    let list = room.run(&["session", "list", "--json"]).ends(0).json();
    let sessions = list["sessions"].as_array().unwrap();
    let mut names: Vec<String> = sessions.iter().map(|one| one["session"].as_str().unwrap().to_owned()).collect();
    names.sort();
    names
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_without_a_terminal_has_to_be_said_to_be_meant() {
    let room = used().await;
    blocking(|| {
        room.run(&["session", "delete", "s1"]).ends(2).says(&[
            "error: a deletion cannot be undone, and there is nobody to ask",
            "hint: say --yes if it is meant",
        ]);
        // One of them is not there, so none is deleted.
        room.run(&["session", "delete", "s1", "s3", "--yes"]).ends(2).says(&["error: there is no session \"s3\""]);
        assert_eq!(listed(&room), ["s1", "s2"]);
        room.run(&["session", "delete", "s1", "--yes"]).ends(0).says(&["session s1 was deleted"]);
        assert_eq!(listed(&room), ["s2"]);
        let told = room.run(&["session", "delete", "s2", "s2", "--yes", "--json"]).ends(0).json();
        assert_eq!(told, json!({ "deleted": ["s2"], "failed": [] }));
        assert_eq!(listed(&room), [""; 0]);
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_session_says_in_every_command_that_it_was_deleted() {
    let room = used().await;
    blocking(|| {
        room.run_with_env(("USER", "alice"), &["session", "delete", "s1", "--yes"]).ends(0);
        for command in [
            &["session", "show", "s1"][..],
            &["session", "resume", "s1"],
            &["session", "export", "s1"],
            &["session", "cancel", "s1"],
            &["session", "takeover", "s1"],
            &["session", "reconcile", "s1", "--resend"],
            &["session", "verify", "s1"],
            &["session", "delete", "s1", "--yes"],
            &["run", "-s", "s1", "hello"],
        ] {
            let ran = room.run(command).ends(4);
            assert_eq!(ran.out, "", "{command:?}");
            let (error, hint) = ran.err.split_once('\n').unwrap();
            assert!(error.starts_with("error: session \"s1\" was deleted by alice"), "{command:?}: {error}");
            assert_eq!(
                hint, "hint: the name of a deleted session cannot be used again; use another one\n",
                "{command:?}"
            );
        }
        assert_eq!(room.run(&["session", "verify", "--json"]).ends(0).json()["sessions"][0]["session"], "s2");
    });
}

// covers N2, M2
#[tokio::test(flavor = "multi_thread")]
async fn a_session_in_use_is_deleted_only_by_taking_it_from_its_process() {
    let script = Script::new("s").step(Answer::new().text("I think. ").wait_for("go").text("Gone."));
    let server = model(script).await;
    let room = Room::with_model(&server.base_url());
    blocking(|| {
        let running = Running::start(&room, &["run", "-s", "s1", "hello"]);
        running.says("I think. ");
        let refused = room.run(&["session", "delete", "s1", "--yes"]).ends(4);
        let (error, hint) = refused.err.split_once('\n').unwrap();
        let owner = format!("error: session \"s1\" is in use by wharf, pid {} for at least ", running.id());
        assert!(error.starts_with(&owner), "{error}");
        assert_eq!(
            hint,
            "hint: wait, or stop that process, or take the session from it: wharf session delete s1 --take-over\n"
        );
        // Neither does a collection touch it, however old.
        let left = room.run(&["session", "gc", "--keep", "1ms", "--json"]).ends(0).json();
        assert_eq!((&left["deleted"], &left["left"][0]["session"]), (&json!([]), &json!("s1")));
        room.run(&["session", "delete", "s1", "--yes", "--take-over"]).ends(0).says(&["session s1 was deleted"]);
        server.release("go");
        let ended = running.ends(4);
        assert!(ended.err.contains("session \"s1\" was deleted by "), "{}", ended.err);
        assert_eq!(listed(&room), [""; 0]);
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn old_sessions_are_collected_and_those_with_an_open_turn_stay() {
    let script =
        Script::new("s").step(Answer::new().text("One.")).step(Answer::new().text("I think. ").wait_for(NEVER));
    let server = model(script).await;
    let room = Room::with_model(&server.base_url());
    blocking(|| {
        room.run(&["run", "-s", "s1", "hello"]).ends(0);
        let running = Running::start(&room, &["run", "-s", "s2", "hello"]);
        running.says("I think. ");
        room.run(&["session", "cancel", "s2"]).ends(0);
        running.ends(130);

        // Nothing says how long they are kept.
        room.run(&["session", "gc"]).ends(0).says(&[
            "no session is deleted for its age: nothing says how long they are kept",
            "hint: write keep = \"90d\" under [sessions] in the harness file, or say --keep 90d",
            "removed 0 outputs that no record names, 0 B",
        ]);
        assert_eq!(listed(&room), ["s1", "s2"]);
        // None is old enough.
        room.run(&["session", "gc", "--keep", "1d"])
            .ends(0)
            .says(&["deleted 0 sessions without an open turn, older than 1d"]);
        // The harness file says it.
        let file = room.read("wharf.toml");
        room.write("wharf.toml", format!("{file}\n[sessions]\nkeep = \"1ms\"\n"));
        let would = room.run(&["session", "gc", "--dry-run"]).ends(0);
        let row: Vec<&str> = would.out.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!((row[0], &row[3..]), ("s1", &["0", "0", "B"][..]), "{}", would.out);
        let would = would.says(&["would delete 1 session without an open turn, older than 1ms"]);
        assert_eq!(would.out.lines().count(), 2, "{}", would.out);
        assert_eq!(listed(&room), ["s1", "s2"]);
        let did = room.run(&["session", "gc", "--json"]).ends(0).json();
        assert_eq!((&did["keep"], &did["dry_run"], &did["sessions"]), (&json!("1ms"), &json!(false), &json!(2)));
        assert_eq!((&did["deleted"][0]["session"], &did["left"]), (&json!("s1"), &json!([])));
        assert_eq!(listed(&room), ["s2"]);
        let shown = room.run(&["session", "show", "s1"]).ends(4);
        assert!(shown.err.starts_with("error: session \"s1\" was deleted by retention\n"), "{}", shown.err);
    });
}

#[test]
fn a_time_to_keep_sessions_is_checked_and_shown() {
    let room = Room::with_model("http://127.0.0.1:9");
    let file = room.read("wharf.toml");
    room.write("wharf.toml", format!("[sessions]\nkeep = \"36h\"\n{file}"));
    let shown = room.run(&["check"]).ends(0).out;
    assert!(shown.contains("\nkept    sessions for 36h :2\n"), "{shown}");
    assert_eq!(room.run(&["check", "--json"]).ends(0).json()["sessions"], json!({ "keep": "36h" }));
    room.run(&["session", "gc"]).ends(0).says(&["deleted 0 sessions without an open turn, older than 36h"]);
    room.run(&["session", "gc", "--keep", "90"])
        .ends(2)
        .says(&["error: --keep \"90\" is not a duration: it has no unit (ms, s, m, h or d)", "hint: --keep 90d"]);
    // A file that cannot be read says nothing of how long, so nothing is collected.
    room.write("wharf.toml", "[sessions]\nkeep = \"90\"\n[harness]\nname = \"t\"\n");
    room.run(&["session", "gc"]).ends(2);
}
