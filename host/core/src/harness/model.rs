//! Which model a turn uses, and on which provider (Z4, Z5, O14).

use std::fmt;

use crate::error::Error;
use crate::names::{did_you_mean, quoted};

/// A model on a provider, written `provider/model`. Only the first segment names the provider; the rest, further slashes
/// included, is sent unchanged (O14).
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ModelRef {
    /// The provider's name in the harness.
    pub provider: String,
    /// The model's name as it is sent.
    pub model: String,
}

impl ModelRef {
    /// Reads `provider/model`.
    ///
    /// # Errors
    /// A config error that says what is missing.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let fault = |why: &str| {
            Error::config(format!("model {text:?} {why}"))
                .hint("write it as provider/model, for example \"openai/gpt-6-astra\"")
        };
        let (provider, model) = text.split_once('/').ok_or_else(|| fault("names no provider"))?;
        if provider.trim().is_empty() {
            return Err(fault("names no provider"));
        }
        if model.trim().is_empty() {
            return Err(fault("names no model"));
        }
        Ok(Self { provider: provider.to_owned(), model: model.to_owned() })
    }
}

impl fmt::Display for ModelRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.provider, self.model)
    }
}

/// The model of a turn: what the turn says, else the session, else the harness, else the default (Z5).
///
/// # Errors
/// A config error if none of them names one.
pub fn choose_model<'m>(
    turn: Option<&'m ModelRef>,
    session: Option<&'m ModelRef>,
    harness: Option<&'m ModelRef>,
    default: Option<&'m ModelRef>,
) -> Result<&'m ModelRef, Error> {
    turn.or(session).or(harness).or(default).ok_or_else(|| {
        Error::config("no model: neither turn, session, harness nor default names one")
            .hint("add model = \"provider/model\" to [harness]")
    })
}

/// Checks that the model's provider is among the known ones (Z4).
///
/// # Errors
/// A config error that lists the known ones.
pub fn check_provider<'n>(model: &ModelRef, known: impl IntoIterator<Item = &'n str>) -> Result<(), Error> {
    let mut known: Vec<&str> = known.into_iter().collect();
    if known.contains(&model.provider.as_str()) {
        return Ok(());
    }
    known.sort_unstable();
    let list =
        if known.is_empty() { "none is set up".to_owned() } else { format!("known are {}", quoted(&known, "and")) };
    let error = Error::config(format!(
        "model {:?} is on provider {:?}, which is not known; {list}",
        model.to_string(),
        model.provider
    ));
    let hint = did_you_mean(&model.provider, known.iter().copied())
        .unwrap_or_else(|| format!("add [providers.{}] with driver and api_key to the harness file", model.provider));
    Err(error.hint(hint))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_segment_names_the_provider_and_the_rest_stays() {
        // covers O14
        let model = ModelRef::parse("openrouter/meta/llama-9/instruct").expect("it is one");
        assert_eq!(model, ModelRef { provider: "openrouter".into(), model: "meta/llama-9/instruct".into() });
        assert_eq!(model.to_string(), "openrouter/meta/llama-9/instruct");
        for (text, message) in [
            ("gpt", r#"model "gpt" names no provider"#),
            ("/gpt", r#"model "/gpt" names no provider"#),
            ("openai/", r#"model "openai/" names no model"#),
            ("", r#"model "" names no provider"#),
        ] {
            let error = ModelRef::parse(text).expect_err(text);
            assert_eq!((error.kind, error.message.as_str()), (crate::ErrorKind::Config, message));
        }
    }

    #[test]
    fn turn_goes_before_session_before_harness_before_default() {
        // covers Z5
        let [turn, session, harness, default] =
            ["p/turn", "p/session", "p/harness", "p/default"].map(|text| ModelRef::parse(text).expect("it is one"));
        let all = [Some(&turn), Some(&session), Some(&harness), Some(&default)];
        // Each of the sixteen cases: the first that is there counts.
        for present in 0..16u8 {
            let given: Vec<_> =
                all.iter().enumerate().map(|(n, model)| model.filter(|_| present & (1 << n) != 0)).collect();
            let expected = given.iter().flatten().next().copied();
            let chosen = choose_model(given[0], given[1], given[2], given[3]);
            match expected {
                Some(model) => assert_eq!(chosen, Ok(model)),
                None => assert_eq!(
                    chosen.expect_err("none is named").hint.as_deref(),
                    Some("add model = \"provider/model\" to [harness]")
                ),
            }
        }
    }

    #[test]
    fn a_model_on_an_unknown_provider_lists_the_known_ones() {
        // covers Z4
        let model = ModelRef::parse("opnai/gpt-6").expect("it is one");
        assert_eq!(
            check_provider(&model, ["openai", "local"]),
            Err(Error::config(
                r#"model "opnai/gpt-6" is on provider "opnai", which is not known; known are "local" and "openai""#
            )
            .hint(r#"did you mean "openai"?"#))
        );
        assert_eq!(
            check_provider(&model, []),
            Err(Error::config(r#"model "opnai/gpt-6" is on provider "opnai", which is not known; none is set up"#)
                .hint("add [providers.opnai] with driver and api_key to the harness file"))
        );
        assert_eq!(check_provider(&model, ["opnai"]), Ok(()));
    }
}
