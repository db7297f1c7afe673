//! The journal and its lease: one owner at a time, and nothing is touched that cannot be understood.

use wharf_simulate::{Answer, Script};

use crate::kit::{Room, Running, blocking, model};

#[tokio::test(flavor = "multi_thread")]
async fn a_session_in_use_is_refused_with_who_has_it() {
    let script = Script::new("s").step(Answer::new().text("I think. ").wait_for("go").text("Done."));
    let server = model(script).await;
    let room = Room::with_model(&server.base_url());
    blocking(|| {
        let running = Running::start(&room, &["run", "-s", "s1", "hello"]);
        running.says("I think. ");
        for second in [&["run", "-s", "s1", "hello"][..], &["session", "resume", "s1"]] {
            let ran = room.run(second).ends(4);
            assert_eq!(ran.out, "");
            let (error, hint) = ran.err.split_once('\n').unwrap();
            let owner = format!("error: session \"s1\" is in use by wharf, pid {} for at least ", running.id());
            assert!(error.starts_with(&owner) && error.ends_with(" s more"), "{error}");
            assert_eq!(
                hint,
                "hint: wait, or stop that process, or take the session from it: wharf session resume s1 --take-over\n"
            );
        }
        // Looking is free, and so are other sessions.
        let shown = room.run(&["session", "show", "s1"]).ends(0);
        let owner = format!("in use by wharf, pid {} for ", running.id());
        assert!(shown.err.starts_with(&owner), "{}", shown.err);
        server.release("go");
        assert_eq!(running.ends(0).out, "I think. Done.\n");
    });
}

/// A room with one session whose turn is done.
async fn used() -> Room {
    let server = model(Script::new("s").step(Answer::new().text("Hello."))).await;
    let room = Room::with_model(&server.base_url());
    blocking(|| room.run(&["run", "-s", "s1", "hello"]).ends(0));
    room
}

const COMMANDS: [&[&str]; 4] =
    [&["run", "hello"], &["session", "list"], &["session", "show", "s1"], &["session", "resume", "s1"]];

#[tokio::test(flavor = "multi_thread")]
async fn a_corrupt_database_is_refused_and_left_as_it_is() {
    let room = used().await;
    let good = std::fs::read(room.path().join(".wharf/wharf.db")).unwrap();
    let mut torn = good.clone();
    torn[4096..].fill(0xa5); // the first page says what there is, and the others are not it
    for damaged in [b"this is no database, whatever its name says".to_vec(), good[..good.len() / 2].to_vec(), torn] {
        room.write(".wharf/wharf.db", &damaged);
        for command in COMMANDS {
            let ran = blocking(|| room.run(command));
            eprintln!("{command:?}");
            let ran = ran.ends(5);
            let (error, hint) = ran.err.split_once('\n').unwrap();
            assert!(error.starts_with("error: ") && error.contains("damaged: "), "{command:?}: {error}");
            assert_eq!(
                hint,
                "hint: nothing was changed: keep a copy of the folder .wharf, then put a backup in its place or move it away\n",
                "{command:?}"
            );
        }
        assert!(std::fs::read(room.path().join(".wharf/wharf.db")).unwrap() == damaged, "it was changed");
    }
    // The backup in its place is all that it takes.
    room.write(".wharf/wharf.db", &good);
    assert_eq!(blocking(|| room.run(&["session", "resume", "s1", "--json"])).ends(0).json()["text"], "Hello.");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_of_a_newer_version_is_refused_and_left_as_it_is() {
    let room = used().await;
    let mut newer = std::fs::read(room.path().join(".wharf/wharf.db")).unwrap();
    // The file's header keeps the version of its form here, as four bytes, the highest first.
    newer[60..64].copy_from_slice(&99_u32.to_be_bytes());
    room.write(".wharf/wharf.db", &newer);
    for command in COMMANDS {
        let ran = blocking(|| room.run(command)).ends(4);
        assert_eq!(
            ran.err,
            "error: the sessions in ./.wharf cannot be opened: ROOM/.wharf/wharf.db has form 99; this version reads up to 3\n\
             hint: use the newer wharf that wrote it\n",
            "{command:?}"
        );
    }
    assert!(std::fs::read(room.path().join(".wharf/wharf.db")).unwrap() == newer, "it was changed");
}
