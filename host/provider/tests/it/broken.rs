//! Connections that break, stall, dribble, or stay open too long; what is then known of the request.

use std::time::Duration;

use futures::StreamExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use wharf_core::ErrorKind;
use wharf_core::model::{Fate, RequestError, StreamEvent};
use wharf_provider::{Timeouts, collect};

use crate::server::{Do, Server, chunk, chunked, head};
use crate::wire::{ask, config, connect, events, stream_text};

const EVENT_STREAM: &str = "text/event-stream";

/// Opens a stream and reads it to its end.
async fn read(url: &str, timeouts: Timeouts) -> (Vec<StreamEvent>, Option<RequestError>) {
    let mut config = config(url);
    config.timeouts = timeouts;
    let mut stream = match connect(config).open(ask("x")).await {
        Ok(stream) => stream,
        Err(error) => return (vec![], Some(error)),
    };
    let mut all = Vec::new();
    while let Some(event) = stream.next().await {
        match event {
            Ok(event) => all.push(event),
            Err(error) => {
                assert!(stream.next().await.is_none(), "nothing follows an error");
                return (all, Some(error));
            }
        }
    }
    (all, None)
}

fn started() -> StreamEvent {
    StreamEvent::Started { id: "resp_1".into() }
}

/// Everything of the stream but its terminal event, and a call that was only announced.
fn without_end() -> String {
    let text = stream_text();
    let end = text.find("data: {\"type\":\"response.output_item.done\"").unwrap();
    let open = r#"data: {"type":"response.output_item.added","item":{"type":"function_call","id":"fc_9","call_id":"c","name":"f","arguments":"{}"}}"#;
    format!("{}{open}\n\n", &text[..end])
}

#[tokio::test]
async fn an_end_without_terminal_event_is_a_truncation() {
    // covers P19, P5
    // SSE-8, SSE-9
    let (whole, shown) = (without_end(), vec![started(), StreamEvent::Text("Hel".into())]);
    let cut = |end: &str| {
        let text = stream_text();
        text[..text.find(end).unwrap() + end.len()].to_owned()
    };
    for (name, steps, shown) in [
        ("closed", vec![Do::Send(head(EVENT_STREAM)), Do::Send(whole.clone().into_bytes())], shown.clone()),
        (
            "closed cleanly, with a marker",
            vec![
                Do::Send(chunked()),
                Do::Send(chunk(&(whole.clone() + "data: [DONE]\n\n"))),
                Do::Send(b"0\r\n\r\n".to_vec()),
            ],
            shown.clone(),
        ),
        (
            "reset in a chunk",
            vec![Do::Send(chunked()), Do::Send(chunk(&whole)), Do::Send(b"40\r\ndata: ".to_vec())],
            shown.clone(),
        ),
        ("in an event", vec![Do::Send(head(EVENT_STREAM)), Do::Send(cut("\"resp_1\"").into_bytes())], vec![]),
        ("empty", vec![Do::Send(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n".to_vec())], vec![]),
        (
            "half a document",
            vec![Do::Send(head("application/json")), Do::Send(b"{\"id\":\"resp_1\",".to_vec())],
            vec![],
        ),
    ] {
        let server = Server::start(vec![steps]).await;
        let (events, error) = read(&server.url, Timeouts::default()).await;
        let error = error.unwrap();
        assert_eq!((events, error.fate, error.error.kind), (shown, Fate::Unknown, ErrorKind::Provider), "{name}");
        assert_eq!(server.requests().len(), 1, "{name}");
    }
}

#[tokio::test]
async fn an_unfinished_terminal_event_is_none() {
    // covers P19
    let text = stream_text();
    let end = text.rfind("\n\ndata: [DONE]").unwrap();
    let server =
        Server::start(vec![vec![Do::Send(head(EVENT_STREAM)), Do::Send(text.as_bytes()[..end].to_vec())]]).await;
    let (events, error) = read(&server.url, Timeouts::default()).await;
    assert!(!events.iter().any(|event| matches!(event, StreamEvent::Completed(_))));
    assert_eq!(error.unwrap().fate, Fate::Unknown);
}

#[tokio::test]
async fn terminal_event_ends_the_stream_while_the_socket_stays_open() {
    // covers P18
    // SSE-12
    let late = "data: {\"type\":\"error\",\"message\":\"late\"}\n\n";
    for extra in ["", late] {
        let text = stream_text() + extra;
        let server = Server::start(vec![vec![Do::Send(chunked()), Do::Send(chunk(&text)), Do::Hold]]).await;
        let driver = connect(config(&server.url));
        let events = events(driver.open(ask("x")).await.unwrap()).await;
        assert!(matches!(events.last(), Some(StreamEvent::Completed(end)) if end.text == "Hello"));
    }
}

#[tokio::test]
async fn a_stream_in_single_bytes_is_the_same_stream() {
    // covers P17
    let whole = Server::start(vec![vec![Do::Send(head(EVENT_STREAM)), Do::Send(stream_text().into_bytes())]]).await;
    let expected = read(&whole.url, Timeouts::default()).await;
    assert!(expected.1.is_none());
    let text = format!("\u{feff}{}", stream_text().replace('\n', "\r\n"));
    let dribbled = Server::start(vec![vec![Do::Send(head(EVENT_STREAM)), Do::Dribble(text.into_bytes())]]).await;
    assert_eq!(read(&dribbled.url, Timeouts::default()).await, expected);
}

#[tokio::test]
async fn what_cannot_be_decoded_has_an_unknown_fate() {
    // covers P13
    for (bytes, message) in [
        (
            b"data: {\"a\n\n".to_vec(),
            r#"provider "openai": an event of the answer is not JSON: it ends early at line 1, column 3 (3 bytes)"#,
        ),
        (b"data: \xff\n\n".to_vec(), r#"provider "openai": the event stream is not UTF-8: line 1, byte 6"#),
        (
            b" \n {\"object\":\"list\"}".to_vec(),
            r#"provider "openai": the answer is JSON but neither a response nor an error"#,
        ),
    ] {
        let server = Server::start(vec![vec![Do::Send(head(EVENT_STREAM)), Do::Send(bytes)]]).await;
        let (events, error) = read(&server.url, Timeouts::default()).await;
        let error = error.unwrap();
        assert_eq!((events, error.fate, error.error.message.as_str()), (vec![], Fate::Unknown, message));
    }
}

#[tokio::test]
async fn nothing_is_sent_where_nobody_listens() {
    // covers G13, G14
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    drop(listener);
    let (events, error) = read(&url, Timeouts::default()).await;
    let error = error.unwrap();
    assert_eq!((events, error.fate, error.status), (vec![], Fate::NotSent, None));
    let message = error.error.message;
    assert!(message.starts_with(&format!(r#"provider "openai" cannot be reached at {url}: "#)), "{message}");
    assert!(error.error.hint.unwrap().starts_with("check base_url of providers.openai"));
}

#[tokio::test]
async fn a_handshake_that_fails_has_sent_nothing() {
    // covers G13
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}/v1", listener.local_addr().unwrap());
    let server = tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        socket.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
        let mut sent = Vec::new();
        socket.read_to_end(&mut sent).await.unwrap_or(0);
        sent
    });
    let (events, error) = read(&url, Timeouts::default()).await;
    assert_eq!((events, error.unwrap().fate), (vec![], Fate::NotSent));
    let sent = String::from_utf8_lossy(&server.await.unwrap()).into_owned();
    assert!(!sent.contains("sk-very-secret") && !sent.contains("POST"), "{sent}");
}

#[tokio::test]
async fn a_connection_that_closes_before_an_answer_is_unknown_and_not_tried_again() {
    // covers G13
    // PROV-16, PROV-17
    let server = Server::start(vec![vec![]]).await;
    let (_, error) = read(&server.url, Timeouts::default()).await;
    assert_eq!(error.unwrap().fate, Fate::Unknown);
    assert_eq!(server.requests().len(), 1);

    // The same on a connection that is used again, where clients like to help themselves.
    let text = stream_text();
    let whole = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{text}", text.len());
    let server = Server::start(vec![vec![Do::Send(whole.into_bytes()), Do::Next], vec![]]).await;
    let driver = connect(config(&server.url));
    collect(driver.open(ask("one")).await.unwrap()).await.unwrap();
    let error = driver.open(ask("two")).await.err().unwrap();
    assert_eq!(error.fate, Fate::Unknown);
    assert_eq!(server.requests().len(), 2);
}

#[tokio::test]
async fn silence_has_limits_of_its_own_before_and_within_an_answer() {
    // covers G13
    let short = Duration::from_millis(40);
    let long = Timeouts::default();
    let body = without_end().into_bytes();
    for (name, timeouts, steps, message) in [
        (
            "no head",
            Timeouts { connect: short, first_byte: short, ..long },
            vec![Do::Hold],
            r#"provider "openai": no answer for 0.04 s"#,
        ),
        (
            "no body",
            Timeouts { first_byte: short, ..long },
            vec![Do::Send(chunked()), Do::Hold],
            r#"provider "openai": the answer fell silent for 0.04 s"#,
        ),
        (
            "no more",
            Timeouts { idle: short, ..long },
            vec![Do::Send(head(EVENT_STREAM)), Do::Send(body), Do::Hold],
            r#"provider "openai": the answer fell silent for 0.04 s"#,
        ),
    ] {
        let server = Server::start(vec![steps]).await;
        let (_, error) = read(&server.url, timeouts).await;
        let error = error.unwrap();
        assert_eq!((error.fate, error.error.message.as_str()), (Fate::Unknown, message), "{name}");
        assert_eq!(server.requests().len(), 1, "{name}");
    }
}

#[tokio::test]
async fn an_answer_that_keeps_sending_and_never_ends_is_ended() {
    // covers G13
    // SSE-13: a comment breaks every silence.
    let short = Duration::from_millis(40);
    let long = Timeouts::default();
    let body = without_end().into_bytes();
    let shown = vec![started(), StreamEvent::Text("Hel".into())];
    for (name, timeouts, kind, steps, shown) in [
        ("comments", Timeouts { stream: short, ..long }, EVENT_STREAM, vec![Do::Send(body), Do::Repeat(":\n")], shown),
        ("events", Timeouts { stream: short, ..long }, EVENT_STREAM, vec![Do::Repeat("data: {}\n\n")], vec![]),
        // Its first byte is in time; what drips is the rest.
        (
            "a document",
            Timeouts { stream: short, ..long },
            "application/json",
            vec![Do::Send(b"{\"id\":".to_vec()), Do::Repeat(" ")],
            vec![],
        ),
    ] {
        let mut all = vec![Do::Send(head(kind))];
        all.extend(steps);
        let server = Server::start(vec![all]).await;
        let (events, error) = read(&server.url, timeouts).await;
        let error = error.unwrap();
        let message = r#"provider "openai": the answer had not ended after 0.04 s"#;
        assert_eq!((events, error.fate, error.error.message.as_str()), (shown, Fate::Unknown, message), "{name}");
        assert_eq!(server.requests().len(), 1, "{name}");
    }
    // An answer that was not to stream, and the answer to a question, have the limit of a whole answer.
    let timeouts = Timeouts { whole_answer: short, ..long };
    let drip = || vec![Do::Send(head("application/json")), Do::Send(b"{".to_vec()), Do::Repeat(" ")];
    let server = Server::start(vec![drip(), drip()]).await;
    let mut config = config(&server.url);
    config.timeouts = timeouts;
    let driver = connect(config);
    let whole = wharf_core::model::Request { stream: false, ..ask("x") };
    let mut errors = vec![collect(driver.open(whole).await.unwrap()).await.unwrap_err()];
    errors.push(driver.retrieve(&"resp_1".into()).await.unwrap_err());
    for error in errors {
        let message = error.error.message;
        assert_eq!(message, r#"provider "openai": the answer had not ended after 0.04 s"#);
        assert_eq!(error.fate, Fate::Unknown);
    }
}

#[tokio::test]
async fn a_document_of_very_many_values_is_not_read() {
    // covers P21
    let text = format!(r#"{{"id":"resp_1","status":"completed","output":[{}0]}}"#, "0,".repeat(1 << 20));
    let steps = || vec![Do::Send(head("application/json")), Do::Send(text.clone().into_bytes())];
    let server = Server::start(vec![steps(), steps()]).await;
    let driver = connect(config(&server.url));
    let streamed = collect(driver.open(ask("x")).await.unwrap()).await.unwrap_err();
    let asked = driver.retrieve(&"resp_1".into()).await.unwrap_err();
    for error in [streamed, asked] {
        let message = r#"provider "openai": the answer has more than 1048576 values in one piece"#;
        assert_eq!((error.fate, error.error.message.as_str()), (Fate::Unknown, message));
    }
}
