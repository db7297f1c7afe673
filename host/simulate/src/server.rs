//! The server and the handle that tests and commands hold. It must never know the JSON of a protocol.

use std::fs::OpenOptions;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::book::Book;
use crate::conn::{BoundedListener, Connection, Switchboard};
use crate::gates::Gates;
use crate::limits;
use crate::log::{End, RequestEntry, RequestLog};
use crate::routes;
use crate::script::Script;
use crate::violation::{Violation, ViolationKind};

/// How a server is run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The address to listen on; port 0 takes a free one.
    pub bind: SocketAddr,
    /// Who may reach it.
    pub reach: Reach,
    /// A file that gets the log as lines of JSON while it grows. What is in it stays.
    pub log_file: Option<PathBuf>,
    /// How long a stream waits at a gate before it is cut off.
    pub gate_wait: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            bind: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            reach: Reach::LoopbackOnly,
            log_file: None,
            gate_wait: limits::GATE_WAIT_MAX,
        }
    }
}

/// Who may reach a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reach {
    /// This machine: another address is refused at the start.
    #[default]
    LoopbackOnly,
    /// Whoever reaches the address.
    AnyAddress,
}

/// A server that cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The address is not a loopback address.
    #[error(
        "may not listen on {address}: it is not a loopback address\nhint: use 127.0.0.1, or ask for any address explicitly"
    )]
    NotLoopback {
        /// The address.
        address: SocketAddr,
    },
    /// The address cannot be had.
    #[error("cannot listen on {address}\nhint: choose another port, or 0 for one that is free")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// The log file cannot be opened.
    #[error("cannot open the request log {}", path.display())]
    LogFile {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

/// What a test waited for did not come within [`limits::HANDLE_WAIT_MAX`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} did not come within {} s", waited.as_secs())]
pub struct WaitError {
    /// What was waited for.
    pub what: String,
    /// How long.
    pub waited: Duration,
}

/// What all requests share.
pub(crate) struct Shared {
    script: Script,
    book: Mutex<Book>,
    log: RequestLog,
    gates: Gates,
    board: Arc<Switchboard>,
    gate_wait: Duration,
}

impl Shared {
    pub(crate) fn script(&self) -> &Script {
        &self.script
    }

    pub(crate) fn book(&self) -> MutexGuard<'_, Book> {
        // No change of the book can stop half way, so a panic elsewhere leaves it whole.
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn log(&self) -> &RequestLog {
        &self.log
    }

    pub(crate) fn gates(&self) -> &Gates {
        &self.gates
    }

    pub(crate) fn gate_wait(&self) -> Duration {
        self.gate_wait
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.board.is_stopped()
    }

    pub(crate) fn release(&self, gate: &str) {
        if self.script.has_gate(gate) {
            self.gates.release(gate);
        } else {
            // Not kept: names come from outside too, and the script bounds how many there can be.
            self.log.violation(None, ViolationKind::UnknownGate { gate: gate.to_owned() });
        }
    }
}

/// A running server. Dropping it stops it and breaks its connections.
///
/// ```
/// use wharf_simulate::{Answer, Options, Script, Server};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let script = Script::new("hello").step(Answer::new().text("Hello."));
/// let server = Server::start(script, Options::default()).await?;
/// assert!(server.base_url().starts_with("http://127.0.0.1:"));
/// assert!(server.requests().is_empty());
/// server.shutdown().await;
/// # Ok(())
/// # }
/// ```
pub struct Server {
    shared: Arc<Shared>,
    address: SocketAddr,
    stop: watch::Sender<bool>,
    task: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts to listen; the address is known when this returns.
    ///
    /// # Errors
    /// The address is not a loopback address and [`Reach::AnyAddress`] was not asked for, it cannot be had, or the log file
    /// cannot be opened.
    pub async fn start(script: Script, options: Options) -> Result<Self, StartError> {
        let address = options.bind;
        if options.reach == Reach::LoopbackOnly && !address.ip().is_loopback() {
            return Err(StartError::NotLoopback { address });
        }
        let file = match options.log_file {
            Some(path) => Some(
                OpenOptions::new()
                    .append(true)
                    .create(true)
                    .open(&path)
                    .map_err(|source| StartError::LogFile { path, source })?,
            ),
            None => None,
        };
        let bind = |source| StartError::Bind { address, source };
        let listener = TcpListener::bind(address).await.map_err(bind)?;
        let address = listener.local_addr().map_err(bind)?;
        let board = Arc::new(Switchboard::default());
        let shared = Arc::new(Shared {
            book: Mutex::new(Book::new(&script)),
            script,
            log: RequestLog::new(file),
            gates: Gates::new(),
            board: board.clone(),
            gate_wait: options.gate_wait,
        });
        let service = routes::router(shared.clone()).into_make_service_with_connect_info::<Connection>();
        let (stop, mut stopped) = watch::channel(false);
        let serve = axum::serve(BoundedListener::new(listener, board), service).with_graceful_shutdown(async move {
            // An error means that the handle is gone, which stops the server as well.
            let _ = stopped.wait_for(|stop| *stop).await;
        });
        let task = tokio::spawn(async move {
            if let Err(error) = serve.await {
                tracing::warn!(%error, "the simulated provider stopped");
            }
        });
        Ok(Self { shared, address, stop, task: Some(task) })
    }

    /// The actual address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What a provider's `base_url` has to be, without a trailing slash.
    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Every request so far, in order.
    pub fn requests(&self) -> Vec<RequestEntry> {
        self.shared.log().entries()
    }

    /// Everything so far that should not have happened.
    pub fn violations(&self) -> Vec<Violation> {
        self.shared.log().violations()
    }

    /// Opens a gate for good, whether or not a stream waits at it. A name that no step has is recorded as a violation.
    pub fn release(&self, gate: &str) {
        self.shared.release(gate);
    }

    /// Waits until a stream has come to the gate, so everything before it has been sent.
    ///
    /// # Errors
    /// None comes in time.
    pub async fn wait_for_gate(&self, gate: &str) -> Result<(), WaitError> {
        bounded(format!("a stream at the gate {gate:?}"), self.shared.gates().reached(gate)).await
    }

    /// Waits for the n-th request of any kind, counted from 1.
    ///
    /// # Errors
    /// It does not come in time.
    pub async fn wait_for_request(&self, n: u64) -> Result<RequestEntry, WaitError> {
        let found = self.shared.log().wait_for(|entries| nth(entries, n).cloned());
        bounded(format!("request {n}"), found).await
    }

    /// Waits until the n-th request of any kind, counted from 1, has ended.
    ///
    /// # Errors
    /// It does not end in time.
    pub async fn wait_for_end(&self, n: u64) -> Result<RequestEntry, WaitError> {
        let found =
            self.shared.log().wait_for(|entries| nth(entries, n).filter(|entry| entry.end != End::Open).cloned());
        bounded(format!("the end of request {n}"), found).await
    }

    /// Stops the server: every connection is closed and every task has ended when this returns.
    pub async fn shutdown(mut self) {
        self.stop_now();
        if let Some(mut task) = self.task.take()
            && tokio::time::timeout(limits::SHUTDOWN_WAIT_MAX, &mut task).await.is_err()
        {
            tracing::warn!("connections of the simulated provider did not close in time");
            task.abort();
        }
    }

    fn stop_now(&self) {
        self.shared.board.stop();
        self.stop.send_replace(true);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop_now();
        if let Some(task) = self.task.take() {
            task.abort();
        }
    }
}

fn nth(entries: &[RequestEntry], n: u64) -> Option<&RequestEntry> {
    entries.get(usize::try_from(n.checked_sub(1)?).ok()?)
}

async fn bounded<T>(what: String, wait: impl Future<Output = T>) -> Result<T, WaitError> {
    let waited = limits::HANDLE_WAIT_MAX;
    tokio::time::timeout(waited, wait).await.map_err(|_| WaitError { what, waited })
}
