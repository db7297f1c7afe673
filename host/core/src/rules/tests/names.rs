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

#[test]
fn a_prefix_that_meets_another_name_gets_a_hash() {
    // TOOL-6
    let table = ToolTable::new(named(&[("a", &["x", "b__x"]), ("b", &["x"])]), &[]);
    let names: Vec<&str> = table.iter().map(|tool| tool.name().as_str()).collect();
    assert_eq!(names.len(), 3);
    assert!(names[0].starts_with("b__x_") && names[0].len() == "b__x_".len() + 8, "{names:?}");
    assert_eq!(names[1], "a__x");
    assert!(names[2].starts_with("b__x_") && names[2] != names[0], "{names:?}");
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
