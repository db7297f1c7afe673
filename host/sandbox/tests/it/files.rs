//! Granted folders: what a component reaches in them, what not, and which grants are refused as written.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use wharf_core::grants::{FileAccess, FileGrant};
use wharf_sandbox::{Capability, LoadError, Roots, Sandbox, SandboxOptions};

use crate::kit::{Given, Guest, given, grant, load, load_in, text};

const CODES: [&str; 37] = [
    "access",
    "would-block",
    "already",
    "bad-descriptor",
    "busy",
    "deadlock",
    "quota",
    "exist",
    "file-too-large",
    "illegal-byte-sequence",
    "in-progress",
    "interrupted",
    "invalid",
    "io",
    "is-directory",
    "loop",
    "too-many-links",
    "message-size",
    "name-too-long",
    "no-device",
    "no-entry",
    "no-lock",
    "insufficient-memory",
    "insufficient-space",
    "not-directory",
    "not-empty",
    "not-recoverable",
    "unsupported",
    "no-tty",
    "no-such-device",
    "overflow",
    "not-permitted",
    "pipe",
    "read-only",
    "invalid-seek",
    "text-file-busy",
    "cross-device",
];

/// The first letter of the input says what to do with the path behind it, in the first folder that the guest sees:
/// `r`ead 64 bytes, `R` the same without following a link, `w`rite "x" (made if it is not there), `s`tat, `l` read a link,
/// open as a `d`irectory, open and keep nothing: `o`; `n`: open 127 times and say what comes of it the 128th time, `N`: 128
/// times and the 129th; `x`: begin to list the first folder a hundred times, then open. Gives text, or the number of an error code, or "none" of folders.
fn files(p3: bool) -> Guest {
    let (version, async_, codes) = if p3 {
        let cases: String =
            CODES.iter().filter(|code| **code != "would-block").map(|code| format!("(case \"{code}\")")).collect();
        ("0.3.0", "async", format!("(variant {cases} (case \"other\" (option string)))"))
    } else {
        let cases: String = CODES.iter().map(|code| format!("\"{code}\" ")).collect();
        ("0.2.0", "", format!("(enum {cases})"))
    };
    let read = if p3 {
        r#"(type $t_ (variant (case "block-device") (case "character-device") (case "directory") (case "fifo")
             (case "symbolic-link") (case "regular-file") (case "socket") (case "other" (option string))))
           (export "descriptor-type" (type $t (eq $t_)))
           (type $entry_ (record (field "type" $t) (field "name" string)))
           (export "directory-entry" (type $entry (eq $entry_)))
           (export "[method]descriptor.read-directory" (func (param "self" (borrow $d))
             (result (tuple (stream $entry) (future (result (error $c)))))))"#
    } else {
        r#"(export "[method]descriptor.read" (func (param "self" (borrow $d)) (param "length" u64) (param "offset" u64)
             (result (result (tuple (list u8) bool) (error $c)))))
           (export "[method]descriptor.write" (func (param "self" (borrow $d)) (param "buffer" (list u8)) (param "offset" u64)
             (result (result u64 (error $c)))))
           (type $t_ (enum "unknown" "block-device" "character-device" "directory" "fifo" "symbolic-link" "regular-file" "socket"))
           (export "descriptor-type" (type $t (eq $t_)))
           (alias outer 1 $datetime (type $dt_)) (export "datetime" (type $dt (eq $dt_)))
           (type $stat_ (record (field "type" $t) (field "link-count" u64) (field "size" u64)
             (field "data-access-timestamp" (option $dt)) (field "data-modification-timestamp" (option $dt))
             (field "status-change-timestamp" (option $dt))))
           (export "descriptor-stat" (type $stat (eq $stat_)))
           (export "[method]descriptor.stat-at" (func (param "self" (borrow $d)) (param "path-flags" $pf) (param "path" string)
             (result (result $stat (error $c)))))"#
    };
    let clock = if p3 {
        ""
    } else {
        r#"(import "wasi:clocks/wall-clock@0.2.0" (instance $wall
             (type $d_ (record (field "seconds" u64) (field "nanoseconds" u32))) (export "datetime" (type (eq $d_)))))
           (alias export $wall "datetime" (type $datetime))"#
    };
    let imports = format!(
        r#"{clock}
        (import "wasi:filesystem/types@{version}" (instance $types
          (export "descriptor" (type $d (sub resource)))
          (type $c_ {codes}) (export "error-code" (type $c (eq $c_)))
          (type $pf_ (flags "symlink-follow")) (export "path-flags" (type $pf (eq $pf_)))
          (type $of_ (flags "create" "directory" "exclusive" "truncate")) (export "open-flags" (type $of (eq $of_)))
          (type $df_ (flags "read" "write" "file-integrity-sync" "data-integrity-sync" "requested-write-sync" "mutate-directory"))
          (export "descriptor-flags" (type $df (eq $df_)))
          (export "[method]descriptor.open-at" (func {async_} (param "self" (borrow $d)) (param "path-flags" $pf) (param "path" string)
            (param "open-flags" $of) (param "flags" $df) (result (result (own $d) (error $c)))))
          (export "[method]descriptor.readlink-at" (func {async_} (param "self" (borrow $d)) (param "path" string)
            (result (result string (error $c)))))
          {read}))
        (alias export $types "descriptor" (type $descriptor))
        (import "wasi:filesystem/preopens@{version}" (instance $preopens
          (alias outer 1 $descriptor (type $d_)) (export "descriptor" (type $d (eq $d_)))
          (export "get-directories" (func (result (list (tuple (own $d) string)))))))"#
    );
    let mut host = vec![
        ("directories", "$preopens", "get-directories"),
        ("open", "$types", "[method]descriptor.open-at"),
        ("readlink", "$types", "[method]descriptor.readlink-at"),
    ];
    let mut core = String::from(
        r#"(import "host" "directories" (func $directories (param i32)))
           (import "host" "open" (func $open (param i32 i32 i32 i32 i32 i32 i32)))
           (import "host" "readlink" (func $readlink (param i32 i32 i32 i32)))"#,
    );
    let mut more = String::new();
    if p3 {
        host.push(("list", "$types", "[method]descriptor.read-directory"));
        core.push_str(r#"(import "host" "list" (func $list (param i32 i32)))"#);
        more.push_str(
            r#"(if (i32.eq (local.get $what) (i32.const 120)) (then ;; x
                 (local.set $opens (i32.const 100))
                 (loop $again
                   (call $list (local.get $dir) (i32.const 0x80300))
                   (local.set $opens (i32.sub (local.get $opens) (i32.const 1)))
                   (br_if $again (local.get $opens)))))"#,
        );
    } else {
        host.extend([
            ("read", "$types", "[method]descriptor.read"),
            ("write", "$types", "[method]descriptor.write"),
            ("stat", "$types", "[method]descriptor.stat-at"),
        ]);
        core.push_str(
            r#"(import "host" "read" (func $read (param i32 i64 i64 i32)))
               (import "host" "write" (func $write (param i32 i32 i32 i64 i32)))
               (import "host" "stat" (func $stat (param i32 i32 i32 i32 i32)))"#,
        );
        more.push_str(
            r#"(if (i32.eq (local.get $what) (i32.const 115)) (then ;; s
                 (call $stat (local.get $dir) (i32.const 1) (local.get $path) (local.get $path_len) (i32.const 0x80300))
                 (if (i32.load8_u (i32.const 0x80300)) (then (return (call $ok_number (i32.load8_u (i32.const 0x80308))))))
                 (return (call $ok_text (i32.const 0x80400) (i32.const 2)))))"#,
        );
    }
    let finish = if p3 {
        "(call $ok_text (i32.const 0x80400) (i32.const 2))"
    } else {
        r#"(if (i32.or (i32.eq (local.get $what) (i32.const 114)) (i32.eq (local.get $what) (i32.const 82))) (then ;; r R
             (call $read (local.get $fd) (i64.const 64) (i64.const 0) (i32.const 0x80300))
             (if (i32.load8_u (i32.const 0x80300)) (then (return (call $ok_number (i32.load8_u (i32.const 0x80304))))))
             (return (call $ok_text (i32.load (i32.const 0x80304)) (i32.load (i32.const 0x80308))))))
           (if (i32.eq (local.get $what) (i32.const 119)) (then ;; w
             (i32.store8 (i32.const 0x80500) (i32.const 120))
             (call $write (local.get $fd) (i32.const 0x80500) (i32.const 1) (i64.const 0) (i32.const 0x80300))
             (if (i32.load8_u (i32.const 0x80300)) (then (return (call $ok_number (i32.load8_u (i32.const 0x80308))))))))
           (call $ok_text (i32.const 0x80400) (i32.const 2))"#
    };
    let error_at = 0x80304;
    let invoke = format!(
        r#"(local $what i32) (local $path i32) (local $path_len i32) (local $dir i32) (local $fd i32)
           (local $of i32) (local $df i32) (local $pf i32) (local $opens i32)
           (i32.store16 (i32.const 0x80400) (i32.const 0x6b6f)) ;; ok
           (call $directories (i32.const 0x80300))
           (if (i32.eqz (i32.load (i32.const 0x80304))) (then
             (i32.store (i32.const 0x80400) (i32.const 0x656e6f6e)) ;; none
             (return (call $ok_text (i32.const 0x80400) (i32.const 4)))))
           (local.set $dir (i32.load (i32.load (i32.const 0x80300))))
           (local.set $what (i32.load8_u (local.get $input)))
           (local.set $path (i32.add (local.get $input) (i32.const 1)))
           (local.set $path_len (i32.sub (local.get $input_len) (i32.const 1)))
           {more}
           (if (i32.eq (local.get $what) (i32.const 108)) (then ;; l
             (call $readlink (local.get $dir) (local.get $path) (local.get $path_len) (i32.const 0x80300))
             (if (i32.load8_u (i32.const 0x80300)) (then (return (call $ok_number (i32.load8_u (i32.const {error_at}))))))
             (return (call $ok_text (i32.load (i32.const 0x80304)) (i32.load (i32.const 0x80308))))))
           (local.set $df (i32.const 1))
           (local.set $pf (i32.ne (local.get $what) (i32.const 82)))
           (if (i32.eq (local.get $what) (i32.const 119)) (then (local.set $of (i32.const 1)) (local.set $df (i32.const 2))))
           (if (i32.eq (local.get $what) (i32.const 100)) (then (local.set $of (i32.const 2))))
           (if (i32.or (i32.eq (local.get $what) (i32.const 110)) (i32.eq (local.get $what) (i32.const 78))) (then ;; n N
             (local.set $opens (i32.add (i32.const 127) (i32.eq (local.get $what) (i32.const 78))))
             (loop $again
               (call $open (local.get $dir) (i32.const 1) (local.get $path) (local.get $path_len) (i32.const 0) (i32.const 1) (i32.const 0x80300))
               (if (i32.load8_u (i32.const 0x80300)) (then (unreachable)))
               (local.set $opens (i32.sub (local.get $opens) (i32.const 1)))
               (br_if $again (local.get $opens)))))
           (call $open (local.get $dir) (local.get $pf) (local.get $path) (local.get $path_len) (local.get $of) (local.get $df) (i32.const 0x80300))
           (if (i32.load8_u (i32.const 0x80300)) (then (return (call $ok_number (i32.load8_u (i32.const {error_at}))))))
           (local.set $fd (i32.load (i32.const 0x80304)))
           {finish}"#
    );
    let mut guest = Guest::new(&invoke);
    guest.async_invoke = p3;
    guest.imports(&imports, &host, &core)
}

async fn guest(host: &Path, access: FileAccess, masked: &[PathBuf]) -> Capability {
    let roots = Roots { masked: masked.to_vec(), ..Roots::default() };
    load(&files(false), given(vec![grant(host, access)], roots)).await.unwrap()
}

/// What the guest says: text, or the word for an error code.
async fn says(guest: &Capability, input: &str) -> String {
    let text = text(guest, input).await;
    match text.parse::<usize>() {
        Ok(code) => CODES[code].into(),
        Err(_) => text,
    }
}

/// A folder `granted` beside a folder `outside`, with links from one to the other.
fn place() -> tempfile::TempDir {
    let place = tempfile::tempdir().unwrap();
    let at = |path: &str| place.path().join(path);
    std::fs::create_dir_all(at("granted/sub")).unwrap();
    std::fs::create_dir(at("outside")).unwrap();
    std::fs::write(at("granted/file"), "inside").unwrap();
    std::fs::write(at("granted/sub/deep"), "deep").unwrap();
    std::fs::write(at("outside/canary"), "secret").unwrap();
    symlink("file", at("granted/link")).unwrap();
    symlink("../outside/canary", at("granted/out")).unwrap();
    symlink(at("outside/canary"), at("granted/absolute")).unwrap();
    symlink("../outside", at("granted/folder-out")).unwrap();
    place
}

// AUTH-3, FS-1, FS-2
#[tokio::test]
async fn a_folder_is_reached_if_it_is_granted_and_nothing_outside_of_it() {
    let place = place();
    let none = load(&files(false), Given::default()).await.unwrap();
    assert_eq!(says(&none, "rfile").await, "none");
    let read = guest(&place.path().join("granted"), FileAccess::Read, &[]).await;
    let cases = [
        ("rfile", "inside"),
        ("r./sub/../file", "inside"),
        ("rsub/deep", "deep"),
        ("rlink", "inside"),
        ("Rlink", "loop"),
        ("dsub", "ok"),
        ("dfile", "not-directory"),
        ("sfile", "ok"),
        ("llink", "file"),
        ("rmissing", "no-entry"),
        ("smissing", "no-entry"),
        ("r../outside/canary", "not-permitted"),
        ("s../outside/canary", "not-permitted"),
        ("rsub/../../outside/canary", "not-permitted"),
        ("rout", "not-permitted"),
        ("rabsolute", "not-permitted"),
        ("rfolder-out/canary", "not-permitted"),
        ("dfolder-out", "not-permitted"),
        ("labsolute", "not-permitted"),
        ("r/etc/hostname", "not-permitted"),
        ("wfile", "not-permitted"),
        ("wnew", "not-permitted"),
        ("rfile\0x", "invalid"),
        ("r", "no-entry"),
    ];
    for (input, expected) in cases {
        assert_eq!(says(&read, input).await, expected, "{input:?}");
    }
    assert_eq!(std::fs::read_to_string(place.path().join("granted/file")).unwrap(), "inside");
    assert!(!place.path().join("granted/new").exists());
}

#[tokio::test]
async fn a_writable_folder_can_be_written_and_nothing_outside_of_it() {
    let place = place();
    let write = guest(&place.path().join("granted"), FileAccess::ReadWrite, &[]).await;
    let cases = [
        ("wnew", "ok"),
        ("wfile", "ok"),
        ("rnew", "x"),
        ("rfile", "xnside"),
        ("wsub/new", "ok"),
        ("wout", "not-permitted"),
        ("wabsolute", "not-permitted"),
        ("wfolder-out/new", "not-permitted"),
        ("w../outside/new", "not-permitted"),
    ];
    for (input, expected) in cases {
        assert_eq!(says(&write, input).await, expected, "{input:?}");
    }
    // The host's own witness.
    assert_eq!(std::fs::read_to_string(place.path().join("outside/canary")).unwrap(), "secret");
    assert_eq!(std::fs::read_dir(place.path().join("outside")).unwrap().count(), 1);
}

#[tokio::test]
async fn wasi_0_3_reaches_the_same_folders() {
    let place = place();
    let none = load(&files(true), Given::default()).await.unwrap();
    assert_eq!(says(&none, "rfile").await, "none");
    let granted = place.path().join("granted");
    let hidden = granted.join("sub");
    let roots = Roots { masked: vec![hidden], ..Roots::default() };
    let read = load(&files(true), given(vec![grant(&granted, FileAccess::Read)], roots)).await.unwrap();
    // 0.3 has no `would-block`: codes behind it are one less.
    let code = |word: &str| CODES.iter().filter(|code| **code != "would-block").position(|code| *code == word).unwrap();
    let number = |word: &str| format!("{:02}", code(word));
    for (input, expected) in [
        ("rfile", "ok".to_owned()),
        ("llink", "file".into()),
        ("rmissing", number("no-entry")),
        ("rsub/deep", number("no-entry")),
        ("dsub", number("no-entry")),
        ("rout", number("not-permitted")),
        ("wfile", number("not-permitted")),
    ] {
        assert_eq!(text(&read, input).await, expected, "{input:?}");
    }
}

#[tokio::test]
async fn a_folder_is_opened_once_at_load_and_replacing_it_changes_nothing() {
    let place = place();
    let at = |path: &str| place.path().join(path);
    let read = guest(&at("granted"), FileAccess::Read, &[]).await;
    std::fs::rename(at("granted"), at("moved")).unwrap();
    symlink(at("outside"), at("granted")).unwrap();
    assert_eq!(says(&read, "rfile").await, "inside");
    assert_eq!(says(&read, "rcanary").await, "no-entry");
}

#[tokio::test]
async fn a_fifo_and_a_socket_are_refused_at_once() {
    let place = place();
    let fifo = place.path().join("granted/fifo");
    let made = std::process::Command::new("mkfifo").arg(&fifo).status().unwrap();
    assert!(made.success());
    let _socket = std::os::unix::net::UnixListener::bind(place.path().join("granted/socket")).unwrap();
    for access in [FileAccess::Read, FileAccess::ReadWrite] {
        let guest = guest(&place.path().join("granted"), access, &[]).await;
        // Nobody writes to it: opening it for reading would wait for ever.
        assert_eq!(says(&guest, "rfifo").await, "not-permitted");
        assert_eq!(says(&guest, "rfile").await, "inside");
        assert!(["no-device", "not-permitted", "io"].contains(&says(&guest, "rsocket").await.as_str()));
    }
    let write = guest(&place.path().join("granted"), FileAccess::ReadWrite, &[]).await;
    let said = says(&write, "wfifo").await;
    assert!(["no-such-device", "no-device", "not-permitted", "io"].contains(&said.as_str()), "{said}");
}

fn refusal(error: &LoadError) -> String {
    match error {
        LoadError::Grant { reason, .. } => reason.clone(),
        LoadError::Folder { source, .. } => source.kind().to_string(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_mask_inside_of_a_read_grant_is_not_there() {
    let place = place();
    let at = |path: &str| place.path().join(path);
    std::fs::create_dir(at("granted/.wharf")).unwrap();
    std::fs::write(at("granted/.wharf/journal"), "journal").unwrap();
    std::fs::write(at("granted/harness.toml"), "policy").unwrap();
    symlink(".wharf/journal", at("granted/to-journal")).unwrap();
    symlink(".wharf", at("granted/to-state")).unwrap();
    let masked = [at("granted/.wharf"), at("granted/harness.toml"), at("granted/wharf.lock")];
    let open = guest(&at("granted"), FileAccess::Read, &[]).await;
    let hidden = guest(&at("granted"), FileAccess::Read, &masked).await;
    // Made after the load.
    std::fs::write(at("granted/wharf.lock"), "pins").unwrap();
    std::fs::write(at("granted/.wharf/later"), "later").unwrap();
    let cases = [
        ("r.wharf/journal", "journal"),
        ("r.wharf/later", "later"),
        ("rsub/../.wharf/journal", "journal"),
        ("rto-journal", "journal"),
        ("rto-state/journal", "journal"),
        ("rharness.toml", "policy"),
        ("rwharf.lock", "pins"),
        ("d.wharf", "ok"),
        ("s.wharf/journal", "ok"),
        ("sharness.toml", "ok"),
        ("sto-journal", "ok"),
    ];
    for (input, expected) in cases {
        assert_eq!(says(&open, input).await, expected, "{input:?}");
        assert_eq!(says(&hidden, input).await, "no-entry", "{input:?}");
    }
    assert_eq!(says(&hidden, "rfile").await, "inside");
    assert_eq!(says(&hidden, "sfile").await, "ok");
    assert_eq!(says(&hidden, "lto-journal").await, ".wharf/journal", "the link itself is no secret");
}

#[tokio::test]
async fn grants_that_reach_a_mask_are_refused() {
    let place = place();
    let at = |path: &str| place.path().join(path).canonicalize().unwrap();
    let refused = async |host: &Path, access, masked: &[PathBuf]| {
        let roots = Roots { masked: masked.to_vec(), ..Roots::default() };
        match load(&files(false), given(vec![grant(host, access)], roots)).await {
            Ok(_) => "allowed".to_owned(),
            Err(error) => refusal(&error),
        }
    };
    let (granted, sub, file) = (at("granted"), at("granted/sub"), at("granted/file"));
    let lies_in = |mask: &Path| format!("it lies in {mask:?}, which no tool may reach");
    let contains = |mask: &Path| format!("it contains {mask:?}, which no tool may write");
    for access in [FileAccess::Read, FileAccess::ReadWrite] {
        let mask = std::slice::from_ref(&sub);
        assert_eq!(refused(&sub, access, mask).await, lies_in(&sub));
        assert_eq!(refused(&sub, access, std::slice::from_ref(&granted)).await, lies_in(&granted));
        // Through a link, and by another spelling.
        assert_eq!(refused(&granted.join("../granted/sub/."), access, mask).await, lies_in(&sub));
        symlink(&sub, place.path().join("by-link")).unwrap();
        assert_eq!(refused(&place.path().join("by-link"), access, mask).await, lies_in(&sub));
        std::fs::remove_file(place.path().join("by-link")).unwrap();
        assert_eq!(refused(&at("outside"), access, mask).await, "allowed");
    }
    assert_eq!(refused(&granted, FileAccess::ReadWrite, std::slice::from_ref(&file)).await, contains(&file));
    let not_yet = granted.join("wharf.lock");
    assert_eq!(refused(&granted, FileAccess::ReadWrite, std::slice::from_ref(&not_yet)).await, contains(&not_yet));
    assert_eq!(refused(&granted, FileAccess::Read, std::slice::from_ref(&file)).await, "allowed");
    // A name that begins alike is no part of it.
    std::fs::create_dir(place.path().join("granted/sub2")).unwrap();
    assert_eq!(refused(&at("granted/sub2"), FileAccess::ReadWrite, &[sub]).await, "allowed");
}

// A process has some thousand descriptors for everything; one call takes no more than its part of them.
#[tokio::test]
async fn files_that_a_call_has_open_are_bounded() {
    let place = place();
    for p3 in [false, true] {
        let roots = given(vec![grant(&place.path().join("granted"), FileAccess::Read)], Roots::default());
        let guest = load(&files(p3), roots).await.unwrap();
        for name in ["file", "sub"] {
            assert_eq!(says(&guest, &format!("n{name}")).await, "ok");
            // The codes of WASI 0.3 are one fewer.
            assert_eq!(says(&guest, &format!("N{name}")).await, if p3 { "deadlock" } else { "quota" });
        }
    }
}

// A listing holds a thread until it is read to its end, and there are 64: a guest that begins more holds up its own next
// file operation, and everybody else's.
#[tokio::test]
async fn folders_whose_listing_is_begun_and_left_hold_up_nothing() {
    let place = place();
    let own = Sandbox::new(SandboxOptions::default()).unwrap();
    let roots = given(vec![grant(&place.path().join("granted"), FileAccess::Read)], Roots::default());
    let guest = load_in(&own, files(true).bytes(), roots).await.unwrap();
    for _ in 0..3 {
        assert_eq!(says(&guest, "xfile").await, "ok");
    }
}

// Files there are the kernel's view of the host: /proc/self is this process, whose memory and environment hold its keys.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn no_grant_reaches_the_files_of_the_kernel() {
    let place = place();
    for host in ["/proc", "/proc/self", "/sys"] {
        let refused =
            load(&files(false), given(vec![grant(Path::new(host), FileAccess::Read)], Roots::default())).await;
        let expected = "it shows the system's own state, this program's memory and environment among it";
        assert_eq!(refusal(&refused.unwrap_err()), expected, "{host}");
    }
    let file = place.path().canonicalize().unwrap().join("granted/file");
    let file = file.to_str().unwrap().trim_start_matches('/');
    for p3 in [false, true] {
        let roots = given(vec![grant(Path::new("/"), FileAccess::Read)], Roots::default());
        let guest = load(&files(p3), roots).await.unwrap();
        // The codes of WASI 0.3 are one fewer, so that each after the first has its neighbour's number.
        let denied = if p3 { "overflow" } else { "not-permitted" };
        let not_dir = if p3 { "insufficient-space" } else { "not-directory" };
        for path in ["proc/self/environ", "proc/self/mem", "proc/sys", "proc/self/cmdline", "sys/kernel"] {
            for how in ["r", "R", "d"] {
                let input = format!("{how}{path}");
                let said = says(&guest, &input).await;
                // A file is no directory, whoever owns it; which of both is said first does not matter.
                assert!(said == denied || (how == "d" && said == not_dir), "{input}: {said}");
            }
        }
        assert_eq!(says(&guest, "lproc/self/cwd").await, denied, "where the host is");
        if !p3 {
            assert_eq!(says(&guest, &format!("r{file}")).await, "inside");
        }
    }
}

#[tokio::test]
async fn a_grant_that_is_wrong_as_written_is_refused_with_what_is_wrong() {
    let place = place();
    let root = place.path();
    let refused = async |files_: Vec<FileGrant>, others: &[PathBuf]| {
        let roots = Roots { base: root.to_owned(), others: others.to_vec(), ..Roots::default() };
        match load(&files(false), given(files_, roots)).await {
            Ok(_) => "allowed".to_owned(),
            Err(error) => refusal(&error),
        }
    };
    let (read, write) = (FileAccess::Read, FileAccess::ReadWrite);
    let grant =
        |host: &str, guest: &str, access| FileGrant { host: host.into(), guest: guest.into(), access, overlap: false };
    assert_eq!(refused(vec![grant("granted", "/a", read)], &[]).await, "allowed");
    assert_eq!(refused(vec![grant("missing", "/a", read)], &[]).await, "entity not found");
    assert_eq!(refused(vec![grant("granted/file", "/a", read)], &[]).await, "it is not a folder");
    for guest in ["a", "", "./a", "/a/../b", "/.."] {
        let expected = format!("its guest path {guest:?} is not absolute and plain");
        assert_eq!(refused(vec![grant("granted", guest, read)], &[]).await, expected);
    }
    assert_eq!(
        refused(vec![grant("granted", "/a", read), grant("outside", "/a", read)], &[]).await,
        "another folder is already granted as \"/a\""
    );
    // Writable around another grant, of the same capability or of another.
    let sub = root.join("granted/sub").canonicalize().unwrap();
    let around = format!("it is writable and contains {sub:?}, which is granted too");
    let both = |access| vec![grant("granted", "/a", access), grant("granted/sub", "/b", read)];
    assert_eq!(refused(both(write), &[]).await, around);
    assert_eq!(refused(both(read), &[]).await, "allowed");
    let mut meant = both(write);
    meant[0].overlap = true;
    assert_eq!(refused(meant, &[]).await, "allowed");
    assert_eq!(refused(vec![grant("granted", "/a", write)], std::slice::from_ref(&sub)).await, around);
    assert_eq!(refused(vec![grant("outside", "/a", write)], &[sub]).await, "allowed");
}

// A tool that may write where a link lies may point it elsewhere, and at the next load the host would follow it.
#[tokio::test]
async fn a_writable_grant_holds_no_link_on_the_way_to_a_mask_a_component_or_a_grant() {
    let place = place();
    let root = place.path().canonicalize().unwrap();
    let (granted, outside) = (root.join("granted"), root.join("outside"));
    std::fs::create_dir_all(outside.join("deep")).unwrap();
    std::fs::write(outside.join("deep/x.wasm"), "").unwrap();
    // `way` lies apart and leads through a link in the granted folder, which leads out again.
    symlink(outside.join("deep"), granted.join("leads-out")).unwrap();
    symlink("granted/leads-out", root.join("way")).unwrap();
    // Nothing of this one is in the granted folder, though its name passes through it.
    let by = granted.join("../outside/deep");
    let refused = async |access, overlap, roots: Roots| {
        let grant = FileGrant { overlap, ..grant(&granted, access) };
        match load(&files(false), given(vec![grant], roots)).await {
            Ok(_) => "allowed".to_owned(),
            Err(error) => refusal(&error),
        }
    };
    let masked = |path: &Path| Roots { masked: vec![path.to_owned()], ..Roots::default() };
    let fixed = |path: &Path| Roots { fixed: vec![path.to_owned()], ..Roots::default() };
    let others = |path: &Path| Roots { others: vec![path.to_owned()], ..Roots::default() };
    let (read, write) = (FileAccess::Read, FileAccess::ReadWrite);
    let link = granted.join("leads-out");
    for way in [root.join("way"), granted.join("leads-out"), root.join("way/x.wasm"), root.join("way/not-yet")] {
        let expected = format!("it contains {link:?}, which no tool may write");
        assert_eq!(refused(write, true, masked(&way)).await, expected, "{way:?}");
        let expected = format!("it is writable and contains {link:?}, which the host loads or runs");
        assert_eq!(refused(write, true, fixed(&way)).await, expected, "{way:?}");
        let expected = format!("it is writable and contains {link:?}, through which a grant's folder is found");
        assert_eq!(refused(write, false, others(&way)).await, expected, "{way:?}");
        assert_eq!(refused(write, true, others(&way)).await, "allowed", "{way:?}");
        for roots in [masked(&way), fixed(&way), others(&way)] {
            assert_eq!(refused(read, false, roots).await, "allowed", "{way:?}");
        }
    }
    for roots in [masked(&by), fixed(&by), others(&by)] {
        assert_eq!(refused(write, false, roots).await, "allowed");
    }
    let component = granted.join("x.wasm");
    let expected = format!("it is writable and contains {component:?}, which the host loads or runs");
    assert_eq!(refused(write, true, fixed(&component)).await, expected);
    assert_eq!(refused(read, false, fixed(&component)).await, "allowed");
    // Links that lead in a circle end.
    symlink("circle", granted.join("circle")).unwrap();
    assert_ne!(refused(write, false, masked(&granted.join("circle"))).await, "allowed");
    assert_eq!(refused(write, false, masked(&outside)).await, "allowed");
}

// The same capability's other grant, and the grant itself.
#[tokio::test]
async fn a_writable_grant_holds_no_link_on_the_way_to_its_own_capabilitys_grants() {
    let place = place();
    let root = place.path().canonicalize().unwrap();
    symlink(root.join("outside"), root.join("granted/leads-out")).unwrap();
    symlink(root.join("granted"), root.join("granted/self")).unwrap();
    let refused = async |files_: Vec<FileGrant>| match load(&files(false), given(files_, Roots::default())).await {
        Ok(_) => "allowed".to_owned(),
        Err(error) => refusal(&error),
    };
    let granted =
        |host: &str, guest: &str, access| FileGrant { guest: guest.into(), ..grant(&root.join(host), access) };
    let through = |link: &str| {
        format!(
            "it is writable and contains {:?}, through which a grant's folder is found",
            root.join("granted").join(link)
        )
    };
    let (read, write) = (FileAccess::Read, FileAccess::ReadWrite);
    let both = |access| vec![granted("granted", "/a", access), granted("granted/leads-out", "/b", read)];
    assert_eq!(refused(both(write)).await, through("leads-out"));
    assert_eq!(refused(both(read)).await, "allowed");
    assert_eq!(refused(vec![granted("granted/self", "/a", write)]).await, through("self"));
    assert_eq!(refused(vec![granted("granted/self", "/a", read)]).await, "allowed");
}
