//! The listener: connections with a bound, each with a switch that closes it at once.
//! It must never know HTTP, scripts or responses.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll};

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use futures::task::AtomicWaker;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::limits;

/// Closes one connection from outside.
#[derive(Debug, Default)]
pub(crate) struct Switch {
    off: AtomicBool,
    waker: AtomicWaker,
}

impl Switch {
    /// Nothing is read or written from now on; the socket closes as soon as its task looks.
    pub(crate) fn close(&self) {
        self.off.store(true, Ordering::Release);
        self.waker.wake();
    }

    fn check(&self, cx: &Context<'_>) -> io::Result<()> {
        self.waker.register(cx.waker());
        if self.off.load(Ordering::Acquire) {
            return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "closed by the script"));
        }
        Ok(())
    }
}

/// All open connections, to be closed together.
#[derive(Debug, Default)]
pub(crate) struct Switchboard {
    stopped: AtomicBool,
    switches: Mutex<Vec<Weak<Switch>>>,
}

impl Switchboard {
    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// Closes every connection, and every later one as it comes.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        let switches = std::mem::take(&mut *self.lock());
        for switch in switches.iter().filter_map(Weak::upgrade) {
            switch.close();
        }
    }

    fn add(&self, switch: &Arc<Switch>) {
        let mut switches = self.lock();
        switches.retain(|switch| switch.strong_count() > 0);
        switches.push(Arc::downgrade(switch));
        drop(switches);
        // A stop between the check and the push would miss this one.
        if self.is_stopped() {
            switch.close();
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Weak<Switch>>> {
        self.switches.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The connection that a request came on.
#[derive(Clone, Debug)]
pub(crate) struct Connection(pub(crate) Arc<Switch>);

impl Connected<IncomingStream<'_, BoundedListener>> for Connection {
    fn connect_info(stream: IncomingStream<'_, BoundedListener>) -> Self {
        Self(stream.io().switch.clone())
    }
}

/// Accepts at most [`limits::CONNECTIONS_MAX`] connections at once; others wait in the system's queue.
pub(crate) struct BoundedListener {
    listener: TcpListener,
    permits: Arc<Semaphore>,
    board: Arc<Switchboard>,
}

impl BoundedListener {
    pub(crate) fn new(listener: TcpListener, board: Arc<Switchboard>) -> Self {
        let permits = Arc::new(Semaphore::new(limits::CONNECTIONS_MAX));
        Self { listener, permits, board }
    }
}

impl Listener for BoundedListener {
    type Io = Socket;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Socket, SocketAddr) {
        let Ok(permit) = self.permits.clone().acquire_owned().await else {
            // Nobody closes the semaphore.
            return std::future::pending().await;
        };
        loop {
            match self.listener.accept().await {
                Ok((stream, peer)) => {
                    if let Err(error) = stream.set_nodelay(true) {
                        tracing::debug!(%error, "small writes may be delayed on this connection");
                    }
                    let switch = Arc::new(Switch::default());
                    self.board.add(&switch);
                    return (Socket { stream, switch, _permit: permit }, peer);
                }
                Err(error) => {
                    tracing::debug!(%error, "accept failed");
                    tokio::time::sleep(limits::ACCEPT_RETRY_PAUSE).await;
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection with its switch and its place among the allowed ones.
pub(crate) struct Socket {
    stream: TcpStream,
    switch: Arc<Switch>,
    _permit: OwnedSemaphorePermit,
}

impl AsyncRead for Socket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.switch.check(cx)?;
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.switch.check(cx)?;
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.switch.check(cx)?;
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
