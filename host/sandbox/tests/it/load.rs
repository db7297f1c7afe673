//! Loading: what is refused, with what error, and what a second load costs.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use wharf_core::digest::Digest;
use wharf_core::grants::Grants;
use wharf_core::tool::{Failure, FailureKind};
use wharf_sandbox::{CompileEvent, ImportReport, ImportVerdict, LoadError, Sandbox, SandboxOptions, inspect};

use crate::kit::{Def, Given, Guest, In, load, load_in, sandbox, text};

fn said(error: &LoadError) -> (String, Option<String>) {
    (error.to_string(), error.hint())
}

#[tokio::test]
async fn what_is_not_a_component_is_refused_with_what_it_is() {
    let refused = async |bytes: Vec<u8>| said(&load_in(&sandbox(), bytes, Given::default()).await.unwrap_err());
    for garbage in [&b""[..], b"\0as", b"#!/bin/sh", b"{}"] {
        assert_eq!(
            refused(garbage.to_vec()).await,
            (
                "capability \"guest\" is not a component: the file does not begin like WebAssembly".into(),
                Some("give the path of a component, a file ending in .wasm".into())
            )
        );
    }
    assert_eq!(
        refused(wat::parse_str("(module)").unwrap()).await,
        (
            "capability \"guest\" is not a component: it is a core module".into(),
            Some("make a component of it with `wasm-tools component new`, or build for wasm32-wasip2".into())
        )
    );
    let whole = Guest::echo().bytes();
    for length in [4, 7, 8, 9, whole.len() / 2, whole.len() - 1] {
        let error = load_in(&sandbox(), whole[..length].to_vec(), Given::default()).await.unwrap_err();
        assert!(
            matches!(error, LoadError::Malformed { .. } | LoadError::Compile { .. } | LoadError::NothingUsable { .. }),
            "{length}: {error:?}"
        );
    }
    let mut long = whole;
    long.resize(wharf_sandbox::limits::COMPONENT_BYTES_MAX + 1, 0);
    assert_eq!(refused(long).await.0, "capability \"guest\" is too large: bytes 134217729, at most 134217728");
}

#[tokio::test]
async fn a_component_that_exports_nothing_usable_is_told_what_it_exports() {
    let bytes = wat::parse_str(r#"(component (type $t (enum "a")) (export "colour" (type $t)))"#).unwrap();
    assert_eq!(
        said(&load_in(&sandbox(), bytes, Given::default()).await.unwrap_err()),
        (
            "capability \"guest\" exports no tools; it exports colour".into(),
            Some("export wharf:tool/tools@0.1.0-draft; `wharf tool inspect` shows what a file exports".into())
        )
    );
    let empty = load_in(&sandbox(), wat::parse_str("(component)").unwrap(), Given::default()).await.unwrap_err();
    assert_eq!(empty.to_string(), "capability \"guest\" exports no tools; it exports nothing");
}

// VER-1, VER-2, VER-3
#[tokio::test]
async fn each_import_is_reported_and_unknown_or_unserved_ones_refuse_the_component() {
    let guest = Guest::echo().imports(
        r#"(import "wasi:keyvalue/store@0.2.0" (instance))
           (import "wasi:random/random@0.2.3" (instance (export "get-random-u64" (func (result u64)))))
           (import "wasi:filesystem/types@0.2.9" (instance))
           (import "wasi:clocks/monotonic-clock@0.1.0" (instance))
           (import "wasi:sockets/network@0.2.0" (instance))
           (import "host" (func))"#,
        &[],
        "",
    );
    let bytes = guest.bytes();
    let report = |name: &str, verdict| ImportReport { name: name.into(), verdict };
    let denied = |line: Option<&str>| ImportVerdict::AnsweredWithDenial { grant_line: line.map(Into::into) };
    let old = ImportVerdict::WrongVersion { served: vec!["0.2".into(), "0.3".into()] };
    let inspection = inspect("guest", &bytes, &Grants::default()).unwrap();
    assert_eq!(
        inspection.imports,
        vec![
            report("wasi:keyvalue/store@0.2.0", ImportVerdict::Unknown),
            report("wasi:random/random@0.2.3", ImportVerdict::Granted),
            report(
                "wasi:filesystem/types@0.2.9",
                denied(Some(r#"fs = [{ host = "./folder", guest = "/folder", access = "read" }]"#))
            ),
            report("wasi:clocks/monotonic-clock@0.1.0", old.clone()),
            report("wasi:sockets/network@0.2.0", denied(None)),
            report("host", ImportVerdict::Unknown),
        ]
    );
    assert_eq!((inspection.tools.as_deref(), inspection.about), (Some("0.1.0-draft"), false));
    assert_eq!((inspection.digest, inspection.bytes), (Digest::of(&bytes), bytes.len() as u64));
    assert_eq!(
        said(&load_in(&sandbox(), bytes, Given::default()).await.unwrap_err()),
        (
            "capability \"guest\" imports what nobody serves: wasi:keyvalue/store@0.2.0 (unknown), \
             wasi:clocks/monotonic-clock@0.1.0 (served: 0.2, 0.3), host (unknown)"
                .into(),
            Some("build the component against a version that is served".into())
        )
    );
}

// VER-1: the name is known, the item is not.
#[tokio::test]
async fn an_import_of_another_shape_names_interface_and_item() {
    let guest = Guest::echo().imports(
        r#"(import "wasi:random/random@0.2.0" (instance (export "get-random-u65" (func (result u64)))))"#,
        &[],
        "",
    );
    let error = load(&guest, Given::default()).await.unwrap_err();
    let LoadError::Mismatch { reason, .. } = &error else { panic!("{error:?}") };
    assert!(reason.contains("wasi:random/random@0.2.0") && reason.contains("get-random-u65"), "{reason}");
}

#[tokio::test]
async fn another_version_of_the_contract_is_refused_with_what_is_served() {
    let mut guest = Guest::echo();
    guest.contract = "0.9.0".into();
    assert_eq!(
        said(&load(&guest, Given::default()).await.unwrap_err()),
        (
            "capability \"guest\" is made for wharf:tool@0.9.0, which is not served".into(),
            Some("build it for wharf:tool@0.1.0-draft".into())
        )
    );
}

#[tokio::test]
async fn everything_that_is_said_to_be_served_is_linked() {
    // Empty instances of every interface on the list: the linker must know each name.
    for version in ["0.2.0", "0.2.9", "0.2.12", "0.3.0"] {
        let names: &[&str] = if version.starts_with("0.2") {
            &[
                "cli/environment",
                "cli/exit",
                "cli/stdin",
                "cli/stdout",
                "cli/stderr",
                "cli/terminal-input",
                "cli/terminal-output",
                "cli/terminal-stdin",
                "cli/terminal-stdout",
                "cli/terminal-stderr",
                "clocks/monotonic-clock",
                "clocks/wall-clock",
                "filesystem/types",
                "filesystem/preopens",
                "http/types",
                "http/outgoing-handler",
                "io/error",
                "io/poll",
                "io/streams",
                "random/random",
                "random/insecure",
                "random/insecure-seed",
                "sockets/network",
                "sockets/instance-network",
                "sockets/ip-name-lookup",
                "sockets/tcp",
                "sockets/tcp-create-socket",
                "sockets/udp",
                "sockets/udp-create-socket",
            ]
        } else {
            &[
                "cli/types",
                "cli/environment",
                "cli/exit",
                "cli/stdin",
                "cli/stdout",
                "cli/stderr",
                "cli/terminal-input",
                "cli/terminal-output",
                "cli/terminal-stdin",
                "cli/terminal-stdout",
                "cli/terminal-stderr",
                "clocks/types",
                "clocks/monotonic-clock",
                "clocks/system-clock",
                "filesystem/types",
                "filesystem/preopens",
                "http/types",
                "http/client",
                "random/random",
                "random/insecure",
                "random/insecure-seed",
                "sockets/types",
                "sockets/ip-name-lookup",
            ]
        };
        let imports: String =
            names.iter().map(|name| format!("(import \"wasi:{name}@{version}\" (instance))\n")).collect();
        let guest = load(&Guest::echo().imports(&imports, &[], ""), Given::default()).await.unwrap();
        assert_eq!(guest.inspection().imports.len(), names.len());
        assert_eq!(text(&guest, "x").await, "x");
    }
}

#[tokio::test]
async fn wrong_definitions_are_refused_with_what_is_wrong() {
    let answer = async |definitions: Vec<Def>| {
        let mut guest = Guest::echo();
        guest.definitions = definitions;
        match load(&guest, Given::default()).await.unwrap().definitions("{}").await {
            Ok(definitions) => format!("{} tools", definitions.len()),
            Err(error) => error.to_string(),
        }
    };
    let input = |schema: &str| vec![Def { input: In::Json(schema.into()), ..Def::text("a") }];
    let prefix = "capability \"guest\" gives a wrong answer to definitions: ";
    let many = |n: usize| (0..n).map(|n| Def::text(&format!("t{n}"))).collect::<Vec<_>>();
    assert_eq!(answer(many(128)).await, "128 tools");
    assert_eq!(answer(many(129)).await, format!("{prefix}129 tools, at most 128 are taken"));
    assert_eq!(answer(vec![]).await, "0 tools");
    assert_eq!(
        answer(vec![Def::text("a"), Def::text("b"), Def::text("a")]).await,
        format!("{prefix}two tools have the name \"a\"")
    );
    assert_eq!(answer(vec![Def::text(&"a".repeat(64))]).await, "1 tools");
    for name in ["", "a b", "a.b", "é", "a\n", &"a".repeat(65)] {
        assert_eq!(
            answer(vec![Def::text(name)]).await,
            format!("{prefix}the name {name:?} is not 1 to 64 characters of A-Z, a-z, 0-9, _ and -")
        );
    }
    assert_eq!(answer(input("{}")).await, "1 tools");
    assert_eq!(answer(input("[]")).await, format!("{prefix}the input schema of tool \"a\" is not a JSON object"));
    assert!(answer(input("{oops")).await.starts_with(&format!("{prefix}the input schema of tool \"a\" is not JSON: ")));
    let nested = |n: usize| input(&format!("{}{{}}{}", "{\"a\":".repeat(n - 1), "}".repeat(n - 1)));
    assert_eq!(answer(nested(64)).await, "1 tools");
    assert_eq!(answer(nested(65)).await, format!("{prefix}the input schema of tool \"a\" is nested deeper than 64"));
    assert!(answer(nested(10_000)).await.starts_with(&format!("{prefix}the input schema of tool \"a\" is not JSON: ")));
    let described = |n: usize| vec![Def { description: "d".repeat(n), ..Def::text("a") }];
    assert_eq!(answer(described(16 << 10)).await, "1 tools");
    assert_eq!(
        answer(described((16 << 10) + 1)).await,
        format!("{prefix}the description of tool \"a\" has 16385 bytes, at most 16384 are taken")
    );
}

#[tokio::test]
async fn a_refused_config_is_an_error_in_the_components_own_words() {
    let mut guest = Guest::echo();
    guest.definitions_body = Some("(call $fail (i32.const 0) (local.get $config) (local.get $config_len))".into());
    guest.config_schema = Some(r#"{"type":"object"}"#.into());
    let guest = load(&guest, Given::default()).await.unwrap();
    assert_eq!(guest.config_schema().await.unwrap(), Some(serde_json::json!({"type": "object"})));
    let error = guest.definitions(r#"{"root":1}"#).await.unwrap_err();
    assert_eq!(
        said(&error),
        (
            "capability \"guest\" refuses its config: {\"root\":1}".into(),
            Some("change capabilities.guest.config".into())
        )
    );
    let LoadError::ConfigRefused { failure, .. } = error else { panic!() };
    assert_eq!(*failure, Failure::new(FailureKind::InvalidInput, r#"{"root":1}"#));
    assert_eq!(guest.describe("{}").await.unwrap(), None);
}

#[derive(Default, Clone)]
struct Compilations(Arc<Mutex<Vec<String>>>);

impl Compilations {
    fn sandbox(&self, cache: Option<&std::path::Path>) -> Sandbox {
        let events = self.0.clone();
        let on_compile = move |event: CompileEvent<'_>| {
            events.lock().unwrap().push(match event {
                CompileEvent::Started { name, .. } => format!("started {name}"),
                CompileEvent::Finished { name, .. } => format!("finished {name}"),
                other => format!("{other:?}"),
            });
        };
        Sandbox::new(SandboxOptions {
            cache: cache.map(Into::into),
            on_compile: Some(Arc::new(on_compile)),
            ..SandboxOptions::default()
        })
        .unwrap()
    }

    fn count(&self) -> usize {
        self.0.lock().unwrap().iter().filter(|event| event.starts_with("started")).count()
    }
}

// LIM-6: what would cost too much to compile is seen before anything is compiled.
#[tokio::test]
async fn a_component_that_costs_too_much_to_compile_is_refused_uncompiled() {
    let compilations = Compilations::default();
    let sandbox = compilations.sandbox(None);
    let mut text = "(component $c)".to_owned();
    for _ in 0..14 {
        text = format!("(component $c {text} (instance (instantiate $c)) (instance (instantiate $c)))");
    }
    let error = load_in(&sandbox, wat::parse_str(&text).unwrap(), Given::default()).await.unwrap_err();
    assert_eq!(error.to_string(), "capability \"guest\" is too large: instances inside it 32767, at most 10000");
    assert_eq!(compilations.count(), 0);
}

// SCHED-1
#[tokio::test]
async fn many_loads_of_one_component_at_once_compile_it_once() {
    let compilations = Compilations::default();
    let sandbox = compilations.sandbox(None);
    let bytes = Guest::echo().bytes();
    let loads = (0..16).map(|_| load_in(&sandbox, bytes.clone(), Given::default()));
    let capabilities: Vec<_> = futures::future::join_all(loads).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(*compilations.0.lock().unwrap(), ["started guest", "finished guest"]);
    assert_eq!(text(&capabilities[15], "x").await, "x");
    let other = Guest::new("(call $ok_number (i32.const 7))").bytes();
    load_in(&sandbox, other, Given::default()).await.unwrap();
    assert_eq!(compilations.count(), 2);
}

// SCHED-2, SCHED-3
#[tokio::test]
async fn a_cached_component_is_not_compiled_again_and_a_tampered_entry_is() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("cache");
    let compilations = Compilations::default();
    let bytes = Guest::echo().bytes();
    let load_anew = async || {
        // A sandbox of its own each time, as a new process would have.
        let sandbox = compilations.sandbox(Some(&cache));
        assert_eq!(sandbox.status().cache, Some(cache.canonicalize().unwrap()));
        let guest = load_in(&sandbox, bytes.clone(), Given::default()).await.unwrap();
        assert_eq!(text(&guest, "still right").await, "still right");
        compilations.count()
    };
    assert_eq!(load_anew().await, 1);
    assert_eq!(load_anew().await, 1);
    let entry = std::fs::read_dir(&cache)
        .unwrap()
        .map(|file| file.unwrap().path())
        .find(|path| path.extension().is_some_and(|extension| extension == "code"))
        .unwrap();
    let whole = std::fs::read(&entry).unwrap();
    let mut tampered = whole.clone();
    *tampered.last_mut().unwrap() ^= 1;
    let versions: [&[u8]; 4] = [&tampered, &whole[..whole.len() / 2], b"", b"not code at all, but longer than a tag"];
    for (n, version) in versions.into_iter().enumerate() {
        std::fs::write(&entry, version).unwrap();
        assert_eq!(load_anew().await, n + 2, "a tampered entry was run");
        assert_eq!(load_anew().await, n + 2, "the entry was not made again");
    }
    std::fs::remove_file(cache.join("key")).unwrap();
    assert_eq!(load_anew().await, 6, "an entry of another key was run");
}

#[tokio::test]
async fn a_cache_folder_that_others_can_write_is_not_used_and_that_is_said() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("cache");
    std::fs::create_dir(&cache).unwrap();
    std::fs::set_permissions(&cache, std::fs::Permissions::from_mode(0o777)).unwrap();
    let sandbox = Compilations::default().sandbox(Some(&cache));
    assert_eq!(sandbox.status().cache, None);
    assert_eq!(sandbox.status().without_cache.as_deref(), Some("the folder is open to others (mode 777)"));
    let guest = load_in(&sandbox, Guest::echo().bytes(), Given::default()).await.unwrap();
    assert_eq!(text(&guest, "x").await, "x");
}

#[test]
fn a_sandbox_can_be_used_from_any_executor() {
    static DONE: AtomicUsize = AtomicUsize::new(0);
    futures::executor::block_on(async {
        let guest = load(&Guest::echo(), Given::default()).await.unwrap();
        assert_eq!(text(&guest, "x").await, "x");
        DONE.fetch_add(1, Ordering::Relaxed);
    });
    assert_eq!(DONE.load(Ordering::Relaxed), 1);
}
