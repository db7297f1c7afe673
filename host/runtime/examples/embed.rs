//! A product that embeds Wharf: a shop whose assistant looks orders up with a tool of the shop's own, written in Rust, and
//! converts weights with a component that somebody else wrote, in the sandbox.
//!
//! `cargo run --example embed` needs no key and no network: a scripted model in this process plays its part. To ask a real
//! one: `MODEL_URL=https://api.openai.com/v1 MODEL_KEY=… MODEL=NAME cargo run --example embed`.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example shows what it does")]

use std::path::Path;
use std::sync::Arc;

use futures::future::BoxFuture;
use serde_json::{Value, json};
use wharf::core::Error;
use wharf::core::harness::{Harness, ModelRef};
use wharf::core::tool::{Claims, Content, Definition, Failure, FailureKind, InputFormat};
use wharf::native::{About, NativeCall, NativeCapability, NativeError};
use wharf::store::MemoryStore;
use wharf::{CapabilityStatus, Surroundings, TurnOptions, Wharf};
use wharf_simulate::{Answer, Expect, Options, Script, Server};

/// What the operator of the shop decides: the model, the tools, and what they may do.
const HARNESS: &str = r#"
[harness]
name = "shop"
instructions = "Answer questions about orders. Look them up, convert with the tool, and do not guess."
model = "shop/scripted"

[providers.shop]
driver = "openai-responses"
api_key = { env = "MODEL_KEY" }

[models."shop/scripted"]
async = "on"

[capabilities.orders]
native = "orders"
replay = "safe"         # looking an order up twice does no harm

[capabilities.units]
component = "examples/tool-rust/dist/tool-rust.wasm"    # no grants: it reaches nothing
replay = "when-pure"
"#;

pub(crate) const QUESTION: &str = "What does order 1042 weigh in kilograms?";

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let answer = match std::env::var("MODEL_URL") {
        Ok(url) => {
            let model = std::env::var("MODEL").ok().map(|name| ModelRef::parse(&format!("shop/{name}"))).transpose()?;
            ask(&url, model, QUESTION).await?
        }
        Err(_) => {
            let server = Server::start(script(), Options::default()).await?;
            ask(&server.base_url(), None, QUESTION).await?
        }
    };
    println!("{answer}");
    Ok(())
}

/// Asks once, in a session of its own.
pub(crate) async fn ask(url: &str, model: Option<ModelRef>, question: &str) -> Result<String, Error> {
    let wharf = Wharf::builder()
        .native(Orders)
        // Journals in memory. `SqliteStore::open(folder)` keeps them, and so does whatever implements `Store`.
        .store(Arc::new(MemoryStore::new()))
        .provider_address("shop", url)
        // The library reads no environment by itself; a product may have its keys elsewhere.
        .env(|name| Some(std::env::var(name).unwrap_or_else(|_| "the scripted model takes any key".to_owned())))
        .build()?;

    // Paths of the harness are relative to the base, here the root of the repository.
    let base = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let agent =
        wharf.load(Harness::parse("shop.toml", HARNESS)?, Surroundings { base, ..Surroundings::default() }).await?;
    for report in agent.reports() {
        // A capability that cannot be used harms only itself; whether to go on is the product's decision.
        if let CapabilityStatus::Refused(error) = &report.status {
            return Err(error.clone());
        }
    }

    let options = TurnOptions {
        model,
        // Told of each step once it is durable; after a crash, `Session::resume` goes on from the last one.
        records: Some(Box::new(|seq, record| eprintln!("{seq:>3} {}", record.kind()))),
        ..TurnOptions::default()
    };
    // The last argument observes text as it streams; `()` does not look.
    let result = agent.new_session().turn(question, options, &mut ()).await?;
    Ok(result.text)
}

/// The shop's own tool. It runs in this process with this process's rights, but policy decides about its calls as about any.
struct Orders;

impl NativeCapability for Orders {
    fn about(&self) -> About {
        About { id: "orders".into(), title: "Orders".into(), ..About::default() }
    }

    fn tools(&self, _config: &Value) -> Result<Vec<Definition>, Error> {
        let schema = json!({
            "type": "object", "additionalProperties": false, "required": ["id"],
            "properties": { "id": { "type": "integer", "description": "The order's number." } },
        });
        Ok(vec![Definition {
            name: "find_order".into(),
            title: None,
            category: None,
            description: "Looks an order up by its number.".into(),
            input: InputFormat::JsonSchema(schema),
            output_schema: None,
            claims: Claims { read_only: true, idempotent: true, ..Claims::default() },
        }])
    }

    fn call(&self, call: NativeCall) -> BoxFuture<'static, Result<Vec<Content>, NativeError>> {
        Box::pin(async move {
            // The input was checked against the schema before. Here the shop would ask its database.
            let input: Value =
                serde_json::from_str(&call.input).map_err(|error| NativeError::Internal(error.to_string()))?;
            match input["id"].as_u64() {
                Some(1042) => Ok(vec![Content::Json(json!({ "id": 1042, "pounds": 40.25 }).to_string())]),
                // A failure is for the model, which may ask again.
                _ => Err(NativeError::Failure(Failure::new(FailureKind::NotFound, "there is no such order"))),
            }
        })
    }
}

/// What the scripted model says, and what it expects to be told.
pub(crate) fn script() -> Script {
    Script::new("embed")
        .step(
            Answer::new()
                .async_function_call("call_1", "find_order", r#"{"id":1042}"#)
                .expect(Expect::new().no_previous().contains(QUESTION).tool("find_order").tool("convert_units")),
        )
        .step(
            Answer::new()
                .async_function_call("call_2", "convert_units", r#"{"value":40.25,"from":"pound","to":"kilogram"}"#)
                .expect(Expect::new().latest().only_outputs(["call_1"]).contains(r#""pounds":40.25"#)),
        )
        .step(
            Answer::new()
                .text("Order 1042 weighs 18.26 kg.")
                .expect(Expect::new().latest().only_outputs(["call_2"]).contains(r#""value":18.257092893"#)),
        )
}
