//! Records of every kind with whatever their members can hold. The strategies are boxed: nested by value they are too large for
//! a test's stack.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::call::Call;
use crate::ids::CallId;
use crate::ids::ResponseId;
use crate::limits::INLINE_OUTPUT_BYTES_MAX;
use crate::model::{Item, Outcome, Role, Usage};
use crate::policy::{Hold, RefusalReason, ReplayClass};
use crate::record::*;

/// Texts that writers and readers of JSON stumble over, and some that look like what stands around them.
const ODD: [&str; 14] = [
    "",
    "\0",
    "\u{1f}\u{7f}\u{80}",
    "\u{2028}\u{2029}",
    "\u{feff}",
    "\u{d7ff}\u{e000}\u{fffe}\u{ffff}",
    "🦀\u{10ffff}",
    "\\ud800",
    "\\u0000",
    "\"},{\"kind\":\"x\"",
    "\\",
    "\r\n\t\u{8}\u{c}",
    "null",
    "e\u{301}é",
];

pub(super) fn text() -> BoxedStrategy<String> {
    let odd = prop::collection::vec(prop::sample::select(&ODD[..]), 1..4).prop_map(|parts| parts.concat());
    prop_oneof![3 => odd, 2 => "[a-z]{1,6}_[0-9]", 1 => any::<String>()].boxed()
}

fn number() -> BoxedStrategy<Value> {
    prop_oneof![
        prop::sample::select(vec![json!(u64::MAX), json!(i64::MIN), json!(i64::MAX), json!(1_u64 << 53), json!(0)]),
        any::<u64>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_filter("JSON has no others", |n| n.is_finite()).prop_map(Value::from),
    ]
    .boxed()
}

/// JSON of somebody else.
pub(super) fn foreign() -> BoxedStrategy<Value> {
    let leaf =
        prop_oneof![Just(Value::Null), any::<bool>().prop_map(Value::from), number(), text().prop_map(Value::from)];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let members = prop::collection::vec((text(), inner.clone()), 0..4);
        prop_oneof![
            prop::collection::vec(inner, 0..4).prop_map(Value::from),
            members.prop_map(|members| Value::Object(members.into_iter().collect::<Map<_, _>>())),
        ]
    })
    .boxed()
}

fn some<T>(strategy: impl Strategy<Value = T>) -> impl Strategy<Value = Option<T>>
where
    T: Clone + std::fmt::Debug,
{
    prop::option::of(strategy)
}

fn many<T: std::fmt::Debug>(strategy: impl Strategy<Value = T>) -> impl Strategy<Value = Vec<T>> {
    prop::collection::vec(strategy, 0..4)
}

fn id() -> BoxedStrategy<CallId> {
    text().prop_map(CallId::from).boxed()
}

fn response() -> BoxedStrategy<ResponseId> {
    text().prop_map(ResponseId::from).boxed()
}

fn call() -> BoxedStrategy<Call> {
    (id(), text(), text(), any::<bool>(), any::<bool>())
        .prop_map(|(id, name, text, custom, is_async)| {
            let call = if custom { Call::custom(id, name, text) } else { Call::function(id, name, text) };
            Call { is_async, ..call }
        })
        .boxed()
}

fn item() -> BoxedStrategy<Item> {
    let role = prop::sample::select(vec![Role::System, Role::User, Role::Assistant]);
    prop_oneof![
        (role, text()).prop_map(|(role, text)| Item::Message { role, text }),
        call().prop_map(Item::Call),
        (call(), text()).prop_map(|(call, output)| Item::Output { call, output }),
        (text(), foreign()).prop_map(|(maker, raw)| Item::Opaque { maker, raw }),
    ]
    .boxed()
}

fn usage() -> BoxedStrategy<Usage> {
    (any::<[u64; 6]>(), some(foreign()))
        .prop_map(|(counts, raw)| Usage {
            fresh_input: counts[0],
            cache_read: counts[1],
            cache_write: counts[2],
            visible_output: counts[3],
            reasoning: counts[4],
            total: counts[5],
            raw: raw.filter(|raw| !raw.is_null()),
        })
        .boxed()
}

fn facts() -> BoxedStrategy<ResponseFacts> {
    let outcome = prop_oneof![
        Just(Outcome::Completed),
        text().prop_map(|reason| Outcome::Incomplete { reason }),
        (text(), text()).prop_map(|(code, message)| Outcome::Failed { code, message }),
        Just(Outcome::Cancelled),
    ];
    let texts = (text(), some(text()), some(text()), some(text()));
    (response(), outcome, many(foreign()), texts, some(usage()), some(any::<u64>()))
        .prop_map(|(id, outcome, items, (text, finish_reason, refusal, model), usage, first_token_ms)| ResponseFacts {
            id,
            outcome,
            finish_reason,
            items,
            text,
            refusal,
            usage,
            model,
            first_token_ms,
        })
        .boxed()
}

/// Also around the length from which on an output is a blob, with characters of several bytes across the border.
fn output() -> BoxedStrategy<String> {
    let around =
        (INLINE_OUTPUT_BYTES_MAX - 4..INLINE_OUTPUT_BYTES_MAX + 4, prop::sample::select(&["x", "é", "\0"][..]));
    prop_oneof![
        3 => text(),
        1 => around.prop_map(|(length, with)| {
            let mut text = with.repeat(length / with.len());
            text.push_str(&"x".repeat(length - text.len()));
            text
        }),
    ]
    .boxed()
}

fn settled() -> BoxedStrategy<Record> {
    let how = prop::sample::select(Settlement::ALL.map(|(how, _)| how).to_vec());
    (id(), output(), how).prop_map(|(id, output, how)| Record::CallSettled { id, output, how }).boxed()
}

fn call_record() -> BoxedStrategy<Record> {
    let replay = prop::sample::select(vec![ReplayClass::Never, ReplayClass::Safe, ReplayClass::Keyed]);
    let hold = some(prop::sample::select(vec![Hold::Approval, Hold::Output]));
    let reason = prop::sample::select(vec![
        RefusalReason::Policy,
        RefusalReason::NotAsync,
        RefusalReason::UnknownTool,
        RefusalReason::MalformedArguments,
        RefusalReason::InvalidInput,
    ]);
    prop_oneof![
        (call(), some(id()), replay, hold, some(text())).prop_map(
            |(call, wire_call_id, replay, hold, idempotency_key)| Record::CallAccepted {
                call,
                wire_call_id,
                replay,
                hold,
                idempotency_key
            }
        ),
        (call(), some(id()), reason, text()).prop_map(|(call, wire_call_id, reason, output)| Record::CallRejected {
            call,
            wire_call_id,
            reason,
            output
        }),
        (id(), any::<u32>(), some(text()), some(text())).prop_map(|(id, attempt, idempotency_key, approval)| {
            Record::CallStarted { id, attempt, idempotency_key, approval }
        }),
        settled(),
        id().prop_map(|id| Record::CallRequeued { id }),
        id().prop_map(|id| Record::ReplayNarrowed { id }),
        (id(), text()).prop_map(|(id, approval)| Record::HoldReleased { id, approval }),
        many(id()).prop_map(|ids| Record::CallsOrphaned { ids }),
    ]
    .boxed()
}

fn response_record() -> BoxedStrategy<Record> {
    let begun = (any::<u64>(), some(text()), some(response()), any::<bool>(), many(id()), some(text()), some(text()));
    let fate = prop::sample::select(FlightFate::ALL.map(|(fate, _)| fate).to_vec());
    prop_oneof![
        begun.prop_map(|(ordinal, message_id, continues, whole_history, told, notice, maker)| {
            Record::ResponseBegun(Begun { ordinal, message_id, continues, whole_history, told, notice, maker })
        }),
        response().prop_map(|id| Record::ResponseStarted { id }),
        response().prop_map(|id| Record::ResponseCompleted { id }),
        (response(), many(id()), many(item())).prop_map(|(previous_response_id, call_ids, after)| {
            Record::DeliveryPrepared { previous_response_id, call_ids, after }
        }),
        response().prop_map(|receipt| Record::DeliveryAcknowledged { receipt }),
        facts().prop_map(Record::ResponseRecorded),
        Just(Record::FlightCleared),
        (fate, text(), many(id())).prop_map(|(fate, why, orphans)| Record::FlightSettled { fate, why, orphans }),
        foreign().prop_map(|summary| Record::SummaryStaged { summary }),
        text().prop_map(|message_id| Record::TranscriptCommitted { message_id }),
        Just(Record::TranscriptDropped),
        foreign().prop_map(|outcome| Record::OutcomeStored { outcome }),
    ]
    .boxed()
}

fn turn_record() -> BoxedStrategy<Record> {
    let harness =
        ([(); 4].map(|()| text()), foreign()).prop_map(|([name, component, authority, conversation], value)| {
            Record::HarnessBound(HarnessFacts { name, component, authority, conversation, authority_value: value })
        });
    let closed = (id(), some(text())).prop_map(|(id, output)| Closed { id, output });
    let reason = prop_oneof![
        many(id()).prop_map(|calls| PauseReason::LostResponse { calls }),
        many(id()).prop_map(|calls| PauseReason::Held { calls }),
        text().prop_map(|reason| PauseReason::Incomplete { reason }),
        any::<u64>().prop_map(|count| PauseReason::UnknownTools { count }),
        Just(PauseReason::Shutdown),
    ];
    let command =
        prop_oneof![response().prop_map(Reconcile::Receipt), Just(Reconcile::Resend), Just(Reconcile::Abandon)];
    prop_oneof![
        harness,
        (text(), many(item()), many(closed)).prop_map(|(turn, input, closes)| Record::TurnStarted {
            turn: turn.into(),
            input,
            closes
        }),
        (text(), text()).prop_map(|(turn, status)| Record::TurnEnded { turn: turn.into(), status }),
        reason.prop_map(|reason| Record::Paused { reason }),
        text().prop_map(|why| Record::Resumed { why }),
        (command, text()).prop_map(|(command, who)| Record::Reconciled { command, who }),
        ([(); 4].map(|()| text()), some(text())).prop_map(|([id, kind, target, who], refused)| Record::InboxConsumed {
            id,
            kind,
            target,
            who,
            refused
        }),
        text().prop_map(|why| Record::Parked { why }),
    ]
    .boxed()
}

/// Any record.
pub(crate) fn record() -> BoxedStrategy<Record> {
    prop_oneof![8 => call_record(), 12 => response_record(), 8 => turn_record()].boxed()
}
