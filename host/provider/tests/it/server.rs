//! A server that does on the socket exactly what a test says, for what an HTTP mock cannot do: break, stall, dribble.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What to do with one request, after it was read.
#[derive(Debug, Clone)]
pub(crate) enum Do {
    /// Sends these bytes.
    Send(Vec<u8>),
    /// Sends these bytes one by one.
    Dribble(Vec<u8>),
    /// Sends these bytes again and again until the client goes.
    Repeat(&'static str),
    /// Holds the socket open until the client goes.
    Hold,
    /// Waits for the next request on the same socket; the next script is for it.
    Next,
}

/// A running server.
pub(crate) struct Server {
    /// Its address, for a base URL.
    pub(crate) url: String,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Server {
    /// Serves the n-th request with the n-th script, closing the socket at a script's end. Further requests are read and
    /// dropped.
    pub(crate) async fn start(scripts: Vec<Vec<Do>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&requests);
        tokio::spawn(async move {
            let mut scripts = scripts.into_iter();
            while let Ok((socket, _)) = listener.accept().await {
                // One at a time, so that the order of scripts is the order of requests; a held socket moves aside.
                serve(socket, &mut scripts, &seen).await;
            }
        });
        Self { url, requests }
    }

    /// All requests so far, head and body.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

async fn serve(mut socket: TcpStream, scripts: &mut impl Iterator<Item = Vec<Do>>, seen: &Mutex<Vec<String>>) {
    while let Some(request) = read_request(&mut socket).await {
        seen.lock().unwrap().push(request);
        let mut goes_on = false;
        for step in scripts.next().unwrap_or_default() {
            match step {
                Do::Send(bytes) => socket.write_all(&bytes).await.unwrap_or(()),
                Do::Dribble(bytes) => {
                    for byte in bytes {
                        socket.write_all(&[byte]).await.unwrap_or(());
                        socket.flush().await.unwrap_or(());
                        tokio::task::yield_now().await;
                    }
                }
                Do::Repeat(text) => {
                    tokio::spawn(async move {
                        while socket.write_all(text.as_bytes()).await.is_ok() {
                            tokio::task::yield_now().await;
                        }
                    });
                    return;
                }
                Do::Hold => {
                    tokio::spawn(async move {
                        let mut rest = Vec::new();
                        socket.read_to_end(&mut rest).await.unwrap_or(0);
                    });
                    return;
                }
                Do::Next => goes_on = true,
            }
        }
        if !goes_on {
            return;
        }
    }
}

async fn read_request(socket: &mut TcpStream) -> Option<String> {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes);
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head
                .lines()
                .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ").map(str::to_owned))
                .map_or(0, |length| length.parse().unwrap());
            if body.len() >= length {
                return Some(text.into_owned());
            }
        }
        let mut piece = [0; 4096];
        match socket.read(&mut piece).await {
            Ok(0) | Err(_) => return None,
            Ok(n) => bytes.extend_from_slice(&piece[..n]),
        }
    }
}

/// The head of a 200 whose body ends with the socket.
pub(crate) fn head(kind: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\nconnection: close\r\n\r\n").into_bytes()
}

/// The head of a 200 in chunks.
pub(crate) fn chunked() -> Vec<u8> {
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n".to_vec()
}

/// One chunk.
pub(crate) fn chunk(text: &str) -> Vec<u8> {
    format!("{:x}\r\n{text}\r\n", text.len()).into_bytes()
}
