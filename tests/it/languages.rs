//! Tools in JavaScript and in Python are like any other: the same contract, no grants, the same outcomes. Their components
//! are too large to be committed; `tests/guests/build` makes them.

use std::sync::Arc;

use serde_json::json;
use wharf_core::grants::{Grants, Limits};
use wharf_core::tool::{Claims, Content, Definition, Failure, FailureKind, InputFormat};
use wharf_sandbox::{CallOutcome, Capability, Invocation, LoadRequest, Roots, Sandbox, SandboxOptions};
use wharf_tests::guest_if_built;

// covers Q19
#[tokio::test]
async fn a_tool_in_javascript_is_like_any_other() {
    let Some(bytes) = guest_if_built("js-hello") else { return };
    offers_and_runs_what_the_contract_says(bytes, "javascript").await;
}

// covers Q19
#[tokio::test]
async fn a_tool_in_python_is_like_any_other() {
    let Some(bytes) = guest_if_built("py-hello") else { return };
    offers_and_runs_what_the_contract_says(bytes, "python").await;
}

async fn offers_and_runs_what_the_contract_says(bytes: Vec<u8>, language: &str) {
    let sandbox = Sandbox::new(SandboxOptions::default()).unwrap();
    let request = LoadRequest {
        name: language.into(),
        bytes: bytes.into(),
        grants: Grants::default(),
        limits: Limits::default(),
        roots: Roots::default(),
    };
    let tool = sandbox.load(request).await.unwrap();

    let config =
        json!({"type": "object", "properties": {"greeting": {"type": "string"}}, "additionalProperties": false});
    assert_eq!(tool.config_schema().await.unwrap(), Some(config));
    let definition = |name: &str, description: &str, input| Definition {
        name: name.into(),
        title: None,
        category: None,
        description: description.into(),
        input,
        output_schema: None,
        claims: Claims { read_only: true, idempotent: true, destructive: false, open_world: false },
    };
    let schema = json!({"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]});
    assert_eq!(
        tool.definitions("{}").await.unwrap(),
        [
            definition("greet", "Greets.", InputFormat::JsonSchema(schema)),
            definition("echo", "Gives back its text.", InputFormat::Text),
            definition("fail", "Fails.", InputFormat::Text),
        ]
    );

    let greeted = call(&tool, "greet", r#"{"name":"Ada"}"#).await;
    let CallOutcome::Success(contents) = &greeted else { panic!("{greeted:?}") };
    let [Content::Json(value)] = contents.as_slice() else { panic!("{contents:?}") };
    let value: serde_json::Value = serde_json::from_str(value).unwrap();
    assert_eq!(value, json!({"text": "Good day, Ada!", "attempt": 3}));

    // Raw text arrives and returns as it is.
    let raw = "two\nlines\r\n\u{0}\"{'✓";
    assert_eq!(call(&tool, "echo", raw).await, CallOutcome::Success(vec![Content::Text(raw.into())]));

    let failure =
        Failure { details: Some(json!({"from": language})), ..Failure::new(FailureKind::NotFound, "no such thing") };
    assert_eq!(call(&tool, "fail", "such thing").await, CallOutcome::Failure(failure));
}

async fn call(tool: &Capability, name: &str, input: &str) -> CallOutcome {
    let invocation = Invocation {
        tool: name.into(),
        input: input.into(),
        config: r#"{"greeting":"Good day"}"#.into(),
        call_id: "call-1".into(),
        idempotency_key: "key-1".into(),
        attempt: 3,
        limits: None,
        time_limit: None,
        attachments: Vec::new(),
    };
    tool.invoke(invocation, Arc::new(())).await.outcome
}
