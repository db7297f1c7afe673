//! Sessions in a database that several machines share.

use wharf_simulate::{Answer, Script};
use wharf_testpg::Cluster;

use crate::kit::{Room, Running, blocking, model};

fn answers(count: usize) -> Script {
    (0..count).fold(Script::new("s"), |script, n| script.step(Answer::new().text(format!("Answer {n}."))))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_goes_on_in_a_database_whichever_way_it_is_named() {
    let Some(cluster) = blocking(Cluster::shared) else { return };
    let server = model(answers(3)).await;
    let room = Room::with_model(&server.base_url());
    blocking(|| {
        let address = cluster.database();
        room.run(&["run", "-s", "s1", "--store", &address, "hello"]).ends(0);
        assert!(!room.has(".wharf"), "nothing is kept beside the harness");
        room.run_with_env(("WHARF_STORE", &address), &["run", "-s", "s1", "and?"]).ends(0);
        let harness = room.read("wharf.toml");
        room.write("wharf.toml", format!("{harness}\n[sessions]\nstore = {{ env = \"DB\" }}\n"));
        room.run_with_env(("DB", &address), &["run", "-s", "s1", "and now?"]).ends(0);
        let listed = room.run_with_env(("DB", &address), &["session", "list", "--json"]).ends(0).json();
        assert_eq!(listed["sessions"][0]["session"], "s1", "{listed}");
        let shown = room.run(&["session", "show", "s1", "--store", &address, "--json"]).ends(0).json();
        assert_eq!(shown["turns"].as_array().map(Vec::len), Some(3), "{shown}");
        room.run(&["session", "verify", "s1", "--store", &address]).ends(0);
        // Without the variable that the harness names, no other store is taken in its place.
        room.run(&["session", "show", "s1"]).ends(2).says(&[
            "error: [sessions] store names the environment variable DB, which is not set",
            "hint: export DB=postgres://USER:PASSWORD@HOST/DATABASE",
        ]);
        room.run(&["session", "delete", "s1", "--yes", "--store", &address]).ends(0);
        assert!(!room.has(".wharf"));
    });
}

// covers M2, N4
#[tokio::test(flavor = "multi_thread")]
async fn a_session_in_a_database_is_taken_over_from_another_process_and_cancelled_there() {
    let Some(cluster) = blocking(Cluster::shared) else { return };
    let script = Script::new("s").step(Answer::new().text("I think. ").wait_for("go").text("Done."));
    let server = model(script).await;
    let room = Room::with_model(&server.base_url());
    blocking(|| {
        let address = cluster.database();
        let running = Running::start(&room, &["run", "-s", "s1", "--store", &address, "hello"]);
        running.says("I think. ");
        let refused = room.run(&["session", "resume", "s1", "--store", &address]).ends(4);
        assert!(refused.err.contains("is in use by wharf, pid"), "{}", refused.err);
        room.run(&["session", "cancel", "s1", "--store", &address]).ends(0);
        assert_eq!(running.ends(130).out.trim_end(), "I think.");
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_is_not_there_is_told_without_its_password() {
    let room = Room::with_model("http://127.0.0.1:1/v1");
    blocking(|| {
        let ran = room.run(&["run", "--store", "postgres://ann:sk-secret@127.0.0.1:1/wharf", "hello"]).ends(4);
        assert!(ran.err.contains("at 127.0.0.1:1") && !ran.err.contains("sk-secret"), "{}", ran.err);
        let ran = room.run(&["session", "list", "--store", "db.example"]).ends(4);
        assert!(ran.err.contains("it has to begin with postgres://"), "{}", ran.err);
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_looks_at_the_store_and_says_what_is_wrong_with_it() {
    let room = Room::with_model("http://127.0.0.1:1/v1");
    blocking(|| {
        let ran = room.run(&["doctor", "--json"]).ends(0).json();
        assert!(ran["findings"].as_array().unwrap().iter().all(|one| one["grade"] != "fault"), "{ran}");
        let away = room.run(&["doctor", "--store", "postgres://ann:sk-secret@127.0.0.1:1/wharf"]).ends(4);
        assert!(away.out.contains("fault") && !(away.out + &away.err).contains("sk-secret"));
        let Some(cluster) = Cluster::shared() else { return };
        let address = cluster.database();
        let ran = room.run(&["doctor", "--store", &address]).ends(0);
        assert!(ran.out.contains("tables of form 1, ") && ran.out.contains("of 200 connections"), "{}", ran.out);
        cluster.sql(cluster.name(&address), "UPDATE wharf.form SET number = 99");
        let newer = room.run(&["doctor", "--store", &address]).ends(4);
        assert!(newer.out.contains("has form 99; this version reads up to 1"), "{}", newer.out);
    });
}
