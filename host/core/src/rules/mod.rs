//! What the operator's rules say of each tool, and which line said it (Z16, L53, L54, L64).
//!
//! Nothing here looks at what a tool says of itself: a component's claims reach this module as part of a definition and
//! are passed on unread.

mod approval;
mod bind;
mod input;
mod resolve;
mod table;
mod tool;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use approval::Approval;
pub use bind::{Bound, RefusedTool};
pub use resolve::Pattern;
pub use table::ToolTable;
pub use tool::{BoundTool, ExecutorKind};

use crate::harness::Place;
use crate::policy::ReplayClass;
use crate::tool::Grammar;

/// A value with the line that said it.
#[derive(Debug, Clone, PartialEq)]
pub struct Said<T> {
    /// The value.
    pub value: T,
    /// Where it stands.
    pub place: Place,
}

/// What one place of the harness says of tools. What it does not say is left to the next rank.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Rule {
    /// Whether a call waits for a person.
    pub approve: Option<Said<Approval>>,
    /// What may happen to a call whose outcome is unknown.
    pub replay: Option<Said<ReplayRule>>,
    /// Whether the model may go on while a call runs (L54).
    pub is_async: Option<Said<bool>>,
    /// Calls of one class run one at a time.
    pub class: Option<Said<Arc<str>>>,
    /// Another form of input than the tool asks for (Z13).
    pub format: Option<Said<FormatRule>>,
    /// Whether each call is refused, and why.
    pub refuse: Option<Said<Option<Arc<str>>>>,
    /// Wall clock of one call.
    pub time: Option<Said<Duration>>,
    /// Memory of one call, in bytes.
    pub memory_bytes: Option<Said<u64>>,
    /// Largest output, in bytes.
    pub output_bytes: Option<Said<u64>>,
    /// Calls at once; not said of single tools.
    pub calls_at_once: Option<Said<u32>>,
}

/// A rule for the tools whose names a pattern matches.
#[derive(Debug, Clone, PartialEq)]
pub struct PatternRule {
    /// Which tools.
    pub pattern: Pattern,
    /// What.
    pub rule: Rule,
    /// Where the pattern stands.
    pub place: Place,
}

/// A replay class as a rule says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReplayRule {
    /// This class.
    Class(ReplayClass),
    /// `safe` if the capability can have no effect outside the call, else `never`; the host derives it.
    WhenPure,
}

/// A form of input as a rule says it (Z13).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FormatRule {
    /// As a function. A text tool becomes one with the single member `input`.
    Function,
    /// As a custom tool with free text.
    Text,
    /// As a custom tool with this grammar.
    Grammar(Grammar),
}

/// How near to a tool the line stands that decided; a nearer one goes before (Z16).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Rank {
    /// Nobody said anything.
    BuiltIn,
    /// The harness's defaults.
    Default,
    /// A policy profile of the capability.
    Profile,
    /// The capability.
    Capability,
    /// A pattern; the longer its literal prefix, the nearer.
    Pattern {
        /// Length of the literal prefix, in bytes.
        literal: usize,
    },
    /// The tool's exact name.
    Exact,
}

impl Rank {
    /// The words for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::BuiltIn => "built-in",
            Self::Default => "harness default",
            Self::Profile => "policy profile",
            Self::Capability => "capability",
            Self::Pattern { .. } => "pattern",
            Self::Exact => "exact name",
        }
    }
}

/// What decided a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecidedBy {
    /// How near.
    pub rank: Rank,
    /// The line; none for what is built in.
    pub place: Option<Place>,
    /// What followed from it, where the value is not what was written: `when-pure: writable folder /out`.
    pub note: Option<Arc<str>>,
}

impl fmt::Display for DecidedBy {
    /// `harness.toml:31:13 capabilities.files.tools.read_file.replay (exact name)`, or `built-in`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Some(place) => write!(f, "{place} {} ({})", place.key, self.rank.as_str())?,
            None => f.write_str(self.rank.as_str())?,
        }
        match &self.note {
            Some(note) => write!(f, ", {note}"),
            None => Ok(()),
        }
    }
}

/// A value with what decided it.
#[derive(Debug, Clone, PartialEq)]
pub struct Resolved<T> {
    /// The value.
    pub value: T,
    /// What decided it.
    pub by: DecidedBy,
}

/// The limits of one tool's calls, each with what decided it.
#[derive(Debug, Clone, PartialEq)]
pub struct ResolvedLimits {
    /// Wall clock of one call.
    pub time: Resolved<Duration>,
    /// Memory of one call, in bytes.
    pub memory_bytes: Resolved<u64>,
    /// Largest output, in bytes.
    pub output_bytes: Resolved<u64>,
    /// Calls of the capability at once.
    pub calls_at_once: Resolved<u32>,
}

impl ResolvedLimits {
    /// The values alone.
    pub fn values(&self) -> crate::grants::Limits {
        crate::grants::Limits {
            time: self.time.value,
            memory_bytes: self.memory_bytes.value,
            output_bytes: self.output_bytes.value,
            calls_at_once: self.calls_at_once.value,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
