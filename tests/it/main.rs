//! Tests that cross crates.

mod architecture;
mod languages;
mod turn;
