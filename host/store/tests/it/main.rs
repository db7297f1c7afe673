//! The stores of this crate against the suite, against each other, and against damage, faults and other processes.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod memory;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "sqlite")]
mod sqlite;
