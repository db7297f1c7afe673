//! The tools as the host calls them, on real files.

use std::fs;

use tempfile::TempDir;
use wharf_tool_sdk::{Claims, Content, Failure, FailureKind, testing};

use crate::{Files, limits};

struct Room {
    folder: TempDir,
    config: String,
}

impl Room {
    fn new(files: &[(&str, &[u8])]) -> Self {
        let folder = TempDir::new().expect("a folder for the test");
        for (path, content) in files {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().expect("below the folder")).expect("folder");
            fs::write(path, content).expect("file");
        }
        let config = format!(r#"{{"root":"{}"}}"#, folder.path().display());
        Self { folder, config }
    }

    fn call(&self, tool: &str, input: &str) -> Result<Vec<String>, Failure> {
        let contents = testing::invoke::<Files>(tool, input, &self.config)?;
        Ok(contents
            .into_iter()
            .map(|content| match content {
                Content::Text(text) => text,
                other => panic!("not text: {other:?}"),
            })
            .collect())
    }

    fn answer(&self, tool: &str, input: &str) -> String {
        self.call(tool, input).expect("a success").join("|")
    }

    fn refusal(&self, tool: &str, input: &str) -> (FailureKind, String) {
        let failure = self.call(tool, input).expect_err("a failure");
        (failure.kind, failure.message)
    }

    fn content(&self, path: &str) -> String {
        fs::read_to_string(self.folder.path().join(path)).expect("the file is there")
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(self.folder.path())
            .expect("the folder is there")
            .map(|entry| entry.expect("entry").file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }
}

#[test]
fn bad_config_is_refused_with_the_reason() {
    let refused = |config: &str| testing::definitions::<Files>(config).map(|_| ()).map_err(|failure| failure.message);
    assert_eq!(
        refused(r#"{"root":"docs"}"#),
        Err("the config does not fit: \"root\" (line 1, column 15): \"docs\" is not absolute; hint: write \"/docs\""
            .to_owned())
    );
    assert_eq!(
        refused(r#"{"rot":"/docs"}"#),
        Err("unknown config key \"rot\"; hint: did you mean \"root\"?".to_owned())
    );
    assert_eq!(
        testing::describe::<Files>(r#"{"rot":"/docs"}"#).map_err(|failure| failure.kind),
        Err(FailureKind::InvalidInput)
    );
    assert_eq!(refused("{}"), Ok(()));
}

#[test]
fn description_names_the_root() {
    let about = testing::describe::<Files>(r#"{"root":"/docs/"}"#).expect("a good config");
    assert_eq!(about.id, "files");
    assert!(about.instructions.contains("below /docs."), "{}", about.instructions);
}

#[test]
fn claims_are_honest_and_read_only_offers_no_writer() {
    let offered = |config: &str| -> Vec<(String, Claims)> {
        let definitions = testing::definitions::<Files>(config).expect("a good config");
        definitions.into_iter().map(|definition| (definition.name, definition.claims)).collect()
    };
    let reading = Claims::READ_ONLY | Claims::IDEMPOTENT;
    let readers = ["read_file", "list_files", "search_files"].map(|name| (name.to_owned(), reading)).to_vec();
    assert_eq!(offered(r#"{"read_only":true}"#), readers);
    let mut all = readers;
    all.push(("write_file".to_owned(), Claims::DESTRUCTIVE | Claims::IDEMPOTENT));
    all.push(("edit_file".to_owned(), Claims::DESTRUCTIVE));
    assert_eq!(offered("{}"), all);
}

#[test]
fn no_tool_leaves_the_root() {
    let room = Room::new(&[("a.txt", b"x")]);
    for (tool, rest) in [
        ("read_file", ""),
        ("list_files", ""),
        ("search_files", r#","pattern":"x""#),
        ("write_file", r#","content":"x""#),
        ("edit_file", r#","old":"a","new":"b""#),
    ] {
        for path in ["/etc/passwd", "../x", "a/../../x"] {
            let (kind, message) = room.refusal(tool, &format!(r#"{{"path":"{path}"{rest}}}"#));
            assert_eq!(kind, FailureKind::InvalidInput, "{tool} {path}");
            assert!(message.contains("hint: "), "{message}");
        }
    }
}

#[test]
fn lines_are_read_by_range() {
    let room = Room::new(&[("a.txt", b"one\ntwo\nthree\nfour"), ("empty", b""), ("d/x", b"")]);
    let read = |input: &str| room.call("read_file", input);
    assert_eq!(read(r#"{"path":"a.txt"}"#), Ok(vec!["one\ntwo\nthree\nfour".to_owned()]));
    assert_eq!(read(r#"{"path":"a.txt","start":2,"end":3}"#), Ok(vec!["two\nthree\n".to_owned()]));
    assert_eq!(read(r#"{"path":"a.txt","start":4,"end":9}"#), Ok(vec!["four".to_owned()]));
    assert_eq!(read(r#"{"path":"empty"}"#), Ok(vec![String::new(), "note: empty is empty".to_owned()]));
    let refused = |input: &str| room.refusal("read_file", input);
    let invalid = |message: &str| (FailureKind::InvalidInput, message.to_owned());
    assert_eq!(refused(r#"{"path":"a.txt","start":5}"#), invalid("a.txt has only 4 lines; start is 5"));
    assert_eq!(refused(r#"{"path":"a.txt","start":0}"#), invalid("start is 0; hint: lines are counted from 1"));
    assert_eq!(refused(r#"{"path":"a.txt","start":3,"end":2}"#), invalid("end 2 lies before start 3"));
    assert_eq!(refused(r#"{"path":"d"}"#), invalid("d is a folder; hint: list_files shows what is in it"));
    assert_eq!(refused(r#"{"path":"no"}"#), (FailureKind::NotFound, "no: it does not exist".to_owned()));
    assert_eq!(refused(r#"{"path":"a.txt","start":1,"from_byte":1}"#).0, FailureKind::InvalidInput);
}

#[test]
fn huge_file_comes_in_parts_that_join_to_the_whole() {
    let whole: String = (1..=20_000).map(|line| format!("line {line} ü\n")).collect();
    let room = Room::new(&[("big.txt", whole.as_bytes())]);
    let (mut joined, mut start, mut parts) = (String::new(), 1_u64, 0);
    loop {
        let part = room.call("read_file", &format!(r#"{{"path":"big.txt","start":{start}}}"#)).expect("a part");
        parts += 1;
        assert!(part.iter().map(String::len).sum::<usize>() < 64 * 1024);
        joined.push_str(part.first().expect("text"));
        let Some(note) = part.get(1) else { break };
        start = note.rsplit(' ').next().and_then(|word| word.parse().ok()).expect("the note ends with the next line");
    }
    assert_eq!(joined, whole);
    assert_eq!(parts, whole.len().div_ceil(limits::ANSWER_BYTES_MAX));
}

#[test]
fn huge_line_comes_in_parts_that_join_to_the_whole() {
    let whole = format!("short\n{}", "ab€".repeat(40_000));
    let room = Room::new(&[("line.txt", whole.as_bytes())]);
    let mut joined = String::from("short\n");
    let mut input = r#"{"path":"line.txt","start":2}"#.to_owned();
    loop {
        let part = room.call("read_file", &input).expect("a part");
        joined.push_str(part.first().expect("text"));
        let Some(note) = part.get(1) else { break };
        let next = note.rsplit(' ').next().expect("the note ends with the next byte");
        input = format!(r#"{{"path":"line.txt","from_byte":{next}}}"#);
    }
    assert_eq!(joined, whole);
}

#[test]
fn text_of_just_the_bound_is_whole_and_one_byte_more_is_not() {
    let exact = "x".repeat(limits::ANSWER_BYTES_MAX);
    let more = format!("{exact}y");
    let room = Room::new(&[("exact", exact.as_bytes()), ("more", more.as_bytes())]);
    assert_eq!(room.call("read_file", r#"{"path":"exact"}"#), Ok(vec![exact.clone()]));
    let part = room.call("read_file", r#"{"path":"more"}"#).expect("a part");
    assert_eq!(part.first(), Some(&exact));
    assert_eq!(part.len(), 2);
    assert_eq!(
        room.call("read_file", &format!(r#"{{"path":"more","from_byte":{}}}"#, exact.len())),
        Ok(vec!["y".to_owned()])
    );
}

#[test]
fn binary_file_is_described() {
    let room = Room::new(&[("p.png", b"\x89PNG\r\n\x1a\n\0\0"), ("z", b"a\0b"), ("latin", b"caf\xe9\n")]);
    assert_eq!(
        room.answer("read_file", r#"{"path":"p.png"}"#),
        "note: p.png is a binary file (a PNG image, 10 bytes); its content is not shown"
    );
    assert_eq!(
        room.answer("read_file", r#"{"path":"z"}"#),
        "note: z is a binary file (of unknown kind, 3 bytes); its content is not shown"
    );
    assert_eq!(
        room.answer("read_file", r#"{"path":"latin"}"#),
        "note: latin is not UTF-8 text (5 bytes, first bad byte at 3); its content is not shown"
    );
}

#[test]
fn listing_is_sorted_filtered_and_bounded() {
    let room = Room::new(&[("b.md", b"12"), ("a/c.md", b"1"), ("a/d/e.rs", b""), (".git/config", b"x")]);
    assert_eq!(room.answer("list_files", "{}"), ".git/\na/\nb.md  (2 bytes)");
    assert_eq!(
        room.answer("list_files", r#"{"recursive":true}"#),
        ".git/\na/\na/c.md  (1 bytes)\na/d/\na/d/e.rs  (0 bytes)\nb.md  (2 bytes)"
    );
    assert_eq!(room.answer("list_files", r#"{"recursive":true,"glob":"*.md"}"#), "a/c.md  (1 bytes)\nb.md  (2 bytes)");
    assert_eq!(room.answer("list_files", r#"{"path":"a","recursive":true,"glob":"d/**"}"#), "a/d/e.rs  (0 bytes)");
    assert_eq!(room.answer("list_files", r#"{"glob":"*.zip"}"#), "note: nothing in . matches \"*.zip\"");
    assert_eq!(
        room.answer("list_files", r#"{"limit":2}"#),
        ".git/\na/\nnote: cut after 2 entries, there are more; hint: narrow it with path or glob"
    );
    assert_eq!(room.answer("list_files", r#"{"limit":3}"#), ".git/\na/\nb.md  (2 bytes)");
    assert_eq!(room.refusal("list_files", r#"{"path":"nope"}"#).0, FailureKind::NotFound);
    assert_eq!(room.refusal("list_files", r#"{"glob":"[a"}"#).0, FailureKind::InvalidInput);
}

#[cfg(unix)]
#[test]
fn links_are_shown_and_never_followed() {
    let room = Room::new(&[("a/x.txt", b"needle")]);
    std::os::unix::fs::symlink("..", room.folder.path().join("a/up")).expect("link");
    assert_eq!(room.answer("list_files", r#"{"recursive":true}"#), "a/\na/up  (link)\na/x.txt  (6 bytes)");
    assert_eq!(room.answer("search_files", r#"{"pattern":"needle"}"#), "a/x.txt:1: needle");
    assert_eq!(room.refusal("write_file", r#"{"path":"a/up","content":"x"}"#).0, FailureKind::Conflict);
}

#[test]
fn search_answers_with_path_line_and_context() {
    let room = Room::new(&[
        ("a.rs", b"zero\nfn one() {}\ntwo\nfn three() {}\nfour\nfive\nsix\nfn seven\n"),
        ("b/c.md", b"FN loud\n"),
        ("bin", b"fn \0"),
    ]);
    let skipped = "note: 1 files were skipped (binary, unreadable or too large)";
    assert_eq!(
        room.answer("search_files", r#"{"pattern":"^fn "}"#),
        format!("a.rs:2: fn one() {{}}\na.rs:4: fn three() {{}}\na.rs:8: fn seven\n{skipped}")
    );
    assert_eq!(
        room.answer("search_files", r#"{"pattern":"^fn ","context":1,"glob":"*.rs"}"#),
        "a.rs-1- zero\na.rs:2: fn one() {}\na.rs-3- two\na.rs:4: fn three() {}\na.rs-5- four\n--\na.rs-7- six\na.rs:8: fn seven"
    );
    assert_eq!(room.answer("search_files", r#"{"pattern":"fn","path":"b","ignore_case":true}"#), "b/c.md:1: FN loud");
    assert_eq!(
        room.answer("search_files", r#"{"pattern":"fn","path":"a.rs","limit":2}"#),
        "a.rs:2: fn one() {}\na.rs:4: fn three() {}\nnote: cut after 2 matching lines, there are more; hint: narrow it with path or glob"
    );
    assert_eq!(
        room.answer("search_files", r#"{"pattern":"nowhere","glob":"*.rs"}"#),
        "note: no line matches \"nowhere\" in 1 files"
    );
    let (kind, message) = room.refusal("search_files", r#"{"pattern":"a("}"#);
    assert_eq!(kind, FailureKind::InvalidInput);
    assert!(message.contains("unclosed group"), "{message}");
}

#[test]
fn search_is_bounded_in_lines_and_bytes() {
    let many = "needle\n".repeat(limits::MATCHES_MAX + 1);
    let wide = format!("{}needle{}\n", "x".repeat(5_000), "y".repeat(5_000));
    let room = Room::new(&[("many", many.as_bytes()), ("wide", wide.as_bytes())]);
    let found = room.answer("search_files", r#"{"pattern":"needle","path":"many","limit":100000}"#);
    assert_eq!(found.lines().filter(|line| line.ends_with(": needle")).count(), limits::MATCHES_MAX);
    assert!(found.ends_with("there are more; hint: narrow it with path or glob"), "{found}");
    let found = room.answer("search_files", r#"{"pattern":"needle","path":"wide"}"#);
    assert!(found.starts_with("wide:1: …xxx") && found.contains("needle") && found.ends_with("yyy…"), "{found}");
    assert!(found.len() < 500);
    let (_, message) = room.refusal("search_files", r#"{"pattern":"(\\w{1000}){1000}"}"#);
    assert!(message.contains("size limit"), "{message}");
}

#[test]
fn file_is_written_whole_and_nothing_is_left_beside_it() {
    let room = Room::new(&[("a.txt", b"old!")]);
    assert_eq!(room.answer("write_file", r#"{"path":"a.txt","content":"new"}"#), "replaced a.txt (3 bytes, 4 before)");
    assert_eq!(room.answer("write_file", r#"{"path":"b.txt","content":""}"#), "created b.txt (0 bytes)");
    assert_eq!(room.content("a.txt"), "new");
    assert_eq!(
        room.refusal("write_file", r#"{"path":"x/y/c.txt","content":"c"}"#),
        (
            FailureKind::NotFound,
            "x/y/c.txt cannot be written: its folder does not exist; hint: check the path, or set create_parents to true".to_owned()
        )
    );
    assert_eq!(
        room.answer("write_file", r#"{"path":"x/y/c.txt","content":"c","create_parents":true}"#),
        "created x/y/c.txt (1 bytes)"
    );
    assert_eq!(room.content("x/y/c.txt"), "c");
    assert_eq!(room.refusal("write_file", r#"{"path":"x","content":"c"}"#).0, FailureKind::InvalidInput);
    assert_eq!(room.refusal("write_file", r#"{"path":"","content":"c"}"#).0, FailureKind::InvalidInput);
    assert_eq!(room.names(), ["a.txt", "b.txt", "x"]);
}

#[test]
fn edit_replaces_exactly_one_occurrence() {
    let room = Room::new(&[("a.txt", b"one\ntwo\none more\n")]);
    assert_eq!(room.answer("edit_file", r#"{"path":"a.txt","old":"two\n","new":"2\n"}"#), "edited a.txt at line 2");
    assert_eq!(room.content("a.txt"), "one\n2\none more\n");
    assert_eq!(
        room.refusal("edit_file", r#"{"path":"a.txt","old":"one","new":"1"}"#),
        (
            FailureKind::Conflict,
            "the text occurs 2 times in a.txt, at lines 1, 3; nothing was changed; hint: add lines around it until it is unique, \
             or set replace_all to true"
                .to_owned()
        )
    );
    assert_eq!(room.content("a.txt"), "one\n2\none more\n");
    assert_eq!(
        room.answer("edit_file", r#"{"path":"a.txt","old":"one","new":"1","replace_all":true}"#),
        "edited a.txt at 2 places, lines 1, 3"
    );
    assert_eq!(room.content("a.txt"), "1\n2\n1 more\n");
    assert_eq!(room.names(), ["a.txt"]);
}

#[test]
fn refused_edit_says_how_to_mend_it() {
    let room = Room::new(&[("a.rs", b"fn a() {\n    body();\n}\n"), ("dos.txt", b"a\r\nb\r\n"), ("bin", b"a\0b")]);
    let refused = |input: &str| {
        let (kind, message) = room.refusal("edit_file", input);
        (kind, message.rsplit("hint: ").next().unwrap_or_default().to_owned())
    };
    let conflict = |hint: &str| (FailureKind::Conflict, hint.to_owned());
    assert_eq!(
        refused(r#"{"path":"a.rs","old":"fn a() {\n  body();\n}","new":""}"#),
        conflict("text that differs only in white space begins at line 1; read it and copy it exactly")
    );
    assert_eq!(
        refused(r#"{"path":"a.rs","old":"body();\nother();","new":""}"#),
        conflict("its first line stands at line 2, and what follows differs; read the file again")
    );
    assert_eq!(
        refused(r#"{"path":"a.rs","old":"nothing","new":""}"#),
        conflict("read the file again and copy the text exactly")
    );
    assert_eq!(
        refused(r#"{"path":"dos.txt","old":"a\nb","new":"c"}"#),
        conflict("the file ends its lines with \\r\\n; write old and new so")
    );
    assert_eq!(room.refusal("edit_file", r#"{"path":"bin","old":"a","new":"b"}"#).0, FailureKind::InvalidInput);
    assert_eq!(room.refusal("edit_file", r#"{"path":"no","old":"a","new":"b"}"#).0, FailureKind::NotFound);
    assert_eq!(room.refusal("edit_file", r#"{"path":"a.rs","old":"","new":"b"}"#).0, FailureKind::InvalidInput);
    assert_eq!(room.refusal("edit_file", r#"{"path":"a.rs","old":"b","new":"b"}"#).0, FailureKind::InvalidInput);
}
