//! Turns over HTTP: the public session with the driver `openai-responses` against a scripted provider, journaled by SQLite
//! in a folder of the test's own. What is claimed is shown twice: by the provider's request log, and by the journal as
//! another process reads it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod broken;
mod crash;
mod kit;
mod launched;
mod refused;
mod retrieved;
mod surviving;
