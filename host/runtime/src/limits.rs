//! Bounds of this crate, each with the reason for it.

use std::time::Duration;

/// How long a lease lasts unless renewed (N6).
pub const LEASE_TTL: Duration = Duration::from_secs(60);

/// Longest time between two renewals while a turn streams, asks or waits (L36). A sixth of the lease, so that several may
/// fail before it ends.
pub const RENEW_EVERY: Duration = Duration::from_secs(10);

/// First wait before a failed append or renewal is tried again inside the lease (L63).
pub const RETRY_FIRST: Duration = Duration::from_millis(50);

/// Longest wait between two such tries.
pub const RETRY_MAX: Duration = Duration::from_secs(2);

/// Bytes of records after which a snapshot of the fold is written, so that opening a session reads no more than about that:
/// some hundred calls, which fold in a few milliseconds.
pub const SNAPSHOT_AFTER_BYTES: usize = 256 << 10;

/// The same in sizes of the last snapshot: one of a long turn is large, and writing it may not make a step cost more than a
/// tenth on the average.
pub const SNAPSHOT_AFTER_SIZES: usize = 12;

/// Most records that are read from the store at once.
pub const RECORDS_PAGE: usize = 1_000;

/// How long giving up a lease is waited for, where another error is already on its way: the lease ends by itself.
pub const RELEASE_WAIT: Duration = Duration::from_secs(5);

/// How long calls and a stream that run go on after a host was told to stop (L57, L62). Supervisors commonly wait for thirty
/// seconds before they kill, and the rest is for the journal.
pub const SHUTDOWN_GRACE: Duration = Duration::from_secs(20);

/// How often somebody who left a command looks whether the owner has read it.
pub const ANSWER_LOOK_EVERY: Duration = Duration::from_millis(50);

/// The same for whether the session has an owner.
pub const OWNER_LOOK_EVERY: Duration = Duration::from_secs(1);

/// How long a command line waits for the owner of a session to do what it was told: it reads its inbox within 250 ms (M9),
/// unless its store hangs.
pub const COMMAND_WAIT: Duration = Duration::from_secs(15);

/// Most differences of two harnesses that one message lists: a person mends the first ones first.
pub const DIFFERENCES_SHOWN_MAX: usize = 8;

/// How long a response that is still in progress at the provider is waited for before its fate counts as unknown (G20).
pub const RETRIEVE_WAIT: Duration = Duration::from_secs(60);

/// Time between two looks at a response that is in progress.
pub const RETRIEVE_EVERY: Duration = Duration::from_secs(2);

/// Longest text of one capability in the instructions, in characters: it is untrusted and sent with every request.
pub const CAPABILITY_TEXT_CHARS_MAX: usize = 8_000;

/// Longest piece of a schema that a hint shows, in characters.
pub const SCHEMA_HINT_CHARS_MAX: usize = 600;

/// Capabilities of one harness that are loaded at once. Each has its component in memory until it is compiled.
pub const LOADS_AT_ONCE: usize = 4;

/// Largest component, in bytes: script-language ones have under 20 MB.
pub const COMPONENT_BYTES_MAX: u64 = 256 << 20;

/// How long a call of a native tool waits until fewer of its capability's calls run. It is not part of the call's own time,
/// and a queue that has not moved for this long will not move.
pub const PERMIT_WAIT_MAX: Duration = Duration::from_secs(600);

/// Most attempts of one turn to go on after a stream broke, before its error is returned: the table of core bounds what is
/// sent again, this bounds the loop itself.
pub const SETTLE_ATTEMPTS_MAX: u32 = 4;

/// Most records that are read at once for showing a session.
pub const SESSIONS_LISTED_MAX: usize = 200;

/// Most breaches that a check of one journal lists: a person mends the first ones first, and a damaged file has thousands.
pub const BREACHES_MAX: usize = 100;

/// Records that a store cannot read one after the other before a check of the journal gives up: a damaged page of the embedded
/// store holds a few of them, and where more are gone nothing behind them helps anybody.
pub const UNREADABLE_IN_A_ROW_MAX: usize = 64;

/// Most sessions of a store that are checked or collected in one run.
pub const SESSIONS_AT_ONCE_MAX: usize = 1_000_000;

/// Sessions that a worker runs at once unless told otherwise: a turn mostly waits for its provider.
pub const WORKER_SESSIONS: usize = 16;

/// How often a worker looks for sessions although the store told of none: a lease that ended, nobody tells.
pub const WORKER_LOOK_EVERY: Duration = Duration::from_secs(2);

/// How long a worker leaves a session alone that failed for a reason that may pass: the first time, and at most. Doubles in
/// between.
pub const WORKER_RETRY: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(300));
