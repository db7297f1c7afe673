//! The component `files`: reads, lists, searches and changes files below a root. It can reach what the operator granted
//! and nothing else; the root only makes paths short.

mod change;
mod limits;
mod list;
mod read;
mod search;
#[cfg(test)]
mod tests;
mod text;
mod walk;

use serde::Deserialize;
use wharf_tool_sdk::{Capability, Claims, Component, Description, Failure, JsonSchema, Root, Tool};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Config {
    /// The folder that paths are relative to: absolute, as granted in `grants.fs` (`guest`).
    #[serde(default)]
    root: Root,
    /// Offer only the tools that read.
    #[serde(default)]
    read_only: bool,
}

struct Files;

impl Component for Files {
    type Config = Config;

    fn tools(config: &Config) -> Result<Vec<Tool<Config>>, Failure> {
        let reading = Claims::READ_ONLY | Claims::IDEMPOTENT;
        let mut tools = vec![
            Tool::json(
                "read_file",
                "Reads a text file, whole or by lines. Long files come in parts, with a note on how to go on; binary files are \
                 described instead of shown.",
                read::read_file,
            )
            .title("Read file")
            .claims(reading),
            Tool::json(
                "list_files",
                "Lists a folder, or with recursive the tree below it, with sizes. Folders end with a slash.",
                list::list_files,
            )
            .title("List files")
            .claims(reading),
            Tool::json(
                "search_files",
                "Finds lines that match a regular expression in a file or in all text files of a tree. Answers with path, line \
                 number and line.",
                search::search_files,
            )
            .title("Search files")
            .claims(reading),
        ];
        if !config.read_only {
            tools.extend([
                Tool::json(
                    "write_file",
                    "Creates a file or replaces it whole. To change a part of a file, use edit_file.",
                    change::write_file,
                )
                .title("Write file")
                .claims(Claims::DESTRUCTIVE | Claims::IDEMPOTENT),
                Tool::json(
                    "edit_file",
                    "Replaces an exact piece of text in a file. Refuses, and changes nothing, if the text is not there or \
                     occurs more than once. Read the file first.",
                    change::edit_file,
                )
                .title("Edit file")
                .claims(Claims::DESTRUCTIVE),
            ]);
        }
        Ok(tools.into_iter().map(|tool| tool.category("files")).collect())
    }
}

impl Capability for Files {
    fn describe(config: &Config) -> Result<Description, Failure> {
        let root = config.root.as_str();
        let (what, tools) = if config.read_only {
            ("Reads, lists and searches", "read_file, list_files and search_files")
        } else {
            ("Reads, lists, searches and changes", "read_file, list_files, search_files, write_file and edit_file")
        };
        Ok(Description {
            id: "files".to_owned(),
            title: "Files".to_owned(),
            description: format!("{what} files below {root}."),
            instructions: format!(
                "The tools {tools} work on files below {root}. Write paths relative to it, without a leading slash. Look \
                 before you guess: list or search first, then read what matters."
            ),
        })
    }
}

wharf_tool_sdk::export_capability!(Files);
