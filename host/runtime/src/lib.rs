//! The Wharf library: turns of a model whose tools are sandboxed components, journaled step by step.

pub mod coordinator;
mod journal;
pub mod limits;
mod resume;
pub mod seams;

pub use coordinator::Coordinator;
pub use wharf_core as core;
