//! `wharf session verify`: sound journals, damaged ones, and nothing changed by looking.

use serde_json::json;
use wharf_simulate::{Answer, Script};

use crate::kit::{Room, blocking, model};

const QUESTION: &str = "how many lines are there?";

/// A room with one session whose turn is done.
async fn used() -> Room {
    let read = r#"{"path":"/docs/a.txt"}"#;
    let script =
        Script::new("s").step(Answer::new().function_call("c1", "read_file", read)).step(Answer::new().text("Two."));
    let server = model(script).await;
    let room = Room::with_model(&server.base_url());
    blocking(|| room.run(&["run", "-s", "s1", QUESTION]).ends(0));
    room
}

fn database(room: &Room) -> Vec<u8> {
    std::fs::read(room.path().join(".wharf/wharf.db")).unwrap()
}

// covers M1
#[tokio::test(flavor = "multi_thread")]
async fn a_sound_session_is_said_to_be_sound() {
    let room = used().await;
    let before = database(&room);
    blocking(|| {
        let shown = room.run(&["session", "show", "s1", "--json"]).ends(0).json();
        let records = shown["records"].as_array().unwrap().len();
        let one = json!({
            "session": "s1", "sound": true, "records": records, "outputs": 0, "to_the_end": true, "breaches": [],
        });
        for command in [&["session", "verify", "--json"][..], &["session", "verify", "s1", "--json"]] {
            assert_eq!(room.run(command).ends(0).json(), json!({ "sound": true, "sessions": [one] }));
        }
        let ran = room.run(&["session", "verify"]).ends(0);
        let rows: Vec<Vec<&str>> = ran.out.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(
            rows,
            [vec!["SESSION", "RECORDS", "OUTPUTS", "STATE"], vec!["s1", &records.to_string(), "0", "sound"]]
        );
        assert_eq!(ran.err, "");
    });
    assert!(database(&room) == before, "it was changed");
}

// covers M3
#[tokio::test(flavor = "multi_thread")]
async fn a_record_with_a_changed_byte_is_named_and_nothing_is_changed() {
    let room = used().await;
    let shown = blocking(|| room.run(&["session", "show", "s1", "--json"]).ends(0).json());
    let damaged = shown["records"].as_array().unwrap().iter().find(|record| record["kind"] == "turn.started").unwrap();
    let number = damaged["seq"].as_u64().unwrap();
    let mut bytes = database(&room);
    let found: Vec<usize> =
        (0..bytes.len() - QUESTION.len()).filter(|at| bytes[*at..].starts_with(QUESTION.as_bytes())).collect();
    assert!(!found.is_empty(), "the question is not in the database");
    for at in found {
        bytes[at] ^= 1;
    }
    room.write(".wharf/wharf.db", &bytes);
    blocking(|| {
        for command in [&["session", "verify", "s1"][..], &["session", "verify"]] {
            room.run(command).ends(5).says(&[
                &format!("error: record {number} of session \"s1\": it cannot be read: its checksum does not fit"),
                "hint: nothing was changed: keep a copy of the store, then put a backup in its place",
            ]);
        }
        let told = room.run(&["session", "verify", "s1", "--all", "--json"]).ends(5).json();
        assert_eq!(told["sound"], false);
        let breaches = told["sessions"][0]["breaches"].as_array().unwrap();
        assert_eq!(breaches.len(), 1, "what hangs on it is not blamed: {told}");
        assert_eq!((&breaches[0]["record"], &breaches[0]["invariant"]), (&json!(number), &json!("readable")));
        // What stands behind it was looked at.
        let records = shown["records"].as_array().unwrap().len() as u64;
        assert_eq!(told["sessions"][0]["records"], records - 1);
        assert_eq!(told["sessions"][0]["to_the_end"], true);
    });
    assert!(database(&room) == bytes, "it was changed");
}

#[test]
fn a_session_that_is_not_there_is_no_sound_one() {
    let room = Room::with_model("http://127.0.0.1:9");
    room.run(&["session", "verify", "s1"]).ends(2).says(&["error: there is no session \"s1\""]);
    room.run(&["session", "verify"]).ends(0).says(&["no sessions yet; `wharf run` makes them"]);
    assert_eq!(room.run(&["session", "verify", "--json"]).ends(0).json(), json!({ "sound": true, "sessions": [] }));
}
