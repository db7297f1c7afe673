//! Event-stream framing: bytes in any chunks become events, the same ones for every split (P17). It knows nothing of
//! what the data means.
//!
//! The decoding itself is `eventsource-stream`'s. This guard stands before it, because as it is that crate panics on a
//! leading byte order mark, searches an unfinished line again with every chunk (quadratic), and holds a line or an event
//! of any size. So it gets whole lines only, each once, each ended by LF, after one byte order mark has been taken off;
//! comments are dropped, lengths are bounded and bytes that are not UTF-8 are an error.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

use eventsource_stream::{EventStream as Decoder, EventStreamError};
use futures::stream::{Stream, StreamExt};

use crate::limits;

const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SseEvent {
    /// The `event` field, or `message`.
    pub name: String,
    /// The `data` fields, joined with LF.
    pub data: String,
}

/// Why a stream cannot be read on. `E` is the error of the bytes' source.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum SseError<E> {
    /// A line does not end.
    #[error("a line of the event stream is longer than {limit} bytes")]
    LineTooLong {
        /// The bound.
        limit: usize,
    },
    /// An event does not end.
    #[error("an event of the event stream is larger than {limit} bytes")]
    EventTooLarge {
        /// The bound.
        limit: usize,
    },
    /// A line is not UTF-8.
    #[error("the event stream is not UTF-8: line {line}, byte {byte}")]
    NotUtf8 {
        /// Which line, counted from 1.
        line: u64,
        /// The first wrong byte of it, counted from 0.
        byte: usize,
    },
    /// The decoder refused a line. No line is known for which it does.
    #[error("the event stream cannot be parsed")]
    Framing,
    /// The source failed.
    #[error("the event stream broke off: {0}")]
    Source(E),
}

/// Bounds of one stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SseLimits {
    /// Longest line, its ending apart.
    pub line_bytes_max: usize,
    /// Largest event: all its lines but comments, endings apart.
    pub event_bytes_max: usize,
}

impl Default for SseLimits {
    fn default() -> Self {
        Self { line_bytes_max: limits::SSE_LINE_BYTES_MAX, event_bytes_max: limits::SSE_EVENT_BYTES_MAX }
    }
}

/// The events of a byte stream. It ends after the first error. An event that the stream's end cuts off is none.
///
/// ```
/// use futures::{StreamExt, executor::block_on, stream};
/// use wharf_provider::sse::{SseLimits, events};
/// let bytes = stream::iter([Ok::<_, ()>("data: a\r"), Ok("\ndata: b\r\n\r\n")]);
/// let first = block_on(events(bytes, SseLimits::default()).next()).unwrap().unwrap();
/// assert_eq!((first.name.as_str(), first.data.as_str()), ("message", "a\nb"));
/// ```
pub fn events<S, B, E>(bytes: S, limits: SseLimits) -> impl Stream<Item = Result<SseEvent, SseError<E>>>
where
    S: Stream<Item = Result<B, E>> + Unpin,
    B: AsRef<[u8]>,
{
    let lines = LineStream { source: bytes, lines: Lines::new(limits), ready: VecDeque::new(), end: None };
    Decoder::new(lines).map(|event| match event {
        Ok(event) => Ok(SseEvent { name: event.event, data: event.data }),
        Err(EventStreamError::Transport(fault)) => Err(fault),
        Err(EventStreamError::Utf8(_) | EventStreamError::Parser(_)) => Err(SseError::Framing),
    })
}

/// Whole lines of a byte stream.
struct LineStream<S, E> {
    source: S,
    lines: Lines,
    ready: VecDeque<Vec<u8>>,
    /// Set once nothing more is read; an error in it is given once, after the lines before it.
    end: Option<Option<SseError<E>>>,
}

// Nothing in it is ever pinned: the source is `Unpin` wherever it is polled.
impl<S, E> Unpin for LineStream<S, E> {}

impl<S, B, E> Stream for LineStream<S, E>
where
    S: Stream<Item = Result<B, E>> + Unpin,
    B: AsRef<[u8]>,
{
    type Item = Result<Vec<u8>, SseError<E>>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        loop {
            if let Some(line) = this.ready.pop_front() {
                return Poll::Ready(Some(Ok(line)));
            }
            if let Some(end) = &mut this.end {
                return Poll::Ready(end.take().map(Err));
            }
            match this.source.poll_next_unpin(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(None) => this.end = Some(None),
                Poll::Ready(Some(Err(fault))) => this.end = Some(Some(SseError::Source(fault))),
                Poll::Ready(Some(Ok(chunk))) => {
                    if let Err(fault) = this.lines.push(chunk.as_ref(), &mut this.ready) {
                        this.end = Some(Some(fault.into()));
                    }
                }
            }
        }
    }
}

/// Cuts bytes into lines. Every byte is looked at once and copied once.
#[derive(Debug)]
struct Lines {
    limits: SseLimits,
    /// The unfinished line.
    partial: Vec<u8>,
    /// The last byte was a CR: an LF that follows belongs to it.
    after_cr: bool,
    /// Lines finished so far.
    count: u64,
    /// Bytes of the event so far.
    event_bytes: usize,
    /// Bytes looked at and bytes copied so far: what the test of linear time counts.
    #[cfg(test)]
    work: usize,
}

/// An error of the lines themselves.
#[derive(Debug, PartialEq, Eq)]
enum Fault {
    LineTooLong { limit: usize },
    EventTooLarge { limit: usize },
    NotUtf8 { line: u64, byte: usize },
}

impl<E> From<Fault> for SseError<E> {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::LineTooLong { limit } => Self::LineTooLong { limit },
            Fault::EventTooLarge { limit } => Self::EventTooLarge { limit },
            Fault::NotUtf8 { line, byte } => Self::NotUtf8 { line, byte },
        }
    }
}

impl Lines {
    fn new(limits: SseLimits) -> Self {
        Self {
            limits,
            partial: Vec::new(),
            after_cr: false,
            count: 0,
            event_bytes: 0,
            #[cfg(test)]
            work: 0,
        }
    }

    /// Takes a chunk and appends the lines that it finishes, comments apart, each ended by LF. On an error `ready` has the
    /// lines before it.
    fn push(&mut self, mut chunk: &[u8], ready: &mut VecDeque<Vec<u8>>) -> Result<(), Fault> {
        if self.after_cr && !chunk.is_empty() {
            self.after_cr = false;
            chunk = chunk.strip_prefix(b"\n").unwrap_or(chunk);
        }
        while let Some(end) = memchr::memchr2(b'\n', b'\r', chunk) {
            let (line, rest) = chunk.split_at(end);
            self.extend(line)?;
            self.finish(ready)?;
            chunk = match rest {
                [b'\r', b'\n', rest @ ..] => rest,
                [b'\r'] => {
                    self.after_cr = true;
                    &[]
                }
                [_, rest @ ..] => rest,
                [] => rest,
            };
        }
        self.extend(chunk)
    }

    fn extend(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        // Bounded before it is copied: what a chunk has beyond the limit is never kept.
        let length = self.partial.len().saturating_add(bytes.len());
        self.check_length(length, self.partial.first().or(bytes.first()))?;
        #[cfg(test)]
        {
            self.work += 2 * bytes.len();
        }
        self.partial.extend_from_slice(bytes);
        Ok(())
    }

    /// Which bound a line of this length breaks. Both bounds are known when the line begins, so the answer does not depend
    /// on how the line was cut into chunks.
    fn check_length(&self, mut length: usize, first: Option<&u8>) -> Result<(), Fault> {
        if self.count == 0 {
            // The mark is not part of the line; whether there is one is only known later, so it is granted to all.
            length = length.saturating_sub(BYTE_ORDER_MARK.len());
        }
        let SseLimits { line_bytes_max, event_bytes_max } = self.limits;
        let room = event_bytes_max.saturating_sub(self.event_bytes);
        if first != Some(&b':') && room < line_bytes_max && length > room {
            return Err(Fault::EventTooLarge { limit: event_bytes_max });
        }
        if length > line_bytes_max {
            return Err(Fault::LineTooLong { limit: line_bytes_max });
        }
        Ok(())
    }

    fn finish(&mut self, ready: &mut VecDeque<Vec<u8>>) -> Result<(), Fault> {
        let mut line = std::mem::take(&mut self.partial);
        if self.count == 0 {
            // Whatever it begins with, the decoder's own handling of the mark is past after this empty line.
            ready.push_back(b"\n".to_vec());
            if line.starts_with(BYTE_ORDER_MARK) {
                line.drain(..BYTE_ORDER_MARK.len());
            }
        }
        self.count += 1;
        if let Err(fault) = std::str::from_utf8(&line) {
            return Err(Fault::NotUtf8 { line: self.count, byte: fault.valid_up_to() });
        }
        match line.first() {
            None => self.event_bytes = 0,
            Some(b':') => return Ok(()),
            Some(_) => self.event_bytes = self.event_bytes.saturating_add(line.len()),
        }
        line.push(b'\n');
        ready.push_back(line);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
