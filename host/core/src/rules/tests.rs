//! What a rule decides, which rule decides, and what that means for a call.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::Call;
use crate::harness::{Harness, HarnessErrors};
use crate::policy::{Admission, CallPolicy, RefusalReason};
use crate::tool::{Claims, Definition, GrammarSyntax, InputFormat};

pub(crate) fn definition(name: &str, input: InputFormat) -> Definition {
    Definition {
        name: name.into(),
        title: None,
        category: None,
        description: format!("does {name}"),
        input,
        output_schema: None,
        claims: Claims::default(),
    }
}

pub(crate) fn function(name: &str) -> Definition {
    let schema =
        json!({ "type": "object", "properties": { "path": { "type": "string" }, "dry_run": { "type": "boolean" } } });
    definition(name, InputFormat::JsonSchema(schema))
}

fn text(name: &str) -> Definition {
    definition(name, InputFormat::Text)
}

fn regex(name: &str, pattern: &str) -> Definition {
    definition(name, InputFormat::Grammar(Grammar { syntax: GrammarSyntax::Regex, definition: pattern.into() }))
}

pub(crate) fn harness(rules: &str) -> Harness {
    let text = format!("[harness]\nname = \"h\"\n[capabilities.c]\ncomponent = \"c.wasm\"\n{rules}");
    match Harness::parse("h.toml", &text) {
        Ok(harness) => harness,
        Err(faults) => panic!("{faults}"),
    }
}

fn try_bind(rules: &str, definitions: &[Definition]) -> Result<Bound, HarnessErrors> {
    let harness = harness(rules);
    harness.bind(harness.capability("c").expect("it is there"), definitions)
}

/// The tools of capability `c` under these rules; none may be refused.
#[track_caller]
pub(crate) fn bind(rules: &str, definitions: &[Definition]) -> Vec<BoundTool> {
    match try_bind(rules, definitions) {
        Ok(bound) => {
            assert_eq!(bound.refused, []);
            bound.tools
        }
        Err(faults) => panic!("{faults}"),
    }
}

#[track_caller]
fn table(rules: &str, definitions: &[Definition]) -> ToolTable {
    ToolTable::new(bind(rules, definitions), &[])
}

#[track_caller]
fn refused(policy: CallPolicy) -> (RefusalReason, String) {
    match policy.admission {
        Admission::Refuse(refusal) => (refusal.reason, refusal.message),
        Admission::Start | Admission::Hold(_) => panic!("it was let through: {policy:?}"),
    }
}

#[test]
fn what_nobody_says_is_built_in() {
    // covers Z16, L53, L54
    let [tool] = bind("", &[function("t")]).try_into().expect("one tool");
    assert_eq!((tool.replay().value, tool.is_async().value), (ReplayClass::Never, false));
    assert_eq!((&tool.approve().value, &tool.class().value, &tool.refuse().value), (&Approval::Never, &None, &None));
    let limits = tool.limits().values();
    assert_eq!(limits.time, Duration::from_secs(30));
    assert_eq!((limits.memory_bytes, limits.output_bytes, limits.calls_at_once), (256 << 20, 64 << 10, 4));
    assert_eq!(tool.replay().by.to_string(), "built-in");
    assert_eq!(tool.is_async().by.to_string(), "built-in, replay is not safe");
    let harness = harness("");
    assert_eq!(harness.capability("c").expect("it is there").grants, crate::grants::Grants::default());
}

#[test]
fn the_nearest_rule_decides() {
    // covers Z16
    // TOOL-3: the ranks from near to far, each taken away in turn.
    let ranks = [
        ("[capabilities.c.tools.read_file]\nlimits.time = \"1s\"\n", 1, "exact name"),
        ("[capabilities.c.tools.\"read_f*\"]\nlimits.time = \"2s\"\n", 2, "pattern"),
        ("[capabilities.c.tools.\"read_*\"]\nlimits.time = \"3s\"\n", 3, "pattern"),
        ("[capabilities.c.tools.\"*\"]\nlimits.time = \"4s\"\n", 4, "pattern"),
        ("[capabilities.c.limits]\ntime = \"5s\"\n", 5, "capability"),
        ("[profiles.p.limits]\ntime = \"6s\"\n", 6, "policy profile"),
        ("[defaults.limits]\ntime = \"7s\"\n", 7, "harness default"),
        ("", 30, "built-in"),
    ];
    for from in 0..ranks.len() {
        let mut rules = "profile = \"p\"\n[profiles.p]\n".to_owned();
        // Far rules first, so that the order in the file is against the ranks.
        for (text, _, _) in ranks[from..].iter().rev() {
            rules.push_str(text);
        }
        let [tool] = bind(&rules, &[function("read_file")]).try_into().expect("one tool");
        let (_, seconds, rank) = ranks[from];
        assert_eq!(tool.limits().time.value, Duration::from_secs(seconds), "{rules}");
        assert_eq!(tool.limits().time.by.rank.as_str(), rank);
    }
}

#[test]
fn every_part_of_a_rule_has_an_effect_and_names_its_line() {
    // covers Z16, L64
    let rules = r#"
[capabilities.c.tools.t]
approve = "always"
replay = "keyed"
async = true
class = "files"
format = "text"
refuse = "no"
limits = { time = "1s", memory = "1MiB", output = "1KiB" }
"#;
    let [tool] = bind(rules, &[function("t")]).try_into().expect("one tool");
    assert_eq!(tool.approve().value, Approval::Always);
    assert_eq!((tool.replay().value, tool.is_async().value), (ReplayClass::Keyed, true));
    assert_eq!((tool.class().value.as_deref(), tool.refuse().value.as_deref()), (Some("files"), Some("no")));
    assert_eq!(tool.shown().input, InputFormat::Text);
    let limits = tool.limits().values();
    assert_eq!((limits.time, limits.memory_bytes, limits.output_bytes), (Duration::from_secs(1), 1 << 20, 1 << 10));
    assert_eq!(tool.approve().by.to_string(), "h.toml:7:11 capabilities.c.tools.t.approve (exact name)");
    assert_eq!(
        tool.limits().output_bytes.by.to_string(),
        "h.toml:13:51 capabilities.c.tools.t.limits.output (exact name)"
    );
}

#[test]
fn two_rules_of_one_rank_have_to_agree() {
    // covers Z16
    let clash = |rules: &str| {
        let faults = try_bind(rules, &[function("read_file")]).expect_err(rules);
        faults.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(
        clash(
            "[capabilities.c.tools.\"read_*\"]\nreplay = \"safe\"\n[capabilities.c.tools.\"read_*e\"]\nreplay = \"never\"\n"
        ),
        [
            "h.toml:8:10: capabilities.c.tools.\"read_*e\".replay: says otherwise than capabilities.c.tools.\"read_*\".replay at h.toml:6:10, and both are of one rank (pattern)"
        ]
    );
    assert_eq!(
        clash("profile = [\"p\", \"q\"]\n[profiles.p]\napprove = \"always\"\n[profiles.q]\napprove = \"never\"\n"),
        [
            "h.toml:9:11: profiles.q.approve: says otherwise than profiles.p.approve at h.toml:7:11, and both are of one rank (policy profile)"
        ]
    );
    // The twins: the same value, or a nearer rule whose values do not clash.
    bind(
        "profile = [\"p\", \"q\"]\n[profiles.p]\napprove = \"always\"\n[profiles.q]\napprove = \"always\"\n",
        &[function("t")],
    );
    let near = "[capabilities.c.tools.read_file]\nreplay = \"keyed\"\n[capabilities.c.tools.\"read_*\"]\nreplay = \"safe\"\n[capabilities.c.tools.\"read_*e\"]\nreplay = \"never\"\n";
    let [tool] = bind(near, &[function("read_file")]).try_into().expect("one tool");
    assert_eq!(tool.replay().value, ReplayClass::Keyed);
}

#[test]
fn a_rule_for_a_tool_that_is_not_offered_is_an_error_with_close_names() {
    // covers Z16
    let rules =
        "[capabilities.c.tools.raed_file]\nreplay = \"safe\"\n[capabilities.c.tools.\"x*\"]\nreplay = \"safe\"\n";
    let faults = try_bind(rules, &[function("read_file"), function("list")]).expect_err("neither is there");
    let found: Vec<_> =
        faults.iter().map(|fault| (fault.to_string(), fault.hint.clone().unwrap_or_default())).collect();
    assert_eq!(
        found,
        [
            (
                r#"h.toml:5:1: capabilities.c.tools.raed_file: capability "c" offers no tool "raed_file""#.to_owned(),
                r#"did you mean "read_file"?"#.to_owned()
            ),
            (
                r#"h.toml:7:1: capabilities.c.tools."x*": capability "c" offers no tool "x*""#.to_owned(),
                r#"it offers "read_file" and "list""#.to_owned()
            ),
        ]
    );
}

#[test]
fn claims_change_nothing() {
    // covers L53, Z15
    let claims = Claims { read_only: true, idempotent: true, destructive: false, open_world: false };
    let claiming = Definition { claims, ..function("t") };
    let [claims_it] = bind("", &[claiming]).try_into().expect("one tool");
    let [silent] = bind("", &[function("t")]).try_into().expect("one tool");
    let call = Call::function("c1", "t", "{}");
    assert_eq!(claims_it.authorize(&call), CallPolicy::start());
    assert_eq!(claims_it.authorize(&call), silent.authorize(&call));
    let [ruled] = bind("[defaults]\nreplay = \"safe\"", &[function("t")]).try_into().expect("one tool");
    assert_eq!(ruled.authorize(&call), CallPolicy::start().with_replay(ReplayClass::Safe).with_async());
}

#[test]
fn async_follows_the_rule_and_else_only_what_is_safe_to_replay() {
    // covers L54, L8
    let call = Call::function("c1", "t", "{}").asynchronous();
    for (rules, allowed) in [
        ("", false),
        ("[defaults]\nreplay = \"safe\"", true),
        ("[defaults]\nreplay = \"keyed\"", false),
        ("[defaults]\nreplay = \"when-pure\"", true),
        ("[defaults]\nreplay = \"when-pure\"\n[capabilities.c.grants]\nstate = true", false),
        ("[defaults]\nasync = true", true),
        ("[defaults]\nasync = false\nreplay = \"safe\"", false),
        ("[defaults]\nasync = true\n[capabilities.c.tools.t]\nasync = false", false),
    ] {
        let table = table(rules, &[function("t")]);
        let policy = table.authorize(&call);
        if allowed {
            assert_eq!((&policy.admission, policy.async_allowed), (&Admission::Start, true), "{rules}");
        } else {
            assert_eq!(
                refused(policy),
                (
                    RefusalReason::NotAsync,
                    r#"tool "t" may not run async; call it without async and wait for its output"#.to_owned()
                ),
                "{rules}"
            );
            // Its sync twin starts.
            assert_eq!(table.authorize(&Call::function("c1", "t", "{}")).admission, Admission::Start);
        }
        assert_eq!(table.offers()[0].async_allowed, allowed);
    }
}

#[test]
fn when_pure_is_derived_from_what_is_granted() {
    let replay = |grants: &str| {
        let rules = format!("replay = \"when-pure\"\n[capabilities.c.grants]\n{grants}");
        let [tool] = bind(&rules, &[function("t")]).try_into().expect("one tool");
        (tool.replay().value, tool.replay().by.note.as_deref().unwrap_or_default().to_owned())
    };
    let pure = (ReplayClass::Safe, "when-pure: nothing granted has an effect outside the call".to_owned());
    for grants in ["", "fs = [{ host = \".\", guest = \"/d\" }]", "env = { A = \"1\" }", "http = []"] {
        assert_eq!(replay(grants), pure, "{grants}");
    }
    for (grants, why) in [
        ("fs = [{ host = \".\", guest = \"/d\", access = \"read-write\" }]", "it may write in \"/d\""),
        ("state = true", "it has a folder for state"),
        ("http = [\"https://a.example\"]", "it may reach \"https://a.example/*\""),
        (
            "secrets = [{ name = \"s\", from = { env = \"S\" }, to = \"https://a.example\", as = \"basic\" }]",
            "it is given secret \"s\"",
        ),
        ("tools = [\"other\"]", "it may call tool \"other\""),
    ] {
        assert_eq!(replay(grants), (ReplayClass::Never, format!("when-pure: not pure, {why}")), "{grants}");
    }
    // Grants do not confine a native implementation.
    let text = "[harness]\nname = \"h\"\n[capabilities.n]\nnative = \"n\"\nreplay = \"when-pure\"";
    let harness = Harness::parse("h.toml", text).expect("it is well formed");
    let bound = harness.bind(harness.capability("n").expect("it is there"), &[function("t")]).expect("it binds");
    assert_eq!(bound.tools[0].replay().value, ReplayClass::Never);
}

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

#[test]
fn a_tool_whose_own_definition_is_at_fault_is_refused_and_the_others_live() {
    // covers Z11
    let schema = |value: Value| InputFormat::JsonSchema(value);
    let mut output = function("output");
    output.output_schema = Some(json!({ "type": 7 }));
    let mut long = function("long");
    long.description = "x".repeat(crate::limits::DESCRIPTION_BYTES_MAX + 1);
    let definitions = [
        function("good"),
        function("twice"),
        definition("fetch", schema(json!({ "$ref": "https://example.com/s.json" }))),
        definition("loop", schema(json!({ "$ref": "#" }))),
        regex("regex", "("),
        output,
        long,
        function(" "),
        function("twice"),
    ];
    let bound = try_bind("", &definitions).expect("the operator did nothing wrong");
    let good: Vec<&str> = bound.tools.iter().map(|tool| tool.own_name().as_str()).collect();
    assert_eq!(good, ["good"]);
    let refused: Vec<(&str, String)> = bound
        .refused
        .iter()
        .map(|tool| {
            (tool.name.as_str(), tool.error.message.split_inclusive(": ").next().unwrap_or_default().to_owned())
        })
        .collect();
    let say = |name: &'static str, why: &str| (name, why.to_owned());
    assert_eq!(
        refused,
        [
            say("twice", r#"capability "c" offers tool "twice" more than once"#),
            say(
                "fetch",
                r#"the input schema of tool "fetch" refers to "https://example.com/s.json", and nothing outside the schema is fetched"#
            ),
            say(
                "loop",
                r#"the input schema of tool "loop" refers to itself at "" without going deeper into the value"#
            ),
            say("regex", r#"the grammar of tool "regex" is not a regular expression: "#),
            say("output", r#"the output schema of tool "output" is not valid at "/type": "#),
            say("long", r#"tool "long" has a description of 16385 bytes, over the limit of 16384"#),
            say(" ", "a tool has no name"),
            say("twice", r#"capability "c" offers tool "twice" more than once"#),
        ]
    );
    let many: Vec<Definition> =
        (0..=crate::limits::TOOLS_PER_CAPABILITY_MAX).map(|n| function(&format!("t{n}"))).collect();
    let bound = try_bind("", &many).expect("the operator did nothing wrong");
    assert_eq!((bound.tools.len(), bound.refused.len()), (crate::limits::TOOLS_PER_CAPABILITY_MAX, 1));
}

/// The tools of several capabilities.
fn named(capabilities: &[(&str, &[&str])]) -> Vec<BoundTool> {
    let mut text = "[harness]\nname = \"h\"\n".to_owned();
    for (name, _) in capabilities {
        text.push_str(&format!("[capabilities.{name}]\ncomponent = \"c\"\n"));
    }
    let harness = Harness::parse("h.toml", &text).expect("it is well formed");
    let bound = capabilities.iter().map(|(name, tools)| {
        let definitions: Vec<Definition> = tools.iter().map(|tool| function(tool)).collect();
        harness.bind(harness.capability(name).expect("it is there"), &definitions).expect("it binds").tools
    });
    bound.flatten().collect()
}

fn shown(table: &ToolTable) -> Vec<(&str, &str, &str)> {
    table.iter().map(|tool| (tool.name().as_str(), tool.capability(), tool.own_name().as_str())).collect()
}

#[test]
fn a_name_that_two_capabilities_offer_is_prefixed_for_both() {
    // TOOL-6
    let tools = named(&[("files", &["read", "list"]), ("db", &["read"])]);
    let expected = [("db__read", "db", "read"), ("list", "files", "list"), ("files__read", "files", "read")];
    assert_eq!(shown(&ToolTable::new(tools.clone(), &[])), expected);
    // The order in which capabilities come does not matter.
    assert_eq!(shown(&ToolTable::new(tools.into_iter().rev(), &[])), expected);
    // A name of the host's own stays the host's.
    assert_eq!(shown(&ToolTable::new(named(&[("files", &["list"])]), &["list"])), [("files__list", "files", "list")]);
    let table = ToolTable::new(named(&[("files", &["read"]), ("db", &["read"])]), &[]);
    assert_eq!(table.get("read"), None);
    assert_eq!(table.own("db", "read").map(|tool| tool.name().as_str()), Some("db__read"));
    assert_eq!(
        table.offers().iter().map(|offer| offer.definition.name.as_str()).collect::<Vec<_>>(),
        ["db__read", "files__read"]
    );
}

#[test]
fn a_prefix_that_meets_another_name_gets_a_hash() {
    // TOOL-6
    let table = ToolTable::new(named(&[("a", &["x", "b__x"]), ("b", &["x"])]), &[]);
    let names: Vec<&str> = table.iter().map(|tool| tool.name().as_str()).collect();
    assert_eq!(names.len(), 3);
    assert!(names[0].starts_with("b__x_") && names[0].len() == "b__x_".len() + 8, "{names:?}");
    assert_eq!(names[1], "a__x");
    assert!(names[2].starts_with("b__x_") && names[2] != names[0], "{names:?}");
}

#[test]
fn a_name_that_providers_do_not_take_is_shortened_and_still_found() {
    // TOOL-7
    let long = "x".repeat(200);
    let exact = "y".repeat(crate::limits::TOOL_NAME_BYTES_MAX);
    let table = ToolTable::new(named(&[("c", &["read file", "read.file", "\u{e9}", &long, &exact])]), &[]);
    let mut names: Vec<&str> = table.iter().map(|tool| tool.name().as_str()).collect();
    for (name, tool) in names.iter().zip(table.iter()) {
        let safe = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
        assert!(safe && (1..=64).contains(&name.len()), "{name}");
        assert_eq!(table.get(name).map(BoundTool::own_name), Some(tool.own_name()));
        assert_eq!(tool.shown().name, *tool.name());
    }
    assert!(names.contains(&exact.as_str()));
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), 5);
}

#[test]
fn a_pattern_matches_whole_names() {
    for (pattern, yes, no) in [
        ("read", &["read"][..], &["reads", "Read", ""][..]),
        ("read_*", &["read_", "read_file"], &["read", "xread_"]),
        ("*", &["", "anything"], &[]),
        ("a*b", &["ab", "axb", "abb"], &["a", "b", "aba"]),
        ("ab*ba", &["abba", "abxba"], &["aba"]),
        ("*x*y*", &["xy", "axbyc", "xxyy"], &["yx", "x"]),
        ("\u{e9}*\u{e9}", &["\u{e9}\u{e9}"], &["\u{e9}"]),
    ] {
        let pattern = Pattern::new(pattern);
        for name in yes {
            assert!(pattern.matches(name), "{pattern:?} {name}");
        }
        for name in no {
            assert!(!pattern.matches(name), "{pattern:?} {name}");
        }
    }
}

/// One rule line: where it stands and what it says.
#[derive(Debug, Clone, PartialEq)]
struct Line {
    table: &'static str,
    key: &'static str,
    value: &'static str,
}

const TABLES: [&str; 7] = [
    "capabilities.c.tools.read_file",
    "capabilities.c.tools.\"read_*\"",
    "capabilities.c.tools.\"r*\"",
    "capabilities.c",
    "profiles.p",
    "profiles.q",
    "defaults",
];

/// Values from the most to the least that they allow.
const VALUES: [(&str, &[&str]); 4] = [
    ("replay", &["\"safe\"", "\"keyed\"", "\"never\""]),
    ("async", &["true", "false"]),
    ("approve", &["\"never\"", "{ unless_text = \"x\" }", "\"always\""]),
    ("refuse", &["false", "\"no\""]),
];

fn lines() -> impl Strategy<Value = Vec<Line>> {
    let line = (0..TABLES.len(), 0..VALUES.len(), any::<prop::sample::Index>()).prop_map(|(table, key, value)| {
        let (key, values) = VALUES[key];
        Line { table: TABLES[table], key, value: values[value.index(values.len())] }
    });
    prop::collection::vec(line, 0..14).prop_map(|lines| {
        // One table says a key once.
        let mut kept: Vec<Line> = Vec::new();
        for line in lines {
            if !kept.iter().any(|known| (known.table, known.key) == (line.table, line.key)) {
                kept.push(line);
            }
        }
        kept
    })
}

fn written(lines: &[Line]) -> String {
    let mut text = "[harness]\nname = \"h\"\n".to_owned();
    let mut order: Vec<&str> = Vec::new();
    for line in lines {
        if !order.contains(&line.table) {
            order.push(line.table);
        }
    }
    for table in ["capabilities.c", "profiles.p", "profiles.q"] {
        if !order.contains(&table) {
            order.push(table);
        }
    }
    for table in order {
        text.push_str(&format!("[{table}]\n"));
        if table == "capabilities.c" {
            text.push_str("component = \"c\"\nprofile = [\"q\", \"p\"]\n");
        }
        for line in lines.iter().filter(|line| line.table == table) {
            text.push_str(&format!("{} = {}\n", line.key, line.value));
        }
    }
    text
}

/// How much each part allows, from 0, for tools read_file, read and other; none if the rules clash.
fn allowance(lines: &[Line]) -> Option<Vec<[usize; 4]>> {
    let text = written(lines);
    let harness = Harness::parse("h.toml", &text).unwrap_or_else(|faults| panic!("{faults}\n{text}"));
    let definitions = [function("read_file"), function("read_"), function("run"), function("other")];
    let bound = harness.bind(harness.capability("c").expect("it is there"), &definitions).ok()?;
    let of = |tool: &BoundTool| {
        let replay = match tool.replay().value {
            ReplayClass::Never => 0,
            ReplayClass::Keyed => 1,
            ReplayClass::Safe => 2,
        };
        let approve = match tool.approve().value {
            Approval::Always => 0,
            Approval::Unless(_) | Approval::UnlessText(_) => 1,
            Approval::Never => 2,
        };
        [replay, usize::from(tool.is_async().value), approve, usize::from(tool.refuse().value.is_none())]
    };
    Some(bound.tools.iter().map(of).collect())
}

proptest! {
    /// A rule that allows the most there is can only be missed: without it a tool gets what it had, or less.
    #[test]
    fn taking_a_permission_away_never_allows_more(lines in lines(), at in any::<prop::sample::Index>()) {
        let Some(before) = allowance(&lines) else { return Ok(()) };
        let permissions: Vec<usize> = (0..lines.len())
            .filter(|n| VALUES.iter().any(|(key, values)| *key == lines[*n].key && values[0] == lines[*n].value))
            .collect();
        prop_assume!(!permissions.is_empty());
        let mut fewer = lines.clone();
        fewer.remove(permissions[at.index(permissions.len())]);
        if let Some(after) = allowance(&fewer) {
            for (before, after) in before.iter().zip(&after) {
                for part in 0..4 {
                    prop_assert!(after[part] <= before[part], "{lines:?}\n{fewer:?}");
                }
            }
        }
    }

    #[test]
    fn order_of_rules_does_not_matter((lines, other) in lines().prop_flat_map(|lines| (Just(lines.clone()), Just(lines).prop_shuffle()))) {
        prop_assert_eq!(allowance(&lines), allowance(&other));
    }

    #[test]
    fn a_pattern_agrees_with_a_naive_reference(pattern in "[ab*]{0,6}", name in "[ab]{0,8}") {
        fn naive(pattern: &[u8], name: &[u8]) -> bool {
            match pattern.split_first() {
                None => name.is_empty(),
                Some((b'*', rest)) => (0..=name.len()).any(|at| naive(rest, &name[at..])),
                Some((first, rest)) => name.split_first().is_some_and(|(byte, name)| byte == first && naive(rest, name)),
            }
        }
        prop_assert_eq!(Pattern::new(&pattern).matches(&name), naive(pattern.as_bytes(), name.as_bytes()));
    }
}
