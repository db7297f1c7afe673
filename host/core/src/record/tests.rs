//! Round trips of every kind.
