//! Telling the process that has a session what to do, from another one.

use wharf_simulate::{Answer, Expect, Script};

use crate::kit::{Room, Running, blocking, model};

const NEVER: &str = "it never comes";

// covers M8, M9, Q15
#[tokio::test(flavor = "multi_thread")]
async fn a_turn_is_cancelled_from_another_process_and_goes_on_later() {
    let script = Script::new("s")
        .step(Answer::new().text("I think. ").wait_for(NEVER))
        .step(Answer::new().text("Whole.").expect(Expect::new().contains("hello")));
    let server = model(script).await;
    let room = Room::with_model(&server.base_url());
    blocking(|| {
        let running = Running::start(&room, &["run", "-s", "s1", "hello"]);
        running.says("I think. ");
        let told = room.run(&["session", "cancel", "s1"]).ends(0);
        assert!(told.err.contains("has session s1 and did it\n"), "{}", told.err);
        told.says(&[
            "session s1: the calls of its turn are cancelled; the turn is kept",
            "hint: go on with it: wharf session resume s1",
            "hint: or end it: wharf session reconcile s1 --abandon",
        ]);
        running.ends(130).says(&["hint: the turn is kept; go on with: wharf session resume s1"]);
        assert_eq!(room.run(&["session", "resume", "s1"]).ends(0).out, "Whole.\n");
        // Nothing is left to cancel.
        room.run(&["session", "cancel", "s1"]).ends(4).says(&["error: no turn of this session is open"]);
    });
}

// covers M8, G17, L60
#[tokio::test(flavor = "multi_thread")]
async fn a_turn_is_abandoned_from_another_process() {
    let server = model(Script::new("s").step(Answer::new().text("I think. ").wait_for(NEVER))).await;
    let room = Room::with_model(&server.base_url());
    blocking(|| {
        let running = Running::start(&room, &["run", "-s", "s1", "hello"]);
        running.says("I think. ");
        // What is being answered is not uncertain.
        let refused = room.run(&["session", "reconcile", "s1", "--resend", "--json"]).ends(4).json();
        assert_eq!(refused["outcome"], "refused");
        assert_eq!(refused["why"], "the request is being answered, so nothing about it is uncertain");
        let told = room.run(&["session", "reconcile", "s1", "--abandon", "--json"]).ends(0).json();
        assert_eq!((&told["outcome"], &told["session"]), (&"done".into(), &"s1".into()));
        running.ends(1).says(&["session s1: the turn was abandoned"]);
        let listed = room.run(&["session", "list", "--json"]).ends(0).json();
        assert_eq!(listed["sessions"][0]["state"], "done");
    });
}

// covers M2, N4
#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_taken_from_a_process_which_stops_at_its_next_step() {
    let server = model(Script::new("s").step(Answer::new().text("I think. ").wait_for("taken").text("Gone."))).await;
    let room = Room::with_model(&server.base_url());
    blocking(|| {
        let running = Running::start(&room, &["run", "-s", "s1", "hello"]);
        running.says("I think. ");
        let taken = room.run(&["session", "takeover", "s1"]).ends(0);
        assert!(taken.err.starts_with("session s1 was taken from wharf, pid "), "{}", taken.err);
        taken.says(&["hint: go on with it: wharf session resume s1"]);
        server.release("taken");
        running.ends(4).says(&["error: fenced: the lease of session \"s1\" is no longer ours"]);
        // It journaled nothing more: the next one asks the provider what became of the request.
        let resumed = room.run(&["session", "resume", "s1", "--json"]).ends(0).json();
        assert_eq!(resumed["text"], "I think. Gone.");
        room.run(&["session", "takeover", "s1"]).ends(0).says(&["nobody had session s1; it is free"]);
    });
}

#[test]
fn commands_for_an_owner_name_a_session_that_is_not_there() {
    let room = Room::with_model("http://127.0.0.1:9");
    for command in ["cancel", "takeover"] {
        room.run(&["session", command, "s1"]).ends(2).says(&["error: there is no session \"s1\""]);
    }
}
