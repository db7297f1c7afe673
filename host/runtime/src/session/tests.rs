//! Whole turns against a provider in this process: what the next request has of everything that was before. Each test
//! compares whole inputs as they would go over the wire.

#![allow(clippy::unwrap_used)] // a test that fails here fails as it should

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use futures::future::BoxFuture;
use serde_json::{Value, json};
use wharf_core::harness::{Harness, ModelRef};
use wharf_core::model::{Fate, Request, RequestError, Retrieved, Role};
use wharf_core::record::Reconcile;
use wharf_core::tool::{Claims, Content, Definition, InputFormat, envelope};
use wharf_core::transcript::Message;
use wharf_core::{Error, ErrorKind, ResponseId};
use wharf_provider::responses::Decoder;
use wharf_provider::{Driver, Drivers, EventStream, ProviderConfig, Support};
use wharf_store::{MemoryStore, Store};

use super::{Session, TurnOptions, TurnStatus};
use crate::builder::Wharf;
use crate::native::{About, NativeCall, NativeCapability, NativeError};

/// A provider that makes real bodies and answers from a list.
struct Provider {
    real: Arc<dyn Driver>,
    replies: Mutex<VecDeque<Reply>>,
    sent: Mutex<Vec<Value>>,
}

#[derive(Clone)]
enum Reply {
    /// A whole response.
    Answer(Value),
    /// All of it but the terminal event.
    Broken(Value),
    /// 429.
    Refused,
}

impl Provider {
    /// Its model `m` takes async calls and is continued, its model `old` has neither; both answer questions by id.
    fn new(name: &str, replies: impl IntoIterator<Item = Reply>) -> Arc<Self> {
        let mut config = ProviderConfig::new(name, "openai-responses");
        config.base_url = Some("http://127.0.0.1:9".to_owned()); // nothing is sent there
        let models = json!({ "m": { "async": "on", "retrieval": true }, "old": { "async": "off", "retrieval": true } });
        config.options.insert("models".to_owned(), models);
        let real = Drivers::builtin().connect(config).unwrap();
        Arc::new(Self { real, replies: Mutex::new(replies.into_iter().collect()), sent: Mutex::default() })
    }

    /// Of each request: what it goes on from, and its whole input; or the response that was asked for.
    fn sent(&self) -> Vec<Value> {
        self.sent.lock().unwrap().clone()
    }

    /// The last one's.
    fn last(&self) -> Value {
        self.sent().pop().unwrap()
    }

    fn reply(&self, reply: Reply) {
        self.replies.lock().unwrap().push_back(reply);
    }
}

impl Driver for Provider {
    fn name(&self) -> &str {
        self.real.name()
    }

    fn protocol(&self) -> &str {
        self.real.protocol()
    }

    fn support(&self, model: &str) -> Support {
        self.real.support(model)
    }

    fn check(&self, request: &Request) -> Result<(), Error> {
        self.real.check(request)
    }

    fn body(&self, request: &Request) -> Result<Value, Error> {
        self.real.body(request)
    }

    fn open(&self, request: Request) -> BoxFuture<'static, Result<EventStream, RequestError>> {
        let body = self.real.body(&request).unwrap();
        self.sent.lock().unwrap().push(json!([body["previous_response_id"], body["input"]]));
        let opened = match self.replies.lock().unwrap().pop_front().expect("one request more than replies") {
            Reply::Refused => Err(RequestError::new(Fate::Refused, Error::provider("too many requests"))),
            Reply::Answer(answer) => Ok(Decoder::new().whole(&answer).unwrap()),
            Reply::Broken(answer) => {
                let mut events = Decoder::new().whole(&answer).unwrap();
                events.pop();
                Ok(events)
            }
        };
        Box::pin(async move {
            let events = opened?;
            Ok(Box::pin(futures::stream::iter(events.into_iter().map(Ok))) as EventStream)
        })
    }

    fn retrieve(&self, id: &ResponseId) -> BoxFuture<'static, Result<Retrieved, RequestError>> {
        self.sent.lock().unwrap().push(json!(format!("GET {id}")));
        Box::pin(async { Ok(Retrieved::NotFound) })
    }

    fn cancel(&self, id: &ResponseId) -> BoxFuture<'static, Result<Retrieved, RequestError>> {
        self.retrieve(id)
    }
}

/// Tools whose calls end at once: `note` sync and never again, `look` async.
struct Desk;

impl NativeCapability for Desk {
    fn about(&self) -> About {
        About { id: "desk".to_owned(), ..About::default() }
    }

    fn tools(&self, _config: &Value) -> Result<Vec<Definition>, Error> {
        let tool = |name: &str| Definition {
            name: name.into(),
            title: None,
            category: None,
            description: String::new(),
            input: InputFormat::JsonSchema(json!({ "type": "object" })),
            output_schema: None,
            claims: Claims::default(),
        };
        Ok(["note", "look"].map(tool).to_vec())
    }

    fn call(&self, call: NativeCall) -> BoxFuture<'static, Result<Vec<Content>, NativeError>> {
        Box::pin(async move { Ok(vec![Content::Text(did(&call.tool, &call.input))]) })
    }
}

fn did(tool: impl std::fmt::Display, input: &str) -> String {
    format!("{tool} did {input}")
}

const HARNESS: &str = r#"
[harness]
name = "desk"
model = "one/m"
resend_lost = 0

[capabilities.desk]
native = "desk"

[capabilities.desk.tools]
note = { replay = "never", async = false }
look = { replay = "safe", async = true }
"#;

/// A fresh session with these providers.
async fn session(providers: &[&Arc<Provider>]) -> Session {
    session_in(Arc::new(MemoryStore::new()), providers).await
}

/// The session in this store, with these providers in the harness.
async fn session_in(store: Arc<dyn Store>, providers: &[&Arc<Provider>]) -> Session {
    let builder = Wharf::builder().store(store).native(Desk);
    let builder =
        providers.iter().fold(builder, |builder, provider| builder.provider(provider.name(), (*provider).clone()));
    let harness = Harness::parse("harness.toml", HARNESS).unwrap();
    builder.build().unwrap().load(harness, Default::default()).await.unwrap().session("s1")
}

fn on(model: &str) -> TurnOptions {
    TurnOptions { model: Some(ModelRef::parse(model).unwrap()), ..TurnOptions::default() }
}

async fn turn(session: &Session, model: &str, input: &str) -> Result<TurnStatus, Error> {
    session.turn(input, on(model), &mut ()).await.map(|result| result.status)
}

async fn abandon(session: &Session, model: &str) {
    let result = session.reconcile(Reconcile::Abandon, "op", on(model), &mut ()).await.unwrap();
    assert_eq!(result.status, TurnStatus::Abandoned);
}

fn answer(id: &str, output: impl IntoIterator<Item = Value>) -> Reply {
    Reply::Answer(response(id, output))
}

fn response(id: &str, output: impl IntoIterator<Item = Value>) -> Value {
    let output: Vec<Value> = output.into_iter().collect();
    json!({ "id": id, "object": "response", "status": "completed", "output": output })
}

fn said(text: &str) -> Value {
    json!({
        "type": "message", "role": "assistant", "status": "completed",
        "content": [{ "type": "output_text", "text": text, "annotations": [] }],
    })
}

fn call(id: &str, tool: &str, arguments: &str) -> Value {
    json!({ "type": "function_call", "status": "completed", "call_id": id, "name": tool, "arguments": arguments })
}

/// A call as it is sent back.
fn called(id: &str, tool: &str, arguments: &str) -> Value {
    json!({ "type": "function_call", "call_id": id, "name": tool, "arguments": arguments })
}

fn output(id: &str, text: &str) -> Value {
    json!({ "type": "function_call_output", "call_id": id, "output": text })
}

fn noted(id: &str) -> Value {
    output(id, &envelope(Ok(&[Content::Text(did("note", "{}"))])))
}

/// A request that goes on from nothing.
fn fresh(input: Vec<Value>) -> Value {
    json!([null, input])
}

fn user(text: &str) -> Value {
    json!({ "type": "message", "role": "user", "content": text })
}

// covers L60
// PROV-12
#[tokio::test]
async fn session_lives_on_after_an_abandoned_turn() {
    for (model, id) in [("one/m", Some("r1")), ("one/old", None)] {
        let replies = [answer("r1", [call("c1", "note", "{}")]), Reply::Refused];
        let one = Provider::new("one", replies);
        let session = session(&[&one]).await;
        assert_eq!(turn(&session, model, "first").await.unwrap_err().kind, ErrorKind::Provider);
        abandon(&session, model).await;
        // A request that is refused told nobody.
        one.reply(Reply::Refused);
        turn(&session, model, "second").await.unwrap_err();
        one.reply(answer("r2", [call("c2", "note", "{}")]));
        one.reply(answer("r3", [said("done")]));
        session.resume(on(model), &mut ()).await.unwrap();
        let history = [user("first"), called("c1", "note", "{}")];
        let sent = match id {
            Some(_) => [
                json!([null, [user("first")]]),
                json!(["r1", [noted("c1")]]),
                json!(["r1", [noted("c1"), user("second")]]),
                json!(["r1", [noted("c1"), user("second")]]),
                json!(["r2", [noted("c2")]]),
            ],
            None => {
                let second = [&history[..], &[noted("c1"), user("second")]].concat();
                [
                    json!([null, [user("first")]]),
                    fresh([&history[..], &[noted("c1")]].concat()),
                    json!([null, second]),
                    json!([null, second]),
                    fresh([&second[..], &[called("c2", "note", "{}"), noted("c2")]].concat()),
                ]
            }
        };
        assert_eq!(one.sent(), sent, "{model}");
        // Once.
        one.reply(answer("r4", [said("ok")]));
        assert_eq!(turn(&session, model, "third").await, Ok(TurnStatus::Completed));
        match id {
            Some(_) => assert_eq!(one.last(), json!(["r3", [user("third")]])),
            None => assert_eq!(one.last()[1].to_string().matches("function_call_output").count(), 2),
        }
    }
}

fn reasoning(id: &str) -> Value {
    json!({ "type": "reasoning", "id": id, "status": "completed", "summary": [], "encrypted_content": "sealed" })
}

/// A text of the model as any model reads it.
fn text(text: &str) -> Value {
    json!({ "type": "message", "role": "assistant", "content": text })
}

// covers O20, N1
// PROV-11
#[tokio::test]
async fn response_is_continued_at_its_own_provider_and_opaque_items_go_to_their_maker_alone() {
    let thought = |id: &str, say: &str| [reasoning(id), said(say)];
    let one = Provider::new("one", [answer("a1", thought("rs_a1", "A1"))]);
    let two = Provider::new("two", [answer("b1", thought("rs_b1", "B1")), answer("b2", [said("B2")])]);
    let session = session(&[&one, &two]).await;
    turn(&session, "one/m", "1").await.unwrap();
    turn(&session, "two/m", "2").await.unwrap();
    turn(&session, "two/m", "3").await.unwrap();
    let second = [user("1"), text("A1"), user("2")];
    assert_eq!(two.sent(), [fresh(second.to_vec()), json!(["b1", [user("3")]])]);
    for reply in [answer("a2", [said("A2")]), answer("a3", [said("A3")]), answer("a4", [said("A4")])] {
        one.reply(reply);
    }
    turn(&session, "one/m", "4").await.unwrap();
    turn(&session, "one/m", "5").await.unwrap();
    turn(&session, "one/old", "6").await.unwrap();
    let before = [text("A1"), user("2"), text("B1"), user("3"), text("B2"), user("4")];
    let after = [text("A2"), user("5"), text("A3"), user("6")];
    let sent = [
        fresh(vec![user("1")]),
        fresh([&[user("1"), reasoning("rs_a1")], &before[..]].concat()),
        json!(["a2", [user("5")]]),
        // Another model of the provider does not know what the first one thought.
        fresh([&[user("1")], &before[..], &after[..]].concat()),
    ];
    assert_eq!(one.sent(), sent);
}

// covers O20
#[tokio::test]
async fn delivery_for_a_response_of_another_provider_goes_with_the_whole_history() {
    let one = Provider::new("one", [answer("a1", [reasoning("rs_a1"), call("c1", "note", "{}")]), Reply::Refused]);
    let two = Provider::new("two", [answer("b1", [said("B1")])]);
    let session = session(&[&one, &two]).await;
    turn(&session, "one/m", "1").await.unwrap_err();
    let result = session.resume(on("two/m"), &mut ()).await.unwrap();
    assert_eq!(result.status, TurnStatus::Completed);
    assert_eq!(two.sent(), [fresh(vec![user("1"), called("c1", "note", "{}"), noted("c1")])]);
}

// covers G15, G16
#[tokio::test]
async fn provider_of_the_broken_response_is_asked_what_became_of_it() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let one = Provider::new("one", [Reply::Broken(response("a1", [said("A1")]))]);
    let two = Provider::new("two", []);
    let both = session_in(store.clone(), &[&one, &two]).await;
    let uncertain = |error: Error| {
        assert_eq!(error.kind, ErrorKind::Store);
        assert!(error.message.starts_with("it is not known whether the provider accepted the last request"), "{error}");
    };
    uncertain(turn(&both, "one/m", "1").await.unwrap_err());
    uncertain(both.resume(on("two/m"), &mut ()).await.unwrap_err());
    let asked = json!("GET a1");
    assert_eq!(one.sent(), [fresh(vec![user("1")]), asked.clone(), asked]);
    // Nobody else knows.
    let without = session_in(store, &[&two]).await;
    uncertain(without.resume(on("two/m"), &mut ()).await.unwrap_err());
    assert_eq!(two.sent(), [json!(null); 0]);
}

fn noting(id: &str, phase: &str, say: &str) -> Value {
    let content = [json!({ "type": "output_text", "text": say, "annotations": [] })];
    json!({ "type": "message", "id": id, "role": "assistant", "status": "completed", "phase": phase, "content": content })
}

// covers Z9
#[tokio::test]
async fn phase_of_a_text_goes_back_to_the_model_that_gave_it_and_others_get_the_text() {
    let comment = noting("msg_1", "commentary", "I look.");
    let one = Provider::new("one", [answer("a1", [comment.clone()]), answer("a2", [said("A2")])]);
    let two = Provider::new("two", [answer("b1", [said("B1")])]);
    let session = session(&[&one, &two]).await;
    turn(&session, "one/old", "1").await.unwrap();
    turn(&session, "one/old", "2").await.unwrap();
    assert_eq!(one.last(), fresh(vec![user("1"), comment, user("2")]));
    turn(&session, "two/m", "3").await.unwrap();
    assert_eq!(two.last(), fresh(vec![user("1"), text("I look."), user("2"), text("A2"), user("3")]));
    // People read it too.
    let shown = |role, text: &str| Message::Text { role, text: text.to_owned() };
    let messages = session.messages().await.unwrap();
    assert_eq!(messages[..2], [shown(Role::User, "1"), shown(Role::Assistant, "I look.")]);
}

// covers A3
#[tokio::test]
async fn call_whose_async_mark_is_no_boolean_is_answered_as_a_sync_one() {
    for mark in [Value::Null, json!("no")] {
        let mut marked = call("c1", "note", "{}");
        marked["async"] = mark;
        let one = Provider::new("one", [answer("a1", [marked]), answer("a2", [said("A2")])]);
        let session = session(&[&one]).await;
        assert_eq!(turn(&session, "one/old", "1").await, Ok(TurnStatus::Completed));
        assert_eq!(one.last(), fresh(vec![user("1"), called("c1", "note", "{}"), noted("c1")]));
    }
}

// covers L66
#[tokio::test]
async fn question_is_not_asked_again_after_an_answer_that_was_cut() {
    for (model, next) in [("one/m", json!(["r1", []])), ("one/old", fresh(vec![user("pay"), text("half")]))] {
        let mut cut = response("r1", [said("half")]);
        cut["status"] = json!("incomplete");
        cut["incomplete_details"] = json!({ "reason": "max_output_tokens" });
        let one = Provider::new("one", [Reply::Answer(cut), answer("r2", [said("whole")])]);
        let session = session(&[&one]).await;
        assert!(matches!(turn(&session, model, "pay").await, Ok(TurnStatus::Paused(_))));
        session.resume(on(model), &mut ()).await.unwrap();
        assert_eq!(one.sent(), [fresh(vec![user("pay")]), next], "{model}");
    }
}

// covers L59
#[tokio::test]
async fn notice_of_a_lost_answer_stays_in_the_history() {
    let harness = HARNESS.replace("resend_lost = 0", "resend_lost = 1");
    let lost = Reply::Broken(response(
        "a1",
        [json!({
            "type": "function_call", "status": "completed", "call_id": "c1", "name": "look", "arguments": "{}", "async": true,
        })],
    ));
    // Without retrieval and with the whole history the request is lost, and is sent again.
    let one = Provider::new(
        "one",
        [lost, answer("a2", [call("c2", "note", "{}")]), answer("a3", [said("A3")]), answer("a4", [said("A4")])],
    );
    let builder = Wharf::builder().native(Desk).provider("one", one.clone());
    let session = builder
        .build()
        .unwrap()
        .load(Harness::parse("h.toml", &harness).unwrap(), Default::default())
        .await
        .unwrap()
        .session("s1");
    assert_eq!(turn(&session, "one/m", "1").await, Ok(TurnStatus::Completed));
    let told = one.sent()[2].clone();
    assert!(
        told[1][1]["content"].as_str().unwrap().starts_with("[host] An earlier answer of yours was lost"),
        "{told}"
    );
    // Where all is sent again it is still there, at its place.
    turn(&session, "one/old", "2").await.unwrap();
    let whole = vec![user("1"), told[1][1].clone(), called("c2", "note", "{}"), noted("c2"), text("A3"), user("2")];
    assert_eq!(one.last(), fresh(whole));
}

// covers Q9
#[tokio::test]
async fn model_that_takes_no_async_results_is_not_asked_while_such_calls_are_open() {
    let looks = json!({
        "type": "function_call", "status": "completed", "call_id": "c1", "name": "look", "arguments": "{}", "async": true,
    });
    let one = Provider::new("one", [answer("a1", [looks, call("c2", "note", "{}")]), Reply::Refused]);
    let session = session(&[&one]).await;
    turn(&session, "one/m", "1").await.unwrap_err();
    let refused = session.resume(on("one/old"), &mut ()).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::Config);
    assert_eq!(refused.message, "model \"one/old\" takes no results of async calls, and such calls are open");
    assert_eq!(one.sent().len(), 2, "nothing was sent");
    one.reply(answer("a2", [said("A2")]));
    assert_eq!(session.resume(on("one/m"), &mut ()).await.unwrap().status, TurnStatus::Completed);
}
