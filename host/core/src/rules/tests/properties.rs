//! What holds for any set of rules.

use proptest::prelude::*;

use super::*;

/// One rule line: where it stands and what it says.
#[derive(Debug, Clone, PartialEq)]
struct Line {
    table: &'static str,
    key: &'static str,
    value: &'static str,
}

const TABLES: [&str; 7] = [
    "capabilities.c.tools.read_file",
    "capabilities.c.tools.\"read_*\"",
    "capabilities.c.tools.\"r*\"",
    "capabilities.c",
    "profiles.p",
    "profiles.q",
    "defaults",
];

/// Values from the most to the least that they allow.
const VALUES: [(&str, &[&str]); 4] = [
    ("replay", &["\"safe\"", "\"keyed\"", "\"never\""]),
    ("async", &["true", "false"]),
    ("approve", &["\"never\"", "{ unless_text = \"x\" }", "\"always\""]),
    ("refuse", &["false", "\"no\""]),
];

fn lines() -> impl Strategy<Value = Vec<Line>> {
    let line = (0..TABLES.len(), 0..VALUES.len(), any::<prop::sample::Index>()).prop_map(|(table, key, value)| {
        let (key, values) = VALUES[key];
        Line { table: TABLES[table], key, value: values[value.index(values.len())] }
    });
    prop::collection::vec(line, 0..14).prop_map(|lines| {
        // One table says a key once.
        let mut kept: Vec<Line> = Vec::new();
        for line in lines {
            if !kept.iter().any(|known| (known.table, known.key) == (line.table, line.key)) {
                kept.push(line);
            }
        }
        kept
    })
}

fn written(lines: &[Line]) -> String {
    let mut text = "[harness]\nname = \"h\"\n".to_owned();
    let mut order: Vec<&str> = Vec::new();
    for line in lines {
        if !order.contains(&line.table) {
            order.push(line.table);
        }
    }
    for table in ["capabilities.c", "profiles.p", "profiles.q"] {
        if !order.contains(&table) {
            order.push(table);
        }
    }
    for table in order {
        text.push_str(&format!("[{table}]\n"));
        if table == "capabilities.c" {
            text.push_str("component = \"c\"\nprofile = [\"q\", \"p\"]\n");
        }
        for line in lines.iter().filter(|line| line.table == table) {
            text.push_str(&format!("{} = {}\n", line.key, line.value));
        }
    }
    text
}

/// How much each part allows, from 0, for tools read_file, read and other; none if the rules clash.
fn allowance(lines: &[Line]) -> Option<Vec<[usize; 4]>> {
    let text = written(lines);
    let harness = Harness::parse("h.toml", &text).unwrap_or_else(|faults| panic!("{faults}\n{text}"));
    let definitions = [function("read_file"), function("read_"), function("run"), function("other")];
    let bound = harness.bind(harness.capability("c").expect("it is there"), &definitions).ok()?;
    let of = |tool: &BoundTool| {
        let replay = match tool.replay().value {
            ReplayClass::Never => 0,
            ReplayClass::Keyed => 1,
            ReplayClass::Safe => 2,
        };
        let approve = match tool.approve().value {
            Approval::Always => 0,
            Approval::Unless(_) | Approval::UnlessText(_) => 1,
            Approval::Never => 2,
        };
        [replay, usize::from(tool.is_async().value), approve, usize::from(tool.refuse().value.is_none())]
    };
    Some(bound.tools.iter().map(of).collect())
}

proptest! {
    /// A rule that allows the most there is can only be missed: without it a tool gets what it had, or less.
    #[test]
    fn taking_a_permission_away_never_allows_more(lines in lines(), at in any::<prop::sample::Index>()) {
        let Some(before) = allowance(&lines) else { return Ok(()) };
        let permissions: Vec<usize> = (0..lines.len())
            .filter(|n| VALUES.iter().any(|(key, values)| *key == lines[*n].key && values[0] == lines[*n].value))
            .collect();
        prop_assume!(!permissions.is_empty());
        let mut fewer = lines.clone();
        fewer.remove(permissions[at.index(permissions.len())]);
        if let Some(after) = allowance(&fewer) {
            for (before, after) in before.iter().zip(&after) {
                for part in 0..4 {
                    prop_assert!(after[part] <= before[part], "{lines:?}\n{fewer:?}");
                }
            }
        }
    }

    #[test]
    fn order_of_rules_does_not_matter((lines, other) in lines().prop_flat_map(|lines| (Just(lines.clone()), Just(lines).prop_shuffle()))) {
        prop_assert_eq!(allowance(&lines), allowance(&other));
    }

    #[test]
    fn a_pattern_agrees_with_a_naive_reference(pattern in "[ab*]{0,6}", name in "[ab]{0,8}") {
        fn naive(pattern: &[u8], name: &[u8]) -> bool {
            match pattern.split_first() {
                None => name.is_empty(),
                Some((b'*', rest)) => (0..=name.len()).any(|at| naive(rest, &name[at..])),
                Some((first, rest)) => name.split_first().is_some_and(|(byte, name)| byte == first && naive(rest, name)),
            }
        }
        prop_assert_eq!(Pattern::new(&pattern).matches(&name), naive(pattern.as_bytes(), name.as_bytes()));
    }
}
