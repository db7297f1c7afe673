//! Deny by absence: each denial with the allowed twin in the same test.

use std::collections::BTreeMap;

use wharf_core::grants::{Grants, HttpGrant};
use wharf_core::tool::Content;
use wharf_sandbox::CallOutcome;

use crate::kit::{Given, Guest, load, run, text};

/// Gives the names and values of its environment and its arguments, each on a line.
fn environment() -> Guest {
    Guest::new(
        r#"(local $n i32) (local $at i32)
           (call $environment (i32.const 0x80300))
           (call $arguments (i32.const 0x80308))
           (local.set $at (i32.load (i32.const 0x80300)))
           (block $done (loop $again
             (br_if $done (i32.eq (local.get $n) (i32.load (i32.const 0x80304))))
             (call $add (i32.load (local.get $at)) (i32.load offset=4 (local.get $at)))
             (call $add (i32.load offset=8 (local.get $at)) (i32.load offset=12 (local.get $at)))
             (local.set $at (i32.add (local.get $at) (i32.const 16)))
             (local.set $n (i32.add (local.get $n) (i32.const 1)))
             (br $again)))
           (if (i32.load (i32.const 0x8030c)) (then unreachable))
           (call $ok_text (i32.const 0x81000) (global.get $length))"#,
    )
    .imports(
        r#"(import "wasi:cli/environment@0.2.0" (instance $env
             (export "get-environment" (func (result (list (tuple string string)))))
             (export "get-arguments" (func (result (list string))))))"#,
        &[("environment", "$env", "get-environment"), ("arguments", "$env", "get-arguments")],
        r#"(import "host" "environment" (func $environment (param i32)))
           (import "host" "arguments" (func $arguments (param i32)))
           (global $length (mut i32) (i32.const 0))
           (func $add (param $from i32) (param $len i32)
             (memory.copy (i32.add (i32.const 0x81000) (global.get $length)) (local.get $from) (local.get $len))
             (global.set $length (i32.add (global.get $length) (local.get $len)))
             (i32.store8 (i32.add (i32.const 0x81000) (global.get $length)) (i32.const 10))
             (global.set $length (i32.add (global.get $length) (i32.const 1))))"#,
    )
}

// AUTH-1: the host's own environment is full, the component's has what was granted by name.
#[tokio::test]
async fn only_granted_environment_values_are_there_and_no_arguments() {
    assert!(std::env::vars().count() > 0);
    let none = load(&environment(), Given::default()).await.unwrap();
    assert_eq!(text(&none, "").await, "");
    let env = BTreeMap::from([("LANG".to_owned(), "C.UTF-8".to_owned()), ("EMPTY".to_owned(), String::new())]);
    let given = Given { grants: Grants { env, ..Grants::default() }, ..Given::default() };
    let some = load(&environment(), given).await.unwrap();
    assert_eq!(text(&some, "").await, "EMPTY\n\nLANG\nC.UTF-8\n");
}

// The pure functions run without any grant, also where the capability has some.
#[tokio::test]
async fn definitions_see_no_environment_and_a_clock_that_stands_still() {
    let mut guest = environment().imports(
        r#"(import "wasi:clocks/wall-clock@0.2.0" (instance $wall
             (type $d_ (record (field "seconds" u64) (field "nanoseconds" u32))) (export "datetime" (type $d (eq $d_)))
             (export "now" (func (result $d)))))
           (import "wasi:random/random@0.2.0" (instance $random (export "get-random-u64" (func (result u64)))))"#,
        &[("now", "$wall", "now"), ("random", "$random", "get-random-u64")],
        r#"
           (import "host" "now" (func $now (param i32)))
           (import "host" "random" (func $random (result i64)))"#,
    );
    // Imports come before functions in a core module.
    let (imports, functions): (Vec<&str>, Vec<&str>) =
        guest.core.lines().partition(|line| line.trim_start().starts_with("(import"));
    guest.core = [imports, functions].concat().join("\n");
    guest.definitions_body = Some(
        r#"(call $environment (i32.const 0x80300))
           (if (i32.load (i32.const 0x80304)) (then (return (call $fail (i32.const 0) (i32.const 0) (i32.const 0)))))
           (call $now (i32.const 0x80310))
           ;; the second, and 8 bytes of randomness, as they are
           (i64.store (i32.const 0x80400) (i64.load (i32.const 0x80310)))
           (i64.store (i32.const 0x80408) (i64.and (call $random) (i64.const 0x7f7f7f7f7f7f7f7f)))
           (i32.store8 (i32.const 0x80403) (i32.const 65))
           (i32.store8 (i32.const 0x80402) (i32.const 65))
           (i32.store8 (i32.const 0x80401) (i32.const 65))
           (i32.store8 (i32.const 0x80400) (i32.const 65))
           (call $fail (i32.const 0) (i32.const 0x80400) (i32.const 16))"#
            .into(),
    );
    let env = BTreeMap::from([("LANG".to_owned(), "C".to_owned())]);
    let given = Given { grants: Grants { env, ..Grants::default() }, ..Given::default() };
    let guest = load(&guest, given).await.unwrap();
    assert_eq!(text(&guest, "").await, "LANG\nC\n");
    let first = guest.definitions("{}").await.unwrap_err().to_string();
    assert!(first.contains("AAAA"), "{first:?}");
    for _ in 0..3 {
        assert_eq!(guest.definitions("{}").await.unwrap_err().to_string(), first);
    }
}

// AUTH-3: no socket and no name, whatever is granted; the answer is the interface's own error, never a trap.
#[tokio::test]
async fn sockets_are_answered_with_their_own_denial() {
    const CODES: &str = r#""unknown" "access-denied" "not-supported" "invalid-argument" "out-of-memory" "timeout"
      "concurrency-conflict" "not-in-progress" "would-block" "invalid-state" "new-socket-limit" "address-not-bindable"
      "address-in-use" "remote-unreachable" "connection-refused" "connection-reset" "connection-aborted"
      "datagram-too-large" "name-unresolvable" "temporary-resolver-failure" "permanent-resolver-failure""#;
    for kind in ["tcp", "udp"] {
        let imports = format!(
            r#"(import "wasi:sockets/network@0.2.0" (instance $network
                 (type $c_ (enum {CODES})) (export "error-code" (type $c (eq $c_)))
                 (type $f_ (enum "ipv4" "ipv6")) (export "ip-address-family" (type $f (eq $f_)))))
               (alias export $network "error-code" (type $code))
               (alias export $network "ip-address-family" (type $family))
               (import "wasi:sockets/{kind}@0.2.0" (instance $sockets (export "{kind}-socket" (type (sub resource)))))
               (alias export $sockets "{kind}-socket" (type $socket))
               (import "wasi:sockets/{kind}-create-socket@0.2.0" (instance $create
                 (alias outer 1 $code (type $c_)) (export "error-code" (type $c (eq $c_)))
                 (alias outer 1 $family (type $f_)) (export "ip-address-family" (type $f (eq $f_)))
                 (alias outer 1 $socket (type $s_)) (export "{kind}-socket" (type $s (eq $s_)))
                 (export "create-{kind}-socket" (func (param "address-family" $f) (result (result (own $s) (error $c)))))))"#
        );
        let function: &'static str = if kind == "tcp" { "create-tcp-socket" } else { "create-udp-socket" };
        let guest = Guest::new(
            r#"(call $create (i32.const 0) (i32.const 0x80300))
               (if (result i32) (i32.load8_u (i32.const 0x80300))
                 (then (call $ok_number (i32.load8_u (i32.const 0x80304))))
                 (else (call $ok_text (i32.const 0) (i32.const 0))))"#,
        )
        .imports(
            &imports,
            &[("create", "$create", function)],
            r#"(import "host" "create" (func $create (param i32 i32)))"#,
        );
        let guest = load(&guest, Given::default()).await.unwrap();
        // 01 is access-denied.
        assert_eq!(run(&guest, "").await.outcome, CallOutcome::Success(vec![Content::Text("01".into())]), "{kind}");
    }
}

#[tokio::test]
async fn a_secret_that_is_not_granted_does_not_exist() {
    let guest = Guest::new("(call $ok_number (call $has (local.get $input) (local.get $input_len)))").imports(
        r#"(import "wharf:tool/secrets@0.1.0-draft" (instance $secrets (export "has" (func (param "name" string) (result bool)))))"#,
        &[("has", "$secrets", "has")],
        r#"(import "host" "has" (func $has (param i32 i32) (result i32)))"#,
    );
    let guest = load(&guest, Given::default()).await.unwrap();
    assert_eq!(text(&guest, "token").await, "00");
}

/// Sends a GET to the authority that is its input and gives the number of the error that the interface answers with.
fn requesting() -> Guest {
    let imports = r#"
      (import "wasi:io/poll@0.2.0" (instance $poll
        (export "pollable" (type $p (sub resource)))
        (export "[method]pollable.block" (func (param "self" (borrow $p))))))
      (alias export $poll "pollable" (type $pollable))
      (import "wasi:http/types@0.2.0" (instance $types
        (alias outer 1 $pollable (type $p_)) (export "pollable" (type $p (eq $p_)))
        (export "fields" (type $fields (sub resource)))
        (export "outgoing-request" (type $request (sub resource)))
        (export "request-options" (type $options (sub resource)))
        (export "incoming-response" (type $response (sub resource)))
        (export "future-incoming-response" (type $future (sub resource)))
        (type $dns_ (record (field "rcode" (option string)) (field "info-code" (option u16))))
        (export "DNS-error-payload" (type $dns (eq $dns_)))
        (type $tls_ (record (field "alert-id" (option u8)) (field "alert-message" (option string))))
        (export "TLS-alert-received-payload" (type $tls (eq $tls_)))
        (type $size_ (record (field "field-name" (option string)) (field "field-size" (option u32))))
        (export "field-size-payload" (type $size (eq $size_)))
        (type $c_ (variant (case "DNS-timeout") (case "DNS-error" $dns) (case "destination-not-found")
          (case "destination-unavailable") (case "destination-IP-prohibited") (case "destination-IP-unroutable")
          (case "connection-refused") (case "connection-terminated") (case "connection-timeout")
          (case "connection-read-timeout") (case "connection-write-timeout") (case "connection-limit-reached")
          (case "TLS-protocol-error") (case "TLS-certificate-error") (case "TLS-alert-received" $tls)
          (case "HTTP-request-denied") (case "HTTP-request-length-required") (case "HTTP-request-body-size" (option u64))
          (case "HTTP-request-method-invalid") (case "HTTP-request-URI-invalid") (case "HTTP-request-URI-too-long")
          (case "HTTP-request-header-section-size" (option u32)) (case "HTTP-request-header-size" (option $size))
          (case "HTTP-request-trailer-section-size" (option u32)) (case "HTTP-request-trailer-size" $size)
          (case "HTTP-response-incomplete") (case "HTTP-response-header-section-size" (option u32))
          (case "HTTP-response-header-size" $size) (case "HTTP-response-body-size" (option u64))
          (case "HTTP-response-trailer-section-size" (option u32)) (case "HTTP-response-trailer-size" $size)
          (case "HTTP-response-transfer-coding" (option string)) (case "HTTP-response-content-coding" (option string))
          (case "HTTP-response-timeout") (case "HTTP-upgrade-failed") (case "HTTP-protocol-error") (case "loop-detected")
          (case "configuration-error") (case "internal-error" (option string))))
        (export "error-code" (type $c (eq $c_)))
        (type $s_ (variant (case "HTTP") (case "HTTPS") (case "other" string))) (export "scheme" (type $s (eq $s_)))
        (export "[constructor]fields" (func (result (own $fields))))
        (export "[constructor]outgoing-request" (func (param "headers" (own $fields)) (result (own $request))))
        (export "[method]outgoing-request.set-scheme" (func (param "self" (borrow $request)) (param "scheme" (option $s)) (result (result))))
        (export "[method]outgoing-request.set-authority"
          (func (param "self" (borrow $request)) (param "authority" (option string)) (result (result))))
        (export "[method]outgoing-request.set-path-with-query"
          (func (param "self" (borrow $request)) (param "path-with-query" (option string)) (result (result))))
        (export "[method]future-incoming-response.subscribe" (func (param "self" (borrow $future)) (result (own $p))))
        (export "[method]future-incoming-response.get" (func (param "self" (borrow $future))
          (result (option (result (result (own $response) (error $c)))))))))
      (alias export $types "outgoing-request" (type $out))
      (alias export $types "request-options" (type $opt))
      (alias export $types "future-incoming-response" (type $fut))
      (alias export $types "error-code" (type $code))
      (import "wasi:http/outgoing-handler@0.2.0" (instance $handler
        (alias outer 1 $out (type $r_)) (export "outgoing-request" (type $r (eq $r_)))
        (alias outer 1 $opt (type $o_)) (export "request-options" (type $o (eq $o_)))
        (alias outer 1 $fut (type $f_)) (export "future-incoming-response" (type $f (eq $f_)))
        (alias outer 1 $code (type $c_)) (export "error-code" (type $c (eq $c_)))
        (export "handle" (func (param "request" (own $r)) (param "options" (option (own $o)))
          (result (result (own $f) (error $c)))))))"#;
    Guest::new(
        r#"(local $request i32) (local $future i32)
           (local.set $request (call $request (call $fields)))
           (drop (call $scheme (local.get $request) (i32.const 1) (i32.const 0) (i32.const 0) (i32.const 0)))
           (drop (call $authority (local.get $request) (i32.const 1) (local.get $input) (local.get $input_len)))
           (i32.store8 (i32.const 0x80600) (i32.const 47)) ;; /
           (drop (call $path (local.get $request) (i32.const 1) (i32.const 0x80600) (i32.const 1)))
           (call $handle (local.get $request) (i32.const 0) (i32.const 0) (i32.const 0x80300))
           (if (i32.load8_u (i32.const 0x80300)) (then (return (call $ok_number (i32.load8_u (i32.const 0x80308))))))
           (local.set $future (i32.load (i32.const 0x80308)))
           (call $block (call $subscribe (local.get $future)))
           (call $get (local.get $future) (i32.const 0x80300))
           (if (i32.eqz (i32.load8_u (i32.const 0x80300))) (then unreachable))
           (if (i32.load8_u (i32.const 0x80308)) (then unreachable))
           ;; a response, if it is one
           (if (i32.eqz (i32.load8_u (i32.const 0x80310))) (then (return (call $ok_number (i32.const 99)))))
           (call $ok_number (i32.load8_u (i32.const 0x80318)))"#,
    )
    .imports(
        imports,
        &[
            ("block", "$poll", "[method]pollable.block"),
            ("fields", "$types", "[constructor]fields"),
            ("request", "$types", "[constructor]outgoing-request"),
            ("scheme", "$types", "[method]outgoing-request.set-scheme"),
            ("path", "$types", "[method]outgoing-request.set-path-with-query"),
            ("authority", "$types", "[method]outgoing-request.set-authority"),
            ("subscribe", "$types", "[method]future-incoming-response.subscribe"),
            ("get", "$types", "[method]future-incoming-response.get"),
            ("handle", "$handler", "handle"),
        ],
        r#"(import "host" "block" (func $block (param i32)))
           (import "host" "fields" (func $fields (result i32)))
           (import "host" "request" (func $request (param i32) (result i32)))
           (import "host" "scheme" (func $scheme (param i32 i32 i32 i32 i32) (result i32)))
           (import "host" "path" (func $path (param i32 i32 i32 i32) (result i32)))
           (import "host" "authority" (func $authority (param i32 i32 i32 i32) (result i32)))
           (import "host" "subscribe" (func $subscribe (param i32) (result i32)))
           (import "host" "get" (func $get (param i32 i32)))
           (import "host" "handle" (func $handle (param i32 i32 i32 i32)))"#,
    )
}

// AUTH-2, AUTH-3: a request is answered with the interface's own denial, and the server that it names never sees it.
// A grant for it does not open anything yet: no path that would check it exists.
#[tokio::test]
async fn http_requests_are_denied_and_leave_nothing() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let authority = listener.local_addr().unwrap().to_string();
    let grant = HttpGrant { pattern: format!("http://{authority}/*"), methods: Vec::new() };
    for http in [vec![], vec![grant]] {
        let given = Given { grants: Grants { http, ..Grants::default() }, ..Given::default() };
        let guest = load(&requesting(), given).await.unwrap();
        // 15 is HTTP-request-denied.
        assert_eq!(text(&guest, &authority).await, "15");
        assert_eq!(listener.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    }
    let _connected = std::net::TcpStream::connect(&authority).unwrap();
    assert!(listener.accept().is_ok(), "the witness sees nothing at all");
}
