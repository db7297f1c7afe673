//! What the handle shows and does: log, gates, start and stop.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use wharf_simulate::{Answer, End, Options, Reach, RequestBody, Script, Server, StartError, Step, ViolationKind};

use crate::client::{BodyEnd, ask, get, open, post, post_path, start};

#[tokio::test]
async fn the_log_tells_each_request_and_hides_keys() {
    let script = Script::new("log").step(Step::from(Answer::new()).named("first"));
    let server = start(script).await;
    let request = ask(json!("start"));
    post(&server, &request).await;
    get(&server, "/v1/responses/resp_1?x=1").await;
    let entries = server.requests();
    let [first, second] = entries.as_slice() else {
        panic!("two requests, not {entries:?}");
    };
    assert_eq!((first.order, first.method.as_str(), first.path.as_str()), (1, "POST", "/v1/responses"));
    assert_eq!(first.json(), Some(&request));
    let step = first.step.clone().expect("a step answered");
    assert_eq!((step.index, step.name.as_deref()), (0, Some("first")));
    assert_eq!(first.response_id.as_deref(), Some("resp_1"));
    assert_eq!(first.end, End::Streamed { events: 3 });
    assert!(first.at <= first.ended_at.expect("it has ended") && first.ended_at <= Some(second.at));
    let header = |name: &str| first.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
    assert_eq!(header("authorization"), Some("(hidden)"));
    assert_eq!(header("content-type"), Some("application/json"));
    assert_eq!((second.order, second.path.as_str()), (2, "/v1/responses/resp_1?x=1"));
    assert_eq!((&second.body, &second.step, second.end), (&RequestBody::Empty, &None, End::Whole { status: 200 }));
}

#[tokio::test]
async fn the_log_file_grows_line_by_line_and_keeps_what_was_in_it() {
    let folder = std::env::temp_dir().join(format!("wharf-simulate-log-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let path = folder.join("requests.jsonl");
    std::fs::write(&path, "{\"kind\":\"earlier\"}\n").expect("a file");
    let options = Options { log_file: Some(path.clone()), ..Options::default() };
    let script = Script::new("file").step(Step::from(Answer::new().wait_for("go")).named("first"));
    let server = Server::start(script, options).await.expect("a free port");
    let lines = || -> Vec<Value> {
        let text = std::fs::read_to_string(&path).expect("the log");
        assert!(!text.contains("sk-test"));
        let mut lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        for line in lines.iter_mut().skip(1) {
            let object = line.as_object_mut().expect("an object");
            // Times and the client's own headers differ from run to run.
            assert_eq!(object.remove("at_ms").is_some(), object["kind"] != "violation");
            object.remove("headers");
        }
        lines
    };
    let request = ask(json!("start"));
    let stream = open(&server, &request).await;
    server.wait_for_gate("go").await.expect("the stream comes to the gate");
    let mut expected = vec![
        json!({ "kind": "earlier" }),
        json!({ "kind": "request", "order": 1, "method": "POST", "path": "/v1/responses", "body": request }),
        json!({ "kind": "answered", "order": 1, "step": 0, "step_name": "first", "response_id": "resp_1" }),
    ];
    assert_eq!(lines(), expected);
    server.release("go");
    stream.finish().await.expect("an answer");
    expected.push(json!({ "kind": "end", "order": 1, "end": { "how": "streamed", "events": 3 } }));
    assert_eq!(lines(), expected);
    post(&server, &request).await;
    let message = "the script \"file\" has no step left: all 1 have answered";
    expected.push(json!({ "kind": "request", "order": 2, "method": "POST", "path": "/v1/responses", "body": request }));
    expected.push(json!({ "kind": "violation", "order": 2, "what": message }));
    expected.push(json!({ "kind": "end", "order": 2, "end": { "how": "whole", "status": 500 } }));
    assert_eq!(lines(), expected);
    std::fs::remove_dir_all(&folder).expect("our folder");
}

#[tokio::test]
async fn a_gate_holds_the_stream_until_it_is_released_even_before() {
    let answer = || Answer::new().text("a").wait_for("one").text("b").wait_for("two");
    let server = start(Script::new("gates").step(answer()).step(answer())).await;
    server.release("two");
    let mut stream = open(&server, &ask(json!("start"))).await;
    server.wait_for_gate("one").await.expect("the stream comes to the gate");
    stream.read_until("\"msg_1_0\",\"type\":\"message\",\"status\":\"completed\"").await;
    assert_eq!(server.requests()[0].end, End::Open);
    server.release("one");
    assert_eq!(stream.finish().await.map(|got| got.end), Some(BodyEnd::Proper));
    // A released gate stays open, also for later streams.
    post(&server, &ask(json!("start"))).await;
    assert_eq!(server.violations(), vec![]);
}

#[tokio::test]
async fn a_gate_that_nobody_releases_cuts_the_stream_and_an_unknown_one_is_recorded() {
    let options = Options { gate_wait: Duration::from_millis(1), ..Options::default() };
    let script = Script::new("forgotten").step(Answer::new().wait_for("go"));
    let server = Server::start(script, options).await.expect("a free port");
    assert_eq!(post(&server, &ask(json!("start"))).await.end, BodyEnd::Broken);
    server.release("goo");
    let kinds: Vec<ViolationKind> = server.violations().into_iter().map(|violation| violation.kind).collect();
    let expected = [
        ViolationKind::GateTimedOut { gate: "go".to_owned(), waited_ms: 1 },
        ViolationKind::UnknownGate { gate: "goo".to_owned() },
    ];
    assert_eq!(kinds, expected);
    assert_eq!(server.requests()[0].end, End::Cut { events: 2 });
}

#[tokio::test]
async fn other_programs_release_gates_and_read_the_log_over_http() {
    let server = start(Script::new("http").step(Answer::new().wait_for("go"))).await;
    let stream = open(&server, &ask(json!("start"))).await;
    server.wait_for_gate("go").await.expect("the stream comes to the gate");
    assert_eq!(post_path(&server, "/_simulate/release/go").await.status, 204);
    stream.finish().await.expect("an answer");
    post(&server, &ask(json!("start"))).await;
    let log = get(&server, "/_simulate/requests").await.json();
    let facts: Vec<Value> = log
        .as_array()
        .into_iter()
        .flatten()
        .map(|entry| json!([entry["order"], entry["step"], entry["response_id"], entry["end"]]))
        .collect();
    let expected = [
        json!([1, 0, "resp_1", { "how": "streamed", "events": 3 }]),
        json!([2, null, null, { "how": "whole", "status": 500 }]),
    ];
    assert_eq!(facts, expected);
    let violations = get(&server, "/_simulate/violations").await.json();
    assert_eq!(violations, json!(["request 2: the script \"http\" has no step left: all 1 have answered"]));
}

#[tokio::test]
async fn waiting_gives_the_request_as_soon_as_it_is_there() {
    let server = start(Script::new("wait").step(Answer::new().wait_for("go"))).await;
    let request = ask(json!("start"));
    let (waited, stream) = tokio::join!(server.wait_for_request(1), open(&server, &request));
    assert_eq!(waited.map(|entry| (entry.order, entry.method)), Ok((1, "POST".to_owned())));
    let (ended, ()) = tokio::join!(server.wait_for_end(1), async { server.release("go") });
    assert_eq!(ended.map(|entry| entry.end), Ok(End::Streamed { events: 3 }));
    stream.finish().await.expect("an answer");
}

#[tokio::test]
async fn only_loopback_is_listened_on_unless_asked_for() {
    let any: SocketAddr = ([0, 0, 0, 0], 0).into();
    let options = Options { bind: any, ..Options::default() };
    let refused = Server::start(Script::new("any"), options.clone()).await.err();
    assert!(matches!(refused, Some(StartError::NotLoopback { address }) if address == any));
    let allowed = Server::start(Script::new("any"), Options { reach: Reach::AnyAddress, ..options }).await;
    allowed.expect("any address was asked for").shutdown().await;
    let server = start(Script::new("loopback")).await;
    assert!(server.address().ip().is_loopback());
    assert_eq!(server.base_url(), format!("http://{}/v1", server.address()));
}

#[tokio::test]
async fn what_cannot_be_opened_is_said_at_the_start() {
    let server = start(Script::new("first")).await;
    let options = Options { bind: server.address(), ..Options::default() };
    let taken = Server::start(Script::new("second"), options).await.err();
    assert!(matches!(taken, Some(StartError::Bind { address, .. }) if address == server.address()));
    let path = std::env::temp_dir().join("wharf-no-such-folder").join("log.jsonl");
    let options = Options { log_file: Some(path.clone()), ..Options::default() };
    let no_folder = Server::start(Script::new("log"), options).await.err();
    assert!(matches!(no_folder, Some(StartError::LogFile { path: named, .. }) if named == path));
}

#[tokio::test]
async fn a_shutdown_breaks_streams_says_so_and_frees_the_address() {
    let server = start(Script::new("stop").step(Answer::new().wait_for("never"))).await;
    let address = server.address();
    let stream = open(&server, &ask(json!("start"))).await;
    let idle = TcpStream::connect(address).await.expect("an idle connection");
    server.wait_for_gate("never").await.expect("the stream comes to the gate");
    server.shutdown().await;
    assert_eq!(stream.finish().await.map(|got| got.end), Some(BodyEnd::Broken));
    TcpListener::bind(address).await.expect("the address is free again");
    drop(idle);
}

#[tokio::test]
async fn a_dropped_server_breaks_its_streams() {
    let server = start(Script::new("drop").step(Answer::new().wait_for("never"))).await;
    let stream = open(&server, &ask(json!("start"))).await;
    server.wait_for_gate("never").await.expect("the stream comes to the gate");
    drop(server);
    assert_eq!(stream.finish().await.map(|got| got.end), Some(BodyEnd::Broken));
}
