//! The driver over real sockets, loopback only.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod broken;
mod config;
mod secrets;
mod server;
mod wire;
