//! Reads what a component imports and exports from its bytes, without compiling it and without running any of its code,
//! and sets that beside what the operator grants. It must not know the engine's linker: [`SERVED`] is the list of what the
//! linker serves, and a test holds the two together.

use wasmparser::{Encoding, Parser, Payload};
use wharf_core::digest::Digest;
use wharf_core::grants::Grants;

use crate::cost::Cost;
use crate::error::LoadError;
use crate::limits;

/// What a component is, before anything of it is compiled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspection {
    /// Of the bytes.
    pub digest: Digest,
    /// Length of the file.
    pub bytes: u64,
    /// Each import with what it meets, in the component's order.
    pub imports: Vec<ImportReport>,
    /// The names of all exports, in the component's order.
    pub exports: Vec<String>,
    /// The version of the contract whose `tools` it exports, if it does.
    pub tools: Option<String>,
    /// Whether it exports `about` of the same version.
    pub about: bool,
}

impl Inspection {
    /// The imports for which the component is refused.
    pub fn refused(&self) -> Vec<ImportReport> {
        let is_refused = |import: &&ImportReport| match import.verdict {
            ImportVerdict::Unknown | ImportVerdict::WrongVersion { .. } => true,
            ImportVerdict::Granted | ImportVerdict::AnsweredWithDenial { .. } => false,
        };
        self.imports.iter().filter(is_refused).cloned().collect()
    }
}

/// One import.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportReport {
    /// As the component writes it, for example `wasi:filesystem/types@0.2.9`.
    pub name: String,
    /// What it meets.
    pub verdict: ImportVerdict,
}

/// What an import meets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImportVerdict {
    /// Served: it needs no grant, or the grant is there.
    Granted,
    /// Served, and every use of it is answered with the interface's own error, because nothing of its kind is granted.
    AnsweredWithDenial {
        /// The line of the harness file that would grant it; none if nothing can, as for sockets.
        grant_line: Option<String>,
    },
    /// Nobody serves it.
    Unknown,
    /// It is known in other versions.
    WrongVersion {
        /// Those that are served.
        served: Vec<String>,
    },
}

/// Reads `bytes` and judges each import by `grants`. `name` stands in errors.
///
/// Fails if the bytes are not a component, are damaged before the end of what is read, or are, or would cost to compile,
/// more than the bounds allow.
pub fn inspect(name: &str, bytes: &[u8], grants: &Grants) -> Result<Inspection, LoadError> {
    LoadError::check_size(name, "bytes", bytes.len() as u64, limits::COMPONENT_BYTES_MAX as u64)?;
    if !bytes.starts_with(b"\0asm") {
        return Err(LoadError::NotWasm { name: name.into() });
    }
    let names = read_names(name, bytes)?;
    let count = names.imports.len() + names.exports.len();
    LoadError::check_size(name, "imports and exports", count as u64, limits::COMPONENT_NAMES_MAX as u64)?;
    Cost::of(bytes)
        .map_err(|error| LoadError::Malformed { name: name.into(), reason: error.to_string() })?
        .check(name)?;
    let tools = names.exports.iter().find_map(|export| export.strip_prefix("wharf:tool/tools@")).map(str::to_owned);
    let about = tools.as_ref().is_some_and(|version| names.exports.contains(&format!("wharf:tool/about@{version}")));
    let imports = names
        .imports
        .into_iter()
        .map(|import| ImportReport { verdict: judge(&import, grants), name: import })
        .collect();
    Ok(Inspection {
        digest: Digest::of(bytes),
        bytes: bytes.len() as u64,
        imports,
        exports: names.exports,
        tools,
        about,
    })
}

#[derive(Default)]
struct Names {
    imports: Vec<String>,
    exports: Vec<String>,
}

/// The names at the component's outer level; modules and components inside it are passed over unread.
fn read_names(name: &str, bytes: &[u8]) -> Result<Names, LoadError> {
    let malformed =
        |reason: &dyn std::fmt::Display| LoadError::Malformed { name: name.into(), reason: reason.to_string() };
    let mut names = Names::default();
    let mut parser = Parser::new(0);
    let mut rest = bytes;
    loop {
        let (consumed, payload) = match parser.parse(rest, true).map_err(|error| malformed(&error))? {
            wasmparser::Chunk::Parsed { consumed, payload } => (consumed, payload),
            wasmparser::Chunk::NeedMoreData(_) => return Err(malformed(&"it ends early")),
        };
        rest = rest.get(consumed..).unwrap_or_default();
        match payload {
            Payload::Version { encoding: Encoding::Module, .. } => {
                return Err(LoadError::CoreModule { name: name.into() });
            }
            Payload::ModuleSection { unchecked_range, .. } | Payload::ComponentSection { unchecked_range, .. } => {
                let length = unchecked_range.end.saturating_sub(unchecked_range.start);
                rest = rest.get(length..).ok_or_else(|| malformed(&"a module inside it ends early"))?;
            }
            Payload::ComponentImportSection(section) => {
                for import in section {
                    names.imports.push(import.map_err(|error| malformed(&error))?.name.name.to_owned());
                }
            }
            Payload::ComponentExportSection(section) => {
                for export in section {
                    names.exports.push(export.map_err(|error| malformed(&error))?.name.name.to_owned());
                }
            }
            Payload::End(_) => return Ok(names),
            _ => {}
        }
    }
}

/// What a granted interface needs.
#[derive(Clone, Copy)]
enum Needs {
    Nothing,
    Files,
    Environment,
    Http,
    Secrets,
    Tools,
    /// No grant gives it.
    Never,
}

// Versions as the host serves them; 0.2 and 0.3 stand for each of their releases.
const P2: &[&str] = &["0.2"];
const P3: &[&str] = &["0.3"];
const BOTH: &[&str] = &["0.2", "0.3"];
const TOOL: &[&str] = &[crate::CONTRACT];

/// Everything that the linker serves: each interface with its package, in which versions, and what it needs.
const SERVED: &[(&str, &[&str], Needs)] = &[
    ("wasi:cli/environment", BOTH, Needs::Environment),
    ("wasi:cli/exit", BOTH, Needs::Nothing),
    ("wasi:cli/stdin", BOTH, Needs::Nothing),
    ("wasi:cli/stdout", BOTH, Needs::Nothing),
    ("wasi:cli/stderr", BOTH, Needs::Nothing),
    ("wasi:cli/terminal-input", BOTH, Needs::Nothing),
    ("wasi:cli/terminal-output", BOTH, Needs::Nothing),
    ("wasi:cli/terminal-stdin", BOTH, Needs::Nothing),
    ("wasi:cli/terminal-stdout", BOTH, Needs::Nothing),
    ("wasi:cli/terminal-stderr", BOTH, Needs::Nothing),
    ("wasi:cli/types", P3, Needs::Nothing),
    ("wasi:clocks/monotonic-clock", BOTH, Needs::Nothing),
    ("wasi:clocks/wall-clock", P2, Needs::Nothing),
    ("wasi:clocks/types", P3, Needs::Nothing),
    ("wasi:clocks/system-clock", P3, Needs::Nothing),
    ("wasi:filesystem/types", BOTH, Needs::Files),
    ("wasi:filesystem/preopens", BOTH, Needs::Files),
    ("wasi:http/types", BOTH, Needs::Http),
    ("wasi:http/outgoing-handler", P2, Needs::Http),
    ("wasi:http/client", P3, Needs::Http),
    ("wasi:io/error", P2, Needs::Nothing),
    ("wasi:io/poll", P2, Needs::Nothing),
    ("wasi:io/streams", P2, Needs::Nothing),
    ("wasi:random/random", BOTH, Needs::Nothing),
    ("wasi:random/insecure", BOTH, Needs::Nothing),
    ("wasi:random/insecure-seed", BOTH, Needs::Nothing),
    ("wasi:sockets/network", P2, Needs::Never),
    ("wasi:sockets/instance-network", P2, Needs::Never),
    ("wasi:sockets/ip-name-lookup", BOTH, Needs::Never),
    ("wasi:sockets/tcp", P2, Needs::Never),
    ("wasi:sockets/tcp-create-socket", P2, Needs::Never),
    ("wasi:sockets/udp", P2, Needs::Never),
    ("wasi:sockets/udp-create-socket", P2, Needs::Never),
    ("wasi:sockets/types", P3, Needs::Never),
    ("wharf:tool/types", TOOL, Needs::Nothing),
    ("wharf:tool/progress", TOOL, Needs::Nothing),
    ("wharf:tool/blobs", TOOL, Needs::Nothing),
    ("wharf:tool/secrets", TOOL, Needs::Secrets),
    ("wharf:tool/calls", TOOL, Needs::Tools),
];

/// Everything on the list, each interface once for each of its versions.
#[cfg(test)]
pub(crate) fn served_interfaces() -> impl Iterator<Item = (&'static str, &'static str)> {
    SERVED.iter().flat_map(|(name, versions, _)| versions.iter().map(|version| (*name, *version)))
}

fn judge(import: &str, grants: &Grants) -> ImportVerdict {
    let Some((name, version)) = import.split_once('@') else { return ImportVerdict::Unknown };
    let Some((_, served, needs)) = SERVED.iter().find(|(served, ..)| *served == name) else {
        return ImportVerdict::Unknown;
    };
    if served.iter().any(|line| serves(line, version)) {
        by_grant(*needs, grants)
    } else {
        ImportVerdict::WrongVersion { served: served.iter().map(|line| (*line).to_owned()).collect() }
    }
}

/// A line such as `0.2` serves each release 0.2.N (a release only adds), and no pre-release; a full version serves itself.
fn serves(line: &str, version: &str) -> bool {
    match version.strip_prefix(line) {
        Some("") => true,
        Some(rest) => {
            line.matches('.').count() == 1
                && rest
                    .strip_prefix('.')
                    .is_some_and(|patch| !patch.is_empty() && patch.bytes().all(|byte| byte.is_ascii_digit()))
        }
        None => false,
    }
}

fn by_grant(needs: Needs, grants: &Grants) -> ImportVerdict {
    let denied = |line: &str| ImportVerdict::AnsweredWithDenial { grant_line: Some(line.to_owned()) };
    match needs {
        Needs::Nothing => ImportVerdict::Granted,
        Needs::Files if !grants.files.is_empty() => ImportVerdict::Granted,
        Needs::Files => denied(r#"fs = [{ host = "./folder", guest = "/folder", access = "read" }]"#),
        Needs::Environment if !grants.env.is_empty() => ImportVerdict::Granted,
        Needs::Environment => denied(r#"env = { NAME = "value" }"#),
        // Requests, secrets and calls of other tools are answered with denial whatever is granted until each has its
        // one checked path; a grant that is not served yet is narrower than written, never wider.
        Needs::Http => denied(r#"http = ["https://example.com/*"]"#),
        Needs::Secrets => denied(
            r#"secrets = [{ name = "token", from = { env = "NAME" }, to = "https://example.com", as = "bearer" }]"#,
        ),
        Needs::Tools => denied(r#"tools = ["name"]"#),
        Needs::Never => ImportVerdict::AnsweredWithDenial { grant_line: None },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_of_a_served_line_are_served_and_others_are_named_with_what_is() {
        let verdict = |import: &str| judge(import, &Grants::default());
        for served in ["wasi:io/poll@0.2.0", "wasi:io/poll@0.2.9", "wasi:io/poll@0.2.99", "wasi:clocks/types@0.3.0"] {
            assert_eq!(verdict(served), ImportVerdict::Granted, "{served}");
        }
        for wrong in [
            "wasi:io/poll@0.1.0",
            "wasi:io/poll@0.20.0",
            "wasi:io/poll@0.2.0-rc-2023",
            "wasi:io/poll@0.2.",
            "wasi:io/poll@1.0.0",
        ] {
            assert_eq!(verdict(wrong), ImportVerdict::WrongVersion { served: vec!["0.2".into()] }, "{wrong}");
        }
        assert_eq!(
            verdict("wharf:tool/progress@0.1.0"),
            ImportVerdict::WrongVersion { served: vec!["0.1.0-draft".into()] }
        );
        for unknown in ["wasi:keyvalue/store@0.2.0", "host", "wasi:io/poll", "acme:x/y@1.0.0", "wasi:cli/run@0.2.0", ""]
        {
            assert_eq!(verdict(unknown), ImportVerdict::Unknown, "{unknown}");
        }
    }

    #[test]
    fn a_grant_turns_denial_into_granted_for_its_own_kind_only() {
        let mut grants = Grants::default();
        let denied = |import: &str, grants: &Grants| judge(import, grants) != ImportVerdict::Granted;
        let files = "wasi:filesystem/types@0.2.9";
        let env = "wasi:cli/environment@0.2.9";
        assert!(denied(files, &grants) && denied(env, &grants));
        grants.env.insert("LANG".into(), "C".into());
        assert!(denied(files, &grants) && !denied(env, &grants));
        assert_eq!(judge("wasi:sockets/tcp@0.2.9", &grants), ImportVerdict::AnsweredWithDenial { grant_line: None });
    }
}
