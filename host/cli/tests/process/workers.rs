//! Many sessions and a few workers on one database, some of which are killed: each turn ends once, in the provider's log and
//! in the witness.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};

use serde_json::Value;
use wharf_simulate::{Answer, Expect, Options, Script, Server};

use crate::books::{Post, posts, settled};
use crate::check::Journal;
use crate::journals::{Chaos, Journals};
use crate::number;
use crate::plan::{Broken, Dice, Point};
use crate::program::{self, Process, Room};

/// Sessions and workers of the short lane; `WHARF_WORK_SESSIONS` and `WHARF_WORK_WORKERS` say others.
const SESSIONS: u64 = 12;
const WORKERS: u64 = 2;

/// Copies of each answer: one that was lost is asked for again.
const COPIES: usize = 3;

/// How long the model takes for each answer, so that there is something to kill.
const THINKS: Duration = Duration::from_millis(150);

/// Requests of one turn that an operator may have to answer for: two, and a spare one.
const ANSWERS_MAX: usize = 4;

/// Turns that do not end within this time never do; 200 take half a minute.
const PATIENCE: Duration = Duration::from_secs(120);

/// Processes that begin turns at once.
const STARTERS: u64 = 2;

/// A session's first answer calls a `never` tool that runs meanwhile and a keyed one that is waited for, the next one says that
/// it is done. Answers have spare copies, since one that was lost may be asked for again.
fn script(sessions: u64) -> Script {
    let mut script = Script::new("workers").first_match();
    for n in 0..sessions {
        for copy in 0..COPIES {
            let (pay, book) = (format!("call_pay_{n}_{copy}"), format!("call_book_{n}_{copy}"));
            let question = Expect::new().no_previous().contains(format!("question {n}."));
            script = script.step(
                Answer::new()
                    .async_function_call(&pay, "pay", "{}")
                    .function_call(&book, "book", "{}")
                    .expect(question),
            );
            let deliveries = [vec![pay.as_str(), book.as_str()], vec![book.as_str()], vec![pay.as_str()]];
            for outputs in deliveries.iter().cycle().take(3 * COPIES).cloned() {
                script = script.step(
                    Answer::new().wait(THINKS).text(format!("Done {n}.")).expect(Expect::new().only_outputs(outputs)),
                );
            }
        }
    }
    script
}

// covers N4, L57, G4, G5, G12
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_that_share_sessions_and_are_killed_end_each_turn_once() {
    let Some(journals) = tokio::task::block_in_place(|| Journals::in_databases(Chaos::Nothing)) else { return };
    let sessions = number("WHARF_WORK_SESSIONS").unwrap_or(SESSIONS);
    let workers = number("WHARF_WORK_WORKERS").unwrap_or(WORKERS);
    let mut dice = Dice::new(number("WHARF_CRASH_SEED").unwrap_or(1), sessions);
    program::warm().await;
    let server = Server::start(script(sessions), Options::default()).await.expect("a server");
    let began = SystemTime::now();
    let room = Room::new(&server.base_url(), &journals);
    begin(&room, sessions).await;
    room.database().expect("it has one").sql("UPDATE wharf.journal SET until_ms = 0");
    assert_eq!(count(&room, "is_open"), sessions, "each has a turn to go on with");

    let arguments = ["work", "--at-once", "6", "--json"];
    let mut running: Vec<Process> = (0..workers).map(|_| room.start(&arguments, None)).collect();
    let mut killed = 0;
    let give_up = Instant::now() + PATIENCE;
    loop {
        let open = count(&room, "is_open");
        if open == 0 {
            break;
        }
        if Instant::now() > give_up {
            let said: Vec<String> = running.iter().map(|worker| worker.err().borrow().clone()).collect();
            panic!(
                "{open} turns do not end; the workers said:\n{}\nviolations: {:#?}",
                said.join("\n"),
                server.violations()
            );
        }
        tokio::time::sleep(Duration::from_millis(100 + dice.below(500))).await;
        if killed < sessions / 6 + 1 {
            let at = usize::try_from(dice.below(workers)).expect("a few");
            let mut dead = std::mem::replace(&mut running[at], room.start(&arguments, None));
            dead.kill();
            let id = dead.id();
            dead.ends().await.expect("it is killed");
            killed += 1;
            // Else its sessions would wait for a minute.
            room.database().expect("it has one").sql(&format!(
                "UPDATE wharf.journal SET until_ms = 0 WHERE convert_from(label, 'UTF8') LIKE '%pid {id}'"
            ));
        }
    }
    let mut claims: BTreeMap<String, u64> = BTreeMap::new();
    for mut worker in running {
        let mut said = worker.err();
        said.wait_for(|text| text.contains("working for")).await.expect("it listens");
        worker.terminate().await;
        let ended = worker.ends().await.expect("it stops");
        assert_eq!(ended.code, Some(0), "{ended:#?}");
        for line in ended.out.lines() {
            let event: Value = serde_json::from_str(line).expect("a line of JSON");
            if event["event"] == "claimed" {
                *claims.entry(event["session"].as_str().expect("a name").to_owned()).or_default() += 1;
            }
        }
    }
    answer(&room, &server, began, sessions).await;

    assert_eq!(count(&room, "token IS NOT NULL AND until_ms > wharf.now_ms(NULL)"), 0, "no session is held any more");
    let listed = room.look(&["session", "list", "--json"]).await.expect("a list").json().expect("JSON");
    let done = listed["sessions"].as_array().expect("a list").iter().filter(|one| one["state"] == "done").count();
    assert_eq!(done as u64, sessions, "{listed:#}");
    let mut runs: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
    for ran in room.witness() {
        runs.entry((ran.tool, ran.call)).or_default().push(ran.key);
    }
    for ((tool, call), keys) in &runs {
        assert!(tool != "pay" || keys.len() == 1, "{call} ran {} times", keys.len());
        assert!(keys.iter().all(|key| key == &keys[0]), "{call} ran with {keys:?}");
    }
    assert_eq!(server.violations(), [], "each output is sent once, on its own call");
    for n in 0..sessions {
        let session = format!("s{n}");
        let shown = room.look(&["session", "verify", &session, "--all", "--json"]).await.expect("a check");
        assert!(shown.code == Some(0) && shown.json().expect("JSON")["sound"] == true, "{shown:#?}");
    }
    eprintln!(
        "sessions {sessions}, workers {workers}, killed {killed}, claims by those that lived {}, runs of tools {}, requests {}",
        claims.values().sum::<u64>(),
        runs.values().map(Vec::len).sum::<usize>(),
        server.requests().len()
    );
}

// covers N4, L63
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_was_frozen_beyond_its_lease_appends_and_runs_nothing_more() {
    let Some(journals) = tokio::task::block_in_place(|| Journals::in_databases(Chaos::Nothing)) else { return };
    program::warm().await;
    let server = Server::start(script(1), Options::default()).await.expect("a server");
    let room = Room::new(&server.base_url(), &journals);
    let database = room.database().expect("it has one");
    begin(&room, 1).await;
    database.sql("UPDATE wharf.journal SET until_ms = 0");
    let book = ["call_book_0_0".to_owned()];
    room.hold(&book);
    let mut frozen = room.start(&["work", "--json"], None);
    room.ran(&book, &[]).await;
    frozen.signal("STOP").await;

    // Its lease ends while it is frozen; another one runs the keyed call again, and is done.
    database.sql("UPDATE wharf.journal SET until_ms = 0");
    room.let_go();
    let other = room.run(&["work", "--until-idle", "--json"]).await.expect("it ends");
    assert!(other.code == Some(0) && other.out.contains(r#""status":"completed""#), "{other:#?}");
    let (head, requests, runs) =
        (database.sql("SELECT head FROM wharf.journal"), server.requests().len(), room.witness());

    // What it was about to write is refused in the database, and it does nothing more.
    let mut said = frozen.err();
    frozen.signal("CONT").await;
    said.wait_for(|text| text.contains("fenced: ")).await.expect("it finds out");
    frozen.terminate().await;
    let ended = frozen.ends().await.expect("it stops");
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    assert_eq!(database.sql("SELECT head FROM wharf.journal"), head, "it appended something");
    assert_eq!(server.requests().len(), requests, "it sent something");
    assert_eq!(room.witness(), runs, "it ran something");
    assert_eq!(server.violations(), []);
    let runs_of = |tool: &str| runs.iter().filter(|ran| ran.tool == tool).collect::<Vec<_>>();
    assert_eq!(runs_of("pay").len(), 1);
    let [first, second] = runs_of("book")[..] else { panic!("{runs:#?}") };
    assert_eq!((&first.key, first.attempt, second.attempt), (&second.key, 1, 2));
}

/// Begins each turn in a process that is killed before its request is sent.
async fn begin(room: &Room, sessions: u64) {
    let mut next = 0;
    while next < sessions {
        let mut starting = Vec::new();
        for n in (next..sessions).take(usize::try_from(STARTERS).expect("a few")) {
            let (session, question) = (format!("s{n}"), format!("question {n}."));
            let before_request = Point::Write("append", 3, "before-write");
            starting.push(room.start(&["run", "-s", &session, "--json", &question], Some(before_request)));
            next += 1;
        }
        for mut process in starting {
            let mut said = process.err();
            said.wait_for(|text| text.contains("stopped at ")).await.expect("it stops there");
            process.kill();
            process.ends().await.expect("it is killed");
        }
    }
}

fn count(room: &Room, what: &str) -> u64 {
    let sql = format!("SELECT count(*) FROM wharf.journal WHERE {what}");
    tokio::task::block_in_place(|| room.database().expect("it has one").sql(&sql).parse().expect("a number"))
}

/// Whoever looks after them answers for requests of which nobody knows whether they were accepted, by the provider's books.
async fn answer(room: &Room, server: &Server, began: SystemTime, sessions: u64) {
    settled(server).await.expect("nothing is open any more");
    for n in 0..sessions {
        let session = format!("s{n}");
        for _ in 0..ANSWERS_MAX {
            let shown = room.look(&["session", "show", &session, "--json"]).await.expect("a session");
            let journal = Journal::new(shown.json().expect("JSON"));
            if !journal.is_open() {
                break;
            }
            let begun = journal.last_begun().expect("a request was begun");
            let posts = posts(server);
            let ours = posts.iter().rev().find(|post| asked_by(post, n) && began + post.at() >= begun);
            // An answer that nobody read to its end this provider forgets.
            let kept = ours.filter(|post| post.is_kept(Broken::Gone));
            let receipt = kept.and_then(|post| post.response()).map(str::to_owned);
            let words = match &receipt {
                Some(id) => vec!["session", "reconcile", &session, "--receipt", id, "--json"],
                None => vec!["session", "reconcile", &session, "--resend", "--json"],
            };
            let answered = room.look(&words).await.expect("an answer");
            if answered.code != Some(0) {
                room.look(&["session", "resume", &session, "--json"]).await.expect("it goes on");
            }
        }
    }
}

/// Whether a request is of this session: it has its question, or outputs of its calls.
fn asked_by(post: &Post, n: u64) -> bool {
    let of_call = |(call, _): &(String, String)| call.split('_').nth(2) == Some(&n.to_string());
    post.contains(&format!("question {n}.")) || post.outputs().iter().any(of_call)
}
