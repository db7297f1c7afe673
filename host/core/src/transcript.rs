//! A session's messages for people and embedders (Z9, Q2): a fold of records.

use crate::call::Call;
use crate::history::{History, text_of};
use crate::ids::CallId;
use crate::model::{Item, Role};
use crate::record::Record;

/// One message.
#[derive(Debug, Clone, PartialEq)]
pub enum Message {
    /// Text of a role.
    Text {
        /// Whose.
        role: Role,
        /// What.
        text: String,
    },
    /// A call that the model made, in its native form.
    Call(Call),
    /// The result of a call.
    Result {
        /// Whose.
        call_id: CallId,
        /// As it was delivered.
        output: String,
    },
}

/// The messages of these records, in the order in which the model saw them. Of opaque provider items only texts are kept.
pub fn messages<'a>(records: impl IntoIterator<Item = &'a Record>) -> Vec<Message> {
    let mut history = History::new();
    for record in records {
        history.apply(record);
    }
    history
        .items()
        .iter()
        .filter_map(|item| match item {
            Item::Message { role, text } => Some(Message::Text { role: *role, text: text.clone() }),
            Item::Call(call) => Some(Message::Call(call.clone())),
            Item::Output { call, output } => Some(Message::Result { call_id: call.id.clone(), output: output.clone() }),
            Item::Opaque { raw, .. } => text_of(raw).map(|text| Message::Text { role: Role::Assistant, text }),
        })
        .collect()
}
