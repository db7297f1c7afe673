//! The form in which a call's result goes back: JSON text, or, where it holds images or files that the model can look at,
//! the protocol's list form (A21). Knows no provider and no model: what a model takes comes in as a value.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::tool::{Blob, Content, Failure, envelope};

/// Which blobs a model takes in the output of a call, by its profile (O12).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Takes {
    /// Images.
    pub images: bool,
    /// Files of other kinds.
    pub files: bool,
}

/// What is delivered for a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// A JSON string on the wire: the envelope of Q5.
    Text(String),
    /// The list form (A21): the envelope first, then what a model looks at.
    List(Vec<OutputPart>),
}

/// One part of the list form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OutputPart {
    /// Text.
    Text(String),
    /// An image.
    Image(Blob),
    /// A file of another kind.
    File(Blob),
}

impl Output {
    /// The output of a finished call for a model that takes this.
    ///
    /// ```
    /// use wharf_core::output::{Output, Takes};
    /// use wharf_core::tool::Content;
    /// let text = Output::of(Ok(&[Content::Text("hi".into())]), Takes { images: true, files: true });
    /// assert_eq!(text, Output::Text(r#"{"result":"hi","error":null,"images":[]}"#.into()));
    /// ```
    pub fn of(outcome: Result<&[Content], &Failure>, takes: Takes) -> Self {
        let Ok(contents) = outcome else { return Self::Text(envelope(outcome)) };
        let (shown, told): (Vec<&Content>, Vec<&Content>) = contents.iter().partition(|content| match content {
            Content::Text(_) | Content::Json(_) => false,
            Content::Blob(blob) if blob.is_image() => takes.images,
            Content::Blob(_) => takes.files,
        });
        if shown.is_empty() {
            return Self::Text(envelope(outcome));
        }
        let told: Vec<Content> = told.into_iter().cloned().collect();
        let mut parts = vec![OutputPart::Text(envelope(Ok(&told)))];
        parts.extend(shown.into_iter().filter_map(|content| match content {
            Content::Blob(blob) if blob.is_image() => Some(OutputPart::Image(blob.clone())),
            Content::Blob(blob) => Some(OutputPart::File(blob.clone())),
            Content::Text(_) | Content::Json(_) => None,
        }));
        Self::List(parts)
    }

    /// The member `output` of an output item (A10, A21).
    pub fn to_wire(&self) -> Value {
        match self {
            Self::Text(text) => Value::String(text.clone()),
            Self::List(parts) => parts.iter().map(OutputPart::to_wire).collect(),
        }
    }
}

impl OutputPart {
    fn to_wire(&self) -> Value {
        match self {
            Self::Text(text) => json!({ "type": "input_text", "text": text }),
            Self::Image(blob) => json!({ "type": "input_image", "image_url": data_url(blob) }),
            Self::File(blob) => json!({
                "type": "input_file", "filename": blob.name.as_deref().unwrap_or("file"), "file_data": data_url(blob),
            }),
        }
    }
}

fn data_url(blob: &Blob) -> String {
    format!("data:{};base64,{}", blob.media_type, STANDARD.encode(&blob.bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Call;
    use crate::digest::Digest;
    use crate::tool::FailureKind;

    fn blob(media_type: &str, name: Option<&str>, bytes: &[u8]) -> Content {
        Content::Blob(Blob {
            media_type: media_type.into(),
            name: name.map(str::to_owned),
            bytes: bytes.to_vec(),
            digest: Digest::of(bytes).to_string().into(),
        })
    }

    const BOTH: Takes = Takes { images: true, files: true };
    const IMAGES: Takes = Takes { images: true, files: false };
    const NEITHER: Takes = Takes { images: false, files: false };

    #[test]
    fn an_image_goes_as_an_image_to_a_model_that_takes_images() {
        // covers A21, Q18
        let contents = [Content::Text("a cat".into()), blob("image/png", None, b"\x89PNG")];
        let item = Call::custom("c1", "draw", "cat").output_item_for(&Output::of(Ok(&contents), IMAGES));
        assert_eq!(
            item,
            json!({
                "type": "custom_tool_call_output",
                "call_id": "c1",
                "output": [
                    { "type": "input_text", "text": r#"{"result":"a cat","error":null,"images":[]}"# },
                    { "type": "input_image", "image_url": "data:image/png;base64,iVBORw==" },
                ],
            })
        );
    }

    #[test]
    fn an_image_is_a_reference_for_a_model_that_takes_none() {
        // covers A21, Q18
        let contents = [Content::Text("a cat".into()), blob("image/png", None, b"\x89PNG")];
        let digest = Digest::of(b"\x89PNG");
        let item = Call::function("c1", "draw", "{}").output_item_for(&Output::of(Ok(&contents), NEITHER));
        let text = format!(
            r#"{{"result":"a cat","error":null,"images":[{{"media_type":"image/png","name":null,"digest":"{digest}","length":4}}]}}"#
        );
        assert_eq!(item, json!({ "type": "function_call_output", "call_id": "c1", "output": text }));
    }

    #[test]
    fn a_file_goes_as_a_file_only_where_files_are_taken() {
        // covers A21
        let contents = [blob("application/pdf", Some("a.pdf"), b"%PDF"), blob("image/png", None, b"i")];
        let digest = Digest::of(b"%PDF");
        let reference = format!(r#"{{"media_type":"application/pdf","name":"a.pdf","digest":"{digest}","length":4}}"#);
        let image = json!({ "type": "input_image", "image_url": "data:image/png;base64,aQ==" });
        assert_eq!(
            Output::of(Ok(&contents), BOTH).to_wire(),
            json!([
                { "type": "input_text", "text": r#"{"result":null,"error":null,"images":[]}"# },
                { "type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERg==" },
                image,
            ])
        );
        assert_eq!(
            Output::of(Ok(&contents), IMAGES).to_wire(),
            json!([
                { "type": "input_text", "text": format!(r#"{{"result":{reference},"error":null,"images":[]}}"#) },
                image,
            ])
        );
    }

    #[test]
    fn text_only_results_and_failures_stay_a_string() {
        // covers A10, A21
        let call = Call::function("c1", "read", "{}");
        let contents = [Content::Json("1".into()), Content::Text("two".into())];
        assert_eq!(
            call.output_item_for(&Output::of(Ok(&contents), BOTH)),
            call.output_item(r#"{"result":[1,"two"],"error":null,"images":[]}"#)
        );
        let failure = Failure::new(FailureKind::Denied, "no");
        assert_eq!(
            call.output_item_for(&Output::of(Err(&failure), BOTH)),
            call.output_item(r#"{"result":null,"error":{"kind":"denied","message":"no"},"images":[]}"#)
        );
    }
}
