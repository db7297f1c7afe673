//! Something that waits until a test lets it go on.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// Closed until it is opened; then open for good. Clones are the same gate.
#[derive(Debug, Clone, Default)]
pub struct Gate(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    open: bool,
    reached: bool,
    waiting: Vec<Waker>,
}

impl Gate {
    /// A closed one.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets everybody through, now and later.
    pub fn open(&self) {
        let waiting = {
            let mut state = self.lock();
            state.open = true;
            std::mem::take(&mut state.waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
    }

    /// True once somebody came to it.
    pub fn is_reached(&self) -> bool {
        self.lock().reached
    }

    /// Ready once it is open.
    pub fn passed(&self) -> impl Future<Output = ()> + Send + 'static {
        Passing(self.clone())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Passing(Gate);

impl Future for Passing {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.0.lock();
        state.reached = true;
        if state.open {
            return Poll::Ready(());
        }
        state.waiting.retain(|waker| !waker.will_wake(context.waker()));
        state.waiting.push(context.waker().clone());
        Poll::Pending
    }
}
