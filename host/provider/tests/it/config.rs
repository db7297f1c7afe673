//! What a provider's config may say, and how a wrong one is answered.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use wharf_core::model::{Completion, Outcome, Request, RequestError, Retrieved, StreamEvent};
use wharf_core::{Error, ErrorKind, ResponseId};
use wharf_provider::{Driver, Drivers, EventStream, ProviderConfig, Secret, Support, collect, split_model};

fn refused(config: ProviderConfig) -> (String, String) {
    let error = Drivers::builtin().connect(config).err().unwrap();
    assert_eq!(error.kind, ErrorKind::Config);
    (error.message, error.hint.unwrap())
}

fn openai() -> ProviderConfig {
    ProviderConfig::new("mine", "openai-responses")
}

#[test]
fn unknown_driver_is_answered_with_those_there_are() {
    // covers Z3
    assert_eq!(
        refused(ProviderConfig::new("mine", "openai_response")),
        (
            r#"provider "mine" names the unknown driver "openai_response""#.into(),
            r#"did you mean "openai-responses"? drivers: "openai-responses""#.into()
        )
    );
    let error = Drivers::empty().connect(openai()).err().unwrap();
    assert_eq!(error.hint.as_deref(), Some("no driver is registered"));
}

/// A driver of an embedder: no network at all.
struct Echo;

impl Driver for Echo {
    fn name(&self) -> &str {
        "echo"
    }

    fn protocol(&self) -> &str {
        "echo"
    }

    fn support(&self, _: &str) -> Support {
        Support { async_calls: false, continuation: false, retrieval: false, cancel: false, deferred_tools: true }
    }

    fn check(&self, _: &Request) -> Result<(), Error> {
        Ok(())
    }

    fn body(&self, request: &Request) -> Result<Value, Error> {
        Ok(json!({"said": request.instructions}))
    }

    fn open(&self, request: Request) -> BoxFuture<'static, Result<EventStream, RequestError>> {
        let end = Completion {
            id: Some("r".into()),
            outcome: Outcome::Completed,
            finish_reason: None,
            usage: None,
            items: vec![],
            text: request.instructions,
            refusal: None,
            model: None,
        };
        let events = futures::stream::iter([Ok(StreamEvent::Completed(end))]);
        async move { Ok(Box::pin(events) as EventStream) }.boxed()
    }

    fn retrieve(&self, _: &ResponseId) -> BoxFuture<'static, Result<Retrieved, RequestError>> {
        async { Ok(Retrieved::NotFound) }.boxed()
    }

    fn cancel(&self, id: &ResponseId) -> BoxFuture<'static, Result<Retrieved, RequestError>> {
        self.retrieve(id)
    }
}

#[tokio::test]
async fn embedders_register_drivers_of_their_own() {
    // covers Z3
    let mut drivers = Drivers::builtin();
    drivers.register("echo", |_| Ok(Arc::new(Echo)));
    assert_eq!(drivers.names().collect::<Vec<_>>(), ["echo", "openai-responses"]);
    let driver = drivers.connect(ProviderConfig::new("x", "echo")).unwrap();
    let asked = Request { instructions: "hi".into(), ..Request::default() };
    assert_eq!(collect(driver.open(asked).await.unwrap()).await.unwrap().completion.text, "hi");
}

#[test]
fn only_the_first_segment_of_a_model_names_the_provider() {
    // covers O14
    assert_eq!(split_model("openai/gpt-6-astra"), Ok(("openai", "gpt-6-astra")));
    assert_eq!(split_model("router/openai/gpt-6/x"), Ok(("router", "openai/gpt-6/x")));
    for text in ["gpt-6-astra", "/gpt", "openai/", " /x", ""] {
        let error = split_model(text).unwrap_err();
        assert_eq!(error.message, format!("model {text:?} does not name a provider and a model"));
    }
}

#[test]
fn plain_http_needs_an_exact_loopback_host_or_the_operators_word() {
    // covers Y11
    for base in [
        "https://api.example.com/v1",
        "http://localhost:1/v1",
        "http://127.0.0.1:1",
        "http://127.9.9.9",
        "http://[::1]:1/",
    ] {
        assert!(Drivers::builtin().connect(openai().at(base)).is_ok(), "{base}");
    }
    for base in [
        "http://localhost.attacker.example/v1",
        "http://example.com",
        "http://10.0.0.1",
        "http://127.0.0.1.example.com",
        "http://[::2]",
    ] {
        let (message, hint) = refused(openai().at(base));
        assert!(message.ends_with("is plain HTTP and not on this machine"), "{message}");
        assert_eq!(hint, "use https, or say insecure_http = true if the network in between is yours");
        let mut meant = openai().at(base);
        meant.insecure_http = true;
        assert!(Drivers::builtin().connect(meant).is_ok(), "{base}");
    }
    for (base, message) in [
        ("api.example.com/v1", "the base_url of a provider is not a URL: relative URL without a base"),
        ("ftp://example.com", r#"provider address has the scheme "ftp""#),
        ("https://user:secret@example.com", "the base_url of a provider carries a user name or password"),
        ("https://example.com/#x", "the base_url of a provider has a fragment"),
    ] {
        assert_eq!(refused(openai().at(base)).0, message);
    }
}

#[test]
fn blank_and_unsendable_keys_are_config_errors() {
    // covers Y11
    for blank in ["", " ", "\n"] {
        assert_eq!(Secret::new(blank).unwrap_err().message, "a secret is blank");
    }
    let (message, _) = refused(openai().at("http://localhost").key(Secret::new("secret\nvalue").unwrap()));
    assert_eq!(message, r#"the api_key of provider "mine" cannot be sent: it has characters that no header takes"#);
}

#[test]
fn options_that_the_driver_does_not_know_are_config_errors() {
    // covers O12
    let at = || openai().at("http://localhost");
    for (config, message, hint) in [
        (
            at().option("asnyc", "on"),
            r#"providers.mine.options has the unknown key "asnyc""#,
            r#"did you mean "async"?"#,
        ),
        (
            at().option("async", "maybe"),
            r#"providers.mine.options.async is "maybe"; expected "auto", "on" or "off""#,
            r#"async = "auto""#,
        ),
        (at().option("body", 1), "providers.mine.options.body is not a table", "[providers.mine.options.body]"),
        (
            at().option("models", json!({"m": {"asnyc": "on"}})),
            r#"providers.mine.options.models."m" has the unknown key "asnyc""#,
            r#"did you mean "async"?"#,
        ),
    ] {
        assert_eq!(refused(config), (message.into(), hint.into()));
    }
}

#[test]
fn support_follows_profile_and_operator() {
    // covers O12, O23
    let support = |config: ProviderConfig, model: &str| Drivers::builtin().connect(config).unwrap().support(model);
    let at = || openai().at("http://localhost");
    let all = Support { async_calls: true, continuation: true, retrieval: true, cancel: true, deferred_tools: false };
    let awaited = Support { async_calls: false, continuation: false, ..all };
    assert_eq!(support(at(), "gpt-6-astra"), all);
    assert_eq!(support(at(), "any"), awaited);
    assert_eq!(support(at().option("async", "on"), "any"), all);
    assert_eq!(support(at().option("async", "off"), "gpt-6-astra"), awaited);
    let stateless = json!({"any": {"async": "on", "continuation": false, "retrieval": false, "cancel": false}});
    assert_eq!(
        support(at().option("models", stateless), "any"),
        Support { async_calls: true, continuation: false, retrieval: false, cancel: false, deferred_tools: false }
    );
}
