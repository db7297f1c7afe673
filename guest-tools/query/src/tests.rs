//! The tool as the host calls it.

use std::fs;

use tempfile::TempDir;
use wharf_tool_sdk::{Claims, Content, Failure, FailureKind, InputFormat, testing};

use crate::{QueryTool, limits};

fn json(text: &str) -> Content {
    Content::Json(text.to_owned())
}

fn ask(input: &str) -> Result<Vec<Content>, Failure> {
    testing::invoke::<QueryTool>("query", input, "{}")
}

fn refusal(input: &str) -> String {
    let failure = ask(input).expect_err(input);
    assert_eq!(failure.kind, FailureKind::InvalidInput);
    failure.message
}

#[test]
fn tool_takes_raw_text_and_only_reads() {
    let definitions = testing::definitions::<QueryTool>(r#"{"root":"/data","file":"a.json"}"#).expect("a good config");
    let [query] = definitions.as_slice() else { panic!("one tool") };
    assert_eq!((query.name.as_str(), &query.input), ("query", &InputFormat::Text));
    assert_eq!(query.claims, Claims::READ_ONLY | Claims::IDEMPOTENT);
    assert!(query.description.contains("relative to /data") && query.description.contains("runs over a.json"));
    assert!(testing::definitions::<QueryTool>(r#"{"file":"/abs.json"}"#).is_err());
    assert!(testing::definitions::<QueryTool>(r#"{"fil":"a.json"}"#).is_err());
}

#[test]
fn program_of_several_lines_runs_over_inline_json() {
    let input = "# the dear ones\n.orders[]\n| select(.total > 10)\n| {id, \"line\": \"a\\nb\"}\n---\n{\"orders\":[{\"id\":1,\"total\":5},\n{\"id\":2,\"total\":50}]}";
    assert_eq!(ask(input), Ok(vec![json(r#"{"id":2,"line":"a\nb"}"#)]));
}

#[test]
fn program_runs_over_a_file_of_the_root() {
    let folder = TempDir::new().expect("a folder");
    fs::create_dir(folder.path().join("in")).expect("folder");
    fs::write(folder.path().join("in/a.json"), "\u{feff}[1,2]\n").expect("file");
    fs::write(folder.path().join("lines.json"), "{\"a\":1}\n{\"a\":2}\n").expect("file");
    fs::write(folder.path().join("bad.json"), "{\"a\":\n1,}").expect("file");
    let with = |file: &str, input: &str| {
        let config = format!(r#"{{"root":"{}"{file}}}"#, folder.path().display());
        testing::invoke::<QueryTool>("query", input, &config)
    };
    assert_eq!(with("", "# file: in/a.json\nadd"), Ok(vec![json("3")]));
    assert_eq!(with(r#","file":"in/a.json""#, "length"), Ok(vec![json("2")]));
    assert_eq!(with(r#","file":"in/a.json""#, "length\n---\n[]"), Ok(vec![json("0")]));
    assert_eq!(with("", "# file: lines.json\n.a"), Ok(vec![json("1"), json("2")]));
    let kind = |input: &str| with("", input).map_err(|failure| failure.kind);
    assert_eq!(kind("# file: no.json\n."), Err(FailureKind::NotFound));
    assert_eq!(kind("# file: in\n."), Err(FailureKind::InvalidInput));
    assert_eq!(kind("# file: ../a.json\n."), Err(FailureKind::InvalidInput));
    assert_eq!(
        with("", "# file: bad.json\n.").map_err(|failure| failure.message),
        Err("bad.json is not JSON: key must be a string at line 2 column 3; hint: mend the JSON, or name another file"
            .to_owned())
    );
}

#[test]
fn numbers_keep_their_value_and_spelling() {
    assert_eq!(
        ask(".\n---\n[9007199254740993, 18446744073709551615, 1.10, 1e400, -0]"),
        Ok(vec![json("[9007199254740993,18446744073709551615,1.10,1e400,0]")])
    );
    assert_eq!(ask(".[0] + 1\n---\n[9223372036854775807]"), Ok(vec![json("9223372036854775808")]));
}

#[test]
fn outputs_that_are_no_json_become_json_or_a_failure() {
    assert_eq!(
        ask("nan, infinite, \"\\u0000é\"\n---\n0"),
        Ok(vec![json("null"), json("1.7976931348623157e308"), json("\"\\u0000é\"")])
    );
    assert!(refusal("{(1): 2}\n---\n0").contains("hint: use tostring"));
}

#[test]
fn every_output_is_json_and_none_is_said() {
    assert_eq!(ask("empty\n---\n0"), Ok(vec![Content::Text("note: the program gave no output".to_owned())]));
    assert_eq!(ask("1, halt, 2\n---\n0"), Ok(vec![json("1")]));
}

#[test]
fn endless_outputs_are_cut_with_a_note() {
    let contents = ask("repeat(1)\n---\n0").expect("a success");
    assert_eq!(contents.len(), limits::OUTPUTS_MAX + 1);
    let note =
        "note: cut after 200 outputs, there is more; hint: narrow the program, for example with limit(10; …) or length";
    assert_eq!(contents.last(), Some(&Content::Text(note.to_owned())));
    let exact = ask("range(200)\n---\n0").expect("a success");
    assert_eq!(exact.len(), 200);
    let big = ask("\"x\" * 30000, \"y\" * 30000\n---\n0").expect("a success");
    assert_eq!(big.len(), 2);
}

#[test]
fn wrong_program_is_refused_with_its_place() {
    let refused = |program: &str| {
        let message = refusal(&format!("{program}\n---\n0"));
        let (_, fault) = message.split_once("the jq program is wrong: ").expect("the beginning");
        fault.split_once("; hint: ").expect("a hint").0.to_owned()
    };
    assert_eq!(refused(".a\n| .b["), "line 2, column 6: expected closing bracket, found its end");
    assert_eq!(refused(".a | nofun(1)"), "line 1, column 6: function \"nofun\" with 1 arguments is not known");
    assert_eq!(
        refused("import \"m\" as m; 1"),
        "line 1, column 9: module \"m\" cannot be loaded: modules are not served"
    );
    assert_eq!(refused("1,\n$x"), "line 2, column 1: variable \"$x\" is not known");
    assert_eq!(refused("1 +"), "line 1, column 4: expected term, found its end");
    assert_eq!(refused("1 2"), "line 1, column 3: expected nothing, found \"2\"");
    assert_eq!(refused("\"a"), "line 1, column 3: expected closing quote, found its end");
}

#[test]
fn failing_program_and_bad_json_are_refused_with_a_hint() {
    assert_eq!(
        refusal(".[] | .a\n---\n[{\"a\":1}, 2]"),
        "the jq program failed after 1 output: cannot index 2 with \"a\"; hint: look at the document's shape first, or use \
         \".a?\" where a part may be missing"
    );
    assert!(refusal(".\n---\n{\"a\":\n  tru}").contains("line 2"));
    assert!(refusal(".\n---\n").contains("is empty"));
    assert!(refusal(".").contains("hint: begin with a line"));
    assert!(refusal(".\n---\n[NaN]").contains("is not JSON"));
}

#[test]
fn depth_is_bounded_at_both_ends() {
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    assert!(ask(&format!(".\n---\n{}", nested(limits::DEPTH_MAX))).is_ok());
    assert!(refusal(&format!(".\n---\n{}", nested(limits::DEPTH_MAX + 1))).contains("values within values"));
    assert!(refusal(&format!(".\n---\n{}", "[".repeat(1_000_000))).contains("values within values"));
    assert!(refusal("reduce range(300) as $i (0; [.])\n---\n0").contains("hint: give a part"));
}
