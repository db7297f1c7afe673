//! Keys, header values, prompts and outputs are in no error, no `Debug` form and no log line above `trace`.

use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use serde_json::json;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};
use wharf_core::model::Item;
use wharf_provider::{Secret, collect};
use wiremock::matchers::method;
use wiremock::{Mock, MockServer, ResponseTemplate};

use crate::wire::{ask, config, connect, stream_text};

/// Keeps the text of every event above `trace`.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<String>>);

struct Line<'l>(&'l mut String);

impl Visit for Line<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.push_str(&format!(" {field}={value:?}"));
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::DEBUG
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        attributes.record(&mut Line(&mut self.0.lock().unwrap()));
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, values: &Record<'_>) {
        values.record(&mut Line(&mut self.0.lock().unwrap()));
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = self.0.lock().unwrap();
        text.push('\n');
        event.record(&mut Line(&mut text));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

const HIDDEN: &[&str] =
    &["sk-very-secret", "team-header-secret", "option-header-secret", "the prompt", "Hello", "query-secret"];

fn assert_clean(text: &str) {
    for hidden in HIDDEN {
        assert!(!text.contains(hidden), "{hidden:?} is in {text}");
    }
}

#[tokio::test]
async fn secrets_and_contents_are_shown_nowhere() {
    // covers O22, Y11
    let log = Log::default();
    let _guard = tracing::subscriber::set_default(log.clone());
    let server = MockServer::start().await;
    // A server that says everything back.
    let echo = json!({"error": {"message": HIDDEN[..3].join(" "), "code": HIDDEN[0]}});
    let refusal = ResponseTemplate::new(401).set_body_json(&echo).insert_header("x-request-id", HIDDEN[0]);
    Mock::given(method("POST")).respond_with(refusal).up_to_n_times(1).mount(&server).await;
    let failed = ResponseTemplate::new(200).set_body_json(&echo);
    Mock::given(method("POST")).respond_with(failed).up_to_n_times(1).mount(&server).await;
    let good = ResponseTemplate::new(200).set_body_string(stream_text());
    Mock::given(method("POST")).respond_with(good).mount(&server).await;

    let mut config = config(&format!("{}/v1?key=query-secret", server.uri()));
    config.headers.insert("x-team".into(), Secret::new("team-header-secret").unwrap());
    assert_clean(&format!("{config:?}"));
    let driver = connect(config);
    let mut asked = ask("the prompt");
    asked.options.headers.insert("x-option".into(), "option-header-secret".into());
    assert!(matches!(&asked.messages[0], Item::Message { text, .. } if text == "the prompt"));

    let refused = driver.open(asked.clone()).await.err().unwrap();
    assert_clean(&format!("{refused:?} {refused}"));
    let failed = collect(driver.open(asked.clone()).await.unwrap()).await.unwrap_err();
    assert_clean(&format!("{failed:?} {failed}"));
    collect(driver.open(asked.clone()).await.unwrap()).await.unwrap();
    drop(server);
    let mut gone = crate::wire::config("http://127.0.0.1:1/v1?key=query-secret");
    gone.timeouts.connect = std::time::Duration::from_secs(1);
    let unreachable = connect(gone).open(asked).await.err().unwrap();
    assert_clean(&format!("{unreachable:?} {unreachable}"));

    let log = log.0.lock().unwrap().clone();
    assert!(log.contains("message=request") && log.contains("message=answer"), "{log}");
    assert_clean(&log);
}

#[tokio::test]
async fn what_a_provider_says_of_a_failure_is_hidden_and_then_shortened() {
    // covers Y11, O22
    use wharf_core::model::Retrieved;
    use wharf_provider::outcome_error;

    // The key lies across the place where words are cut.
    let words = format!("{}sk-very-secret{}", "x".repeat(1020), "y".repeat(1 << 20));
    let response = json!({"id": "resp_1", "status": "failed", "error": {"code": words, "message": words}});
    let frame = json!({"type": "response.failed", "response": response});
    let error = json!({"type": "error", "code": words, "message": words});
    for text in [response.to_string(), format!("data: {frame}\n\n"), format!("data: {error}\n\n")] {
        let server = MockServer::start().await;
        Mock::given(method("POST")).respond_with(ResponseTemplate::new(200).set_body_string(text)).mount(&server).await;
        let get = ResponseTemplate::new(200).set_body_json(&response);
        Mock::given(method("GET")).respond_with(get).mount(&server).await;
        let driver = connect(config(&server.uri()));
        let streamed = collect(driver.open(ask("x")).await.unwrap()).await.unwrap_err();
        let Retrieved::Ended { completion, .. } = driver.retrieve(&"resp_1".into()).await.unwrap() else { panic!() };
        for error in [streamed, outcome_error(&completion).unwrap()] {
            let cut = format!("{}[red…", "x".repeat(1020));
            assert_eq!(error.code, cut);
            assert_eq!(error.error.message, format!("the response failed at the provider: {cut}"));
        }
    }
}
