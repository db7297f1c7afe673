//! A bare HTTP client that shows bytes, chunk borders and how a body ended, which real clients hide.

use std::net::SocketAddr;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use wharf_simulate::{Options, Script, Server};

/// How an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyEnd {
    /// As HTTP says.
    Proper,
    /// The connection was closed inside the body.
    Broken,
}

/// An answer, as far as it came.
#[derive(Clone, Debug)]
pub(crate) struct Got {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// The sizes of the chunks that the body came in.
    pub(crate) chunks: Vec<usize>,
    pub(crate) end: BodyEnd,
}

impl Got {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.clone()).expect("bodies in these tests are UTF-8")
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("this body is JSON")
    }

    /// The data of the events, for the usual framing.
    pub(crate) fn events(&self) -> Vec<Value> {
        events(&self.text())
    }

    pub(crate) fn types(&self) -> Vec<String> {
        self.events().iter().map(type_of).collect()
    }

    /// Status, code and message of an error.
    pub(crate) fn error(&self) -> (u16, Value, String) {
        let body = self.json();
        let error = &body["error"];
        (self.status, error["code"].clone(), error["message"].as_str().unwrap_or_default().to_owned())
    }
}

pub(crate) fn events(text: &str) -> Vec<Value> {
    let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
    data.filter_map(|data| serde_json::from_str(data).ok()).collect()
}

pub(crate) fn type_of(event: &Value) -> String {
    event["type"].as_str().unwrap_or_default().to_owned()
}

/// A started request whose answer is read as it comes.
pub(crate) struct Open {
    socket: TcpStream,
    bytes: Vec<u8>,
}

impl Open {
    pub(crate) async fn send(address: SocketAddr, method: &str, path: &str, headers: &str, body: &str) -> Self {
        let mut socket = TcpStream::connect(address).await.expect("the server listens");
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n{headers}content-length: {length}\r\n\r\n{body}"
        );
        socket.write_all(request.as_bytes()).await.expect("the server reads");
        Self { socket, bytes: Vec::new() }
    }

    /// Reads what is there. The bound turns a server that never ends into a failed test.
    async fn read(&mut self) -> std::io::Result<usize> {
        let read = self.socket.read_buf(&mut self.bytes);
        let bound = wharf_simulate::limits::HANDLE_WAIT_MAX;
        tokio::time::timeout(bound, read).await.expect("the server sends or closes")
    }

    /// Reads until this text has come.
    pub(crate) async fn read_until(&mut self, text: &str) {
        while !String::from_utf8_lossy(&self.bytes).contains(text) {
            let read = self.read().await.expect("the stream is open");
            assert_ne!(read, 0, "the stream ended before {text:?}");
        }
    }

    /// Reads to the end of the connection; `None` if not one byte came.
    pub(crate) async fn finish(mut self) -> Option<Got> {
        loop {
            match self.read().await {
                Ok(0) | Err(_) => return parse(&self.bytes),
                Ok(_) => {}
            }
        }
    }
}

fn parse(bytes: &[u8]) -> Option<Got> {
    if bytes.is_empty() {
        return None;
    }
    let split = bytes.windows(4).position(|window| window == b"\r\n\r\n").expect("a head");
    let head = String::from_utf8(bytes[..split].to_vec()).expect("an ASCII head");
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).expect("a status");
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let rest = &bytes[split + 4..];
    let mut got = Got {
        status: status.parse().expect("a number"),
        headers,
        body: Vec::new(),
        chunks: Vec::new(),
        end: BodyEnd::Broken,
    };
    if got.header("transfer-encoding") == Some("chunked") {
        read_chunks(rest, &mut got);
    } else {
        let length = got.header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
        got.end = if rest.len() == length { BodyEnd::Proper } else { BodyEnd::Broken };
        got.body = rest.to_vec();
    }
    Some(got)
}

fn read_chunks(mut rest: &[u8], got: &mut Got) {
    while let Some(line) = rest.windows(2).position(|window| window == b"\r\n") {
        let size = std::str::from_utf8(&rest[..line]).expect("ASCII");
        let size = usize::from_str_radix(size, 16).expect("a size");
        rest = &rest[line + 2..];
        if size == 0 {
            got.end = BodyEnd::Proper;
            return;
        }
        let available = size.min(rest.len());
        got.body.extend_from_slice(&rest[..available]);
        got.chunks.push(available);
        rest = rest.get(size + 2..).unwrap_or_default();
    }
}

pub(crate) async fn start(script: Script) -> Server {
    Server::start(script, Options::default()).await.expect("a free port")
}

pub(crate) async fn open(server: &Server, body: &Value) -> Open {
    let headers = "content-type: application/json\r\nauthorization: Bearer sk-test\r\n";
    Open::send(server.address(), "POST", "/v1/responses", headers, &body.to_string()).await
}

pub(crate) async fn post(server: &Server, body: &Value) -> Got {
    open(server, body).await.finish().await.expect("an answer")
}

pub(crate) async fn get(server: &Server, path: &str) -> Got {
    Open::send(server.address(), "GET", path, "", "").await.finish().await.expect("an answer")
}

pub(crate) async fn post_path(server: &Server, path: &str) -> Got {
    Open::send(server.address(), "POST", path, "", "").await.finish().await.expect("an answer")
}

/// A streaming request with this input.
pub(crate) fn ask(input: Value) -> Value {
    json!({ "model": "m", "stream": true, "input": input })
}

/// A streaming request with this input that continues a response.
pub(crate) fn go_on(previous: &str, input: Value) -> Value {
    json!({ "model": "m", "stream": true, "previous_response_id": previous, "input": input })
}

pub(crate) fn output(call_id: &str) -> Value {
    json!({ "type": "function_call_output", "call_id": call_id, "output": "done" })
}
