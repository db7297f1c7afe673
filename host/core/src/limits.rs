//! Bounds of this crate, each with the reason for it.

/// Longest argument text or custom input of one call, in bytes. A model's answer is far below it; a stream that goes on
/// for ever is not.
pub const CALL_PAYLOAD_BYTES_MAX: usize = 8 << 20;

/// Most names that "did you mean" answers list: more is noise for a model and for a person.
pub const CLOSE_NAMES_MAX: usize = 3;

/// Largest harness file, in bytes: a written file is a few kilobytes.
pub const HARNESS_BYTES_MAX: usize = 1 << 20;

/// Largest JSON Schema of a tool, in bytes. It is a component's text, so untrusted, and is sent with every request.
pub const SCHEMA_BYTES_MAX: usize = 256 << 10;

/// Deepest nesting of a tool's JSON Schema or of a tool's input. Deeper ones cost stack in the checker.
pub const JSON_DEPTH_MAX: usize = 64;
