//! What is wrong with a harness file: each fault with its place, the key, why, and how to mend it (OPS-4).

use std::fmt;
use std::sync::Arc;

use crate::error::Error;

/// Where in a harness file something stands.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    /// The file's name, as the caller gave it.
    pub file: Arc<str>,
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
    /// The key, in full: `capabilities.files.limits.time`.
    pub key: Arc<str>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self} {}", self.key)
    }
}

/// One fault of a harness file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HarnessError {
    /// Where.
    pub place: Place,
    /// What and why: lower case, no full stop.
    pub message: String,
    /// How to mend it: a name that is close, or a line that would be right.
    pub hint: Option<String>,
}

impl fmt::Display for HarnessError {
    /// The place, the key and the message; the hint stands apart.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.place)?;
        if !self.place.key.is_empty() {
            write!(f, "{}: ", self.place.key)?;
        }
        f.write_str(&self.message)
    }
}

impl std::error::Error for HarnessError {}

impl From<HarnessError> for Error {
    fn from(fault: HarnessError) -> Self {
        let error = Error::config(fault.to_string());
        match fault.hint {
            Some(hint) => error.hint(hint),
            None => error,
        }
    }
}

/// All faults of a harness file, in the order of the file; never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HarnessErrors(Vec<HarnessError>);

impl HarnessErrors {
    /// The faults in the order of their places; none if there are none.
    pub(crate) fn of(mut faults: Vec<HarnessError>) -> Option<Self> {
        faults.sort_by(|a, b| {
            (a.place.line, a.place.column, &a.message).cmp(&(b.place.line, b.place.column, &b.message))
        });
        faults.dedup();
        (!faults.is_empty()).then_some(Self(faults))
    }

    /// Each fault.
    pub fn iter(&self) -> std::slice::Iter<'_, HarnessError> {
        self.0.iter()
    }

    /// How many.
    #[expect(clippy::len_without_is_empty, reason = "it is never empty")]
    pub fn len(&self) -> usize {
        self.0.len()
    }
}

impl<'e> IntoIterator for &'e HarnessErrors {
    type Item = &'e HarnessError;
    type IntoIter = std::slice::Iter<'e, HarnessError>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl fmt::Display for HarnessErrors {
    /// One line for each fault.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, fault) in self.0.iter().enumerate() {
            if n > 0 {
                f.write_str("\n")?;
            }
            fault.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for HarnessErrors {}

impl From<HarnessErrors> for Error {
    /// One error with all faults; a hint for each line where there are several.
    fn from(errors: HarnessErrors) -> Self {
        let mut faults = errors.0;
        if faults.len() == 1 {
            return faults.remove(0).into();
        }
        let mut message = String::new();
        for fault in &faults {
            if !message.is_empty() {
                message.push('\n');
            }
            message.push_str(&fault.to_string());
            if let Some(hint) = &fault.hint {
                message.push_str("\n  hint: ");
                message.push_str(hint);
            }
        }
        Error::config(message)
    }
}
