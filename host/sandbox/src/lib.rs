//! The sandbox of Wharf: what a WebAssembly component is given, and nothing else.
