//! The sandbox itself: an engine, threads of its own, compiled code. It decides nothing about a capability.

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::Semaphore;
use tokio::task::{JoinError, JoinHandle};
use wasmtime::Engine;
use wasmtime::component::Linker;
use wharf_core::grants::{Grants, Limits};

use crate::cache::Cache;
use crate::capability::Capability;
use crate::compile::{Compiler, OnCompile};
use crate::descriptors::Descriptors;
use crate::engine::Ticker;
use crate::error::{LoadError, SandboxError};
use crate::limits;
use crate::roots::Roots;
use crate::state::StoreState;

/// How a sandbox is made. The default has no cache on disk.
#[derive(Clone, Default)]
pub struct SandboxOptions {
    /// Folder for compiled code, made if it is not there. Without one every start compiles. Code in it is run as it is, so
    /// it must not lie in a folder that comes from elsewhere, such as a project's: a folder of the user's own is right. It is
    /// not used if it belongs to another user or is open to others.
    pub cache: Option<PathBuf>,
    /// Component threads; as many as there are cores if not said.
    pub threads: Option<usize>,
    /// Told of compilations.
    pub on_compile: Option<OnCompile>,
}

/// Runs components. Cheap to clone; all clones are one sandbox. Its threads end when the last clone and the last
/// capability are gone, or with [`Sandbox::shutdown`].
#[derive(Clone)]
pub struct Sandbox(pub(crate) Arc<Inner>);

/// What of the sandbox's set-up is worth knowing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxStatus {
    /// Component threads.
    pub threads: usize,
    /// Why instances are not taken from a pool, if they are not.
    pub without_pool: Option<String>,
    /// The folder of compiled code that is in use.
    pub cache: Option<PathBuf>,
    /// Why the folder that was asked for is not used, if it is not.
    pub without_cache: Option<String>,
}

/// One component to load.
#[derive(Debug, Clone)]
pub struct LoadRequest {
    /// The capability's name in the harness; stands in errors.
    pub name: String,
    /// The component.
    pub bytes: Bytes,
    /// What it may reach.
    pub grants: Grants,
    /// How much it may use.
    pub limits: Limits,
    /// Where file grants are resolved and what they must not reach.
    pub roots: Roots,
}

pub(crate) struct Inner {
    pub(crate) engine: Engine,
    pub(crate) linker: Linker<StoreState>,
    pub(crate) compiler: Compiler,
    pub(crate) ticker: Ticker,
    /// One for each call that holds an instance.
    pub(crate) calls: Arc<Semaphore>,
    /// Files that all calls have open.
    pub(crate) descriptors: Arc<Descriptors>,
    /// Folders that all calls list.
    pub(crate) listings: Arc<Descriptors>,
    handle: Handle,
    runtime: Mutex<Option<Runtime>>,
    status: SandboxStatus,
}

impl Sandbox {
    /// Starts the engine and its threads.
    pub fn new(options: SandboxOptions) -> Result<Self, SandboxError> {
        let (engine, without_pool) = crate::engine::engine()?;
        let (cache, without_cache) = match options.cache.as_deref().map(Cache::open) {
            None => (None, None),
            Some(Ok(cache)) => (Some(cache), None),
            Some(Err(error)) => {
                tracing::warn!(%error, "the compile cache is not used: every start compiles");
                (None, Some(error.to_string()))
            }
        };
        let threads = options
            .threads
            .or_else(|| std::thread::available_parallelism().ok().map(Into::into))
            .unwrap_or(limits::COMPONENT_THREADS_MIN)
            .clamp(limits::COMPONENT_THREADS_MIN, limits::COMPONENT_THREADS_MAX);
        let runtime = Builder::new_multi_thread()
            .worker_threads(threads)
            .max_blocking_threads(limits::BLOCKING_THREADS_MAX)
            .thread_name("wharf-component")
            // Guests that spin yield once a tick; timers and new calls are looked at each time, not every 61 yields.
            .event_interval(1)
            .global_queue_interval(1)
            .enable_all()
            .build()
            .map_err(|source| SandboxError::Threads { source })?;
        let status = SandboxStatus {
            threads,
            without_pool,
            cache: cache.as_ref().map(|cache| cache.path().to_owned()),
            without_cache,
        };
        Ok(Self(Arc::new(Inner {
            linker: crate::link::linker(&engine)?,
            compiler: Compiler::new(&engine, cache, options.on_compile),
            ticker: Ticker::start(&engine)?,
            calls: Arc::new(Semaphore::new(limits::CALLS_AT_ONCE_MAX)),
            descriptors: Descriptors::new(limits::DESCRIPTORS_MAX),
            listings: Descriptors::new(limits::LISTINGS_MAX),
            handle: runtime.handle().clone(),
            runtime: Mutex::new(Some(runtime)),
            status,
            engine,
        })))
    }

    /// What of its set-up is worth knowing.
    pub fn status(&self) -> &SandboxStatus {
        &self.0.status
    }

    /// Makes a component ready to be called: reads it, opens its folders, compiles it if no other load did, links it.
    /// Runs on the sandbox's threads; the future may be awaited on any executor.
    pub async fn load(&self, request: LoadRequest) -> Result<Capability, LoadError> {
        let (sandbox, name) = (self.clone(), request.name.clone());
        self.0
            .run(Capability::load(sandbox, request))
            .await
            .unwrap_or_else(|stopped| Err(LoadError::Unavailable { name, reason: stopped.to_string() }))
    }

    /// Ends all calls (their outcome is `Cancelled`) and lets the threads go, without waiting for them.
    pub fn shutdown(&self) {
        self.0.stop();
    }
}

/// Why a task on the sandbox's threads has no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Stopped {
    #[error("the sandbox was shut down")]
    Shutdown,
    /// A fault of ours or of the engine; it costs this task alone (LIM-5).
    #[error("the host failed while it served the component")]
    Panic,
}

impl Inner {
    /// Runs a future on the component threads. Dropping the returned future ends it.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Stopped> {
        AbortOnDrop(self.handle.spawn(work)).await.map_err(|error| match error.try_into_panic() {
            Ok(_) => Stopped::Panic,
            Err(_) => Stopped::Shutdown,
        })
    }

    fn stop(&self) {
        let runtime = self.runtime.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(runtime) = runtime {
            // Never waits: this may run on an executor, even on one of the threads that it ends.
            runtime.shutdown_background();
        }
        self.ticker.wake();
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.stop();
    }
}

struct AbortOnDrop<T>(JoinHandle<T>);

impl<T> Future for AbortOnDrop<T> {
    type Output = Result<T, JoinError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context)
    }
}

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
