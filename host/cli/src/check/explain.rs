//! One tool: what it ends up with, and for each value the line that decided it. What the tool says of itself is shown
//! beside that, and decides nothing.

use serde_json::{Value, json};
use wharf::Agent;
use wharf::core::rules::{Approval, BoundTool, DecidedBy};
use wharf::core::tool::{Claims, Definition, InputFormat};

use crate::say::{duration, plain, plain_lines, size};

/// The explanation for people.
pub(super) fn as_text(agent: &Agent, tool: &BoundTool) -> String {
    let mut out =
        format!("{}.{} in {}\n", plain(tool.capability()), plain(tool.own_name().as_str()), agent.harness().file());
    if tool.name() != tool.own_name() {
        out.push_str(&format!("  shown to the model as {}\n", plain(tool.name().as_str())));
    }
    out.push('\n');
    let rows = rows(tool);
    let width = rows.iter().map(|row| row.value.chars().count()).max().unwrap_or(0);
    for row in &rows {
        let gap = " ".repeat(width - row.value.chars().count());
        out.push_str(&format!("  {:<9} {}{gap}  {}\n", row.name, row.value, row.by));
    }
    if needs_approval(tool) {
        out.push_str("\n  approval is not available in this version: a call that needs it is refused\n");
    }
    let shown = tool.shown();
    out.push_str(&format!("\n  claims (not believed)  {}\n", claims_text(shown.claims)));
    out.push_str(&format!("  input                  {}\n", input_text(shown)));
    out.push_str("\n  what the model is told:\n");
    for line in plain_lines(&shown.description).lines() {
        out.push_str(&format!("    {line}\n"));
    }
    out
}

/// The explanation as JSON.
pub(super) fn as_json(agent: &Agent, tool: &BoundTool) -> Value {
    let mut value = tool_json(tool);
    value["file"] = agent.harness().file().into();
    value["description"] = tool.shown().description.as_str().into();
    value["input"] = input_json(&tool.shown().input);
    value
}

/// A tool's values, each with what decided it.
pub(super) fn tool_json(tool: &BoundTool) -> Value {
    let mut value = json!({
        "name": tool.name().as_str(), "capability": tool.capability(), "own_name": tool.own_name().as_str(),
        "claims_not_believed": claims_json(tool.definition().claims),
    });
    let limits = tool.limits();
    let values: [(&str, Value, &DecidedBy); 9] = [
        ("replay", tool.replay().value.as_str().into(), &tool.replay().by),
        ("async", tool.is_async().value.into(), &tool.is_async().by),
        ("approve", tool.approve().value.to_json(), &tool.approve().by),
        ("class", tool.class().value.as_deref().into(), &tool.class().by),
        ("refuse", tool.refuse().value.as_deref().into(), &tool.refuse().by),
        ("time_ms", u64::try_from(limits.time.value.as_millis()).unwrap_or(u64::MAX).into(), &limits.time.by),
        ("memory_bytes", limits.memory_bytes.value.into(), &limits.memory_bytes.by),
        ("output_bytes", limits.output_bytes.value.into(), &limits.output_bytes.by),
        ("calls_at_once", limits.calls_at_once.value.into(), &limits.calls_at_once.by),
    ];
    for (name, decided, by) in values {
        value[name] = json!({
            "value": decided,
            "by": by.rank.as_str(),
            "at": by.place.as_ref().map(ToString::to_string),
            "key": by.place.as_ref().map(|place| place.key.to_string()),
            "note": by.note.as_deref(),
        });
    }
    value
}

struct Row {
    name: &'static str,
    value: String,
    by: String,
}

fn rows(tool: &BoundTool) -> Vec<Row> {
    let row = |name, value: String, by: &DecidedBy| Row { name, value, by: plain(&by.to_string()) };
    let limits = tool.limits();
    let yes = |flag: bool| if flag { "yes" } else { "no" };
    vec![
        row("replay", tool.replay().value.to_string(), &tool.replay().by),
        row("async", yes(tool.is_async().value).to_owned(), &tool.is_async().by),
        row("approval", approval(tool), &tool.approve().by),
        row("class", plain(tool.class().value.as_deref().unwrap_or("none")), &tool.class().by),
        row("refused", plain(tool.refuse().value.as_deref().unwrap_or("no")), &tool.refuse().by),
        row("time", duration(limits.time.value), &limits.time.by),
        row("memory", size(limits.memory_bytes.value), &limits.memory_bytes.by),
        row("output", size(limits.output_bytes.value), &limits.output_bytes.by),
        row("at once", limits.calls_at_once.value.to_string(), &limits.calls_at_once.by),
    ]
}

/// When a call needs approval, in words.
pub(super) fn approval(tool: &BoundTool) -> String {
    match &tool.approve().value {
        Approval::Never => "never",
        Approval::Always => "always",
        Approval::Unless(_) => "unless harmless",
        Approval::UnlessText(_) => "unless harmless text",
    }
    .to_owned()
}

/// True if some call of it needs approval.
pub(super) fn needs_approval(tool: &BoundTool) -> bool {
    match &tool.approve().value {
        Approval::Never => false,
        Approval::Always | Approval::Unless(_) | Approval::UnlessText(_) => true,
    }
}

/// What a tool says of itself.
pub(crate) fn claims_text(claims: Claims) -> String {
    let words: Vec<&str> = claim_list(claims).into_iter().filter(|(_, said)| *said).map(|(word, _)| word).collect();
    if words.is_empty() { "none".to_owned() } else { words.join(", ") }
}

/// The same as JSON.
pub(crate) fn claims_json(claims: Claims) -> Value {
    Value::Object(claim_list(claims).into_iter().map(|(word, said)| (word.replace('-', "_"), said.into())).collect())
}

fn claim_list(claims: Claims) -> [(&'static str, bool); 4] {
    [
        ("read-only", claims.read_only),
        ("idempotent", claims.idempotent),
        ("destructive", claims.destructive),
        ("open-world", claims.open_world),
    ]
}

/// The form of a tool's input, in words.
pub(crate) fn input_text(definition: &Definition) -> String {
    match &definition.input {
        InputFormat::JsonSchema(schema) => format!("JSON: {}", plain(&schema.to_string())),
        InputFormat::Text => "raw text".to_owned(),
        InputFormat::Grammar(grammar) => {
            format!("raw text of a {} grammar: {}", grammar.syntax.as_str(), plain(&grammar.definition))
        }
    }
}

/// The same as JSON.
pub(crate) fn input_json(input: &InputFormat) -> Value {
    match input {
        InputFormat::JsonSchema(schema) => json!({ "format": "json", "schema": schema }),
        InputFormat::Text => json!({ "format": "text" }),
        InputFormat::Grammar(grammar) => {
            json!({ "format": "grammar", "syntax": grammar.syntax.as_str(), "definition": grammar.definition })
        }
    }
}
