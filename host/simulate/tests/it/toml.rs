//! Scripts from TOML: every key once, every kind of mistake, and the shipped example.

use std::time::Duration;

use serde_json::json;
use wharf_simulate::script::*;

use crate::client::{ask, go_on, output, post, start};

#[test]
fn every_key_reaches_the_script() {
    let text = r##"
name = "all"
order = "first-match"
id_prefix = "r-"
api_key = "sk"

[[step]]
name = "one"
unchecked = true
model = "m2"
omit = ["created", "in_progress", "sequence_numbers", "deltas", "added", "terminal_output"]
retrieve = ["in_progress", "completed"]
if_broken = "cancelled"
usage = { input = 1, cached = 2, cache_write = 3, output = 4, reasoning = 5 }
finish = { status = "failed", code = "c", message = "m" }
ending = { after_events = 3, extra_bytes = 4, how = "clean" }
[step.expect]
previous_response_id = "latest"
outputs = ["a"]
only_outputs = ["a", "b"]
model = "m1"
tools = ["t"]
contains = ["x"]
lacks = ["y"]
instructions = ["z"]
stream = true
[step.framing]
line_ending = "crlf"
bom = true
event_lines = false
multiline = true
comments = true
done = true
chunk_bytes = 9
content_type = "text/plain"
[[step.item]]
type = "text"
text = "hi"
phase = "commentary"
extent = "partial"
chunk = 3
delay = "1.5s"
[[step.item]]
type = "refusal"
text = "no"
chunk = "whole"
[[step.item]]
type = "reasoning"
summary = "hm"
encrypted = "e"
[[step.item]]
type = "function_call"
call_id = "c1"
name = "f"
arguments = '''{"a": '''
async = true
[[step.item]]
type = "custom_tool_call"
call_id = "c2"
name = "g"
input = """
two
lines"""
extent = "incomplete"
chunk = "words"
[[step.item]]
type = "other"
json = '{"type": "o"}'
[[step.item]]
type = "raw"
json = '{"type": "r"}'
[[step.item]]
type = "comment"
text = "c"
[[step.item]]
type = "wait"
time = "20ms"
[[step.item]]
type = "wait_for"
gate = "g"

[[step]]
http = { status = 429, message = "m", type = "t", code = "c", param = "p", headers = { retry-after = "1" } }

[[step]]
http = { status = 200, body = "b", content_type = "text/plain" }

[[step]]
drop = true

[[step]]
usage = "none"
retrieve = "not_found"
ending = "hang"
"##;
    let pace = |chunk, millis| Pace { chunk, delay: Duration::from_millis(millis) };
    let expect = Expect::new()
        .latest()
        .outputs(["a"])
        .only_outputs(["a", "b"])
        .model("m1")
        .tool("t")
        .contains("x")
        .lacks("y")
        .instructions("z")
        .stream(true);
    let text_item = |text: &str, pace, phase: Option<&str>, extent| TextItem {
        text: text.to_owned(),
        pace,
        phase: phase.map(str::to_owned),
        extent,
    };
    let one = Answer {
        items: vec![
            Item::Text(text_item("hi", pace(Chunk::Chars(3), 1500), Some("commentary"), Extent::Partial)),
            Item::Refusal(text_item("no", pace(Chunk::Whole, 0), None, Extent::Completed)),
            Item::Reasoning(ReasoningItem {
                summary: "hm".to_owned(),
                pace: pace(Chunk::Words, 0),
                encrypted: Some("e".to_owned()),
            }),
            Item::FunctionCall(CallItem::new("c1", "f", "{\"a\": ").asynchronous()),
            Item::CustomCall(
                CallItem::new("c2", "g", "two\nlines").extent(Extent::Incomplete).pace(Chunk::Words, Duration::ZERO),
            ),
            Item::Other(json!({ "type": "o" })),
            Item::Raw(json!({ "type": "r" })),
            Item::Comment("c".to_owned()),
            Item::Wait(Duration::from_millis(20)),
            Item::WaitFor("g".to_owned()),
        ],
        usage: Some(Usage { input: 1, cached: 2, cache_write: 3, output: 4, reasoning: 5 }),
        finish: Finish::Failed { code: "c".to_owned(), message: "m".to_owned() },
        ending: Ending::Cut(Cut { after_events: 3, extra_bytes: 4, how: CutHow::Clean }),
        framing: Framing {
            line_ending: LineEnding::CrLf,
            bom: true,
            event_lines: false,
            multiline: true,
            comments: true,
            done: true,
            chunk_bytes: Some(9),
            content_type: "text/plain".to_owned(),
        },
        omit: vec![
            Omitted::Created,
            Omitted::InProgress,
            Omitted::SequenceNumbers,
            Omitted::Deltas,
            Omitted::Added,
            Omitted::TerminalOutput,
        ],
        retrieve: vec![Retrieved::InProgress, Retrieved::Completed],
        if_broken: Retrieved::Cancelled,
        model: Some("m2".to_owned()),
    };
    let refused = HttpReply {
        status: 429,
        headers: vec![("retry-after".to_owned(), "1".to_owned())],
        body: HttpBody::Error {
            message: "m".to_owned(),
            kind: "t".to_owned(),
            code: Some("c".to_owned()),
            param: Some("p".to_owned()),
        },
    };
    let last = Answer::new().no_usage().retrieve([Retrieved::NotFound]).hang();
    let expected = Script::new("all")
        .first_match()
        .id_prefix("r-")
        .api_key("sk")
        .step(Step::from(one).named("one").unchecked().expect(expect))
        .step(refused)
        .step(HttpReply::text(200, "text/plain", "b"))
        .step(Step::drop_connection())
        .step(last);
    assert_eq!(Script::parse("all.toml", text).expect("a script"), expected);
}

#[test]
fn what_a_script_does_not_say_has_its_default() {
    let text = "[[step]]\n[[step.item]]\ntype = \"text\"\ntext = \"hi\"\n[[step]]\nhttp = { status = 503 }\n[[step]]\n";
    let bare = HttpReply {
        status: 503,
        headers: vec![],
        body: HttpBody::Error {
            message: "scripted status 503".to_owned(),
            kind: "server_error".to_owned(),
            code: None,
            param: None,
        },
    };
    let expected = Script::new("a.toml").step(Answer::new().text("hi")).step(bare).step(Answer::new());
    assert_eq!(Script::parse("a.toml", text).expect("a script"), expected);
    let finishes = [
        ("{ status = \"completed\" }", Finish::Completed),
        ("{ status = \"cancelled\" }", Finish::Cancelled),
        ("{ status = \"none\" }", Finish::Nothing),
        ("{ status = \"incomplete\", reason = \"r\" }", Finish::Incomplete { reason: "r".to_owned() }),
        (
            "{ status = \"error\", code = \"c\", message = \"m\" }",
            Finish::Error { code: "c".to_owned(), message: "m".to_owned() },
        ),
    ];
    for (written, finish) in finishes {
        let script = Script::parse("a.toml", &format!("[[step]]\nfinish = {written}\n")).expect("a script");
        assert_eq!(script.steps, [Answer::new().finish(finish).into()]);
    }
}

#[test]
fn each_mistake_is_told_with_place_key_and_hint() {
    let check = |text: &str, expected: &str| {
        let error = Script::parse("s.toml", text).expect_err("this is no script");
        assert_eq!(error.to_string(), expected);
    };
    let item = |rest: &str| format!("[[step]]\n[[step.item]]\n{rest}\n");
    check("", "s.toml:1:1: step is missing\nhint: begin the first answer with [[step]]");
    check("nam = \"x\"\nstep = []\n", "s.toml:1:1: unknown key nam\nhint: did you mean name?");
    check(
        "[[step]]\nzzz = 1\n",
        "s.toml:2:1: unknown key step[0].zzz\nhint: the keys here are name, expect, unchecked, http, drop, item, usage, \
         finish, ending, framing, omit, retrieve, if_broken, model",
    );
    check("step = 3\n", "s.toml:1:8: step must be a list, found integer");
    check("[step]\n", "s.toml:1:1: step must be a list, found table");
    check("step = [1]\n", "s.toml:1:9: step[0] must be a table, found integer");
    check(
        "order = \"in-oder\"\nstep = []\n",
        "s.toml:1:9: order has no such value: \"in-oder\"\nhint: did you mean \"in-order\"?",
    );
    check(
        &item("type = \"speech\""),
        "s.toml:3:8: step[0].item[0].type has no such value: \"speech\"\nhint: use one of text, refusal, reasoning, \
         function_call, custom_tool_call, other, raw, comment, wait, wait_for",
    );
    check(
        &item("text = \"hi\""),
        "s.toml:2:1: step[0].item[0].type is missing\nhint: add type = one of text, refusal, reasoning, function_call, \
         custom_tool_call, other, raw, comment, wait or wait_for",
    );
    check(
        &item("type = \"function_call\"\ncall_id = \"c\"\nname = \"f\"\nargument = \"{}\""),
        "s.toml:2:1: step[0].item[0].arguments is missing\nhint: add arguments = '''…''', exactly as the model writes it",
    );
    check(
        &item("type = \"wait\"\ntime = \"20\""),
        "s.toml:4:8: step[0].item[0].time is not a time: \"20\"\nhint: write a number and a unit (ms, s or m), such as \
         \"200ms\"",
    );
    check(
        &item("type = \"wait\"\ntime = \"11m\""),
        "s.toml:4:8: step[0].item[0].time is longer than 600 s\nhint: use a gate (wait_for) for a pause without a known \
         length",
    );
    check(
        &item("type = \"raw\"\njson = '{'"),
        "s.toml:4:8: step[0].item[0].json is not JSON: EOF while parsing an object at line 1 column 1\nhint: write the \
         JSON between ''' and '''",
    );
    check(
        &item("type = \"raw\"\njson = '{}'"),
        "s.toml:4:8: step[0].item[0].json is not an object with a type\nhint: write '''{\"type\": \"…\", …}'''",
    );
    check(
        &item("type = \"text\"\ntext = \"é\"\nchunk = true"),
        "s.toml:5:9: step[0].item[0].chunk must be \"words\", \"whole\" or a number of characters, found boolean",
    );
    check(
        "[[step]]\ndrop = true\nhttp = { status = 200 }\n",
        "s.toml:1:1: step[0] has more than one answer\nhint: keep one of http, drop, or the keys of a response (item, \
         finish, usage …)",
    );
    check(
        "[[step]]\nhttp = { status = 99 }\n",
        "s.toml:2:19: step[0].http.status is not an HTTP status\nhint: write a number from 200 to 599",
    );
    check(
        "[[step]]\nhttp = { status = 200, body = \"b\", code = \"c\" }\n",
        "s.toml:2:8: step[0].http has both a body and an error\nhint: keep body and content_type, or message, type, code \
         and param",
    );
    check(
        "[[step]]\nhttp = { status = 200, headers = { \"a b\" = \"c\" } }\n",
        "s.toml:2:44: step[0].http.headers.a b is no header name\nhint: use letters, digits and -",
    );
    check(
        "[[step]]\nusage = { input = -1 }\n",
        "s.toml:2:19: step[0].usage.input is not a number from 0 on\nhint: write a number such as 3",
    );
}

#[test]
fn text_that_is_no_toml_or_too_large_is_refused() {
    let error = Script::parse("s.toml", "name = \"a\"\nstep = [\n").expect_err("no TOML");
    assert!(matches!(&error, ScriptError::Syntax { place, .. } if place.line >= 2), "{error}");
    let large = "#".repeat(usize::try_from(wharf_simulate::limits::SCRIPT_BYTES_MAX).unwrap_or(usize::MAX) + 1);
    let error = Script::parse("s.toml", &large).expect_err("too large");
    assert_eq!(error.to_string(), "s.toml: the script is larger than 4194304 bytes");
    assert!(matches!(Script::parse("s.toml", &large[1..]), Err(ScriptError::Missing { .. })));
    let error = Script::load("no-such-script.toml").expect_err("no file");
    assert_eq!(
        error.to_string(),
        "cannot read script no-such-script.toml\nhint: give the path of a script; examples/scripts/two-calls.toml is one"
    );
}

#[tokio::test]
async fn the_shipped_example_delivers_the_fast_result_first() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/scripts/two-calls.toml");
    let script = Script::load(path).expect("the example is a script");
    assert_eq!(script.name, "two-calls");
    let server = start(script).await;
    let mut first = ask(json!("Where is the word harness used?"));
    first["tools"] = json!([{ "type": "function", "name": "search" }, { "type": "function", "name": "lookup" }]);
    let mut statuses = vec![post(&server, &first).await.status];
    statuses.push(post(&server, &go_on("resp_1", json!([output("call_fast")]))).await.status);
    statuses.push(post(&server, &go_on("resp_2", json!([output("call_slow")]))).await.status);
    assert_eq!(statuses, [200, 200, 200]);
    assert_eq!(server.violations(), vec![]);
}

#[test]
fn every_script_in_the_manual_can_be_read() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/simulate.md");
    let manual = std::fs::read_to_string(path).expect("the manual");
    let scripts: Vec<&str> =
        manual.split("```toml\n").skip(1).filter_map(|rest| rest.split_once("```").map(|(script, _)| script)).collect();
    assert_eq!(scripts.len(), 3);
    for script in scripts {
        Script::parse("docs/simulate.md", script).expect("a script");
    }
}
