//! What a provider may do to a turn: nothing that was gained is lost, and each fault says how to go on.

use std::net::TcpListener;

use serde_json::json;
use wharf_simulate::script::Retrieved;
use wharf_simulate::{Answer, Expect, HttpReply, Options, Script, Server, Step};

use crate::kit::{Room, blocking, files, harness, model, outputs};

#[tokio::test(flavor = "multi_thread")]
async fn an_unreachable_provider_ends_with_three_and_the_turn_goes_on_when_it_is_there() {
    // An address that was free a moment ago.
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let room = Room::with_model(&format!("http://{address}/v1"));
    let ran = blocking(|| room.run(&["run", "-s", "s1", "hello"])).ends(3);
    assert_eq!(ran.out, "");
    let cause =
        format!("provider \"local\" cannot be reached at http://{address}/v1: Connection refused (os error 111)");
    ran.says(&[
        &format!("error: {cause}"),
        "hint: check base_url of providers.local, the network, and that the server runs",
        "hint: the turn is kept; go on with: wharf session resume s1",
    ]);
    let options = Options { bind: address, ..Options::default() };
    let script = Script::new("s").step(Answer::new().text("Hello.").expect(Expect::new().contains("hello")));
    let server = Server::start(script, options).await.unwrap();
    let ran = blocking(|| room.run(&["session", "resume", "s1"])).ends(0);
    assert_eq!(ran.out, "Hello.\n");
    assert_eq!(server.violations(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_key_ends_with_three_and_the_turn_goes_on_with_the_right_one() {
    let server = model(Script::new("s").api_key("right").step(Answer::new().text("Hello."))).await;
    let room = Room::warm();
    let keyed = harness(&server.base_url(), "").replace("base_url", "api_key = { env = \"KEY\" }\nbase_url");
    room.write("wharf.toml", keyed);
    let ran = blocking(|| room.run_with_env(("KEY", "wrong-key"), &["run", "-s", "s1", "hello"])).ends(3);
    assert!(!ran.err.contains("wrong-key"), "a key is never shown: {}", ran.err);
    ran.says(&[
        "error: provider \"local\" answered 401 (invalid_api_key): Incorrect API key provided.",
        "hint: check api_key of providers.local, for example api_key = { env = \"OPENAI_API_KEY\" }",
        "hint: the turn is kept; go on with: wharf session resume s1",
    ]);
    let ran = blocking(|| room.run_with_env(("KEY", "right"), &["session", "resume", "s1"])).ends(0);
    assert_eq!(ran.out, "Hello.\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_ends_early_is_told_and_the_question_asked_again_once() {
    let cut = Answer::new().text("This is gone").abort_after(6);
    let server = model(Script::new("s").step(cut).step(Answer::new().text("Whole."))).await;
    let room = Room::with_model(&server.base_url());
    let ran = blocking(|| room.run(&["run", "hello"])).ends(0);
    // What had come of the lost answer was told already; the whole one begins a line of its own.
    assert_eq!(ran.out.lines().last(), Some("Whole."));
    let talk: Vec<&str> = ran.err.lines().map(str::trim_start).collect();
    assert!(talk[0].starts_with("broke  provider \"local\": the answer broke off: "), "{}", ran.err);
    assert_eq!(talk[1], "dropped  a response (lost): its response never came to an end");
}

/// The second request goes on from a stored response, and what became of it is not known.
fn lost_delivery() -> Script {
    Script::new("s")
        .step(Answer::new().function_call("call_1", "read_file", r#"{"path":"a.txt"}"#))
        .step(Answer::new().text("This is gone").abort_after(5))
        .step(Answer::new().text("Two lines.").expect(Expect::new().only_outputs(["call_1"])))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delivery_of_which_nobody_knows_is_not_sent_twice_by_itself() {
    let server = model(lost_delivery()).await;
    let room = Room::with_model(&server.base_url());
    let error =
        "error: it is not known whether the provider accepted the delivery of \"call_1\" on response \"resp_1\"";
    let hint = "hint: answer with `wharf session reconcile s1 --resend` to send it again, with `--receipt RESPONSE_ID` \
                if that response took it, or with `--abandon` to end the turn";
    let ran = blocking(|| room.run(&["run", "-s", "s1", "hello"])).ends(4);
    let lines: Vec<&str> = ran.err.lines().rev().take(2).collect();
    assert_eq!(lines[0], hint);
    assert!(lines[1].starts_with(&format!("{error}: provider \"local\": the answer broke off: ")), "{}", lines[1]);
    // Neither asking something else nor resuming sends it again, and the JSON says the same.
    blocking(|| room.run(&["run", "-s", "s1", "something else"]))
        .ends(4)
        .says(&["error: a turn of this session is open", "hint: wharf session resume s1"]);
    blocking(|| room.run(&["session", "resume", "s1"])).ends(4).says(&[error, hint]);
    let json = blocking(|| room.run(&["session", "resume", "s1", "--json"])).ends(4).json();
    assert_eq!(
        json,
        json!({
            "session": "s1", "status": "failed", "resumable": true,
            "error": { "kind": "store", "message": &error["error: ".len()..], "hint": &hint["hint: ".len()..] },
        })
    );
    assert_eq!(server.requests().iter().filter(|request| request.method == "POST").count(), 2);
    let ran = blocking(|| room.run(&["session", "reconcile", "s1", "--resend"])).ends(0);
    assert_eq!(ran.out, "Two lines.\n");
    assert_eq!(server.violations(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_may_name_the_response_or_give_the_turn_up() {
    // The provider finds the response only later: it was accepted, and its text is there after all.
    let found_later = Answer::new()
        .text("Two lines.")
        .abort_after(5)
        .if_broken(Retrieved::Completed)
        .retrieve([Retrieved::NotFound, Retrieved::Completed]);
    let script = Script::new("s")
        .step(Answer::new().function_call("call_1", "read_file", r#"{"path":"a.txt"}"#))
        .step(found_later);
    let server = model(script).await;
    let room = Room::with_model(&server.base_url());
    blocking(|| room.run(&["run", "-s", "s1", "hello"])).ends(4);
    let other = blocking(|| room.run(&["session", "reconcile", "s1", "--receipt", "resp_9"])).ends(4);
    other.says(&[
        "error: the request in flight was answered by response \"resp_2\", not by \"resp_9\"",
        "hint: the turn is kept; go on with: wharf session resume s1",
    ]);
    let taken = blocking(|| room.run(&["session", "reconcile", "s1", "--receipt", "resp_2", "--json"])).ends(0).json();
    assert_eq!((&taken["status"], &taken["text"]), (&json!("completed"), &json!("Two lines.")));
    let shown = blocking(|| room.run(&["session", "show", "s1", "--json"])).ends(0).json();
    assert_eq!(shown["open"], false);
    assert_eq!(shown["calls"][0]["state"], "delivered");

    let server = model(lost_delivery()).await;
    let room = Room::with_model(&server.base_url());
    blocking(|| room.run(&["run", "-s", "s1", "hello"])).ends(4);
    let ran = blocking(|| room.run(&["session", "reconcile", "s1", "--abandon"])).ends(0);
    assert_eq!(ran.out, "");
    ran.says(&["session s1: the turn was abandoned"]);
    blocking(|| room.run(&["session", "reconcile", "s1", "--abandon"])).ends(4).says(&[
        "error: no turn is open, so there is nothing to reconcile",
        "hint: `wharf session show s1` shows what is stored",
    ]);
}

#[tokio::test(flavor = "multi_thread")]
async fn arguments_that_are_not_json_go_back_to_the_model_and_nothing_runs() {
    let script = Script::new("s")
        .step(Answer::new().function_call("call_1", "read_file", r#"{"path": a.txt}"#))
        .step(Answer::new().text("My fault."));
    let server = model(script).await;
    let room = Room::with_model(&server.base_url());
    let ran = blocking(|| room.run(&["run", "-s", "s1", "hello"])).ends(0);
    assert_eq!(ran.out, "My fault.\n");
    let (id, output) = outputs(&server, 2).remove(0);
    let why = "tool \"read_file\" got arguments that are not JSON (expected value at line 1 column 10), call it again with \
               valid JSON; nothing was executed";
    assert_eq!((id.as_str(), output), ("call_1", json!({ "error": why }).to_string()));
    let talk: Vec<&str> = ran.err.lines().map(str::trim_start).collect();
    assert_eq!(talk[0], format!("refused  read_file (call_1): {why}"));
    let shown = blocking(|| room.run(&["session", "show", "s1", "--json"])).ends(0).json();
    assert_eq!(shown["calls"][0]["how"], "refused: malformed_arguments");
    assert_eq!(shown["calls"][0]["runs"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_that_say_no_are_told_with_what_helps() {
    let cases = [
        (HttpReply::rate_limited("2"), "hint: too many requests: wait 2 s, then go on"),
        (
            HttpReply::error(404, "model_not_found", "The model does not exist."),
            "hint: check the model's name in the harness, and that the key may use it",
        ),
    ];
    for (reply, hint) in cases {
        let server = model(Script::new("s").step(Step::from(reply)).step(Answer::new().text("Now."))).await;
        let room = Room::with_model(&server.base_url());
        let ran = blocking(|| room.run(&["run", "-s", "s1", "hello"])).ends(3);
        ran.says(&[hint, "hint: the turn is kept; go on with: wharf session resume s1"]);
        assert_eq!(blocking(|| room.run(&["session", "resume", "s1"])).ends(0).out, "Now.\n");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fault_in_mid_turn_keeps_what_the_tools_have_done() {
    let script = Script::new("s")
        .step(Answer::new().function_call("call_1", "read_file", r#"{"path":"a.txt"}"#))
        .step(HttpReply::error(429, "rate_limit_exceeded", "Slow down."))
        .step(Answer::new().text("Two lines.").expect(Expect::new().latest().only_outputs(["call_1"])));
    let server = model(script).await;
    let room = Room::with_model(&server.base_url());
    blocking(|| room.run(&["run", "-s", "s1", "hello"])).ends(3);
    let ran = blocking(|| room.run(&["session", "resume", "s1"])).ends(0);
    assert_eq!(ran.out, "Two lines.\n");
    let shown = blocking(|| room.run(&["session", "show", "s1", "--json"])).ends(0).json();
    assert_eq!(shown["calls"][0]["attempts"], 1, "the tool did not run again");
    assert_eq!(server.violations(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_declines_ends_with_one() {
    let server = model(Script::new("s").step(Answer::new().refusal("I would rather not."))).await;
    let room = Room::with_model(&server.base_url());
    let ran = blocking(|| room.run(&["run", "hello"])).ends(1);
    assert_eq!(ran.out, "I would rather not.\n");
    ran.says(&["error: the model declined to answer"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_of_responses_ends_with_two_and_says_how_to_raise_it() {
    let script = Script::new("s")
        .step(Answer::new().function_call("call_1", "read_file", r#"{"path":"a.txt"}"#))
        .step(Answer::new().text("Two lines."));
    let server = model(script).await;
    let room = Room::with_model(&server.base_url());
    room.write("wharf.toml", harness(&server.base_url(), &files()));
    let ran = blocking(|| room.run(&["run", "-s", "s1", "--max-responses", "1", "hello"])).ends(2);
    ran.says(&["hint: the turn is kept; go on with: wharf session resume s1"]);
    assert_eq!(blocking(|| room.run(&["session", "resume", "s1"])).ends(0).out, "Two lines.\n");
}
