//! The parts that an embedder puts together (Z1 to Z8, Z12): capabilities, drivers, providers, models, stores, ids.

use std::any::TypeId;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use serde_json::{Value, json};
use wharf::core::harness::{Harness, ModelRef};
use wharf::core::model::{Completion, Outcome, Request, RequestError, Retrieved, StreamEvent};
use wharf::core::record::Record;
use wharf::core::tool::{Claims, InputFormat};
use wharf::core::{BlobDigest, CallId, Error, ErrorKind, HarnessId, OrgId, ResponseId, SessionId, ToolName, TurnId};
use wharf::native::{NativeCapability, Registry};
use wharf::provider::{Driver, Drivers, EventStream, ProviderConfig, Support};
use wharf::seams::{Seams, Task, TokioSeams};
use wharf::store::{JournalKey, MemoryStore, SqliteStore, Store};
use wharf::{Builder, CapabilityStatus, TurnOptions, TurnResult, TurnStatus, Wharf, records};
use wharf_simulate::script::Usage;
use wharf_simulate::{Answer, Expect, HttpReply, Script, Step};

use super::kit::{Desk, World, component, function_output, turn, user, within};

fn hello() -> Script {
    Script::new("hello").step(Answer::new().text("Hello.").usage(Usage::new(11, 4)))
}

/// The error of a harness that cannot be loaded.
async fn refused(world: &World, builder: Builder, lines: &str) -> Error {
    match world.try_agent(builder, world.harness(lines)).await {
        Ok(agent) => panic!("loaded: {:?}", agent.reports()),
        Err(error) => {
            assert_eq!(error.kind, ErrorKind::Config, "{error}");
            error
        }
    }
}

// covers Z1
#[tokio::test]
async fn a_capability_that_is_registered_twice_is_named() {
    let twice = Wharf::builder().native(Desk::default()).native(Desk::default()).build();
    let error = twice.err().unwrap();
    assert_eq!((error.kind, error.message.as_str()), (ErrorKind::Config, "capability \"desk\" is registered twice"));
    let mut registry = Registry::default();
    registry.register(Arc::new(Desk::default())).unwrap();
    assert_eq!(registry.register(Arc::new(Desk::default())), Err(error));
}

// covers Z1
#[tokio::test]
async fn a_capability_that_is_not_registered_is_named_with_a_close_one() {
    let world = World::new(hello()).await;
    let lines = "[capabilities.table]\nnative = \"dezk\"\n";
    let error = refused(&world, world.builder().native(Desk::default()), lines).await;
    assert!(error.message.contains("capability \"dezk\" is not registered"), "{error}");
    assert!(error.hint.as_deref().is_some_and(|hint| hint.contains("\"desk\"")), "{error:?}");
    // One that is switched off need not be there.
    let off = world.harness(&format!("{lines}enabled = false\n"));
    assert_eq!(world.agent(world.builder(), off).await.reports(), []);
}

// covers Z2
#[tokio::test]
async fn a_config_that_does_not_fit_is_refused_before_anything_runs() {
    let world = World::new(hello()).await;
    let desk = Desk::default();
    let query = component("query", "query");
    for (lines, what) in [
        (format!("{}config = {{ factor = 0 }}\n", Desk::ENABLED), "desk"),
        (format!("{}config = {{ faktor = 3 }}\n", Desk::ENABLED), "desk"),
        (format!("{query}config = {{ root = 7 }}\n"), "query"),
        (format!("{query}config = {{ rooot = \"/docs\" }}\n"), "query"),
    ] {
        let error = refused(&world, world.builder().native(desk.clone()), &lines).await;
        assert!(error.message.contains(&format!("the config of capability {what:?} does not fit")), "{error}");
        assert!(error.message.starts_with("harness.toml:"), "it says where: {error}");
    }
    // One that takes no config is given none.
    let lines = format!("{}config = {{ unit = \"mile\" }}\n", component("units", "tool-rust"));
    let error = refused(&world, world.builder(), &lines).await;
    assert!(error.message.contains("capability \"units\" takes no config"), "{error}");
    assert_eq!(error.hint.as_deref(), Some("remove the key config from [capabilities.units]"));
    assert_eq!(desk.calls(), []);
    assert_eq!(world.server.requests(), []);
}

// covers Z2
#[tokio::test]
async fn a_capability_is_enabled_with_or_without_config() {
    for (config, output) in [("", 10), ("config = {}\n", 10), ("config = { factor = 7 }\n", 35)] {
        let script = Script::new("a product")
            .step(Answer::new().function_call("call_1", "multiply", "{\"n\":5}"))
            .step(Answer::new().text("There."));
        let world = World::new(script).await;
        let agent = world.desk(&Desk::default(), &format!("{}{config}", Desk::ENABLED)).await;
        turn(&agent.session("s1"), "start").await;
        let expected = function_output("call_1", &format!("{{\"result\":{output},\"error\":null,\"images\":[]}}"));
        assert_eq!(world.wire()[1]["input"][2], expected);
    }
}

/// A driver of an embedder's own: it needs no network and says what it was asked.
struct Parrot {
    name: String,
    base_url: Option<String>,
}

impl Driver for Parrot {
    fn name(&self) -> &str {
        &self.name
    }

    fn protocol(&self) -> &str {
        "parrot"
    }

    fn support(&self, _model: &str) -> Support {
        Support { async_calls: false, continuation: false, retrieval: false, cancel: false, deferred_tools: false }
    }

    fn check(&self, _request: &Request) -> Result<(), Error> {
        Ok(())
    }

    fn body(&self, request: &Request) -> Result<Value, Error> {
        Ok(json!({ "model": request.model }))
    }

    fn open(&self, request: Request) -> BoxFuture<'static, Result<EventStream, RequestError>> {
        let text = format!("{} at {:?} for {}", self.name, self.base_url, request.model);
        let completion = Completion {
            id: Some("parrot_1".into()),
            outcome: Outcome::Completed,
            finish_reason: None,
            usage: None,
            items: Vec::new(),
            text: text.clone(),
            refusal: None,
            model: None,
        };
        let events = [Ok(StreamEvent::Text(text)), Ok(StreamEvent::Completed(completion))];
        Box::pin(async move { Ok(Box::pin(futures::stream::iter(events)) as EventStream) })
    }

    fn retrieve(&self, _id: &ResponseId) -> BoxFuture<'static, Result<Retrieved, RequestError>> {
        Box::pin(async { Ok(Retrieved::NotFound) })
    }

    fn cancel(&self, _id: &ResponseId) -> BoxFuture<'static, Result<Retrieved, RequestError>> {
        Box::pin(async { Ok(Retrieved::NotFound) })
    }
}

fn with_parrot() -> Drivers {
    let mut drivers = Drivers::builtin();
    drivers.register("parrot", |config: ProviderConfig| {
        Ok(Arc::new(Parrot { name: config.name, base_url: config.base_url }))
    });
    drivers
}

// covers Z3
#[tokio::test]
async fn a_driver_of_ones_own_serves_the_providers_that_name_it() {
    let world = World::new(hello()).await;
    let lines = "[providers.polly]\ndriver = \"parrot\"\nbase_url = \"https://polly.example/v1\"\n";
    let harness = world.harness_with("model = \"polly/green\"", lines);
    let session = world.agent(world.builder().drivers(with_parrot()), harness.clone()).await.session("s1");
    let said = "polly at Some(\"https://polly.example/v1\") for green";
    assert_eq!(turn(&session, "start").await.text, said);
    assert_eq!(world.server.requests(), []);

    // Without it the name is unknown, and those that are known are listed.
    let session = world.agent(world.builder(), harness).await.session("s2");
    let error = within("the turn", session.turn("start", TurnOptions::default(), &mut ())).await.unwrap_err();
    assert_eq!(
        (error.kind, error.message.as_str(), error.hint.as_deref()),
        (
            ErrorKind::Config,
            "provider \"polly\" names the unknown driver \"parrot\"",
            Some("drivers: \"openai-responses\"")
        )
    );
    assert_eq!(world.records(&session).await, [], "nothing was begun");
}

// covers Z4
#[tokio::test]
async fn a_provider_is_a_driver_an_address_and_credentials() {
    let world = World::new(hello().api_key("sk-one")).await;
    let harness = || {
        let url = world.server.base_url();
        let text = format!(
            "[harness]\nname = \"h\"\nmodel = \"sim/m\"\n[providers.sim]\ndriver = \"openai-responses\"\n\
             base_url = \"{url}\"\napi_key = {{ env = \"SIM_KEY\" }}\n"
        );
        Harness::parse("harness.toml", &text).unwrap()
    };
    // The library reads no environment by itself.
    let session = world.agent(world.builder(), harness()).await.session("s1");
    let error = within("the turn", session.turn("start", TurnOptions::default(), &mut ())).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Config);
    assert!(error.message.contains("environment variable SIM_KEY is not set"), "{error}");
    assert_eq!(world.server.requests(), []);

    let builder = world.builder().env(|name| (name == "SIM_KEY").then(|| "sk-one\n".to_owned()));
    let session = world.agent(builder, harness()).await.session("s1");
    assert_eq!(turn(&session, "start").await.text, "Hello.");
    assert!(!format!("{:?}", world.records(&session).await).contains("sk-one"));

    // A wrong key is the provider's refusal.
    let builder = world.builder().env(|_| Some("sk-two".to_owned()));
    let session = world.agent(builder, harness()).await.session("s2");
    let error = within("the turn", session.turn("start", TurnOptions::default(), &mut ())).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Provider, "{error}");
    assert!(!format!("{error:?}").contains("sk-two"), "{error:?}");
}

// covers Z4
#[tokio::test]
async fn a_model_on_an_unknown_provider_is_refused_with_the_known_ones() {
    let world = World::new(hello()).await;
    let agent = world.agent(world.builder(), world.harness("")).await;
    let model = Some(ModelRef::parse("simm/m").unwrap());
    let options = TurnOptions { model, ..TurnOptions::default() };
    let session = agent.session("s1");
    let error = within("the turn", session.turn("start", options, &mut ())).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Config);
    let told = format!("{} {}", error.message, error.hint.as_deref().unwrap_or_default());
    assert!(told.contains("\"simm\"") && told.contains("\"sim\""), "{told}");
    assert_eq!((world.server.requests(), world.records(&session).await), (vec![], vec![]));
}

// covers Z5
#[tokio::test]
async fn the_model_is_the_turns_before_the_sessions_before_the_harnesss_before_the_default() {
    let answer = || Answer::new().text("Hello.");
    let world = World::new((0..5).fold(Script::new("models"), |script, _| script.step(answer()))).await;
    let model = |name: &str| ModelRef::parse(name).unwrap();
    let default = || world.builder().default_model(model("sim/of-the-default"));
    let nobodys = world.agent(world.builder(), world.harness_with("", "")).await.session("s0");
    let error = within("the turn", nobodys.turn("start", TurnOptions::default(), &mut ())).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Config, "{error}");

    turn(&world.agent(default(), world.harness_with("", "")).await.session("s1"), "start").await;
    let agent = world.agent(default(), world.harness_with("model = \"sim/of-the-harness\"", "")).await;
    turn(&agent.session("s2"), "start").await;
    let session = agent.session("s3").with_model(model("sim/of-the-session"));
    turn(&session, "start").await;
    let options = TurnOptions { model: Some(model("sim/of-the-turn")), ..TurnOptions::default() };
    within("the turn", session.turn("start", options, &mut ())).await.unwrap();
    // What a turn says holds for this turn alone.
    turn(&session, "start").await;
    let models: Vec<Value> = world.bodies().iter().map(|body| body["model"].clone()).collect();
    assert_eq!(models, ["of-the-default", "of-the-harness", "of-the-session", "of-the-turn", "of-the-session"]);
}

/// Tokio's seams with ids that can be told in advance.
struct Counting {
    tokio: TokioSeams,
    next: AtomicU64,
}

impl Seams for Counting {
    fn spawn(&self, name: &'static str, task: BoxFuture<'static, ()>) -> Task {
        self.tokio.spawn(name, task)
    }

    fn now(&self) -> Duration {
        self.tokio.now()
    }

    fn wall_ms(&self) -> u64 {
        self.tokio.wall_ms()
    }

    fn sleep(&self, time: Duration) -> BoxFuture<'static, ()> {
        self.tokio.sleep(time)
    }

    fn fresh(&self) -> String {
        format!("id-{}", self.next.fetch_add(1, Ordering::SeqCst))
    }
}

// covers Z6
#[tokio::test]
async fn the_parts_work_by_themselves_and_each_is_replaced_alone() {
    let world =
        World::new((0..5).fold(Script::new("parts"), |script, _| script.step(Answer::new().text("Hello.")))).await;
    let run = async |builder: Builder| {
        let session = world.agent(builder, world.harness("")).await.new_session();
        (session.id().to_string(), turn(&session, "start").await.text)
    };

    // With no part given, a session lives in the memory of its process: another one does not know it.
    let wharf = Wharf::builder().build().unwrap();
    let agent = wharf.load(world.harness(""), world.surroundings()).await.unwrap();
    let session = agent.new_session();
    assert_eq!(turn(&session, "start").await.text, "Hello.");
    assert_eq!(session.messages().await.unwrap().len(), 2);
    let other = Wharf::builder().build().unwrap().load(world.harness(""), world.surroundings()).await.unwrap();
    assert_eq!(other.session(session.id().clone()).messages().await.unwrap(), []);

    // The store alone.
    let folder = world.path("journal");
    let (id, text) = run(Wharf::builder().store(Arc::new(SqliteStore::open(&folder).unwrap()))).await;
    assert_eq!(text, "Hello.");
    let reopened = SqliteStore::open(&folder).unwrap();
    assert!(!records(&reopened, &JournalKey::local(id)).await.unwrap().is_empty());

    // Time, ids and tasks alone.
    let counting = Counting { tokio: TokioSeams::current(), next: AtomicU64::new(40) };
    assert_eq!(run(Wharf::builder().seams(Arc::new(counting))).await, ("id-40".to_owned(), "Hello.".to_owned()));

    // A provider alone, in the place of the harness's.
    let parrot = Parrot { name: "sim".to_owned(), base_url: None };
    assert_eq!(run(Wharf::builder().provider("sim", Arc::new(parrot))).await.1, "sim at None for m");

    // The drivers alone, and the address alone.
    assert_eq!(run(Wharf::builder().drivers(with_parrot())).await.1, "Hello.");
    let elsewhere = World::new(hello()).await;
    assert_eq!(run(Wharf::builder().provider_address("sim", elsewhere.server.base_url())).await.1, "Hello.");
    assert_eq!((world.server.requests().len(), elsewhere.server.requests().len()), (4, 1));

    // How components run, alone.
    let slow = world.harness(&component("query", "query"));
    let agent = world.agent(Wharf::builder().sandbox(super::kit::sandbox()), slow).await;
    assert!(matches!(&agent.reports()[0].status, CapabilityStatus::Loaded { tools, .. } if tools == &["query"]));
}

// covers Z7
#[tokio::test]
async fn ids_are_the_callers_or_fresh_and_each_kind_is_a_type() {
    let world =
        World::new((0..3).fold(Script::new("ids"), |script, _| script.step(Answer::new().text("Hello.")))).await;
    let agent = world.agent(world.builder(), world.harness("")).await;
    assert_eq!(agent.harness().name(), "test");
    let given = agent.session("tuesday");
    let (one, other) = (agent.new_session(), agent.new_session());
    assert_eq!(given.id(), &SessionId::new("tuesday"));
    assert!(one.id() != other.id() && !one.id().is_blank(), "{} {}", one.id(), other.id());

    let mut turns = Vec::new();
    for session in [&given, &one, &other] {
        turn(session, "start").await;
        let records = world.records(session).await;
        turns.extend(records.iter().find_map(|record| match record {
            Record::TurnStarted { turn, .. } => Some(turn.clone()),
            _ => None,
        }));
    }
    turns.sort_by_key(|turn| turn.as_str().to_owned());
    turns.dedup();
    assert_eq!(turns.len(), 3, "turns have ids of their own: {turns:?}");

    let mut kinds = vec![
        TypeId::of::<BlobDigest>(),
        TypeId::of::<CallId>(),
        TypeId::of::<HarnessId>(),
        TypeId::of::<OrgId>(),
        TypeId::of::<ResponseId>(),
        TypeId::of::<SessionId>(),
        TypeId::of::<ToolName>(),
        TypeId::of::<TurnId>(),
    ];
    kinds.sort();
    kinds.dedup();
    assert_eq!(kinds.len(), 8);
}

// covers Z8
#[tokio::test]
async fn a_text_turn_gives_its_text_usage_and_counts() {
    let world = World::new(hello()).await;
    let session = world.agent(world.builder(), world.harness("")).await.session("s1");
    let expected = TurnResult {
        status: TurnStatus::Completed,
        text: "Hello.".to_owned(),
        refusal: None,
        usage: json!({
            "fresh_input": 11, "cache_read": 0, "cache_write": 0, "visible_output": 4, "reasoning": 0, "total": 15,
        }),
        llm_calls: 1,
        tool_calls: 0,
    };
    let result = turn(&session, "start").await;
    assert_eq!(result, expected);
    assert!(result.is_success());
    let body = &world.bodies()[0];
    assert_eq!((&body["input"], &body["instructions"]), (&json!([user("start")]), &json!("Do what is asked.")));
}

// covers Z8, Q17
#[tokio::test]
async fn a_refused_turn_is_completed_and_no_success() {
    let world = World::new(Script::new("no").step(Answer::new().refusal("I will not."))).await;
    let session = world.agent(world.builder(), world.harness("")).await.session("s1");
    let result = turn(&session, "start").await;
    assert_eq!(
        (&result.status, result.text.as_str(), result.refusal.as_deref(), result.is_success()),
        (&TurnStatus::Completed, "", Some("I will not."), false)
    );
    assert_eq!(within("resuming", session.resume(TurnOptions::default(), &mut ())).await.unwrap(), result);
}

// covers Z8, G14
#[tokio::test]
async fn a_turn_that_fails_gives_its_error_and_goes_on_when_it_is_resumed() {
    let refusal = HttpReply::error(400, "invalid_prompt", "The prompt is no good.");
    let script = Script::new("no").step(Step::from(refusal)).step(Answer::new().text("Now it is."));
    let world = World::new(script).await;
    let session = world.agent(world.builder(), world.harness("")).await.session("s1");
    let error = within("the turn", session.turn("start", TurnOptions::default(), &mut ())).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Provider);
    assert!(error.message.contains("The prompt is no good."), "{error}");
    let result = within("resuming", session.resume(TurnOptions::default(), &mut ())).await.unwrap();
    assert_eq!((result.text.as_str(), result.llm_calls), ("Now it is.", 1));
    assert_eq!(world.wire()[0], world.wire()[1]);
}

// covers Z11, Z12
#[tokio::test]
async fn what_a_capability_says_for_the_instructions_is_in_each_request_framed() {
    let script = Script::new("instructions")
        .step(Answer::new().function_call("call_1", "multiply", "{\"n\":1}").expect(Expect::new().tool("multiply")))
        .step(Answer::new().text("Two."));
    let world = World::new(script).await;
    let agent = world.desk(&Desk::default(), Desk::ENABLED).await;
    let instructions =
        "Do what is asked.\n\n[capability desk]\n> The desk is open all day.\n[end of capability desk]".to_owned();
    assert_eq!(agent.instructions(), instructions);
    turn(&agent.session("s1"), "start").await;
    let sent: Vec<Value> = world.bodies().iter().map(|body| body["instructions"].clone()).collect();
    assert_eq!(sent, [instructions.as_str(), instructions.as_str()]);

    // The members of a capability and of a tool.
    let about = Desk::default().about();
    let texts = [&about.id, &about.title, &about.description, &about.instructions];
    assert_eq!(texts, ["desk", "Desk", "Tools of the tests.", "The desk is open all day."]);
    assert_eq!(Desk::default().config_schema().unwrap()["type"], "object");
    let shown = agent.tools().get("multiply").unwrap().shown();
    let words = (shown.title.as_deref(), shown.description.as_str(), shown.category.as_deref());
    assert_eq!(words, (Some("Tool multiply"), "Does multiply.", Some("desk")));
    assert!(matches!(shown.input, InputFormat::JsonSchema(_)));
    assert_eq!((&shown.output_schema, shown.claims), (&None, Claims::default()));
    // People's words are not the model's.
    let offer = &world.bodies()[0]["tools"][0];
    let mut members: Vec<&String> = offer.as_object().unwrap().keys().collect();
    members.sort();
    assert_eq!(members, ["description", "name", "parameters", "strict", "type"]);
}

// covers Z16
#[tokio::test]
async fn a_call_that_policy_refuses_is_answered_and_never_run() {
    let lines = format!(
        "[defaults]\nrefuse = \"nothing runs here\"\n\n{}[capabilities.desk.tools]\n\
         \"s*\" = {{ refuse = \"no word\" }}\nsay = {{ refuse = false }}\n",
        Desk::ENABLED
    );
    let script = Script::new("refusals")
        .step(
            Answer::new()
                .function_call("call_1", "multiply", "{\"n\":1}")
                .function_call("call_2", "several", "{\"n\":1}")
                .function_call("call_3", "say", "\"hi\""),
        )
        .step(Answer::new().text("I see."));
    let world = World::new(script).await;
    let desk = Desk::default();
    turn(&world.desk(&desk, &lines).await.session("s1"), "start").await;
    let outputs: Vec<Value> =
        world.wire()[1]["input"].as_array().unwrap()[4..].iter().map(|i| i["output"].clone()).collect();
    // The default, the pattern above it, and the exact name above both.
    assert!(outputs[0].as_str().unwrap().contains("nothing runs here"), "{outputs:?}");
    assert!(outputs[1].as_str().unwrap().contains("no word"), "{outputs:?}");
    assert_eq!(outputs[2], r#"{"result":"\"hi\"","error":null,"images":[]}"#);
    assert_eq!(desk.calls(), [("say".to_owned(), "\"hi\"".to_owned(), 1)]);
    world.lawful();
}

// covers Z6, N7
#[tokio::test]
async fn two_processes_share_what_their_store_keeps() {
    let world = World::new(hello()).await;
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let agent = |store: Arc<dyn Store>| world.agent(Wharf::builder().store(store), world.harness(""));
    turn(&agent(store.clone()).await.session("s1"), "start").await;
    assert_eq!(agent(store).await.session("s1").messages().await.unwrap().len(), 2);
}

// covers Z2, Z12
#[tokio::test]
async fn text_of_a_component_is_in_each_request_framed_and_a_config_that_it_refuses_is_an_error() {
    let script = Script::new("instructions").step(Answer::new().text("I know."));
    let world = World::new(script).await;
    world.write("docs/a.txt", "a");
    let lines = |config: &str| {
        let grants = "[capabilities.files.grants]\nfs = [{ host = \"docs\", guest = \"/docs\" }]\n";
        world.harness(&format!("{}config = {config}\n{grants}", component("files", "files")))
    };
    let agent = world.agent(world.builder(), lines("{ root = \"/docs\", read_only = true }")).await;
    turn(&agent.session("s1"), "start").await;
    let sent = world.bodies()[0]["instructions"].as_str().unwrap().to_owned();
    let (operators, rest) = sent.split_once("\n\n[capability files]\n> ").unwrap();
    let (text, end) = rest.split_once("\n[end of capability files]").unwrap();
    assert_eq!((operators, end), ("Do what is asked.", ""));
    assert!(text.starts_with("The tools read_file, list_files and search_files work on files below /docs."), "{text}");

    let refused = world.try_agent(world.builder(), lines("{ root = 7 }")).await.err().unwrap();
    assert_eq!(refused.kind, ErrorKind::Config);
    let why = "the config of capability \"files\" does not fit: at /root: the value is not of type \"string\"";
    assert_eq!(refused.message, format!("harness.toml:12:10: {why}"));
}
