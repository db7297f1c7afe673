//! Walks a tree in the order of names, within bounds. Links are shown and never followed, so a tree cannot be endless.

use std::fs;

use globset::{GlobBuilder, GlobMatcher};
use wharf_tool_sdk::{Failure, Place};

use crate::limits;

/// One entry of a tree.
pub(crate) struct Entry {
    pub(crate) place: Place,
    pub(crate) kind: Kind,
}

pub(crate) enum Kind {
    File {
        bytes: u64,
    },
    Folder,
    Link,
    /// A folder or file that could not be looked at, and why.
    Unreadable(String),
    /// A device, a socket and the like.
    Other,
}

/// Why a walk did not see everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    Entries,
    Depth,
}

impl Cut {
    pub(crate) fn describe(self) -> String {
        match self {
            Self::Entries => format!("more than {} entries were not looked at", limits::WALK_ENTRIES_MAX),
            Self::Depth => format!("folders deeper than {} were not looked at", limits::WALK_DEPTH_MAX),
        }
    }
}

/// Which folders a walk goes into.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// The folder's own entries.
    Folder,
    /// The whole tree but `.git`, whose thousands of objects are never what was meant. Name it to see it.
    Tree,
}

/// Calls `visit` for each entry below `folder` until it answers false. Fails only if the folder itself cannot be read.
pub(crate) fn walk(
    folder: &Place,
    reach: Reach,
    mut visit: impl FnMut(Entry) -> Result<bool, Failure>,
) -> Result<Option<Cut>, Failure> {
    let mut cut = None;
    let mut visited = 0_usize;
    // The entries still to visit, the next one last.
    let first = entries(folder, 1).map_err(|error| Failure::from_io(&folder.to_string(), &error))?;
    let mut waiting = first;
    while let Some((entry, depth)) = waiting.pop() {
        visited += 1;
        if visited > limits::WALK_ENTRIES_MAX {
            return Ok(Some(Cut::Entries));
        }
        let inner = matches!(entry.kind, Kind::Folder)
            && reach == Reach::Tree
            && entry.place.real().file_name().is_none_or(|name| name != ".git");
        let place = entry.place.clone();
        if !visit(entry)? {
            return Ok(cut);
        }
        if inner && depth >= limits::WALK_DEPTH_MAX {
            cut = Some(Cut::Depth);
        } else if inner {
            match entries(&place, depth + 1) {
                Ok(found) => waiting.extend(found),
                Err(error) => {
                    let kind = Kind::Unreadable(error.to_string());
                    if !visit(Entry { place, kind })? {
                        return Ok(cut);
                    }
                }
            }
        }
    }
    Ok(cut)
}

/// The entries of one folder in falling order of name.
fn entries(folder: &Place, depth: usize) -> std::io::Result<Vec<(Entry, usize)>> {
    let mut names = Vec::new();
    // One past the bound, so that the walk sees that there is more.
    for entry in fs::read_dir(folder.real())?.take(limits::WALK_ENTRIES_MAX + 1) {
        // A name that is not UTF-8 cannot be written by a model; its replacement shows that something is there.
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort_unstable_by(|left, right| right.cmp(left));
    Ok(names
        .into_iter()
        .map(|name| {
            let place = folder.child(&name);
            let kind = kind_of(&place);
            (Entry { place, kind }, depth)
        })
        .collect())
}

fn kind_of(place: &Place) -> Kind {
    match fs::symlink_metadata(place.real()) {
        Ok(found) if found.is_file() => Kind::File { bytes: found.len() },
        Ok(found) if found.is_dir() => Kind::Folder,
        Ok(found) if found.is_symlink() => Kind::Link,
        Ok(_) => Kind::Other,
        Err(error) => Kind::Unreadable(error.to_string()),
    }
}

/// A filter on paths. A pattern with a slash is held against the path below the searched folder, one without against the name.
pub(crate) struct Filter {
    matcher: GlobMatcher,
    whole_path: bool,
}

impl Filter {
    pub(crate) fn new(pattern: &str) -> Result<Self, Failure> {
        let glob = GlobBuilder::new(pattern).literal_separator(true).backslash_escape(true).build();
        let matcher = glob
            .map_err(|error| {
                Failure::invalid_input(format!(
                    "glob {pattern:?}: {}; hint: * matches within a name, ** across folders, {{a,b}} either",
                    error.kind()
                ))
            })?
            .compile_matcher();
        Ok(Self { matcher, whole_path: pattern.contains('/') })
    }

    /// Whether the filter lets `place`, which lies below `folder`, through.
    pub(crate) fn passes(&self, folder: &Place, place: &Place) -> bool {
        let path = place.relative();
        if !self.whole_path {
            return self.matcher.is_match(path.rsplit('/').next().unwrap_or(path));
        }
        let below = path.strip_prefix(folder.relative()).unwrap_or(path);
        self.matcher.is_match(below.trim_start_matches('/'))
    }
}
