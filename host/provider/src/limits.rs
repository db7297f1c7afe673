//! Bounds of this crate, each with the reason for it. A provider is reached over the network and may be anybody's: what
//! it sends is bounded before it is kept.

use std::time::Duration;

/// Longest line of an event stream, in bytes. A whole 64 MiB payload (a generated image, say) fits with its field name;
/// a line that never ends does not fill the memory.
pub const SSE_LINE_BYTES_MAX: usize = 72 << 20;

/// Largest event of an event stream, in bytes of all its lines: the same for a payload that comes in many short lines.
pub const SSE_EVENT_BYTES_MAX: usize = 72 << 20;

/// Largest answer that comes as one JSON document instead of a stream, in bytes.
pub const ANSWER_BYTES_MAX: usize = 72 << 20;

/// How much of an error answer is read, in bytes. Error bodies are short; a hostile one is cut.
pub const ERROR_BODY_BYTES_MAX: usize = 64 << 10;

/// How much of a provider's own words goes into an error message, in bytes, be it an answer's or a stream's.
pub const ERROR_TEXT_BYTES_MAX: usize = 1 << 10;

/// How many blank bytes may stand before the first byte that tells a stream from a JSON document.
pub const LEADING_BLANK_BYTES_MAX: usize = 4 << 10;

/// Most output items of one response. Real ones have tens; each costs bookkeeping, and each finished call a list of all
/// calls before it (P4).
pub const ITEMS_MAX: usize = 1024;

/// Most input of all calls of one response together, in bytes: sixteen of the longest. Each finished call is given with all
/// before it (P4), so that the bytes that are copied grow with the square of this.
pub const CALLS_BYTES_MAX: usize = 16 << 20;

/// Most finished calls of one response with one id that differ in what they ask for. The host refuses all but the first
/// (L49); each is compared with those before it.
pub const REPEATS_MAX: usize = 16;

/// Most memory that one response may keep until its end, in bytes: items, texts, inputs and names, over all its frames. The
/// bounds of one line and one text do not add up to it: a thousand items of the largest size would be 72 GiB. A text of the
/// largest size is kept twice, by its parts and by its item, and a generated image beside it still fits.
pub const RESPONSE_BYTES_MAX: usize = 256 << 20;

/// What each value of a kept item costs beside its text, in bytes, and each item and each part of a text as well.
pub const VALUE_BYTES: usize = 64;

/// Most JSON values in one frame or one whole answer. `[0,0,…]` takes two bytes on the wire and thirty in memory, so the
/// bound on bytes alone would let 72 MiB become two gigabytes. Commas and brackets are counted, those within texts too:
/// a book has thousands.
pub const FRAME_VALUES_MAX: usize = 1 << 20;

/// Most text, refusal and reasoning summary of one response together, in bytes.
pub const TEXT_BYTES_MAX: usize = 64 << 20;

/// Time to resolve, connect and shake hands.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Time from a sent request to the first byte of a streamed answer.
pub const FIRST_BYTE_TIMEOUT: Duration = Duration::from_secs(120);

/// Silence that ends a stream. Any byte counts, comments too; models think for minutes without a word.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(300);

/// Time from an answer's head to its end, if it streams. Silence does not end a stream that sends a comment each minute, and
/// a turn would hold its session for ever. The longest answers that models are known to give take a third of it.
pub const STREAM_TIMEOUT: Duration = Duration::from_secs(60 * 60);

/// Time to the first byte of an answer that does not stream: the model has finished by then. And
/// from there to its end: a document that takes longer is dripping.
pub const WHOLE_ANSWER_TIMEOUT: Duration = Duration::from_secs(600);

/// How long an unused connection is kept. Shorter than the servers' own limits, so that a request seldom meets a
/// connection that is just being closed: such a request has an unknown fate.
pub const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(20);

/// How long the body of an error answer may take: its status has said the main thing already.
pub const ERROR_BODY_TIMEOUT: Duration = Duration::from_secs(10);
