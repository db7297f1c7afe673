//! Tests that cross crates.

mod architecture;
mod http;
mod languages;
mod turn;
