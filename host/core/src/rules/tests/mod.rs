//! What a rule decides, which rule decides, and what that means for a call.

use serde_json::{Value, json};

use super::*;
use crate::Call;
use crate::harness::{Harness, HarnessErrors};
use crate::policy::{Admission, CallPolicy, RefusalReason};
use crate::tool::{Claims, Definition, GrammarSyntax, InputFormat};

mod calls;
mod names;
mod properties;

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
fn what_a_tool_ends_up_with_is_explained_with_the_line_that_decided() {
    // covers Z16
    let rules = "[capabilities.c.tools.t]\nreplay = \"when-pure\"\nlimits.time = \"90s\"\n[defaults]\napprove = { unless_text = \"^a\" }\n";
    let [tool] = bind(rules, &[function("t")]).try_into().expect("one tool");
    let explained: Vec<String> =
        tool.explain().iter().map(|(part, value, by)| format!("{part} = {value}: {by}")).collect();
    assert_eq!(
        explained,
        [
            r#"approve = {"unless_text":"^a"}: h.toml:9:11 defaults.approve (harness default)"#,
            r#"replay = safe: h.toml:6:10 capabilities.c.tools.t.replay (exact name), when-pure: nothing granted has an effect outside the call"#,
            "async = true: built-in, replay is safe",
            "class = none: built-in",
            "format = as defined: function: built-in",
            "refuse = none: built-in",
            "time = 90s: h.toml:7:15 capabilities.c.tools.t.limits.time (exact name)",
            "memory = 256MiB: built-in",
            "output = 64KiB: built-in",
            "calls_at_once = 4: built-in",
        ]
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
