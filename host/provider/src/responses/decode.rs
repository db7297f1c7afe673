//! Stream data to neutral events, as a pure state machine: no I/O, no clock. It never starts anything and never decides
//! whether a call may run; it says when one is finished.
//!
//! A whole response, retrieved or not streamed, goes the same way as one terminal event (P21).

use serde_json::{Map, Value};
use wharf_core::model::{Completion, FinishedCall, Outcome, StreamEvent, Usage};
use wharf_core::{Payload, ResponseId};

use super::items::{finished_call, kept, kind_word, parts_of, raw_call, replace, same_call, weight};
use super::outcome::{error_of, error_or_silence, finish_reason, outcome_of};
use super::slots::{Address, Asking, Kind, Part, PartOf, Progress, Slot, Slots, text};
use super::usage;
use crate::limits;

/// Why a stream cannot be decoded on. What was decoded before stays good; the response's fate is unknown.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Data that is not JSON (P13).
    #[error("an event of the answer is not JSON: {fault} ({bytes} bytes)")]
    NotJson {
        /// What the parser says; it quotes nothing.
        fault: String,
        /// How long the data is.
        bytes: usize,
    },
    /// More items than any answer has.
    #[error("the answer has more than {} output items", limits::ITEMS_MAX)]
    TooManyItems,
    /// More text than any answer has.
    #[error("the answer has more than {} bytes of text", limits::TEXT_BYTES_MAX)]
    TooMuchText,
    /// A call with longer arguments than a call may have.
    #[error("a call of the answer has more than {} bytes of input", wharf_core::limits::CALL_PAYLOAD_BYTES_MAX)]
    PayloadTooLong,
    /// Calls that have more input together than a response may ask for.
    #[error("the calls of the answer have more than {} bytes of input together", limits::CALLS_BYTES_MAX)]
    TooMuchInput,
    /// One call again and again, always different.
    #[error("the answer has more than {} different calls of one id", limits::REPEATS_MAX)]
    TooManyRepeats,
    /// More than any answer needs to be kept.
    #[error("the answer takes more than {} bytes to keep", limits::RESPONSE_BYTES_MAX)]
    TooLarge,
    /// A frame or a document of very many very small values.
    #[error("the answer has more than {} values in one piece", limits::FRAME_VALUES_MAX)]
    TooManyValues,
    /// A whole answer that is no response and no error.
    #[error("the answer is JSON but neither a response nor an error")]
    NotAResponse,
    /// A whole answer that has not ended yet.
    #[error("the answer is a response that has not ended: status {status:?}")]
    NotEnded {
        /// Its status.
        status: String,
    },
}

/// Decodes one response.
#[derive(Debug)]
pub struct Decoder {
    slots: Slots,
    /// The id of the first event that had one.
    id: Option<ResponseId>,
    model: Option<String>,
    /// The last one seen (PROV-8).
    usage: Option<Usage>,
    sequence: Sequence,
    /// Finished sync function calls so far (P4).
    sync_calls: Vec<FinishedCall>,
    /// Finished native calls so far.
    native_calls: Vec<FinishedCall>,
    text_bytes: usize,
    /// Input of all finished calls.
    calls_bytes: usize,
    /// What is kept until the end, slots and ids apart.
    kept_bytes: usize,
    /// How much of that there may be.
    bytes_max: usize,
    /// A fragment of a call's input came that could not be told whose it is.
    lost_fragment: bool,
    ended: bool,
}

impl Default for Decoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Decoder {
    /// At the start of a response.
    pub fn new() -> Self {
        Self {
            slots: Slots::default(),
            id: None,
            model: None,
            usage: None,
            sequence: Sequence::default(),
            sync_calls: Vec::new(),
            native_calls: Vec::new(),
            text_bytes: 0,
            calls_bytes: 0,
            kept_bytes: 0,
            bytes_max: limits::RESPONSE_BYTES_MAX,
            lost_fragment: false,
            ended: false,
        }
    }

    /// True once the terminal event was decoded.
    pub fn ended(&self) -> bool {
        self.ended
    }

    /// Decodes the data of one event; `name` is its `event` field, for data that does not say its type itself.
    ///
    /// After the terminal event it gives nothing more (P18).
    ///
    /// # Errors
    /// Data that is not JSON, or that breaks a bound.
    pub fn push(&mut self, name: &str, data: &str) -> Result<Vec<StreamEvent>, DecodeError> {
        let data = data.trim();
        // An empty event is a keep-alive; the marker belongs to another protocol and is sent by many servers all the same.
        if self.ended || data.is_empty() || data == "[DONE]" {
            return Ok(Vec::new());
        }
        few_values(data.as_bytes())?;
        match serde_json::from_str::<Value>(data) {
            Ok(frame) => self.frame(name, &frame),
            // An event of a name that is not of this protocol is an unknown event, whatever is in it.
            Err(_) if !is_ours(name) => Ok(Vec::new()),
            Err(fault) => Err(DecodeError::NotJson { fault: without_quote(&fault), bytes: data.len() }),
        }
    }

    /// Decodes a whole answer in place of a stream: a response, or an error.
    ///
    /// # Errors
    /// If it is neither, or has not ended.
    pub fn whole(&mut self, answer: &Value) -> Result<Vec<StreamEvent>, DecodeError> {
        if answer["status"].is_null() && answer["output"].is_null() {
            return match error_of(answer) {
                Some((code, message)) => Ok(self.fail(code, message)),
                None => Err(DecodeError::NotAResponse),
            };
        }
        match answer["status"].as_str() {
            Some(status @ ("queued" | "in_progress")) => Err(DecodeError::NotEnded { status: status.to_owned() }),
            _ => {
                let mut events = self.head(answer);
                events.extend(self.terminal("response.done", answer)?);
                Ok(events)
            }
        }
    }

    /// Counts what is kept, before anybody copies it further.
    fn keep(&mut self, bytes: usize) -> Result<(), DecodeError> {
        self.kept_bytes = self.kept_bytes.saturating_add(bytes);
        if self.kept_bytes.saturating_add(self.slots.bytes()) > self.bytes_max {
            return Err(DecodeError::TooLarge);
        }
        Ok(())
    }

    fn frame(&mut self, name: &str, frame: &Value) -> Result<Vec<StreamEvent>, DecodeError> {
        let response = &frame["response"];
        let kind = match frame["type"].as_str() {
            Some(kind) => kind,
            None if is_ours(name) && name != "message" => name,
            // An event that is a response by itself, or an error by its shape (SSE-11).
            None if frame["object"] == "response" => return self.bare_response(frame),
            None => "",
        };
        let terminal = is_terminal(kind);
        if !terminal && self.sequence.is_repeated(frame) {
            return Ok(Vec::new());
        }
        let mut events = self.head(response);
        if self.id.is_none() {
            events.extend(self.started(&frame["response_id"]));
        }
        if let Some(usage) = usage::read(&frame["usage"]) {
            self.usage = Some(usage);
        }
        if kind == "error" || kind == "response.error" || !kind.starts_with("response.") && frame["error"].is_object() {
            let (code, message) = error_or_silence(frame);
            events.extend(self.fail(code, message));
        } else if terminal {
            // Some relays put the members of the response beside the type.
            events.extend(self.terminal(kind, if response.is_object() { response } else { frame })?);
        } else {
            self.part(kind, frame, &mut events)?;
        }
        Ok(events)
    }

    fn bare_response(&mut self, response: &Value) -> Result<Vec<StreamEvent>, DecodeError> {
        let mut events = self.head(response);
        if matches!(response["status"].as_str(), Some("completed" | "incomplete" | "failed" | "cancelled")) {
            events.extend(self.terminal("response.done", response)?);
        }
        Ok(events)
    }

    /// What any event with a response in it may carry: id, model, usage.
    fn head(&mut self, response: &Value) -> Vec<StreamEvent> {
        if let Some(usage) = usage::read(&response["usage"]) {
            self.usage = Some(usage);
        }
        if let Some(model) = text(&response["model"]) {
            self.model = Some(model.to_owned());
        }
        if self.id.is_none() { self.started(&response["id"]) } else { Vec::new() }
    }

    fn started(&mut self, id: &Value) -> Vec<StreamEvent> {
        let Some(id) = text(id).map(ResponseId::new) else { return Vec::new() };
        self.id = Some(id.clone());
        vec![StreamEvent::Started { id }]
    }

    /// An event that ends nothing.
    fn part(&mut self, kind: &str, frame: &Value, events: &mut Vec<StreamEvent>) -> Result<(), DecodeError> {
        let place = |member: &str| frame[member].as_u64().unwrap_or(0);
        let text_part = |of| Part { place: place("content_index"), of };
        let summary_part = Part { place: place("summary_index"), of: PartOf::Summary };
        match kind {
            "response.output_item.added" => self.item_added(frame)?,
            "response.output_item.done" => return self.item_done(frame, events),
            "response.function_call_arguments.delta" => self.payload_delta(Kind::Function, frame)?,
            "response.custom_tool_call_input.delta" => self.payload_delta(Kind::Custom, frame)?,
            "response.function_call_arguments.done" => self.payload_done(Kind::Function, frame)?,
            "response.custom_tool_call_input.done" => self.payload_done(Kind::Custom, frame)?,
            "response.output_text.delta" => self.text(frame, text_part(PartOf::Text), Piece::Delta("delta"), events)?,
            "response.refusal.delta" => self.text(frame, text_part(PartOf::Refusal), Piece::Delta("delta"), events)?,
            "response.reasoning_summary_text.delta" => self.text(frame, summary_part, Piece::Delta("delta"), events)?,
            "response.output_text.done" => self.text(frame, text_part(PartOf::Text), Piece::Whole("text"), events)?,
            "response.refusal.done" => self.text(frame, text_part(PartOf::Refusal), Piece::Whole("refusal"), events)?,
            "response.reasoning_summary_text.done" => self.text(frame, summary_part, Piece::Whole("text"), events)?,
            // Raw reasoning text is neither shown nor stored (P16); all else is unknown or says nothing new (P13).
            _ => {}
        }
        Ok(())
    }

    fn slot(&mut self, address: Address<'_>, kind: &Kind, asking: Asking) -> Result<&mut Slot, DecodeError> {
        let position = self.position(address, kind, asking)?;
        self.slots.get_mut(position).ok_or(DecodeError::TooManyItems)
    }

    fn position(&mut self, address: Address<'_>, kind: &Kind, asking: Asking) -> Result<usize, DecodeError> {
        let position = self.slots.find_or_add(address, Some(kind), asking);
        if self.slots.len() > limits::ITEMS_MAX { Err(DecodeError::TooManyItems) } else { Ok(position) }
    }

    fn item_added(&mut self, frame: &Value) -> Result<(), DecodeError> {
        let (Some(item), Some(kind)) = (frame["item"].as_object(), text(&frame["item"]["type"])) else { return Ok(()) };
        let slot = self.slot(Address::of(frame), &Kind::of(kind), Asking::Added)?;
        let before = slot.carried_bytes();
        slot.absorb(item);
        bounded(slot)?;
        let grown = slot.carried_bytes().saturating_sub(before);
        self.keep(grown)
    }

    fn item_done(&mut self, frame: &Value, events: &mut Vec<StreamEvent>) -> Result<(), DecodeError> {
        let (Some(item), Some(kind)) = (frame["item"].as_object(), text(&frame["item"]["type"])) else { return Ok(()) };
        let whole = matches!(item.get("status"), None | Some(Value::Null)) || item["status"] == "completed";
        let before = self.sync_calls.len();
        self.item(Address::of(frame), &Kind::of(kind), item, whole, Asking::Later, events)?;
        if self.sync_calls.len() > before {
            events.push(StreamEvent::SyncCalls(self.sync_calls.clone()));
        }
        Ok(())
    }

    fn payload_delta(&mut self, kind: Kind, frame: &Value) -> Result<(), DecodeError> {
        let (Some(delta), Some(position)) = (text(&frame["delta"]), self.payload_slot(&kind, frame)?) else {
            return Ok(());
        };
        let Some(slot) = self.slots.get_mut(position) else { return Ok(()) };
        if slot.progress != Progress::Open {
            return Ok(());
        }
        slot.payload.push_str(delta);
        bounded(slot)?;
        self.keep(delta.len())
    }

    fn payload_done(&mut self, kind: Kind, frame: &Value) -> Result<(), DecodeError> {
        let (Some(members), Some(position)) = (frame.as_object(), self.payload_slot(&kind, frame)?) else {
            return Ok(());
        };
        let Some(slot) = self.slots.get_mut(position) else { return Ok(()) };
        if slot.progress != Progress::Open {
            return Ok(());
        }
        let before = slot.carried_bytes();
        slot.absorb(members);
        bounded(slot)?;
        let grown = slot.carried_bytes().saturating_sub(before);
        self.keep(grown)
    }

    /// Fragments that name no item at all go to the only open call, or nowhere: rather a call that waits for its whole
    /// item than two calls mixed (P7).
    fn payload_slot(&mut self, kind: &Kind, frame: &Value) -> Result<Option<usize>, DecodeError> {
        let address = Address::of(frame);
        let nowhere = address.item_id.is_none() && address.call_id.is_none() && address.index.is_none();
        if nowhere {
            let found = self.slots.find(address, Some(kind), Asking::Later);
            self.lost_fragment |= found.is_none();
            return Ok(found);
        }
        let position = self.slots.find_or_add(address, Some(kind), Asking::Later);
        if self.slots.len() > limits::ITEMS_MAX { Err(DecodeError::TooManyItems) } else { Ok(Some(position)) }
    }

    fn text(
        &mut self,
        frame: &Value,
        part: Part,
        piece: Piece,
        events: &mut Vec<StreamEvent>,
    ) -> Result<(), DecodeError> {
        let kind = match part.of {
            PartOf::Text | PartOf::Refusal => Kind::Message,
            PartOf::Summary => Kind::Reasoning,
        };
        let (Piece::Delta(member) | Piece::Whole(member)) = piece;
        let Some(said) = text(&frame[member]) else { return Ok(()) };
        let slot = self.slot(Address::of(frame), &kind, Asking::Later)?;
        if slot.progress != Progress::Open {
            return Ok(());
        }
        let before = slot.parts.get(&part).map(String::len);
        let new = match piece {
            Piece::Delta(_) => {
                slot.parts.entry(part).or_default().push_str(said);
                said.to_owned()
            }
            Piece::Whole(_) => replace(slot, part, said),
        };
        let after = slot.parts.get(&part).map_or(0, String::len);
        // A part that is new costs its place; a text that replaces another may be longer though it shows nothing new.
        self.keep(before.map_or(limits::VALUE_BYTES + after, |before| after.saturating_sub(before)))?;
        self.say(part.of, new, events)
    }

    fn say(&mut self, of: PartOf, new: String, events: &mut Vec<StreamEvent>) -> Result<(), DecodeError> {
        if new.is_empty() {
            return Ok(());
        }
        self.text_bytes = self.text_bytes.saturating_add(new.len());
        if self.text_bytes > limits::TEXT_BYTES_MAX {
            return Err(DecodeError::TooMuchText);
        }
        events.push(match of {
            PartOf::Text => StreamEvent::Text(new),
            PartOf::Refusal => StreamEvent::Refusal(new),
            PartOf::Summary => StreamEvent::Reasoning(new),
        });
        Ok(())
    }

    /// A whole item, from the stream or from the terminal list. A new sync call is only noted: the caller gives the set.
    fn item(
        &mut self,
        address: Address<'_>,
        kind: &Kind,
        item: &Map<String, Value>,
        whole: bool,
        asking: Asking,
        events: &mut Vec<StreamEvent>,
    ) -> Result<(), DecodeError> {
        let lost_fragment = self.lost_fragment;
        let position = self.position(address, kind, asking)?;
        let slot = self.slots.get_mut(position).ok_or(DecodeError::TooManyItems)?;
        // What came whole stays as it came; what was cut may still come whole.
        let first = slot.progress != Progress::Finished;
        slot.in_terminal |= asking == Asking::Terminal;
        let before = slot.carried_bytes() + slot.parts_bytes();
        if first {
            slot.absorb(item);
            bounded(slot)?;
            slot.progress = if whole { Progress::Finished } else { Progress::Cut };
        }
        let said: Vec<(PartOf, String)> = match kind {
            Kind::Message | Kind::Reasoning if first => {
                parts_of(item).into_iter().map(|(part, said)| (part.of, replace(slot, part, said))).collect()
            }
            Kind::Message | Kind::Reasoning | Kind::Function | Kind::Custom | Kind::Other(_) => Vec::new(),
        };
        if first {
            let grown = (slot.carried_bytes() + slot.parts_bytes()).saturating_sub(before);
            self.keep(grown.saturating_add(weight(item)))?;
        }
        let slot = self.slots.get_mut(position).ok_or(DecodeError::TooManyItems)?;
        match kind {
            Kind::Function | Kind::Custom if whole => {
                let again = if first { None } else { Some(item) };
                match finished_call(slot, kind, again) {
                    Ok(mut call) => {
                        // Blank means no arguments (P9), but not where some came and were lost: that is no call to run.
                        call.malformed |= lost_fragment && call.call.text().trim().is_empty();
                        if first {
                            slot.raw = Some(raw_call(slot, kind, item));
                        }
                        self.call(call, events)?;
                    }
                    Err(missing) => {
                        let message = format!("a finished {} has no {}", kind_word(kind), missing.word());
                        events.extend(self.fail(missing.code().to_owned(), message));
                    }
                }
            }
            Kind::Message if first => slot.raw = Some(Value::Object(item.clone())),
            Kind::Reasoning if first && whole => {
                let mut kept = item.clone();
                kept.shift_remove("content"); // raw reasoning text (P16)
                slot.raw = Some(Value::Object(kept.clone()));
                for (of, new) in said {
                    self.say(of, new, events)?;
                }
                events.push(StreamEvent::Opaque(Value::Object(kept)));
                return Ok(());
            }
            Kind::Other(_) if first && whole => {
                slot.raw = Some(Value::Object(item.clone()));
                events.push(StreamEvent::Opaque(Value::Object(item.clone())));
            }
            Kind::Function | Kind::Custom | Kind::Message | Kind::Reasoning | Kind::Other(_) => {}
        }
        for (of, new) in said {
            self.say(of, new, events)?;
        }
        Ok(())
    }

    /// A finished call: once, unless its repeat says something else, which is for the host to refuse (L49).
    fn call(&mut self, call: FinishedCall, events: &mut Vec<StreamEvent>) -> Result<(), DecodeError> {
        let native = call.call.is_async || matches!(call.call.payload, Payload::Custom { .. });
        let known = if native { &mut self.native_calls } else { &mut self.sync_calls };
        let mut repeats = 0;
        for earlier in known.iter().filter(|earlier| earlier.call.id == call.call.id) {
            if same_call(earlier, &call) {
                return Ok(());
            }
            repeats += 1;
        }
        if repeats >= limits::REPEATS_MAX {
            return Err(DecodeError::TooManyRepeats);
        }
        self.calls_bytes = self.calls_bytes.saturating_add(call.call.text().len());
        if self.calls_bytes > limits::CALLS_BYTES_MAX {
            return Err(DecodeError::TooMuchInput);
        }
        known.push(call.clone());
        if native {
            events.push(StreamEvent::Call(call));
        }
        Ok(())
    }

    fn terminal(&mut self, kind: &str, response: &Value) -> Result<Vec<StreamEvent>, DecodeError> {
        let mut events = Vec::new();
        let outcome = outcome_of(kind, response);
        match &outcome {
            Outcome::Completed | Outcome::Incomplete { .. } => self.reconcile(&outcome, response, &mut events)?,
            // Such a response counts as not accepted: nothing of it is released any more (G20).
            Outcome::Failed { .. } | Outcome::Cancelled => {}
        }
        if !self.ended {
            let id = text(&response["id"]).map(ResponseId::new);
            events.push(self.complete(id, outcome));
        }
        Ok(events)
    }

    /// Brings the terminal list and the stream together (P10).
    fn reconcile(
        &mut self,
        outcome: &Outcome,
        response: &Value,
        events: &mut Vec<StreamEvent>,
    ) -> Result<(), DecodeError> {
        let mut given = self.sync_calls.len();
        let mut copied = 0_usize;
        let list = response["output"].as_array().map(Vec::as_slice).unwrap_or_default();
        for (place, item) in (0u64..).zip(list) {
            let (Some(members), Some(kind)) = (item.as_object(), text(&item["type"])) else { continue };
            let whole = match text(&item["status"]) {
                Some(status) => status == "completed",
                // Without a status, an item of a cut response may be the one that was cut.
                None => *outcome == Outcome::Completed,
            };
            let address = Address { item_id: text(&item["id"]), call_id: text(&item["call_id"]), index: Some(place) };
            let (native, at) = (self.native_calls.len(), events.len());
            self.item(address, &Kind::of(kind), members, whole, Asking::Terminal, events)?;
            if self.ended {
                return Ok(());
            }
            if self.native_calls.len() > native && self.sync_calls.len() > given {
                // Calls are given in the order in which the model made them (I6), as a stream gives them (P21). All the
                // sets are in memory at once, unlike in a stream, so that there is a bound for them.
                copied = self.sync_calls.iter().fold(copied, |sum, call| sum.saturating_add(call.call.text().len()));
                if copied <= limits::CALLS_BYTES_MAX {
                    events.insert(at, StreamEvent::SyncCalls(self.sync_calls.clone()));
                    given = self.sync_calls.len();
                }
            }
        }
        if self.sync_calls.len() > given {
            events.push(StreamEvent::SyncCalls(self.sync_calls.clone()));
        }
        Ok(())
    }

    /// Ends the response as failed: what an error event says (P12), or what makes the whole of it unusable (L48).
    fn fail(&mut self, code: String, message: String) -> Vec<StreamEvent> {
        vec![self.complete(None, Outcome::Failed { code, message })]
    }

    fn complete(&mut self, id: Option<ResponseId>, outcome: Outcome) -> StreamEvent {
        self.ended = true;
        let slots = self.slots.in_order();
        let accepted = matches!(outcome, Outcome::Completed | Outcome::Incomplete { .. });
        let items = slots.iter().filter_map(|slot| kept(slot, accepted)).collect();
        let of = |of| slots.iter().map(|slot| slot.text(of)).collect::<String>();
        let refusal = of(PartOf::Refusal);
        let called = !self.sync_calls.is_empty() || !self.native_calls.is_empty();
        StreamEvent::Completed(Completion {
            id: id.or(self.id.clone()),
            finish_reason: Some(finish_reason(&outcome, called)),
            outcome,
            usage: self.usage.clone(),
            items,
            text: of(PartOf::Text),
            refusal: (!refusal.is_empty()).then_some(refusal),
            model: self.model.clone(),
        })
    }
}

/// A frame's text: a piece to append, or the whole in place of what came.
#[derive(Debug, Clone, Copy)]
enum Piece {
    /// In this member.
    Delta(&'static str),
    /// In this member.
    Whole(&'static str),
}

/// Tells repeated events apart where the server counts them. A server whose numbers do not grow is not believed.
#[derive(Debug, Default)]
struct Sequence {
    last: Option<u64>,
    grows: bool,
}

impl Sequence {
    fn is_repeated(&mut self, frame: &Value) -> bool {
        let Some(number) = frame["sequence_number"].as_u64() else { return false };
        match self.last {
            Some(last) if number <= last => self.grows,
            Some(_) => {
                self.grows = true;
                self.last = Some(number);
                false
            }
            None => {
                self.last = Some(number);
                false
            }
        }
    }
}

/// Whether a text is no JSON of more values than are read. Brackets and commas are counted, so no fewer values are in it.
pub(super) fn few_values(text: &[u8]) -> Result<(), DecodeError> {
    let count = memchr::memchr3_iter(b'[', b'{', b',', text).take(limits::FRAME_VALUES_MAX + 1).count();
    if count > limits::FRAME_VALUES_MAX { Err(DecodeError::TooManyValues) } else { Ok(()) }
}

/// True for names under which this protocol's events come.
fn is_ours(name: &str) -> bool {
    matches!(name, "" | "message" | "error") || name.starts_with("response.")
}

fn is_terminal(kind: &str) -> bool {
    matches!(
        kind,
        "response.completed" | "response.failed" | "response.incomplete" | "response.cancelled" | "response.done"
    )
}

fn bounded(slot: &Slot) -> Result<(), DecodeError> {
    let is_call = slot.kind.as_ref().is_some_and(Kind::is_call);
    if is_call && slot.payload.len() > wharf_core::limits::CALL_PAYLOAD_BYTES_MAX {
        return Err(DecodeError::PayloadTooLong);
    }
    Ok(())
}

/// What the parser says, without any text of the data: its kind and its place.
fn without_quote(fault: &serde_json::Error) -> String {
    let kind = match fault.classify() {
        serde_json::error::Category::Eof => "it ends early",
        serde_json::error::Category::Syntax => "wrong syntax",
        serde_json::error::Category::Data | serde_json::error::Category::Io => "it cannot be read",
    };
    format!("{kind} at line {}, column {}", fault.line(), fault.column())
}

#[cfg(test)]
mod tests;
