//! The commands as a person or a script uses them: processes, streams, exit codes.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod components;
mod database;
mod examples;
mod init_and_check;
mod kit;
mod owner;
mod provider;
mod removal;
mod sessions;
mod signals;
mod store;
mod tools;
mod verify;
mod work;
mod wrong_input;
