//! From the tree as it is written to a checked [`Harness`]. Goes on after a fault, so that all are reported at once.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::HarnessErrors;
use super::grants::{merge, read_grants};
use super::model::ModelRef;
use super::read::{At, Node, Source, Table};
use super::rule::read_rule;
use super::{
    AfterLost, AsyncSupport, Capability, CapabilitySource, Harness, KeySource, ModelSetting, OnUnknown, Profile,
    Provider, Retention, StoreAddress, TurnRules, units,
};
use crate::grants::Grants;
use crate::limits;
use crate::model::Options;
use crate::names::{did_you_mean, quoted};
use crate::rules::{Pattern, PatternRule, Rule};

pub(super) fn parse(file: &str, text: &str) -> Result<Harness, HarnessErrors> {
    // Windows' editors put a mark before the text; it is no part of it.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.len() > limits::HARNESS_BYTES_MAX {
        let source = Source::new(file, "");
        let place = source.place(&(0..0), "");
        source.fault(
            place,
            format!("the file has {} bytes, over the limit of {}", text.len(), limits::HARNESS_BYTES_MAX),
            None,
        );
        return Err(HarnessErrors::of(source.into_faults()).unwrap_or_else(|| unreachable_fault(file)));
    }
    let (tree, syntax) = DeTable::parse_recoverable(text);
    let tree = Spanned::new(0..0, DeValue::Table(tree.into_inner()));
    let source = Source::new(file, text);
    for fault in &syntax {
        let place = source.place(&fault.span().unwrap_or(0..0), "");
        source.fault(place, format!("is not TOML: {}", fault.message()), None);
    }
    // A tree with holes would be blamed for what was never read.
    let harness = if syntax.is_empty() { read(&source, &tree) } else { None };
    match (HarnessErrors::of(source.into_faults()), harness) {
        (None, Some(harness)) => Ok(harness),
        (Some(faults), _) => Err(faults),
        (None, None) => Err(unreachable_fault(file)),
    }
}

/// Whoever gives up reports why; this says so if one day somebody forgets.
fn unreachable_fault(file: &str) -> HarnessErrors {
    let source = Source::new(file, "");
    source.fault(source.place(&(0..0), ""), "the file could not be read", None);
    HarnessErrors::of(source.into_faults()).expect("one fault was just added")
}

fn read<'a>(source: &'a Source<'a>, tree: &'a Spanned<DeValue<'a>>) -> Option<Harness> {
    let root = source.root(tree).table()?;
    let defaults =
        root.get("defaults").and_then(|node| node.table()).map(|table| read_rule(&table)).unwrap_or_default();
    let profiles = read_profiles(&root);
    let capabilities = read_capabilities(&root, &profiles);
    let providers = read_providers(&root);
    let models = read_models(&root);
    let sessions = root.get("sessions").and_then(|node| node.table());
    let retention = sessions.as_ref().and_then(read_retention);
    let store = sessions.as_ref().and_then(|table| table.get("store")).and_then(|node| read_store(&node));
    let mut options =
        root.get("options").and_then(|node| node.table()).map(|table| read_options(&table)).unwrap_or_default();
    let head = root.need("harness")?.table()?;
    let turn = read_turn(&head);
    options.parallel_calls = head.get("parallel").map(|_| turn.parallel);
    let name = head.need("name").and_then(|node| read_name(&node));
    let model = head.get("model").and_then(|node| read_model(&node));
    Some(Harness {
        file: Arc::from(root.node().place().file.as_ref()),
        name: name?,
        instructions: head.get("instructions").and_then(|node| node.text()).map(|text| text.value).unwrap_or_default(),
        model,
        turn,
        options,
        providers,
        models,
        retention,
        store,
        capabilities,
        profiles,
        defaults,
    })
}

/// A name that can stand in a tool's prefix, a path or a trace: 1 to 64 of `A-Z a-z 0-9 _ -`.
fn read_name(node: &Node<'_>) -> Option<String> {
    let text = node.text()?.value;
    check_name(node, &text).then_some(text)
}

fn check_name(node: &Node<'_>, text: &str) -> bool {
    let good =
        (1..=64).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    if !good {
        node.fault_with(format!("{text:?} is not a name"), Some("a name is 1 to 64 of A-Z a-z 0-9 _ -".to_owned()));
    }
    good
}

fn read_model(node: &Node<'_>) -> Option<ModelRef> {
    let text = node.text()?.value;
    read_model_text(node, &text)
}

fn read_model_text(node: &Node<'_>, text: &str) -> Option<ModelRef> {
    match ModelRef::parse(text) {
        Ok(model) => Some(model),
        Err(error) => {
            node.fault_with(error.message, error.hint);
            None
        }
    }
}

fn read_turn(head: &Table<'_>) -> TurnRules {
    let mut turn = TurnRules::default();
    let whole = |key, least, most| head.get(key).and_then(|node| node.whole(least, u64::from(most)));
    let narrow = |number: At<u64>| u32::try_from(number.value).unwrap_or(u32::MAX);
    if let Some(most) = whole("max_responses", 1, limits::RESPONSES_MAX) {
        turn.max_responses = narrow(most);
    }
    if let Some(flag) = head.get("parallel").and_then(|node| node.boolean()) {
        turn.parallel = flag.value;
    }
    if let Some(jobs) = whole("jobs_at_once", 1, limits::CALLS_AT_ONCE_MAX) {
        turn.jobs_at_once = narrow(jobs);
    }
    let words = [("stop", OnUnknown::Stop), ("resend", OnUnknown::Resend)];
    if let Some(word) = head.get("on_unknown").and_then(|node| node.word(&words)) {
        turn.on_unknown = word.value;
    }
    let words = [("pause", AfterLost::Pause), ("continue", AfterLost::Continue)];
    if let Some(word) = head.get("after_lost_response").and_then(|node| node.word(&words)) {
        turn.after_lost_response = word.value;
    }
    if let Some(times) = whole("resend_lost", 0, 100) {
        turn.resend_lost = narrow(times);
    }
    if let Some(times) = whole("unknown_tool_limit", 0, limits::RESPONSES_MAX) {
        turn.unknown_tool_limit = narrow(times);
    }
    turn
}

fn read_options(table: &Table<'_>) -> Options {
    let text = |key| table.get(key).and_then(|node| node.some_text()).map(|text| text.value);
    let map = |key| table.get(key).and_then(|node| node.text_map()).unwrap_or_default();
    Options {
        temperature: table.get("temperature").and_then(|node| node.number()).map(|number| number.value),
        max_output_tokens: table
            .get("max_output_tokens")
            .and_then(|node| node.whole(1, u64::from(u32::MAX)))
            .map(|number| number.value),
        effort: text("effort"),
        verbosity: text("verbosity"),
        speed: text("speed"),
        metadata: map("metadata"),
        parallel_calls: None,
        prompt_cache_key: text("prompt_cache_key"),
        volatile_suffix: table
            .get("volatile_suffix")
            .and_then(|node| node.whole(0, 1000))
            .and_then(|number| usize::try_from(number.value).ok())
            .unwrap_or(0),
        extra: table.get("extra").and_then(|node| read_object(&node)).unwrap_or_default(),
        headers: map("headers"),
    }
}

fn read_object(node: &Node<'_>) -> Option<Map<String, Value>> {
    node.named()?;
    match node.json()? {
        Value::Object(members) => Some(members),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => None,
    }
}

fn read_providers(root: &Table<'_>) -> BTreeMap<String, Provider> {
    let mut providers = BTreeMap::new();
    for node in root.get("providers").and_then(|node| node.named()).unwrap_or_default() {
        // A slash would never be found: the first one ends the provider's part of a model's name.
        let named = check_name(&node, node.name());
        if let (true, Some(provider)) = (named, read_provider(&node)) {
            providers.insert(node.name().to_owned(), provider);
        }
    }
    providers
}

fn read_provider(node: &Node<'_>) -> Option<Provider> {
    let table = node.table()?;
    let insecure_http = table.get("insecure_http").and_then(|node| node.boolean()).is_some_and(|flag| flag.value);
    let base_url = table.get("base_url").and_then(|node| read_base_url(&node, insecure_http));
    let api_key = table.get("api_key").and_then(|node| read_key(&node));
    let headers = table.get("headers").and_then(|node| node.text_map()).unwrap_or_default();
    let driver = table.need("driver")?.some_text()?.value;
    Some(Provider { driver, base_url, api_key, headers, insecure_http, place: node.place() })
}

fn read_base_url(node: &Node<'_>, insecure_http: bool) -> Option<String> {
    let text = node.some_text()?.value;
    let url = match url::Url::parse(&text) {
        Ok(url) => url,
        Err(why) => {
            node.fault(format!("{text:?} is not an address: {why}"));
            return None;
        }
    };
    if !url.username().is_empty() || url.password().is_some() {
        node.fault("has user info, and a credential has no place in an address");
        return None;
    }
    if url.query().is_some() || url.fragment().is_some() {
        node.fault("has a query or a fragment, and paths are appended to it");
        return None;
    }
    // Exactly loopback: a name such as localhost.attacker.example is another host.
    let loopback = match url.host() {
        Some(url::Host::Domain(name)) => name == "localhost",
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    };
    match url.scheme() {
        "https" => Some(text),
        "http" if loopback || insecure_http => Some(text),
        "http" => {
            node.fault_with(
                format!("{text:?} is plain HTTP to another host, and would show the key to everybody between"),
                Some("use https, or say insecure_http = true beside it".to_owned()),
            );
            None
        }
        other => {
            node.fault(format!("has scheme {other:?}, not https"));
            None
        }
    }
}

fn read_key(node: &Node<'_>) -> Option<KeySource> {
    if !node.is_table() {
        // Not quoted: if it is a key, it must not stand in a message.
        node.fault_with(
            "is a literal, and a key has no place in a harness file",
            Some("put it into an environment variable and write api_key = { env = \"NAME_OF_IT\" }".to_owned()),
        );
        return None;
    }
    read_source(node)
}

fn read_source(node: &Node<'_>) -> Option<KeySource> {
    let table = node.table()?;
    match (table.get("env"), table.get("file")) {
        (Some(name), None) => Some(KeySource::Env(name.some_text()?.value)),
        (None, Some(path)) => Some(KeySource::File(path.some_text()?.value)),
        (None, None) | (Some(_), Some(_)) => {
            node.fault("says not exactly one of \"env\" and \"file\"");
            None
        }
    }
}

fn read_models(root: &Table<'_>) -> BTreeMap<ModelRef, ModelSetting> {
    let mut models = BTreeMap::new();
    for node in root.get("models").and_then(|node| node.named()).unwrap_or_default() {
        let Some(table) = node.table() else { continue };
        let words = [("auto", AsyncSupport::Auto), ("on", AsyncSupport::On), ("off", AsyncSupport::Off)];
        let setting = ModelSetting {
            async_tools: table
                .get("async")
                .and_then(|node| node.word(&words))
                .map(|word| word.value)
                .unwrap_or_default(),
            images: table.get("images").and_then(|node| node.boolean()).map(|flag| flag.value),
        };
        if let Some(model) = read_model_text(&node, node.name()) {
            models.insert(model, setting);
        }
    }
    models
}

fn read_retention(sessions: &Table<'_>) -> Option<Retention> {
    let text = sessions.get("keep")?;
    let said = text.text()?;
    match units::duration(&said.value) {
        Ok(keep) => Some(Retention { keep, place: said.place }),
        Err(why) => {
            text.fault(format!("{:?} is not a duration: it {why}", said.value));
            None
        }
    }
}

fn read_store(node: &Node<'_>) -> Option<StoreAddress> {
    if node.is_table() {
        return read_source(node).map(StoreAddress::At);
    }
    let text = node.some_text()?.value;
    // Not quoted below: it may hold a password.
    if !["postgres://", "postgresql://"].iter().any(|scheme| text.starts_with(scheme)) {
        node.fault("is no address that begins with postgres:// or postgresql://");
        return None;
    }
    if StoreAddress::has_password(&text) {
        node.fault_with(
            "holds a password, which has no place in a harness file",
            Some("put the address into an environment variable and write store = { env = \"NAME_OF_IT\" }".to_owned()),
        );
        return None;
    }
    Some(StoreAddress::Plain(text))
}

fn read_profiles(root: &Table<'_>) -> BTreeMap<String, Profile> {
    let mut profiles = BTreeMap::new();
    for node in root.get("profiles").and_then(|node| node.named()).unwrap_or_default() {
        let Some(table) = node.table() else { continue };
        let rule = read_rule(&table);
        let grants = table.get("grants").map(|node| read_grants(&node)).unwrap_or_default();
        profiles.insert(node.name().to_owned(), Profile { rule, grants, place: node.place() });
    }
    profiles
}

fn read_capabilities(root: &Table<'_>, profiles: &BTreeMap<String, Profile>) -> BTreeMap<String, Capability> {
    let mut capabilities = BTreeMap::new();
    for node in root.get("capabilities").and_then(|node| node.named()).unwrap_or_default() {
        let named = check_name(&node, node.name());
        if let (true, Some(capability)) = (named, read_capability(&node, profiles)) {
            capabilities.insert(capability.name.clone(), capability);
        }
    }
    capabilities
}

fn read_capability(node: &Node<'_>, known: &BTreeMap<String, Profile>) -> Option<Capability> {
    let table = node.table()?;
    let rule = read_rule(&table);
    let tools = read_tools(&table);
    let profiles = table.get("profile").map(|node| read_profile_names(&node, known)).unwrap_or_default();
    let own = table.get("grants").map(|node| read_grants(&node)).unwrap_or_default();
    let shared: Vec<(&str, &Grants)> =
        profiles.iter().filter_map(|name| Some((name.as_str(), &known.get(name)?.grants))).collect();
    let grants = merge(table.get("grants").as_ref().unwrap_or(node), own, &shared);
    let config = table.get("config").map(|node| (read_object(&node), node.place()));
    let source = match (table.get("component"), table.get("native")) {
        (Some(path), None) => path.some_text().map(|text| CapabilitySource::Component(text.value)),
        (None, Some(id)) => id.some_text().map(|text| CapabilitySource::Native(text.value)),
        (None, None) | (Some(_), Some(_)) => {
            node.fault_with(
                "says not exactly one of \"component\" and \"native\"",
                Some("for example component = \"files.wasm\"".to_owned()),
            );
            None
        }
    };
    let (config, config_place) = match config {
        Some((members, place)) => (members.unwrap_or_default(), place),
        None => (Map::new(), node.place()),
    };
    Some(Capability {
        name: node.name().to_owned(),
        source: source?,
        config: Value::Object(config),
        config_place,
        enabled: table.get("enabled").and_then(|node| node.boolean()).is_none_or(|flag| flag.value),
        profiles,
        grants,
        rule,
        tools,
        place: node.place(),
    })
}

fn read_profile_names(node: &Node<'_>, known: &BTreeMap<String, Profile>) -> Vec<String> {
    let names = if node.is_list() { node.texts() } else { node.some_text().map(|text| vec![text]) };
    let mut profiles = Vec::new();
    for name in names.unwrap_or_default() {
        if known.contains_key(&name.value) {
            profiles.push(name.value);
            continue;
        }
        let all: Vec<&str> = known.keys().map(String::as_str).collect();
        let hint = did_you_mean(&name.value, all.iter().copied()).unwrap_or_else(|| {
            if all.is_empty() {
                format!("add [profiles.{}]", name.value)
            } else {
                format!("profiles are {}", quoted(&all, "and"))
            }
        });
        node.fault_with(format!("there is no profile {:?}", name.value), Some(hint));
    }
    profiles.sort();
    profiles.dedup();
    profiles
}

fn read_tools(table: &Table<'_>) -> Vec<PatternRule> {
    let mut rules = Vec::new();
    for node in table.get("tools").and_then(|node| node.named()).unwrap_or_default() {
        if node.name().trim().is_empty() {
            node.fault_with("a rule names no tool", Some("name a tool, or a pattern such as \"read_*\"".to_owned()));
            continue;
        }
        let Some(entry) = node.table() else { continue };
        let rule: Rule = read_rule(&entry);
        rules.push(PatternRule { pattern: Pattern::new(node.name()), rule, place: node.place() });
    }
    rules
}
