//! What policy says of one call.

use serde_json::json;

use super::*;

#[test]
fn an_unknown_tool_is_refused_with_close_names() {
    // covers L50
    let table = table("", &[function("read_file"), function("write_file"), function("query")]);
    assert_eq!(
        refused(table.authorize(&Call::function("c1", "raed_file", "{"))),
        (
            RefusalReason::UnknownTool,
            r#"there is no tool "raed_file"; did you mean "read_file" or "write_file"?"#.to_owned()
        )
    );
    assert_eq!(
        refused(table.authorize(&Call::custom("c1", "zzz", ""))),
        (RefusalReason::UnknownTool, r#"there is no tool "zzz"; no tool has a name like it"#.to_owned())
    );
    assert_eq!(
        refused(ToolTable::default().authorize(&Call::custom("c1", "zzz", ""))),
        (RefusalReason::UnknownTool, r#"there is no tool "zzz"; there are no tools"#.to_owned())
    );
}

#[test]
fn input_that_is_not_json_or_does_not_fit_is_refused() {
    // covers L46, L47, A19
    let required = definition(
        "t",
        InputFormat::JsonSchema(
            json!({ "type": "object", "required": ["path"], "properties": { "path": { "type": "string" } } }),
        ),
    );
    let table = table("", &[required, function("free")]);
    let reason = |name: &str, arguments: &str| refused(table.authorize(&Call::function("c1", name, arguments)));
    let (malformed, why) = reason("t", "{\"path\": ");
    assert_eq!(malformed, RefusalReason::MalformedArguments);
    assert!(why.starts_with("tool \"t\" got arguments that are not JSON (EOF while parsing"), "{why}");
    assert_eq!(
        reason("t", r#"{"path": 7}"#),
        (
            RefusalReason::InvalidInput,
            r#"tool "t" got input that does not fit its schema: at /path: the value is not of type "string"; nothing was executed"#.to_owned()
        )
    );
    // Blank arguments are an empty object, and then the schema decides.
    assert_eq!(
        reason("t", " "),
        (
            RefusalReason::InvalidInput,
            r#"tool "t" got input that does not fit its schema: "path" is a required property; nothing was executed"#
                .to_owned()
        )
    );
    assert_eq!(table.authorize(&Call::function("c1", "free", " ")), CallPolicy::start());
    assert_eq!(table.authorize(&Call::function("c1", "t", r#"{"path": "a"}"#)), CallPolicy::start());
    let (ambiguous, why) = reason("free", r#"{"dry_run": true, "dry_run": false}"#);
    assert_eq!(ambiguous, RefusalReason::InvalidInput);
    assert!(why.contains(r#"cannot be judged: member "dry_run" is there twice"#), "{why}");
}

#[test]
fn the_variant_of_a_call_has_to_be_the_tools() {
    // covers Z13
    let table = table("", &[function("f"), text("t")]);
    assert_eq!(table.authorize(&Call::function("c", "f", "{}")), CallPolicy::start());
    assert_eq!(table.authorize(&Call::custom("c", "t", "{\n")), CallPolicy::start());
    assert_eq!(
        refused(table.authorize(&Call::custom("c", "f", "{}"))),
        (RefusalReason::InvalidInput, r#"tool "f" is a function and was called as a custom tool"#.to_owned())
    );
    assert_eq!(
        refused(table.authorize(&Call::function("c", "t", "{}"))),
        (RefusalReason::InvalidInput, r#"tool "t" is a custom tool and was called as a function"#.to_owned())
    );
}

#[test]
fn a_grammar_of_regex_is_checked_and_one_of_lark_only_steers() {
    // covers L47
    let lark = definition(
        "l",
        InputFormat::Grammar(Grammar { syntax: GrammarSyntax::Lark, definition: "start: \"a\"".into() }),
    );
    let table = table("", &[regex("r", "[a-z]+|[0-9]"), lark]);
    assert_eq!(table.authorize(&Call::custom("c", "r", "abc")), CallPolicy::start());
    for input in ["abc1", "", "abc\n", "12"] {
        assert_eq!(
            refused(table.authorize(&Call::custom("c", "r", input))),
            (
                RefusalReason::InvalidInput,
                r#"tool "r" takes text that matches "[a-z]+|[0-9]" as a whole; nothing was executed"#.to_owned()
            ),
            "{input:?}"
        );
    }
    assert_eq!(table.authorize(&Call::custom("c", "l", "zzz")), CallPolicy::start());
}

#[test]
fn policy_can_give_a_tool_another_form() {
    // covers Z13, Q6, Q19
    let string = || definition("s", InputFormat::JsonSchema(json!({ "type": "string", "maxLength": 9 })));
    // A function tool with a schema of type string as a custom tool: raw text for a component, a JSON string for a native one.
    let raw = Call::custom("c", "s", "a\n\"b\"");
    let [tool] = bind("[defaults]\nformat = \"text\"", &[string()]).try_into().expect("one tool");
    assert_eq!((&tool.shown().input, &tool.definition().input), (&InputFormat::Text, &string().input));
    assert_eq!(tool.authorize(&raw), CallPolicy::start());
    assert_eq!(tool.executor_input(&raw), "a\n\"b\"");
    assert_eq!(refused(tool.authorize(&Call::custom("c", "s", "0123456789"))).0, RefusalReason::InvalidInput);
    let native = "[harness]\nname = \"h\"\n[capabilities.n]\nnative = \"n\"\nformat = \"text\"";
    let native = Harness::parse("h.toml", native).expect("it is well formed");
    let bound = native.bind(native.capability("n").expect("it is there"), &[string()]).expect("it binds");
    assert_eq!(bound.tools[0].executor_input(&raw), r#""a\n\"b\"""#);

    // A text tool as a function: its text is in the one member, and its own grammar still holds.
    let [tool] = bind("[defaults]\nformat = \"function\"", &[regex("r", "[a-z]+")]).try_into().expect("one tool");
    assert!(matches!(&tool.shown().input, InputFormat::JsonSchema(schema) if schema["required"] == json!(["input"])));
    let call = Call::function("c", "r", r#"{"input": "abc"}"#);
    assert_eq!(tool.authorize(&call), CallPolicy::start());
    assert_eq!(tool.executor_input(&call), "abc");
    for arguments in [r#"{"input": "ABC"}"#, r#"{"input": 7}"#, "{}", r#"{"input": "a", "more": 1}"#] {
        assert_eq!(
            refused(tool.authorize(&Call::function("c", "r", arguments))).0,
            RefusalReason::InvalidInput,
            "{arguments}"
        );
    }

    // An object tool as a custom tool takes JSON as its text, against its own schema.
    let [tool] = bind("[defaults]\nformat = \"text\"", &[function("f")]).try_into().expect("one tool");
    let call = Call::custom("c", "f", r#" {"path": "a"}"#);
    assert_eq!((tool.authorize(&call), tool.executor_input(&call)), (CallPolicy::start(), call.text().into()));
    for input in ["nope", r#"{"path": 1}"#] {
        assert_eq!(refused(tool.authorize(&Call::custom("c", "f", input))).0, RefusalReason::InvalidInput, "{input}");
    }

    // A grammar of the operator's holds beside the tool's own.
    let rule = "[defaults]\nformat = { grammar = \"regex\", definition = \"a+\" }";
    let [tool] = bind(rule, &[regex("r", "[a-z]{2}")]).try_into().expect("one tool");
    assert_eq!(tool.authorize(&Call::custom("c", "r", "aa")), CallPolicy::start());
    for input in ["bb", "aaa"] {
        assert_eq!(refused(tool.authorize(&Call::custom("c", "r", input))).0, RefusalReason::InvalidInput, "{input}");
    }
}

#[test]
fn a_refusal_by_rule_says_why_and_a_nearer_rule_takes_it_back() {
    let rules = "[defaults]\nrefuse = \"read only today\"\n[capabilities.c.tools.read]\nrefuse = false\n";
    let table = table(rules, &[function("read"), function("write")]);
    assert_eq!(table.authorize(&Call::function("c", "read", "{}")), CallPolicy::start());
    assert_eq!(
        refused(table.authorize(&Call::function("c", "write", "{}"))),
        (RefusalReason::Policy, r#"tool "write" is refused by policy: read only today"#.to_owned())
    );
    let plain = bind("[defaults]\nrefuse = true", &[function("t")]);
    assert_eq!(
        refused(plain[0].authorize(&Call::function("c", "t", "{}"))).1,
        r#"tool "t" is refused by policy: it may not be called"#
    );
}

#[test]
fn a_call_that_needs_approval_is_refused_until_approvals_exist() {
    // covers L64
    let needed = r#"tool "t" needs an operator's approval for this input, and approvals are not available yet; nothing was executed (asked for by h.toml:6:11 defaults.approve (harness default))"#;
    let check = |rule: &str, tool: &Definition, call: &Call, starts: bool| {
        let tools = bind(&format!("[defaults]\napprove = {rule}"), std::slice::from_ref(tool));
        let policy = tools[0].authorize(call);
        if starts {
            assert_eq!(policy, CallPolicy::start(), "{rule} {call:?}");
        } else {
            assert_eq!(refused(policy), (RefusalReason::Policy, needed.to_owned()), "{rule} {call:?}");
        }
    };
    let (json_tool, text_tool) = (function("t"), text("t"));
    let function = |arguments: &str| Call::function("c", "t", arguments);
    let custom = |input: &str| Call::custom("c", "t", input);
    check(r#""never""#, &json_tool, &function("{}"), true);
    check(r#""always""#, &json_tool, &function("{}"), false);
    let dry = r#"{ unless = { properties = { dry_run = { const = true } }, required = ["dry_run"] } }"#;
    check(dry, &json_tool, &function(r#"{"dry_run": true}"#), true);
    check(dry, &json_tool, &function(r#"{"dry_run": false}"#), false);
    check(dry, &json_tool, &function("{}"), false);
    let select = r#"{ unless_text = "^SELECT " }"#;
    check(select, &text_tool, &custom("SELECT 1"), true);
    check(select, &text_tool, &custom("DROP x; SELECT 1"), false);
    // What the rule cannot judge needs approval.
    check(dry, &text_tool, &custom(r#"{"dry_run": true}"#), false);
    check(select, &json_tool, &function(r#"{"path": "SELECT "}"#), false);
}

#[test]
fn approval_is_judged_on_what_the_tool_gets() {
    let rules = "[defaults]\nformat = \"function\"\napprove = { unless_text = \"^SELECT \" }";
    let [tool] = bind(rules, &[text("t")]).try_into().expect("one tool");
    assert_eq!(tool.authorize(&Call::function("c", "t", r#"{"input": "\u0053ELECT 1"}"#)), CallPolicy::start());
    assert_eq!(refused(tool.authorize(&Call::function("c", "t", r#"{"input": "DROP"}"#))).0, RefusalReason::Policy);
    let rules = "[defaults]\nformat = \"text\"\napprove = { unless = { properties = { dry_run = { const = true } }, required = [\"dry_run\"] } }";
    let [tool] = bind(rules, &[function("t")]).try_into().expect("one tool");
    assert_eq!(tool.authorize(&Call::custom("c", "t", r#"{"dry_run": true}"#)), CallPolicy::start());
    assert_eq!(refused(tool.authorize(&Call::custom("c", "t", "{}"))).0, RefusalReason::Policy);
}

#[test]
fn the_policy_of_a_call_has_its_four_parts() {
    // covers L64
    let rules = "[capabilities.c.tools.t]\nreplay = \"keyed\"\nasync = true\nclass = \"files\"";
    let table = table(rules, &[function("t")]);
    assert_eq!(
        table.authorize(&Call::function("c", "t", "{}")),
        CallPolicy::start().with_async().with_replay(ReplayClass::Keyed).with_class("files")
    );
}
