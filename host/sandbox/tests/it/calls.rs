//! What goes into a call and what comes of it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use wharf_core::BlobDigest;
use wharf_core::digest::Digest;
use wharf_core::tool::{Claims, Content, Definition, Failure, FailureKind, Grammar, GrammarSyntax, InputFormat};
use wharf_sandbox::{Attachment, CallOutcome, Captured, Observer, OutputKind, Progress};

use crate::kit::{Def, Given, Guest, In, call, load, run, text};

// covers Z11
#[tokio::test]
async fn a_definition_is_taken_whole_and_each_claim_is_false_unless_said() {
    let mut guest = Guest::echo();
    guest.definitions = vec![
        Def {
            name: "read_file-2".into(),
            title: Some("Read a file".into()),
            category: Some("files".into()),
            description: "Reads. Naïve café ✓".into(),
            input: In::Json(r#"{"type":"object","properties":{"b":{"const":18446744073709551615},"a":{}}}"#.into()),
            output_schema: Some(r#"{"type":"string"}"#.into()),
            claims: 1 | 4,
        },
        Def::text("plain"),
        Def { input: In::Grammar(1, "[a-z]+".into()), claims: 2 | 8, ..Def::text("regex") },
        Def { input: In::Grammar(0, "start: \"x\"".into()), ..Def::text("lark") },
    ];
    let plain = Definition {
        name: "plain".into(),
        title: None,
        category: None,
        description: "a tool".into(),
        input: InputFormat::Text,
        output_schema: None,
        claims: Claims { read_only: false, idempotent: false, destructive: false, open_world: false },
    };
    let grammar = |syntax, definition: &str| InputFormat::Grammar(Grammar { syntax, definition: definition.into() });
    let expected = vec![
        Definition {
            name: "read_file-2".into(),
            title: Some("Read a file".into()),
            category: Some("files".into()),
            description: "Reads. Naïve café ✓".into(),
            input: InputFormat::JsonSchema(
                serde_json::json!({"type": "object", "properties": {"b": {"const": u64::MAX}, "a": {}}}),
            ),
            output_schema: Some(serde_json::json!({"type": "string"})),
            claims: Claims { read_only: true, idempotent: false, destructive: true, open_world: false },
        },
        plain.clone(),
        Definition {
            name: "regex".into(),
            input: grammar(GrammarSyntax::Regex, "[a-z]+"),
            claims: Claims { read_only: false, idempotent: true, destructive: false, open_world: true },
            ..plain.clone()
        },
        Definition { name: "lark".into(), input: grammar(GrammarSyntax::Lark, "start: \"x\""), ..plain },
    ];
    let guest = load(&guest, Given::default()).await.unwrap();
    assert_eq!(guest.definitions("{}").await.unwrap(), expected);
}

// covers Q19
#[tokio::test]
async fn a_component_gets_the_exact_raw_text_of_a_custom_call() {
    let guest = load(&Guest::echo(), Given::default()).await.unwrap();
    for exact in ["", "two\nlines\r\nand \"quotes\" \\n \u{0} \u{feff} ✓", "  {\"not\": json  ", "\"a string\""] {
        assert_eq!(text(&guest, exact).await, exact);
    }
    let large = "ab✓\n".repeat(8_000);
    assert_eq!(text(&guest, &large).await, large);
}

#[tokio::test]
async fn every_member_of_an_invocation_reaches_the_component() {
    // Gives back what lies between two offsets of its parameters: tool, config, call id, key, then attempt.
    let pick = |pick: &str| Guest::new(&format!("(call $ok_text (local.get ${pick}) (local.get ${pick}_len))"));
    let mut invocation = call("tool", "input");
    invocation.config = r#"{"a":1}"#.into();
    invocation.attempt = 42;
    for (member, expected) in [("tool", "tool"), ("config", r#"{"a":1}"#), ("id", "call-1"), ("key", "key-1")] {
        let guest = load(&pick(member), Given::default()).await.unwrap();
        let outcome = guest.invoke(invocation.clone(), Arc::new(())).await.outcome;
        assert_eq!(outcome, CallOutcome::Success(vec![Content::Text(expected.into())]), "{member}");
    }
    let attempt = load(&Guest::new("(call $ok_number (local.get $attempt))"), Given::default()).await.unwrap();
    let outcome = attempt.invoke(invocation.clone(), Arc::new(())).await.outcome;
    assert_eq!(outcome, CallOutcome::Success(vec![Content::Text("42".into())]));
    // The time that is left is at most the limit and more than nothing.
    let left = Guest::new(
        "(call $ok_number (i32.and (i64.gt_u (local.get $left) (i64.const 0)) (i64.le_u (local.get $left) (i64.const 1500))))",
    );
    let left = load(&left, Given::default()).await.unwrap();
    invocation.time_limit = Some(Duration::from_millis(1500));
    let outcome = left.invoke(invocation, Arc::new(())).await.outcome;
    assert_eq!(outcome, CallOutcome::Success(vec![Content::Text("01".into())]));
}

// covers Q18
#[tokio::test]
async fn contents_and_failures_become_the_one_envelope() {
    let json =
        load(&Guest::new("(call $ok_json (local.get $input) (local.get $input_len))"), Given::default()).await.unwrap();
    let exact = r#"{"b": 1.0, "a": 18446744073709551615}"#;
    assert_eq!(
        run(&json, exact).await.outcome.into_envelope(),
        format!(r#"{{"result":{exact},"error":null,"images":[]}}"#)
    );
    // What is called JSON and is not is text: the call had its effects.
    let outcome = run(&json, "{oops").await.outcome;
    assert_eq!(outcome, CallOutcome::Success(vec![Content::Text("{oops".into())]));
    let fail =
        load(&Guest::new("(call $fail (i32.const 1) (local.get $input) (local.get $input_len))"), Given::default())
            .await
            .unwrap();
    let outcome = run(&fail, "no such file").await.outcome;
    assert_eq!(outcome, CallOutcome::Failure(Failure::new(FailureKind::NotFound, "no such file")));
    assert_eq!(
        outcome.into_envelope(),
        r#"{"result":null,"error":{"kind":"not-found","message":"no such file"},"images":[]}"#
    );
}

#[tokio::test]
async fn every_kind_of_failure_keeps_its_kind() {
    let kinds = [
        FailureKind::InvalidInput,
        FailureKind::NotFound,
        FailureKind::Denied,
        FailureKind::Unavailable,
        FailureKind::TimedOut,
        FailureKind::Cancelled,
        FailureKind::Conflict,
        FailureKind::Failed,
    ];
    let guest = Guest::new(
        "(call $fail (i32.sub (i32.load8_u (local.get $input)) (i32.const 48)) (local.get $input) (local.get $input_len))",
    );
    let guest = load(&guest, Given::default()).await.unwrap();
    for (n, kind) in kinds.into_iter().enumerate() {
        let outcome = run(&guest, &n.to_string()).await.outcome;
        assert_eq!(outcome, CallOutcome::Failure(Failure::new(kind, n.to_string())));
    }
}

#[tokio::test]
async fn a_call_has_no_state_of_an_earlier_one() {
    let guest = Guest::new(
        "(global.set $count (i32.add (global.get $count) (i32.const 1))) (call $ok_number (global.get $count))",
    )
    .core("(global $count (mut i32) (i32.const 0))");
    let guest = load(&guest, Given::default()).await.unwrap();
    for _ in 0..3 {
        assert_eq!(text(&guest, "").await, "01");
    }
}

#[tokio::test]
async fn a_trap_is_an_outcome_that_names_the_functions() {
    let guest = Guest::new("(call $outer)")
        .core("(func $outer (result i32) (call $read_config) (i32.const 0)) (func $read_config unreachable)");
    let guest = load(&guest, Given::default()).await.unwrap();
    let outcome = run(&guest, "").await.outcome;
    assert_eq!(
        outcome,
        CallOutcome::Trapped {
            message: "wasm trap: wasm `unreachable` instruction executed in read_config, called from outer, called from invoke"
                .into()
        }
    );
    assert_eq!(
        outcome.into_envelope(),
        r#"{"result":null,"error":{"kind":"failed","message":"the tool crashed: wasm trap: wasm `unreachable` instruction executed in read_config, called from outer, called from invoke"},"images":[]}"#
    );
    // The capability lives on.
    assert!(matches!(run(&guest, "").await.outcome, CallOutcome::Trapped { .. }));
}

// A C++ name whose every level stands for twice the one before it: 200 bytes that stand for more text than there is memory.
// It would be spelled out when the call's time is over.
#[tokio::test]
async fn a_hostile_function_name_is_shown_as_it_is() {
    let levels: String =
        (0..19).map(|n| format!("S_IS{}_S{0}_E", char::from_digit(n, 36).unwrap()).to_uppercase()).collect();
    let name = format!("_Z1f1AIiiE{levels}");
    let guest = Guest::new("(call $outer)").core(&format!(
        r#"(func $outer (@name "_ZN4core5inner17h0123456789abcdefE") (result i32) (call $bomb) (i32.const 0))
           (func $bomb (@name "{name}") unreachable)"#
    ));
    let guest = load(&guest, Given::default()).await.unwrap();
    assert_eq!(
        run(&guest, "").await.outcome,
        CallOutcome::Trapped {
            message: format!(
                "wasm trap: wasm `unreachable` instruction executed in {name}, called from core::inner, called from invoke"
            )
        }
    );
}

const STDOUT: &str = r#"
  (import "wasi:io/error@0.2.0" (instance $error (export "error" (type (sub resource)))))
  (alias export $error "error" (type $error))
  (import "wasi:io/streams@0.2.0" (instance $streams
    (export "output-stream" (type $out (sub resource)))
    (alias outer 1 $error (type $e_))
    (export "error" (type $e (eq $e_)))
    (type $se_ (variant (case "last-operation-failed" (own $e)) (case "closed")))
    (export "stream-error" (type $se (eq $se_)))
    (export "[method]output-stream.blocking-write-and-flush"
      (func (param "self" (borrow $out)) (param "contents" (list u8)) (result (result (error $se)))))))
  (alias export $streams "output-stream" (type $output))
  (import "wasi:cli/stdout@0.2.0" (instance $stdout
    (alias outer 1 $output (type $o_)) (export "output-stream" (type $o (eq $o_)))
    (export "get-stdout" (func (result (own $o))))))
"#;

fn printing(times: u32) -> Guest {
    let invoke = format!(
        r#"(local $n i32) (local $stream i32)
           (local.set $stream (call $get_stdout))
           (loop $again
             (call $write (local.get $stream) (local.get $input) (local.get $input_len) (i32.const 0x80300))
             (local.set $n (i32.add (local.get $n) (i32.const 1)))
             (br_if $again (i32.lt_u (local.get $n) (i32.const {times}))))
           (call $ok_number (i32.load8_u (i32.const 0x80300)))"#
    );
    Guest::new(&invoke).imports(
        STDOUT,
        &[
            ("get-stdout", "$stdout", "get-stdout"),
            ("write", "$streams", "[method]output-stream.blocking-write-and-flush"),
        ],
        r#"(import "host" "get-stdout" (func $get_stdout (result i32)))
           (import "host" "write" (func $write (param i32 i32 i32 i32)))"#,
    )
}

#[derive(Default)]
struct Watching {
    output: Mutex<Vec<u8>>,
    progress: Mutex<Vec<Progress>>,
}

impl Observer for Watching {
    fn progress(&self, progress: Progress) {
        self.progress.lock().unwrap().push(progress);
    }

    fn output(&self, kind: OutputKind, bytes: &[u8]) {
        assert_eq!(kind, OutputKind::Stdout);
        self.output.lock().unwrap().extend(bytes);
    }
}

#[tokio::test]
async fn standard_output_is_kept_up_to_its_bound_and_shown_as_it_comes() {
    let line = format!("{}\n", "x".repeat(1023));
    for (times, truncated) in [(1, false), (64, false), (65, true), (1000, true)] {
        let guest = load(&printing(times), Given::default()).await.unwrap();
        let watching = Arc::new(Watching::default());
        let report = guest.invoke(call("tool", &line), watching.clone()).await;
        assert_eq!(report.outcome, CallOutcome::Success(vec![Content::Text("00".into())]));
        let kept = line.repeat(times.min(64) as usize);
        assert_eq!(*watching.output.lock().unwrap(), kept.as_bytes());
        assert_eq!(report.stdout, Captured { text: kept, truncated, total_bytes: u64::from(times) * 1024 });
        assert_eq!(report.stderr, Captured::default());
    }
}

#[tokio::test]
async fn progress_reaches_the_observer_and_not_more_often_than_it_may() {
    let imports = r#"
      (import "wharf:tool/progress@0.1.0-draft" (instance $progress
        (export "report" (func (param "message" string) (param "done" (option u64)) (param "total" (option u64))))))
    "#;
    let guest = Guest::new(
        r#"(local $n i32)
           (loop $again
             (call $report (local.get $input) (local.get $input_len) (i32.const 1) (i64.const 3) (i32.const 0) (i64.const 0))
             (local.set $n (i32.add (local.get $n) (i32.const 1)))
             (br_if $again (i32.lt_u (local.get $n) (i32.const 1000))))
           (call $ok_number (i32.const 0))"#,
    )
    .imports(imports, &[("report", "$progress", "report")], r#"(import "host" "report" (func $report (param i32 i32 i32 i64 i32 i64)))"#);
    let guest = load(&guest, Given::default()).await.unwrap();
    let watching = Arc::new(Watching::default());
    let long = "é".repeat(1000);
    guest.invoke(call("tool", &long), watching.clone()).await;
    let seen = watching.progress.lock().unwrap();
    let expected = Progress { message: "é".repeat(512), done: Some(3), total: None };
    assert!(!seen.is_empty() && seen.len() < 100, "{} reports", seen.len());
    assert!(seen.iter().all(|progress| *progress == expected));
}

const TYPES: &str = r#"
  (import "wharf:tool/types@0.1.0-draft" (instance $types
    (type $kind_ (enum "invalid-input" "not-found" "denied" "unavailable" "timed-out" "cancelled" "conflict" "failed"))
    (export "failure-kind" (type $kind (eq $kind_)))
    (type $failure_ (record (field "kind" $kind) (field "message" string) (field "retry-after-ms" (option u64)) (field "details" (option string))))
    (export "failure" (type $failure (eq $failure_)))
    (type $blob_ (record (field "media-type" string) (field "name" (option string)) (field "bytes" (list u8))))
    (export "blob" (type $blob (eq $blob_)))
    (type $content_ (variant (case "text" string) (case "json" string) (case "blob" $blob)))
    (export "content" (type $content (eq $content_)))))
  (alias export $types "failure" (type $host-failure))
  (alias export $types "content" (type $host-content))
"#;

#[tokio::test]
async fn a_blob_that_was_handed_to_the_call_can_be_read_and_no_other() {
    let imports = format!(
        r#"{TYPES}
        (import "wharf:tool/blobs@0.1.0-draft" (instance $blobs
          (alias outer 1 $host-failure (type $f_)) (export "failure" (type $f (eq $f_)))
          (export "read" (func (param "digest" string) (param "offset" u64) (param "length" u32)
            (result (result (list u8) (error $f)))))))"#
    );
    // Reads 4 bytes from offset 8 of the blob whose digest is the input. Failures give their kind.
    let guest = Guest::new(
        r#"(call $read (local.get $input) (local.get $input_len) (i64.const 8) (i32.const 4) (i32.const 0x80300))
           (if (result i32) (i32.load8_u (i32.const 0x80300))
             (then (call $ok_number (i32.load8_u (i32.const 0x80308))))
             (else (call $ok_text (i32.load (i32.const 0x80308)) (i32.load (i32.const 0x8030c)))))"#,
    )
    .imports(
        &imports,
        &[("read", "$blobs", "read")],
        r#"(import "host" "read" (func $read (param i32 i32 i64 i32 i32)))"#,
    );
    let guest = load(&guest, Given::default()).await.unwrap();
    let attachment = |bytes: &'static [u8]| Attachment {
        digest: BlobDigest::new(Digest::of(bytes).to_string()),
        media_type: "text/plain".into(),
        name: None,
        bytes: bytes.into(),
    };
    let (handed, other) = (attachment(b"0123456789"), attachment(b"other"));
    for (digest, expected) in [(&handed.digest, "89"), (&other.digest, "01")] {
        let mut invocation = call("tool", digest.as_str());
        invocation.attachments = vec![handed.clone()];
        let outcome = guest.invoke(invocation, Arc::new(())).await.outcome;
        assert_eq!(outcome, CallOutcome::Success(vec![Content::Text(expected.into())]));
    }
}

#[tokio::test]
async fn a_call_of_another_tool_is_denied_with_the_line_that_would_grant_it() {
    let imports = format!(
        r#"{TYPES}
        (import "wharf:tool/calls@0.1.0-draft" (instance $calls
          (alias outer 1 $host-failure (type $f_)) (export "failure" (type $f (eq $f_)))
          (alias outer 1 $host-content (type $c_)) (export "content" (type $c (eq $c_)))
          (export "call" (func (param "name" string) (param "input" string)
            (result (result (list $c) (error $f)))))))"#
    );
    let guest = Guest::new(
        r#"(call $call (local.get $input) (local.get $input_len) (i32.const 0) (i32.const 0) (i32.const 0x80300))
           (call $fail (i32.load8_u (i32.const 0x80308)) (i32.load (i32.const 0x8030c)) (i32.load (i32.const 0x80310)))"#,
    )
    .imports(&imports, &[("call", "$calls", "call")], r#"(import "host" "call" (func $call (param i32 i32 i32 i32 i32)))"#);
    let guest = load(&guest, Given::default()).await.unwrap();
    assert_eq!(
        run(&guest, "read_file").await.outcome,
        CallOutcome::Failure(Failure::new(
            FailureKind::Denied,
            "tool \"read_file\" may not be called from capability guest; the policy line that would grant it is \
             tools = [\"read_file\"] in capabilities.guest.grants, which this host does not serve yet"
        ))
    );
}
