//! Decisions and words of Wharf.
//!
//! What is here decides: which state a call is in, whether it may start, what a harness file means, what recovery does.
//! It knows no file, no socket, no future, no clock and no random number: time and ids come in as values, and what has to
//! be done goes out as data.

pub mod authority;
pub mod call;
pub mod checkpoint;
pub mod cut;
pub mod digest;
pub mod error;
pub mod events;
pub mod grants;
pub mod harness;
pub mod history;
pub mod ids;
pub mod inbox;
pub mod limits;
pub mod model;
pub mod names;
#[cfg(any(feature = "openapi", test))]
pub mod openapi;
pub mod output;
pub mod policy;
pub mod reconcile;
pub mod record;
pub mod rules;
pub mod schema;
pub mod session;
pub mod step;
pub mod tool;
pub mod transcript;

pub use call::{Call, Payload};
pub use checkpoint::{CallState, Checkpoint, PendingCall, Registration};
pub use error::{Error, ErrorKind};
pub use ids::{
    BlobDigest, CallId, Fence, HarnessId, InboxId, OrgId, RecordId, ResponseId, Seq, SessionId, ToolName, TurnId,
};
pub use record::Record;
