//! All tools of a harness under the names that the model is shown, and the decision about one call.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::{BoundTool, RefusedTool};
use crate::call::Call;
use crate::digest::Digest;
use crate::error::Error;
use crate::ids::ToolName;
use crate::limits;
use crate::model::ToolOffer;
use crate::names::{close_names, quoted};
use crate::policy::{CallPolicy, RefusalReason};

/// The tools of a harness, each under a name of its own.
///
/// Names follow from the set of tools alone, not from the order in which capabilities come (TOOL-6): a tool keeps its own
/// name if that is fit to be shown and nobody else has it; else it is `capability__tool`, shortened to 64 safe characters
/// with a hash where it is longer or has others (TOOL-7).
///
/// A name that begins with `capability__` is that capability's alone. So what one component calls its tools can cost
/// another one a bare name, but never the tool: only tools of one capability can meet in one name, and of those that are
/// left without one each is refused.
#[derive(Debug, Clone, Default)]
pub struct ToolTable {
    tools: Vec<BoundTool>,
    by_name: HashMap<Arc<str>, usize>,
    refused: Vec<(Arc<str>, RefusedTool)>,
}

impl ToolTable {
    /// Names the tools. `reserved` are names that the host itself uses.
    pub fn new(tools: impl IntoIterator<Item = BoundTool>, reserved: &[&str]) -> Self {
        let mut tools: Vec<BoundTool> = tools.into_iter().collect();
        tools.sort_by(|a, b| (&a.capability, &a.own.name).cmp(&(&b.capability, &b.own.name)));
        let names = shown_names(&tools, reserved);
        let mut table = Self::default();
        for (mut tool, name) in tools.into_iter().zip(names) {
            match name {
                Some(name) => {
                    tool.name = ToolName::new(&name);
                    tool.shown.name = tool.name.clone();
                    table.by_name.insert(Arc::from(name), table.tools.len());
                    table.tools.push(tool);
                }
                None => {
                    let error = Error::tool(format!(
                        "tool {:?} cannot be offered: each name under which it could be shown is that of another tool of capability {:?}, of another capability or of the host",
                        tool.own.name.as_str(),
                        tool.capability
                    ));
                    table.refused.push((tool.capability, RefusedTool { name: tool.own.name, error }));
                }
            }
        }
        table
    }

    /// The tools for which no name was left, with their capabilities.
    pub fn refused(&self) -> impl Iterator<Item = (&str, &RefusedTool)> {
        self.refused.iter().map(|(capability, tool)| (&**capability, tool))
    }

    /// A tool by the name that the model is shown.
    pub fn get(&self, name: &str) -> Option<&BoundTool> {
        self.tools.get(*self.by_name.get(name)?)
    }

    /// A tool by capability and own name.
    pub fn own(&self, capability: &str, tool: &str) -> Option<&BoundTool> {
        self.tools.iter().find(|bound| bound.capability() == capability && bound.own.name.as_str() == tool)
    }

    /// All tools, by capability and own name.
    pub fn iter(&self) -> std::slice::Iter<'_, BoundTool> {
        self.tools.iter()
    }

    /// The tools as they are offered in a request, in the order of [`ToolTable::iter`].
    pub fn offers(&self) -> Vec<ToolOffer> {
        self.tools.iter().map(BoundTool::offer).collect()
    }

    /// What policy says of a call (L64). Allocates nothing for a tool that may start, schema checks apart.
    pub fn authorize(&self, call: &Call) -> CallPolicy {
        match self.get(call.name.as_str()) {
            Some(tool) => tool.authorize(call),
            None => self.unknown(call.name.as_str()),
        }
    }

    fn unknown(&self, name: &str) -> CallPolicy {
        let close = close_names(name, self.tools.iter().map(|tool| tool.name.as_str()));
        let advice = if !close.is_empty() {
            format!("did you mean {}?", quoted(&close, "or"))
        } else if self.tools.is_empty() {
            "there are no tools".to_owned()
        } else {
            "no tool has a name like it".to_owned()
        };
        CallPolicy::refuse(RefusalReason::UnknownTool, format!("there is no tool {name:?}; {advice}"))
    }
}

impl<'t> IntoIterator for &'t ToolTable {
    type Item = &'t BoundTool;
    type IntoIter = std::slice::Iter<'t, BoundTool>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// The names under which the tools are shown; none for a tool that has to be refused.
///
/// Three rounds: bare names, prefixed ones, prefixed ones with a hash. In each round a name goes to the tool that asks for
/// it alone; it has to be free, and not in another capability's part of the names.
fn shown_names(tools: &[BoundTool], reserved: &[&str]) -> Vec<Option<String>> {
    let prefixes: BTreeMap<String, &str> =
        tools.iter().map(|tool| (prefix(&tool.capability), &*tool.capability)).collect();
    // The longest prefix counts: `a__b__` is the part of `a__b`, if there is one, not of `a`.
    let owner = |name: &str| {
        let fits = prefixes.iter().filter(|(prefix, _)| name.starts_with(prefix.as_str()));
        fits.max_by_key(|(prefix, _)| prefix.len()).map(|(_, capability)| *capability)
    };
    let prefixed = |tool: &BoundTool| safe_name(&format!("{}{}", prefix(&tool.capability), tool.own.name));
    let rounds: [&dyn Fn(&BoundTool) -> String; 3] = [
        &|tool| safe_name(tool.own.name.as_str()),
        &prefixed,
        // The hash is over both names, so it is this tool's alone unless somebody made it meet another.
        &|tool| with_hash(&prefixed(tool), &format!("{}\0{}", tool.capability, tool.own.name)),
    ];
    let mut names: Vec<Option<String>> = vec![None; tools.len()];
    let mut taken: BTreeSet<String> = reserved.iter().map(|name| (*name).to_owned()).collect();
    for wanted in rounds {
        let mut asking: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (at, tool) in tools.iter().enumerate().filter(|(at, _)| names[*at].is_none()) {
            asking.entry(wanted(tool)).or_default().push(at);
        }
        for (name, who) in asking {
            if let [at] = who[..]
                && !taken.contains(&name)
                && owner(&name).is_none_or(|owner| owner == &*tools[at].capability)
            {
                taken.insert(name.clone());
                names[at] = Some(name);
            }
        }
    }
    names
}

/// What a capability's own part of the names begins with. Short enough to stand whole in a shortened name.
fn prefix(capability: &str) -> String {
    if capability.len() <= PREFIX_BYTES_MAX {
        format!("{capability}__")
    } else {
        format!("{}__", hashed(capability, capability, PREFIX_BYTES_MAX))
    }
}

/// Longest capability's name that is a prefix as it is, in bytes: with a hash after it, half is left for the tool's name.
const PREFIX_BYTES_MAX: usize = 32;

/// The name itself if providers take it, else one of safe characters with a hash of the original.
fn safe_name(name: &str) -> String {
    let safe = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !name.is_empty() && name.len() <= limits::TOOL_NAME_BYTES_MAX && name.chars().all(safe) {
        return name.to_owned();
    }
    let replaced: String = name.chars().map(|c| if safe(c) { c } else { '_' }).collect();
    with_hash(&replaced, name)
}

/// The name, cut so that it and a hash of `original` fit. The name has to be ASCII.
fn with_hash(name: &str, original: &str) -> String {
    hashed(name, original, limits::TOOL_NAME_BYTES_MAX)
}

fn hashed(name: &str, original: &str, bytes_max: usize) -> String {
    let mut hash = Digest::of(original.as_bytes()).short();
    hash.truncate(8);
    let room = bytes_max - hash.len() - 1;
    format!("{}_{hash}", name.get(..room).unwrap_or(name))
}
