//! Shared helpers of the cross-crate tests: where things are in this repository, and its sources as text.

use std::io::Write as _;
use std::path::{Path, PathBuf};

pub mod source;

/// The folder that holds them: components rebuilt from source instead of the committed ones. CI sets it.
const GUESTS: &str = "WHARF_GUESTS";

/// Set where nothing may be skipped: a component or a service that is missing is then a failure. CI sets it.
const SKIP_NOTHING: &str = "WHARF_SKIP_NOTHING";

/// The root of the repository.
pub fn repository() -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().unwrap_or(tests).to_owned()
}

/// Where a component of ours is: `files`, `query` and `slow` of the guest tools, and `tool-rust` of the examples. The
/// committed one, or the rebuilt one below the folder that `WHARF_GUESTS` names.
pub fn guest_path(name: &str) -> PathBuf {
    let file = format!("{name}.wasm");
    match std::env::var_os(GUESTS) {
        Some(folder) => PathBuf::from(folder).join(file),
        None if name == "tool-rust" => repository().join("examples/tool-rust/dist").join(file),
        None => repository().join("guest-tools/dist").join(file),
    }
}

/// The bytes of a component of ours.
///
/// # Panics
/// If it is not there; the message says where it was looked for.
pub fn guest(name: &str) -> Vec<u8> {
    let path = guest_path(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("no component {name:?} at {}: {error}", path.display()))
}

/// The bytes of a component that is too large to be committed (`js-hello`, `py-hello`); none where nobody built it, said
/// with the way to have it.
///
/// # Panics
/// If it is not there and `WHARF_SKIP_NOTHING` is set, as in CI.
pub fn guest_if_built(name: &str) -> Option<Vec<u8>> {
    let path = guest_path(name);
    if path.is_file() {
        return Some(guest(name));
    }
    skip(&format!("component {name:?} is built by `tests/guests/build` (npm or pip) and is not at {}", path.display()));
    None
}

/// Says why a test does not run, past the test runner's capture.
///
/// # Panics
/// If `WHARF_SKIP_NOTHING` is set.
pub fn skip(why: &str) {
    assert!(std::env::var_os(SKIP_NOTHING).is_none(), "nothing may be skipped here: {why}");
    // The test is skipped whether or not anybody can read why.
    let _ = writeln!(std::io::stderr(), "skipped: {why}");
}
