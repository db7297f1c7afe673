//! Every bound of this crate, with the reason for it. Nothing here reads a clock or a socket.

use std::time::Duration;

/// Size of a script file: a script is written by hand, a larger one is a mistake (a binary, a log).
pub const SCRIPT_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// A pause inside a script (`wait`, `delay`): longer ones are typing errors, and a test must not sleep for hours.
pub const PAUSE_MAX: Duration = Duration::from_secs(10 * 60);

/// Size of one request's body: a whole history with tool outputs fits, an endless upload does not fill the memory.
pub const BODY_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Connections open at once: far more than any client pool, few enough for the usual limit of open files.
pub const CONNECTIONS_MAX: usize = 256;

/// Requests kept in the log; later ones are refused rather than left out of it, because the log is the proof.
pub const LOG_ENTRIES_MAX: usize = 100_000;

/// Bytes of bodies kept in the log, all requests together, for the same reason.
pub const LOG_BODY_BYTES_MAX: usize = 512 * 1024 * 1024;

/// Violations kept: the first ones explain the failure, a client that retries in a loop adds nothing.
pub const VIOLATIONS_MAX: usize = 1_000;

/// How long a stream waits for its gate before it is cut off: a test that forgot to release it must fail, not hang.
pub const GATE_WAIT_MAX: Duration = Duration::from_secs(120);

/// How long the handle waits for a request, an end or a gate: longer than a slow machine needs, shorter than a CI job.
pub const HANDLE_WAIT_MAX: Duration = Duration::from_secs(60);

/// How long a hanging stream keeps its socket: longer than any idle limit a client is tested with.
pub const HANG_MAX: Duration = Duration::from_secs(15 * 60);

/// How long `shutdown` waits for connections that were told to close.
pub const SHUTDOWN_WAIT_MAX: Duration = Duration::from_secs(5);

/// Pause after a failed `accept` (no file handles left), so that the loop does not spin.
pub const ACCEPT_RETRY_PAUSE: Duration = Duration::from_millis(50);
