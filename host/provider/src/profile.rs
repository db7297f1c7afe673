//! What a model can do: a table of data, and the operator's word over it (O12). No model is named in code.

use serde_json::{Map, Value};
use wharf_core::{Error, names};

/// What one model can do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Profile {
    pub(crate) async_calls: bool,
    pub(crate) continuation: bool,
    pub(crate) retrieval: bool,
    pub(crate) cancel: bool,
    pub(crate) configuration_update: bool,
    pub(crate) encrypted_reasoning: bool,
    pub(crate) temperature: bool,
    pub(crate) effort: bool,
    pub(crate) effort_refused: Vec<String>,
    pub(crate) verbosity: bool,
    pub(crate) speed: bool,
    pub(crate) parallel_calls: bool,
    pub(crate) custom_tools: bool,
}

impl Profile {
    /// The profile that the table has on top of an empty one. `[default]` sets every member; a test checks that.
    const NOTHING: Self = Self {
        async_calls: false,
        continuation: false,
        retrieval: false,
        cancel: false,
        configuration_update: false,
        encrypted_reasoning: false,
        temperature: false,
        effort: false,
        effort_refused: Vec::new(),
        verbosity: false,
        speed: false,
        parallel_calls: false,
        custom_tools: false,
    };

    fn member(&mut self, name: &str) -> Option<&mut bool> {
        Some(match name {
            "continuation" => &mut self.continuation,
            "retrieval" => &mut self.retrieval,
            "cancel" => &mut self.cancel,
            "configuration_update" => &mut self.configuration_update,
            "encrypted_reasoning" => &mut self.encrypted_reasoning,
            "temperature" => &mut self.temperature,
            "effort" => &mut self.effort,
            "verbosity" => &mut self.verbosity,
            "speed" => &mut self.speed,
            "parallel_calls" => &mut self.parallel_calls,
            "custom_tools" => &mut self.custom_tools,
            _ => return None,
        })
    }

    /// Puts the members that are given over this.
    fn overlay(&mut self, members: &Map<String, Value>, place: &str) -> Result<(), Error> {
        for (name, value) in members {
            let wrong = |expected: &str| {
                Err(Error::config(format!("{place}.{name} is {value}; expected {expected}"))
                    .hint(format!("{name} = …")))
            };
            match (name.as_str(), value) {
                ("match", _) => {}
                ("async", value) => match AsyncSetting::read(value) {
                    Some(setting) => setting.apply(self),
                    None => return wrong(AsyncSetting::EXPECTED),
                },
                ("effort_refused", Value::Array(words)) if words.iter().all(Value::is_string) => {
                    self.effort_refused = words.iter().filter_map(Value::as_str).map(str::to_owned).collect();
                }
                ("effort_refused", _) => return wrong("a list of words"),
                (name, value) => match (self.member(name), value) {
                    (Some(member), Value::Bool(flag)) => *member = *flag,
                    (Some(_), _) => return wrong("true or false"),
                    (None, _) => return Err(unknown(place, name, KEYS)),
                },
            }
        }
        Ok(())
    }
}

/// What a profile may say.
const KEYS: &[&str] = &[
    "async",
    "continuation",
    "retrieval",
    "cancel",
    "configuration_update",
    "encrypted_reasoning",
    "temperature",
    "effort",
    "effort_refused",
    "verbosity",
    "speed",
    "parallel_calls",
    "custom_tools",
];

/// The operator's word on async.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AsyncSetting {
    /// As the table has it.
    Auto,
    /// Marked whatever the table says.
    On,
    /// Never marked.
    Off,
}

impl AsyncSetting {
    pub(crate) const EXPECTED: &'static str = r#""auto", "on" or "off""#;

    pub(crate) fn read(value: &Value) -> Option<Self> {
        match value.as_str()? {
            "auto" => Some(Self::Auto),
            "on" => Some(Self::On),
            "off" => Some(Self::Off),
            _ => None,
        }
    }

    fn apply(self, profile: &mut Profile) {
        match self {
            Self::Auto => {}
            Self::On => profile.async_calls = true,
            Self::Off => profile.async_calls = false,
        }
    }
}

/// The table, with the operator's entries over it.
#[derive(Debug, Clone)]
pub(crate) struct Profiles {
    default: Profile,
    known: Vec<(String, Map<String, Value>)>,
    setting: AsyncSetting,
    overrides: Vec<(String, Map<String, Value>)>,
}

impl Profiles {
    /// The built-in table, the operator's setting for all models, and the operator's entries by model name, in which a
    /// trailing `*` stands for anything. An entry goes over the setting, the setting over the table.
    pub(crate) fn new(setting: AsyncSetting, overrides: &Map<String, Value>, place: &str) -> Result<Self, Error> {
        let table: Value = toml::from_str(include_str!("profiles.toml"))
            .map_err(|fault| Error::config(format!("the built-in profiles cannot be read: {fault}")))?;
        let mut default = Profile::NOTHING;
        if let Some(members) = table["default"].as_object() {
            default.overlay(members, "default")?;
        }
        let mut known = Vec::new();
        for entry in table["model"].as_array().map(Vec::as_slice).unwrap_or_default() {
            if let (Some(members), Some(pattern)) = (entry.as_object(), entry["match"].as_str()) {
                default.clone().overlay(members, pattern)?;
                known.push((pattern.to_owned(), members.clone()));
            }
        }
        let mut checked = Vec::new();
        for (pattern, entry) in overrides {
            let place = format!("{place}.{pattern:?}");
            let Some(members) = entry.as_object() else {
                return Err(Error::config(format!("{place} is {entry}; expected a table"))
                    .hint(r#"write it like { async = "on" }"#));
            };
            if members.contains_key("match") {
                return Err(unknown(&place, "match", KEYS));
            }
            default.clone().overlay(members, &place)?;
            checked.push((pattern.clone(), members.clone()));
        }
        // The longest pattern is the most exact one: order in the file does not count.
        checked.sort_by_key(|(pattern, _)| std::cmp::Reverse(pattern.len()));
        Ok(Self { default, known, setting, overrides: checked })
    }

    /// What a model can do.
    pub(crate) fn of(&self, model: &str) -> Profile {
        let mut profile = self.default.clone();
        let entry = |list: &[(String, Map<String, Value>)]| {
            list.iter().find(|(pattern, _)| fits(pattern, model)).map(|(_, members)| members.clone())
        };
        // Both were tried in `new`, on the same default: they cannot fail here.
        if let Some(Err(fault)) = entry(&self.known).map(|members| profile.overlay(&members, model)) {
            tracing::error!(%fault, "a checked profile does not apply");
        }
        self.setting.apply(&mut profile);
        if let Some(Err(fault)) = entry(&self.overrides).map(|members| profile.overlay(&members, model)) {
            tracing::error!(%fault, "a checked profile does not apply");
        }
        profile
    }
}

fn fits(pattern: &str, model: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => model.starts_with(start),
        None => model == pattern,
    }
}

/// The error for a key that nobody knows.
pub(crate) fn unknown(place: &str, name: &str, known: &[&str]) -> Error {
    let hint =
        names::did_you_mean(name, known.iter().copied()).unwrap_or_else(|| format!("known keys: {}", known.join(", ")));
    Error::config(format!("{place} has the unknown key {name:?}")).hint(hint)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn profiles(setting: AsyncSetting, overrides: Value) -> Result<Profiles, Error> {
        Profiles::new(setting, overrides.as_object().unwrap(), "options.models")
    }

    #[test]
    fn default_of_the_table_says_every_member() {
        let table: Value = toml::from_str(include_str!("profiles.toml")).unwrap();
        let mut given: Vec<&str> = table["default"].as_object().unwrap().keys().map(String::as_str).collect();
        let mut keys = KEYS.to_vec();
        given.sort_unstable();
        keys.sort_unstable();
        assert_eq!(given, keys);
        let mut profile = Profile::NOTHING;
        assert!(KEYS.iter().all(|key| ["async", "effort_refused"].contains(key) || profile.member(key).is_some()));
    }

    #[test]
    fn table_and_setting_and_entry_decide_in_this_order() {
        // covers O12
        let astra = "gpt-6-astra-2026-09-03";
        for (setting, overrides, model, expected) in [
            (AsyncSetting::Auto, json!({}), astra, true),
            (AsyncSetting::Auto, json!({}), "never-heard-of", false),
            (AsyncSetting::Auto, json!({}), "router/gpt-6-astra", false),
            (AsyncSetting::Off, json!({}), astra, false),
            (AsyncSetting::On, json!({}), "never-heard-of", true),
            (AsyncSetting::Auto, json!({"never-*": {"async": "on"}}), "never-heard-of", true),
            (AsyncSetting::On, json!({"never-*": {"async": "off"}}), "never-heard-of", false),
            (AsyncSetting::On, json!({"never-*": {"async": "auto"}}), "never-heard-of", true),
            (
                AsyncSetting::Auto,
                json!({"never*": {"async": "on"}, "never-heard-of": {"async": "off"}}),
                "never-heard-of",
                false,
            ),
            (AsyncSetting::Auto, json!({"never-heard-of": {"async": "on"}}), "never-heard-of-2", false),
        ] {
            let profile = profiles(setting, overrides.clone()).unwrap().of(model);
            assert_eq!(profile.async_calls, expected, "{setting:?} {overrides} {model}");
        }
    }

    #[test]
    fn entry_of_the_operator_changes_only_what_it_names() {
        // covers O12
        let overrides = json!({"mine": {"temperature": false, "effort_refused": ["max"]}});
        let all = profiles(AsyncSetting::Auto, overrides).unwrap();
        let expected = Profile { temperature: false, effort_refused: vec!["max".into()], ..all.of("never-heard-of") };
        assert_eq!(all.of("mine"), expected);
    }

    #[test]
    fn wrong_entries_are_config_errors_with_a_hint() {
        for (overrides, message, hint) in [
            (
                json!({"m": {"temprature": true}}),
                r#"options.models."m" has the unknown key "temprature""#,
                r#"did you mean "temperature"?"#,
            ),
            (
                json!({"m": {"async": true}}),
                r#"options.models."m".async is true; expected "auto", "on" or "off""#,
                "async = …",
            ),
            (json!({"m": {"effort": 1}}), r#"options.models."m".effort is 1; expected true or false"#, "effort = …"),
            (json!({"m": 1}), r#"options.models."m" is 1; expected a table"#, r#"write it like { async = "on" }"#),
        ] {
            assert_eq!(profiles(AsyncSetting::Auto, overrides).unwrap_err(), Error::config(message).hint(hint));
        }
    }
}
