//! Meets a capability's definitions with the harness's rules (Z16, TOOL-3): each value of each tool is resolved and
//! remembers the line that decided it.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::json;

use super::input::{InputChecks, TEXT_MEMBER};
use super::resolve::Ranked;
use super::{Approval, BoundTool, DecidedBy, ExecutorKind, FormatRule, Rank, ReplayRule, Resolved, ResolvedLimits};
use crate::error::Error;
use crate::harness::{Capability, CapabilitySource, Harness, HarnessError, HarnessErrors};
use crate::ids::ToolName;
use crate::limits;
use crate::names::{did_you_mean, quoted};
use crate::policy::ReplayClass;
use crate::schema::Schema;
use crate::tool::{Definition, InputFormat};

/// What binding one capability gives.
#[derive(Debug, Clone, PartialEq)]
pub struct Bound {
    /// Its tools under policy, in the order of their definitions.
    pub tools: Vec<BoundTool>,
    /// Tools that cannot be offered. The others live (design promise 9).
    pub refused: Vec<RefusedTool>,
}

/// A tool that cannot be offered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedTool {
    /// Its own name.
    pub name: ToolName,
    /// Why.
    pub error: Error,
}

impl Harness {
    /// Binds a capability's tools to the rules of this harness.
    ///
    /// # Errors
    /// The operator's faults: a rule that names a tool which the capability does not offer, two rules of equal rank that
    /// differ. A tool whose own definition is at fault is refused by itself, see [`Bound::refused`].
    pub fn bind(&self, capability: &Capability, definitions: &[Definition]) -> Result<Bound, HarnessErrors> {
        let mut faults = unmatched_rules(capability, definitions);
        let mut bound = Bound { tools: Vec::new(), refused: Vec::new() };
        let mut times: HashMap<&str, usize> = HashMap::new();
        for definition in definitions {
            *times.entry(definition.name.as_str()).or_default() += 1;
        }
        for (n, definition) in definitions.iter().enumerate() {
            if n >= limits::TOOLS_PER_CAPABILITY_MAX {
                bound.refuse(definition, too_many(capability));
            } else if times.get(definition.name.as_str()) != Some(&1) {
                bound.refuse(definition, repeated(capability, definition));
            } else {
                match self.bind_tool(capability, definition, &mut faults) {
                    Ok(tool) => bound.tools.push(tool),
                    Err(error) => bound.refuse(definition, error),
                }
            }
        }
        match HarnessErrors::of(faults) {
            Some(faults) => Err(faults),
            None => Ok(bound),
        }
    }

    /// The limits of a capability as a whole: those of a tool that no pattern names.
    ///
    /// # Errors
    /// Two rules of equal rank that differ.
    pub fn capability_limits(&self, capability: &Capability) -> Result<ResolvedLimits, HarnessErrors> {
        let mut faults = Vec::new();
        let limits = Ranked::of(self, capability, None).limits(&mut faults);
        match HarnessErrors::of(faults) {
            Some(faults) => Err(faults),
            None => Ok(limits),
        }
    }

    fn bind_tool(
        &self,
        capability: &Capability,
        own: &Definition,
        faults: &mut Vec<HarnessError>,
    ) -> Result<BoundTool, Error> {
        let rules = Ranked::of(self, capability, Some(own.name.as_str()));
        let replay = resolve_replay(&rules, capability, faults);
        // Silent policy allows async for tools that are safe to replay, and for no others (L54).
        let said = rules.pick(|rule| rule.is_async.as_ref(), replay.value == ReplayClass::Safe, faults);
        let is_async = match said.by.rank {
            Rank::BuiltIn => {
                let note = if said.value { "replay is safe" } else { "replay is not safe" };
                Resolved { value: said.value, by: DecidedBy { note: Some(Arc::from(note)), ..said.by } }
            }
            Rank::Default | Rank::Profile | Rank::Capability | Rank::Pattern { .. } | Rank::Exact => said,
        };
        let format = rules.nearest(|rule| rule.format.as_ref(), faults);
        let class = rules.nearest(|rule| rule.class.as_ref(), faults);
        let approve = rules.pick(|rule| rule.approve.as_ref(), Approval::Never, faults);
        let refuse = rules.pick(|rule| rule.refuse.as_ref(), None, faults);
        let limits = rules.limits(faults);

        check_definition(own)?;
        let input = shown_input(&own.input, format.value.as_ref());
        let check = InputChecks::of(own, &input)?;
        let executor = match capability.source {
            CapabilitySource::Component(_) => ExecutorKind::Component,
            CapabilitySource::Native(_) => ExecutorKind::Native,
        };
        Ok(BoundTool {
            name: own.name.clone(),
            capability: Arc::from(capability.name.as_str()),
            executor,
            own: own.clone(),
            shown: Definition { input, ..own.clone() },
            check,
            replay,
            is_async,
            approve,
            class,
            format,
            refuse,
            limits,
        })
    }
}

impl Bound {
    fn refuse(&mut self, definition: &Definition, error: Error) {
        self.refused.push(RefusedTool { name: definition.name.clone(), error });
    }
}

fn resolve_replay(
    rules: &Ranked<'_>,
    capability: &Capability,
    faults: &mut Vec<HarnessError>,
) -> Resolved<ReplayClass> {
    let said = rules.pick(|rule| rule.replay.as_ref(), ReplayRule::Class(ReplayClass::Never), faults);
    match said.value {
        ReplayRule::Class(class) => Resolved { value: class, by: said.by },
        ReplayRule::WhenPure => {
            let (value, note) = match impurity(capability) {
                None => (ReplayClass::Safe, "when-pure: nothing granted has an effect outside the call".to_owned()),
                Some(why) => (ReplayClass::Never, format!("when-pure: not pure, {why}")),
            };
            Resolved { value, by: DecidedBy { note: Some(Arc::from(note)), ..said.by } }
        }
    }
}

/// What lets a call of the capability have effects outside itself. A native implementation is not confined by its grants.
fn impurity(capability: &Capability) -> Option<String> {
    match capability.source {
        CapabilitySource::Component(_) => capability.grants.impurity(),
        CapabilitySource::Native(_) => Some("a native implementation is not confined".to_owned()),
    }
}

/// Rules for tools that the capability does not offer. A pattern that matches nothing says something as false as a name
/// that does not exist.
fn unmatched_rules(capability: &Capability, definitions: &[Definition]) -> Vec<HarnessError> {
    let names: Vec<&str> = definitions.iter().map(|definition| definition.name.as_str()).collect();
    let unmatched = capability.tools.iter().filter(|rule| !names.iter().any(|name| rule.pattern.matches(name)));
    unmatched
        .map(|rule| HarnessError {
            place: rule.place.clone(),
            message: format!("capability {:?} offers no tool {:?}", capability.name, rule.pattern.as_str()),
            hint: Some(did_you_mean(rule.pattern.as_str(), names.iter().copied()).unwrap_or_else(|| {
                if names.is_empty() {
                    "it offers no tools".to_owned()
                } else {
                    format!("it offers {}", quoted(&names, "and"))
                }
            })),
        })
        .collect()
}

fn too_many(capability: &Capability) -> Error {
    Error::tool(format!("capability {:?} offers more than {} tools", capability.name, limits::TOOLS_PER_CAPABILITY_MAX))
}

fn repeated(capability: &Capability, definition: &Definition) -> Error {
    Error::tool(format!("capability {:?} offers tool {:?} more than once", capability.name, definition.name.as_str()))
}

fn check_definition(own: &Definition) -> Result<(), Error> {
    if own.name.is_blank() {
        return Err(Error::tool("a tool has no name"));
    }
    if own.description.len() > limits::DESCRIPTION_BYTES_MAX {
        return Err(Error::tool(format!(
            "tool {:?} has a description of {} bytes, over the limit of {}",
            own.name.as_str(),
            own.description.len(),
            limits::DESCRIPTION_BYTES_MAX
        )));
    }
    if let Some(schema) = &own.output_schema {
        Schema::compile(schema)
            .map_err(|fault| Error::tool(format!("the output schema of tool {:?} {fault}", own.name.as_str())))?;
    }
    Ok(())
}

/// The form in which the model is shown the tool (Z13).
fn shown_input(own: &InputFormat, rule: Option<&FormatRule>) -> InputFormat {
    match (rule, own) {
        (None, own) | (Some(FormatRule::Function), own @ InputFormat::JsonSchema(_)) => own.clone(),
        (Some(FormatRule::Function), InputFormat::Text | InputFormat::Grammar(_)) => InputFormat::JsonSchema(json!({
            "type": "object",
            "properties": { TEXT_MEMBER: { "type": "string" } },
            "required": [TEXT_MEMBER],
            "additionalProperties": false,
        })),
        (Some(FormatRule::Text), _) => InputFormat::Text,
        (Some(FormatRule::Grammar(grammar)), _) => InputFormat::Grammar(grammar.clone()),
    }
}
