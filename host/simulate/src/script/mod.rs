//! Scripts: which requests are expected and what they are answered with. A script must never know sockets or time
//! that passes; it is a value, built in Rust or read from TOML.
//!
//! # The TOML form
//!
//! A script is a list of steps. A request that is answered uses up one step; one that is refused (wrong key, unlawful,
//! not as expected) uses up none and is recorded as a violation (a wrong key is not). Unknown keys, words and types are
//! errors with file, line and a hint.
//!
//! ## Top level
//!
//! | key | value | default |
//! |---|---|---|
//! | `name` | text for messages and the log | the file's name |
//! | `order` | `"in-order"`: the n-th answered request gets step n. `"first-match"`: a request gets the first unused step whose `expect` it meets | `"in-order"` |
//! | `id_prefix` | what response ids begin with; the number follows: `resp_1`, `resp_2` … | `"resp_"` |
//! | `api_key` | every request must carry `Authorization: Bearer KEY`, else 401 | none is needed |
//! | `step` | the steps, each under `[[step]]` | required |
//!
//! ## `[[step]]`
//!
//! A step is a response (the default, and what every key below the line is for), or `[step.http]`, or `drop = true`.
//!
//! | key | value | default |
//! |---|---|---|
//! | `name` | text for messages and the log | none |
//! | `expect` | table: what the request has to be like | anything |
//! | `unchecked` | `true`: calls and outputs of the request need not match, and `previous_response_id` may be unknown | `false` |
//! | `http` | table: a plain HTTP answer | |
//! | `drop` | `true`: the connection is closed without a byte | `false` |
//! |—|—|—|
//! | `item` | what is streamed, in order, each under `[[step.item]]` | nothing |
//! | `usage` | table `input`, `cached`, `cache_write`, `output`, `reasoning`, or `"none"` | zeros |
//! | `finish` | table: how the response ends | completed |
//! | `ending` | how the connection ends: `"close"`, `"hang"`, or a table that cuts it | `"close"` |
//! | `framing` | table: how events become bytes | |
//! | `omit` | list of parts that are left out: `"created"`, `"in_progress"`, `"sequence_numbers"`, `"deltas"`, `"added"`, `"terminal_output"` | `[]` |
//! | `retrieve` | what GET says instead of the true state: one word or a list for successive GETs, the last one repeats | the true state |
//! | `if_broken` | what becomes of the response if its stream breaks before its terminal event | `"not_found"` |
//! | `model` | the model's name in the response | the request's |
//!
//! The words of `retrieve` and `if_broken` are `"not_found"`, `"queued"`, `"in_progress"`, `"completed"`,
//! `"incomplete"`, `"failed"` and `"cancelled"`. Only a completed or incomplete response can be continued.
//!
//! ## `[step.expect]`
//!
//! | key | the request |
//! |---|---|
//! | `previous_response_id` | continues nothing (`"none"`), the response begun last of those that can be continued (`"latest"`), or this id |
//! | `outputs` | has outputs of these calls, others allowed, in any order |
//! | `only_outputs` | has outputs of exactly these calls in this order |
//! | `model` | names this model |
//! | `tools` | offers tools of these names |
//! | `contains` | has each of these texts somewhere in its input |
//! | `lacks` | has none of these texts anywhere |
//! | `instructions` | has each of these texts in its instructions |
//! | `stream` | asks for a stream (`true`) or for the answer whole (`false`) |
//!
//! ## `[[step.item]]`
//!
//! | `type` | further keys |
//! |---|---|
//! | `"text"` | `text`, `phase` (`"commentary"`, `"final_answer"`), `extent`, `chunk`, `delay` |
//! | `"refusal"` | `text`, `extent`, `chunk`, `delay` |
//! | `"reasoning"` | `summary`, `encrypted` (opaque state), `chunk`, `delay` |
//! | `"function_call"` | `call_id`, `name`, `arguments` (exactly as the model writes them, well formed or not), `async`, `extent`, `chunk`, `delay` |
//! | `"custom_tool_call"` | `call_id`, `name`, `input` (raw text), `async`, `extent`, `chunk`, `delay` |
//! | `"other"` | `json`: any other whole output item; it is announced and finished as it is |
//! | `"raw"` | `json`: an event as it is; a missing `sequence_number` is added. A finished item in it counts as output, a terminal type ends the response |
//! | `"comment"` | `text`: an event-stream comment |
//! | `"wait"` | `time`: a pause such as `"200ms"`, `"1.5s"`, `"2m"` |
//! | `"wait_for"` | `gate`: a pause until the gate is released, by the Rust handle or by `POST /_simulate/release/GATE` |
//!
//! `chunk` cuts the text into deltas: `"words"` (default of texts), `"whole"` (default of calls) or a number of characters;
//! `delay` is the pause between two. `extent` is `"completed"`, `"incomplete"` (finished with that status; a call does
//! not count as made) or `"partial"` (announced and streamed, never finished).
//!
//! Ids are made from the response's number and the item's place: `msg_1_0`, `rs_1_0`, `fc_1_0`, `ctc_1_0`.
//!
//! ## `[step.finish]`
//!
//! | `status` | further keys | what is sent |
//! |---|---|---|
//! | `"completed"` | | `response.completed` |
//! | `"incomplete"` | `reason` | `response.incomplete` |
//! | `"failed"` | `code`, `message` | `response.failed` |
//! | `"cancelled"` | | `response.cancelled` |
//! | `"error"` | `code`, `message` | an `error` event; the response counts as failed |
//! | `"none"` | | nothing; without a raw terminal event the response counts as broken |
//!
//! ## `[step.ending]`
//!
//! `ending = { after_events = 3 }` breaks the connection after three events. `extra_bytes` sends so many bytes of the
//! next one; `how = "clean"` closes the body properly instead of breaking it (`"abort"`).
//!
//! ## `[step.framing]`
//!
//! | key | value | default |
//! |---|---|---|
//! | `line_ending` | `"lf"`, `"crlf"`, `"cr"` | `"lf"` |
//! | `bom` | the body begins with a byte order mark | `false` |
//! | `event_lines` | each event has an `event:` line | `true` |
//! | `multiline` | the JSON is spread over several `data:` lines | `false` |
//! | `comments` | a comment stands before each event | `false` |
//! | `done` | `data: [DONE]` follows the last event | `false` |
//! | `chunk_bytes` | the body is sent in pieces of so many bytes | an event at a time |
//! | `content_type` | the content type | `text/event-stream; charset=utf-8` |
//!
//! ## `[step.http]`
//!
//! `status` (200 to 599) and `headers` (a table), with either `message`, `type`, `code` and `param` for the provider's
//! error form, or `body` and `content_type` (`application/json`) for text as it is.

mod build;
mod error;
mod model;
mod parse;
mod reader;

pub use error::{Place, ScriptError};
pub use model::*;
