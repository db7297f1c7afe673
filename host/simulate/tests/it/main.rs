//! What the crate promises, over real sockets. One binary.

mod answers;
mod client;
mod faults;
mod handle;
mod lawful;
mod toml;
