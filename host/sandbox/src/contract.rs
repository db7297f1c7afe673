//! The contract `wharf:tool` in this host's words: the bindings that are made from `wit/`, what its imports answer, and
//! the conversions to and from core's types. It decides nothing about files or the network.

use wharf_core::BlobDigest;
use wharf_core::digest::Digest;
use wharf_core::tool::{self, Failure, FailureKind};

use crate::call::{Attachment, Invocation};
use crate::limits;
use crate::state::StoreState;

mod bindings {
    #![allow(missing_docs, unreachable_pub, clippy::all)] // generated
    wasmtime::component::bindgen!({
        path: "../../wit/0.1.0-draft",
        world: "capability",
        exports: { default: async },
        require_store_data_send: true,
    });
}

pub(crate) use bindings::exports::wharf::tool::{about, tools};
pub(crate) use bindings::wharf::tool::types;

use bindings::wharf::tool::{blobs, calls, progress, secrets};

/// Puts the contract's imports into a linker.
pub(crate) fn add_to_linker(linker: &mut wasmtime::component::Linker<StoreState>) -> wasmtime::Result<()> {
    type Own = wasmtime::component::HasSelf<StoreState>;
    types::add_to_linker::<_, Own>(linker, |state| state)?;
    progress::add_to_linker::<_, Own>(linker, |state| state)?;
    secrets::add_to_linker::<_, Own>(linker, |state| state)?;
    blobs::add_to_linker::<_, Own>(linker, |state| state)?;
    calls::add_to_linker::<_, Own>(linker, |state| state)
}

impl types::Host for StoreState {}

impl progress::Host for StoreState {
    fn report(&mut self, message: String, done: Option<u64>, total: Option<u64>) {
        self.report_progress(message, done, total);
    }
}

impl secrets::Host for StoreState {
    fn has(&mut self, _name: String) -> bool {
        false
    }
}

impl blobs::Host for StoreState {
    fn read(&mut self, digest: types::Digest, offset: u64, length: u32) -> Result<Vec<u8>, types::Failure> {
        let Some(blob) = self.attachments().iter().find(|blob| blob.digest.as_str() == digest) else {
            return Err(failure(types::FailureKind::NotFound, "no such blob was handed to this call".into()));
        };
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(blob.bytes.len());
        let length = usize::try_from(length).unwrap_or(usize::MAX).min(limits::BLOB_READ_BYTES_MAX);
        let end = start.saturating_add(length).min(blob.bytes.len());
        Ok(blob.bytes.slice(start..end).to_vec())
    }
}

impl calls::Host for StoreState {
    fn call(&mut self, name: String, _input: String) -> Result<Vec<types::Content>, types::Failure> {
        let (name, capability) = (name.escape_debug().take(100).collect::<String>(), self.capability());
        Err(failure(
            types::FailureKind::Denied,
            format!(
                "tool \"{name}\" may not be called from capability {capability}; the policy line that would grant it is \
                 tools = [\"{name}\"] in capabilities.{capability}.grants, which this host does not serve yet"
            ),
        ))
    }
}

fn failure(kind: types::FailureKind, message: String) -> types::Failure {
    types::Failure { kind, message, retry_after_ms: None, details: None }
}

/// The invocation as the component gets it.
pub(crate) fn invocation(call: &Invocation, time_left_ms: u64) -> tools::Invocation {
    let attachment = |blob: &Attachment| types::Attachment {
        digest: blob.digest.as_str().to_owned(),
        media_type: blob.media_type.clone(),
        name: blob.name.clone(),
        length: blob.bytes.len() as u64,
    };
    tools::Invocation {
        tool: call.tool.as_str().to_owned(),
        input: call.input.clone(),
        config: call.config.clone(),
        call_id: call.call_id.as_str().to_owned(),
        idempotency_key: call.idempotency_key.clone(),
        attempt: call.attempt,
        time_left_ms,
        attachments: call.attachments.iter().map(attachment).collect(),
    }
}

/// The type of bytes of which nothing is known.
const UNKNOWN_TYPE: &str = "application/octet-stream";

/// Contents in core's words. JSON that does not parse is refused as JSON and shown as the text that it is: the call has
/// had its effects and its result is not lost. Names and media types of blobs are shown to the model whatever the output's
/// limit is, so they are cut here.
pub(crate) fn contents(contents: Vec<types::Content>) -> Vec<tool::Content> {
    let one = |content| match content {
        types::Content::Text(text) => tool::Content::Text(text),
        types::Content::Json(text) if is_json(&text) => tool::Content::Json(text),
        types::Content::Json(text) => tool::Content::Text(text),
        types::Content::Blob(types::Blob { media_type, name, bytes }) => tool::Content::Blob(tool::Blob {
            media_type: if media_type.len() > limits::MEDIA_TYPE_BYTES_MAX { UNKNOWN_TYPE.into() } else { media_type },
            name: name.map(|name| name[..name.floor_char_boundary(limits::BLOB_NAME_BYTES_MAX)].to_owned()),
            digest: BlobDigest::new(Digest::of(&bytes).to_string()),
            bytes,
        }),
    };
    contents.into_iter().map(one).collect()
}

/// A component's failure in core's words, cut to `limit` bytes of text.
pub(crate) fn core_failure(failure: types::Failure, limit: u64) -> Failure {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let details = failure.details.map(|text| {
        if text.len() > limit {
            return serde_json::Value::String(wharf_core::cut::cut_text(&text, limit));
        }
        serde_json::from_str(&text).unwrap_or(serde_json::Value::String(text))
    });
    Failure {
        kind: match failure.kind {
            types::FailureKind::InvalidInput => FailureKind::InvalidInput,
            types::FailureKind::NotFound => FailureKind::NotFound,
            types::FailureKind::Denied => FailureKind::Denied,
            types::FailureKind::Unavailable => FailureKind::Unavailable,
            types::FailureKind::TimedOut => FailureKind::TimedOut,
            types::FailureKind::Cancelled => FailureKind::Cancelled,
            types::FailureKind::Conflict => FailureKind::Conflict,
            types::FailureKind::Failed => FailureKind::Failed,
        },
        message: wharf_core::cut::cut_text(&failure.message, limit),
        retry_after_ms: failure.retry_after_ms,
        details,
    }
}

fn is_json(text: &str) -> bool {
    serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    // The output's limit does not count them, and a component writes them.
    #[test]
    fn names_and_media_types_of_blobs_are_bounded() {
        let shown = |media_type: String, name: String| {
            let blob = types::Blob { media_type, name: Some(name), bytes: Vec::new() };
            match contents(vec![types::Content::Blob(blob)]).pop() {
                Some(tool::Content::Blob(blob)) => (blob.media_type, blob.name.unwrap()),
                other => panic!("{other:?}"),
            }
        };
        let (media_type, name) = ("m".repeat(128), "n".repeat(255));
        assert_eq!(shown(media_type.clone(), name.clone()), (media_type.clone(), name.clone()));
        assert_eq!(shown(media_type + "m", name.clone() + "n"), ("application/octet-stream".to_owned(), name));
        assert_eq!(shown(String::new(), "é".repeat(1 << 20)), (String::new(), "é".repeat(127)));
    }
}
