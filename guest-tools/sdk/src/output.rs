//! What a tool's function may return, and how it becomes content.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::{Blob, Content, Failure, schema};

/// A value that can be the success of a tool.
pub trait Output {
    /// The JSON Schema that the tool promises for its result; none by default.
    fn schema() -> Option<Value> {
        None
    }

    /// The content of the result.
    ///
    /// # Errors
    /// When the value cannot be written as content.
    fn into_contents(self) -> Result<Vec<Content>, Failure>;
}

/// A JSON result. The tool promises the schema of `T`.
#[derive(Clone, Debug, PartialEq)]
pub struct Json<T>(pub T);

impl<T: Serialize + JsonSchema> Output for Json<T> {
    fn schema() -> Option<Value> {
        Some(schema::of_output::<T>())
    }

    fn into_contents(self) -> Result<Vec<Content>, Failure> {
        Content::json_of(&self.0).map(|content| vec![content])
    }
}

impl Output for String {
    fn into_contents(self) -> Result<Vec<Content>, Failure> {
        Ok(vec![Content::Text(self)])
    }
}

impl Output for &'static str {
    fn into_contents(self) -> Result<Vec<Content>, Failure> {
        Ok(vec![Content::Text(self.to_owned())])
    }
}

impl Output for Content {
    fn into_contents(self) -> Result<Vec<Content>, Failure> {
        Ok(vec![self])
    }
}

impl Output for Vec<Content> {
    fn into_contents(self) -> Result<Vec<Content>, Failure> {
        Ok(self)
    }
}

impl Content {
    /// JSON content made from a value, without a promise about its schema.
    ///
    /// # Errors
    /// When the value has no JSON form, for example a map whose keys are not strings.
    pub fn json_of(value: &impl Serialize) -> Result<Self, Failure> {
        serde_json::to_string(value)
            .map(Self::Json)
            .map_err(|error| Failure::failed(format!("the tool could not write its result as JSON: {error}")))
    }

    /// Bytes with a media type.
    pub fn blob_of(media_type: impl Into<String>, bytes: Vec<u8>) -> Self {
        Self::Blob(Blob { media_type: media_type.into(), name: None, bytes })
    }
}
