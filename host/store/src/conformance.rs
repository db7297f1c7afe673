//! The statements that every store keeps, as functions to run against any of them (N7).
