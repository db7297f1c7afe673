//! Drivers for providers' protocols: neutral request in, neutral events out.
//!
//! A [`Driver`] turns a [`wharf_core::model::Request`] into one HTTP request and the answer into
//! [`wharf_core::model::StreamEvent`]s. It never decides whether to send: each call of [`Driver::open`] is one POST that its
//! caller has journaled (O9, O10 name the only exception). It knows no journal, no policy, no tool and no component, and
//! it never logs a body, a header or a key.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test fails by panicking"))]

pub mod config;
pub mod driver;
mod http;
pub mod limits;
mod profile;
mod refusal;
pub mod registry;
pub mod responses;
pub mod sse;

pub use config::{ProviderConfig, Secret, Timeouts, split_model};
pub use driver::{Answer, Driver, EventStream, Support, collect, outcome_error};
pub use registry::Drivers;
