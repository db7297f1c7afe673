//! The three digests over the resolved policy (X14, design section 7), and whether an authority is wider than another.
//!
//! Format, comments, limits and prices are in none of them; of secrets, names and sources count and values do not.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::digest::Digest;
use crate::error::Error;
use crate::grants::{Grants, SecretSource};
use crate::model::ToolOffer;
use crate::policy::ReplayClass;
use crate::rules::BoundTool;
use crate::tool::{Definition, InputFormat};

/// The identity of what runs: the component's bytes (or what stands for a native capability), the version of the contract
/// and the config, which is part of what it does.
pub fn component_digest(content: &Digest, contract: &str, config: &Value) -> Digest {
    Digest::of_json(&json!({ "content": content.to_string(), "contract": contract, "config": config }))
}

/// What the model is told: model, instructions, and the tools as shown, in their order.
pub fn conversation_digest<'d>(
    model: &str,
    instructions: &str,
    shown: impl IntoIterator<Item = &'d Definition>,
) -> Digest {
    let tools: Vec<Value> = shown.into_iter().map(shown_json).collect();
    Digest::of_json(&json!({ "model": model, "instructions": instructions, "tools": tools }))
}

/// The conversation digest of a request's offers.
pub fn offers_digest(model: &str, instructions: &str, offers: &[ToolOffer]) -> Digest {
    conversation_digest(model, instructions, offers.iter().map(|offer| &offer.definition))
}

fn shown_json(tool: &Definition) -> Value {
    let input = match &tool.input {
        InputFormat::JsonSchema(schema) => json!({ "schema": schema }),
        InputFormat::Text => json!("text"),
        InputFormat::Grammar(grammar) => json!({ "syntax": grammar.syntax.as_str(), "definition": grammar.definition }),
    };
    json!({ "name": tool.name.as_str(), "description": tool.description, "input": input })
}

/// All that a capability may do: its component, its grants, and per tool replay, async and approval. Kept in the journal
/// as JSON, so that a later one can be compared with it.
#[derive(Debug, Clone, PartialEq)]
pub struct Authority {
    component: String,
    reach: Reach,
    tools: BTreeMap<String, ToolAuthority>,
}

/// Grants as sets of lines, each of which is one thing that may be reached.
#[derive(Debug, Clone, PartialEq, Default)]
struct Reach {
    files: BTreeMap<String, FileReach>,
    http: BTreeMap<String, Vec<String>>,
    env: BTreeMap<String, String>,
    secrets: BTreeMap<String, String>,
    tools: Vec<String>,
    state: bool,
}

#[derive(Debug, Clone, PartialEq)]
struct FileReach {
    host: String,
    write: bool,
}

#[derive(Debug, Clone, PartialEq)]
struct ToolAuthority {
    replay: ReplayClass,
    is_async: bool,
    approve: Value,
    refused: bool,
}

/// How an authority compares with an earlier one (X14).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuthorityChange {
    /// The same.
    Equal,
    /// It allows less and nothing more. What was reduced, for the journal.
    Narrower(Vec<String>),
    /// It allows something that the earlier one did not, or it cannot be told. What was added, for the message.
    Wider(Vec<String>),
}

impl Authority {
    /// The authority of a capability: its component digest, its grants, and its tools under policy.
    pub fn new<'t>(component: &Digest, grants: &Grants, tools: impl IntoIterator<Item = &'t BoundTool>) -> Self {
        let tools = tools.into_iter().map(|tool| {
            let authority = ToolAuthority {
                replay: tool.replay().value,
                is_async: tool.is_async().value,
                approve: tool.approve().value.to_json(),
                refused: tool.refuse().value.is_some(),
            };
            (tool.own_name().as_str().to_owned(), authority)
        });
        Self { component: component.to_string(), reach: Reach::of(grants), tools: tools.collect() }
    }

    /// Its digest: to it an approval is bound, beside the call (X17).
    pub fn digest(&self) -> Digest {
        Digest::of_json(&self.to_json())
    }

    /// The form that is journaled.
    pub fn to_json(&self) -> Value {
        let tools: Map<String, Value> = self
            .tools
            .iter()
            .map(|(name, tool)| {
                let value = json!({
                    "replay": tool.replay.as_str(), "async": tool.is_async, "approve": tool.approve, "refused": tool.refused,
                });
                (name.clone(), value)
            })
            .collect();
        json!({ "component": self.component, "grants": self.reach.to_json(), "tools": tools })
    }

    /// Reads the journaled form.
    ///
    /// # Errors
    /// A corruption error that names the member.
    pub fn from_json(value: &Value) -> Result<Self, Error> {
        let mut tools = BTreeMap::new();
        for (name, tool) in object(value, "tools")? {
            let replay = ReplayClass::parse(&text(tool, "replay")?).ok_or_else(|| damaged("replay"))?;
            let approve = tool.get("approve").cloned().ok_or_else(|| damaged("approve"))?;
            let authority =
                ToolAuthority { replay, is_async: flag(tool, "async")?, approve, refused: flag(tool, "refused")? };
            tools.insert(name.clone(), authority);
        }
        let reach = Reach::from_json(value.get("grants").ok_or_else(|| damaged("grants"))?)?;
        Ok(Self { component: text(value, "component")?, reach, tools })
    }

    /// How this authority compares with an earlier one. What cannot be told counts as wider.
    pub fn compared_with(&self, earlier: &Self) -> AuthorityChange {
        let mut more = Vec::new();
        let mut less = Vec::new();
        if self.component != earlier.component {
            more.push(format!("component is {}, was {}", self.component, earlier.component));
        }
        self.reach.compare(&earlier.reach, &mut more, &mut less);
        for (name, tool) in &self.tools {
            match earlier.tools.get(name) {
                Some(was) => tool.compare(was, name, &mut more, &mut less),
                None => more.push(format!("tool {name:?} is new")),
            }
        }
        less.extend(
            earlier
                .tools
                .keys()
                .filter(|name| !self.tools.contains_key(*name))
                .map(|name| format!("tool {name:?} is gone")),
        );
        if !more.is_empty() {
            AuthorityChange::Wider(more)
        } else if !less.is_empty() {
            AuthorityChange::Narrower(less)
        } else {
            AuthorityChange::Equal
        }
    }
}

impl ToolAuthority {
    fn compare(&self, was: &Self, name: &str, more: &mut Vec<String>, less: &mut Vec<String>) {
        // Only a way to `never` is narrower: `safe` and `keyed` promise different things (L15).
        if self.replay != was.replay {
            let line = format!("replay of {name:?} is {}, was {}", self.replay, was.replay);
            if self.replay == ReplayClass::Never { less.push(line) } else { more.push(line) }
        }
        if self.is_async != was.is_async {
            let line = format!("async of {name:?} is {}, was {}", self.is_async, was.is_async);
            if self.is_async { more.push(line) } else { less.push(line) }
        }
        if self.approve != was.approve {
            let line = format!("approval of {name:?} is {}, was {}", self.approve, was.approve);
            // Between two conditions nobody can tell which asks more often.
            if self.approve == "always" || was.approve == "never" { less.push(line) } else { more.push(line) }
        }
        if self.refused != was.refused {
            let line = format!("tool {name:?} is {}", if self.refused { "refused now" } else { "no longer refused" });
            if self.refused { less.push(line) } else { more.push(line) }
        }
    }
}

impl Reach {
    fn of(grants: &Grants) -> Self {
        let source = |source: &SecretSource| match source {
            SecretSource::Env(name) => format!("env:{name}"),
            SecretSource::File(path) => format!("file:{path}"),
            // A command line may hold what should not be read in a journal.
            SecretSource::Command(words) => format!("command:{}", Digest::of_json(&json!(words))),
        };
        let mut http: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for grant in &grants.http {
            let mut methods = grant.methods.clone();
            methods.sort();
            methods.dedup();
            http.entry(grant.pattern.clone())
                .and_modify(|known| {
                    // No list means all methods, so it takes in any other list.
                    if known.is_empty() || methods.is_empty() {
                        known.clear();
                    } else {
                        known.extend(methods.iter().cloned());
                        known.sort();
                        known.dedup();
                    }
                })
                .or_insert(methods);
        }
        let mut tools: Vec<String> = grants.tools.iter().map(|tool| tool.as_str().to_owned()).collect();
        tools.sort();
        tools.dedup();
        Self {
            files: grants
                .files
                .iter()
                .map(|grant| {
                    let write = match grant.access {
                        crate::grants::FileAccess::Read => false,
                        crate::grants::FileAccess::ReadWrite => true,
                    };
                    (grant.guest.clone(), FileReach { host: grant.host.clone(), write })
                })
                .collect(),
            http,
            env: grants.env.clone(),
            secrets: grants
                .secrets
                .iter()
                .map(|grant| {
                    (grant.name.clone(), format!("{} to {} as {}", source(&grant.from), grant.to, grant.placement))
                })
                .collect(),
            tools,
            state: grants.state,
        }
    }

    fn compare(&self, was: &Self, more: &mut Vec<String>, less: &mut Vec<String>) {
        for (guest, grant) in &self.files {
            match was.files.get(guest) {
                Some(old) if old == grant => {}
                Some(old) if old.host == grant.host && old.write => {
                    less.push(format!("folder {guest:?} is read-only now"))
                }
                Some(old) if old.host == grant.host => more.push(format!("folder {guest:?} is writable now")),
                Some(old) => more.push(format!("folder {guest:?} is {:?}, was {:?}", grant.host, old.host)),
                None => more.push(format!("folder {guest:?} is new")),
            }
        }
        gone("folder", &was.files, &self.files, less);
        for (pattern, methods) in &self.http {
            match was.http.get(pattern) {
                Some(old) if old == methods => {}
                Some(old)
                    if old.is_empty() || (!methods.is_empty() && methods.iter().all(|method| old.contains(method))) =>
                {
                    less.push(format!("address {pattern:?} has fewer methods"));
                }
                Some(_) => more.push(format!("address {pattern:?} has more methods")),
                None => more.push(format!("address {pattern:?} is new")),
            }
        }
        gone("address", &was.http, &self.http, less);
        changed("environment value", &self.env, &was.env, more);
        gone("environment value", &was.env, &self.env, less);
        changed("secret", &self.secrets, &was.secrets, more);
        gone("secret", &was.secrets, &self.secrets, less);
        more.extend(
            self.tools
                .iter()
                .filter(|tool| !was.tools.contains(tool))
                .map(|tool| format!("callable tool {tool:?} is new")),
        );
        less.extend(
            was.tools
                .iter()
                .filter(|tool| !self.tools.contains(tool))
                .map(|tool| format!("callable tool {tool:?} is gone")),
        );
        match (self.state, was.state) {
            (true, false) => more.push("state folder is new".to_owned()),
            (false, true) => less.push("state folder is gone".to_owned()),
            (true, true) | (false, false) => {}
        }
    }

    fn to_json(&self) -> Value {
        let files: Map<String, Value> = self
            .files
            .iter()
            .map(|(guest, grant)| (guest.clone(), json!({ "host": grant.host, "write": grant.write })))
            .collect();
        json!({
            "fs": files, "http": self.http, "env": self.env, "secrets": self.secrets, "tools": self.tools, "state": self.state,
        })
    }

    fn from_json(value: &Value) -> Result<Self, Error> {
        let mut files = BTreeMap::new();
        for (guest, grant) in object(value, "fs")? {
            files.insert(guest.clone(), FileReach { host: text(grant, "host")?, write: flag(grant, "write")? });
        }
        let mut http = BTreeMap::new();
        for (pattern, methods) in object(value, "http")? {
            http.insert(pattern.clone(), texts(Some(methods), "http")?);
        }
        let text_map = |name: &str| -> Result<BTreeMap<String, String>, Error> {
            let members = object(value, name)?.iter();
            members
                .map(|(key, value)| Ok((key.clone(), value.as_str().ok_or_else(|| damaged(name))?.to_owned())))
                .collect()
        };
        Ok(Self {
            files,
            http,
            env: text_map("env")?,
            secrets: text_map("secrets")?,
            tools: texts(value.get("tools"), "tools")?,
            state: flag(value, "state")?,
        })
    }
}

fn gone<T>(what: &str, was: &BTreeMap<String, T>, now: &BTreeMap<String, T>, less: &mut Vec<String>) {
    less.extend(was.keys().filter(|key| !now.contains_key(*key)).map(|key| format!("{what} {key:?} is gone")));
}

fn changed(what: &str, now: &BTreeMap<String, String>, was: &BTreeMap<String, String>, more: &mut Vec<String>) {
    for (key, value) in now {
        match was.get(key) {
            Some(old) if old == value => {}
            // The values stay out of the message: it is shown and logged.
            Some(_) => more.push(format!("{what} {key:?} is another")),
            None => more.push(format!("{what} {key:?} is new")),
        }
    }
}

fn damaged(member: &str) -> Error {
    Error::corruption(format!("a journaled authority has a bad or missing member {member:?}"))
}

fn object<'v>(value: &'v Value, member: &str) -> Result<&'v Map<String, Value>, Error> {
    value.get(member).and_then(Value::as_object).ok_or_else(|| damaged(member))
}

fn text(value: &Value, member: &str) -> Result<String, Error> {
    Ok(value.get(member).and_then(Value::as_str).ok_or_else(|| damaged(member))?.to_owned())
}

fn flag(value: &Value, member: &str) -> Result<bool, Error> {
    value.get(member).and_then(Value::as_bool).ok_or_else(|| damaged(member))
}

fn texts(value: Option<&Value>, member: &str) -> Result<Vec<String>, Error> {
    let items = value.and_then(Value::as_array).ok_or_else(|| damaged(member))?;
    items.iter().map(|item| Ok(item.as_str().ok_or_else(|| damaged(member))?.to_owned())).collect()
}

#[cfg(test)]
mod tests;
