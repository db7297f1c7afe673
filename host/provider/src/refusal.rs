//! What an HTTP answer that is no success means: the fate of the request (G13, G14), the provider's code and words, and
//! what the operator can do. Nothing here sends or waits.

use reqwest::header::HeaderMap;
use serde_json::Value;
use wharf_core::Error;
use wharf_core::model::{Fate, RequestError};

use crate::limits;

/// What a status says of a request that changes something.
///
/// A definite 4xx is a refusal: nothing was accepted (G14). That holds for 409 and 429 too: the provider says that it did
/// not take the request. 408 and 499 say that somebody stopped waiting for somebody, so like every 5xx they leave open
/// whether the request arrived. A redirect is not followed, and what sends it does not work on the request; only 303
/// says that it was worked on.
pub(crate) fn fate_of(status: u16) -> Fate {
    match status {
        408 | 499 | 303 => Fate::Unknown,
        300..=499 => Fate::Refused,
        _ => Fate::Unknown,
    }
}

/// The error of an answer that is no success.
pub(crate) fn read(provider: &str, status: u16, headers: &HeaderMap, body: &[u8], scrub: &Scrub) -> RequestError {
    let (code, words) = words_of(body);
    let code = scrub.words(&code);
    let words = scrub.words(&words);
    let mut message = format!("provider {provider:?} answered {status}");
    if !code.is_empty() {
        message.push_str(&format!(" ({})", visible(&code)));
    }
    if !words.is_empty() {
        message.push_str(&format!(": {}", visible(&words)));
    }
    if let Some(id) = header(headers, "x-request-id") {
        message.push_str(&format!(" (request {})", scrub.clean(&id)));
    }
    let wait = header(headers, "retry-after").map(|value| scrub.clean(&value));
    let error = match hint_of(provider, status, &code, wait.as_deref()) {
        Some(hint) => Error::provider(message).hint(hint),
        None => Error::provider(message),
    };
    RequestError { fate: fate_of(status), status: Some(status), code, error }
}

/// Code and message of an error body, in any of the forms in use.
fn words_of(body: &[u8]) -> (String, String) {
    let Ok(value) = serde_json::from_slice::<Value>(body) else {
        return (String::new(), page_text(body));
    };
    let nested = &value["error"];
    let holder = if nested.is_object() { nested } else { &value };
    let say = |value: &Value| value.as_str().map(str::to_owned).or(value.as_i64().map(|number| number.to_string()));
    let code = say(&holder["code"]).or(say(&holder["type"])).unwrap_or_default();
    let words = [&holder["message"], nested, &value["message"], &value["detail"]].into_iter().find_map(Value::as_str);
    (code, words.unwrap_or_default().to_owned())
}

/// The text of an error that is not JSON; a whole HTML page says nothing to anybody.
fn page_text(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let text = text.trim();
    if text.starts_with('<') { "(an HTML page)".to_owned() } else { text.to_owned() }
}

fn hint_of(provider: &str, status: u16, code: &str, wait: Option<&str>) -> Option<String> {
    Some(match (status, code) {
        (_, "context_length_exceeded") => "the conversation is longer than the model takes: start a new session".into(),
        (_, "model_not_found") => "check the model's name in the harness, and that the key may use it".into(),
        (_, "previous_response_not_found") => {
            "the provider no longer keeps the response that this continues, or it belongs to another key".into()
        }
        (_, "insufficient_quota") => {
            "the account has no quota left: waiting does not help, see the provider's billing".into()
        }
        (401, _) => {
            format!("check api_key of providers.{provider}, for example api_key = {{ env = \"OPENAI_API_KEY\" }}")
        }
        (403, _) => format!("the key of providers.{provider} may not do this, or the provider's policy refuses it"),
        (404 | 405, _) => format!("check base_url of providers.{provider}, and the model's name"),
        (413, _) => "the request is too large: start a new session, or let tools return less".into(),
        (429, _) => match wait {
            // Seconds, or a date.
            Some(wait) if wait.parse::<f64>().is_ok() => format!("too many requests: wait {wait} s, then go on"),
            Some(wait) => format!("too many requests: wait until {wait}, then go on"),
            None => "too many requests: wait, then go on".into(),
        },
        (300..=399, _) => format!("set base_url of providers.{provider} to the address it redirects to"),
        (500..=599, _) => "the provider has a fault of its own: whether it took the request is not known".into(),
        _ => return None,
    })
}

/// A header's text, if it is short and plain.
pub(crate) fn header(headers: &HeaderMap, name: &str) -> Option<String> {
    let text = headers.get(name)?.to_str().ok()?; // a header that is not text is as good as none
    (!text.is_empty() && text.len() <= 128).then(|| text.to_owned())
}

fn shortened(text: &str) -> String {
    let mut end = text.len().min(limits::ERROR_TEXT_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    if end == text.len() { text.to_owned() } else { format!("{}…", &text[..end]) }
}

/// Without characters that could move a terminal's cursor.
fn visible(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Takes the values of secrets out of text, which providers echo in their errors.
#[derive(Clone, Default)]
pub(crate) struct Scrub(Vec<String>);

impl Scrub {
    /// For these values. Very short ones would tear up ordinary words and are no secrets.
    pub(crate) fn new(values: impl IntoIterator<Item = String>) -> Self {
        let mut values: Vec<String> = values.into_iter().filter(|value| value.len() >= 4).collect();
        values.sort_by_key(|value| std::cmp::Reverse(value.len()));
        Self(values)
    }

    /// For further values, too.
    pub(crate) fn and(&self, values: impl IntoIterator<Item = String>) -> Self {
        Self::new(self.0.iter().cloned().chain(values))
    }

    /// A provider's own words without them, shortened. In this order: a secret that lies across the cut would no longer be
    /// known by its first part.
    pub(crate) fn words(&self, text: &str) -> String {
        shortened(&self.clean(text))
    }

    /// The text without them.
    pub(crate) fn clean(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, value| text.replace(value, "[redacted]"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(status: u16, body: &str, fate: Fate, code: &str, message: &str, hint: Option<&str>) {
        let error = read("p", status, &HeaderMap::new(), body.as_bytes(), &Scrub::new(["sk-secret".into()]));
        let mut expected = Error::provider(message);
        expected.hint = hint.map(str::to_owned);
        assert_eq!(error, RequestError { fate, status: Some(status), code: code.into(), error: expected });
    }

    #[test]
    fn fate_follows_from_the_status() {
        // covers G13, G14
        for status in [301, 307, 400, 401, 403, 404, 409, 413, 422, 429] {
            assert_eq!(fate_of(status), Fate::Refused, "{status}");
        }
        for status in [303, 408, 499, 500, 501, 502, 503, 504, 529, 101, 600] {
            assert_eq!(fate_of(status), Fate::Unknown, "{status}");
        }
    }

    #[test]
    fn every_form_of_error_body_gives_code_and_words() {
        // covers V4
        check(
            400,
            r#"{"error":{"message":"too long","type":"invalid_request_error","param":"input","code":"context_length_exceeded"}}"#,
            Fate::Refused,
            "context_length_exceeded",
            r#"provider "p" answered 400 (context_length_exceeded): too long"#,
            Some("the conversation is longer than the model takes: start a new session"),
        );
        check(
            401,
            r#"{"error":{"message":"wrong key sk-secret","type":"auth","code":null}}"#,
            Fate::Refused,
            "auth",
            r#"provider "p" answered 401 (auth): wrong key [redacted]"#,
            Some("check api_key of providers.p, for example api_key = { env = \"OPENAI_API_KEY\" }"),
        );
        check(422, r#"{"message":"no"}"#, Fate::Refused, "", r#"provider "p" answered 422: no"#, None);
        check(422, r#"{"error":"no"}"#, Fate::Refused, "", r#"provider "p" answered 422: no"#, None);
        check(422, r#"{"detail":"no"}"#, Fate::Refused, "", r#"provider "p" answered 422: no"#, None);
        check(422, "plain\u{1b}[2J", Fate::Refused, "", "provider \"p\" answered 422: plain [2J", None);
        check(422, "", Fate::Refused, "", r#"provider "p" answered 422"#, None);
        check(
            502,
            "<html>bad gateway</html>",
            Fate::Unknown,
            "",
            r#"provider "p" answered 502: (an HTML page)"#,
            Some("the provider has a fault of its own: whether it took the request is not known"),
        );
    }

    #[test]
    fn a_secret_across_the_cut_is_hidden_whole() {
        // covers Y11
        let key = "sk-secret-0123456789";
        let scrub = Scrub::new([key.to_owned()]);
        for before in limits::ERROR_TEXT_BYTES_MAX - key.len() - 2..limits::ERROR_TEXT_BYTES_MAX + 2 {
            let body = serde_json::json!({ "error": { "message": "x".repeat(before) + key, "code": "y".repeat(before) + key } });
            for body in [body.to_string(), "x".repeat(before) + key] {
                let error = read("p", 422, &HeaderMap::new(), body.as_bytes(), &scrub);
                let shown = format!("{error:?}");
                assert!(!shown.contains("sk-"), "{before}: {shown}");
                assert!(error.code.len() <= limits::ERROR_TEXT_BYTES_MAX + "…".len());
            }
        }
    }

    #[test]
    fn long_words_are_cut_at_a_character() {
        let text = "é".repeat(limits::ERROR_TEXT_BYTES_MAX);
        assert_eq!(shortened(&text), format!("{}…", "é".repeat(limits::ERROR_TEXT_BYTES_MAX / 2)));
        assert_eq!(shortened("short"), "short");
    }
}
