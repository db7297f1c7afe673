//! Tests by conformance group come beside this file.
