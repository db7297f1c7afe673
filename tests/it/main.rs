//! Tests that cross crates.

mod architecture;
mod conformance_ids;
mod http;
mod languages;
mod turn;
