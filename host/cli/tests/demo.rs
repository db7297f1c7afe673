//! The demo as a newcomer runs it, against what the README says that it prints. Figures, ports and ids differ from run to
//! run, and lines that tell of compiling come once; the rest has to be the same.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn wharf(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_wharf"))
        .args(arguments)
        .current_dir(repository())
        .env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"))
        .output()
        .expect("the program starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("the demo prints UTF-8")
}

/// A line without what differs from run to run; `None` for lines that need not be there.
fn normal(line: &str) -> Option<String> {
    let line = line.trim_end();
    if line.contains("  compile  ") {
        return None;
    }
    let mut out = String::new();
    let mut in_figure = false;
    for c in line.chars() {
        let figure = c.is_ascii_digit() || (in_figure && c == '.');
        if figure && !in_figure {
            out.push('0');
        } else if !figure {
            out.push(c);
        }
        in_figure = figure;
    }
    // What a tool found is real, so it changes with the sources that it looks at.
    if let Some(at) = out.find("  {\"result\"") {
        out.truncate(at);
    }
    if let Some(at) = out.find("session show ") {
        out.truncate(at);
    }
    // The bars of the timeline are times.
    let is_bar = |c: char| " =#.x>".contains(c);
    if !out.starts_with(' ') && !out.starts_with('=') && out.ends_with(is_bar) {
        out = out.trim_end_matches(is_bar).to_owned();
    }
    let words: Vec<&str> = out.split_whitespace().collect();
    Some(words.join(" "))
}

fn block_after(text: &str, marker: &str) -> String {
    let after = &text[text.find(marker).expect("the README has the marker")..];
    let start = after.find("```text\n").expect("a block follows") + "```text\n".len();
    let end = after[start..].find("```").expect("the block ends");
    after[start..start + end].to_owned()
}

/// What the model said, and what the host said. They go on side by side, so a busy machine may print a line of one a
/// little before or after a line of the other; each has its own order.
struct Parts {
    model: String,
    host: String,
}

fn parts(text: &str) -> Parts {
    let (mut model, mut host) = (Vec::new(), Vec::new());
    for line in text.lines().filter_map(normal) {
        match line.strip_prefix("0 model ") {
            Some(words) => model.push(words.to_owned()),
            None => host.push(line),
        }
    }
    Parts { model: model.join(" "), host: host.join("\n").trim().to_owned() }
}

#[test]
fn the_demo_prints_what_the_readme_shows() {
    let readme = std::fs::read_to_string(repository().join("README.md")).expect("there is a README");
    let shown = block_after(&readme, "It prints:");
    let ran = wharf(&["demo"]);
    assert!(ran.status.success(), "{}\n{}", text(&ran.stdout), text(&ran.stderr));
    let (shown, printed) = (parts(&shown), parts(&text(&ran.stdout)));
    assert_eq!(printed.model, shown.model);
    assert_eq!(printed.host, shown.host);
}

#[test]
fn after_a_kill_the_safe_call_runs_again_and_the_never_call_does_not() {
    let ran = wharf(&["demo", "--crash"]);
    let out = text(&ran.stdout);
    // The parent itself compares the witness files and the provider's log, and fails if they say something else.
    assert!(ran.status.success(), "{out}\n{}", text(&ran.stderr));
    let witness: Vec<&str> =
        out.lines().filter(|line| line.starts_with("  word_stats") || line.starts_with("  note")).collect();
    assert_eq!(
        witness,
        [
            "  word_stats  call_stats  1  simulate/src",
            "  word_stats  call_stats  2  simulate/src",
            "  note  call_note  1  paid 100 to ACME",
        ]
    );
    let delivered: Vec<&str> = out
        .lines()
        .filter(|line| line.starts_with("  request "))
        .filter_map(|line| line.split_whitespace().nth(2))
        .collect();
    assert_eq!(delivered, ["call_note", "call_stats"]);
}

#[test]
fn the_harness_file_of_the_readme_is_right() {
    let readme = std::fs::read_to_string(repository().join("README.md")).expect("there is a README");
    let start = readme.find("```toml\n").expect("the README shows a harness file") + "```toml\n".len();
    let shown = &readme[start..start + readme[start..].find("```").expect("the block ends")];
    let dist = repository().join("guest-tools/dist").canonicalize().expect("the components are there");
    let room = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(room.path().join("docs")).expect("a folder");
    std::fs::write(room.path().join("harness.toml"), shown.replace("guest-tools/dist", &dist.display().to_string()))
        .expect("a file");
    let harness = room.path().join("harness.toml").display().to_string();
    let checked = wharf(&["check", "-H", &harness, "--json"]);
    assert!(checked.status.success(), "{}", text(&checked.stderr));
    let report: serde_json::Value = serde_json::from_slice(&checked.stdout).expect("JSON");
    let tool =
        |name: &str| report["tools"].as_array().expect("tools").iter().find(|tool| tool["name"] == name).cloned();
    let search = tool("search_files").expect("the tool is offered");
    assert_eq!((&search["replay"]["value"], &search["async"]["value"]), (&"safe".into(), &true.into()));
    let write = tool("write_file").expect("the tool is known");
    assert_eq!(write["refuse"]["value"], "this harness only reads");
}
