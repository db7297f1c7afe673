//! Which of several rules decides (Z16): exact name, longest literal prefix of a pattern, capability, policy profile,
//! harness default, built-in. Two of equal rank with different values are an error, so order never matters.

use std::sync::Arc;

use super::{DecidedBy, PatternRule, Rank, Resolved, ResolvedLimits, Rule, Said};
use crate::grants::Limits;
use crate::harness::{Capability, Harness, HarnessError};

/// A tool's name, or a pattern in which `*` stands for any run of characters.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Pattern(Arc<str>);

impl Pattern {
    /// Takes the text as it is written.
    pub fn new(text: &str) -> Self {
        Self(Arc::from(text))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// True if it names one tool.
    pub fn is_exact(&self) -> bool {
        !self.0.contains('*')
    }

    /// How near a rule with it stands.
    pub fn rank(&self) -> Rank {
        match self.0.find('*') {
            Some(literal) => Rank::Pattern { literal },
            None => Rank::Exact,
        }
    }

    /// Whether it matches this name, whole.
    pub fn matches(&self, name: &str) -> bool {
        let Some((first, rest)) = self.0.split_once('*') else { return &*self.0 == name };
        let Some(mut name) = name.strip_prefix(first) else { return false };
        // Each literal between two stars takes the leftmost place that is left; the last one has to end the name.
        let mut parts = rest.split('*').peekable();
        while let Some(part) = parts.next() {
            if parts.peek().is_none() {
                return name.ends_with(part);
            }
            match name.find(part) {
                Some(at) => name = name.get(at + part.len()..).unwrap_or(""),
                None => return false,
            }
        }
        true
    }
}

/// The rules that speak of one tool, with their ranks.
pub(super) struct Ranked<'h>(Vec<(Rank, &'h Rule)>);

impl<'h> Ranked<'h> {
    /// The rules for a tool of a capability, or for the capability as a whole if no tool is named.
    pub(super) fn of(harness: &'h Harness, capability: &'h Capability, tool: Option<&str>) -> Self {
        let patterns = capability
            .tools
            .iter()
            .filter(|PatternRule { pattern, .. }| tool.is_some_and(|tool| pattern.matches(tool)));
        let mut rules: Vec<(Rank, &Rule)> = patterns.map(|entry| (entry.pattern.rank(), &entry.rule)).collect();
        rules.push((Rank::Capability, &capability.rule));
        let profiles = capability.profiles.iter().filter_map(|name| harness.profiles().get(name));
        rules.extend(profiles.map(|profile| (Rank::Profile, &profile.rule)));
        rules.push((Rank::Default, harness.defaults()));
        Self(rules)
    }

    /// The value of the nearest rule that says one, else what is built in.
    pub(super) fn pick<T>(
        &self,
        part: impl Fn(&'h Rule) -> Option<&'h Said<T>>,
        built_in: T,
        faults: &mut Vec<HarnessError>,
    ) -> Resolved<T>
    where
        T: Clone + PartialEq + 'h,
    {
        let found = self.nearest(part, faults);
        Resolved { value: found.value.unwrap_or(built_in), by: found.by }
    }

    /// The value of the nearest rule that says one.
    pub(super) fn nearest<T>(
        &self,
        part: impl Fn(&'h Rule) -> Option<&'h Said<T>>,
        faults: &mut Vec<HarnessError>,
    ) -> Resolved<Option<T>>
    where
        T: Clone + PartialEq + 'h,
    {
        let mut said: Vec<(Rank, &Said<T>)> =
            self.0.iter().filter_map(|(rank, rule)| Some((*rank, part(rule)?))).collect();
        // By place within a rank, so that the line that is reported does not depend on the order of reading.
        said.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.place.cmp(&b.1.place)));
        let Some((rank, first)) = said.first().copied() else {
            return Resolved { value: None, by: DecidedBy { rank: Rank::BuiltIn, place: None, note: None } };
        };
        let clash = said.iter().take_while(|(other, _)| *other == rank).find(|(_, other)| other.value != first.value);
        if let Some((_, other)) = clash {
            faults.push(HarnessError {
                place: other.place.clone(),
                message: format!(
                    "says otherwise than {} at {}, and both are of one rank ({})",
                    first.place.key,
                    first.place,
                    rank.as_str()
                ),
                hint: Some(
                    "give both the same value, or say it nearer to the tool, for example under its exact name"
                        .to_owned(),
                ),
            });
        }
        Resolved {
            value: Some(first.value.clone()),
            by: DecidedBy { rank, place: Some(first.place.clone()), note: None },
        }
    }

    pub(super) fn limits(&self, faults: &mut Vec<HarnessError>) -> ResolvedLimits {
        let built_in = Limits::default();
        ResolvedLimits {
            time: self.pick(|rule| rule.time.as_ref(), built_in.time, faults),
            memory_bytes: self.pick(|rule| rule.memory_bytes.as_ref(), built_in.memory_bytes, faults),
            output_bytes: self.pick(|rule| rule.output_bytes.as_ref(), built_in.output_bytes, faults),
            calls_at_once: self.pick(|rule| rule.calls_at_once.as_ref(), built_in.calls_at_once, faults),
        }
    }
}
