//! Under which name a tool is shown, and which names a pattern matches.

use super::*;

/// The tools of several capabilities.
fn named(capabilities: &[(&str, &[&str])]) -> Vec<BoundTool> {
    let mut text = "[harness]\nname = \"h\"\n".to_owned();
    for (name, _) in capabilities {
        text.push_str(&format!("[capabilities.{name}]\ncomponent = \"c\"\n"));
    }
    let harness = Harness::parse("h.toml", &text).expect("it is well formed");
    let bound = capabilities.iter().map(|(name, tools)| {
        let definitions: Vec<Definition> = tools.iter().map(|tool| function(tool)).collect();
        harness.bind(harness.capability(name).expect("it is there"), &definitions).expect("it binds").tools
    });
    bound.flatten().collect()
}

fn shown(table: &ToolTable) -> Vec<(&str, &str, &str)> {
    table.iter().map(|tool| (tool.name().as_str(), tool.capability(), tool.own_name().as_str())).collect()
}

#[test]
fn a_name_that_two_capabilities_offer_is_prefixed_for_both() {
    // TOOL-6
    let tools = named(&[("files", &["read", "list"]), ("db", &["read"])]);
    let expected = [("db__read", "db", "read"), ("list", "files", "list"), ("files__read", "files", "read")];
    assert_eq!(shown(&ToolTable::new(tools.clone(), &[])), expected);
    // The order in which capabilities come does not matter.
    assert_eq!(shown(&ToolTable::new(tools.into_iter().rev(), &[])), expected);
    // A name of the host's own stays the host's.
    assert_eq!(shown(&ToolTable::new(named(&[("files", &["list"])]), &["list"])), [("files__list", "files", "list")]);
    let table = ToolTable::new(named(&[("files", &["read"]), ("db", &["read"])]), &[]);
    assert_eq!(table.get("read"), None);
    assert_eq!(table.own("db", "read").map(|tool| tool.name().as_str()), Some("db__read"));
    assert_eq!(
        table.offers().iter().map(|offer| offer.definition.name.as_str()).collect::<Vec<_>>(),
        ["db__read", "files__read"]
    );
}

fn hash(capability: &str, tool: &str) -> String {
    let mut hash = crate::digest::Digest::of(format!("{capability}\0{tool}").as_bytes()).short();
    hash.truncate(8);
    hash
}

fn refused(table: &ToolTable) -> Vec<(&str, &str)> {
    table.refused().map(|(capability, tool)| (capability, tool.name.as_str())).collect()
}

/// The same table for the capabilities in both orders.
#[track_caller]
fn names_of(capabilities: &[(&str, &[&str])]) -> ToolTable {
    let tools = named(capabilities);
    let table = ToolTable::new(tools.clone(), &[]);
    let reversed = ToolTable::new(tools.into_iter().rev(), &[]);
    assert_eq!((shown(&table), refused(&table)), (shown(&reversed), refused(&reversed)));
    for tool in &table {
        let found = table.get(tool.name().as_str()).map(|found| (found.capability(), found.own_name()));
        assert_eq!(found, Some((tool.capability(), tool.own_name())), "a call goes to the tool that was shown");
    }
    table
}

#[test]
fn a_name_in_another_capabilitys_part_is_prefixed() {
    // TOOL-6
    let table = names_of(&[("a", &["x", "b__x", "b__y"]), ("b", &["x"])]);
    let expected = [("a__b__x", "a", "b__x"), ("a__b__y", "a", "b__y"), ("a__x", "a", "x"), ("b__x", "b", "x")];
    assert_eq!(shown(&table), expected);
    // Without such a capability it is a name like others.
    assert_eq!(shown(&names_of(&[("a", &["b__x"])])), [("b__x", "a", "b__x")]);
}

#[test]
fn a_hostile_capability_can_take_no_name_of_anothers_tool() {
    // TOOL-6
    // It offers each name that the other's tool could be shown under.
    let hashed = format!("files__read_file_{}", hash("files", "read_file"));
    for hostile in ["a", "z", "file", "files_", "files__", "files__read_file"] {
        let names: [&str; 3] = ["read_file", "files__read_file", &hashed];
        let table = names_of(&[(hostile, &names), ("files", &["read_file"])]);
        let own = table.own("files", "read_file").map(|tool| tool.name().as_str());
        assert_eq!(own, Some("files__read_file"), "{hostile}");
        assert!(refused(&table).is_empty(), "{hostile}: {:?}", refused(&table));
        // Alone with the two, the tool keeps its bare name.
        let table = names_of(&[(hostile, &names[1..]), ("files", &["read_file"])]);
        assert_eq!(table.own("files", "read_file").map(|tool| tool.name().as_str()), Some("read_file"), "{hostile}");
    }
    // A capability's name that is too long for a prefix is no way in either.
    let long = "l".repeat(64);
    let table = names_of(&[(&long, &["t"]), ("z", &["t"])]);
    let victim = table.own(&long, "t").map(|tool| tool.name().as_str().to_owned()).expect("it is there");
    let hashed = format!("{victim}_{}", hash(&long, "t"));
    let table = names_of(&[(&long, &["t"]), ("z", &["t", &victim, &hashed])]);
    assert_eq!(table.own(&long, "t").map(|tool| tool.name().as_str()), Some(victim.as_str()));
    assert_eq!(shown(&table).len() + refused(&table).len(), 4);
    assert!(refused(&table).iter().all(|(capability, _)| *capability == "z"));
}

#[test]
fn a_capability_whose_own_tools_meet_in_a_name_harms_itself_alone() {
    // TOOL-6
    // The bare name stays; the prefixed one that met it gets a hash.
    let met = format!("c__x_{}", hash("c", "x"));
    let table = names_of(&[("c", &["x", "c__x"]), ("d", &["x"])]);
    assert_eq!(shown(&table), [("c__x", "c", "c__x"), (&met, "c", "x"), ("d__x", "d", "x")]);
    // One that took that away from itself too is refused this tool, and no other.
    let table = names_of(&[("c", &["x", "c__x", &met]), ("d", &["x"])]);
    assert_eq!(shown(&table), [("c__x", "c", "c__x"), (&met, "c", met.as_str()), ("d__x", "d", "x")]);
    assert_eq!(refused(&table), [("c", "x")]);
    let error = table.refused().map(|(_, tool)| tool.error.to_string()).next().unwrap_or_default();
    assert!(error.contains(r#"tool "x" cannot be offered"#) && error.contains(r#"capability "c""#), "{error}");
    assert_eq!((table.get("x"), table.own("c", "x")), (None, None));
    assert_eq!(table.offers().len(), 3);
    // The longest capability's name counts: here the prefix of `a` leads into the part of `a__b`.
    let table = names_of(&[("a", &["b__x", "y"]), ("a__b", &["b__x", "x", "y"])]);
    assert_eq!(
        shown(&table),
        [("a__y", "a", "y"), ("a__b__b__x", "a__b", "b__x"), ("x", "a__b", "x"), ("a__b__y", "a__b", "y")]
    );
    assert_eq!(refused(&table), [("a", "b__x")]);
    // A name of the host's own is nobody's.
    let table = ToolTable::new(named(&[("c", &["x"])]), &["x", "c__x", &met]);
    assert_eq!((shown(&table).len(), refused(&table)), (0, vec![("c", "x")]));
}

#[test]
fn a_name_that_providers_do_not_take_is_shortened_and_still_found() {
    // TOOL-7
    let long = "x".repeat(200);
    let exact = "y".repeat(crate::limits::TOOL_NAME_BYTES_MAX);
    let table = ToolTable::new(named(&[("c", &["read file", "read.file", "\u{e9}", &long, &exact])]), &[]);
    let mut names: Vec<&str> = table.iter().map(|tool| tool.name().as_str()).collect();
    for (name, tool) in names.iter().zip(table.iter()) {
        let safe = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
        assert!(safe && (1..=64).contains(&name.len()), "{name}");
        assert_eq!(table.get(name).map(BoundTool::own_name), Some(tool.own_name()));
        assert_eq!(tool.shown().name, *tool.name());
    }
    assert!(names.contains(&exact.as_str()));
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), 5);
}

#[test]
fn a_pattern_matches_whole_names() {
    for (pattern, yes, no) in [
        ("read", &["read"][..], &["reads", "Read", ""][..]),
        ("read_*", &["read_", "read_file"], &["read", "xread_"]),
        ("*", &["", "anything"], &[]),
        ("a*b", &["ab", "axb", "abb"], &["a", "b", "aba"]),
        ("ab*ba", &["abba", "abxba"], &["aba"]),
        ("*x*y*", &["xy", "axbyc", "xxyy"], &["yx", "x"]),
        ("\u{e9}*\u{e9}", &["\u{e9}\u{e9}"], &["\u{e9}"]),
    ] {
        let pattern = Pattern::new(pattern);
        for name in yes {
            assert!(pattern.matches(name), "{pattern:?} {name}");
        }
        for name in no {
            assert!(!pattern.matches(name), "{pattern:?} {name}");
        }
    }
}
