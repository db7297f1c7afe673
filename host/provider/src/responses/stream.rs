//! An answer's body to neutral events: framing, then decoding. Whether it is a stream or one document is seen from its
//! first byte, not from what its type or the request says (P20).

use std::collections::VecDeque;
use std::pin::Pin;

use bytes::Bytes;
use futures::stream::{self, Stream, StreamExt};
use serde_json::Value;
use wharf_core::model::{Outcome, RequestError, StreamEvent};

use super::decode::{Decoder, few_values};
use crate::driver::{EventStream, truncated};
use crate::http::{Body, Http};
use crate::limits;
use crate::sse::{self, SseError, SseEvent, SseLimits};

type Frames = Pin<Box<dyn Stream<Item = Result<SseEvent, SseError<RequestError>>> + Send>>;

/// The events of an answer. It ends with the terminal event or with an error; the connection is dropped then, however
/// long the server holds it (P18).
pub(super) fn events(http: Http, body: Body) -> EventStream {
    let reading = Reading { http, decoder: Decoder::new(), ready: VecDeque::new(), source: Source::Untouched(body) };
    Box::pin(stream::unfold(reading, |mut reading| async move { Some((reading.next().await?, reading)) }).fuse())
}

struct Reading {
    http: Http,
    decoder: Decoder,
    ready: VecDeque<StreamEvent>,
    source: Source,
}

enum Source {
    /// Nothing was read yet.
    Untouched(Body),
    /// It is a stream.
    Frames(Frames),
    /// Nothing more is read.
    Ended,
}

impl Reading {
    async fn next(&mut self) -> Option<Result<StreamEvent, RequestError>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(Ok(self.scrubbed(event)));
            }
            let step = match std::mem::replace(&mut self.source, Source::Ended) {
                Source::Ended => return None,
                Source::Untouched(body) => self.begin(body).await,
                Source::Frames(frames) => self.frame(frames).await,
            };
            if let Err(fault) = step {
                return Some(Err(fault));
            }
        }
    }

    /// Reads up to the first byte that tells what this is.
    async fn begin(&mut self, mut body: Body) -> Result<(), RequestError> {
        let mut start: Vec<u8> = Vec::new();
        loop {
            let text = start.strip_prefix(b"\xEF\xBB\xBF".as_slice()).unwrap_or(&start);
            match text.iter().find(|byte| !byte.is_ascii_whitespace()) {
                Some(b'{') => return self.document(start, body).await,
                // Part of a byte order mark says nothing yet.
                Some(0xEF) if start.len() < 3 => {}
                Some(_) => break,
                None if start.len() > limits::LEADING_BLANK_BYTES_MAX => break,
                None => {}
            }
            match body.next().await {
                Some(piece) => start.extend_from_slice(&piece?),
                None => break,
            }
        }
        let bytes = stream::iter([Ok(Bytes::from(start))]).chain(body);
        self.source = Source::Frames(Box::pin(sse::events(bytes, SseLimits::default())));
        Ok(())
    }

    /// One document in place of a stream: a response, or an error after a 200.
    async fn document(&mut self, start: Vec<u8>, body: Body) -> Result<(), RequestError> {
        let body = Box::pin(stream::iter([Ok(Bytes::from(start))]).chain(body));
        let bytes = self.http.whole(body).await?;
        let text = bytes.strip_prefix(b"\xEF\xBB\xBF".as_slice()).unwrap_or(&bytes);
        let document = few_values(text).map_err(|fault| self.http.unknown(fault.to_string())).and_then(|()| {
            serde_json::from_slice::<Value>(text)
                .map_err(|_| self.http.unknown(format!("the answer is not whole JSON ({} bytes)", bytes.len())))
        })?;
        let events = self.decoder.whole(&document).map_err(|fault| self.http.unknown(fault.to_string()))?;
        self.ready.extend(events);
        Ok(())
    }

    async fn frame(&mut self, mut frames: Frames) -> Result<(), RequestError> {
        let frame = match frames.next().await {
            None => return Err(truncated()),
            Some(Err(SseError::Source(fault))) => return Err(fault),
            Some(Err(fault)) => return Err(self.http.unknown(fault.to_string())),
            Some(Ok(frame)) => frame,
        };
        let events =
            self.decoder.push(&frame.name, &frame.data).map_err(|fault| self.http.unknown(fault.to_string()))?;
        self.ready.extend(events);
        if !self.decoder.ended() {
            self.source = Source::Frames(frames);
        }
        Ok(())
    }

    /// Providers echo keys in what they say of an error, and may say it at any length.
    fn scrubbed(&self, mut event: StreamEvent) -> StreamEvent {
        if let StreamEvent::Completed(completion) = &mut event
            && let Outcome::Failed { code, message } = &mut completion.outcome
        {
            *code = self.http.words(code);
            *message = self.http.words(message);
        }
        event
    }
}
