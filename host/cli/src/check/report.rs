//! The whole report of a check: model, capabilities, their imports and grants, their tools.

use serde_json::{Value, json};
use wharf::core::Error;
use wharf::core::grants::Grants;
use wharf::core::harness::{Capability, CapabilitySource, write_duration};
use wharf::core::rules::{BoundTool, DecidedBy};
use wharf::{Agent, CapabilityReport, CapabilityStatus, ImportLine};

use super::{Provider, explain};
use crate::say::{count, duration, plain, size};
use crate::table::Table;

/// The report for people.
pub(super) fn as_text(agent: &Agent, provider: &Result<Provider, Error>, unset: &[String]) -> String {
    let harness = agent.harness();
    let mut out = format!("harness {} ({})\n", plain(harness.name()), harness.file());
    if let Ok(provider) = provider {
        out.push_str(&format!("model   {}, protocol {}\n", plain(&provider.model), provider.driver));
        let yes = |flag: bool| if flag { "yes" } else { "no" };
        out.push_str(&format!(
            "        async calls: {}, continues stored responses: {}, can say what became of one: {}\n",
            yes(provider.async_calls),
            yes(provider.continuation),
            yes(provider.retrieval)
        ));
        out.push_str(&format!("key     {}{}\n", provider.key, key_note(unset)));
    }
    if let Some(retention) = harness.retention() {
        out.push_str(&format!("kept    sessions for {} :{}\n", write_duration(retention.keep), retention.place.line));
    }
    if harness.capabilities().next().is_none() {
        out.push_str("no capabilities: the model has no tools\n");
    }
    for capability in harness.capabilities() {
        out.push('\n');
        match agent.reports().iter().find(|report| report.name == capability.name) {
            Some(report) => out.push_str(&one(agent, capability, report)),
            None => out.push_str(&format!("capability {}: left out (enabled = false)\n", plain(&capability.name))),
        }
    }
    if agent.tools().iter().next().is_some() {
        out.push_str(
            "\nA number behind a value is the line that decided it; a value without one is built in. \
             `wharf check --explain CAPABILITY.TOOL` says all of one tool.\n",
        );
    }
    out
}

fn key_note(unset: &[String]) -> String {
    if unset.is_empty() {
        String::new()
    } else {
        format!(", which is not set: `wharf run` needs it (export {}=…)", unset.join("=…, "))
    }
}

fn one(agent: &Agent, capability: &Capability, report: &CapabilityReport) -> String {
    let name = plain(&capability.name);
    let source = match &capability.source {
        CapabilitySource::Component(path) => format!("component {}", plain(path)),
        CapabilitySource::Native(id) => format!("native {}", plain(id)),
    };
    let mut out = match &report.status {
        CapabilityStatus::Refused(_) => format!("capability {name}: refused, the others live ({source})\n"),
        CapabilityStatus::Loaded { tools, .. } => {
            format!(
                "capability {name}: {} ({source}, {})\n",
                count(tools.len() as u64, "tool", "tools"),
                report.identity
            )
        }
    };
    for line in grant_lines(&capability.grants) {
        out.push_str(&format!("  grants  {line}\n"));
    }
    for note in notes(&capability.grants) {
        out.push_str(&format!("  note    {note}\n"));
    }
    out.push_str(&import_lines(&report.imports));
    let tools: Vec<&BoundTool> = agent.tools().iter().filter(|tool| tool.capability() == capability.name).collect();
    if !tools.is_empty() {
        out.push_str(&tool_table(&tools));
    }
    for tool in tools.iter().filter(|tool| explain::needs_approval(tool)) {
        out.push_str(&format!(
            "  note    {} asks for approval, which is not available in this version: such calls are refused\n",
            plain(tool.name().as_str())
        ));
    }
    out
}

fn tool_table(tools: &[&BoundTool]) -> String {
    let mut table =
        Table::new(&["  TOOL", "REPLAY", "ASYNC", "APPROVAL", "CLASS", "TIME", "MEMORY", "OUTPUT", "AT ONCE"]);
    for tool in tools {
        let limits = tool.limits();
        let refused = if tool.refuse().value.is_some() { " (refused)" } else { "" };
        table.row([
            format!("  {}{refused}", plain(tool.name().as_str())),
            decided(tool.replay().value.as_str(), &tool.replay().by),
            decided(if tool.is_async().value { "yes" } else { "no" }, &tool.is_async().by),
            decided(&explain::approval(tool), &tool.approve().by),
            decided(&plain(tool.class().value.as_deref().unwrap_or("-")), &tool.class().by),
            decided(&duration(limits.time.value), &limits.time.by),
            decided(&size(limits.memory_bytes.value), &limits.memory_bytes.by),
            decided(&size(limits.output_bytes.value), &limits.output_bytes.by),
            decided(&limits.calls_at_once.value.to_string(), &limits.calls_at_once.by),
        ]);
    }
    table.to_string()
}

/// `safe :31`.
fn decided(value: &str, by: &DecidedBy) -> String {
    match &by.place {
        Some(place) => format!("{value} :{}", place.line),
        None => value.to_owned(),
    }
}

/// What is granted, one line each.
fn grant_lines(grants: &Grants) -> Vec<String> {
    let mut lines = Vec::new();
    for folder in &grants.files {
        lines.push(format!("folder {} as {}, {}", plain(&folder.host), plain(&folder.guest), folder.access.as_str()));
    }
    lines.extend(grants.http.iter().map(|http| format!("http {}", plain(&http.pattern))));
    lines.extend(grants.env.keys().map(|name| format!("environment {}", plain(name))));
    lines.extend(
        grants.secrets.iter().map(|secret| format!("secret {} towards {}", plain(&secret.name), plain(&secret.to))),
    );
    lines.extend(grants.tools.iter().map(|tool| format!("tool {}", plain(tool.as_str()))));
    if grants.state {
        lines.push("a folder for state".to_owned());
    }
    if lines.is_empty() {
        lines.push("nothing".to_owned());
    }
    lines
}

/// Grants that this version answers with denial: narrower than written, never wider.
fn notes(grants: &Grants) -> Vec<String> {
    let kinds = [
        ("http", !grants.http.is_empty()),
        ("secrets", !grants.secrets.is_empty()),
        ("tools", !grants.tools.is_empty()),
        ("state", grants.state),
    ];
    let granted = kinds.into_iter().filter(|(_, granted)| *granted);
    granted.map(|(kind, _)| format!("{kind} is granted, and answered with denial in this version")).collect()
}

fn import_lines(imports: &[ImportLine]) -> String {
    let mut out = String::new();
    // Interfaces that one line would grant stand together.
    let mut lines: Vec<(String, Vec<String>)> = Vec::new();
    for import in imports.iter().filter(|import| import.verdict != "granted") {
        let would = match (&import.hint, import.verdict.as_str()) {
            (Some(hint), "answered with denial") => format!("granted by {hint}"),
            (Some(hint), verdict) => format!("{verdict}, {hint}"),
            (None, "answered with denial") => "no grant gives it".to_owned(),
            (None, verdict) => verdict.to_owned(),
        };
        match lines.iter_mut().find(|(known, _)| *known == would) {
            Some((_, names)) => names.push(plain(&import.name)),
            None => lines.push((would, vec![plain(&import.name)])),
        }
    }
    for (would, names) in lines {
        out.push_str(&format!("  denied  {}\n          {would}\n", names.join(", ")));
    }
    out
}

/// The report as JSON.
pub(super) fn as_json(agent: &Agent, provider: &Result<Provider, Error>, unset: &[String]) -> Value {
    let error_json =
        |error: &Error| json!({ "kind": error.kind.as_str(), "message": error.message, "hint": error.hint });
    let harness = agent.harness();
    json!({
        "harness": { "name": harness.name(), "file": harness.file() },
        "provider": match provider {
            Ok(provider) => json!({
                "model": provider.model, "protocol": provider.driver, "async_calls": provider.async_calls,
                "continuation": provider.continuation, "retrieval": provider.retrieval, "key": provider.key, "error": null,
            }),
            Err(error) => json!({ "error": error_json(error) }),
        },
        "keys_not_set": unset,
        "sessions": { "keep": harness.retention().map(|retention| write_duration(retention.keep)) },
        "capabilities": harness.capabilities().map(|capability| {
            let report = agent.reports().iter().find(|report| report.name == capability.name);
            let (status, error) = match report.map(|report| &report.status) {
                None => ("disabled", Value::Null),
                Some(CapabilityStatus::Loaded { .. }) => ("loaded", Value::Null),
                Some(CapabilityStatus::Refused(error)) => ("refused", error_json(error)),
            };
            let refused = match report.map(|report| &report.status) {
                Some(CapabilityStatus::Loaded { refused, .. }) => refused.as_slice(),
                Some(CapabilityStatus::Refused(_)) | None => &[],
            };
            json!({
                "name": capability.name,
                "status": status,
                "error": error,
                "identity": report.map(|report| report.identity.as_str()),
                "grants": grant_lines(&capability.grants),
                "notes": notes(&capability.grants),
                "imports": report.map(|report| report.imports.iter().map(|import| json!({
                    "name": import.name, "verdict": import.verdict, "hint": import.hint,
                })).collect::<Vec<_>>()),
                "refused_tools": refused.iter().map(|tool| json!({
                    "name": tool.name.as_str(), "error": error_json(&tool.error),
                })).collect::<Vec<_>>(),
            })
        }).collect::<Vec<_>>(),
        "tools": agent.tools().iter().map(explain::tool_json).collect::<Vec<_>>(),
    })
}
