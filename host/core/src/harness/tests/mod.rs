//! A file is read whole, and each fault says where, what, why and how to mend it.

use std::time::Duration;

use serde_json::json;

use super::*;
use crate::grants::{FileAccess, FileGrant, HttpGrant, SecretGrant, SecretSource};
use crate::rules::{Approval, ReplayRule};
use crate::{Error, ErrorKind, policy::ReplayClass};

mod policy;

const HEAD: &str = "[harness]\nname = \"h\"\n";

fn good(text: &str) -> Harness {
    match Harness::parse("h.toml", text) {
        Ok(harness) => harness,
        Err(faults) => panic!("{}", Error::from(faults).message),
    }
}

/// Each fault as `line:column key: message | hint`.
#[track_caller]
fn faults(text: &str, expected: &[&str]) {
    let found = match Harness::parse("h.toml", text) {
        Ok(_) => Vec::new(),
        Err(faults) => faults
            .iter()
            .map(|fault| {
                let place = &fault.place;
                let hint = fault.hint.as_deref().map(|hint| format!(" | {hint}")).unwrap_or_default();
                format!("{}:{} {}: {}{hint}", place.line, place.column, place.key, fault.message)
            })
            .collect(),
    };
    assert_eq!(found, expected, "{text}");
}

const WHOLE: &str = r#"
[harness]
name = "docs-helper"
instructions = "Answer from the files in /docs."
model = "openai/gpt-6-astra"
max_responses = 12
parallel = false
jobs_at_once = 3
on_unknown = "resend"
after_lost_response = "continue"
resend_lost = 0
unknown_tool_limit = 2

[options]
temperature = 0.5
max_output_tokens = 1000
effort = "low"
verbosity = "high"
speed = "priority"
metadata = { team = "docs" }
prompt_cache_key = "k"
volatile_suffix = 1
extra = { top_k = 5 }
headers = { "x-team" = "docs" }

[providers.openai]
driver = "openai-responses"
base_url = "https://api.example.com/v1"
api_key = { env = "OPENAI_API_KEY" }
headers = { "x-org" = "o" }

[providers.local]
driver = "openai-responses"
base_url = "http://127.0.0.1:8080"
api_key = { file = "key.txt" }

[models."openai/gpt-6-astra"]
async = "off"
images = true

[capabilities.files]
component = "files.wasm"
config = { root = "/docs", depth = 3 }
profile = "careful"
class = "files"

[capabilities.files.grants]
fs = [{ host = "./docs", guest = "/docs" }, { host = "/out", guest = "/out", access = "read-write", overlap = true }]
http = ["HTTPS://API.Example.com:443/v1/*", { url = "https://*.example.org", methods = ["POST", "GET"] }]
env = { LANG = "C.UTF-8" }
secrets = [{ name = "token", from = { env = "API_TOKEN" }, to = "https://api.example.com/*", as = "bearer" }]
tools = ["search"]
state = true

[capabilities.files.limits]
time = "10s"
memory = "64MiB"
output = "64KiB"
calls_at_once = 2

[capabilities.files.tools.write_file]
approve = { unless = { properties = { dry_run = { const = true } }, required = ["dry_run"] } }
replay = "keyed"
async = false

[capabilities.files.tools."read_*"]
replay = "when-pure"
limits = { time = "1m30s" }

[capabilities.clock]
native = "clock"
enabled = false
refuse = "not today"

[profiles.careful]
approve = "always"
[profiles.careful.grants]
env = { TZ = "UTC" }

[defaults]
replay = "safe"
[defaults.limits]
memory = "32MiB"

[sessions]
keep = "90d"
"#;

#[test]
fn every_key_reaches_the_harness() {
    // covers Z4, Z5
    let harness = good(WHOLE);
    assert_eq!((harness.file(), harness.name()), ("h.toml", "docs-helper"));
    assert_eq!(harness.instructions(), "Answer from the files in /docs.");
    assert_eq!(harness.model(), Some(&ModelRef { provider: "openai".into(), model: "gpt-6-astra".into() }));
    assert_eq!(
        harness.turn(),
        &TurnRules {
            max_responses: 12,
            parallel: false,
            jobs_at_once: 3,
            on_unknown: OnUnknown::Resend,
            after_lost_response: AfterLost::Continue,
            resend_lost: 0,
            unknown_tool_limit: 2,
        }
    );
    assert_eq!(
        harness.options(),
        &Options {
            temperature: Some(0.5),
            max_output_tokens: Some(1000),
            effort: Some("low".into()),
            verbosity: Some("high".into()),
            speed: Some("priority".into()),
            metadata: BTreeMap::from([("team".into(), "docs".into())]),
            parallel_calls: Some(false),
            prompt_cache_key: Some("k".into()),
            volatile_suffix: 1,
            extra: json!({ "top_k": 5 }).as_object().cloned().expect("an object"),
            headers: BTreeMap::from([("x-team".into(), "docs".into())]),
        }
    );
    let openai = &harness.providers()["openai"];
    assert_eq!(
        (openai.driver.as_str(), openai.base_url.as_deref(), &openai.api_key, openai.insecure_http),
        ("openai-responses", Some("https://api.example.com/v1"), &Some(KeySource::Env("OPENAI_API_KEY".into())), false)
    );
    assert_eq!(openai.headers, BTreeMap::from([("x-org".into(), "o".into())]));
    assert_eq!(harness.providers()["local"].api_key, Some(KeySource::File("key.txt".into())));
    let model = harness.model().expect("it names one");
    assert_eq!(harness.model_setting(model), ModelSetting { async_tools: AsyncSupport::Off, images: Some(true) });
    let other = ModelRef { provider: "openai".into(), model: "other".into() };
    assert_eq!(harness.model_setting(&other), ModelSetting { async_tools: AsyncSupport::Auto, images: None });

    let retention = harness.retention().expect("it says how long");
    assert_eq!(
        (retention.keep, retention.place.key.as_ref()),
        (Duration::from_secs(90 * 24 * 60 * 60), "sessions.keep")
    );
    assert_eq!(good(HEAD).retention(), None);

    let clock = harness.capability("clock").expect("it is there");
    assert_eq!((&clock.source, clock.enabled), (&CapabilitySource::Native("clock".into()), false));
    assert_eq!(clock.rule.refuse.as_ref().and_then(|said| said.value.as_deref()), Some("not today"));
    assert_eq!((&clock.config, &clock.grants), (&json!({}), &Grants::default()));
}

#[test]
fn a_capability_has_its_own_grants_and_those_of_its_profiles() {
    let harness = good(WHOLE);
    let files = harness.capability("files").expect("it is there");
    assert_eq!(files.source, CapabilitySource::Component("files.wasm".into()));
    assert_eq!(files.config, json!({ "root": "/docs", "depth": 3 }));
    assert_eq!((files.enabled, files.profiles.as_slice()), (true, ["careful".to_owned()].as_slice()));
    assert_eq!(
        files.grants,
        Grants {
            files: vec![
                FileGrant { host: "./docs".into(), guest: "/docs".into(), access: FileAccess::Read, overlap: false },
                FileGrant { host: "/out".into(), guest: "/out".into(), access: FileAccess::ReadWrite, overlap: true },
            ],
            http: vec![
                HttpGrant { pattern: "https://*.example.org/*".into(), methods: vec!["GET".into(), "POST".into()] },
                HttpGrant { pattern: "https://api.example.com/v1/*".into(), methods: vec![] },
            ],
            env: BTreeMap::from([("LANG".into(), "C.UTF-8".into()), ("TZ".into(), "UTC".into())]),
            secrets: vec![SecretGrant {
                name: "token".into(),
                from: SecretSource::Env("API_TOKEN".into()),
                to: "https://api.example.com/*".into(),
                placement: "bearer".into(),
            }],
            tools: vec!["search".into()],
            state: true,
        }
    );
    let patterns: Vec<&str> = files.tools.iter().map(|rule| rule.pattern.as_str()).collect();
    assert_eq!(patterns, ["read_*", "write_file"]);
    let [read, write] = files.tools.as_slice() else { panic!("two rules") };
    assert_eq!(read.rule.replay.as_ref().map(|said| said.value), Some(ReplayRule::WhenPure));
    assert_eq!(read.rule.time.as_ref().map(|said| said.value), Some(Duration::from_secs(90)));
    assert_eq!(write.rule.replay.as_ref().map(|said| said.value), Some(ReplayRule::Class(ReplayClass::Keyed)));
    assert_eq!(write.rule.is_async.as_ref().map(|said| said.value), Some(false));
    let approve = write.rule.approve.as_ref().expect("it is said");
    assert!(matches!(approve.value, Approval::Unless(_)));
    assert_eq!(format!("{:?}", approve.place), "h.toml:62:11 capabilities.files.tools.write_file.approve");
}

#[test]
fn config_is_checked_against_the_capabilitys_schema() {
    // covers Z2
    let harness = good(WHOLE);
    let files = harness.capability("files").expect("it is there");
    let schema = json!({ "type": "object", "properties": { "root": { "type": "string" }, "depth": { "maximum": 3 } }, "required": ["root"], "additionalProperties": false });
    assert_eq!(files.check_config(Some(&schema)), Ok(()));
    let wrong = |schema: Option<&Value>| files.check_config(schema).expect_err("it does not fit").to_string();
    let strict = json!({ "properties": { "depth": { "maximum": 2 } } });
    assert_eq!(
        wrong(Some(&strict)),
        "h.toml:43:10: capabilities.files.config: the config does not fit capability \"files\": at /depth: the value is greater than the maximum of 2"
    );
    assert_eq!(wrong(None), "h.toml:43:10: capabilities.files.config: capability \"files\" takes no config");
    assert_eq!(
        wrong(Some(&json!({ "$ref": "file:///x" }))),
        "h.toml:43:10: capabilities.files.config: the config schema of capability \"files\" refers to \"file:///x\", and nothing outside the schema is fetched"
    );
    // Without config it is the empty object.
    let retention = harness.retention().expect("it says how long");
    assert_eq!(
        (retention.keep, retention.place.key.as_ref()),
        (Duration::from_secs(90 * 24 * 60 * 60), "sessions.keep")
    );
    assert_eq!(good(HEAD).retention(), None);

    let clock = harness.capability("clock").expect("it is there");
    assert_eq!(clock.check_config(None), Ok(()));
    assert!(
        clock
            .check_config(Some(&schema))
            .is_err_and(|fault| fault.message.contains(r#""root" is a required property"#))
    );
}

#[test]
fn what_a_file_leaves_out_is_built_in() {
    let harness = good(&format!("{HEAD}[capabilities.c]\ncomponent = \"c.wasm\""));
    assert_eq!(harness.turn(), &TurnRules::default());
    assert_eq!((harness.model(), harness.instructions(), harness.options()), (None, "", &Options::default()));
    let capability = harness.capability("c").expect("it is there");
    assert_eq!(
        (&capability.grants, &capability.rule, capability.enabled),
        (&Grants::default(), &Rule::default(), true)
    );
    assert_eq!(harness.defaults(), &Rule::default());
}

#[test]
fn unknown_keys_are_errors_that_say_what_was_meant() {
    // OPS-4
    faults(
        "[harness]\nname = \"h\"\nmodle = \"a/b\"\n[capabilites.x]\ncomponent = \"x\"\n",
        &[
            r#"3:1 harness.modle: is not a known key | did you mean "model"?"#,
            r#"4:2 capabilites: is not a known key | did you mean "capabilities"?"#,
        ],
    );
    faults(
        &format!("{HEAD}[capabilities.c]\ncomponent = \"c\"\nlimits.tmie = \"1s\"\nlimits.zzz = 1"),
        &[
            r#"5:8 capabilities.c.limits.tmie: is not a known key | did you mean "time"?"#,
            r#"6:8 capabilities.c.limits.zzz: is not a known key | known keys here are "time", "memory", "output" and "calls_at_once""#,
        ],
    );
    // Limits of one tool cannot speak of the capability's calls.
    faults(
        &format!("{HEAD}[capabilities.c]\ncomponent = \"c\"\ntools.t.limits.calls_at_once = 1"),
        &[
            r#"5:16 capabilities.c.tools.t.limits.calls_at_once: is not a known key | known keys here are "time", "memory" and "output""#,
        ],
    );
}

#[test]
fn wrong_types_and_values_say_what_would_be_right() {
    // OPS-4
    faults(
        "[harness]\nname = 7\nmodel = \"gpt\"\nmax_responses = 0\nparallel = \"yes\"\non_unknown = \"resnd\"\n",
        &[
            r#"2:8 harness.name: is a whole number, not a string | for example name = "docs-helper""#,
            r#"3:9 harness.model: model "gpt" names no provider | write it as provider/model, for example "openai/gpt-6-astra""#,
            "4:17 harness.max_responses: is 0, not between 1 and 10000 | for example max_responses = 32",
            "5:12 harness.parallel: is a string, not true or false | for example parallel = true",
            r#"6:14 harness.on_unknown: is "resnd", not "stop" or "resend" | did you mean "resend"?"#,
        ],
    );
    faults(
        &format!(
            "{HEAD}[capabilities.c]\ncomponent = \"c\"\n[capabilities.c.limits]\ntime = \"10\"\nmemory = \"64MB\"\noutput = 5\ncalls_at_once = 0\n[defaults]\nlimits = {{ time = \"25h\", memory = \"1KiB\" }}"
        ),
        &[
            r#"6:8 capabilities.c.limits.time: "10" is not a duration: it has no unit (ms, s, m, h or d) | for example time = "10s""#,
            r#"7:10 capabilities.c.limits.memory: "64MB" is not a size: it has the unit "MB", which is ambiguous; units are B, KiB, MiB and GiB | for example memory = "64MiB""#,
            r#"8:10 capabilities.c.limits.output: is a whole number, not a string | for example output = "64KiB""#,
            "9:17 capabilities.c.limits.calls_at_once: is 0, not between 1 and 1024 | for example calls_at_once = 4",
            r#"11:19 defaults.limits.time: "25h" is longer than 1d | for example time = "10s""#,
            r#"11:35 defaults.limits.memory: "1KiB" is not between 64KiB and 4GiB | for example memory = "64MiB""#,
        ],
    );
}

#[test]
fn what_is_missing_is_named_with_a_line_that_would_do() {
    faults("", &["1:1 : has no \"harness\" | add [harness]\nname = \"docs-helper\""]);
    faults("[harness]", &[r#"1:1 harness: has no "name" | add name = "docs-helper""#]);
    faults(
        &format!("{HEAD}[capabilities.c]\n[providers.p]\nbase_url = \"https://p.example\""),
        &[
            r#"3:1 capabilities.c: says not exactly one of "component" and "native" | for example component = "files.wasm""#,
            r#"4:1 providers.p: has no "driver" | add driver = "openai-responses""#,
        ],
    );
    faults(
        &format!("{HEAD}[capabilities.c]\ncomponent = \"c\"\nnative = \"c\""),
        &[
            r#"3:1 capabilities.c: says not exactly one of "component" and "native" | for example component = "files.wasm""#,
        ],
    );
}

#[test]
fn names_are_checked_where_they_are_given() {
    faults(
        "[harness]\nname = \"my harness\"\n[capabilities.\"a/b\"]\ncomponent = \"c\"\n[providers.\"x/y\"]\ndriver = \"d\"\n[models.gpt]\nasync = \"on\"",
        &[
            r#"2:8 harness.name: "my harness" is not a name | a name is 1 to 64 of A-Z a-z 0-9 _ -"#,
            r#"3:1 capabilities."a/b": "a/b" is not a name | a name is 1 to 64 of A-Z a-z 0-9 _ -"#,
            r#"5:1 providers."x/y": "x/y" is not a name | a name is 1 to 64 of A-Z a-z 0-9 _ -"#,
            r#"7:1 models.gpt: model "gpt" names no provider | write it as provider/model, for example "openai/gpt-6-astra""#,
        ],
    );
}

#[test]
fn text_that_is_not_toml_is_shown_with_its_place() {
    let faults = Harness::parse("h.toml", "[harness]\nname = \"h\nmodel = \"x/y\"\n").expect_err("it is broken");
    let first = faults.iter().next().expect("there is one");
    assert_eq!(first.place.line, 2);
    assert!(first.message.starts_with("is not TOML: "), "{first}");
    let twice = Harness::parse("h.toml", "[harness]\nname = \"h\"\nname = \"i\"\n").expect_err("it is broken");
    assert_eq!(twice.iter().map(|fault| fault.place.line).collect::<Vec<_>>(), [3]);
}

#[test]
fn a_key_or_secret_that_is_written_out_is_refused_and_not_shown() {
    for text in [
        "[providers.p]\ndriver = \"d\"\napi_key = \"sk-canary\"",
        "[capabilities.c]\ncomponent = \"c\"\ngrants.secrets = [{ name = \"t\", from = \"sk-canary\", to = \"https://a.example\", as = \"bearer\" }]",
    ] {
        let faults = Harness::parse("h.toml", &format!("{HEAD}{text}")).expect_err("it is refused");
        assert_eq!(faults.len(), 1);
        let error = Error::from(faults);
        assert_eq!(error.kind, ErrorKind::Config);
        assert!(error.message.contains("is a literal, and a"), "{error}");
        assert!(!format!("{error:?}").contains("canary"), "{error:?}");
        assert!(error.hint.is_some());
    }
}

#[test]
fn plain_http_is_for_this_host_only_unless_said() {
    let with = |url: &str, more: &str| {
        Harness::parse("h.toml", &format!("{HEAD}[providers.p]\ndriver = \"d\"\nbase_url = \"{url}\"\n{more}"))
    };
    for url in
        ["https://a.example/v1/", "http://localhost:1", "http://127.0.0.1:80/v1", "http://[::1]/", "http://127.1"]
    {
        assert!(with(url, "").is_ok(), "{url}");
    }
    for (url, why) in [
        ("http://a.example", "is plain HTTP to another host"),
        ("http://localhost.attacker.example", "is plain HTTP to another host"),
        ("http://127.0.0.1.nip.example", "is plain HTTP to another host"),
        ("ftp://a.example", "has scheme \"ftp\", not https"),
        ("https://user:pw@a.example", "has user info"),
        ("https://a.example/?x=1", "has a query or a fragment"),
        ("a.example", "is not an address"),
    ] {
        let faults = with(url, "").expect_err(url);
        assert!(faults.to_string().contains(why), "{faults}");
        assert!(!faults.to_string().contains("pw@"), "{faults}");
    }
    assert!(with("http://a.example", "insecure_http = true").is_ok());
}

#[test]
fn a_file_is_read_at_its_largest_size_and_refused_past_it() {
    let fill = |size: usize| format!("{HEAD}#{}", "x".repeat(size - HEAD.len() - 1));
    assert!(Harness::parse("h.toml", &fill(limits::HARNESS_BYTES_MAX)).is_ok());
    for size in [limits::HARNESS_BYTES_MAX + 1, 4 * limits::HARNESS_BYTES_MAX] {
        let faults = Harness::parse("h.toml", &fill(size)).expect_err("it is too large");
        assert_eq!(faults.to_string(), format!("h.toml:1:1: the file has {size} bytes, over the limit of 1048576"));
    }
    faults(
        &format!("x = 1\n{HEAD}"),
        &[
            r#"1:1 x: is not a known key | known keys here are "harness", "options", "providers", "models", "sessions", "capabilities", "profiles" and "defaults""#,
        ],
    );
    let flood: String = (0..500).map(|n| format!("x{n} = 1\n")).collect();
    assert_eq!(
        Harness::parse("h.toml", &format!("{flood}{HEAD}")).expect_err("all wrong").len(),
        limits::HARNESS_ERRORS_MAX
    );
}

#[test]
fn a_mark_before_the_text_and_windows_line_ends_do_no_harm() {
    let text = format!("\u{feff}{}", WHOLE.replace('\n', "\r\n"));
    let (harness, plain) = (good(&text), good(WHOLE));
    assert_eq!(harness.capability("files"), plain.capability("files"));
}

#[test]
fn several_faults_become_one_error_with_a_hint_for_each() {
    let faults = Harness::parse("h.toml", "[harness]\nname = \"h\"\nmodle = 1\nparalel = 2").expect_err("two faults");
    assert_eq!(
        Error::from(faults),
        Error::config(
            "h.toml:3:1: harness.modle: is not a known key\n  hint: did you mean \"model\"?\n\
             h.toml:4:1: harness.paralel: is not a known key\n  hint: did you mean \"parallel\"?"
        )
    );
    let one = Harness::parse("h.toml", "[harness]\nname = \"h\"\nmodle = 1").expect_err("one fault");
    assert_eq!(
        Error::from(one),
        Error::config("h.toml:3:1: harness.modle: is not a known key").hint("did you mean \"model\"?")
    );
}

/// Every example of the key table is a line that the reader takes, in the table where it is said to belong.
#[test]
fn every_example_in_the_table_of_keys_is_right() {
    for section in keys::SECTIONS {
        let paths: Vec<String> = match section.path.strip_prefix('*') {
            Some(_) => continue,
            None => vec![section.path.to_owned()],
        };
        for key in section.keys() {
            let whole_table = key.example.starts_with('[');
            let path = &paths[0];
            // An example of a key inside a value, such as api_key.env, is a line of the table around it.
            let nested = !whole_table && !key.example.starts_with(key.name);
            let table = if nested { path.rsplit_once('.').map_or("", |(table, _)| table) } else { path.as_str() };
            let table = table.replace("models.NAME", "models.\"p/m\"").replace("NAME", "n");
            let mut text = String::new();
            if table != "harness" && !key.example.starts_with("[harness]") {
                text.push_str(HEAD);
            }
            if !whole_table {
                text.push_str(&format!("[{table}]\n"));
            }
            text.push_str(key.example);
            text.push('\n');
            let faults = match Harness::parse("h.toml", &text) {
                Ok(_) => continue,
                Err(faults) => faults,
            };
            let own: Vec<String> = faults
                .iter()
                .filter(|fault| {
                    // What else a whole file needs is not the example's business.
                    !fault.message.starts_with("has no ")
                        && !fault.message.starts_with("says not exactly one of \"component\"")
                        && !fault.message.starts_with("there is no profile")
                })
                .map(ToString::to_string)
                .collect();
            assert_eq!(own, Vec::<String>::new(), "{} of {:?}:\n{text}", key.name, section.path);
        }
    }
}

#[test]
fn a_time_to_keep_sessions_has_a_unit() {
    let sections = |body: &str| format!("{HEAD}[sessions]\n{body}\n");
    assert_eq!(good(&sections("")).retention(), None);
    faults(
        &sections("keep = 90"),
        &[r#"4:8 sessions.keep: is a whole number, not a string | for example keep = "90d""#],
    );
    faults(
        &sections(r#"keep = "90""#),
        &[r#"4:8 sessions.keep: "90" is not a duration: it has no unit (ms, s, m, h or d) | for example keep = "90d""#],
    );
    faults(&sections(r#"kep = "90d""#), &[r#"4:1 sessions.kep: is not a known key | did you mean "keep"?"#]);
}

#[test]
fn deep_nesting_ends_in_an_error() {
    for open in ["[", "{ a = "] {
        let text = format!("{HEAD}[options]\nextra = {}", open.repeat(50_000));
        assert!(Harness::parse("h.toml", &text).is_err());
    }
    let balanced = format!("{HEAD}[options]\nextra.a = {}{}", "[".repeat(50_000), "]".repeat(50_000));
    assert!(Harness::parse("h.toml", &balanced).is_err());
}

proptest::proptest! {
    /// Whatever a file holds, reading it ends with a harness or with faults inside the file.
    #[test]
    fn no_text_makes_the_reader_panic(at in 0..WHOLE.len(), length in 0..40usize, put in "[\\[\\]{}=\"'.,#\n a-z0-9\u{e9}*/:-]{0,12}") {
        let start = WHOLE.floor_char_boundary(at);
        let end = WHOLE.floor_char_boundary((at + length).min(WHOLE.len())).max(start);
        let text = format!("{}{put}{}", &WHOLE[..start], &WHOLE[end..]);
        if let Err(faults) = Harness::parse("h.toml", &text) {
            let lines = u32::try_from(text.lines().count()).expect("it is short") + 1;
            for fault in &faults {
                proptest::prop_assert!((1..=lines).contains(&fault.place.line) && fault.place.column >= 1);
            }
        }
    }
}

#[test]
fn no_value_of_a_header_is_in_the_debug_form_of_a_harness() {
    // covers O22, Y11
    let text = r#"
[harness]
name = "h"
[options]
headers = { x-team = "option-secret" }
[providers.p]
driver = "openai-responses"
headers = { x-team = "header-secret" }
"#;
    let harness = good(text);
    let shown = format!("{harness:?} {harness:#?}");
    assert!(!shown.contains("secret"), "{shown}");
    assert!(shown.matches("x-team").count() >= 4 && shown.contains("openai-responses"), "{shown}");
}

#[test]
fn a_store_is_an_address_without_a_password_or_where_one_is() {
    let sections = |line: &str| format!("{HEAD}\n[sessions]\n{line}\n");
    let store = |line: &str| good(&sections(line)).store().cloned();
    assert_eq!(good(HEAD).store(), None);
    for plain in
        ["postgres://ann@db.example:5433,db2/wharf?sslmode=require", "postgresql:///wharf?host=/run/postgresql"]
    {
        assert_eq!(store(&format!("store = {plain:?}")), Some(StoreAddress::Plain(plain.to_owned())));
    }
    assert_eq!(store(r#"store = { env = "DB" }"#), Some(StoreAddress::At(KeySource::Env("DB".into()))));
    assert_eq!(store(r#"store = { file = "db.txt" }"#), Some(StoreAddress::At(KeySource::File("db.txt".into()))));
    for secret in [
        "postgres://ann:sk-secret@h/w",
        "postgres://ann:1/sk-secret@h/w",
        "postgres:///w?host=h&password=sk-secret",
        "mysql://a:sk-secret@h",
    ] {
        let faults = Harness::parse("h.toml", &sections(&format!("store = {secret:?}"))).unwrap_err().to_string();
        assert!(faults.contains("sessions.store") && !faults.contains("sk-secret"), "{faults}");
    }
}
