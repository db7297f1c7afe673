//! Compiled code is run as it is, so where it is kept decides whose code runs.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

/// Looks at a component, which compiles it unless its code is there.
fn inspect(folder: &Path, home: Option<&Path>) -> Output {
    let component = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../guest-tools/dist/query.wasm");
    let mut command = Command::new(env!("CARGO_BIN_EXE_wharf"));
    command.args(["tool", "inspect"]).arg(component).current_dir(folder).env_clear();
    if let Some(home) = home {
        command.env("HOME", home);
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    output
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn room(within: &Path, name: &str) -> std::path::PathBuf {
    let path = within.join(name);
    fs::create_dir_all(&path).unwrap();
    path
}

// An archive keeps names, bytes and modes, so it can bring a whole cache: a key, and entries that it vouches for.
#[test]
fn a_project_cannot_bring_compiled_code_along() {
    let temp = tempfile::tempdir().unwrap();
    let [theirs, ours, project] = ["theirs", "ours", "project"].map(|name| room(temp.path(), name));
    inspect(&theirs, Some(&theirs));
    let brought = project.join(".wharf/cache");
    fs::create_dir_all(&brought).unwrap();
    fs::set_permissions(&brought, fs::Permissions::from_mode(0o700)).unwrap();
    let made = theirs.join(".cache/wharf");
    for name in names(&made) {
        fs::copy(made.join(&name), brought.join(&name)).unwrap();
    }
    assert_eq!(names(&brought).len(), 2, "a key and an entry");

    let output = inspect(&project, Some(&ours));
    assert!(said(&output).contains("of WebAssembly to native code, once"), "{}", said(&output));
    let kept = ours.join(".cache/wharf");
    assert_eq!(names(&kept), names(&brought));
    assert_ne!(fs::read(kept.join("key")).unwrap(), fs::read(brought.join("key")).unwrap());
    assert_eq!(fs::metadata(&kept).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(said(&inspect(&project, Some(&ours))), "", "what we compiled ourselves is used");
}

#[test]
fn without_a_home_nothing_is_kept_and_that_is_said_once() {
    let temp = tempfile::tempdir().unwrap();
    for _ in 0..2 {
        let said = said(&inspect(temp.path(), None));
        let warning = "warning: compiled components are not kept: neither XDG_CACHE_HOME nor HOME names a folder";
        assert_eq!(said.lines().filter(|line| *line == warning).count(), 1, "{said}");
        assert!(said.contains("of WebAssembly to native code, once"), "{said}");
    }
    assert_eq!(names(temp.path()), [] as [&str; 0]);
}
