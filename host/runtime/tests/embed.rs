//! The example of an embedding does what it says: both of its tools run, and their results reach the model.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![cfg(feature = "components")]

use wharf_simulate::{Options, Server};

#[path = "../examples/embed.rs"]
#[allow(dead_code, reason = "its `main` is for `cargo run --example embed`")]
mod embed;

#[tokio::test]
async fn the_example_gets_its_answer_from_its_own_tool_and_from_a_component() {
    let server = Server::start(embed::script(), Options::default()).await.unwrap();
    let answer = embed::ask(&server.base_url(), None, embed::QUESTION).await.unwrap();
    assert_eq!(answer, "Order 1042 weighs 18.26 kg.");
    assert_eq!(server.violations(), []);
    let outputs: Vec<serde_json::Value> =
        server.requests().iter().filter_map(|request| request.json()?["input"][0].get("output").cloned()).collect();
    assert_eq!(
        outputs,
        [
            r#"{"result":{"id":1042,"pounds":40.25},"error":null,"images":[]}"#,
            r#"{"result":{"value":18.257092893,"unit":"kilogram"},"error":null,"images":[]}"#,
        ]
    );
}
