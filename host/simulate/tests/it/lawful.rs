//! Which requests a script answers, and which it refuses.

use serde_json::{Value, json};
use wharf_simulate::{Answer, CallKind, End, Expect, PairingError, Script, Step, Violation, ViolationKind};

use crate::client::{Open, ask, get, go_on, output, post, start};

fn kinds(violations: Vec<Violation>) -> Vec<(Option<u64>, ViolationKind)> {
    violations.into_iter().map(|violation| (violation.request, violation.kind)).collect()
}

#[tokio::test]
async fn async_results_come_late_and_in_any_order_on_the_latest_response() {
    let script = Script::new("two calls")
        .step(
            Answer::new()
                .async_function_call("call_slow", "f", "{}")
                .async_function_call("call_fast", "f", "{}")
                .expect(Expect::new().no_previous()),
        )
        .step(Answer::new().expect(Expect::new().latest().only_outputs(["call_fast"])))
        .step(Answer::new().expect(Expect::new().latest().only_outputs(["call_slow"])));
    let server = start(script).await;
    let mut statuses = vec![post(&server, &ask(json!("start"))).await.status];
    statuses.push(post(&server, &go_on("resp_1", json!([output("call_fast")]))).await.status);
    statuses.push(post(&server, &go_on("resp_2", json!([output("call_slow")]))).await.status);
    assert_eq!(statuses, [200, 200, 200]);
    assert_eq!(server.violations(), vec![]);
}

#[tokio::test]
async fn an_unlawful_continuation_is_refused_recorded_and_uses_up_no_step() {
    let script = Script::new("unlawful")
        .step(Answer::new().function_call("call_1", "f", "{}").async_custom_call("call_2", "g", "x"))
        .step(Answer::new());
    let server = start(script).await;
    post(&server, &ask(json!("start"))).await;
    let custom = |call_id: &str| json!({ "type": "custom_tool_call_output", "call_id": call_id, "output": "x" });
    let call_id = |id: &str| id.to_owned();
    let function = CallKind::Function;
    let cases = [
        (json!([]), PairingError::MissingOutput { call_id: call_id("call_1"), kind: function }),
        (
            json!([output("call_1"), output("call_3")]),
            PairingError::NeverMade { call_id: call_id("call_3"), kind: function },
        ),
        (
            json!([output("call_1"), output("call_2")]),
            PairingError::WrongKind { call_id: call_id("call_2"), made: CallKind::Custom, given: function },
        ),
        (json!([output("call_1"), output("call_1")]), PairingError::Repeated { call_id: call_id("call_1") }),
    ];
    let mut expected = Vec::new();
    for (nth, (input, error)) in cases.into_iter().enumerate() {
        let refused = post(&server, &go_on("resp_1", input)).await.error();
        assert_eq!(refused, (400, Value::Null, error.to_string()));
        expected.push((Some(nth as u64 + 2), ViolationKind::Pairing(error)));
    }
    let lawful = json!([custom("call_2"), output("call_1")]);
    assert_eq!(post(&server, &go_on("resp_1", lawful)).await.status, 200);
    assert_eq!(kinds(server.violations()), expected);
}

#[tokio::test]
async fn an_output_counts_once_along_a_chain_but_again_beside_it() {
    let script = Script::new("chain")
        .step(Answer::new().async_function_call("call_1", "f", "{}"))
        .step(Answer::new().abort_after(1))
        .step(Answer::new())
        .step(Answer::new());
    let server = start(script).await;
    post(&server, &ask(json!("start"))).await;
    // The response that took the output was lost, so it may be delivered again.
    post(&server, &go_on("resp_1", json!([output("call_1")]))).await;
    assert_eq!(post(&server, &go_on("resp_1", json!([output("call_1")]))).await.status, 200);
    let again = post(&server, &go_on("resp_3", json!([output("call_1")]))).await.error();
    assert_eq!(again, (400, Value::Null, "Duplicate tool output found for call_id call_1.".to_owned()));
}

#[tokio::test]
async fn an_unknown_previous_response_is_refused_in_the_providers_words() {
    let server = start(Script::new("unknown").step(Answer::new())).await;
    let refused = post(&server, &go_on("resp_7", json!("hi"))).await.error();
    let message = "Previous response with id 'resp_7' not found.".to_owned();
    assert_eq!(refused, (400, json!("previous_response_not_found"), message));
    let kind = ViolationKind::PreviousNotFound { id: "resp_7".to_owned() };
    assert_eq!(kinds(server.violations()), [(Some(1), kind)]);
}

#[tokio::test]
async fn a_stateless_replay_answers_its_own_calls() {
    let server = start(Script::new("replay").step(Answer::new())).await;
    let call = json!({ "type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{}" });
    let without = post(&server, &ask(json!([call]))).await.error();
    assert_eq!(without.2, "No tool output found for function call call_1.");
    assert_eq!(post(&server, &ask(json!([call, output("call_1")]))).await.status, 200);
}

#[tokio::test]
async fn an_unchecked_step_answers_anything() {
    let server = start(Script::new("unchecked").step(Step::from(Answer::new()).unchecked())).await;
    let got = post(&server, &go_on("resp_7", json!([output("call_9")]))).await;
    assert_eq!(got.status, 200);
    assert_eq!(server.violations(), vec![]);
}

#[tokio::test]
async fn a_request_that_the_step_does_not_expect_is_refused_with_every_reason() {
    let step = Step::from(Answer::new()).named("only").expect(Expect::new().model("n").contains("bye"));
    let server = start(Script::new("expect").step(step)).await;
    let refused = post(&server, &ask(json!("hi"))).await.error();
    let reasons = ["model: expected \"n\", got \"m\"", "input: does not contain \"bye\""];
    let kind =
        ViolationKind::Unexpected { step: "step 1 (only)".to_owned(), reasons: reasons.map(str::to_owned).to_vec() };
    assert_eq!(refused, (400, json!("simulate_unexpected_request"), kind.to_string()));
    assert_eq!(kinds(server.violations()), [(Some(1), kind)]);
    let fits = json!({ "model": "n", "stream": true, "input": "bye" });
    assert_eq!(post(&server, &fits).await.status, 200);
}

#[tokio::test]
async fn first_match_takes_the_first_unused_step_that_fits() {
    let step = |word: &str| Step::from(Answer::new().text(word)).named(word).expect(Expect::new().contains(word));
    let script = Script::new("match").first_match().step(step("a")).step(step("b")).step(step("a"));
    let server = start(script).await;
    for word in ["b", "a", "a"] {
        assert_eq!(post(&server, &ask(json!(word))).await.status, 200);
    }
    let indexes: Vec<Option<usize>> =
        server.requests().into_iter().map(|entry| entry.step.map(|step| step.index)).collect();
    assert_eq!(indexes, [Some(1), Some(0), Some(2)]);
    let out = post(&server, &ask(json!("a"))).await;
    assert_eq!(out.error().1, json!("simulate_out_of_steps"));
    let other = start(Script::new("match").first_match().step(step("a"))).await;
    let refused = post(&other, &ask(json!("x"))).await.error();
    let message = "no unused step expects this request: step 1 (a) (input: does not contain \"a\")".to_owned();
    assert_eq!(refused, (400, json!("simulate_unexpected_request"), message));
}

#[tokio::test]
async fn a_script_that_is_used_up_says_so() {
    let server = start(Script::new("short").step(Answer::new())).await;
    post(&server, &ask(json!("hi"))).await;
    let got = post(&server, &ask(json!("hi"))).await;
    let message = "the script \"short\" has no step left: all 1 have answered".to_owned();
    assert_eq!(got.error(), (500, json!("simulate_out_of_steps"), message));
    let kind = ViolationKind::OutOfSteps { script: "short".to_owned(), steps: 1 };
    assert_eq!(kinds(server.violations()), [(Some(2), kind)]);
    assert_eq!(server.requests()[1].end, End::Whole { status: 500 });
}

#[tokio::test]
async fn a_required_key_lets_only_its_bearer_in() {
    let server = start(Script::new("key").api_key("sk-test").step(Answer::new())).await;
    for headers in ["", "authorization: Bearer sk-other\r\n", "authorization: sk-test\r\n"] {
        for (method, path) in
            [("POST", "/v1/responses"), ("GET", "/_simulate/requests"), ("GET", "/v1/responses/resp_1")]
        {
            let open = Open::send(server.address(), method, path, headers, "{}").await;
            let refused = open.finish().await.expect("an answer").error();
            assert_eq!(refused, (401, json!("invalid_api_key"), "Incorrect API key provided.".to_owned()));
        }
    }
    assert_eq!(post(&server, &ask(json!("hi"))).await.status, 200);
    assert_eq!(server.violations(), vec![]);
}

#[tokio::test]
async fn a_body_that_is_no_json_object_is_refused_and_a_strange_path_is_not_found() {
    let server = start(Script::new("bad").step(Answer::new())).await;
    for body in ["", "{", "[1]", "\"text\""] {
        let open = Open::send(server.address(), "POST", "/v1/responses", "", body).await;
        let got = open.finish().await.expect("an answer");
        assert_eq!((got.status, got.error().1), (400, json!("invalid_json")), "{body:?}");
    }
    assert_eq!(server.violations().len(), 4);
    for path in ["/v1/chat/completions", "/responses", "/v1/responses/a/b"] {
        let got = get(&server, path).await;
        assert_eq!((got.status, got.error().1), (404, json!("simulate_unknown_path")), "{path}");
    }
    assert_eq!(server.violations().len(), 4);
}

#[tokio::test]
async fn a_body_is_read_up_to_its_bound_and_not_one_byte_further() {
    let server = start(Script::new("large").step(Answer::new()).step(Answer::new())).await;
    let body = |length: usize| {
        let frame = json!({ "input": "" }).to_string().len();
        json!({ "input": "a".repeat(length - frame) }).to_string()
    };
    let bound = wharf_simulate::limits::BODY_BYTES_MAX;
    let mut seen = Vec::new();
    for length in [bound, bound + 1] {
        let open = Open::send(server.address(), "POST", "/v1/responses", "", &body(length)).await;
        seen.push(open.finish().await.expect("an answer").status);
    }
    assert_eq!(seen, [200, 400]);
    let kind = ViolationKind::BadBody { why: "length limit exceeded".to_owned() };
    assert_eq!(kinds(server.violations()), [(Some(2), kind)]);
}
