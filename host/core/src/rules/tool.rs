//! One tool with all that policy says of it, and the decision about one call of it (L64).

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::Value;

use super::input::{self, InputChecks, InputFault};
use super::{Approval, DecidedBy, FormatRule, Resolved, ResolvedLimits};
use crate::call::{Call, Payload};
use crate::harness::units::{write_duration, write_size};
use crate::ids::ToolName;
use crate::model::ToolOffer;
use crate::policy::{Admission, CallPolicy, RefusalReason, ReplayClass};
use crate::tool::Definition;

/// A tool of a capability under the harness's policy.
///
/// Made by [`crate::harness::Harness::bind`] alone, so what it says is what the operator's rules say.
#[derive(Debug, Clone, PartialEq)]
pub struct BoundTool {
    pub(super) name: ToolName,
    pub(super) capability: Arc<str>,
    pub(super) executor: ExecutorKind,
    /// As the tool defines itself.
    pub(super) own: Definition,
    /// As the model is shown it.
    pub(super) shown: Definition,
    pub(super) check: InputChecks,
    pub(super) replay: Resolved<ReplayClass>,
    pub(super) is_async: Resolved<bool>,
    pub(super) approve: Resolved<Approval>,
    pub(super) class: Resolved<Option<Arc<str>>>,
    pub(super) format: Resolved<Option<FormatRule>>,
    pub(super) refuse: Resolved<Option<Arc<str>>>,
    pub(super) limits: ResolvedLimits,
}

/// What runs a tool: decides in which form it gets raw text (Q6, Q19).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ExecutorKind {
    /// A component: it gets the exact text.
    Component,
    /// A native implementation: one whose schema is of type string gets raw text as a JSON string.
    Native,
}

impl BoundTool {
    /// The name that the model is shown.
    pub fn name(&self) -> &ToolName {
        &self.name
    }

    /// The tool's own name in its capability.
    pub fn own_name(&self) -> &ToolName {
        &self.own.name
    }

    /// The capability's name in the harness.
    pub fn capability(&self) -> &str {
        &self.capability
    }

    /// The tool as it defines itself, under its own name.
    pub fn definition(&self) -> &Definition {
        &self.own
    }

    /// The tool as the model is shown it: public name, and the form that policy gives it (Z13).
    pub fn shown(&self) -> &Definition {
        &self.shown
    }

    /// What may happen to a call whose outcome is unknown.
    pub fn replay(&self) -> &Resolved<ReplayClass> {
        &self.replay
    }

    /// Whether the model may go on while a call runs (L54).
    pub fn is_async(&self) -> &Resolved<bool> {
        &self.is_async
    }

    /// When a call needs approval.
    pub fn approve(&self) -> &Resolved<Approval> {
        &self.approve
    }

    /// Calls of one class run one at a time.
    pub fn class(&self) -> &Resolved<Option<Arc<str>>> {
        &self.class
    }

    /// The reason for which each call is refused, if it is.
    pub fn refuse(&self) -> &Resolved<Option<Arc<str>>> {
        &self.refuse
    }

    /// Limits of one call.
    pub fn limits(&self) -> &ResolvedLimits {
        &self.limits
    }

    /// Each part of its policy as people write it, with what decided it: what `check` explains.
    pub fn explain(&self) -> Vec<(&'static str, String, &DecidedBy)> {
        let word = |value: &Option<Arc<str>>| value.as_deref().unwrap_or("none").to_owned();
        let format = match &self.format.value {
            None => if self.own.input.is_custom() { "as defined: text" } else { "as defined: function" }.to_owned(),
            Some(FormatRule::Function) => "function".to_owned(),
            Some(FormatRule::Text) => "text".to_owned(),
            Some(FormatRule::Grammar(grammar)) => format!("grammar ({})", grammar.syntax.as_str()),
        };
        let approve = match self.approve.value.to_json() {
            Value::String(word) => word,
            condition => condition.to_string(),
        };
        let limits = &self.limits;
        vec![
            ("approve", approve, &self.approve.by),
            ("replay", self.replay.value.to_string(), &self.replay.by),
            ("async", self.is_async.value.to_string(), &self.is_async.by),
            ("class", word(&self.class.value), &self.class.by),
            ("format", format, &self.format.by),
            ("refuse", word(&self.refuse.value), &self.refuse.by),
            ("time", write_duration(limits.time.value), &limits.time.by),
            ("memory", write_size(limits.memory_bytes.value), &limits.memory_bytes.by),
            ("output", write_size(limits.output_bytes.value), &limits.output_bytes.by),
            ("calls_at_once", limits.calls_at_once.value.to_string(), &limits.calls_at_once.by),
        ]
    }

    /// The tool as it is offered in a request.
    pub fn offer(&self) -> ToolOffer {
        ToolOffer { definition: self.shown.clone(), async_allowed: self.is_async.value, deferred: false }
    }

    /// What policy says of this call.
    pub fn authorize(&self, call: &Call) -> CallPolicy {
        if let Some(reason) = &self.refuse.value {
            return self.refused(RefusalReason::Policy, &format!("is refused by policy: {reason}"));
        }
        let custom = matches!(call.payload, Payload::Custom { .. });
        if custom != self.shown.input.is_custom() {
            let (came, wanted) = if custom { ("a custom tool", "a function") } else { ("a function", "a custom tool") };
            return self.refused(RefusalReason::InvalidInput, &format!("is {wanted} and was called as {came}"));
        }
        if call.is_async && !self.is_async.value {
            return self
                .refused(RefusalReason::NotAsync, "may not run async; call it without async and wait for its output");
        }
        let input = match self.check.check(call, &self.own.input) {
            Ok(input) => input,
            Err(InputFault { reason, why }) => return self.refused(reason, &format!("{why}; nothing was executed")),
        };
        if self.approve.value.is_needed(&input) {
            return self.without_approval();
        }
        CallPolicy {
            admission: Admission::Start,
            async_allowed: self.is_async.value,
            replay: self.replay.value,
            class: self.class.value.clone(),
        }
    }

    /// The text that the executor gets (Q6, Q19): what the model wrote, but the text itself where a text tool is offered
    /// as a function, and a JSON string where a native tool with a schema of type string is offered as a custom tool.
    pub fn executor_input<'c>(&self, call: &'c Call) -> Cow<'c, str> {
        let text = call.effective_text();
        match (&call.payload, self.own.input.is_custom()) {
            (Payload::Function { .. }, true) => input::text_member(text).map_or(Cow::Borrowed(text), Cow::Owned),
            (Payload::Custom { .. }, false)
                if self.executor == ExecutorKind::Native && input::takes_string(&self.own.input) =>
            {
                Cow::Owned(Value::String(text.to_owned()).to_string())
            }
            (Payload::Function { .. } | Payload::Custom { .. }, _) => Cow::Borrowed(text),
        }
    }

    /// Approvals come with the flow that asks for them; until then a call that needs one is refused and says so.
    fn without_approval(&self) -> CallPolicy {
        self.refused(
            RefusalReason::Policy,
            &format!(
                "needs an operator's approval for this input, and approvals are not available yet; nothing was executed (asked for by {})",
                self.approve.by
            ),
        )
    }

    fn refused(&self, reason: RefusalReason, why: &str) -> CallPolicy {
        CallPolicy::refuse(reason, format!("tool {:?} {why}", self.name.as_str()))
    }
}
