//! The output items of one response while they come in: which frame belongs to which item, and what is known of each.
//!
//! Frames name an item by its id, by the call's id, by its place, or by none of them, and servers disagree about all
//! three (wire facts, section 13). Here no event is made and nothing is decided about running anything.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::limits;

/// What an item is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    /// A function call.
    Function,
    /// A call of a custom tool.
    Custom,
    /// Text or refusal of the model.
    Message,
    /// Reasoning.
    Reasoning,
    /// Anything else: kept, never interpreted.
    Other(String),
}

impl Kind {
    /// The kind that an item's `type` names.
    pub(super) fn of(text: &str) -> Self {
        match text {
            "function_call" => Self::Function,
            "custom_tool_call" => Self::Custom,
            "message" => Self::Message,
            "reasoning" => Self::Reasoning,
            other => Self::Other(other.to_owned()),
        }
    }

    /// True for the two kinds that the host runs.
    pub(super) fn is_call(&self) -> bool {
        match self {
            Self::Function | Self::Custom => true,
            Self::Message | Self::Reasoning | Self::Other(_) => false,
        }
    }
}

/// A part of an item's text: what it is, and its place within the item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Part {
    /// Its place.
    pub(super) place: u64,
    /// What it is.
    pub(super) of: PartOf,
}

/// What a part of text is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PartOf {
    /// The answer.
    Text,
    /// A refusal.
    Refusal,
    /// A summary of reasoning.
    Summary,
}

/// How far an item is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    /// Announced or partial: nothing of it may run (P5).
    Open,
    /// Its last frame came and said that it was cut off.
    Cut,
    /// Whole.
    Finished,
}

/// What a frame says about which item it belongs to.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Address<'f> {
    /// The item's id.
    pub(super) item_id: Option<&'f str>,
    /// The call's id.
    pub(super) call_id: Option<&'f str>,
    /// Its place in the output.
    pub(super) index: Option<u64>,
}

impl<'f> Address<'f> {
    /// The address of a frame, with the item in it if it carries one. Empty texts say nothing.
    pub(super) fn of(frame: &'f Value) -> Self {
        let item = &frame["item"];
        Self {
            item_id: text(&item["id"]).or(text(&frame["item_id"])),
            call_id: text(&item["call_id"]).or(text(&frame["call_id"])),
            index: frame["output_index"].as_u64(),
        }
    }

    fn says_nothing(self) -> bool {
        self.item_id.is_none() && self.call_id.is_none() && self.index.is_none()
    }
}

/// Which frame asks. They differ in how far a place alone is trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asking {
    /// One that announces an item: another id at a known place is another item.
    Added,
    /// A fragment or a finished item: some gateways give each frame an id of its own, so an unknown id at the place of an
    /// open item is that item.
    Later,
    /// An item of the terminal list: the same for finished items, and if even the place differs, the first item of the
    /// kind that the list has not named yet.
    Terminal,
}

/// One item.
#[derive(Debug, Clone)]
pub(super) struct Slot {
    item_id: Option<String>,
    call_id: Option<String>,
    index: Option<u64>,
    /// What it is, once known.
    pub(super) kind: Option<Kind>,
    /// How far it is.
    pub(super) progress: Progress,
    /// The tool's name.
    pub(super) name: Option<String>,
    /// Arguments or raw input so far.
    pub(super) payload: String,
    /// The mark that the model used async.
    pub(super) is_async: Option<bool>,
    /// Text by part.
    pub(super) parts: BTreeMap<Part, String>,
    /// The finished item as it is kept.
    pub(super) raw: Option<Value>,
    /// The terminal list named it.
    pub(super) in_terminal: bool,
}

impl Slot {
    fn new(address: Address<'_>, kind: Option<Kind>) -> Self {
        Self {
            item_id: address.item_id.map(str::to_owned),
            call_id: address.call_id.map(str::to_owned),
            index: address.index,
            kind,
            progress: Progress::Open,
            name: None,
            payload: String::new(),
            is_async: None,
            parts: BTreeMap::new(),
            raw: None,
            in_terminal: false,
        }
    }

    /// The call's id, once known.
    pub(super) fn call_id(&self) -> Option<&str> {
        self.call_id.as_deref()
    }

    /// The text of all parts of one sort, in their order.
    pub(super) fn text(&self, of: PartOf) -> String {
        self.parts.iter().filter(|(part, _)| part.of == of).map(|(_, text)| text.as_str()).collect()
    }

    /// Takes what a whole item or a last frame says. An empty or absent member means "not carried" (P6).
    pub(super) fn absorb(&mut self, frame: &Map<String, Value>) {
        let carried = |name: &str| frame.get(name).and_then(text);
        if let Some(name) = carried("name") {
            self.name = Some(name.to_owned());
        }
        for member in ["arguments", "input"] {
            match frame.get(member) {
                Some(Value::String(whole)) if !whole.is_empty() => self.payload = whole.clone(),
                // Some gateways send arguments as an object where the protocol has text.
                Some(whole @ (Value::Object(_) | Value::Array(_))) => self.payload = whole.to_string(),
                _ => {}
            }
        }
        if let Some(flag) = frame.get("async").and_then(Value::as_bool) {
            self.is_async = Some(flag);
        }
    }

    /// Takes what a frame says that was not known; gives how many bytes that is.
    fn learn(&mut self, address: Address<'_>, kind: Option<&Kind>) -> usize {
        let learn = |known: &mut Option<String>, new: Option<&str>| {
            if known.is_some() {
                return 0;
            }
            *known = new.map(str::to_owned);
            new.map_or(0, str::len)
        };
        let learned = learn(&mut self.item_id, address.item_id) + learn(&mut self.call_id, address.call_id);
        self.index = self.index.or(address.index);
        if self.kind.is_none() {
            self.kind = kind.cloned();
        }
        learned
    }

    /// How many bytes the parts of its text take.
    pub(super) fn parts_bytes(&self) -> usize {
        self.parts.values().map(|text| limits::VALUE_BYTES + text.len()).sum()
    }

    /// How many bytes its name and its payload take.
    pub(super) fn carried_bytes(&self) -> usize {
        self.name.as_deref().map_or(0, str::len) + self.payload.len()
    }

    /// False if frame and slot contradict each other in kind or in the call's id.
    fn fits(&self, address: Address<'_>, kind: Option<&Kind>) -> bool {
        let kinds = self.kind.as_ref().zip(kind).is_none_or(|(mine, other)| mine == other);
        let calls = self.call_id.as_deref().zip(address.call_id).is_none_or(|(mine, other)| mine == other);
        kinds && calls
    }

    fn ids_differ(&self, address: Address<'_>) -> bool {
        self.item_id.as_deref().zip(address.item_id).is_some_and(|(mine, other)| mine != other)
    }

    fn is_nameless(&self) -> bool {
        self.item_id.is_none() && self.call_id.is_none() && self.index.is_none()
    }
}

/// All items of one response, in the order in which they were first heard of.
#[derive(Debug, Clone, Default)]
pub(super) struct Slots {
    slots: Vec<Slot>,
    /// What the slots and their ids take.
    bytes: usize,
}

impl Slots {
    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// How many bytes the slots and their ids take, what they carry apart.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The item at a position that [`Slots::find`] or [`Slots::find_or_add`] gave.
    pub(super) fn get_mut(&mut self, position: usize) -> Option<&mut Slot> {
        self.slots.get_mut(position)
    }

    /// In the order of the output, as far as places are known.
    pub(super) fn in_order(&self) -> Vec<&Slot> {
        let mut slots: Vec<&Slot> = self.slots.iter().collect();
        slots.sort_by_key(|slot| slot.index.unwrap_or(u64::MAX));
        slots
    }

    /// The item that a frame belongs to, or a new one.
    pub(super) fn find_or_add(&mut self, address: Address<'_>, kind: Option<&Kind>, asking: Asking) -> usize {
        self.find(address, kind, asking).unwrap_or_else(|| {
            let ids = [address.item_id, address.call_id].into_iter().flatten().map(str::len).sum::<usize>();
            let kind_bytes = if let Some(Kind::Other(word)) = kind { word.len() } else { 0 };
            self.bytes = self.bytes.saturating_add(limits::VALUE_BYTES + ids + kind_bytes);
            self.slots.push(Slot::new(address, kind.cloned()));
            self.slots.len() - 1
        })
    }

    /// The item that a frame belongs to: by item id, else by call id, else by place, else the only one it can be (P7).
    pub(super) fn find(&mut self, address: Address<'_>, kind: Option<&Kind>, asking: Asking) -> Option<usize> {
        let position = self.search(address, kind, asking)?;
        if let Some(slot) = self.slots.get_mut(position) {
            self.bytes = self.bytes.saturating_add(slot.learn(address, kind));
            if asking == Asking::Terminal {
                // The list is in order, whatever places the frames named.
                slot.index = address.index;
            }
        }
        Some(position)
    }

    fn search(&self, address: Address<'_>, kind: Option<&Kind>, asking: Asking) -> Option<usize> {
        let first = |wanted: &dyn Fn(&Slot) -> bool| {
            self.slots.iter().position(|slot| slot.fits(address, kind) && wanted(slot))
        };
        let only = |wanted: &dyn Fn(&Slot) -> bool| {
            let mut found = self
                .slots
                .iter()
                .enumerate()
                .filter(|(_, slot)| slot.fits(address, kind) && wanted(slot))
                .map(|at| at.0);
            found.next().filter(|_| found.next().is_none())
        };
        if let Some(id) = address.item_id
            && let Some(position) = first(&|slot| slot.item_id.as_deref() == Some(id))
        {
            return Some(position);
        }
        if let Some(id) = address.call_id
            && let Some(position) = first(&|slot| slot.call_id.as_deref() == Some(id))
        {
            return Some(position);
        }
        if let Some(index) = address.index {
            let at_place = |slot: &Slot| slot.index == Some(index) && !(asking == Asking::Terminal && slot.in_terminal);
            let found = only(&|slot| {
                at_place(slot)
                    && match asking {
                        Asking::Added => !slot.ids_differ(address),
                        Asking::Later => slot.progress == Progress::Open || !slot.ids_differ(address),
                        Asking::Terminal => true,
                    }
            });
            if found.is_some() {
                return found;
            }
        }
        let is_open = |slot: &Slot| slot.progress == Progress::Open;
        match asking {
            Asking::Added => None,
            Asking::Later if address.says_nothing() => only(&is_open),
            Asking::Later => only(&|slot| is_open(slot) && slot.is_nameless()),
            // A call that bears another id than all calls before it is another call, so `fits` keeps those apart.
            Asking::Terminal => first(&|slot| !slot.in_terminal && slot.kind.as_ref() == kind),
        }
    }
}

/// A text that says something.
pub(super) fn text(value: &Value) -> Option<&str> {
    value.as_str().filter(|text| !text.is_empty())
}
