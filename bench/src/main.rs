//! What a sandboxed call costs beside the bare engine, and a durable one beside bare syncs, in the same run. Prints a table;
//! `docs/benchmarks.md` holds one. The words `calls`, `rules`, `compiling`, `journal` and `postgres` as arguments run those parts
//! alone;
//! other arguments are paths of components to compile and load.
//!
//! Ratios are what counts: absolute times are those of one machine on one day.

mod bare;
mod journal;
mod measure;
mod postgres;

use std::fmt::Write as _;
use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tokio::runtime::Runtime;
use wharf_core::Call;
use wharf_core::grants::{Grants, Limits};
use wharf_core::harness::Harness;
use wharf_core::policy::Admission;
use wharf_core::rules::ToolTable;
use wharf_core::tool::{Claims, Definition, InputFormat};
use wharf_sandbox::{Capability, Invocation, LoadRequest, Roots, Sandbox, SandboxOptions};

use bare::Bare;
use measure::{Counting, Times, allocations, in_turn, shown};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() -> Result<()> {
    // A caller's own runtime, as an embedder has one; component threads are the sandbox's.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let (parts, components): (Vec<String>, Vec<String>) =
        std::env::args().skip(1).partition(|argument| PARTS.contains(&argument.as_str()));
    let wanted = |part: &str| parts.is_empty() || parts.iter().any(|wanted| wanted == part);
    println!("{:<58} {:>10}   {:>10}   {:>10}", "", "median", "10 %", "90 %");
    if wanted("calls") {
        calls(&runtime)?;
    }
    if wanted("rules") {
        rules()?;
    }
    if wanted("compiling") {
        compiling(&runtime, components)?;
    }
    if wanted("journal") {
        journal::run(&runtime)?;
    }
    if wanted("postgres") {
        postgres::run(&runtime)?;
    }
    Ok(())
}

/// What may be run alone.
const PARTS: [&str; 5] = ["calls", "rules", "compiling", "journal", "postgres"];

/// A call in a fresh store over the bare engine, and the host's share of a call with 1 KiB of JSON in and out.
fn calls(runtime: &Runtime) -> Result<()> {
    let component = wat::parse_str(include_str!("echo.wat"))?;
    let bare = Arc::new(engine(Bare::new(&component))?);
    let sandbox = Sandbox::new(SandboxOptions::default())?;
    let tool = runtime.block_on(load(&sandbox, "echo", component))?;
    let table = table(1)?;
    let small = r#"{"text":"x"}"#;
    let large = format!(r#"{{"text":"{}"}}"#, "x".repeat(1024 - 11));
    ensure!(engine(runtime.block_on(bare.call(small)))? == small, "the bare engine gives back something else");
    let envelope = format!(r#"{{"result":{large},"error":null,"images":[]}}"#);
    ensure!(runtime.block_on(sandboxed(&tool, &large)) == envelope, "the sandbox gives back something else");
    let call = Call::function("call-1", "tool_0", large.clone());
    ensure!(table.authorize(&call).admission == Admission::Start, "policy refuses the call");

    let [on_engine, on_thread, in_sandbox] = in_turn(
        2_000,
        10,
        [
            &mut || drop(black_box(runtime.block_on(bare.call(small)))),
            // The engine again, on another thread: what changing the thread alone costs.
            &mut || {
                let bare = bare.clone();
                let call = runtime.spawn(async move { bare.call(small).await });
                drop(black_box(runtime.block_on(call)));
            },
            &mut || drop(black_box(runtime.block_on(sandboxed(&tool, small)))),
        ],
    );
    row("bare engine: store, instance, call", &on_engine);
    row("bare engine on another thread", &on_thread);
    row("sandbox: the same with grants, limits, captured output", &in_sandbox);
    ratio("sandbox over bare engine", &in_sandbox, &on_engine);
    ratio("sandbox over bare engine on another thread", &in_sandbox, &on_thread);

    let [on_engine, whole] = in_turn(
        2_000,
        10,
        [&mut || drop(black_box(runtime.block_on(bare.call(&large)))), &mut || {
            let policy = table.authorize(&call);
            debug_assert!(policy.admission == Admission::Start);
            drop(black_box(policy));
            drop(black_box(runtime.block_on(sandboxed(&tool, &large))));
        }],
    );
    row("bare engine, 1 KiB of JSON in and out", &on_engine);
    row("rules, schema, sandbox, envelope: 1 KiB in and out", &whole);
    println!("{:<58} {:>10}", "host's share", shown(whole.median().saturating_sub(on_engine.median())));
    Ok(())
}

/// The engine's errors are no standard errors.
fn engine<T>(result: wasmtime::Result<T>) -> Result<T> {
    result.map_err(|error| anyhow::anyhow!("the engine: {error:#}"))
}

/// Looking up what policy says, with and without a schema to check.
fn rules() -> Result<()> {
    let table = table(100)?;
    let plain = Call::custom("call-1", "text_50", "some text");
    let function = Call::function("call-1", "tool_50", r#"{"text":"x"}"#);
    for call in [&plain, &function] {
        ensure!(table.authorize(call).admission == Admission::Start, "policy refuses {call:?}");
    }
    let [plain_times, function_times] = in_turn(
        2_000,
        100,
        [&mut || drop(black_box(table.authorize(&plain))), &mut || drop(black_box(table.authorize(&function)))],
    );
    row("rules among 200 tools, text input", &plain_times);
    row("rules among 200 tools, JSON input with its schema", &function_times);
    let mut policy = None;
    let plain_allocations = allocations(|| policy = Some(table.authorize(&plain)));
    let function_allocations = allocations(|| policy = Some(table.authorize(&function)));
    drop(black_box(policy));
    println!("{:<58} {plain_allocations:>10}", "allocations, text input");
    println!("{:<58} {function_allocations:>10}", "allocations, JSON input with its schema");
    Ok(())
}

/// Loading a component that is compiled, and one whose code is in the cache on disk.
fn compiling(runtime: &Runtime, more: Vec<String>) -> Result<()> {
    let dist = Path::new(env!("CARGO_MANIFEST_DIR")).join("../guest-tools/dist");
    let mut components = vec![("files.wasm".to_owned(), dist.join("files.wasm"), 10)];
    // A component of a language with a runtime of its own, where one was built: compiling it takes seconds.
    for path in more {
        components.push((path.rsplit('/').next().unwrap_or(&path).to_owned(), path.into(), 3));
    }
    for (name, path, samples) in components {
        let bytes = std::fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
        let (mut compiled, mut cached) = (Vec::new(), Vec::new());
        for _ in 0..samples {
            let cache = tempfile::tempdir()?;
            for times in [&mut compiled, &mut cached] {
                let options = SandboxOptions { cache: Some(cache.path().join("code")), ..SandboxOptions::default() };
                let sandbox = Sandbox::new(options)?;
                let start = Instant::now();
                drop(runtime.block_on(load(&sandbox, &name, bytes.clone()))?);
                times.push(start.elapsed());
            }
        }
        let (compiled, cached) = (Times::of(compiled), Times::of(cached));
        row(&format!("compile {name} ({} KiB)", bytes.len() / 1024), &compiled);
        row(&format!("load {name} from the cache"), &cached);
        ratio("compile over cached load", &compiled, &cached);
    }
    Ok(())
}

async fn load(sandbox: &Sandbox, name: &str, bytes: Vec<u8>) -> Result<Capability> {
    let request = LoadRequest {
        name: name.to_owned(),
        bytes: bytes.into(),
        grants: Grants::default(),
        limits: Limits::default(),
        roots: Roots::default(),
    };
    Ok(sandbox.load(request).await?)
}

async fn sandboxed(tool: &Capability, input: &str) -> String {
    let call = Invocation {
        tool: "echo".into(),
        input: input.to_owned(),
        config: "{}".into(),
        call_id: "call-1".into(),
        idempotency_key: "key-1".into(),
        attempt: 1,
        limits: None,
        time_limit: None,
        attachments: Vec::new(),
    };
    tool.invoke(call, Arc::new(())).await.outcome.into_envelope()
}

/// Tools under the rules of a harness of some size: as many with JSON as with text input.
fn table(count: usize) -> Result<ToolTable> {
    let mut text = "[harness]\nname = \"bench\"\n[capabilities.many]\ncomponent = \"many.wasm\"\n".to_owned();
    for n in 0..count {
        writeln!(text, "[capabilities.many.tools.tool_{n}]\nreplay = \"safe\"\nasync = true")?;
    }
    let harness = Harness::parse("bench.toml", &text)?;
    let schema: serde_json::Value = serde_json::from_str(
        r#"{"type":"object","properties":{"text":{"type":"string"}},"required":["text"],"additionalProperties":false}"#,
    )?;
    let definition = |name: String, input| Definition {
        name: name.as_str().into(),
        title: None,
        category: None,
        description: "a tool".into(),
        input,
        output_schema: None,
        claims: Claims::default(),
    };
    let definitions: Vec<Definition> = (0..count)
        .flat_map(|n| {
            [
                definition(format!("tool_{n}"), InputFormat::JsonSchema(schema.clone())),
                definition(format!("text_{n}"), InputFormat::Text),
            ]
        })
        .collect();
    let capability = harness.capability("many").context("the capability is not there")?;
    let bound = harness.bind(capability, &definitions)?;
    ensure!(bound.refused.is_empty(), "refused: {:?}", bound.refused);
    Ok(ToolTable::new(bound.tools, &[]))
}

fn row(what: &str, times: &Times) {
    println!("{what:<58} {times}");
}

fn ratio(what: &str, over: &Times, under: &Times) {
    let under = under.median().max(Duration::from_nanos(1));
    println!("{what:<58} {:>8.2} ×", over.median().as_secs_f64() / under.as_secs_f64());
}
