//! Time, fresh ids and tasks, behind one trait: the coordinator knows no runtime and no clock of its own, so a test drives
//! it with virtual time in one thread.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures::future::BoxFuture;

/// What the coordinator needs of its surroundings.
pub trait Seams: Send + Sync + 'static {
    /// Starts a task. It is stopped when the answer is dropped.
    fn spawn(&self, name: &'static str, task: BoxFuture<'static, ()>) -> Task;

    /// Time since any fixed moment, never going back. Liveness of a lease is judged by it (L63).
    fn now(&self) -> Duration;

    /// Milliseconds since 1970, for people; decides nothing.
    fn wall_ms(&self) -> u64;

    /// Ready after this time.
    fn sleep(&self, time: Duration) -> BoxFuture<'static, ()>;

    /// A text that is unique over all time and sorts by time.
    fn fresh(&self) -> String;
}

/// A running task; dropping it stops it.
pub struct Task(Option<Box<dyn FnOnce() + Send + Sync>>);

impl Task {
    /// A task that this stops.
    pub fn new(stop: impl FnOnce() + Send + Sync + 'static) -> Self {
        Self(Some(Box::new(stop)))
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        if let Some(stop) = self.0.take() {
            stop();
        }
    }
}

/// The caller's tokio runtime and the system's clocks.
pub struct TokioSeams {
    handle: tokio::runtime::Handle,
    start: Instant,
}

impl TokioSeams {
    /// On the runtime that calls this.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn current() -> Self {
        Self { handle: tokio::runtime::Handle::current(), start: Instant::now() }
    }
}

impl Seams for TokioSeams {
    fn spawn(&self, name: &'static str, task: BoxFuture<'static, ()>) -> Task {
        tracing::trace!(name, "task started");
        let task = self.handle.spawn(task).abort_handle();
        Task::new(move || task.abort())
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn wall_ms(&self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(); // a clock before 1970 reads as 1970
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }

    fn sleep(&self, time: Duration) -> BoxFuture<'static, ()> {
        let _inside = self.handle.enter();
        Box::pin(tokio::time::sleep(time))
    }

    fn fresh(&self) -> String {
        uuid::Uuid::now_v7().to_string()
    }
}
