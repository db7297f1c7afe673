//! What changes which digest, and which change of authority is wider.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::harness::Harness;
use crate::tool::{Claims, Grammar, GrammarSyntax};

/// The three digests and the authority of capability `c` under this file, with these bytes of a component.
struct Resolved {
    component: Digest,
    authority: Authority,
    conversation: Digest,
}

fn definition(name: &str, input: InputFormat) -> Definition {
    Definition {
        name: name.into(),
        title: Some("title".into()),
        category: None,
        description: format!("does {name}"),
        input,
        output_schema: None,
        claims: Claims::default(),
    }
}

fn resolve(file: &str, bytes: &[u8], definitions: &[Definition]) -> Resolved {
    let harness = Harness::parse("h.toml", file).unwrap_or_else(|faults| panic!("{faults}\n{file}"));
    let capability = harness.capability("c").expect("it is there");
    let tools = harness.bind(capability, definitions).unwrap_or_else(|faults| panic!("{faults}")).tools;
    let component = component_digest(&Digest::of(bytes), "wharf:tool@0.1.0-draft", &capability.config);
    let model = harness.model().map(ToString::to_string).unwrap_or_default();
    Resolved {
        component,
        authority: Authority::new(&component, &capability.grants, &tools),
        conversation: conversation_digest(&model, harness.instructions(), tools.iter().map(BoundTool::shown)),
    }
}

fn tools() -> Vec<Definition> {
    vec![
        definition("read", InputFormat::JsonSchema(json!({ "type": "object" }))),
        definition(
            "query",
            InputFormat::Grammar(Grammar { syntax: GrammarSyntax::Lark, definition: "start: \"a\"".into() }),
        ),
    ]
}

const BASE: &str = r#"
[harness]
name = "h"
instructions = "Do it."
model = "p/m"
[capabilities.c]
component = "c.wasm"
config = { root = "/docs", depth = 2 }
[capabilities.c.grants]
fs = [{ host = "./docs", guest = "/docs" }]
http = ["https://a.example/v1/*"]
env = { LANG = "C" }
secrets = [{ name = "t", from = { env = "T" }, to = "https://a.example/*", as = "bearer" }]
tools = ["other"]
[capabilities.c.limits]
time = "10s"
[capabilities.c.tools.read]
replay = "safe"
approve = { unless = { required = ["dry_run"] } }
"#;

fn changed(from: &str, to: &str) -> String {
    assert!(BASE.contains(from), "{from}");
    BASE.replace(from, to)
}

#[test]
fn each_digest_has_its_own_causes() {
    // covers X14, L52
    let base = resolve(BASE, b"wasm", &tools());
    let which = |file: &str, bytes: &[u8], definitions: &[Definition]| {
        let other = resolve(file, bytes, definitions);
        (
            other.component != base.component,
            other.authority.digest() != base.authority.digest(),
            other.conversation != base.conversation,
        )
    };
    let none = (false, false, false);
    let authority = (false, true, false);
    let conversation = (false, false, true);
    let component = (true, true, false);
    for (what, file, expected) in [
        ("nothing", BASE.to_owned(), none),
        ("a comment and blank lines", format!("# hello\n\n{BASE}\n# bye\n"), none),
        ("spelling of a table", changed("env = { LANG = \"C\" }", "env.LANG = 'C'"), none),
        ("spelling of an address", changed("https://a.example/v1/*", "HTTPS://A.example:443/v1/*"), none),
        ("order of config members", changed("root = \"/docs\", depth = 2", "depth = 2, root = \"/docs\""), none),
        ("a limit", changed("time = \"10s\"", "time = \"20s\""), none),
        ("a default written out", format!("{BASE}async = true\n"), none),
        ("the name", changed("name = \"h\"", "name = \"i\""), none),
        ("a grant of files", changed("guest = \"/docs\" }", "guest = \"/docs\", access = \"read-write\" }"), authority),
        ("an address", changed("/v1/*", "/v2/*"), authority),
        ("an environment value", changed("LANG = \"C\"", "LANG = \"D\""), authority),
        ("a secret's name", changed("name = \"t\"", "name = \"u\""), authority),
        ("a callable tool", changed("[\"other\"]", "[]"), authority),
        ("replay", changed("replay = \"safe\"", "replay = \"never\""), authority),
        ("async", format!("{BASE}async = false\n"), authority),
        ("approval", changed("approve = { unless = { required = [\"dry_run\"] } }", "approve = \"always\""), authority),
        ("a refusal", format!("{BASE}refuse = true\n"), authority),
        ("instructions", changed("Do it.", "Do that."), conversation),
        ("the model", changed("p/m", "p/n"), conversation),
        ("config", changed("depth = 2", "depth = 3"), component),
        ("the form in which a tool is shown", format!("{BASE}format = \"text\"\n"), conversation),
    ] {
        assert_eq!(which(&file, b"wasm", &tools()), expected, "{what}");
    }
    assert_eq!(which(BASE, b"other wasm", &tools()), component);
    let described = |text: &str| {
        let mut tools = tools();
        tools[0].description = text.to_owned();
        tools
    };
    assert_eq!(which(BASE, b"wasm", &described("does it otherwise")), conversation);
    // What the model is not shown is no part of the conversation.
    let mut claiming = tools();
    claiming[0].claims.read_only = true;
    claiming[0].title = None;
    assert_eq!(which(BASE, b"wasm", &claiming), none);
}

#[test]
fn contract_and_content_are_both_part_of_the_component() {
    let config = json!({});
    let [a, b] = [b"a", b"b"].map(|bytes| Digest::of(bytes));
    assert_ne!(component_digest(&a, "1", &config), component_digest(&b, "1", &config));
    assert_ne!(component_digest(&a, "1", &config), component_digest(&a, "2", &config));
    assert_eq!(component_digest(&a, "1", &config), component_digest(&a, "1", &json!({})));
}

#[test]
fn narrower_goes_on_and_wider_does_not() {
    // covers X14, L15
    let compare = |old: &str, new: &str| {
        let authority = |file: &str| resolve(file, b"wasm", &tools()).authority;
        authority(new).compared_with(&authority(old))
    };
    assert_eq!(compare(BASE, BASE), AuthorityChange::Equal);
    let approve = "approve = { unless = { required = [\"dry_run\"] } }";
    let fs = "fs = [{ host = \"./docs\", guest = \"/docs\" }]";
    let writable = changed(fs, "fs = [{ host = \"./docs\", guest = \"/docs\", access = \"read-write\" }]");
    // Each pair in one direction is narrower, in the other wider.
    for (wide, narrow, less, more) in [
        (writable.as_str(), BASE, r#"folder "/docs" is read-only now"#, r#"folder "/docs" is writable now"#),
        (BASE, &changed(fs, "fs = []"), r#"folder "/docs" is gone"#, r#"folder "/docs" is new"#),
        (
            BASE,
            &changed("http = [\"https://a.example/v1/*\"]", ""),
            r#"address "https://a.example/v1/*" is gone"#,
            r#"address "https://a.example/v1/*" is new"#,
        ),
        (
            BASE,
            &changed(
                "http = [\"https://a.example/v1/*\"]",
                "http = [{ url = \"https://a.example/v1/*\", methods = [\"GET\"] }]",
            ),
            r#"address "https://a.example/v1/*" has fewer methods"#,
            r#"address "https://a.example/v1/*" has more methods"#,
        ),
        (
            BASE,
            &changed("env = { LANG = \"C\" }", ""),
            r#"environment value "LANG" is gone"#,
            r#"environment value "LANG" is new"#,
        ),
        (BASE, &changed("secrets = [", "# secrets = ["), r#"secret "t" is gone"#, r#"secret "t" is new"#),
        (
            BASE,
            &changed("tools = [\"other\"]", ""),
            r#"callable tool "other" is gone"#,
            r#"callable tool "other" is new"#,
        ),
        (
            &changed("tools = [\"other\"]", "tools = [\"other\"]\nstate = true"),
            BASE,
            "state folder is gone",
            "state folder is new",
        ),
        (
            BASE,
            &format!("{BASE}async = false\n"),
            r#"async of "read" is false, was true"#,
            r#"async of "read" is true, was false"#,
        ),
        (
            BASE,
            &format!("{BASE}refuse = true\n"),
            r#"tool "read" is refused now"#,
            r#"tool "read" is no longer refused"#,
        ),
        (
            &changed(approve, "async = true"),
            &changed(approve, "async = true\napprove = \"always\""),
            r#"approval of "read" is "always", was "never""#,
            r#"approval of "read" is "never", was "always""#,
        ),
        (
            &changed("replay = \"safe\"", "replay = \"keyed\"\nasync = true"),
            &changed("replay = \"safe\"", "async = true"),
            r#"replay of "read" is never, was keyed"#,
            r#"replay of "read" is keyed, was never"#,
        ),
    ] {
        assert_eq!(compare(wide, narrow), AuthorityChange::Narrower(vec![less.to_owned()]));
        assert_eq!(compare(narrow, wide), AuthorityChange::Wider(vec![more.to_owned()]));
    }
    // Neither direction is narrower.
    for (other, lines) in [
        (
            changed("./docs", "./other"),
            [r#"folder "/docs" is "./other", was "./docs""#, r#"folder "/docs" is "./docs", was "./other""#],
        ),
        (changed("LANG = \"C\"", "LANG = \"D\""), [r#"environment value "LANG" is another"#; 2]),
        (changed("env = \"T\"", "env = \"U\""), [r#"secret "t" is another"#; 2]),
        (
            changed("replay = \"safe\"", "replay = \"keyed\"\nasync = true"),
            [r#"replay of "read" is keyed, was safe"#, r#"replay of "read" is safe, was keyed"#],
        ),
        (
            changed("\"dry_run\"", "\"test\""),
            [
                r#"approval of "read" is {"unless":{"required":["test"]}}, was {"unless":{"required":["dry_run"]}}"#,
                r#"approval of "read" is {"unless":{"required":["dry_run"]}}, was {"unless":{"required":["test"]}}"#,
            ],
        ),
    ] {
        assert_eq!(compare(BASE, &other), AuthorityChange::Wider(vec![lines[0].to_owned()]));
        assert_eq!(compare(&other, BASE), AuthorityChange::Wider(vec![lines[1].to_owned()]));
    }
}

#[test]
fn a_condition_is_narrower_than_never_asking_and_wider_than_always() {
    // covers X14
    let with = |approve: &str| {
        let file = changed("approve = { unless = { required = [\"dry_run\"] } }", approve);
        resolve(&file, b"wasm", &tools()).authority
    };
    let [never, condition, always] = ["", "approve = { unless_text = \"a\" }", "approve = \"always\""].map(with);
    assert!(matches!(condition.compared_with(&never), AuthorityChange::Narrower(_)));
    assert!(matches!(always.compared_with(&condition), AuthorityChange::Narrower(_)));
    assert!(matches!(never.compared_with(&condition), AuthorityChange::Wider(_)));
    assert!(matches!(condition.compared_with(&always), AuthorityChange::Wider(_)));
}

#[test]
fn a_changed_component_is_wider_and_a_tool_that_is_gone_is_narrower() {
    // covers X14
    let base = resolve(BASE, b"wasm", &tools());
    let other = resolve(BASE, b"other", &tools());
    assert_eq!(
        other.authority.compared_with(&base.authority),
        AuthorityChange::Wider(vec![format!("component is {}, was {}", other.component, base.component)])
    );
    let fewer = Authority::new(&base.component, &Grants::default(), &[]);
    let more = resolve(BASE, b"wasm", &tools()).authority;
    let AuthorityChange::Narrower(less) = fewer.compared_with(&more) else { panic!("it is narrower") };
    assert!(less.contains(&r#"tool "query" is gone"#.to_owned()), "{less:?}");
    assert!(matches!(more.compared_with(&fewer), AuthorityChange::Wider(_)));
}

#[test]
fn what_is_added_and_what_is_taken_away_together_is_wider() {
    // covers X14
    let both = changed("env = { LANG = \"C\" }", "env = { TZ = \"UTC\" }");
    let [old, new] = [BASE, &both].map(|file| resolve(file, b"wasm", &tools()).authority);
    assert_eq!(new.compared_with(&old), AuthorityChange::Wider(vec![r#"environment value "TZ" is new"#.to_owned()]));
}

#[test]
fn the_journaled_form_reads_back_and_damage_is_corruption() {
    // covers X14
    let authority = resolve(BASE, b"wasm", &tools()).authority;
    let json = authority.to_json();
    let text = json.to_string();
    let back = Authority::from_json(&serde_json::from_str(&text).expect("it is JSON")).expect("it is whole");
    assert_eq!((&back, back.digest()), (&authority, authority.digest()));
    for pointer in [
        "/component",
        "/grants",
        "/grants/fs",
        "/grants/http",
        "/grants/state",
        "/tools",
        "/tools/read/replay",
        "/tools/read/approve",
        "/tools/read/async",
    ] {
        let mut damaged = json.clone();
        let (parent, member) = pointer.rsplit_once('/').expect("it has a slash");
        let parent = if parent.is_empty() { Some(&mut damaged) } else { damaged.pointer_mut(parent) };
        parent.and_then(|parent| parent.as_object_mut()).and_then(|parent| parent.shift_remove(member)).expect(pointer);
        let error = Authority::from_json(&damaged).expect_err(pointer);
        assert_eq!(error, Error::corruption(format!("a journaled authority has a bad or missing member {member:?}")));
    }
}

#[test]
fn no_value_of_a_secret_or_command_is_journaled() {
    let file = changed("from = { env = \"T\" }", "from = { command = [\"print\", \"canary\"] }");
    let authority = resolve(&file, b"wasm", &tools()).authority;
    assert!(!authority.to_json().to_string().contains("canary"));
    let other = resolve(&file.replace("canary", "canaries"), b"wasm", &tools()).authority;
    assert_ne!(authority.digest(), other.digest());
    let AuthorityChange::Wider(lines) = other.compared_with(&authority) else { panic!("it is another secret") };
    assert!(!lines.concat().contains("canar"), "{lines:?}");
}

proptest! {
    /// The same policy in another format has the same digests.
    #[test]
    fn digests_do_not_depend_on_the_format(blank in "[ \t]{0,3}", comment in "[a-z ]{0,10}", reversed in any::<bool>()) {
        let mut env = ["A = \"1\"", "B = \"2\"", "C = \"3\""];
        let mut http = ["\"https://a.example/v1/*\"", "\"https://b.example\""];
        if reversed {
            env.reverse();
            http.reverse();
        }
        let plain = changed("env = { LANG = \"C\" }", "env = { A = \"1\", B = \"2\", C = \"3\" }")
            .replace("http = [\"https://a.example/v1/*\"]", "http = [\"https://a.example/v1/*\", \"https://b.example\"]");
        let other = changed("env = { LANG = \"C\" }", &format!("{blank}env ={blank} {{ {} }} # {comment}", env.join(&format!(",{blank}"))))
            .replace("http = [\"https://a.example/v1/*\"]", &format!("http = [ # {comment}\n{blank}{},\n]", http.join(",\n")));
        let [a, b] = [plain, other].map(|file| resolve(&file, b"wasm", &tools()));
        prop_assert_eq!((a.component, a.authority.digest(), a.conversation), (b.component, b.authority.digest(), b.conversation));
    }
}
