//! Tests that cross crates.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod architecture;
mod conformance_ids;
mod http;
mod languages;
mod turn;
