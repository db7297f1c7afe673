//! Bounds of this crate, each with the reason for it.

use std::time::Duration;

/// How long a lease lasts unless renewed: long enough that a slow disk does not lose it, short enough that another process
/// takes over a dead one's work within a coffee break (N6).
pub const LEASE_TTL: Duration = Duration::from_secs(60);

/// Largest snapshot or record body, and largest blob: what makes records keeps to the same numbers.
pub use wharf_core::limits::{BLOB_BYTES_MAX, RECORD_BYTES_MAX};

/// Most items that wait in one session's inbox: an inbox that nobody empties must not fill the disk.
pub const INBOX_ITEMS_MAX: usize = 1_000;

/// Largest inbox item, in bytes.
pub const INBOX_BYTES_MAX: usize = 1 << 20;

/// Longest time from putting an inbox item to waking the owner: a person who approved sees it go on at once (M9).
pub const INBOX_WAKE_MAX: Duration = Duration::from_millis(250);

/// How often the embedded store looks for changes of other processes while somebody waits for an inbox: a look costs
/// microseconds, and two of them fit into [`INBOX_WAKE_MAX`].
pub const INBOX_POLL: Duration = Duration::from_millis(100);

/// Most tasks that wait for inboxes of one store at once: one per session that is being acted on.
pub const INBOX_WAITERS_MAX: usize = 10_000;

/// Most harnesses that one worker runs, and most sessions that it leaves out for now: more is a mistake.
pub const CLAIM_NAMES_MAX: usize = 1_000;

/// Most writes that wait in one store. More means that the disk does not keep up, and memory must not take its place.
pub const WRITES_WAITING_MAX: usize = 4_096;

/// Most writes that share one commit: the first must not wait for ever on the rest.
pub const WRITES_TOGETHER_MAX: usize = 512;

/// Bytes of writes that share one commit, beyond which the rest waits for the next one.
pub const WRITES_TOGETHER_BYTES_MAX: usize = 16 << 20;

/// Most reads that wait in one store.
pub const READS_WAITING_MAX: usize = 4_096;

/// Threads that read, each with a connection: a long read does not hold up a short one.
pub const READERS: usize = 2;

/// A blob is written in pieces of this size, with other sessions' writes between them, so that it does not hold them up.
pub const BLOB_PIECE_BYTES: usize = 1 << 20;

/// How long one attempt waits for another process's write: some of its largest commits on a slow disk.
pub const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// First and longest pause between attempts of a write that failed (L63). Doubles from the one to the other.
pub const RETRY_PAUSE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

/// Size to which the write-ahead log is cut after it was copied: one burst must not keep the space for ever.
pub const LOG_BYTES_KEPT: u64 = 64 << 20;

/// Largest database that is written anew when a session was deleted: it takes about a second, in which nobody else writes,
/// and as much memory.
pub const COMPACT_BYTES_MAX: u64 = 64 << 20;

/// How long the emptying of the log after a deletion waits for readers: longer than any read of ours takes, and too short for
/// other sessions' writes to notice.
pub const SCRUB_WAIT: Duration = Duration::from_millis(250);

/// Pause before the emptying of the log is tried again, if somebody read from it all the while.
pub const SCRUB_PAUSE: Duration = Duration::from_secs(2);

/// Prepared statements kept per connection: more than this crate has.
pub const STATEMENTS_KEPT: usize = 64;

const _: () = assert!(INBOX_POLL.as_millis() * 2 < INBOX_WAKE_MAX.as_millis());

/// Connections of one PostgreSQL store: those that append, and some for all else. A server has a hundred by default, for
/// all of its clients.
pub const POSTGRES_CONNECTIONS: usize = 8;

/// Statements of appends that are at the server at once. While one is synced the next one gathers what waits; a third keeps
/// a slow one from holding up all others.
pub const POSTGRES_APPENDS_AT_ONCE: usize = 3;

/// How long a connection may take to be made or to become free: two tries fit into the time in which a lease is renewed.
pub const POSTGRES_CONNECT_MAX: Duration = Duration::from_secs(5);

/// How long the server works on one statement: its largest one writes 16 MiB.
pub const POSTGRES_STATEMENT_MAX: Duration = Duration::from_secs(15);

/// How long an answer is waited for, the way included. Beyond it nobody knows whether the statement was done.
pub const POSTGRES_ANSWER_MAX: Duration = Duration::from_secs(20);

/// How long one session's row is waited for: others hold it for a statement at most.
pub const POSTGRES_LOCK_MAX: Duration = Duration::from_secs(5);

/// A connection that is silent for so long is asked whether it is still there, as a cut one tells nobody.
pub const POSTGRES_KEEPALIVE: Duration = Duration::from_secs(5);

/// For how long a server that is away is tried again by what no lease bounds: opening, reading, acquiring a session, leaving
/// an item. A restart or a failover takes some seconds; a person waits for about that long.
pub const POSTGRES_PATIENCE: Duration = Duration::from_secs(15);

/// How often inboxes are looked at although the server tells of changes: a word of it may be lost with a connection.
pub const POSTGRES_POLL: Duration = Duration::from_secs(2);
