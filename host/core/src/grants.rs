//! What the operator lets a capability reach, and how much of it. Nothing is granted by absence, and an empty list grants
//! nothing (design promise 7, AUTH-3).

use std::collections::BTreeMap;
use std::time::Duration;

use crate::ids::ToolName;

/// What one capability may reach. The default reaches nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Grants {
    /// Folders.
    pub files: Vec<FileGrant>,
    /// Addresses for HTTP.
    pub http: Vec<HttpGrant>,
    /// Environment values by name. There are no others.
    pub env: BTreeMap<String, String>,
    /// Secrets that the host puts into requests.
    pub secrets: Vec<SecretGrant>,
    /// Tools of the harness that this one may call.
    pub tools: Vec<ToolName>,
    /// Whether it has a folder of its own for state.
    pub state: bool,
}

impl Grants {
    /// True if a call of the capability can have no effect outside itself: no writable files, no network, no secrets, no
    /// other tools (the rule `when-pure`, design section 2). Derived from what is linked, never from what a component says.
    pub fn is_pure(&self) -> bool {
        self.impurity().is_none()
    }

    /// What makes it impure, for people; `None` if it is pure.
    pub fn impurity(&self) -> Option<String> {
        if let Some(folder) = self.files.iter().find(|grant| grant.access == FileAccess::ReadWrite) {
            return Some(format!("it may write in {:?}", folder.guest));
        }
        if self.state {
            return Some("it has a folder for state".to_owned());
        }
        if let Some(http) = self.http.first() {
            return Some(format!("it may reach {:?}", http.pattern));
        }
        if let Some(secret) = self.secrets.first() {
            return Some(format!("it is given secret {:?}", secret.name));
        }
        self.tools.first().map(|tool| format!("it may call tool {:?}", tool.as_str()))
    }
}

/// One folder.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileGrant {
    /// The folder on the host, as written: absolute, or relative to the harness file.
    pub host: String,
    /// The absolute path under which the component sees it.
    pub guest: String,
    /// What it may do there.
    pub access: FileAccess,
    /// Said to be meant where this writable grant contains another grant's root (design section 7).
    pub overlap: bool,
}

/// What a component may do in a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FileAccess {
    /// Read files and list folders.
    Read,
    /// Also write, make and remove.
    ReadWrite,
}

impl FileAccess {
    /// The word for it in a harness file.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::ReadWrite => "read-write",
        }
    }
}

/// One address pattern, as written and checked for form.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct HttpGrant {
    /// Scheme, host or `*.host`, port, path prefix.
    pub pattern: String,
    /// Methods; empty means all that are not said otherwise.
    pub methods: Vec<String>,
}

/// One secret.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SecretGrant {
    /// The name by which a component can ask whether it exists.
    pub name: String,
    /// Where the host takes the value from.
    pub from: SecretSource,
    /// The only address that it is sent to.
    pub to: String,
    /// How it is put into a request: `bearer`, `basic`, `header:NAME` or `query:NAME`.
    pub placement: String,
}

/// Where a secret's value comes from.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum SecretSource {
    /// An environment variable of the host.
    Env(String),
    /// A file, relative to the harness file.
    File(String),
    /// A command's standard output.
    Command(Vec<String>),
}

/// How much one capability may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Wall clock of one call, host calls included.
    pub time: Duration,
    /// All memories and tables of a call's instance together, in bytes.
    pub memory_bytes: u64,
    /// Largest output, in bytes; more is cut head and tail.
    pub output_bytes: u64,
    /// Calls of this capability at once.
    pub calls_at_once: u32,
}

impl Default for Limits {
    /// The built-in limits of Z16.
    fn default() -> Self {
        Self { time: Duration::from_secs(30), memory_bytes: 256 << 20, output_bytes: 64 << 10, calls_at_once: 4 }
    }
}
