//! `wharf work`: what it goes on with, and what it leaves to people.

use wharf_simulate::{Answer, Expect, Script};

use crate::kit::{Room, Running, blocking, model};

fn two_parts() -> Script {
    Script::new("s").step(Answer::new().text("I think. ").wait_for("go").text("Done."))
}

// covers L62
#[tokio::test(flavor = "multi_thread")]
async fn a_turn_that_was_parked_is_gone_on_with_by_a_worker_and_by_one_alone() {
    let server = model(two_parts()).await;
    let room = Room::with_model(&server.base_url());
    blocking(|| {
        let running = Running::start(&room, &["run", "-s", "s1", "hello"]);
        running.says("I think. ");
        // Somebody has it: there is nothing to do.
        assert_eq!(room.run(&["work", "--until-idle", "--json"]).ends(0).out, "");
        running.signal("TERM");
        running.talks("stopping: ");
        server.release("go");
        running.ends(0);
        let ran = room.run(&["work", "--until-idle", "--json"]).ends(0);
        let events: Vec<serde_json::Value> = ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(events.len(), 2, "{}", ran.out);
        assert_eq!((&events[0]["event"], &events[0]["session"]), (&"claimed".into(), &"s1".into()));
        assert_eq!((&events[1]["event"], &events[1]["status"]), (&"ended".into(), &"completed".into()));
        assert_eq!(room.run(&["work", "--until-idle", "--json"]).ends(0).out, "", "it is done");
    });
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_that_a_person_cancelled_or_took_over_is_left_to_people() {
    let script = two_parts().step(Answer::new().text("On.")).step(Answer::new().text("And on."));
    let server = model(script).await;
    let room = Room::with_model(&server.base_url());
    let idle = || assert_eq!(room.run(&["work", "--until-idle", "--json"]).ends(0).out, "", "it was taken");
    blocking(|| {
        let running = Running::start(&room, &["run", "-s", "s1", "hello"]);
        running.says("I think. ");
        running.signal("INT");
        running.ends(130);
        idle();
        room.run(&["session", "takeover", "s1"]).ends(0);
        idle();
        server.release("go");
        room.run(&["session", "resume", "s1"]).ends(0);
        idle();
    });
}

// covers L59, G17
#[tokio::test(flavor = "multi_thread")]
async fn a_turn_that_fails_for_a_reason_that_may_pass_is_tried_again_later_and_others_go_on() {
    let room = Room::with_model("http://127.0.0.1:1/v1");
    blocking(|| {
        room.run(&["run", "-s", "s1", "hello"]).ends(3);
        let ran = room.run(&["work", "--until-idle", "--json"]).ends(0);
        let ended: serde_json::Value = serde_json::from_str(ran.out.lines().last().unwrap()).unwrap();
        assert_eq!((&ended["status"], &ended["error"]["kind"]), (&"failed".into(), &"provider".into()), "{}", ran.out);
        assert_eq!(ended["again_ms"], 5_000);
    });
    let server = model(Script::new("s").step(Answer::new().text("Now.").expect(Expect::new().no_previous()))).await;
    let harness = room.read("wharf.toml").replace("http://127.0.0.1:1/v1", &server.base_url());
    room.write("wharf.toml", harness);
    blocking(|| {
        let ran = room.run(&["work", "--until-idle", "--json"]).ends(0);
        assert!(ran.out.contains(r#""status":"completed""#), "{}\n{}", ran.out, ran.err);
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_says_what_it_cannot_work_with() {
    let room = Room::with_model("http://127.0.0.1:1/v1");
    blocking(|| {
        let twice = room.run(&["work", "-H", "wharf.toml", "-H", "wharf.toml", "--until-idle"]).ends(2);
        assert!(twice.err.contains("two harnesses of this worker are named"), "{}", twice.err);
        std::fs::create_dir(room.path().join("other")).unwrap();
        room.write("other/wharf.toml", room.read("wharf.toml"));
        let apart = room.run(&["work", "-H", "wharf.toml", "-H", "other/wharf.toml", "--until-idle"]).ends(2);
        assert!(apart.err.contains("keeps its sessions elsewhere"), "{}", apart.err);
    });
}
