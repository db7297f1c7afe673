//! Whole turns of the public crate, from a harness in TOML to what is on the wire: real components and native tools, the
//! driver `openai-responses` over HTTP, and a provider from a script.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod abandoned;
mod crash;
mod failing;
mod formats;
mod kit;
mod live;
mod parts;
mod reading;
mod sessions;
mod slips;
mod stopping;
