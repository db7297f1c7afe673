//! The driver over real sockets, loopback only.

mod broken;
mod config;
mod secrets;
mod server;
mod wire;
