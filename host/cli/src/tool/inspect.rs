//! `wharf tool inspect`: what a component is, what it asks for, what it says of itself.

use serde_json::{Value, json};
use wharf::core::Error;
use wharf::core::grants::{Grants, Limits};
use wharf::core::tool::Definition;
use wharf::sandbox::{Description, ImportVerdict, Inspection};

use super::{check_config, config, load, name, read};
use crate::args::InspectArgs;
use crate::check::explain::{claims_json, claims_text, input_json, input_text};
use crate::exit::Exit;
use crate::say::{plain, plain_lines, size};
use crate::{exit, screen};

/// What a component answered.
struct Answers {
    schema: Option<Value>,
    definitions: Vec<Definition>,
    about: Option<Description>,
}

/// Inspects it. A component that cannot be loaded is shown as far as it can be read.
///
/// # Errors
/// A file that cannot be read or is no component.
pub(crate) async fn inspect(args: InspectArgs) -> anyhow::Result<Exit> {
    let bytes = read(&args.file)?;
    let config = config(&args.config)?;
    let name = name(&args.file);
    let inspection = wharf::sandbox::inspect(&name, &bytes, &Grants::default()).map_err(Error::from)?;
    let answers = ask(name, bytes, &config).await;
    if args.json {
        screen::print_json(&as_json(&inspection, answers.as_ref()))?;
    } else {
        screen::print(&as_text(&inspection, answers.as_ref().ok()))?;
    }
    match answers {
        Ok(_) => Ok(Exit::Ok),
        Err(error) => Ok(exit::report(&error.into())),
    }
}

async fn ask(name: String, bytes: Vec<u8>, config: &Value) -> Result<Answers, Error> {
    let capability = load(name, bytes, Grants::default(), Limits::default()).await?;
    let schema = check_config(&capability, config).await?;
    let config = config.to_string();
    Ok(Answers {
        schema,
        definitions: capability.definitions(&config).await?,
        about: capability.describe(&config).await?,
    })
}

fn as_text(inspection: &Inspection, answers: Option<&Answers>) -> String {
    let mut out = format!("{}  {}\n", inspection.digest, size(inspection.bytes));
    if let Some(version) = &inspection.tools {
        let about = if inspection.about { ", describes itself" } else { "" };
        out.push_str(&format!("made for wharf:tool@{}{about}\n", plain(version)));
    }
    out.push_str("\nimports (without any grant)\n");
    if inspection.imports.is_empty() {
        out.push_str("  none\n");
    }
    let width = inspection.imports.iter().map(|import| import.name.chars().count()).max().unwrap_or(0);
    for import in &inspection.imports {
        let (verdict, hint) = verdict(&import.verdict);
        let hint = hint.map(|hint| format!(", {hint}")).unwrap_or_default();
        out.push_str(&format!("  {:<width$}  {verdict}{hint}\n", plain(&import.name)));
    }
    out.push_str("\nexports\n");
    for export in &inspection.exports {
        out.push_str(&format!("  {}\n", plain(export)));
    }
    let Some(answers) = answers else { return out };
    if let Some(about) = &answers.about {
        out.push_str(&format!("\nabout (its own words)\n  {} ({})\n", plain(&about.title), plain(&about.id)));
        out.push_str(&indented(&about.description, "  "));
        if !about.instructions.trim().is_empty() {
            out.push_str("  told to the model:\n");
            out.push_str(&indented(&about.instructions, "    "));
        }
    }
    out.push_str("\nconfig schema\n");
    match &answers.schema {
        Some(schema) => out.push_str(&indented(&format!("{schema:#}"), "  ")),
        None => out.push_str("  it takes no config\n"),
    }
    out.push_str("\ntools\n");
    for tool in &answers.definitions {
        let title = tool.title.as_deref().map(|title| format!(" ({})", plain(title))).unwrap_or_default();
        out.push_str(&format!("  {}{title}\n", plain(tool.name.as_str())));
        out.push_str(&indented(&tool.description, "      "));
        out.push_str(&format!("      claims, not believed: {}\n", claims_text(tool.claims)));
        out.push_str(&format!("      input  {}\n", input_text(tool)));
        if let Some(schema) = &tool.output_schema {
            out.push_str(&format!("      output {}\n", plain(&schema.to_string())));
        }
    }
    out
}

fn indented(text: &str, indent: &str) -> String {
    plain_lines(text).lines().map(|line| format!("{indent}{line}").trim_end().to_owned() + "\n").collect()
}

fn verdict(verdict: &ImportVerdict) -> (&'static str, Option<String>) {
    match verdict {
        ImportVerdict::Granted => ("served", None),
        ImportVerdict::AnsweredWithDenial { grant_line: Some(line) } => {
            ("answered with denial", Some(format!("granted by {line}")))
        }
        ImportVerdict::AnsweredWithDenial { grant_line: None } => ("answered with denial", None),
        ImportVerdict::Unknown => ("unknown: nobody serves it", None),
        ImportVerdict::WrongVersion { served } => ("wrong version", Some(format!("served: {}", served.join(", ")))),
    }
}

fn as_json(inspection: &Inspection, answers: Result<&Answers, &Error>) -> Value {
    let mut value = json!({
        "digest": inspection.digest.to_string(),
        "bytes": inspection.bytes,
        "contract": inspection.tools,
        "imports": inspection.imports.iter().map(|import| {
            let (word, hint) = match &import.verdict {
                ImportVerdict::Granted => ("served", None),
                ImportVerdict::AnsweredWithDenial { grant_line } => ("denied", grant_line.clone()),
                ImportVerdict::Unknown => ("unknown", None),
                ImportVerdict::WrongVersion { served } => ("wrong_version", Some(served.join(", "))),
            };
            json!({ "name": import.name, "verdict": word, "hint": hint })
        }).collect::<Vec<_>>(),
        "exports": inspection.exports,
    });
    match answers {
        Ok(answers) => {
            value["config_schema"] = answers.schema.clone().unwrap_or(Value::Null);
            value["about"] = answers.about.as_ref().map_or(Value::Null, |about| {
                json!({
                    "id": about.id, "title": about.title, "description": about.description,
                    "instructions": about.instructions,
                })
            });
            let tools = answers.definitions.iter().map(|tool| {
                json!({
                    "name": tool.name.as_str(), "title": tool.title, "category": tool.category,
                    "description": tool.description, "input": input_json(&tool.input),
                    "output_schema": tool.output_schema, "claims_not_believed": claims_json(tool.claims),
                })
            });
            value["tools"] = tools.collect::<Vec<_>>().into();
            value["error"] = Value::Null;
        }
        Err(error) => {
            value["error"] = json!({ "kind": error.kind.as_str(), "message": error.message, "hint": error.hint });
        }
    }
    value
}
