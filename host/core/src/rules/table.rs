//! All tools of a harness under the names that the model is shown, and the decision about one call.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::BoundTool;
use crate::call::Call;
use crate::digest::Digest;
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
#[derive(Debug, Clone, Default)]
pub struct ToolTable {
    tools: Vec<BoundTool>,
    by_name: HashMap<Arc<str>, usize>,
}

impl ToolTable {
    /// Names the tools. `reserved` are names that the host itself uses.
    pub fn new(tools: impl IntoIterator<Item = BoundTool>, reserved: &[&str]) -> Self {
        let mut tools: Vec<BoundTool> = tools.into_iter().collect();
        tools.sort_by(|a, b| (&a.capability, &a.own.name).cmp(&(&b.capability, &b.own.name)));
        let mut wanted: BTreeMap<String, usize> = BTreeMap::new();
        for tool in &tools {
            *wanted.entry(safe_name(tool.own.name.as_str())).or_default() += 1;
        }
        let first: Vec<String> = tools
            .iter()
            .map(|tool| {
                let own = safe_name(tool.own.name.as_str());
                if wanted.get(&own) == Some(&1) && !reserved.contains(&own.as_str()) {
                    own
                } else {
                    safe_name(&format!("{}__{}", tool.capability, tool.own.name))
                }
            })
            .collect();
        let mut taken: BTreeMap<&str, usize> = BTreeMap::new();
        for name in &first {
            *taken.entry(name).or_default() += 1;
        }
        let mut by_name = HashMap::new();
        for (at, (tool, name)) in tools.iter_mut().zip(&first).enumerate() {
            let name = if taken.get(name.as_str()) == Some(&1) && !reserved.contains(&name.as_str()) {
                name.clone()
            } else {
                // A prefix that met another tool's own name. The hash is over both names, so it is this tool's alone.
                with_hash(name, &format!("{}\0{}", tool.capability, tool.own.name))
            };
            tool.name = ToolName::new(&name);
            tool.shown.name = tool.name.clone();
            by_name.insert(Arc::from(name), at);
        }
        Self { tools, by_name }
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
    let mut hash = Digest::of(original.as_bytes()).short();
    hash.truncate(8);
    let room = limits::TOOL_NAME_BYTES_MAX - hash.len() - 1;
    format!("{}_{hash}", name.get(..room).unwrap_or(name))
}
