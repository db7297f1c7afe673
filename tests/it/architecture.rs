//! The rules of ARCHITECTURE.md that a compiler does not keep: which crate may name which, who may reach a network, a
//! process, a clock, and where unsafe code is. Each message says what broke the rule and why the rule is there.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use toml::{Table, Value};
use wharf_tests::repository;
use wharf_tests::source::{code, files, lines_naming, text};

/// What a crate of `host/` may name.
struct Rule {
    folder: &'static str,
    package: &'static str,
    /// Crates of ours.
    siblings: &'static [&'static str],
    /// Crates through which a network can be reached; `tokio/net` stands for that feature.
    network: &'static [&'static str],
    /// The reason for both.
    why: &'static str,
}

const RULES: [Rule; 7] = [
    Rule {
        folder: "core",
        package: "wharf-core",
        siblings: &[],
        network: &[],
        why: "core decides: it knows no sibling and does no I/O",
    },
    Rule {
        folder: "store",
        package: "wharf-store",
        siblings: &["wharf-core"],
        network: &[
            "deadpool-postgres",
            "rustls",
            "rustls-platform-verifier",
            "tokio-postgres",
            "tokio-postgres-rustls",
        ],
        why: "a store keeps records and looks into none; the embedded one has no network, the one for many machines has a \
              client of PostgreSQL",
    },
    Rule {
        folder: "sandbox",
        package: "wharf-sandbox",
        siblings: &["wharf-core"],
        network: &["wasmtime-wasi-http"],
        why: "the sandbox knows no session and no provider; what a component sends goes through one function of it",
    },
    Rule {
        folder: "provider",
        package: "wharf-provider",
        siblings: &["wharf-core"],
        network: &["reqwest", "rustls", "rustls-platform-verifier"],
        why: "a driver turns a request into one HTTP exchange and knows no journal, policy or tool",
    },
    Rule {
        folder: "runtime",
        package: "wharf",
        siblings: &["wharf-core", "wharf-store", "wharf-sandbox", "wharf-provider"],
        network: &[],
        why: "the runtime composes the crates below it and reaches nothing by itself",
    },
    Rule {
        folder: "simulate",
        package: "wharf-simulate",
        siblings: &["wharf-core"],
        network: &["axum", "tokio/net"],
        why: "a simulated provider must not know the host that talks to it",
    },
    Rule {
        folder: "cli",
        package: "wharf-cli",
        siblings: &["wharf", "wharf-simulate", "wharf-core"],
        network: &[],
        why: "the command line uses the library as any embedder does",
    },
];

/// The one edge that is not for what ships: package, section, crate. The embedding example brings a scripted model along.
const EXAMPLE: (&str, &str, &str) = ("wharf", "dev-dependencies", "wharf-simulate");

/// Crates that can open a connection or listen for one. A new one in a manifest belongs here.
const NETWORK: [&str; 38] = [
    "actix-web",
    "async-std",
    "attohttpc",
    "axum",
    "curl",
    "deadpool-postgres",
    "h2",
    "h3",
    "hickory-resolver",
    "hyper",
    "hyper-rustls",
    "hyper-util",
    "isahc",
    "mio",
    "native-tls",
    "openssl",
    "postgres",
    "quinn",
    "redis",
    "reqwest",
    "reqwest-eventsource",
    "rustls",
    "rustls-platform-verifier",
    "smol",
    "socket2",
    "sqlx",
    "surf",
    "tokio-native-tls",
    "tokio-postgres",
    "tokio-postgres-rustls",
    "tokio-rustls",
    "tokio-tungstenite",
    "tonic",
    "tungstenite",
    "ureq",
    "warp",
    "wasmtime-wasi-http",
    "wiremock",
];

/// Crates that live in one crate of ours: beginning of the name, owner, reason.
const HEAVY: [(&str, &str, &str); 14] = [
    ("wasmtime", "wharf-sandbox", "only the sandbox knows the engine"),
    ("cranelift", "wharf-sandbox", "only the sandbox knows the engine"),
    ("wasmparser", "wharf-sandbox", "only the sandbox reads components"),
    ("wit-", "wharf-sandbox", "only the sandbox reads components"),
    ("rusqlite", "wharf-store", "only the store knows SQLite"),
    ("libsqlite3", "wharf-store", "only the store knows SQLite"),
    ("tokio-postgres", "wharf-store", "only the store knows PostgreSQL"),
    ("deadpool", "wharf-store", "only the store knows PostgreSQL"),
    ("eventsource-stream", "wharf-provider", "streams are framed in one place, behind its guard"),
    ("anyhow", "wharf-cli", "libraries have typed errors"),
    ("clap", "wharf-cli", "libraries know no command line"),
    ("anstream", "wharf-cli", "libraries know no terminal"),
    ("comfy-table", "wharf-cli", "libraries know no terminal"),
    ("indicatif", "wharf-cli", "libraries know no terminal"),
];

/// What sources may not name: path or word, the crates that may (folders of `host/`), reason.
const WORDS: [(&str, &[&str], &str); 17] = [
    ("std::fs", &["store", "sandbox", "simulate", "cli"], "files are opened relative to an opened folder (cap-std)"),
    ("tokio::fs", &[], "files are opened relative to an opened folder (cap-std)"),
    ("cap_std::net", &[], "cap-std is here for files"),
    ("std::net", &["provider", "simulate", "cli", "store"], "who reaches a network is named in this test"),
    ("tokio::net", &["simulate"], "only the simulated provider listens"),
    ("TcpStream", &["simulate"], "only the simulated provider has sockets of its own"),
    ("TcpListener", &["simulate"], "only the simulated provider listens"),
    ("UdpSocket", &[], "nothing of ours speaks UDP"),
    ("UnixStream", &[], "nothing of ours speaks over such sockets"),
    ("process::Command", &["cli"], "no tool and no library starts a process"),
    ("tokio::process", &["cli"], "no tool and no library starts a process"),
    ("process::exit", &["cli"], "a library returns errors"),
    ("std::env", &["cli"], "libraries read no environment but what a harness names"),
    ("unsafe_code", &["sandbox"], "unsafe code is at one place of the sandbox"),
    ("todo", &[], "what is not built is not here"),
    ("unimplemented", &[], "what is not built is not here"),
    ("home_dir", &["cli"], "a library knows no home"),
];

/// What core's sources may not name on top of that: time, ids and randomness come into it as values.
const CORE_WORDS: [&str; 13] = [
    "std::thread",
    "std::process",
    "std::io",
    "std::os",
    "Instant",
    "SystemTime",
    "tokio",
    "futures",
    "Future",
    "await",
    "rand",
    "getrandom",
    "uuid",
];

/// What core may not depend on, tests included: begin of the name.
const CORE_CRATES: [&str; 12] =
    ["tokio", "futures", "async", "rand", "getrandom", "uuid", "chrono", "jiff", "time", "cap-", "rustix", "tempfile"];

#[test]
fn crates_name_only_the_siblings_below_them() {
    let ours: BTreeSet<&str> = RULES.iter().map(|rule| rule.package).collect();
    let mut broken = Broken::default();
    for (rule, manifest) in manifests() {
        for (name, section, _) in dependencies(&manifest) {
            let for_the_example = (rule.package, section.as_str(), name.as_str()) == EXAMPLE;
            if ours.contains(name.as_str()) && !rule.siblings.contains(&name.as_str()) && !for_the_example {
                broken.say(format!("{} names {name} in [{section}]: {}", rule.package, rule.why));
            }
        }
    }
    broken.check();
}

#[test]
fn every_crate_of_the_host_has_a_rule_and_is_in_the_architecture_page() {
    let page = text(&repository().join("ARCHITECTURE.md"));
    let mut broken = Broken::default();
    for folder in std::fs::read_dir(repository().join("host")).unwrap() {
        let folder = folder.unwrap().file_name().into_string().unwrap();
        let Some(rule) = RULES.iter().find(|rule| rule.folder == folder) else {
            broken.say(format!("host/{folder} has no rule: say in {} what it may name, and why", file!()));
            continue;
        };
        let manifest = manifest(rule);
        let package = manifest["package"]["name"].as_str().unwrap();
        if package != rule.package {
            broken.say(format!("host/{folder} is the package {package:?}, its rule says {:?}", rule.package));
        }
        if !page.contains(&format!("`host/{folder}`")) {
            broken.say(format!("ARCHITECTURE.md does not name `host/{folder}`"));
        }
    }
    broken.check();
}

#[test]
fn network_crates_are_named_only_where_the_design_lists_them() {
    let mut broken = Broken::default();
    for (rule, manifest) in manifests() {
        for (name, section, features) in dependencies(&manifest) {
            let for_tests = section == "dev-dependencies";
            let mut found = Vec::new();
            if NETWORK.contains(&name.as_str()) && !(for_tests && name == "wiremock") {
                found.push(name.clone());
            }
            if ["tokio", "rustix"].contains(&name.as_str()) && !for_tests {
                let network = features.iter().filter(|feature| ["net", "full"].contains(&feature.as_str()));
                found.extend(network.map(|feature| format!("{name}/{feature}")));
            }
            for found in found.iter().filter(|found| !rule.network.contains(&found.as_str())) {
                broken.say(format!("{} names {found} in [{section}]: {}", rule.package, rule.why));
            }
        }
    }
    broken.check();
}

#[test]
fn shared_versions_turn_no_network_on_for_everyone() {
    let workspace = toml(&repository().join("Cargo.toml"));
    let mut broken = Broken::default();
    for (name, _, features) in dependencies_of(&workspace["workspace"]["dependencies"], "workspace.dependencies") {
        if ["tokio", "rustix"].contains(&name.as_str())
            && features.iter().any(|feature| feature == "net" || feature == "full")
        {
            broken.say(format!(
                "Cargo.toml turns on {name}'s network for every crate: name the feature where it is used"
            ));
        }
    }
    let jsonschema = &workspace["workspace"]["dependencies"]["jsonschema"];
    if jsonschema.get("default-features").and_then(Value::as_bool) != Some(false)
        || jsonschema.get("features").is_some()
    {
        broken.say(
            "jsonschema has features: its defaults fetch the files and addresses that a tool's schema names".into(),
        );
    }
    broken.check();
}

#[test]
fn heavy_crates_live_in_one_crate_each() {
    let mut broken = Broken::default();
    let mut all: Vec<(String, Table)> =
        manifests().map(|(rule, manifest)| (rule.package.to_owned(), manifest)).collect();
    all.push(("wharf-tests".into(), toml(&repository().join("tests/Cargo.toml"))));
    for (package, manifest) in all {
        for (name, section, _) in dependencies(&manifest) {
            for (start, owner, why) in HEAVY.iter().filter(|(start, ..)| name.starts_with(start)) {
                if package != *owner {
                    broken.say(format!("{package} names {name} in [{section}], only {owner} may ({start}…): {why}"));
                }
            }
            if package == "wharf-core" && CORE_CRATES.iter().any(|start| name.starts_with(start)) {
                broken
                    .say(format!("wharf-core names {name} in [{section}]: no I/O, no async, no clock, no randomness"));
            }
        }
    }
    broken.check();
}

#[test]
fn the_library_builds_without_the_engine_and_without_sqlite() {
    let runtime = manifest(&RULES[4]);
    assert_eq!(runtime["features"]["default"], Value::from(vec!["components", "sqlite"]));
    assert_eq!(runtime["features"]["components"], Value::from(vec!["dep:wharf-sandbox"]));
    assert_eq!(runtime["dependencies"]["wharf-sandbox"]["optional"], Value::from(true));
    let store = manifest(&RULES[1]);
    assert_eq!(store["features"]["default"], Value::from(vec!["sqlite"]));
    for optional in ["rusqlite", "tokio", "tokio-postgres", "tokio-postgres-rustls", "deadpool-postgres", "rustls"] {
        assert_eq!(store["dependencies"][optional]["optional"], Value::from(true), "{optional}");
    }
}

#[test]
fn there_is_one_binary() {
    let mut binaries = Vec::new();
    for folder in members() {
        let folder_name = folder.strip_prefix(repository()).unwrap().display().to_string();
        if let Some(Value::Array(named)) = toml(&folder.join("Cargo.toml")).get("bin") {
            let names = named.iter().map(|bin| format!("{folder_name}: {}", bin["name"].as_str().unwrap()));
            binaries.extend(names);
        } else if folder.join("src/main.rs").exists() {
            binaries.push(format!("{folder_name}: src/main.rs"));
        }
        binaries.extend(files(&folder.join("src/bin"), ".rs").iter().map(|bin| bin.display().to_string()));
    }
    assert_eq!(
        binaries,
        ["host/cli: wharf"],
        "plain `cargo run` needs one binary; helpers are hidden subcommands of it"
    );
}

#[test]
fn lints_are_the_workspaces_and_unsafe_code_is_at_two_places() {
    let lints = toml(&repository().join("Cargo.toml"))["workspace"]["lints"].clone();
    assert_eq!(lints["rust"]["unsafe_code"], Value::from("forbid"));
    let mut broken = Broken::default();
    for folder in members() {
        let manifest = toml(&folder.join("Cargo.toml"));
        let mut expected = Value::from(Table::from_iter([("workspace".to_owned(), Value::from(true))]));
        if folder.ends_with("host/sandbox") || folder.ends_with("tests/vfs") {
            // A member cannot take the workspace's table and change one line of it.
            expected = lints.clone();
            expected["rust"]["unsafe_code"] = Value::from("deny");
        }
        if manifest.get("lints") != Some(&expected) {
            broken.say(format!(
                "{}: [lints] is not the workspace's, with unsafe code at `deny` in the sandbox and the tests' disk alone",
                folder.display()
            ));
        }
    }
    // A set: the one package lies in the other's folder.
    let mut allowed = BTreeSet::new();
    for path in members().iter().flat_map(|folder| files(folder, ".rs")) {
        let code = code(&text(&path));
        for line in lines_naming(&code, "unsafe_code") {
            allowed.insert(format!("{}:{}", shown(&path), code.lines().nth(line - 1).unwrap_or_default().trim()));
        }
    }
    assert_eq!(
        Vec::from_iter(allowed),
        ["host/sandbox/src/compile.rs:#[allow(unsafe_code)]", "tests/vfs/src/shim.rs:#![allow(unsafe_code)]",],
        "unsafe code has one place in what ships: what trusts the cache; and one in what tests it: SQLite's pointers"
    );
    broken.check();
}

#[test]
fn sources_name_files_sockets_processes_and_the_environment_only_where_listed() {
    let mut broken = Broken::default();
    for rule in &RULES {
        for path in files(&host(rule).join("src"), ".rs") {
            let code = code(&text(&path));
            for (word, allowed, why) in WORDS.iter().filter(|(_, allowed, _)| !allowed.contains(&rule.folder)) {
                for line in lines_naming(&code, word) {
                    let allowed = if allowed.is_empty() {
                        "no crate may".into()
                    } else {
                        format!("only {} may", allowed.join(", "))
                    };
                    broken.say(format!("{}:{line} names {word}, {allowed}: {why}", shown(&path)));
                }
            }
        }
    }
    broken.check();
}

#[test]
fn core_knows_no_clock_no_randomness_no_thread_and_no_future() {
    let mut broken = Broken::default();
    for path in files(&host(&RULES[0]).join("src"), ".rs") {
        let code = code(&text(&path));
        for word in CORE_WORDS {
            for line in lines_naming(&code, word) {
                broken.say(format!(
                    "{}:{line} names {word}: core decides; time, ids and chance come in as values",
                    shown(&path)
                ));
            }
        }
    }
    broken.check();
}

#[test]
fn every_module_says_first_what_it_is_for() {
    let mut broken = Broken::default();
    for path in members().iter().flat_map(|folder| files(folder, ".rs")) {
        if !text(&path).starts_with("//!") {
            broken
                .say(format!("{} does not begin with `//!`: what it is for and what it must never know", shown(&path)));
        }
    }
    broken.check();
}

#[test]
fn every_crate_has_its_bounds_in_one_file() {
    let mut broken = Broken::default();
    for rule in RULES.iter().filter(|rule| rule.folder != "cli") {
        if !host(rule).join("src/limits.rs").exists() {
            broken.say(format!(
                "host/{}/src/limits.rs is not there: waits and buffers take their bounds from it",
                rule.folder
            ));
        }
    }
    broken.check();
}

#[test]
fn files_that_the_pages_name_are_there() {
    let mut broken = Broken::default();
    for page in ["README.md", "ARCHITECTURE.md", "SECURITY.md", "CHANGELOG.md"] {
        for name in named_paths(&text(&repository().join(page))) {
            if !repository().join(&name).exists() {
                broken.say(format!("{page} names {name}, which is not there"));
            }
        }
    }
    let pages = files(&repository(), ".md");
    for page in &pages {
        for link in links(&text(page)) {
            if !page.parent().unwrap().join(&link).exists() {
                broken.say(format!("{} links to {link}, which is not there", shown(page)));
            }
        }
    }
    broken.check();
}

#[test]
fn names_are_found_through_groups_and_not_in_texts_or_comments() {
    let source = r##"
use std::{collections::{fs, x}, fs}; // std::fs
let a = "std::fs"; let b = r#"std::fs " "#; let c = 'a'; let d: &'a str = x; /* std::fs /* */ std::fs */
std::fs::read(); my_std::fs; std::fs_more; '\''; std::fs;
"##;
    let code = code(source);
    assert_eq!(lines_naming(&code, "std::fs"), [2, 4]);
    assert_eq!(lines_naming(&code, "std::collections"), [2]);
    assert_eq!(lines_naming(&code, "str"), [3]);
    assert_eq!(code.lines().count(), source.lines().count());
}

/// Paths between backticks: what begins with a folder or file of the repository's root and has a slash, or is such a file.
fn named_paths(page: &str) -> Vec<String> {
    let mut outside_blocks = String::new();
    for (n, part) in page.split("```").enumerate() {
        if n % 2 == 0 {
            outside_blocks.push_str(part);
        }
    }
    let root = std::fs::read_dir(repository()).unwrap();
    let root: BTreeSet<String> = root.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    let quoted = outside_blocks.split('`').skip(1).step_by(2);
    let is_path = |name: &&str| {
        !name.contains(|char: char| char.is_whitespace() || "*{}<>…".contains(char))
            && name
                .split_once('/')
                .is_some_and(|(first, _)| root.contains(first) && !["target", ".wharf"].contains(&first))
    };
    quoted.filter(is_path).map(|name| name.trim_end_matches('/').to_owned()).collect()
}

/// Targets of relative links.
fn links(page: &str) -> Vec<String> {
    let targets = page.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target);
    let relative = targets
        .filter(|target| !target.contains("://") && !target.starts_with('#') && !target.contains(char::is_whitespace));
    relative.map(|target| target.split('#').next().unwrap_or(target).to_owned()).collect()
}

/// Everything that breaks a rule, said at once.
#[derive(Default)]
struct Broken(String);

impl Broken {
    fn say(&mut self, what: String) {
        writeln!(self.0, "  {what}").unwrap();
    }

    fn check(self) {
        assert!(self.0.is_empty(), "\n{}", self.0);
    }
}

fn host(rule: &Rule) -> PathBuf {
    repository().join("host").join(rule.folder)
}

fn manifest(rule: &Rule) -> Table {
    toml(&host(rule).join("Cargo.toml"))
}

fn manifests() -> impl Iterator<Item = (&'static Rule, Table)> {
    RULES.iter().map(|rule| (rule, manifest(rule)))
}

/// Every package of the host's workspace.
fn members() -> Vec<PathBuf> {
    RULES
        .iter()
        .map(host)
        .chain(["tests", "tests/postgres", "tests/sim", "tests/vfs"].map(|folder| repository().join(folder)))
        .collect()
}

fn toml(path: &Path) -> Table {
    text(path).parse().unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn shown(path: &Path) -> String {
    path.strip_prefix(repository()).unwrap_or(path).display().to_string()
}

/// Name of the package, section, features named there; of every section, those of one target or of a build script too.
fn dependencies(manifest: &Table) -> Vec<(String, String, Vec<String>)> {
    let mut found = Vec::new();
    let targets = manifest.get("target").and_then(Value::as_table);
    let tables = targets.into_iter().flatten().filter_map(|(_, target)| target.as_table()).chain([manifest]);
    for table in tables {
        for section in ["dependencies", "dev-dependencies", "build-dependencies"] {
            if let Some(dependencies) = table.get(section) {
                found.extend(dependencies_of(dependencies, section));
            }
        }
    }
    found
}

fn dependencies_of(dependencies: &Value, section: &str) -> Vec<(String, String, Vec<String>)> {
    let entries = dependencies.as_table().unwrap().iter();
    let entry = |(key, value): (&String, &Value)| {
        let name = value.get("package").and_then(Value::as_str).unwrap_or(key);
        let features = value.get("features").and_then(Value::as_array).into_iter().flatten();
        let features = features.map(|feature| feature.as_str().unwrap().to_owned()).collect();
        (name.to_owned(), section.to_owned(), features)
    };
    entries.map(entry).collect()
}
