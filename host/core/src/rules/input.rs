//! Whether a call's input may reach the tool (L46, L47): first against what the model was shown, then, where policy shows
//! another form than the tool's own (Z13), against the tool's own.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::Value;

use crate::call::{Call, Payload};
use crate::error::Error;
use crate::policy::RefusalReason;
use crate::schema::{Misfit, Schema, TextPattern, parse_strict};
use crate::tool::{Definition, GrammarSyntax, InputFormat};

/// The one member of a text tool that is offered as a function.
pub(super) const TEXT_MEMBER: &str = "input";

/// The checks of one tool's input, compiled once.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct InputChecks {
    shown: InputCheck,
    /// Where it differs from what is shown.
    own: Option<InputCheck>,
}

#[derive(Debug, Clone, PartialEq)]
enum InputCheck {
    /// JSON that fits.
    Schema(Arc<Schema>),
    /// Raw text that matches, whole.
    Regex(Arc<TextPattern>),
    /// Raw text of any kind. A Lark grammar steers the model and is not checked here.
    AnyText,
}

/// A call's input in the form in which the tool itself takes it.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Judged<'c> {
    Json(Value),
    Text(Cow<'c, str>),
}

/// Why input may not reach the tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct InputFault {
    pub(super) reason: RefusalReason,
    pub(super) why: String,
}

impl InputChecks {
    /// Compiles the checks of a tool that is shown in this form.
    pub(super) fn of(own: &Definition, shown: &InputFormat) -> Result<Self, Error> {
        let compile = |input| InputCheck::of(own, input);
        let own_check = if own.input == *shown { None } else { Some(compile(&own.input)?) };
        Ok(Self { shown: compile(shown)?, own: own_check })
    }

    /// Checks the input, and gives it as the tool itself takes it, to be judged by the approval rule.
    pub(super) fn check<'c>(&self, call: &'c Call, own: &InputFormat) -> Result<Judged<'c>, InputFault> {
        let text = call.effective_text();
        match &call.payload {
            Payload::Function { .. } => {
                let value = parse_arguments(text)?;
                self.shown.check_json(&value)?;
                let Some(own_check) = &self.own else { return Ok(Judged::Json(value)) };
                // A text tool that is shown as a function: the text is in its one member, as the shown schema demands.
                match value.get(TEXT_MEMBER) {
                    Some(Value::String(inner)) => {
                        own_check.check_text(inner)?;
                        Ok(Judged::Text(Cow::Owned(inner.clone())))
                    }
                    _ => Err(invalid(format!("takes its text in the member {TEXT_MEMBER:?}"))),
                }
            }
            Payload::Custom { .. } => {
                self.shown.check_text(text)?;
                match &self.own {
                    None => Ok(Judged::Text(Cow::Borrowed(text))),
                    Some(own_check) if own.is_custom() => {
                        own_check.check_text(text)?;
                        Ok(Judged::Text(Cow::Borrowed(text)))
                    }
                    Some(own_check) => {
                        let value = if takes_string(own) {
                            Value::String(text.to_owned())
                        } else {
                            parse_strict(text).map_err(|fault| invalid(format!("takes JSON as its text: {fault}")))?
                        };
                        own_check.check_json(&value)?;
                        Ok(Judged::Json(value))
                    }
                }
            }
        }
    }
}

impl InputCheck {
    fn of(tool: &Definition, input: &InputFormat) -> Result<Self, Error> {
        let name = tool.name.as_str();
        match input {
            InputFormat::JsonSchema(schema) => Schema::compile(schema)
                .map(|schema| Self::Schema(Arc::new(schema)))
                .map_err(|fault| Error::tool(format!("the input schema of tool {name:?} {fault}"))),
            InputFormat::Text => Ok(Self::AnyText),
            InputFormat::Grammar(grammar) => match grammar.syntax {
                GrammarSyntax::Lark => Ok(Self::AnyText),
                GrammarSyntax::Regex => TextPattern::compile(&grammar.definition)
                    .map(|pattern| Self::Regex(Arc::new(pattern)))
                    .map_err(|fault| Error::tool(format!("the grammar of tool {name:?} {fault}"))),
            },
        }
    }

    fn check_json(&self, value: &Value) -> Result<(), InputFault> {
        match self {
            Self::Schema(schema) => schema
                .check(value)
                .map_err(|misfit: Misfit| invalid(format!("got input that does not fit its schema: {misfit}"))),
            Self::Regex(_) | Self::AnyText => Ok(()),
        }
    }

    fn check_text(&self, text: &str) -> Result<(), InputFault> {
        match self {
            Self::Regex(pattern) if !pattern.is_whole(text) => {
                Err(invalid(format!("takes text that matches {:?} as a whole", pattern.as_str())))
            }
            Self::Regex(_) | Self::AnyText | Self::Schema(_) => Ok(()),
        }
    }
}

/// The text in the one member of a text tool that is offered as a function.
pub(super) fn text_member(arguments: &str) -> Option<String> {
    match parse_strict(arguments).ok()?.get(TEXT_MEMBER) {
        Some(Value::String(text)) => Some(text.clone()),
        _ => None,
    }
}

/// True if the input is JSON of type string (Q6).
pub(super) fn takes_string(input: &InputFormat) -> bool {
    match input {
        InputFormat::JsonSchema(schema) => schema.get("type").and_then(Value::as_str) == Some("string"),
        InputFormat::Text | InputFormat::Grammar(_) => false,
    }
}

fn parse_arguments(text: &str) -> Result<Value, InputFault> {
    parse_strict(text).map_err(|fault| {
        if fault.is_syntax() {
            InputFault {
                reason: RefusalReason::MalformedArguments,
                why: format!("got arguments that are not JSON ({fault}), call it again with valid JSON"),
            }
        } else {
            invalid(format!("got arguments that cannot be judged: {fault}"))
        }
    })
}

fn invalid(why: String) -> InputFault {
    InputFault { reason: RefusalReason::InvalidInput, why }
}
