//! Bounds of this crate, each with the reason for it.

/// Longest argument text or custom input of one call, in bytes. A model's answer is far below it; a stream that goes on
/// for ever is not. A byte may take six in JSON, and the call's record has to fit [`RECORD_BYTES_MAX`] all the same.
pub const CALL_PAYLOAD_BYTES_MAX: usize = 1 << 20;

/// Longest id of a call or a response, and longest name in a call, in bytes. Real ones have tens; each stands in several
/// records.
pub const ID_BYTES_MAX: usize = 1 << 10;

/// Most names that "did you mean" answers list: more is noise for a model and for a person.
pub const CLOSE_NAMES_MAX: usize = 3;

/// Largest harness file, in bytes: a written file is a few kilobytes.
pub const HARNESS_BYTES_MAX: usize = 1 << 20;

/// Largest JSON Schema of a tool, in bytes. It is a component's text, so untrusted, and is sent with every request.
pub const SCHEMA_BYTES_MAX: usize = 256 << 10;

/// Longest pointer to a place in a schema, in characters; longer ones are cut. One is kept for each subschema while the
/// schema is read, and a chain of references makes them long.
pub const SCHEMA_POINTER_CHARS_MAX: usize = 256;

/// Most bytes of the paths to all values in a schema together. The compiler keeps the path of each keyword, and one long
/// name above many of them would cost gigabytes; a schema of the largest size that was written for a model has a tenth.
pub const SCHEMA_PATHS_BYTES_MAX: usize = 8 << 20;

/// Deepest nesting of a tool's JSON Schema or of a tool's input. Deeper ones cost stack in the checker.
pub const JSON_DEPTH_MAX: usize = 64;

/// Most errors that one harness file reports: a person mends them in portions, and a broken file has thousands.
pub const HARNESS_ERRORS_MAX: usize = 50;

/// Longest name of a tool as a model is shown it: what providers take (`[A-Za-z0-9_-]`, TOOL-7).
pub const TOOL_NAME_BYTES_MAX: usize = 64;

/// Most tools of one capability. Each is sent with every request; the list is a component's text, so untrusted.
pub const TOOLS_PER_CAPABILITY_MAX: usize = 256;

/// Longest description of a tool, in bytes: untrusted text that is sent with every request.
pub const DESCRIPTION_BYTES_MAX: usize = 16 << 10;

/// Largest compiled form of one pattern, in bytes. A short pattern with counted repetitions can be made to need gigabytes.
pub const PATTERN_BYTES_MAX: usize = 1 << 20;

/// Most different patterns of one schema. Each is compiled and kept.
pub const PATTERNS_MAX: usize = 64;

/// Largest compiled form of all patterns of one schema together, in bytes; each may have an equal share. A thousand small
/// patterns that each need a megabyte would cost a gigabyte and ten seconds.
pub const PATTERNS_BYTES_MAX: usize = 4 << 20;

/// Longest text of all patterns of one schema, or of one pattern of a grammar, in bytes. Before its compiled form
/// is measured, reading a pattern costs some kilobytes for each class of letters in it, and a fifth of a millisecond where
/// the class ignores case.
pub const PATTERNS_TEXT_BYTES_MAX: usize = 8 << 10;

/// Most steps that checking one value against a schema may take by the schema's own shape. References that fan out make a
/// small schema take exponential time; such a schema is refused, or its input is allowed less depth.
pub const SCHEMA_STEPS_MAX: u64 = 100_000;

/// Most steps that checking one value may take: those of [`SCHEMA_STEPS_MAX`] along each path through it. A second or
/// two; a schema of usual cost takes an input of the largest size.
pub const CHECK_STEPS_MAX: u64 = 100_000_000;

/// Most subschemas that are open at once while one value is checked. The checker calls itself for each; six times as many
/// were seen to fit the two mebibytes that a worker's stack has.
pub const SCHEMA_NESTING_MAX: u64 = 2_000;

/// Longest time that a harness may give to one call: a day. More is a mistake in the unit.
pub const CALL_TIME_SECONDS_MAX: u64 = 24 * 60 * 60;

/// Most memory that a harness may give to one call, in bytes: what 32-bit components can address.
pub const CALL_MEMORY_BYTES_MAX: u64 = 4 << 30;

/// Least memory that a harness may give to one call, in bytes: one page of a component.
pub const CALL_MEMORY_BYTES_MIN: u64 = 64 << 10;

/// Largest output that a harness may allow, in bytes: the cap of a blob (design section 8).
pub const CALL_OUTPUT_BYTES_MAX: u64 = 16 << 20;

/// Most calls at once of one capability: each is an instance with its memory.
pub const CALLS_AT_ONCE_MAX: u32 = 1024;

/// Most responses of one turn that a harness may allow.
pub const RESPONSES_MAX: u32 = 10_000;

/// Largest record body or snapshot, in bytes (N6). Larger outputs are blobs.
pub const RECORD_BYTES_MAX: usize = 8 << 20;

/// Deepest nesting of a record's body. Readers of JSON stop at 128 levels or so; a record that cannot be read back would
/// make its whole journal unreadable.
pub const RECORD_DEPTH_MAX: usize = 100;

/// Largest blob, in bytes (design section 8).
pub const BLOB_BYTES_MAX: usize = 16 << 20;

/// How much of an output over [`BLOB_BYTES_MAX`] is kept in the failure that takes its place, in bytes: as much as a tool's
/// output has unless a harness says otherwise.
pub const OUTPUT_HEAD_BYTES: usize = 64 << 10;

/// Longest reason in the record that settles a request as not accepted, in bytes: it is for people, and a provider's words
/// are in it.
pub const REASON_BYTES_MAX: usize = 4 << 10;

/// Longest text that the notice of a lost answer quotes for a call, in bytes: enough to see what it was.
pub const NOTICE_TEXT_BYTES_MAX: usize = 2 << 10;

/// Length of all lines of such a notice, in bytes, beyond which a further line is cut to [`NOTICE_SHORT_LINE_BYTES`].
pub const NOTICE_BYTES_MAX: usize = 256 << 10;

/// Length of a line for which the notice of a lost answer has no room, in bytes: the tool's name and a glance at its input.
pub const NOTICE_SHORT_LINE_BYTES: usize = 120;

/// Largest output that stands in its record, in bytes; larger ones are blobs (design section 8).
pub const INLINE_OUTPUT_BYTES_MAX: usize = 32 << 10;

/// Calls that run at once in a turn unless a harness says otherwise: enough to overlap slow tools, few enough for a laptop.
pub const CALLS_AT_ONCE: usize = 8;

/// Calls of one turn that may name unknown tools before the turn stops: a model that did not learn from this many answers
/// does not learn from more (L51, TOOL-1).
pub const UNKNOWN_TOOLS_MAX: u64 = 5;
