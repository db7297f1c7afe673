//! The component `query`: one tool that runs a jq program over JSON. Its input is raw text, so that a program keeps its
//! line breaks and quotes.

mod input;
mod limits;
mod run;
#[cfg(test)]
mod tests;

use std::io::Read;

use serde::Deserialize;
use wharf_tool_sdk::{Call, Claims, Component, Content, Failure, JsonSchema, Root, Tool};

use input::{Query, Source};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Config {
    /// The folder that paths are relative to: absolute, as granted in `grants.fs` (`guest`).
    #[serde(default)]
    root: Root,
    /// The JSON file that programs run over when the input says nothing else, relative to the root.
    file: Option<String>,
}

struct QueryTool;

impl Component for QueryTool {
    type Config = Config;

    fn tools(config: &Config) -> Result<Vec<Tool<Config>>, Failure> {
        let otherwise = match &config.file {
            Some(file) => {
                config.root.resolve(file)?;
                format!("With neither, the program runs over {file}.")
            }
            None => "One of the two is needed.".to_owned(),
        };
        Ok(vec![
            Tool::text(
                "query",
                format!(
                    "Runs a jq program over JSON and answers with each of its outputs. The input is the program itself as plain \
                     text, in as many lines as it needs. To run it over a file, let the first line be `# file: PATH` with a path \
                     relative to {root}. To run it over JSON of your own, put a line `---` after the program and the JSON below \
                     it. {otherwise}\nExample:\n# file: orders.json\n.orders[]\n| select(.total > 100)\n| {{id, total}}",
                    root = config.root.as_str()
                ),
                query,
            )
            .title("Query JSON")
            .category("data")
            .claims(Claims::READ_ONLY | Claims::IDEMPOTENT),
        ])
    }
}

fn query(call: &Call<Config>, text: &str) -> Result<Vec<Content>, Failure> {
    let Query { program, source } = Query::read(text)?;
    let outputs = match source {
        Source::Inline(json) => run::run(program, json, "the text after \"---\"")?,
        Source::File(file) => run::run(program, &document(&call.config.root, file)?, file)?,
        Source::Config => match &call.config.file {
            Some(file) => run::run(program, &document(&call.config.root, file)?, file)?,
            None => {
                return Err(Failure::invalid_input(
                    "there is no JSON to run the program over; hint: begin with a line \"# file: PATH\", or put a line \"---\" and \
                     JSON after the program",
                ));
            }
        },
    };
    let count = outputs.values.len();
    let mut contents: Vec<Content> = outputs.values.into_iter().map(Content::Json).collect();
    if outputs.cut {
        contents.push(Content::Text(format!(
            "note: cut after {count} outputs, there is more; hint: narrow the program, for example with limit(10; …) or length"
        )));
    } else if count == 0 {
        contents.push(Content::Text("note: the program gave no output".to_owned()));
    }
    Ok(contents)
}

fn document(root: &Root, file: &str) -> Result<String, Failure> {
    let place = root.resolve(file)?;
    let failed = |error: std::io::Error| Failure::from_io(file, &error);
    let opened = std::fs::File::open(place.real()).map_err(failed)?;
    let found = opened.metadata().map_err(failed)?;
    if !found.is_file() {
        return Err(Failure::invalid_input(format!("{file} is not a file")));
    }
    if found.len() > limits::DOCUMENT_BYTES_MAX {
        return Err(Failure::invalid_input(format!(
            "{file} has {} bytes; at most {} can be queried",
            found.len(),
            limits::DOCUMENT_BYTES_MAX
        )));
    }
    let mut bytes = Vec::new();
    opened.take(limits::DOCUMENT_BYTES_MAX).read_to_end(&mut bytes).map_err(failed)?;
    String::from_utf8(bytes).map_err(|error| {
        Failure::invalid_input(format!("{file} is not UTF-8: first bad byte at {}", error.utf8_error().valid_up_to()))
    })
}

wharf_tool_sdk::export_tools!(QueryTool);
