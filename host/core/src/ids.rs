//! Identifiers as types of their own, so that none can stand where another is meant (Z7).
//!
//! They hold text as it came: whether a text is acceptable is decided where it comes in (a call by [`crate::Call::validate`],
//! a harness by its checker), not here.

use std::fmt;
use std::sync::Arc;

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Wraps the text as it is.
            pub fn new(text: impl AsRef<str>) -> Self {
                Self(Arc::from(text.as_ref()))
            }

            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// True if there is nothing but white space.
            pub fn is_blank(&self) -> bool {
                self.0.trim().is_empty()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &*self.0)
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self::new(text)
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self::new(text)
            }
        }
    };
}

text_id! {
    /// The host's key of a call, unique within a session (B13). The id that the provider sent is kept beside it and is
    /// used only on the wire.
    CallId
}
text_id! {
    /// The name of a tool, as the model is shown it or as the model wrote it.
    ToolName
}
text_id! {
    /// A provider's id of a response.
    ResponseId
}
text_id! {
    /// A conversation that lasts.
    SessionId
}
text_id! {
    /// One user input and all that follows until its outcome.
    TurnId
}
text_id! {
    /// A named agent set-up.
    HarnessId
}
text_id! {
    /// Who a session belongs to; `local` unless said.
    OrgId
}
text_id! {
    /// The id of one record, fresh for each: an append whose outcome is unknown is resolved by looking for it (L63).
    RecordId
}
text_id! {
    /// The id of one inbox item (M8).
    InboxId
}
text_id! {
    /// Content address of a blob: `sha256:` and 64 hexadecimal digits.
    BlobDigest
}

impl OrgId {
    /// The organisation of whoever names none.
    pub fn local() -> Self {
        Self::new("local")
    }
}

/// Position of a record in its session's journal. The first record is 1; 0 is "before the first".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Seq(pub u64);

impl Seq {
    /// The next position, or the same at the end of the range (2^64 records are never reached).
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A number that grows with each change of a journal's owner; an append with an older one is refused by the store (N4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Fence(pub u64);

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
