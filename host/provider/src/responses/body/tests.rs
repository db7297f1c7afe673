//! Requests as data: a neutral request in, the whole body or the whole error out.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use wharf_core::model::{Options, Request};
use wharf_core::tool::{Claims, Definition, GrammarSyntax};
use wharf_core::{Call, ErrorKind};

use super::*;
use crate::profile::{AsyncSetting, Profiles};

const ASTRA: &str = "gpt-6-astra";
const OLD: &str = "never-heard-of";

fn try_build(request: &Request, form: Form, extra: Value) -> Result<Value, Error> {
    let profiles = Profiles::new(AsyncSetting::Auto, &Map::new(), "models").unwrap();
    let profile = profiles.of(&request.model);
    let extra = extra.as_object().unwrap().clone();
    build(Context { provider: "openai", profile: &profile, extra: &extra }, request, form).map(Value::Object)
}

fn body(request: &Request) -> Value {
    try_build(request, Form::Best, json!({})).unwrap()
}

/// Refused as a config error before anything could be sent; gives the message.
fn refused(request: &Request) -> String {
    let error = try_build(request, Form::Best, json!({})).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Config);
    assert!(error.hint.is_some(), "{error}");
    error.message
}

fn user(text: &str) -> Item {
    Item::Message { role: Role::User, text: text.into() }
}

fn request(model: &str, messages: Vec<Item>) -> Request {
    Request { model: model.into(), messages, stream: true, ..Request::default() }
}

fn offer(name: &str, input: InputFormat, async_allowed: bool) -> ToolOffer {
    let definition = Definition {
        name: name.into(),
        title: Some("T".into()),
        category: None,
        description: format!("does {name}"),
        input,
        output_schema: Some(json!(true)),
        claims: Claims { read_only: true, ..Claims::default() },
    };
    ToolOffer { definition, async_allowed, deferred: false }
}

fn grammar() -> InputFormat {
    InputFormat::Grammar(Grammar { syntax: GrammarSyntax::Lark, definition: "start: \"x\"".into() })
}

fn schema() -> Value {
    json!({"type": "object"})
}

fn function_json(name: &str) -> Value {
    json!({"type": "function", "name": name, "description": format!("does {name}"), "parameters": schema(), "strict": false})
}

fn output(id: &str) -> Value {
    json!({"type": "function_call_output", "call_id": id, "output": "done"})
}

fn delivery(ids: &[&str]) -> Delivery {
    Delivery {
        previous_response_id: "resp_1".into(),
        call_ids: ids.iter().map(|id| (*id).into()).collect(),
        input: ids.iter().map(|id| output(id)).collect(),
        after: vec![],
    }
}

#[test]
fn one_user_text_is_a_list_of_one_message() {
    // covers O2, O13, O14
    let expected = json!({
        "model": "openai/x/y", "instructions": "Be brief.",
        "input": [{"type": "message", "role": "user", "content": "start"}], "stream": true,
    });
    let mut asked = request("openai/x/y", vec![user("start")]);
    asked.instructions = "Be brief.".into();
    assert_eq!(body(&asked), expected);
    asked.stream = false;
    asked.instructions = String::new();
    assert_eq!(body(&asked), json!({"model": "openai/x/y", "input": expected["input"]}));
}

#[test]
fn tools_keep_their_kind_and_selected_ones_are_marked() {
    // covers O3
    let mut asked = request(ASTRA, vec![user("start")]);
    asked.tools = vec![
        offer("f", InputFormat::JsonSchema(schema()), true),
        offer("g", InputFormat::JsonSchema(schema()), false),
        offer("t", InputFormat::Text, true),
        offer("l", grammar(), false),
    ];
    let mut f = function_json("f");
    f["async"] = json!(true);
    assert_eq!(
        body(&asked)["tools"],
        json!([
            f,
            function_json("g"),
            {"type": "custom", "name": "t", "description": "does t", "format": {"type": "text"}, "async": true},
            {"type": "custom", "name": "l", "description": "does l",
                "format": {"type": "grammar", "syntax": "lark", "definition": "start: \"x\""}},
        ])
    );
}

#[test]
fn continuation_is_the_outputs_and_nothing_beside_them() {
    // covers O4, O13, O16
    let mut asked = request(ASTRA, vec![user("never sent"), Item::Call(Call::function("call_1", "f", "{}"))]);
    asked.instructions = "Be brief.".into();
    asked.tools = vec![offer("f", InputFormat::JsonSchema(schema()), false)];
    asked.delivery = Some(delivery(&["call_2", "call_1"]));
    let expected = json!({
        "model": ASTRA, "instructions": "Be brief.", "previous_response_id": "resp_1",
        "input": [output("call_2"), output("call_1")], "tools": [function_json("f")], "stream": true,
    });
    assert_eq!(body(&asked), expected);
    // The same id given beside it changes nothing.
    asked.previous = Some("resp_1".into());
    assert_eq!(body(&asked), expected);
    // Items of I10 belong to the delivery.
    asked.delivery.as_mut().unwrap().after = vec![user("after")];
    let after = json!({"type": "message", "role": "user", "content": "after"});
    assert_eq!(body(&asked)["input"], json!([output("call_2"), output("call_1"), after]));
}

#[test]
fn previous_id_without_delivery_goes_with_the_new_input() {
    // covers O16
    let mut asked = request(ASTRA, vec![user("more")]);
    asked.previous = Some("resp_1".into());
    assert_eq!(
        body(&asked),
        json!({"model": ASTRA, "previous_response_id": "resp_1",
            "input": [{"type": "message", "role": "user", "content": "more"}], "stream": true})
    );
}

#[test]
fn continuations_that_contradict_themselves_are_config_errors() {
    // covers O5
    let mut asked = request(ASTRA, vec![]);
    asked.delivery = Some(delivery(&["call_1"]));
    asked.previous = Some("resp_0".into());
    assert_eq!(refused(&asked), r#"the delivery continues response "resp_1", the request response "resp_0""#);
    asked.previous = None;
    asked.compacted = true;
    let compacted = "a request with shortened history cannot continue a response";
    assert_eq!(refused(&asked), compacted);
    asked.delivery = None;
    asked.previous = Some("resp_1".into());
    assert_eq!(refused(&asked), compacted);
    // Shortened history alone is a request like any other.
    asked.previous = None;
    asked.messages = vec![user("summary")];
    assert_eq!(body(&asked)["input"][0]["content"], "summary");
}

#[test]
fn effort_update_stands_before_the_outputs() {
    // covers O6
    let update = json!({"type": "configuration_update", "reasoning": {"effort": "low"}});
    let mut asked = request(ASTRA, vec![]);
    asked.delivery = Some(delivery(&["call_1"]));
    assert_eq!(body(&asked)["input"], json!([output("call_1")]));
    asked.effort_update = Some("low".into());
    assert_eq!(body(&asked)["input"], json!([update, output("call_1")]));
    // Without outputs it stands before the user's turn.
    asked.delivery = None;
    asked.messages = vec![user("one"), Item::Message { role: Role::Assistant, text: "two".into() }, user("three")];
    let message = |role: &str, text: &str| json!({"type": "message", "role": role, "content": text});
    assert_eq!(
        body(&asked)["input"],
        json!([message("user", "one"), message("assistant", "two"), update, message("user", "three")])
    );
    asked.effort_update = Some("none".into());
    assert_eq!(refused(&asked), r#"model "openai/gpt-6-astra" does not take effort "none""#);
    asked.model = OLD.into();
    assert_eq!(
        refused(&asked),
        r#"model "openai/never-heard-of" does not take a change of effort within a conversation"#
    );
}

#[test]
fn model_without_async_is_never_marked_and_never_continued() {
    // covers O7
    let mut asked = request(OLD, vec![user("start")]);
    asked.tools = vec![offer("f", InputFormat::JsonSchema(schema()), true), offer("t", InputFormat::Text, true)];
    let text = json!({"type": "custom", "name": "t", "description": "does t", "format": {"type": "text"}});
    assert_eq!(body(&asked)["tools"], json!([function_json("f"), text]));
    asked.messages = vec![];
    asked.delivery = Some(delivery(&["call_1"]));
    assert_eq!(
        refused(&asked),
        r#"model "openai/never-heard-of" has no async calls here, so outputs cannot be sent on a response id"#
    );
    asked.delivery = None;
    asked.previous = Some("resp_1".into());
    asked.messages = vec![user("more")];
    assert_eq!(
        refused(&asked),
        r#"model "openai/never-heard-of" has no async calls here, so new input cannot be sent on a response id"#
    );
}

#[test]
fn without_continuation_the_history_beside_a_delivery_is_replayed() {
    let call = |id: &str| Item::Call(Call::function(id, "f", "{}"));
    let call_json = |id: &str| json!({"type": "function_call", "call_id": id, "name": "f", "arguments": "{}"});
    let mut asked = request(OLD, vec![user("start"), call("call_1"), call("call_2")]);
    asked.delivery = Some(delivery(&["call_2", "call_1"]));
    asked.delivery.as_mut().unwrap().after = vec![user("after")];
    let expected = json!({
        "model": OLD, "stream": true,
        "input": [{"type": "message", "role": "user", "content": "start"}, call_json("call_1"), call_json("call_2"),
            output("call_2"), output("call_1"), {"type": "message", "role": "user", "content": "after"}],
    });
    assert_eq!(body(&asked), expected);
    // An output that the history has already is not sent again.
    asked.messages.push(Item::Output { call: Call::function("call_2", "f", "{}"), output: "done".into() });
    assert_eq!(body(&asked), expected);
    asked.messages.remove(1);
    assert_eq!(refused(&asked), r#"the history lacks call "call_1" of the delivery"#);
    // A stateless replay on a model that does continue is the same without the response id (O10).
    asked.messages = vec![user("start"), call("call_1"), call("call_2")];
    asked.model = ASTRA.into();
    let replayed = try_build(&asked, Form::Replay, json!({})).unwrap();
    assert_eq!((&replayed["input"], &replayed["previous_response_id"]), (&expected["input"], &Value::Null));
    // Or where the caller says that another provider made the response.
    assert_eq!(body(&asked)["previous_response_id"], "resp_1");
    asked.replay = true;
    assert_eq!(body(&asked), replayed);
}

#[test]
fn outputs_of_a_repeated_call_id_answer_its_calls_in_order() {
    // covers B13
    // PROV-4
    let call = |n: u32| Item::Call(Call::function("call_0", "f", format!("[{n}]")));
    let answered = |text: &str| Item::Output { call: Call::function("call_0", "f", "[0]"), output: text.into() };
    let call_json =
        |n: u32| json!({"type": "function_call", "call_id": "call_0", "name": "f", "arguments": format!("[{n}]")});
    let output_json = |text: &str| json!({"type": "function_call_output", "call_id": "call_0", "output": text});
    let mut asked = request(OLD, vec![call(1), answered("first"), call(2)]);
    asked.delivery = Some(delivery(&["call_0"]));
    let expected = json!([call_json(1), output_json("first"), call_json(2), output("call_0")]);
    assert_eq!(body(&asked)["input"], expected);
    // The history has it already.
    asked.messages.push(answered("done"));
    assert_eq!(body(&asked)["input"], expected);
    // Two at once, of which the history has none.
    asked.messages = vec![call(1), call(2)];
    asked.delivery = Some(delivery(&["call_0", "call_0"]));
    asked.delivery.as_mut().unwrap().input[0] = output_json("first");
    assert_eq!(body(&asked)["input"], json!([call_json(1), call_json(2), output_json("first"), output("call_0")]));
}

#[test]
fn one_stateless_try_is_allowed_only_if_nothing_async_is_touched() {
    // covers O9, O10
    let sync = Call::function("call_1", "f", "{}");
    let mut asked = request(ASTRA, vec![user("start"), Item::Call(sync.clone())]);
    assert!(!may_replay(&asked), "not a continuation");
    asked.delivery = Some(delivery(&["call_1"]));
    assert!(may_replay(&asked));
    asked.async_open = true;
    assert!(!may_replay(&asked), "an async call is open");
    asked.async_open = false;
    asked.messages = vec![];
    assert!(!may_replay(&asked), "no history");
    asked.messages = vec![user("start")];
    assert!(!may_replay(&asked), "nobody knows whether the call is async");
    asked.messages = vec![Item::Call(sync.clone().asynchronous())];
    assert!(!may_replay(&asked), "an async call is in the delivery");
    asked.delivery = Some(delivery(&["call_1", "call_2"]));
    asked.messages = vec![Item::Call(sync), Item::Call(Call::custom("call_2", "t", "x").asynchronous())];
    assert!(!may_replay(&asked), "one of two is async");
    asked.delivery = Some(delivery(&["call_1"]));
    asked.messages = vec![
        Item::Call(Call::function("call_1", "f", "{}")),
        Item::Call(Call::function("call_1", "f", "{}").asynchronous()),
    ];
    assert!(!may_replay(&asked), "one of two calls of its id is async");
    let raw = |flag: bool| Item::Opaque {
        maker: "openai/x".into(),
        raw: json!({"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{}", "async": flag}),
    };
    asked.delivery = Some(delivery(&["call_1"]));
    asked.messages = vec![raw(true)];
    assert!(!may_replay(&asked), "an async call is in the delivery");
    asked.messages = vec![raw(false)];
    assert!(may_replay(&asked));
}

fn marked(body: &mut Value, selected: &[&str], offers: &[ToolOffer]) -> Result<(), Error> {
    let selected: Vec<ToolName> = selected.iter().map(|name| (*name).into()).collect();
    mark_async(body.as_object_mut().unwrap(), &selected, offers)
}

#[test]
fn marking_twice_is_marking_once_and_an_empty_selection_marks_nothing() {
    // covers O8, O11
    let offers = [offer("f", InputFormat::JsonSchema(schema()), true), offer("g", InputFormat::Text, true)];
    let before = json!({"model": "m", "tools": [function_json("f"), {"type": "custom", "name": "g"}]});
    let mut body = before.clone();
    assert_eq!(marked(&mut body, &[], &offers), Ok(()));
    assert_eq!(body, before);
    assert_eq!(marked(&mut body, &["f", "g"], &offers), Ok(()));
    let once = body.clone();
    assert_eq!((&once["tools"][0]["async"], &once["tools"][1]["async"]), (&json!(true), &json!(true)));
    assert_eq!(marked(&mut body, &["f", "g"], &offers), Ok(()));
    assert_eq!(body.to_string(), once.to_string());
}

#[test]
fn selections_that_cannot_run_async_are_config_errors_and_leave_the_body() {
    // covers O8
    let offers = [
        offer("f", InputFormat::JsonSchema(schema()), true),
        offer("hosted", InputFormat::JsonSchema(schema()), true),
        offer("held", InputFormat::JsonSchema(schema()), false),
    ];
    let tools = json!([function_json("f"), function_json("held"), {"type": "mcp", "name": "hosted"},
        {"type": "namespace", "name": "n", "tools": [function_json("hosted")]}]);
    for (selected, tools, message) in [
        (["f", "raed"], tools.clone(), r#"tool "raed" is to run async but is not registered"#),
        (["f", "held"], tools.clone(), r#"tool "held" is to run async but policy does not allow it"#),
        (["f", "hosted"], tools.clone(), r#"tool "hosted" is not a direct function or custom tool of the request"#),
        (
            ["f", "f"],
            json!([function_json("f"), {"type": "tool_search"}]),
            "tool search and async tools cannot be used together",
        ),
    ] {
        let mut body = json!({"tools": tools});
        let before = body.clone();
        let error = marked(&mut body, &selected, &offers).unwrap_err();
        assert_eq!((error.kind, error.message.as_str()), (ErrorKind::Config, message));
        assert_eq!(body, before);
    }
    // Through a whole request: tool search comes in by the options.
    let mut asked = request(ASTRA, vec![user("start")]);
    asked.tools = vec![offer("f", InputFormat::JsonSchema(schema()), true)];
    asked.options.extra = json!({"tools": [{"type": "tool_search"}]}).as_object().unwrap().clone();
    assert_eq!(refused(&asked), "tool search and async tools cannot be used together");
    asked.tools[0].async_allowed = false;
    assert_eq!(body(&asked)["tools"], json!([function_json("f"), {"type": "tool_search"}]));
}

#[test]
fn neutral_options_map_and_unset_ones_are_absent() {
    // covers O15, O21
    let mut asked = request(OLD, vec![user("start")]);
    let bare =
        json!({"model": OLD, "input": [{"type": "message", "role": "user", "content": "start"}], "stream": true});
    assert_eq!(body(&asked), bare);
    asked.options = Options {
        temperature: Some(0.5),
        max_output_tokens: Some(100),
        effort: Some("low".into()),
        verbosity: Some("high".into()),
        speed: Some("flex".into()),
        metadata: BTreeMap::from([("a".into(), "b".into())]),
        parallel_calls: Some(false),
        prompt_cache_key: Some("key".into()),
        volatile_suffix: 1,
        ..Options::default()
    };
    let mut expected = bare;
    for (name, value) in [
        ("temperature", json!(0.5)),
        ("max_output_tokens", json!(100)),
        ("reasoning", json!({"effort": "low"})),
        ("text", json!({"verbosity": "high"})),
        ("service_tier", json!("flex")),
        ("metadata", json!({"a": "b"})),
        ("parallel_tool_calls", json!(false)),
        ("prompt_cache_key", json!("key")),
    ] {
        expected[name] = value;
    }
    assert_eq!(body(&asked), expected);
}

#[test]
fn options_that_the_model_lacks_are_config_errors() {
    // covers O15
    let with = |model: &str, set: fn(&mut Options)| {
        let mut asked = request(model, vec![user("start")]);
        set(&mut asked.options);
        refused(&asked)
    };
    assert_eq!(with(ASTRA, |o| o.temperature = Some(1.0)), r#"model "openai/gpt-6-astra" does not take a temperature"#);
    assert_eq!(
        with(ASTRA, |o| o.effort = Some("none".into())),
        r#"model "openai/gpt-6-astra" does not take effort "none""#
    );
    assert_eq!(with("gpt-4.1", |o| o.effort = Some("low".into())), r#"model "openai/gpt-4.1" does not take an effort"#);
    assert_eq!(with("o3", |o| o.verbosity = Some("low".into())), r#"model "openai/o3" does not take a verbosity"#);
    let mut sol = request("gpt-6-sol", vec![user("start")]);
    sol.options.effort = Some("none".into());
    assert_eq!(body(&sol)["reasoning"], json!({"effort": "none"}));
    let mut custom = request("gpt-4.1", vec![user("start")]);
    custom.tools = vec![offer("t", InputFormat::Text, false)];
    assert_eq!(refused(&custom), r#"model "openai/gpt-4.1" does not take tools with text input such as "t""#);
}

#[test]
fn history_becomes_items_in_order() {
    // covers O18
    let asynchronous = Call::function("call_1", "f", "{\"b\": 1.0}").asynchronous();
    let malformed = Call::function("call_2", "f", "{\"a\":");
    let custom = Call::custom("call_3", "t", "a\nb");
    let blank = Call::function("call_4", "f", " ");
    let message = |role, text: &str| Item::Message { role, text: text.into() };
    let asked = request(
        ASTRA,
        vec![
            message(Role::System, "rules"),
            user("go"),
            message(Role::Assistant, "working"),
            Item::Call(asynchronous.clone()),
            Item::Call(malformed.clone()),
            Item::Output { call: malformed, output: "no".into() },
            Item::Call(custom.clone()),
            Item::Output { call: custom, output: "c".into() },
            Item::Output { call: asynchronous, output: "a".into() },
            Item::Call(blank),
        ],
    );
    assert_eq!(
        body(&asked)["input"],
        json!([
            {"type": "message", "role": "system", "content": "rules"},
            {"type": "message", "role": "user", "content": "go"},
            {"type": "message", "role": "assistant", "content": "working"},
            {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{\"b\": 1.0}", "async": true},
            {"type": "function_call", "call_id": "call_2", "name": "f", "arguments": "{\"a\":"},
            {"type": "function_call_output", "call_id": "call_2", "output": "no"},
            {"type": "custom_tool_call", "call_id": "call_3", "name": "t", "input": "a\nb"},
            {"type": "custom_tool_call_output", "call_id": "call_3", "output": "c"},
            {"type": "function_call_output", "call_id": "call_1", "output": "a"},
            {"type": "function_call", "call_id": "call_4", "name": "f", "arguments": "{}"},
        ])
    );
}

#[test]
fn opaque_items_go_back_unchanged_and_only_to_their_maker() {
    // covers O20
    // PROV-11
    let opaque = |raw: &Value| Item::Opaque { maker: "openai/gpt-6-astra".into(), raw: raw.clone() };
    let reasoning = json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "abc", "odd": [1]});
    let message = json!({"type": "message", "id": "msg_1", "role": "assistant", "phase": "commentary", "status": "completed",
        "content": [{"type": "output_text", "text": "Hel", "annotations": []}, {"type": "refusal", "refusal": "lo"}]});
    let call = json!({"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "f", "arguments": "{}", "async": true});
    let items = vec![opaque(&reasoning), opaque(&message), opaque(&call)];
    assert_eq!(body(&request(ASTRA, items.clone()))["input"], json!([reasoning, message, call]));
    // Another model reads the text and the call, and no mark that it does not know.
    assert_eq!(
        body(&request(OLD, items.clone()))["input"],
        json!([
            {"type": "message", "role": "assistant", "content": "Hello"},
            {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{}"},
        ])
    );
    // A message is the assistant's where its server does not say whose it is.
    let Item::Opaque { raw, .. } = &items[1] else { panic!("a message") };
    let mut nobody = raw.clone();
    nobody.as_object_mut().unwrap().remove("role");
    let expected = json!([{"type": "message", "role": "assistant", "content": "Hello"}]);
    assert_eq!(body(&request(OLD, vec![opaque(&nobody)]))["input"], expected);
}

#[test]
fn reasoning_that_no_response_keeps_is_asked_for() {
    // covers O20
    assert_eq!(body(&request("gpt-5.1", vec![user("x")]))["include"], json!(["reasoning.encrypted_content"]));
    assert_eq!(body(&request(ASTRA, vec![user("x")]))["include"], Value::Null);
    assert_eq!(body(&request(OLD, vec![user("x")]))["include"], Value::Null);
}

#[test]
fn driver_options_pass_through_and_replace_nothing_of_ours() {
    // covers O22
    let mut asked = request(ASTRA, vec![user("start")]);
    asked.tools = vec![offer("f", InputFormat::JsonSchema(schema()), false)];
    asked.options.effort = Some("low".into());
    let search = json!({"type": "web_search"});
    asked.options.extra =
        json!({"top_logprobs": 2, "reasoning": {"summary": "auto"}, "tools": [search]}).as_object().unwrap().clone();
    let sent = try_build(&asked, Form::Best, json!({"truncation": "disabled"})).unwrap();
    assert_eq!(
        sent,
        json!({"model": ASTRA, "input": [{"type": "message", "role": "user", "content": "start"}],
            "tools": [function_json("f"), search], "stream": true, "reasoning": {"effort": "low", "summary": "auto"},
            "truncation": "disabled", "top_logprobs": 2})
    );
    for name in ["model", "input", "stream", "previous_response_id", "instructions", "conversation"] {
        for (extra, place) in [(true, "the provider's options"), (false, "the harness's options")] {
            let member = json!({ name: "x" });
            let mut asked = request(ASTRA, vec![user("start")]);
            let mut theirs = json!({});
            if extra {
                theirs = member
            } else {
                asked.options.extra = member.as_object().unwrap().clone()
            }
            let error = try_build(&asked, Form::Best, theirs).unwrap_err();
            assert_eq!(
                (error.kind, error.message),
                (ErrorKind::Config, format!("{place} cannot set {name:?} of a request"))
            );
        }
    }
    asked.options.extra = json!({"reasoning": {"effort": "max"}}).as_object().unwrap().clone();
    assert_eq!(refused(&asked), r#"the harness's options set "reasoning.effort", which is set already"#);
    asked.options.extra = json!({"tools": "x"}).as_object().unwrap().clone();
    assert_eq!(refused(&asked), r#"the harness's options set "tools", which is set already"#);
    asked.options.extra = json!({"store": false}).as_object().unwrap().clone();
    assert_eq!(body(&asked)["store"], json!(false));
    asked.previous = Some("resp_1".into());
    assert_eq!(refused(&asked), "a request that goes on from a stored response says store = false");
}

#[test]
fn headers_pass_through_and_replace_no_authorisation() {
    // covers O22
    let mut asked = request(ASTRA, vec![]);
    asked.options.headers = BTreeMap::from([("X-Team".into(), "blue".into())]);
    let sent = headers(&asked).unwrap();
    assert_eq!((sent.len(), sent["x-team"].to_str().unwrap(), sent["x-team"].is_sensitive()), (1, "blue", true));
    for name in ["Authorization", "authorization", "Content-Type", "Host", "Content-Length", "Connection"] {
        asked.options.headers = BTreeMap::from([(name.into(), "secret-value".into())]);
        assert_eq!(headers(&asked).unwrap_err().message, format!("header {name:?} cannot be set"));
    }
    asked.options.headers = BTreeMap::from([("x-odd".into(), "secret-value\n".into())]);
    let error = headers(&asked).unwrap_err();
    assert_eq!(error.message, r#"the value of header "x-odd" cannot be sent"#);
}

#[test]
fn deferred_tools_are_sent_in_full() {
    // covers O23
    let mut asked = request(ASTRA, vec![user("start")]);
    let mut deferred = offer("f", InputFormat::JsonSchema(schema()), false);
    deferred.deferred = true;
    asked.tools = vec![deferred];
    assert_eq!(body(&asked)["tools"], json!([function_json("f")]));
}

#[test]
fn tool_names_that_the_protocol_does_not_take_are_config_errors() {
    let named = |names: &[&str]| {
        let mut asked = request(ASTRA, vec![user("start")]);
        asked.tools = names.iter().map(|name| offer(name, InputFormat::JsonSchema(schema()), false)).collect();
        asked
    };
    assert_eq!(body(&named(&["a", &"b".repeat(64), "A_z-9"]))["tools"].as_array().unwrap().len(), 3);
    for name in ["", "a.b", "a b", "ä", &"b".repeat(65)] {
        assert_eq!(refused(&named(&[name])), format!("tool {name:?} cannot be offered under this name"));
    }
    assert_eq!(refused(&named(&["a", "b", "a"])), r#"tool "a" is offered twice"#);
}
