//! Standard output and error of a guest: the first bytes are kept and shown, the rest is counted. Writing never fails and
//! never waits, so that a chatty guest runs to its end.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::io::AsyncWrite;
use wasmtime_wasi::async_trait;
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamResult};

use crate::call::{Captured, Observer, OutputKind};
use crate::limits;

#[derive(Clone)]
pub(crate) struct Capture {
    kind: OutputKind,
    observer: Arc<dyn Observer>,
    kept: Arc<Mutex<Kept>>,
}

#[derive(Default)]
struct Kept {
    bytes: Vec<u8>,
    total: u64,
}

impl Capture {
    pub(crate) fn new(kind: OutputKind, observer: Arc<dyn Observer>) -> Self {
        Self { kind, observer, kept: Arc::default() }
    }

    /// What was kept so far. Bytes that are not UTF-8 are shown as replacement characters.
    pub(crate) fn captured(&self) -> Captured {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        Captured {
            text: String::from_utf8_lossy(&kept.bytes).into_owned(),
            truncated: kept.total > kept.bytes.len() as u64,
            total_bytes: kept.total,
        }
    }

    fn push(&self, bytes: &[u8]) {
        let new = {
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            kept.total = kept.total.saturating_add(bytes.len() as u64);
            let room = limits::CAPTURE_BYTES_MAX.saturating_sub(kept.bytes.len());
            let new = bytes.get(..room.min(bytes.len())).unwrap_or_default();
            kept.bytes.extend_from_slice(new);
            new
        };
        if !new.is_empty() {
            self.observer.output(self.kind, new);
        }
    }
}

impl IsTerminal for Capture {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for Capture {
    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        Box::new(self.clone())
    }

    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }
}

#[async_trait]
impl Pollable for Capture {
    async fn ready(&mut self) {}
}

impl OutputStream for Capture {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.push(&bytes);
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(limits::CAPTURE_BYTES_MAX)
    }
}

impl AsyncWrite for Capture {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        self.push(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
