//! Records: what a journal is made of. Each says one thing that happened, is numbered by the store, versioned and
//! self-contained; all state is their fold (design section 8). A kind or a version that was ever written stays readable.

mod json;
#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
pub(crate) mod tests;

use serde_json::Value;

use crate::call::Call;
use crate::ids::{CallId, ResponseId, TurnId};
use crate::model::{Item, Outcome, Usage};
use crate::policy::{Hold, RefusalReason, ReplayClass};

pub use json::{Encoded, item_from_json, item_to_json};

/// One thing that happened in a session.
#[derive(Debug, Clone, PartialEq)]
pub enum Record {
    /// The harness in force from here on, by digest (X14).
    HarnessBound(HarnessFacts),
    /// A turn began with this input.
    TurnStarted {
        /// Its id.
        turn: TurnId,
        /// What the user said.
        input: Vec<Item>,
        /// Outputs of calls that an abandoned turn left without one; they stand before the input.
        closes: Vec<Closed>,
    },
    /// A turn came to its end.
    TurnEnded {
        /// Its id.
        turn: TurnId,
        /// How: `completed`, `abandoned`, `failed`.
        status: String,
    },
    /// A call was registered; it has not started.
    CallAccepted {
        /// The call under the host's key.
        call: Call,
        /// The provider's id, where it differs.
        wire_call_id: Option<CallId>,
        /// What policy said.
        replay: ReplayClass,
        /// What it waits for.
        hold: Option<Hold>,
        /// For a keyed call.
        idempotency_key: Option<String>,
    },
    /// A call was refused: settled with an error output, never executed.
    CallRejected {
        /// The call with its raw text.
        call: Call,
        /// The provider's id, where it differs.
        wire_call_id: Option<CallId>,
        /// Why.
        reason: RefusalReason,
        /// What the model is told.
        output: String,
    },
    /// A call may run from here on; the consumption of an approval is part of this record (L67).
    CallStarted {
        /// Which.
        id: CallId,
        /// 1 for its first run.
        attempt: u32,
        /// The key that this run is given.
        idempotency_key: Option<String>,
        /// The approval that it uses up.
        approval: Option<String>,
    },
    /// A call has its result.
    CallSettled {
        /// Which.
        id: CallId,
        /// The output as the provider will get it.
        output: String,
        /// How it came about.
        how: Settlement,
    },
    /// A call that was running when its host stopped will be run again (G4, G12).
    CallRequeued {
        /// Which.
        id: CallId,
    },
    /// Policy is narrower now: a call that was safe or keyed is not run again (L15).
    ReplayNarrowed {
        /// Which.
        id: CallId,
    },
    /// A hold ended by an approval (L61); a rejection or an outside output settles the call instead.
    HoldReleased {
        /// Which.
        id: CallId,
        /// The approval.
        approval: String,
    },
    /// Calls whose response will never be accepted (L58, L60).
    CallsOrphaned {
        /// Which.
        ids: Vec<CallId>,
    },
    /// A request is in flight; written before it is sent.
    ResponseBegun(Begun),
    /// The id of the response in flight, at the first event that carried it (L55).
    ResponseStarted {
        /// The id.
        id: ResponseId,
    },
    /// A response was accepted that carried no delivery (F3).
    ResponseCompleted {
        /// The id.
        id: ResponseId,
    },
    /// Ready calls were put into a delivery; their outputs are those of their settlements.
    DeliveryPrepared {
        /// What it goes on from (I7).
        previous_response_id: ResponseId,
        /// The calls, in order (I6).
        call_ids: Vec<CallId>,
        /// Items that stand behind the outputs (I10).
        after: Vec<Item>,
    },
    /// The open delivery was accepted (J5).
    DeliveryAcknowledged {
        /// By this response.
        receipt: ResponseId,
    },
    /// What an accepted response holds, verbatim.
    ResponseRecorded(ResponseFacts),
    /// The response in flight is settled as accepted (L20).
    FlightCleared,
    /// The response in flight is settled as not accepted: its delivery is rolled back, its calls are orphans (G14, G19,
    /// L58, L60).
    FlightSettled {
        /// Why it counts as not accepted.
        fate: FlightFate,
        /// What was seen, for people.
        why: String,
        /// Its calls.
        orphans: Vec<CallId>,
    },
    /// The summary of the response that was just accepted (L38).
    SummaryStaged {
        /// Usage, counts and the like.
        summary: Value,
    },
    /// The pending transcript message is final (L39).
    TranscriptCommitted {
        /// Its id.
        message_id: String,
    },
    /// The pending transcript message will never be: its response was not accepted (G18).
    TranscriptDropped,
    /// The turn's outcome (L40).
    OutcomeStored {
        /// The outcome.
        outcome: Value,
    },
    /// The turn waits for somebody.
    Paused {
        /// For what.
        reason: PauseReason,
    },
    /// The turn goes on.
    Resumed {
        /// Why it may.
        why: String,
    },
    /// An operator answered for an uncertain request (G17).
    Reconciled {
        /// What was commanded.
        command: Reconcile,
        /// By whom.
        who: String,
    },
    /// An item of the inbox was turned into the records beside this one (M8).
    InboxConsumed {
        /// The item.
        id: String,
        /// Its kind.
        kind: String,
        /// What it was about.
        target: String,
        /// Who left it.
        who: String,
        /// Why it was not done: it cannot be read, or no longer fits. None if it was done.
        refused: Option<String>,
    },
    /// The lease was given up with work pending (L40, L62).
    Parked {
        /// Why.
        why: String,
    },
}

/// The harness that a session runs under, as it is compared on resume (X14).
#[derive(Debug, Clone, PartialEq)]
pub struct HarnessFacts {
    /// Its name.
    pub name: String,
    /// Digest over the components.
    pub component: String,
    /// Digest over component, grants, replay, async and approval.
    pub authority: String,
    /// Digest over model, instructions and definitions as shown.
    pub conversation: String,
    /// The authority itself, so that "narrower" can be told from "wider".
    pub authority_value: Value,
}

/// A request that is about to be sent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Begun {
    /// Counts the requests of the session, from 1.
    pub ordinal: u64,
    /// The transcript message that its answer will be.
    pub message_id: Option<String>,
    /// The stored response that it goes on from.
    pub continues: Option<ResponseId>,
    /// True if it carries the whole history and continues nothing stored (G19).
    pub whole_history: bool,
    /// Calls of a lost response that this request tells the model about (L59).
    pub told: Vec<CallId>,
    /// The text that tells of them, where it does not go with a delivery.
    pub notice: Option<String>,
    /// `provider/model` that is asked, and so makes what comes (O20); records of before it was kept have none.
    pub maker: Option<String>,
}

/// A call of an accepted response that never got its output because its turn was abandoned, and the output that it gets
/// instead: without one the provider takes no further request (PROV-12).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Closed {
    /// The call, by the host's key.
    pub id: CallId,
    /// What the host says in place of a result; none where the call was settled, its output is that of its settlement then.
    pub output: Option<String>,
}

/// What an accepted response holds.
#[derive(Debug, Clone, PartialEq)]
pub struct ResponseFacts {
    /// Its id.
    pub id: ResponseId,
    /// How it ended.
    pub outcome: Outcome,
    /// In neutral words.
    pub finish_reason: Option<String>,
    /// Output items, verbatim.
    pub items: Vec<Value>,
    /// The whole text.
    pub text: String,
    /// The whole refusal.
    pub refusal: Option<String>,
    /// Usage.
    pub usage: Option<Usage>,
    /// The model that answered.
    pub model: Option<String>,
    /// From the request to the first piece of text, in milliseconds.
    pub first_token_ms: Option<u64>,
}

/// How a call came to its result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Settlement {
    /// The executor gave an output; a tool's own failure is one too.
    Done,
    /// The executor gave an error (L28).
    Failed,
    /// Somebody cancelled (H1).
    Cancelled,
    /// Its job crashed (L29).
    Crashed,
    /// Its host stopped while it ran, and it is not run again (G5).
    Interrupted,
    /// The output came from outside (L61).
    Outside,
    /// Somebody rejected it (X18).
    Declined,
}

impl Settlement {
    const ALL: [(Self, &'static str); 7] = [
        (Self::Done, "done"),
        (Self::Failed, "failed"),
        (Self::Cancelled, "cancelled"),
        (Self::Crashed, "crashed"),
        (Self::Interrupted, "interrupted"),
        (Self::Outside, "outside"),
        (Self::Declined, "declined"),
    ];

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        Self::ALL.iter().find(|(how, _)| *how == self).map_or("done", |(_, word)| word)
    }

    /// Reads the word; `None` if it is another.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, known)| *known == word).map(|(how, _)| *how)
    }
}

/// Why a request counts as not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FlightFate {
    /// Nothing left this machine (G14).
    NotSent,
    /// The provider refused it (G14).
    Refused,
    /// The provider began it and says that it failed or was cancelled (G20, L66).
    NotAccepted,
    /// Nobody can tell, and nothing stored depends on it (G19).
    Lost,
    /// An operator said: send again (G17).
    Resend,
    /// An operator said: give up (G17, L60).
    Abandoned,
}

impl FlightFate {
    const ALL: [(Self, &'static str); 6] = [
        (Self::NotSent, "not_sent"),
        (Self::Refused, "refused"),
        (Self::NotAccepted, "not_accepted"),
        (Self::Lost, "lost"),
        (Self::Resend, "resend"),
        (Self::Abandoned, "abandoned"),
    ];

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        Self::ALL.iter().find(|(fate, _)| *fate == self).map_or("lost", |(_, word)| word)
    }

    /// Reads the word; `None` if it is another.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, known)| *known == word).map(|(fate, _)| *fate)
    }
}

/// What a paused turn waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PauseReason {
    /// An operator's answer: a response was lost in which a call of class never was started (L59).
    LostResponse {
        /// Those calls.
        calls: Vec<CallId>,
    },
    /// A decision or an output for held calls (L61).
    Held {
        /// Those calls.
        calls: Vec<CallId>,
    },
    /// A resume: the response was incomplete (L66).
    Incomplete {
        /// The provider's reason.
        reason: String,
    },
    /// A resume with a higher limit: too many calls named unknown tools (L51).
    UnknownTools {
        /// How many.
        count: u64,
    },
    /// A resume: the host was told to stop (L62).
    Shutdown,
}

/// An operator's answer for an uncertain request (G17).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reconcile {
    /// It was accepted, by this response.
    Receipt(ResponseId),
    /// Roll back and send again.
    Resend,
    /// Send nothing; end the turn.
    Abandon,
}
