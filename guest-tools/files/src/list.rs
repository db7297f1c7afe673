//! `list_files`: what is in a folder or a tree.

use serde::Deserialize;
use wharf_tool_sdk::{Call, Failure, JsonSchema};

use crate::{
    Config, limits,
    walk::{Filter, Kind, Reach, walk},
};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListFiles {
    /// The folder, relative to the root; the root itself if left out.
    #[serde(default)]
    path: String,
    /// List the folders in it as well, all the way down.
    #[serde(default)]
    recursive: bool,
    /// Show only entries that match, for example `*.md` (any name) or `src/**/*.rs` (path below the folder).
    glob: Option<String>,
    /// Most entries to show.
    limit: Option<usize>,
}

pub(crate) fn list_files(call: &Call<Config>, input: ListFiles) -> Result<String, Failure> {
    let folder = call.config.root.resolve(&input.path)?;
    let filter = input.glob.as_deref().map(Filter::new).transpose()?;
    let limit = input.limit.unwrap_or(limits::LIST_ENTRIES_MAX).clamp(1, limits::LIST_ENTRIES_MAX);
    let reach = if input.recursive { Reach::Tree } else { Reach::Folder };
    let mut shown = Vec::new();
    let mut bytes = 0;
    let mut full = false;
    let cut = walk(&folder, reach, |entry| {
        if filter.as_ref().is_some_and(|filter| !filter.passes(&folder, &entry.place)) {
            return Ok(true);
        }
        let line = match &entry.kind {
            Kind::File { bytes } => format!("{}  ({bytes} bytes)", entry.place),
            Kind::Folder => format!("{}/", entry.place),
            Kind::Link => format!("{}  (link)", entry.place),
            Kind::Unreadable(why) => format!("{}  (cannot be read: {why})", entry.place),
            Kind::Other => format!("{}  (neither file nor folder)", entry.place),
        };
        full = shown.len() >= limit || bytes + line.len() > limits::ANSWER_BYTES_MAX;
        if !full {
            bytes += line.len() + 1;
            shown.push(line);
        }
        Ok(!full)
    })?;
    if full {
        shown.push(format!(
            "note: cut after {} entries, there are more; hint: narrow it with path or glob",
            shown.len()
        ));
    } else if let Some(cut) = cut {
        shown.push(format!("note: {}; hint: narrow it with path", cut.describe()));
    } else if shown.is_empty() {
        shown.push(match &input.glob {
            Some(glob) => format!("note: nothing in {folder} matches {glob:?}"),
            None => format!("note: the folder {folder} is empty"),
        });
    }
    Ok(shown.join("\n"))
}
