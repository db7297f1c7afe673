//! The Wharf library: coordinator, turns, harness and sessions, to embed in a product.
