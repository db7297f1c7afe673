//! Nothing: the package is the simulation in `main.rs`, which `just sim` runs whole and `cargo test -p wharf-sim` in short.
