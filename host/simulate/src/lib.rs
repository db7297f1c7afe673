//! A local server that speaks the OpenAI Responses protocol from a script: the provider of tests, demonstrations and
//! `wharf simulate`. It must never know the host that talks to it; it names no crate of ours.
//!
//! What it serves under [`Server::base_url`]:
//!
//! - `POST /responses`: the next step of the script, as a stream or whole, as the request asks. Calls and outputs must match
//!   over the whole chain of responses, else the request is refused in the provider's words and recorded as a violation.
//! - `GET /responses/{id}` and `POST /responses/{id}/cancel`.
//! - Beside them, for clients in other languages: `POST /_simulate/release/{gate}`, `GET /_simulate/requests` and
//!   `GET /_simulate/violations`, which are not logged.
//!
//! Response ids, item ids and times in bodies are the same in every run. Tests wait for events through the handle
//! ([`Server::wait_for_request`], [`Server::wait_for_gate`], [`Server::release`]), never for time.
//!
//! ```
//! use wharf_simulate::{Answer, Expect, Options, Script, Server};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let script = Script::new("one call")
//!     .step(
//!         Answer::new()
//!             .text("I will look.")
//!             .async_function_call("call_1", "grep", r#"{"pattern":"wharf"}"#)
//!             .wait_for("the call runs")
//!             .text("Meanwhile I think."),
//!     )
//!     .step(Answer::new().text("Found.").expect(Expect::new().latest().outputs(["call_1"])));
//! let server = Server::start(script, Options::default()).await?;
//! server.release("the call runs");
//! // … let a client work against server.base_url() …
//! assert_eq!(server.violations(), vec![]);
//! # Ok(())
//! # }
//! ```

mod book;
mod conn;
mod expect;
mod frame;
mod gates;
pub mod limits;
mod log;
mod pairing;
mod plan;
mod player;
mod routes;
pub mod script;
mod server;
mod violation;
mod wire;

pub use log::{AnsweringStep, End, RequestBody, RequestEntry};
pub use pairing::{CallKind, PairingError};
pub use script::{Answer, Expect, HttpReply, Script, ScriptError, Step};
pub use server::{Options, Reach, Server, StartError, WaitError};
pub use violation::{Violation, ViolationKind};
