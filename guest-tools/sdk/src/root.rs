//! The folder that file tools stay in. A root is a convenience that keeps paths short and mistakes small: what a component
//! can reach is decided by the operator's grants, not here.

use std::{
    borrow::Cow,
    fmt,
    path::{Path, PathBuf},
};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;

use crate::Failure;

/// An absolute folder of the component. Paths that a model writes are relative to it.
///
/// Used as the type of a config key, it refuses a path that is not absolute.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(try_from = "String")]
pub struct Root(String);

impl Root {
    /// The folder `path`.
    ///
    /// # Errors
    /// `invalid-input` when it is not absolute or holds `.` or `..`.
    pub fn new(path: &str) -> Result<Self, Failure> {
        if !path.starts_with('/') {
            return Err(Failure::invalid_input(format!("{path:?} is not absolute; hint: write \"/{path}\"")));
        }
        if path.contains('\0') || path.split('/').any(|part| part == ".." || part == ".") {
            return Err(Failure::invalid_input(format!(
                "{path:?} holds \".\" or \"..\"; hint: name the folder itself"
            )));
        }
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        Ok(Self(format!("/{}", parts.join("/"))))
    }

    /// The root as text, without a slash at its end.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The root as a path.
    #[must_use]
    pub fn as_path(&self) -> &Path {
        Path::new(&self.0)
    }

    /// The file or folder that `path` names under this root.
    ///
    /// `.`, doubled slashes and inner `..` are folded; an empty path is the root itself.
    ///
    /// # Errors
    /// `invalid-input` when the path is absolute or leaves the root; the message says how to write it.
    pub fn resolve(&self, path: &str) -> Result<Place, Failure> {
        if path.contains('\0') {
            return Err(Failure::invalid_input(format!("{path:?} is not a path: it holds a NUL")));
        }
        if path.starts_with('/') {
            let inner = path
                .strip_prefix(self.as_str().trim_end_matches('/'))
                .filter(|rest| rest.starts_with('/'))
                .map(|rest| rest.trim_start_matches('/'));
            let hint = match inner {
                Some(inner) if !inner.is_empty() => format!("write {inner:?}"),
                _ => "leave out the first \"/\"".to_owned(),
            };
            return Err(Failure::invalid_input(format!(
                "{path:?} is absolute, and paths are relative to {:?}; hint: {hint}",
                self.as_str()
            )));
        }
        let mut parts: Vec<&str> = Vec::new();
        for part in path.split('/') {
            match part {
                "" | "." => {}
                ".." => {
                    if parts.pop().is_none() {
                        return Err(Failure::invalid_input(format!(
                            "{path:?} leaves the folder {:?}; hint: only what is in it can be reached, without \"..\"",
                            self.as_str()
                        )));
                    }
                }
                name => parts.push(name),
            }
        }
        Ok(self.place(parts.join("/")))
    }

    /// A place whose relative path is known to be clean.
    fn place(&self, relative: String) -> Place {
        let real = if relative.is_empty() { self.as_path().to_owned() } else { self.as_path().join(&relative) };
        Place { relative, real }
    }
}

/// The whole of what the component can see.
impl Default for Root {
    fn default() -> Self {
        Self("/".to_owned())
    }
}

impl TryFrom<String> for Root {
    type Error = String;

    fn try_from(path: String) -> Result<Self, String> {
        Self::new(&path).map_err(|failure| failure.message)
    }
}

impl JsonSchema for Root {
    fn schema_name() -> Cow<'static, str> {
        "Root".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string" })
    }
}

/// A file or folder under a [`Root`]. It prints as the path that the model knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    relative: String,
    real: PathBuf,
}

impl Place {
    /// The path to open.
    #[must_use]
    pub fn real(&self) -> &Path {
        &self.real
    }

    /// The path below the root, with slashes; empty for the root itself.
    #[must_use]
    pub fn relative(&self) -> &str {
        &self.relative
    }

    /// An entry of this folder, by the name that the folder's listing gave.
    #[must_use]
    pub fn child(&self, name: &str) -> Self {
        let relative = if self.relative.is_empty() { name.to_owned() } else { format!("{}/{name}", self.relative) };
        Self { relative, real: self.real.join(name) }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(if self.relative.is_empty() { "." } else { &self.relative })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_stays_below_the_root() {
        let root = Root::new("/docs/").expect("absolute");
        let real = |path: &str| root.resolve(path).map(|place| place.real().display().to_string());
        assert_eq!(real("a/b.txt"), Ok("/docs/a/b.txt".to_owned()));
        assert_eq!(real("./a//../b.txt"), Ok("/docs/b.txt".to_owned()));
        assert_eq!(real(""), Ok("/docs".to_owned()));
        assert_eq!(real("a/.."), Ok("/docs".to_owned()));
        for escape in ["..", "../x", "a/../../x", "./.."] {
            assert!(real(escape).is_err(), "{escape}");
        }
    }

    #[test]
    fn refusal_says_how_to_write_the_path() {
        let refused = |root: &str, path: &str| {
            Root::new(root).and_then(|root| root.resolve(path)).map_err(|failure| failure.message)
        };
        assert_eq!(
            refused("/docs", "/docs/a.txt"),
            Err("\"/docs/a.txt\" is absolute, and paths are relative to \"/docs\"; hint: write \"a.txt\"".to_owned())
        );
        assert_eq!(
            refused("/docs", "/etc/passwd"),
            Err("\"/etc/passwd\" is absolute, and paths are relative to \"/docs\"; hint: leave out the first \"/\""
                .to_owned())
        );
        assert_eq!(refused("/docs", "/docs2/a").map_err(|message| message.contains("leave out")), Err(true));
        assert_eq!(refused("/", "/a/b").map_err(|message| message.contains("hint: write \"a/b\"")), Err(true));
        assert_eq!(refused("docs", "a"), Err("\"docs\" is not absolute; hint: write \"/docs\"".to_owned()));
        assert!(refused("/docs/../etc", "a").is_err());
    }
}
