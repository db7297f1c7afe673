//! Plays the beats of one response to one client, and settles the response and its log entry exactly once.
//! It must never know routes or how a step was chosen.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::book::Begun;
use crate::frame::Framer;
use crate::limits;
use crate::log::End;
use crate::plan::Beat;
use crate::script::{Answer, Cut, CutHow, Ending, Omitted};
use crate::server::Shared;
use crate::violation::ViolationKind;

/// The connection has to be broken off.
#[derive(Debug)]
pub(crate) struct Severed;

impl From<Severed> for io::Error {
    fn from(Severed: Severed) -> Self {
        Self::new(io::ErrorKind::ConnectionAborted, "cut off by the script")
    }
}

/// How the client gets the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// As a stream of events.
    Stream,
    /// As one object at the end.
    Whole,
}

enum Phase {
    /// Beats are left.
    Playing,
    /// All beats are played.
    Ending,
    /// The body ends with an error once what is queued has been sent.
    Breaking,
    /// The body ends.
    Over,
}

pub(crate) struct Player {
    shared: Arc<Shared>,
    order: u64,
    delivery: Delivery,
    id: String,
    beats: VecDeque<Beat>,
    cancelled: watch::Receiver<bool>,
    framer: Framer,
    ending: Ending,
    numbered: bool,
    events: usize,
    ready: VecDeque<Bytes>,
    phase: Phase,
    /// A terminal event was played.
    terminal: bool,
    settled: bool,
}

impl Player {
    pub(crate) fn new(shared: Arc<Shared>, order: u64, delivery: Delivery, answer: &Answer, begun: Begun) -> Self {
        Self {
            shared,
            order,
            delivery,
            id: begun.id,
            beats: begun.beats.into(),
            cancelled: begun.cancelled,
            framer: Framer::new(answer.framing.clone()),
            ending: answer.ending,
            numbered: !answer.omit.contains(&Omitted::SequenceNumbers),
            events: 0,
            ready: VecDeque::new(),
            phase: Phase::Playing,
            terminal: false,
            settled: false,
        }
    }

    /// The next bytes of the body; `None` is its end.
    pub(crate) async fn next(&mut self) -> Option<Result<Bytes, io::Error>> {
        loop {
            if let Some(bytes) = self.ready.pop_front() {
                return Some(Ok(bytes));
            }
            match self.phase {
                Phase::Playing => self.play().await,
                Phase::Ending => match self.ending {
                    Ending::Hang => self.hang().await,
                    Ending::Close | Ending::Cut(_) => self.phase = Phase::Over,
                },
                Phase::Breaking => {
                    // The pause lets the connection flush what was yielded before it sees the error.
                    tokio::task::yield_now().await;
                    self.phase = Phase::Over;
                    return Some(Err(Severed.into()));
                }
                Phase::Over => return None,
            }
        }
    }

    /// Plays everything without sending, for a client that wants the answer whole; only an ended response has one.
    pub(crate) async fn whole(&mut self) -> Result<Value, Severed> {
        loop {
            self.ready.clear();
            match self.phase {
                Phase::Playing => self.play().await,
                Phase::Ending => match (self.terminal, self.ending) {
                    (true, Ending::Close | Ending::Cut(_)) => {
                        return self.shared.book().current(&self.id).ok_or(Severed);
                    }
                    (_, Ending::Hang) => self.hang().await,
                    (false, Ending::Close | Ending::Cut(_)) => return Err(Severed),
                },
                Phase::Breaking | Phase::Over => return Err(Severed),
            }
        }
    }

    /// Silence until the client leaves, a cancel comes, or the bound is reached.
    async fn hang(&mut self) {
        self.pause(limits::HANG_MAX).await;
        let cancelled = *self.cancelled.borrow() && !self.settled;
        self.phase = if cancelled { Phase::Playing } else { Phase::Breaking };
    }

    async fn play(&mut self) {
        if *self.cancelled.borrow() && !self.settled {
            self.send_cancelled();
            return;
        }
        let Some(beat) = self.beats.pop_front() else {
            if !self.settled && self.ending != Ending::Hang {
                // No terminal event was scripted: that is the end that the script gives it. A hanging response
                // is in progress until its client leaves.
                self.shared.book().settle_broken(&self.id);
                self.end(End::Streamed { events: self.events });
            }
            let last = self.framer.last();
            self.queue(last);
            self.phase = Phase::Ending;
            return;
        };
        match beat {
            Beat::Wait(pause) => self.pause(pause).await,
            Beat::Gate(gate) => self.wait_at(gate).await,
            Beat::Comment(text) => {
                let bytes = self.framer.comment(&text);
                self.queue(bytes);
            }
            Beat::Event(event) => {
                if let Some(event) = self.count(event) {
                    self.queue(event);
                }
            }
            Beat::Terminal(event, state) => {
                if let Some(event) = self.count(event) {
                    // Settled first: a client may use the response as soon as it has read the event.
                    self.shared.book().settle(&self.id, state);
                    self.terminal = true;
                    self.end(End::Streamed { events: self.events });
                    self.queue(event);
                }
            }
        }
    }

    /// The event's bytes, numbered and counted, unless the script cuts the stream here.
    fn count(&mut self, mut event: Value) -> Option<Vec<u8>> {
        if let (true, Some(object)) = (self.numbered, event.as_object_mut())
            && !object.contains_key("sequence_number")
        {
            object.insert("sequence_number".to_owned(), json!(self.events));
        }
        let mut bytes = self.framer.event(&event);
        if let Ending::Cut(Cut { after_events, extra_bytes, how }) = self.ending
            && self.events >= after_events
        {
            bytes.truncate(extra_bytes);
            self.queue(bytes);
            if !self.settled {
                self.shared.book().settle_broken(&self.id);
                self.end(End::Cut { events: self.events });
            }
            self.phase = match how {
                CutHow::Abort => Phase::Breaking,
                CutHow::Clean => Phase::Over,
            };
            return None;
        }
        self.events += 1;
        Some(bytes)
    }

    fn send_cancelled(&mut self) {
        self.beats.clear();
        self.ending = Ending::Close;
        self.terminal = true;
        let event = self.shared.book().cancelled_event(&self.id);
        if let Some(bytes) = event.and_then(|event| self.count(event)) {
            self.end(End::Streamed { events: self.events });
            self.queue(bytes);
        }
    }

    async fn pause(&mut self, pause: Duration) {
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = is_true(&mut self.cancelled) => {}
        }
    }

    async fn wait_at(&mut self, gate: String) {
        let waited = self.shared.gate_wait();
        tokio::select! {
            () = self.shared.gates().pass(&gate) => {}
            () = is_true(&mut self.cancelled) => {}
            () = tokio::time::sleep(waited) => {
                let kind = ViolationKind::GateTimedOut { gate, waited_ms: waited.as_millis() };
                self.shared.log().violation(Some(self.order), kind);
                self.shared.book().settle_broken(&self.id);
                self.end(End::Cut { events: self.events });
                self.phase = Phase::Breaking;
            }
        }
    }

    fn queue(&mut self, bytes: Vec<u8>) {
        self.ready.extend(self.framer.cut(bytes));
    }

    fn end(&mut self, end: End) {
        self.settled = true;
        let end = match (self.delivery, end) {
            // The whole body is still to be sent; who sends it says so.
            (Delivery::Whole, End::Streamed { .. }) if self.terminal => return,
            (Delivery::Whole, End::Streamed { .. }) => End::Dropped,
            (Delivery::Whole | Delivery::Stream, end) => end,
        };
        self.shared.log().ended(self.order, end);
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        // Both do nothing if the response was settled and its end is written down already.
        self.shared.book().settle_broken(&self.id);
        let events = self.events;
        let left = match self.delivery {
            Delivery::Stream if self.shared.is_stopped() => End::Stopped { events },
            Delivery::Whole if self.shared.is_stopped() => End::Stopped { events: 0 },
            Delivery::Stream => End::ClientLeft { events },
            Delivery::Whole => End::ClientLeft { events: 0 },
        };
        self.shared.log().ended(self.order, left);
    }
}

/// Waits for a flag; one that can never be set any more is waited for without end.
async fn is_true(flag: &mut watch::Receiver<bool>) {
    if flag.wait_for(|set| *set).await.is_err() {
        std::future::pending::<()>().await;
    }
}
