//! What a person's Ctrl-C and a supervisor's SIGTERM mean for the turn that runs.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::signal::unix::{SignalKind, signal};
use wharf::coordinator::Handle;
use wharf::limits::SHUTDOWN_GRACE;

use crate::exit::Exit;
use crate::screen;

/// How a running turn is told. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Signals(Arc<Mutex<State>>);

#[derive(Default)]
enum State {
    /// Nothing is open that would have to be put in order.
    #[default]
    Idle,
    /// The session's lease is being taken; what is asked for meanwhile is done as soon as it is held.
    Opening,
    Working(Handle),
    /// Asked once; another time ends the process.
    Asked(Ask),
}

#[derive(Clone, Copy)]
enum Ask {
    Cancel,
    Stop,
}

impl Ask {
    fn tell(self, handle: &Handle) {
        match self {
            Self::Cancel => handle.cancel(),
            Self::Stop => handle.stop(),
        }
    }
}

impl Signals {
    /// Listens from here on.
    ///
    /// # Errors
    /// The system does not let us listen.
    pub(crate) fn listen() -> std::io::Result<Self> {
        let signals = Self::default();
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let heard = signals.clone();
        // Ends with the process: whoever listens has nothing to put in order at the end.
        tokio::spawn(async move {
            loop {
                let ask = tokio::select! {
                    Some(()) = interrupt.recv() => Ask::Cancel,
                    Some(()) = terminate.recv() => Ask::Stop,
                    else => return,
                };
                heard.hear(ask);
            }
        });
        Ok(signals)
    }

    /// A session is about to be opened.
    pub(crate) fn opening(&self) {
        *self.state() = State::Opening;
    }

    /// The turn runs.
    pub(crate) fn working(&self, handle: Handle) {
        let mut state = self.state();
        match *state {
            State::Asked(ask) => ask.tell(&handle),
            State::Idle | State::Opening | State::Working(_) => *state = State::Working(handle),
        }
    }

    /// The turn is over. True if it was told to stop.
    pub(crate) fn over(&self) -> bool {
        matches!(std::mem::take(&mut *self.state()), State::Asked(Ask::Stop))
    }

    fn hear(&self, ask: Ask) {
        let mut state = self.state();
        match &*state {
            State::Idle => std::process::exit(Exit::Cancelled.code().into()),
            State::Asked(_) => {
                screen::say("ended at once; the session is free again within a minute");
                std::process::exit(Exit::Cancelled.code().into());
            }
            State::Opening => {}
            State::Working(handle) => ask.tell(handle),
        }
        match ask {
            Ask::Cancel => screen::say("cancelling the turn; once more to end at once"),
            Ask::Stop => screen::say(&format!(
                "stopping: what runs has {} s to come to its end; once more to end at once",
                SHUTDOWN_GRACE.as_secs()
            )),
        }
        *state = State::Asked(ask);
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner) // it is replaced whole
    }
}
