//! What may be wrong with a script file, with place and hint. It must never know what a script means.

use std::fmt;
use std::path::PathBuf;

/// A place in a script file, both counted from one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file's name as given.
    pub file: String,
    /// The line.
    pub line: usize,
    /// The column, in characters.
    pub column: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

/// A script that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    /// The file could not be read.
    #[error("cannot read script {}\nhint: give the path of a script; examples/scripts/two-calls.toml is one", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is larger than any script.
    #[error("{file}: the script is larger than {bytes_max} bytes")]
    TooLarge {
        /// The file.
        file: String,
        /// The bound.
        bytes_max: u64,
    },
    /// Not TOML.
    #[error("{place}: {message}")]
    Syntax {
        /// Where.
        place: Place,
        /// What the TOML parser says.
        message: String,
    },
    /// A key that nobody reads.
    #[error("{place}: unknown key {key}\nhint: {hint}")]
    UnknownKey {
        /// Where.
        place: Place,
        /// The key with its path.
        key: String,
        /// What was probably meant.
        hint: String,
    },
    /// A value of another type.
    #[error("{place}: {key} must be {wanted}, found {found}")]
    WrongType {
        /// Where.
        place: Place,
        /// The key with its path.
        key: String,
        /// What it should be.
        wanted: &'static str,
        /// What it is.
        found: &'static str,
    },
    /// A value of the right type that makes no sense.
    #[error("{place}: {key} {why}\nhint: {hint}")]
    BadValue {
        /// Where.
        place: Place,
        /// The key with its path.
        key: String,
        /// What is wrong, as the rest of a sentence.
        why: String,
        /// What to write instead.
        hint: String,
    },
    /// A key that has to be there.
    #[error("{place}: {key} is missing\nhint: {hint}")]
    Missing {
        /// Where its table begins.
        place: Place,
        /// The key with its path.
        key: String,
        /// What to add.
        hint: String,
    },
}
