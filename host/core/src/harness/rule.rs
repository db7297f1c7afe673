//! Reads what one place of the file says of tools: rule and limits.

use std::sync::Arc;
use std::time::Duration;

use super::read::{At, Node, Table};
use super::units;
use crate::limits;
use crate::policy::ReplayClass;
use crate::rules::{Approval, FormatRule, ReplayRule, Rule, Said};
use crate::schema::{Schema, TextPattern};
use crate::tool::{Grammar, GrammarSyntax};

/// Rule and limits of a table. Keys that the table cannot have are not asked for.
pub(super) fn read_rule(table: &Table<'_>) -> Rule {
    let mut rule = Rule {
        approve: table.get("approve").and_then(|node| said(&node, read_approval(&node))),
        replay: table.get("replay").and_then(|node| read_replay(&node)).map(said_at),
        is_async: table.get("async").and_then(|node| node.boolean()).map(said_at),
        class: table
            .get("class")
            .and_then(|node| node.some_text())
            .map(|text| Said { value: Arc::from(text.value), place: text.place }),
        format: table.get("format").and_then(|node| said(&node, read_format(&node))),
        refuse: table.get("refuse").and_then(|node| said(&node, read_refusal(&node))),
        ..Rule::default()
    };
    if let Some(limits) = table.get("limits").and_then(|node| node.table()) {
        read_limits(&limits, &mut rule);
    }
    rule
}

fn said<T>(node: &Node<'_>, value: Option<T>) -> Option<Said<T>> {
    value.map(|value| Said { value, place: node.place() })
}

fn said_at<T>(at: At<T>) -> Said<T> {
    Said { value: at.value, place: at.place }
}

fn read_replay(node: &Node<'_>) -> Option<At<ReplayRule>> {
    node.word(&[
        ("never", ReplayRule::Class(ReplayClass::Never)),
        ("safe", ReplayRule::Class(ReplayClass::Safe)),
        ("keyed", ReplayRule::Class(ReplayClass::Keyed)),
        ("when-pure", ReplayRule::WhenPure),
    ])
}

fn read_approval(node: &Node<'_>) -> Option<Approval> {
    if !node.is_table() {
        return node.word(&[("never", Approval::Never), ("always", Approval::Always)]).map(|word| word.value);
    }
    let table = node.table()?;
    match (table.get("unless"), table.get("unless_text")) {
        (Some(harmless), None) => {
            harmless.named()?;
            let schema = harmless.json()?;
            match Schema::compile(&schema) {
                Ok(schema) => Some(Approval::Unless(Arc::new(schema))),
                Err(why) => {
                    harmless.fault(format!("the schema {why}"));
                    None
                }
            }
        }
        (None, Some(harmless)) => {
            let text = harmless.text()?.value;
            match TextPattern::compile(&text) {
                Ok(pattern) => Some(Approval::UnlessText(Arc::new(pattern))),
                Err(why) => {
                    harmless.fault(format!("the pattern {why}"));
                    None
                }
            }
        }
        (None, None) | (Some(_), Some(_)) => {
            node.fault("says not exactly one of \"unless\" and \"unless_text\"");
            None
        }
    }
}

fn read_format(node: &Node<'_>) -> Option<FormatRule> {
    if !node.is_table() {
        return node.word(&[("function", FormatRule::Function), ("text", FormatRule::Text)]).map(|word| word.value);
    }
    let table = node.table()?;
    let syntax = table.need("grammar")?.word(&[("lark", GrammarSyntax::Lark), ("regex", GrammarSyntax::Regex)]);
    let text = table.need("definition")?;
    let definition = text.some_text()?.value;
    let syntax = syntax?.value;
    if syntax == GrammarSyntax::Regex
        && let Err(why) = TextPattern::compile(&definition)
    {
        text.fault(format!("the pattern {why}"));
        return None;
    }
    Some(FormatRule::Grammar(Grammar { syntax, definition }))
}

fn read_refusal(node: &Node<'_>) -> Option<Option<Arc<str>>> {
    if node.is_bool() {
        return node.boolean().map(|flag| flag.value.then(|| Arc::from("it may not be called")));
    }
    node.some_text().map(|text| Some(Arc::from(text.value)))
}

fn read_limits(table: &Table<'_>, rule: &mut Rule) {
    rule.time = table.get("time").and_then(|node| read_time(&node));
    rule.memory_bytes = table
        .get("memory")
        .and_then(|node| read_size(&node, limits::CALL_MEMORY_BYTES_MIN, limits::CALL_MEMORY_BYTES_MAX));
    rule.output_bytes = table.get("output").and_then(|node| read_size(&node, 1, limits::CALL_OUTPUT_BYTES_MAX));
    if table.knows("calls_at_once") {
        let calls = table.get("calls_at_once").and_then(|node| node.whole(1, u64::from(limits::CALLS_AT_ONCE_MAX)));
        rule.calls_at_once =
            calls.map(|calls| Said { value: u32::try_from(calls.value).unwrap_or(u32::MAX), place: calls.place });
    }
}

fn read_time(node: &Node<'_>) -> Option<Said<Duration>> {
    let text = node.text()?;
    let most = Duration::from_secs(limits::CALL_TIME_SECONDS_MAX);
    match units::duration(&text.value) {
        Ok(time) if time <= most => Some(Said { value: time, place: text.place }),
        Ok(_) => {
            node.fault(format!("{:?} is longer than {}", text.value, units::write_duration(most)));
            None
        }
        Err(why) => {
            node.fault(format!("{:?} is not a duration: it {why}", text.value));
            None
        }
    }
}

fn read_size(node: &Node<'_>, least: u64, most: u64) -> Option<Said<u64>> {
    let text = node.text()?;
    match units::size(&text.value) {
        Ok(bytes) if (least..=most).contains(&bytes) => Some(Said { value: bytes, place: text.place }),
        Ok(_) => {
            node.fault(format!(
                "{:?} is not between {} and {}",
                text.value,
                units::write_size(least),
                units::write_size(most)
            ));
            None
        }
        Err(why) => {
            node.fault(format!("{:?} is not a size: it {why}", text.value));
            None
        }
    }
}
