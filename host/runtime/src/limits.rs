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

/// How long a response that is still in progress at the provider is waited for before its fate counts as unknown (G20).
pub const RETRIEVE_WAIT: Duration = Duration::from_secs(60);

/// Time between two looks at a response that is in progress.
pub const RETRIEVE_EVERY: Duration = Duration::from_secs(2);
