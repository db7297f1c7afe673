//! The Wharf library: turns of a model whose tools are sandboxed components, journaled step by step.
//!
//! - [`Wharf`] puts the parts together: store, drivers, native capabilities, sandbox.
//! - [`Wharf::load`] makes an [`Agent`] of a checked harness; [`Agent::session`] opens a conversation on it;
//!   [`Session::turn`] runs a turn.
//! - [`Coordinator`] is usable without all that: see [`coordinator`].
//!
//! It runs on the caller's tokio runtime, and touches no terminal, no home folder and no environment variable.

mod agent;
mod builder;
pub mod coordinator;
mod executor;
pub mod inbox;
mod journal;
pub mod limits;
mod load;
pub mod native;
pub mod removal;
mod requester;
mod resume;
pub mod seams;
mod session;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod verify;
pub mod worker;

pub use agent::Agent;
pub use builder::{Builder, EnvLookup, KeyReader, Wharf};
pub use coordinator::{Coordinator, Observer};
pub use executor::{ToolListener, ToolNote};
pub use load::{CapabilityReport, CapabilityStatus, ImportLine, Surroundings};
pub use session::{Session, TurnOptions, TurnResult, TurnStatus, records};
pub use wharf_core as core;
pub use wharf_provider as provider;
#[cfg(feature = "components")]
pub use wharf_sandbox as sandbox;
pub use wharf_store as store;
