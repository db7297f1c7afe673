//! The sandbox from outside, with components that are written for the case, in the text format, and with the ones that
//! are shipped.
#![allow(missing_docs)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod calls;
mod files;
mod grants;
mod kit;
mod limits;
mod load;
mod shipped;
