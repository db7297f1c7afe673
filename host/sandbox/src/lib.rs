//! The sandbox of Wharf: what a WebAssembly component is given, and nothing else.
//!
//! This is the only crate that names the engine. It knows no session, no model and no provider, and it does not decide
//! whether a call may start: whoever calls [`Capability::invoke`] has decided that and has journaled it.
//!
//! - [`Sandbox::new`] starts an engine with threads of its own; spinning components cannot hold up the caller's executor,
//!   and every future of this crate may be awaited on any executor. Dropping one ends the work behind it.
//! - [`inspect`] reads what a component imports and exports, without compiling it, and sets that beside the grants.
//! - [`Sandbox::load`] makes a [`Capability`] of component bytes, [`Grants`](wharf_core::grants::Grants),
//!   [`Limits`](wharf_core::grants::Limits) and [`Roots`]. What is wrong with a component is a [`LoadError`] and harms
//!   only that capability.
//! - [`Capability::config_schema`], [`definitions`](Capability::definitions) and [`describe`](Capability::describe) ask it
//!   what it offers, without grants.
//! - [`Capability::invoke`] runs one call in a fresh store; crash, time, memory and output are all a [`CallOutcome`].
//!
//! A component is given: standard WASI 0.2 and 0.3 and the contract's own imports, all answering with their own error
//! where nothing is granted; the folders of its file grants, opened once at load; the environment values that are named.
//! A component may export the contract's functions as `async func` too: functions of WASI 0.3 that wait (files, clocks)
//! may wait in such ones alone; those of WASI 0.2 may in any.
//! Not served yet: HTTP, secrets, calls of other tools, a state folder; they answer with denial whatever is granted.
//!
//! ```no_run
//! # async fn example(bytes: Vec<u8>) -> Result<(), Box<dyn std::error::Error>> {
//! use std::sync::Arc;
//! use wharf_sandbox::{Invocation, LoadRequest, Roots, Sandbox, SandboxOptions};
//!
//! let sandbox = Sandbox::new(SandboxOptions::default())?;
//! let echo = sandbox
//!     .load(LoadRequest {
//!         name: "echo".into(),
//!         bytes: bytes.into(),
//!         grants: Default::default(),
//!         limits: Default::default(),
//!         roots: Roots::default(),
//!     })
//!     .await?;
//! let tools = echo.definitions("{}").await?;
//! let call = Invocation {
//!     tool: tools[0].name.clone(),
//!     input: r#"{"text":"hello"}"#.into(),
//!     config: "{}".into(),
//!     call_id: "call-1".into(),
//!     idempotency_key: "key-1".into(),
//!     attempt: 1,
//!     limits: None,
//!     time_limit: None,
//!     attachments: Vec::new(),
//! };
//! println!("{}", echo.invoke(call, Arc::new(())).await.outcome.into_envelope());
//! # Ok(())
//! # }
//! ```

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test fails by panicking"))]

mod answers;
mod cache;
mod call;
mod capability;
mod capture;
mod compile;
mod contract;
mod cost;
mod descriptors;
mod engine;
mod error;
mod files;
mod inspect;
pub mod limits;
mod link;
mod roots;
mod sandbox;
mod state;
mod trap;

pub use answers::Description;
pub use call::{Attachment, CallOutcome, CallReport, Captured, Invocation, Observer, OutputKind, Progress};
pub use capability::Capability;
pub use compile::{CompileEvent, OnCompile};
pub use error::{LoadError, SandboxError};
pub use inspect::{ImportReport, ImportVerdict, Inspection, inspect};
pub use roots::Roots;
pub use sandbox::{LoadRequest, Sandbox, SandboxOptions, SandboxStatus};

/// The version of `wharf:tool` that is served.
pub const CONTRACT: &str = "0.1.0-draft";
