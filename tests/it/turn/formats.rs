//! One async call from request to delivery, for a function and for a custom tool, each native and as a component (Q1 to Q6,
//! Q19); the forms that results take (Q5, Q18); formats under policy (Z13).

use serde_json::{Value, json};
use wharf::core::model::Role;
use wharf::core::session::Session as Fold;
use wharf::core::transcript::Message;
use wharf::core::{Call, Seq};
use wharf::{TurnResult, TurnStatus};
use wharf_simulate::script::Usage;
use wharf_simulate::{Answer, Expect, Script};

use super::kit::{ASYNC, Desk, INSIDE, World, component, custom_output, function_output, turn, user};

/// Text that any normaliser would change: blanks at both ends, tabs, both line breaks, quotes, escapes, an empty line.
const RAW: &str = " \tfirst \"line\"\r\n\n  second \\n 'line' ✓ \n";

/// The same text inside of a jq program, where it is a string over several lines.
const PROGRAM: &str = "[\n  .n, # numbers\r\n  \"two\nlines and \t\u{2713}\"\n]\n---\n{\"n\": 7}\n";

/// A turn with one async call, and all that is expected of it.
struct Case {
    lines: String,
    call: Call,
    /// The tool as the first request offers it.
    offer: Value,
    output: &'static str,
}

fn replayed(capability: &str, tool: &str) -> String {
    format!("[capabilities.{capability}.tools.{tool}]\nreplay = \"safe\"\n")
}

fn answer(call: &Call) -> Answer {
    let (id, name, text) = (call.id.as_str(), call.name.as_str(), call.text());
    match call.output_type() {
        "function_call_output" => Answer::new().async_function_call(id, name, text),
        _ => Answer::new().async_custom_call(id, name, text),
    }
}

// covers Q1, Q2, Q3, Q4, Q5, N1, Z9
async fn calls_once_and_tells_so(case: Case) -> Vec<(String, String, u32)> {
    let Case { lines, call, offer, output } = case;
    let usage = Usage { input: 120, cached: 100, output: 30, reasoning: 10, ..Usage::default() };
    let script = Script::new("one async call")
        .step(answer(&call).text("I wait for it.").usage(usage))
        .step(Answer::new().text("There ").text("it is.").usage(Usage::new(7, 3)).expect(Expect::new().latest()));
    let world = World::new(script).await;
    world.write("docs/poem.txt", "one\ntwo\n");
    let desk = Desk::default();
    let agent = world.desk(&desk, &format!("{ASYNC}{lines}")).await;
    let session = agent.session("s1");
    let result = turn(&session, "start").await;

    // Q1: what was offered, and what is answered.
    let first = &world.bodies()[0];
    let offered = first["tools"].as_array().unwrap().iter().find(|tool| tool["name"] == call.name.as_str());
    let mut offered = offered.unwrap_or_else(|| panic!("{first}")).clone();
    for said_elsewhere in ["description", "parameters"] {
        offered.as_object_mut().unwrap().remove(said_elsewhere);
    }
    assert_eq!(offered, offer);
    let usage = json!({
        "fresh_input": 27, "cache_read": 100, "cache_write": 0, "visible_output": 23, "reasoning": 10, "total": 160,
    });
    let expected = TurnResult {
        status: TurnStatus::Completed,
        text: "There it is.".to_owned(),
        refusal: None,
        usage: usage.clone(),
        llm_calls: 2,
        tool_calls: 1,
    };
    assert_eq!(result, expected);
    assert!(result.is_success());

    // Q5: one output on its own id, behind the response that asked for it.
    let item = match call.output_type() {
        "function_call_output" => function_output("call_1", output),
        _ => custom_output("call_1", output),
    };
    assert_eq!(
        world.wire(),
        [json!({ "on": null, "input": [user("start")] }), json!({ "on": "resp_1", "input": [item] })]
    );

    // Q2: the call once, in its native form, and one result.
    let text = |role, text: &str| Message::Text { role, text: text.to_owned() };
    assert_eq!(
        session.messages().await.unwrap(),
        [
            text(Role::User, "start"),
            Message::Call(call.asynchronous()),
            text(Role::Assistant, "I wait for it."),
            Message::Result { call_id: "call_1".into(), output: output.to_owned() },
            text(Role::Assistant, "There "),
            text(Role::Assistant, "it is."),
        ]
    );

    // Q3: one event that says so.
    let events = session.events(Seq(0)).await.unwrap();
    assert_eq!(events.iter().filter(|event| event.name == "turn.completed").count(), 1);

    // Q4: what is stored.
    let fold = Fold::fold(&world.records(&session).await).unwrap();
    let checkpoint = &fold.turn().unwrap().checkpoint;
    assert!(checkpoint.may_complete());
    assert_eq!(checkpoint.latest_response_id(), Some(&"resp_2".into()));
    assert_eq!(checkpoint.host_responses().len(), 2);
    assert_eq!(
        checkpoint.host_outcome(),
        Some(&json!({
            "status": "completed", "text": "There it is.", "refusal": null, "usage": usage,
            "native_counts": { "llm_calls": 2, "tool_calls": 1 },
        }))
    );
    world.lawful();
    desk.calls()
}

#[tokio::test]
async fn a_native_function_is_called_once_beside_the_stream() {
    let calls = calls_once_and_tells_so(Case {
        lines: format!("{}config = {{ factor = 3 }}\n{}", Desk::ENABLED, replayed("desk", "multiply")),
        call: Call::function("call_1", "multiply", "{ \"n\" : 14 }"),
        offer: json!({ "type": "function", "name": "multiply", "async": true, "strict": false }),
        output: r#"{"result":42,"error":null,"images":[]}"#,
    })
    .await;
    // Argument text is not normalised either (A7).
    assert_eq!(calls, [("multiply".to_owned(), "{ \"n\" : 14 }".to_owned(), 1)]);
}

#[tokio::test]
async fn a_native_custom_tool_gets_its_raw_text() {
    let calls = calls_once_and_tells_so(Case {
        lines: format!("{}{}", Desk::ENABLED, replayed("desk", "paste")),
        call: Call::custom("call_1", "paste", RAW),
        offer: json!({ "type": "custom", "name": "paste", "async": true, "format": { "type": "text" } }),
        output: "{\"result\":\" \\tfirst \\\"line\\\"\\r\\n\\n  second \\\\n 'line' ✓ \\n\",\"error\":null,\"images\":[]}",
    })
    .await;
    assert_eq!(calls, [("paste".to_owned(), RAW.to_owned(), 1)]);
}

// covers Q6, Q19, Z13
#[tokio::test]
async fn a_native_tool_of_type_string_that_is_offered_as_custom_gets_a_json_string() {
    let calls = calls_once_and_tells_so(Case {
        lines: format!("{}{}format = \"text\"\n", Desk::ENABLED, replayed("desk", "say")),
        call: Call::custom("call_1", "say", RAW),
        offer: json!({ "type": "custom", "name": "say", "async": true, "format": { "type": "text" } }),
        output: "{\"result\":\"\\\" \\\\tfirst \\\\\\\"line\\\\\\\"\\\\r\\\\n\\\\n  second \\\\\\\\n 'line' ✓ \\\\n\\\"\",\
                 \"error\":null,\"images\":[]}",
    })
    .await;
    let [(_, seen, 1)] = &calls[..] else { panic!("{calls:?}") };
    assert_eq!(seen, "\" \\tfirst \\\"line\\\"\\r\\n\\n  second \\\\n 'line' ✓ \\n\"");
    assert_eq!(serde_json::from_str::<String>(seen).unwrap(), RAW);
}

#[tokio::test]
async fn a_components_function_is_called_once_beside_the_stream() {
    calls_once_and_tells_so(Case {
        lines: format!(
            "{}config = {{ root = \"/docs\" }}\n[capabilities.files.grants]\nfs = [{{ host = \"docs\", guest = \"/docs\" }}]\n{}",
            component("files", "files"),
            replayed("files", "read_file")
        ),
        call: Call::function("call_1", "read_file", "{ \"path\" : \"poem.txt\" }"),
        offer: json!({ "type": "function", "name": "read_file", "async": true, "strict": false }),
        output: r#"{"result":"one\ntwo\n","error":null,"images":[]}"#,
    })
    .await;
}

// covers Q19
#[tokio::test]
async fn a_components_custom_tool_gets_its_raw_text() {
    calls_once_and_tells_so(Case {
        lines: format!("{}{}", component("query", "query"), replayed("query", "query")),
        call: Call::custom("call_1", "query", PROGRAM),
        offer: json!({ "type": "custom", "name": "query", "async": true, "format": { "type": "text" } }),
        output: "{\"result\":[7,\"two\\nlines and \\t✓\"],\"error\":null,\"images\":[]}",
    })
    .await;
}

/// What is delivered for calls of the desk and of components, in the order in which the model made them.
async fn outputs(lines: &str, calls: &[Call]) -> Vec<String> {
    let mut first = Answer::new();
    for call in calls {
        let (id, name, text) = (call.id.as_str(), call.name.as_str(), call.text());
        first = match call.output_type() {
            "function_call_output" => first.function_call(id, name, text),
            _ => first.custom_call(id, name, text),
        };
    }
    let ids: Vec<&str> = calls.iter().map(|call| call.id.as_str()).collect();
    let second = Answer::new().text("Thanks.").expect(Expect::new().latest().only_outputs(ids));
    let world = World::new(Script::new("calls").step(first).step(second)).await;
    world.write("docs/poem.txt", "one\ntwo\n");
    let agent = world.desk(&Desk::default(), &format!("{ASYNC}{lines}")).await;
    turn(&agent.session("s1"), "start").await;
    world.lawful();
    let delivered = &world.wire()[1]["input"];
    delivered.as_array().unwrap().iter().map(|item| item["output"].as_str().unwrap().to_owned()).collect()
}

// covers Q5, Q18, Z14
#[tokio::test]
async fn every_outcome_of_a_native_tool_reaches_the_model_in_one_form() {
    let call = |name: &str| Call::function(format!("call_{name}"), name, "{\"n\":1}");
    let tools = ["multiply", "several", "picture", "archive", "refuse", "break"];
    let outputs = outputs(Desk::ENABLED, &tools.map(call)).await;
    assert_eq!(
        outputs,
        [
            r#"{"result":2,"error":null,"images":[]}"#.to_owned(),
            // A JSON content is not normalised.
            r#"{"result":["two",{"b": 1.0, "a": [2]}],"error":null,"images":[]}"#.to_owned(),
            format!(
                r#"{{"result":"a dot","error":null,"images":[{{"media_type":"image/png","name":null,"digest":"{}","length":3}}]}}"#,
                wharf::core::digest::Digest::of(b"dot")
            ),
            format!(
                r#"{{"result":{{"media_type":"application/zip","name":"a.zip","digest":"{}","length":3}},"error":null,"images":[]}}"#,
                wharf::core::digest::Digest::of(b"zip")
            ),
            r#"{"result":null,"error":{"kind":"not-found","message":"no such thing on the desk","retry_after_ms":1500,"details":{"shelf":4}},"images":[]}"#
                .to_owned(),
            r#"{"result":null,"error":{"kind":"failed","message":"the tool failed inside; its host knows why"},"images":[]}"#
                .to_owned(),
        ]
    );
}

// covers Z14
#[tokio::test]
async fn what_breaks_inside_a_native_tool_reaches_neither_model_nor_journal() {
    let script = Script::new("broken")
        .step(Answer::new().function_call("call_1", "break", "{\"n\":1}"))
        .step(Answer::new().text("A pity."));
    let world = World::new(script).await;
    let agent = world.desk(&Desk::default(), Desk::ENABLED).await;
    let session = agent.session("s1");
    turn(&session, "start").await;
    for text in [format!("{:?}", world.server.requests()), format!("{:?}", world.records(&session).await)] {
        assert!(text.contains("its host knows why"), "{text}");
        assert!(!text.contains(INSIDE), "{text}");
    }
}

// covers Q18
#[tokio::test]
async fn every_outcome_of_a_component_reaches_the_model_in_the_same_form() {
    let lines = format!(
        "{}\n{}config = {{ root = \"/docs\" }}\n[capabilities.files.grants]\nfs = [{{ host = \"docs\", guest = \"/docs\" }}]\n",
        component("query", "query"),
        component("files", "files"),
    );
    let calls = [
        Call::custom("call_one", "query", ".n\n---\n{\"n\": 12345678901234567890}"),
        Call::custom("call_two", "query", ".[]\n---\n[\"a\", {\"b\": null}]"),
        Call::custom("call_none", "query", "empty\n---\n1"),
        Call::function("call_text", "read_file", "{\"path\":\"poem.txt\"}"),
        Call::function("call_missing", "read_file", "{\"path\":\"prose.txt\"}"),
        // What policy or the host says in a call's place is the short form.
        Call::function("call_invalid", "read_file", "{\"way\":\"poem.txt\"}"),
    ];
    let outputs = outputs(&lines, &calls).await;
    let values: Vec<Value> = outputs.iter().map(|text| serde_json::from_str(text).unwrap()).collect();
    let success = |result: Value| json!({ "result": result, "error": null, "images": [] });
    assert_eq!(outputs[0], r#"{"result":12345678901234567890,"error":null,"images":[]}"#);
    assert_eq!(values[1], success(json!(["a", { "b": null }])));
    assert_eq!(values[2], success(json!("note: the program gave no output")));
    assert_eq!(values[3], success(json!("one\ntwo\n")));
    let failure = &values[4];
    assert_eq!(failure["result"], Value::Null);
    assert_eq!(failure["error"]["kind"], "not-found");
    assert!(failure["error"]["message"].as_str().is_some_and(|text| text.contains("prose.txt")), "{failure}");
    let members: Vec<&String> = values[5].as_object().unwrap().keys().collect();
    assert_eq!(members, ["error"], "{}", values[5]);
}

// covers Z13, Q19
#[tokio::test]
async fn policy_decides_whether_a_tool_is_offered_as_function_or_as_custom_tool() {
    let lines = format!(
        "{ASYNC}{}[capabilities.desk.tools]\npaste = {{ format = \"function\" }}\n\
         multiply = {{ format = {{ grammar = \"regex\", definition = '\\{{\"n\":\\d+\\}}' }} }}\n\
         {}[capabilities.query.tools.query]\nformat = \"function\"\n",
        Desk::ENABLED,
        component("query", "query"),
    );
    let script = Script::new("other formats")
        .step(
            Answer::new()
                .function_call("call_1", "paste", json!({ "input": RAW }).to_string())
                .custom_call("call_2", "multiply", "{\"n\":4}")
                .function_call("call_3", "query", json!({ "input": PROGRAM }).to_string()),
        )
        .step(Answer::new().text("Thanks."));
    let world = World::new(script).await;
    let desk = Desk::default();
    let agent = world.desk(&desk, &lines).await;
    turn(&agent.session("s1"), "start").await;

    let body = &world.bodies()[0];
    let offer =
        |name: &str| body["tools"].as_array().unwrap().iter().find(|tool| tool["name"] == name).unwrap().clone();
    let text_member = json!({
        "type": "object", "properties": { "input": { "type": "string" } }, "required": ["input"],
        "additionalProperties": false,
    });
    assert_eq!(offer("paste")["type"], "function");
    assert_eq!(offer("paste")["parameters"], text_member);
    assert_eq!(offer("query")["type"], "function");
    assert_eq!(offer("query")["parameters"], text_member);
    assert_eq!(
        offer("multiply"),
        json!({
            "type": "custom", "name": "multiply", "description": "Does multiply.",
            "format": { "type": "grammar", "syntax": "regex", "definition": "\\{\"n\":\\d+\\}" },
        })
    );
    // Those without a word of policy go by their own input format.
    assert_eq!([&offer("say")["type"], &offer("several")["type"]], ["function", "function"]);

    // Each tool sees what it would have seen in its own format.
    assert_eq!(
        desk.calls(),
        [("paste".to_owned(), RAW.to_owned(), 1), ("multiply".to_owned(), "{\"n\":4}".to_owned(), 1)]
    );
    let delivered = &world.wire()[1]["input"];
    assert_eq!(delivered[1], custom_output("call_2", r#"{"result":8,"error":null,"images":[]}"#));
    let queried = "{\"result\":[7,\"two\\nlines and \\t✓\"],\"error\":null,\"images\":[]}";
    assert_eq!(delivered[2], function_output("call_3", queried));
    world.lawful();
}
