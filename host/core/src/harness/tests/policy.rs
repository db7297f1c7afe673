//! Grants, profiles and rules: what is not well formed is refused, never half believed.

use super::*;

#[test]
fn an_empty_list_grants_nothing() {
    // AUTH-3
    let harness = good(&format!(
        "{HEAD}[capabilities.c]\ncomponent = \"c.wasm\"\n[capabilities.c.grants]\nfs = []\nhttp = []\nsecrets = []\ntools = []\nenv = {{}}"
    ));
    assert_eq!(harness.capability("c").expect("it is there").grants, Grants::default());
    faults(
        &format!(
            "{HEAD}[capabilities.c]\ncomponent = \"c.wasm\"\ngrants.http = [{{ url = \"https://a.example\", methods = [] }}]"
        ),
        &[
            r#"5:55 capabilities.c.grants.http[0].methods: is empty, and would grant nothing | for example methods = ["GET"]"#,
        ],
    );
}

#[test]
fn grants_that_are_not_well_formed_are_refused() {
    // AUTH-2: a permission that does not parse never half counts.
    let with = |grant: &str| format!("{HEAD}[capabilities.c]\ncomponent = \"c\"\ngrants.{grant}");
    for (grant, why) in [
        (r#"fs = [{ host = ".", guest = "docs" }]"#, r#""docs" is not an absolute path"#),
        (r#"fs = [{ host = ".", guest = "/a/../b" }]"#, r#""/a/../b" has an empty segment"#),
        (r#"fs = [{ host = ".", guest = "/a/" }]"#, r#""/a/" has an empty segment"#),
        (r#"fs = [{ host = "", guest = "/a" }]"#, "is empty"),
        (r#"fs = [{ guest = "/a" }]"#, r#"has no "host""#),
        (r#"fs = [{ host = ".", guest = "/a", access = "write" }]"#, r#"is "write", not "read" or "read-write""#),
        (r#"fs = [{ host = "a", guest = "/a" }, { host = "b", guest = "/a" }]"#, "granted twice"),
        (r#"fs = ["./docs"]"#, "is a string, not a table"),
        (r#"http = ["api.example.com"]"#, "has no scheme"),
        (r#"http = ["ftp://a.example/"]"#, "not https or http"),
        (r#"http = ["https://u:p@a.example/"]"#, "has user info"),
        (r#"http = ["https://a.*.example/"]"#, "has a * that does not stand for whole labels"),
        (r#"http = ["https://*a.example/"]"#, "has a * that does not stand for whole labels"),
        (r#"http = ["https://*.1.2.3.4/"]"#, "has a * before something that is not a name"),
        (r#"http = ["https://a.example/x/*/y"]"#, "has a * in the middle of its path"),
        (r#"http = ["https://a.example/x/../y"]"#, "has a path that is read as"),
        (r#"http = ["https://a.example/?q"]"#, "has a query or a fragment"),
        (r#"http = [{ url = "https://a.example", methods = ["get"] }]"#, r#""get" is not a method in capitals"#),
        (r#"env = { "A=B" = "x" }"#, r#""A=B" is not the name of an environment value"#),
        (r#"env = { A = 1 }"#, "is a whole number, not a string"),
        (r#"state = "yes""#, "is a string, not true or false"),
        (
            r#"secrets = [{ name = "t", from = { env = "A", file = "b" }, to = "https://a.example", as = "bearer" }]"#,
            "says not exactly one of",
        ),
        (
            r#"secrets = [{ name = "t", from = { command = [] }, to = "https://a.example", as = "bearer" }]"#,
            "names no command",
        ),
        (
            r#"secrets = [{ name = "t", from = { env = "A" }, to = "https://a.example", as = "cookie" }]"#,
            r#""cookie" is none of"#,
        ),
        (r#"secrets = [{ name = "t", from = { env = "A" }, as = "basic" }]"#, r#"has no "to""#),
        (r#"everything = true"#, "is not a known key"),
    ] {
        let faults = Harness::parse("h.toml", &with(grant)).expect_err(grant);
        assert_eq!(faults.len(), 1, "{faults}");
        assert!(faults.to_string().contains(why), "{grant}: {faults}");
    }
}

#[test]
fn equal_address_patterns_have_equal_texts() {
    for (written, normal) in [
        ("https://A.Example", "https://a.example/*"),
        ("https://a.example:443/*", "https://a.example/*"),
        ("https://a.example/", "https://a.example/"),
        ("http://a.example:8080/v1", "http://a.example:8080/v1"),
        ("https://*.B\u{fc}cher.example/x*", "https://*.xn--bcher-kva.example/x*"),
        ("https://0x7f.1/", "https://127.0.0.1/"),
        ("https://[0:0::1]/", "https://[::1]/"),
    ] {
        assert_eq!(grants::normal_address(written).as_deref(), Ok(normal), "{written}");
    }
}

#[test]
fn profiles_have_to_exist_and_to_agree_with_the_capability() {
    faults(
        &format!(
            "{HEAD}[capabilities.c]\ncomponent = \"c\"\nprofile = [\"carefull\", \"other\"]\n[profiles.careful]\n"
        ),
        &[
            r#"5:11 capabilities.c.profile: there is no profile "carefull" | did you mean "careful"?"#,
            r#"5:11 capabilities.c.profile: there is no profile "other" | profiles are "careful""#,
        ],
    );
    faults(
        &format!(
            "{HEAD}[capabilities.c]\ncomponent = \"c\"\nprofile = \"p\"\ngrants.env = {{ A = \"1\" }}\n[profiles.p]\ngrants.env = {{ A = \"2\" }}"
        ),
        &[r#"6:1 capabilities.c.grants: environment value "A" differs from that of profile "p""#],
    );
}

#[test]
fn rules_that_cannot_be_understood_are_refused() {
    let with = |rule: &str| format!("{HEAD}[defaults]\n{rule}");
    for (rule, why) in [
        (r#"approve = "sometimes""#, r#"is "sometimes", not "never" or "always""#),
        ("approve = true", "is a boolean, not a string"),
        ("approve = {}", r#"says not exactly one of "unless" and "unless_text""#),
        (r#"approve = { unless = { type = "strin" } }"#, "the schema is not valid at"),
        (r#"approve = { unless = { "$ref" = "file:///etc/passwd" } }"#, "nothing outside the schema is fetched"),
        (r#"approve = { unless_text = "(" }"#, "the pattern is not a regular expression"),
        (r#"replay = "saef""#, r#"is "saef", not "never", "safe", "keyed" or "when-pure""#),
        (r#"async = "on""#, "is a string, not true or false"),
        (r#"class = """#, "is empty"),
        (r#"format = "json""#, r#"is "json", not "function" or "text""#),
        (r#"format = { grammar = "regex", definition = "(" }"#, "the pattern is not a regular expression"),
        (r#"format = { grammar = "regex" }"#, r#"has no "definition""#),
        ("refuse = 1", "is a whole number, not a string"),
    ] {
        let faults = Harness::parse("h.toml", &with(rule)).expect_err(rule);
        assert_eq!(faults.len(), 1, "{faults}");
        assert!(faults.to_string().contains(why), "{rule}: {faults}");
    }
}
