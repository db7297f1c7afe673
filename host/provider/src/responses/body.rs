//! A neutral request as this protocol's body. What cannot be sent as it is meant is a config error before anything is
//! sent; nothing is dropped in silence.

use reqwest::header::HeaderMap;
use serde_json::{Map, Value, json};
use wharf_core::model::{Delivery, Item, Request, Role, ToolOffer};
use wharf_core::tool::{Grammar, InputFormat};
use wharf_core::{Error, ToolName, names};

use super::history::Reader;
use crate::http;
use crate::profile::Profile;

/// Members that no option may replace (O22).
const OWN_MEMBERS: &[&str] = &["model", "input", "stream", "previous_response_id", "instructions", "conversation"];

/// Longest name of a tool here.
const TOOL_NAME_BYTES_MAX: usize = 64;

/// How a request goes on from what was before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// On the latest response id where that is possible, else as [`Form::Replay`].
    Best,
    /// The whole history, nothing stored at the provider is used (O10).
    Replay,
}

/// What a body is made of beside the request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Context<'c> {
    /// The provider's name.
    pub(super) provider: &'c str,
    /// What the model can do.
    pub(super) profile: &'c Profile,
    /// Members for each body, from the operator.
    pub(super) extra: &'c Map<String, Value>,
}

impl Context<'_> {
    /// Whether a delivery goes on the latest response id. A model without async calls is never continued (O7).
    pub(super) fn continues(&self) -> bool {
        self.profile.continuation && self.profile.async_calls
    }
}

/// The body of a request.
pub(super) fn build(context: Context<'_>, request: &Request, form: Form) -> Result<Map<String, Value>, Error> {
    check_tools(context, request)?;
    let form = if request.replay { Form::Replay } else { form };
    let link = link_of(context, request, form)?;
    let mut body = Map::new();
    let mut set = |name: &str, value: Value| body.insert(name.to_owned(), value);
    set("model", request.model.as_str().into());
    if !request.instructions.is_empty() {
        set("instructions", request.instructions.as_str().into());
    }
    let stateless = matches!(link, Link::None | Link::Replay(_));
    match link {
        Link::None => set("input", fresh_input(context, request)?.into()),
        Link::Previous(id) => {
            set("previous_response_id", id.into());
            set("input", fresh_input(context, request)?.into())
        }
        Link::Continue(delivery) => {
            set("previous_response_id", delivery.previous_response_id.as_str().into());
            set("input", continuation(context, request, delivery)?.into())
        }
        Link::Replay(delivery) => set("input", replay(context, request, delivery)?.into()),
    };
    if !request.tools.is_empty() {
        set("tools", request.tools.iter().map(tool).collect::<Vec<_>>().into());
    }
    if request.stream {
        set("stream", true.into());
    }
    options(context, request, &mut body)?;
    if stateless && context.profile.encrypted_reasoning && !context.continues() && !body.contains_key("include") {
        // Reasoning that no stored response keeps has to come along to be sent back (O20).
        body.insert("include".to_owned(), json!(["reasoning.encrypted_content"]));
    }
    extra(context.extra, "the provider's options", &mut body)?;
    extra(&request.options.extra, "the harness's options", &mut body)?;
    if body.get("store") == Some(&Value::Bool(false)) && body.contains_key("previous_response_id") {
        return Err(Error::config("a request that goes on from a stored response says store = false")
            .hint("remove store from the options, or set continuation = false for the model"));
    }
    if context.profile.async_calls {
        let selected: Vec<ToolName> = request
            .tools
            .iter()
            .filter(|offer| offer.async_allowed)
            .map(|offer| offer.definition.name.clone())
            .collect();
        mark_async(&mut body, &selected, &request.tools)?;
    }
    Ok(body)
}

/// The headers that a request adds.
pub(super) fn headers(request: &Request) -> Result<HeaderMap, Error> {
    request.options.headers.iter().map(|(name, value)| http::extra_header(name, value)).collect()
}

/// Marks the selected tools of a body `async: true`. Marking a marked body changes nothing (O11), and neither does an
/// empty selection (O8).
///
/// # Errors
/// A config error if the body has a tool search, or if a selected tool is not registered, is not allowed async by policy
/// (L54), or is not a direct function or custom tool of the body (O8). The body is then as it was.
pub fn mark_async(body: &mut Map<String, Value>, selected: &[ToolName], offers: &[ToolOffer]) -> Result<(), Error> {
    if selected.is_empty() {
        return Ok(());
    }
    let mut tools = body.get("tools").and_then(Value::as_array).cloned().unwrap_or_default();
    if tools.iter().any(|tool| tool["type"].as_str().is_some_and(|kind| kind.starts_with("tool_search"))) {
        return Err(Error::config("tool search and async tools cannot be used together")
            .hint("remove the tool_search tool from the options, or set async = false for the tools"));
    }
    for name in selected {
        let Some(offer) = offers.iter().find(|offer| offer.definition.name == *name) else {
            let known = offers.iter().map(|offer| offer.definition.name.as_str());
            let hint = names::did_you_mean(name.as_str(), known).unwrap_or_else(|| "register it first".to_owned());
            return Err(Error::config(format!("tool {name:?} is to run async but is not registered")).hint(hint));
        };
        if !offer.async_allowed {
            return Err(Error::config(format!("tool {name:?} is to run async but policy does not allow it"))
                .hint(format!("set async = true for {name} in the harness file")));
        }
        let direct = tools.iter_mut().find(|tool| {
            matches!(tool["type"].as_str(), Some("function" | "custom")) && tool["name"].as_str() == Some(name.as_str())
        });
        match direct {
            Some(tool) => tool["async"] = true.into(),
            None => {
                return Err(Error::config(format!(
                    "tool {name:?} is not a direct function or custom tool of the request"
                ))
                .hint(format!("set async = false for {name}: hosted and nested tools are awaited")));
            }
        }
    }
    body.insert("tools".to_owned(), tools.into());
    Ok(())
}

/// True if an answer "no tool output found" to this request may be followed by one stateless try (O9, O10): history is
/// there, nothing async is open, and every call of the delivery is known to be sync.
pub(super) fn may_replay(request: &Request) -> bool {
    let Some(delivery) = &request.delivery else { return false };
    !request.async_open && !request.messages.is_empty() && output_ids(delivery).all(|id| is_known_sync(request, id))
}

/// Every call of this id is there and sync: which of several is meant does not matter then.
fn is_known_sync(request: &Request, id: Option<&str>) -> bool {
    let mut marks = request.messages.iter().filter_map(|item| match item {
        Item::Call(call) => (Some(call.id.as_str()) == id).then_some(call.is_async),
        Item::Opaque { raw, .. } => {
            let meant = is_call(raw) && id.is_some() && raw["call_id"].as_str() == id;
            meant.then_some(raw["async"] == Value::Bool(true))
        }
        Item::Message { .. } | Item::Output { .. } => None,
    });
    marks.next() == Some(false) && marks.all(|is_async| !is_async)
}

fn is_call(raw: &Value) -> bool {
    matches!(raw["type"].as_str(), Some("function_call" | "custom_tool_call"))
}

fn is_output(raw: &Value) -> bool {
    matches!(raw["type"].as_str(), Some("function_call_output" | "custom_tool_call_output"))
}

fn output_ids(delivery: &Delivery) -> impl Iterator<Item = Option<&str>> {
    delivery.input.iter().map(|item| item["call_id"].as_str())
}

/// What a request hangs on.
enum Link<'r> {
    /// Nothing: its messages are all there is.
    None,
    /// New input on a response (O16).
    Previous(&'r str),
    /// Outputs on a response (O4).
    Continue(&'r Delivery),
    /// Outputs after the whole history.
    Replay(&'r Delivery),
}

fn link_of<'r>(context: Context<'_>, request: &'r Request, form: Form) -> Result<Link<'r>, Error> {
    let continues = request.delivery.is_some() || request.previous.is_some();
    if continues && request.compacted {
        return Err(Error::config("a request with shortened history cannot continue a response")
            .hint("send the shortened history alone, without a previous response id and without a delivery"));
    }
    let refused = |what: &str| {
        let model = format!("{}/{}", context.provider, request.model);
        let why = if context.profile.async_calls { "keeps no responses" } else { "has no async calls" };
        Error::config(format!("model {model:?} {why} here, so {what}"))
    };
    match (&request.delivery, &request.previous) {
        (Some(delivery), Some(previous)) if delivery.previous_response_id != *previous => Err(Error::config(format!(
            "the delivery continues response {:?}, the request response {:?}",
            delivery.previous_response_id.as_str(),
            previous.as_str()
        ))
        .hint("a delivery goes to the latest response: leave previous out, or give the same id")),
        (Some(delivery), _) if form == Form::Best && context.continues() => Ok(Link::Continue(delivery)),
        (Some(_), _) if request.messages.is_empty() => {
            Err(refused("outputs cannot be sent on a response id").hint("give the whole history beside the delivery"))
        }
        (Some(delivery), _) => Ok(Link::Replay(delivery)),
        (None, Some(previous)) if context.continues() => Ok(Link::Previous(previous.as_str())),
        (None, Some(_)) => Err(refused("new input cannot be sent on a response id")
            .hint("give the whole history instead of a previous id, or set async = \"on\" for the model")),
        (None, None) => Ok(Link::None),
    }
}

fn reader<'r>(context: Context<'_>, maker: &'r str) -> Reader<'r> {
    Reader { maker, async_calls: context.profile.async_calls }
}

fn maker_of(context: Context<'_>, request: &Request) -> String {
    format!("{}/{}", context.provider, request.model)
}

/// Messages as input; a change of effort stands before the last user turn of them.
fn fresh_input(context: Context<'_>, request: &Request) -> Result<Vec<Value>, Error> {
    let maker = maker_of(context, request);
    let is_user = |item: &Item| matches!(item, Item::Message { role: Role::User, .. });
    let place = request.messages.iter().rposition(is_user).unwrap_or(0);
    let (before, after) = request.messages.split_at(place.min(request.messages.len()));
    let mut input = reader(context, &maker).items(before);
    input.extend(effort_update(context, request)?);
    input.extend(reader(context, &maker).items(after));
    Ok(input)
}

fn continuation(context: Context<'_>, request: &Request, delivery: &Delivery) -> Result<Vec<Value>, Error> {
    let mut input = Vec::from_iter(effort_update(context, request)?);
    input.extend(delivery.input.iter().cloned());
    input.extend(reader(context, &maker_of(context, request)).items(&delivery.after));
    Ok(input)
}

/// The history, then the outputs that it does not have yet, then what follows them. A provider may use an id for several
/// calls: the first output of an id answers the first call of that id, the second one the second, and so on, so an output
/// is there already only if the history has as many outputs of its id as calls.
fn replay(context: Context<'_>, request: &Request, delivery: &Delivery) -> Result<Vec<Value>, Error> {
    let maker = maker_of(context, request);
    let mut input = reader(context, &maker).items(&request.messages);
    let count = |items: &[Value], id: &str, wanted: fn(&Value) -> bool| {
        items.iter().filter(|item| wanted(item) && item["call_id"].as_str() == Some(id)).count()
    };
    let mut outputs: Vec<Value> = Vec::new();
    for (item, id) in delivery.input.iter().zip(output_ids(delivery)) {
        let id = id.unwrap_or_default();
        let calls = count(&input, id, is_call);
        if calls == 0 {
            return Err(Error::config(format!("the history lacks call {id:?} of the delivery"))
                .hint("without continuation a request needs the whole history, calls included"));
        }
        if count(&input, id, is_output) + count(&outputs, id, is_output) < calls {
            outputs.push(item.clone());
        }
    }
    input.extend(effort_update(context, request)?);
    input.extend(outputs);
    input.extend(reader(context, &maker).items(&delivery.after));
    Ok(input)
}

fn effort_update(context: Context<'_>, request: &Request) -> Result<Option<Value>, Error> {
    let Some(effort) = &request.effort_update else { return Ok(None) };
    if !context.profile.configuration_update {
        return Err(lacks(context, request, "a change of effort within a conversation", "configuration_update"));
    }
    check_effort(context, request, effort)?;
    Ok(Some(json!({"type": "configuration_update", "reasoning": {"effort": effort}})))
}

fn check_tools(context: Context<'_>, request: &Request) -> Result<(), Error> {
    for (n, offer) in request.tools.iter().enumerate() {
        let name = &offer.definition.name;
        let text = name.as_str();
        let safe = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if text.is_empty() || text.len() > TOOL_NAME_BYTES_MAX || !text.chars().all(safe) {
            return Err(Error::config(format!("tool {name:?} cannot be offered under this name"))
                .hint("1 to 64 of letters, digits, _ and -"));
        }
        if request.tools.iter().take(n).any(|earlier| earlier.definition.name == *name) {
            return Err(Error::config(format!("tool {name:?} is offered twice")).hint("give one of them an alias"));
        }
        if offer.definition.input.is_custom() && !context.profile.custom_tools {
            return Err(lacks(context, request, &format!("tools with text input such as {text:?}"), "custom_tools"));
        }
    }
    Ok(())
}

/// A tool's definition. Deferred ones are sent in full: a tool search and async tools exclude each other here (O23, O8).
fn tool(offer: &ToolOffer) -> Value {
    let definition = &offer.definition;
    let (name, description) = (definition.name.as_str(), definition.description.as_str());
    match &definition.input {
        // Not strict: a schema comes from a component, and strict mode takes a subset only. The host checks arguments.
        InputFormat::JsonSchema(schema) => json!({
            "type": "function", "name": name, "description": description, "parameters": schema, "strict": false,
        }),
        InputFormat::Text => {
            json!({"type": "custom", "name": name, "description": description, "format": {"type": "text"}})
        }
        InputFormat::Grammar(Grammar { syntax, definition }) => json!({
            "type": "custom", "name": name, "description": description,
            "format": {"type": "grammar", "syntax": syntax.as_str(), "definition": definition},
        }),
    }
}

/// Neutral options in this protocol's words (O15, O21). There is no word for a volatile suffix: prefixes are found by the
/// server itself.
fn options(context: Context<'_>, request: &Request, body: &mut Map<String, Value>) -> Result<(), Error> {
    let (options, profile) = (&request.options, context.profile);
    let mut set = |name: &str, value: Value| body.insert(name.to_owned(), value);
    if let Some(temperature) = options.temperature {
        if !profile.temperature {
            return Err(lacks(context, request, "a temperature", "temperature"));
        }
        set("temperature", temperature.into());
    }
    if let Some(limit) = options.max_output_tokens {
        set("max_output_tokens", limit.into());
    }
    if let Some(effort) = &options.effort {
        check_effort(context, request, effort)?;
        set("reasoning", json!({"effort": effort}));
    }
    if let Some(verbosity) = &options.verbosity {
        if !profile.verbosity {
            return Err(lacks(context, request, "a verbosity", "verbosity"));
        }
        set("text", json!({"verbosity": verbosity}));
    }
    if let Some(speed) = &options.speed {
        if !profile.speed {
            return Err(lacks(context, request, "a speed", "speed"));
        }
        set("service_tier", speed.as_str().into());
    }
    if !options.metadata.is_empty() {
        set("metadata", json!(options.metadata));
    }
    if let Some(parallel) = options.parallel_calls {
        if !profile.parallel_calls {
            return Err(lacks(context, request, "a word on parallel calls", "parallel_calls"));
        }
        set("parallel_tool_calls", parallel.into());
    }
    if let Some(key) = &options.prompt_cache_key {
        set("prompt_cache_key", key.as_str().into());
    }
    Ok(())
}

fn check_effort(context: Context<'_>, request: &Request, effort: &str) -> Result<(), Error> {
    if !context.profile.effort {
        return Err(lacks(context, request, "an effort", "effort"));
    }
    if context.profile.effort_refused.iter().any(|refused| refused == effort) {
        return Err(lacks(context, request, &format!("effort {effort:?}"), "effort_refused"));
    }
    Ok(())
}

fn lacks(context: Context<'_>, request: &Request, what: &str, key: &str) -> Error {
    Error::config(format!("model {:?} does not take {what}", maker_of(context, request))).hint(format!(
        "remove it, or if the model does take it, say so: providers.{}.options.models.{:?}.{key}",
        context.provider, request.model
    ))
}

/// Members from elsewhere: new ones are added, those of an object are put beside ours, tools are appended. None takes the
/// place of what is there (O22).
fn extra(members: &Map<String, Value>, place: &str, body: &mut Map<String, Value>) -> Result<(), Error> {
    for (name, value) in members {
        if OWN_MEMBERS.contains(&name.as_str()) {
            return Err(Error::config(format!("{place} cannot set {name:?} of a request"))
                .hint("remove it: the host sets it from the harness and the session"));
        }
        let twice = |member: &str| {
            Error::config(format!("{place} set {member:?}, which is set already")).hint("set it in one place")
        };
        match (body.get_mut(name), value) {
            (None, _) => {
                body.insert(name.clone(), value.clone());
            }
            (Some(Value::Object(ours)), Value::Object(theirs)) => {
                for (member, value) in theirs {
                    if ours.contains_key(member) {
                        return Err(twice(&format!("{name}.{member}")));
                    }
                    ours.insert(member.clone(), value.clone());
                }
            }
            (Some(Value::Array(ours)), Value::Array(theirs)) if name == "tools" || name == "include" => {
                ours.extend(theirs.iter().cloned());
            }
            (Some(_), _) => return Err(twice(name)),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
