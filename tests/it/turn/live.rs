//! Both kinds of tools against a real service (R1). What is checked is checked without one as well, so that the check itself
//! is known to work.

use std::io::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use serde_json::{Value, json};
use wharf::core::harness::Harness;
use wharf::core::record::Record;
use wharf::core::tool::{Claims, Content, Definition, InputFormat};
use wharf::core::{Error, Payload};
use wharf::native::{About, NativeCall, NativeCapability, NativeError};
use wharf::store::{JournalKey, MemoryStore, Store};
use wharf::{TurnOptions, TurnResult, Wharf, records};
use wharf_simulate::{Answer, Expect, Options, Script, Server};

/// The variable that has the key.
const KEY: &str = "OPENAI_API_KEY";

/// The variable that names another model than [`MODEL`].
const OTHER_MODEL: &str = "WHARF_LIVE_MODEL";

/// A model that takes async tools.
const MODEL: &str = "gpt-6-astra";

/// The most that a turn against a real service may take.
const TIME_MAX: Duration = Duration::from_secs(90);

/// The most responses of such a turn.
const RESPONSES_MAX: u64 = 4;

const QUESTION: &str = "Call both tools at once, each exactly once: `parcel` with the number 7, and `poem` with a poem of two \
                        lines as its raw text. Then say in one sentence what each of them gave back, word for word.";

/// What the tools give: words that no model comes up with by itself.
const PARCEL: &str = "zephyr-4417";
const POEM: &str = "quill-9026";

/// Two tools, a function and a custom one.
#[derive(Clone, Default)]
struct Pair(Arc<Mutex<Vec<NativeCall>>>);

impl NativeCapability for Pair {
    fn about(&self) -> About {
        About { id: "pair".to_owned(), ..About::default() }
    }

    fn tools(&self, _config: &Value) -> Result<Vec<Definition>, Error> {
        let tool = |name: &str, description: &str, input| Definition {
            name: name.into(),
            title: None,
            category: None,
            description: description.to_owned(),
            input,
            output_schema: None,
            claims: Claims::default(),
        };
        let number = json!({
            "type": "object", "properties": { "number": { "type": "integer" } }, "required": ["number"],
            "additionalProperties": false,
        });
        Ok(vec![
            tool("parcel", "Gives the code of the parcel with this number.", InputFormat::JsonSchema(number)),
            tool("poem", "Takes a poem as raw text, and gives the code under which it is kept.", InputFormat::Text),
        ])
    }

    fn call(&self, call: NativeCall) -> BoxFuture<'static, Result<Vec<Content>, NativeError>> {
        let code = if call.tool.as_str() == "parcel" { PARCEL } else { POEM };
        self.0.lock().unwrap().push(call);
        Box::pin(async move { Ok(vec![Content::Text(code.to_owned())]) })
    }
}

/// Runs the question against a provider, which has these lines, and checks all of R1.
async fn both_tools_once(provider: &str, model: &str, key: Option<String>) -> TurnResult {
    let harness = format!(
        "[harness]\nname = \"live\"\ninstructions = \"Use the tools as you are told, and be brief.\"\n\
         model = \"live/{model}\"\nmax_responses = {RESPONSES_MAX}\n\
         [options]\nmax_output_tokens = 1000\neffort = \"low\"\n\
         [providers.live]\ndriver = \"openai-responses\"\n{provider}\n\
         [models.\"live/{model}\"]\nasync = \"on\"\n\
         [capabilities.pair]\nnative = \"pair\"\n\
         [capabilities.pair.tools]\n\"p*\" = {{ replay = \"safe\", async = true }}\n"
    );
    let pair = Pair::default();
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let wharf = Wharf::builder()
        .store(store.clone())
        .native(pair.clone())
        .env(move |name| if name == KEY { key.clone() } else { None })
        .build()
        .unwrap();
    let agent = wharf.load(Harness::parse("live.toml", &harness).unwrap(), Default::default()).await.unwrap();
    let session = agent.session("live");
    let mut nobody = ();
    let asked = session.turn(QUESTION, TurnOptions::default(), &mut nobody);
    let result = tokio::time::timeout(TIME_MAX, asked).await.expect("the turn takes too long").unwrap();

    let records = records(&*store, &JournalKey::local("live")).await.unwrap();
    let mut journaled: Vec<(String, String)> = records
        .iter()
        .filter_map(|record| match record {
            Record::CallAccepted { call, .. } => {
                assert!(call.is_async, "{call:?}");
                assert_eq!(matches!(call.payload, Payload::Custom { .. }), call.name.as_str() == "poem", "{call:?}");
                Some((call.name.to_string(), call.text().to_owned()))
            }
            _ => None,
        })
        .collect();
    let mut seen: Vec<(String, String)> =
        pair.0.lock().unwrap().iter().map(|call| (call.tool.to_string(), call.input.clone())).collect();
    journaled.sort();
    seen.sort();
    assert_eq!(seen, journaled);
    let [(first, number), (second, poem)] = &seen[..] else { panic!("each tool once: {seen:?}") };
    assert_eq!((first.as_str(), second.as_str()), ("parcel", "poem"));
    assert_eq!(serde_json::from_str::<Value>(number).unwrap(), json!({ "number": 7 }));
    assert!(!poem.is_empty());
    assert!(result.is_success(), "{result:?}");
    assert!(result.text.contains(PARCEL) && result.text.contains(POEM), "{result:?}");
    assert!(result.llm_calls <= RESPONSES_MAX, "{result:?}");
    assert_eq!(result.tool_calls, 2);
    result
}

// covers R1
#[tokio::test]
#[ignore = "asks a real service and costs money: export OPENAI_API_KEY, then run with --ignored"]
async fn live_openai_both_tools_once() {
    let Ok(key) = std::env::var(KEY) else {
        wharf_tests::skip("OPENAI_API_KEY is not set");
        return;
    };
    let model = std::env::var(OTHER_MODEL).unwrap_or_else(|_| MODEL.to_owned());
    let result = both_tools_once(&format!("api_key = {{ env = \"{KEY}\" }}"), &model, Some(key)).await;
    let TurnResult { text, usage, llm_calls, tool_calls, .. } = result;
    let summary = format!("{model}: {llm_calls} responses, {tool_calls} calls, {usage}\n{text}");
    // The test has passed whether or not anybody can read it.
    let _ = writeln!(std::io::stderr(), "{summary}");
}

// covers R1
#[tokio::test]
async fn what_is_asked_of_a_real_service_can_be_done() {
    let script = Script::new("both tools")
        .step(
            Answer::new()
                .async_function_call("call_1", "parcel", "{\"number\":7}")
                .async_custom_call("call_2", "poem", "A quay at night,\na lamp.\n")
                .expect(Expect::new().no_previous().tool("parcel").tool("poem").stream(true)),
        )
        .step(
            Answer::new()
                .text(format!("The parcel gave {PARCEL}, the poem {POEM}."))
                .expect(Expect::new().latest().outputs(["call_1", "call_2"])),
        );
    let server = Server::start(script, Options::default()).await.unwrap();
    let result = both_tools_once(&format!("base_url = \"{}\"", server.base_url()), "m", None).await;
    assert_eq!((result.llm_calls, result.tool_calls), (2, 2));
    let body = server.requests()[0].json().cloned().unwrap();
    assert_eq!((&body["max_output_tokens"], &body["reasoning"]["effort"]), (&json!(1000), &json!("low")));
    assert_eq!(server.violations(), []);
}
