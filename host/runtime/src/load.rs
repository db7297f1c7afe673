//! From a checked harness to tools that can be called: components loaded, configs checked, definitions bound to rules.
//! What is wrong with one capability harms only that one (design promise 9).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::future::{BoxFuture, FutureExt as _};
use futures::stream::{self, StreamExt as _};
use serde_json::Value;
use tokio::sync::Semaphore;
use wharf_core::Error;
#[cfg(feature = "components")]
use wharf_core::authority::component_digest;
use wharf_core::digest::Digest;
use wharf_core::grants::SecretSource;
use wharf_core::harness::{Capability, CapabilitySource, Harness, KeySource};
use wharf_core::rules::{BoundTool, RefusedTool, ToolTable};
use wharf_core::schema::Schema;
use wharf_core::tool::Definition;

use crate::agent::Agent;
use crate::builder::Wharf;
use crate::executor::Source;
use crate::limits;

/// What became of one capability of a harness.
#[derive(Debug, Clone, PartialEq)]
pub struct CapabilityReport {
    /// Its name in the harness.
    pub name: String,
    /// Whether it can be used.
    pub status: CapabilityStatus,
    /// What it is: a digest for a component, `native` else.
    pub identity: String,
    /// Each import of a component, with what stands behind it and the line that would grant more.
    pub imports: Vec<ImportLine>,
}

/// Whether a capability can be used.
#[derive(Debug, Clone, PartialEq)]
pub enum CapabilityStatus {
    /// It offers these tools; those that are at fault themselves are left out with the reason.
    Loaded {
        /// Names as the capability has them.
        tools: Vec<String>,
        /// Tools that cannot be offered.
        refused: Vec<RefusedTool>,
    },
    /// It cannot; the others live.
    Refused(Error),
}

/// One import of a component.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportLine {
    /// Interface and version.
    pub name: String,
    /// `granted`, `answered with denial`, `unknown` or `wrong version`.
    pub verdict: String,
    /// The line that would grant it, or what is served.
    pub hint: Option<String>,
}

/// Where a harness file stands, for what is relative to it and what no grant may reach.
#[derive(Debug, Clone, Default)]
pub struct Surroundings {
    /// The folder of the harness file.
    pub base: PathBuf,
    /// Files and folders that no grant reaches: the harness file, the lock file, `.wharf/`. Loading adds the files that the
    /// harness takes keys and secrets from.
    pub masked: Vec<PathBuf>,
    /// Files that no writable grant may contain. Loading adds the components and the commands of the harness.
    pub fixed: Vec<PathBuf>,
}

impl Surroundings {
    /// Those of a harness file at this path, whose data folder is `.wharf` beside it.
    pub fn of_file(path: &Path) -> Self {
        let base = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_path_buf(),
            Some(_) | None => PathBuf::from("."),
        };
        let masked = vec![path.to_path_buf(), base.join("wharf.lock"), base.join(".wharf")];
        Self { base, masked, fixed: Vec::new() }
    }

    /// With what this harness names itself, in whatever state a capability is: keys and secrets must reach no tool, and no
    /// tool may choose what is loaded or run at the next start.
    fn with_files_of(mut self, harness: &Harness) -> Self {
        let at = |path: &str| self.base.join(path);
        for provider in harness.providers().values() {
            match &provider.api_key {
                Some(KeySource::File(path)) => self.masked.push(at(path)),
                Some(KeySource::Env(_)) | None => {}
            }
        }
        for capability in harness.capabilities() {
            match &capability.source {
                CapabilitySource::Component(path) => self.fixed.push(at(path)),
                CapabilitySource::Native(_) => {}
            }
            for secret in &capability.grants.secrets {
                match &secret.from {
                    SecretSource::File(path) => self.masked.push(at(path)),
                    // A program without a slash is looked for in the search path, which is not the harness's.
                    SecretSource::Command(words) => {
                        self.fixed.extend(words.iter().filter(|word| word.contains('/')).map(|word| at(word)));
                    }
                    SecretSource::Env(_) => {}
                }
            }
        }
        self
    }
}

impl Wharf {
    /// Loads a harness's capabilities.
    ///
    /// # Errors
    /// The operator's faults, as config errors with place and hint: a rule for a tool that is not there, a native capability
    /// that is not registered, a config that does not fit. A component that cannot be loaded is not among them: it is in
    /// [`Agent::reports`], and the others live.
    pub async fn load(&self, harness: Harness, surroundings: Surroundings) -> Result<Agent, Error> {
        let surroundings = surroundings.with_files_of(&harness);
        let mut loading = Loading::default();
        let enabled: Vec<&Capability> = harness.capabilities().filter(|c| c.enabled).collect();
        // Side by side, so that one that takes long holds up no other; in the harness's order all the same.
        let loads: Vec<BoxFuture<'_, _>> = enabled
            .iter()
            .map(|capability| self.load_one(&harness, capability, &enabled, &surroundings).boxed())
            .collect();
        let mut loads = stream::iter(loads).buffered(limits::LOADS_AT_ONCE);
        while let Some(loaded) = loads.next().await {
            match loaded? {
                Ok(one) => loading.add(one),
                Err(report) => loading.reports.push(report),
            }
        }
        drop(loads);
        let mut instructions = harness.instructions().trim().to_owned();
        for (name, text) in &loading.texts {
            instructions.push_str(&framed(name, text));
        }
        let table = ToolTable::new(std::mem::take(&mut loading.tools), &[]);
        loading.leave_out(&table);
        Ok(Agent {
            wharf: self.clone(),
            table: Arc::new(table),
            sources: Arc::new(loading.sources),
            reports: Arc::new(loading.reports),
            instructions: instructions.trim().into(),
            components: Arc::new(loading.components),
            harness: Arc::new(harness),
        })
    }

    async fn load_one(
        &self,
        harness: &Harness,
        capability: &Capability,
        enabled: &[&Capability],
        surroundings: &Surroundings,
    ) -> Result<Result<LoadedCapability, CapabilityReport>, Error> {
        match &capability.source {
            CapabilitySource::Native(id) => {
                let native = self.0.registry.get(id)?;
                if let Some(schema) = native.config_schema() {
                    check_config(capability, &config_schema(capability, &schema)?)?;
                }
                let definitions = native.tools(&capability.config).map_err(|e| {
                    at(capability, Error { message: format!("capability {:?}: {}", capability.name, e.message), ..e })
                })?;
                let identity = Digest::of_json(&serde_json::json!({ "native": id }));
                let config = Arc::new(capability.config.clone());
                let text = native.about().instructions;
                let limits = harness.capability_limits(capability).map_err(Error::from)?.values();
                let at_once =
                    usize::try_from(limits.calls_at_once).unwrap_or(usize::MAX).clamp(1, Semaphore::MAX_PERMITS);
                let permits = Arc::new(Semaphore::new(at_once));
                let source = Source::Native { capability: native, config, permits };
                bind(harness, capability, &definitions, identity, "native", source, text, Vec::new()).map(Ok)
            }
            CapabilitySource::Component(path) => {
                self.load_component(harness, capability, path, enabled, surroundings).await
            }
        }
    }

    #[cfg(not(feature = "components"))]
    async fn load_component(
        &self,
        _harness: &Harness,
        capability: &Capability,
        path: &str,
        _enabled: &[&Capability],
        _surroundings: &Surroundings,
    ) -> Result<Result<LoadedCapability, CapabilityReport>, Error> {
        Ok(Err(refused(
            capability,
            Error::config(format!("component {path:?} cannot be loaded: this program was built without components"))
                .hint("build the wharf crate with its feature \"components\""),
        )))
    }

    #[cfg(feature = "components")]
    async fn load_component(
        &self,
        harness: &Harness,
        capability: &Capability,
        path: &str,
        enabled: &[&Capability],
        surroundings: &Surroundings,
    ) -> Result<Result<LoadedCapability, CapabilityReport>, Error> {
        let bytes = match read_component(&surroundings.base.join(path)) {
            Ok(bytes) => bytes,
            Err(error) => return Ok(Err(refused(capability, at(capability, error)))),
        };
        let limits = harness.capability_limits(capability).map_err(Error::from)?.values();
        let roots = wharf_sandbox::Roots {
            base: surroundings.base.clone(),
            masked: surroundings.masked.clone(),
            fixed: surroundings.fixed.clone(),
            others: enabled
                .iter()
                .filter(|other| other.name != capability.name)
                .flat_map(|other| other.grants.files.iter().map(|grant| surroundings.base.join(&grant.host)))
                .collect(),
        };
        let request = wharf_sandbox::LoadRequest {
            name: capability.name.clone(),
            bytes: bytes.into(),
            grants: capability.grants.clone(),
            limits,
            roots,
        };
        let bytes = request.bytes.clone();
        let loaded = match self.sandbox()?.load(request).await {
            Ok(loaded) => loaded,
            Err(error) => {
                // Loading says what it found only where it succeeds.
                let inspected = wharf_sandbox::inspect(&capability.name, &bytes, &capability.grants);
                let imports = inspected.map(|found| import_lines(&found.imports)).unwrap_or_default();
                let report = refused(capability, at(capability, load_error(&error)));
                return Ok(Err(CapabilityReport { imports, ..report }));
            }
        };
        let imports = import_lines(&loaded.inspection().imports);
        let failed_with =
            |error: Error| Ok(Err(CapabilityReport { imports: imports.clone(), ..refused(capability, error) }));
        let failed = |error: &wharf_sandbox::LoadError| failed_with(at(capability, load_error(error)));
        match loaded.config_schema().await {
            Ok(Some(schema)) => match config_schema(capability, &schema) {
                Ok(schema) => check_config(capability, &schema)?,
                Err(error) => return failed_with(error),
            },
            Ok(None) => {
                if capability.config.as_object().is_some_and(|members| !members.is_empty()) {
                    return Err(at(
                        capability,
                        Error::config(format!("capability {:?} takes no config", capability.name)),
                    )
                    .hint(format!("remove the key config from [capabilities.{}]", capability.name)));
                }
            }
            Err(error) => return failed(&error),
        }
        let config = capability.config.to_string();
        let definitions = match loaded.definitions(&config).await {
            Ok(definitions) => definitions,
            Err(error) => return failed(&error),
        };
        let text = match loaded.describe(&config).await {
            Ok(description) => description.map(|d| d.instructions).unwrap_or_default(),
            Err(error) => return failed(&error),
        };
        let identity = component_digest(&loaded.digest(), loaded.contract(), &capability.config);
        let shown = loaded.digest().to_string();
        let source = Source::Component { capability: loaded, config };
        bind(harness, capability, &definitions, identity, &shown, source, text, imports).map(Ok)
    }
}

/// A capability's text as it stands in the instructions. It is a stranger's: each of its lines is quoted, so that none can
/// pass for the end of the frame, for another capability's frame, or for the operator's words.
fn framed(name: &str, text: &str) -> String {
    // Whatever a reader may take for the end of a line.
    let breaks = ['\n', '\r', '\u{b}', '\u{c}', '\u{1c}', '\u{1d}', '\u{1e}', '\u{85}', '\u{2028}', '\u{2029}'];
    let text = text.replace("\r\n", "\n");
    let quoted: Vec<String> = text.split(breaks).map(|line| format!("> {line}").trim_end().to_owned()).collect();
    format!("\n\n[capability {name}]\n{}\n[end of capability {name}]", quoted.join("\n"))
}

struct LoadedCapability {
    name: String,
    source: Source,
    tools: Vec<BoundTool>,
    text: String,
    identity: Digest,
    report: CapabilityReport,
}

#[derive(Default)]
struct Loading {
    tools: Vec<BoundTool>,
    sources: BTreeMap<String, Source>,
    reports: Vec<CapabilityReport>,
    texts: Vec<(String, String)>,
    components: BTreeMap<String, Digest>,
}

impl Loading {
    fn add(&mut self, one: LoadedCapability) {
        self.tools.extend(one.tools);
        self.components.insert(one.name.clone(), one.identity);
        let text = one.text.trim();
        if !text.is_empty() {
            let cut: String = text.chars().take(limits::CAPABILITY_TEXT_CHARS_MAX).collect();
            self.texts.push((one.name.clone(), cut));
        }
        self.sources.insert(one.name, one.source);
        self.reports.push(one.report);
    }

    /// Says which tools have no name under which they could be shown, where the others are.
    fn leave_out(&mut self, table: &ToolTable) {
        for (capability, tool) in table.refused() {
            let reports = self.reports.iter_mut().filter(|report| report.name == capability);
            for CapabilityReport { status, .. } in reports {
                if let CapabilityStatus::Loaded { tools, refused } = status {
                    tools.retain(|name| name != tool.name.as_str());
                    refused.push(tool.clone());
                }
            }
        }
    }
}

#[allow(clippy::too_many_arguments, reason = "the pieces of one capability, each used once")]
fn bind(
    harness: &Harness,
    capability: &Capability,
    definitions: &[Definition],
    identity: Digest,
    shown: &str,
    source: Source,
    text: String,
    imports: Vec<ImportLine>,
) -> Result<LoadedCapability, Error> {
    let bound = harness.bind(capability, definitions).map_err(Error::from)?;
    let report = CapabilityReport {
        name: capability.name.clone(),
        status: CapabilityStatus::Loaded {
            tools: bound.tools.iter().map(|tool| tool.own_name().to_string()).collect(),
            refused: bound.refused,
        },
        identity: shown.to_owned(),
        imports,
    };
    Ok(LoadedCapability { name: capability.name.clone(), source, tools: bound.tools, text, identity, report })
}

/// The schema of a capability's config.
///
/// # Errors
/// The capability's fault: its schema cannot be used.
fn config_schema(capability: &Capability, schema: &Value) -> Result<Schema, Error> {
    Schema::compile(schema).map_err(|fault| {
        let message = format!("capability {:?} has a config schema that cannot be used: {fault}", capability.name);
        at(capability, Error::config(message))
    })
}

/// Checks what the operator wrote.
///
/// # Errors
/// The operator's fault: the config does not fit.
fn check_config(capability: &Capability, schema: &Schema) -> Result<(), Error> {
    schema.check(&capability.config).map_err(|misfit| {
        let place = &capability.config_place;
        Error::config(format!("{place}: the config of capability {:?} does not fit: {misfit}", capability.name))
            .hint(format!("its config schema: {}", cut(&schema.source().to_string(), limits::SCHEMA_HINT_CHARS_MAX)))
    })
}

fn cut(text: &str, chars: usize) -> String {
    if text.chars().count() <= chars {
        text.to_owned()
    } else {
        text.chars().take(chars).chain("…".chars()).collect()
    }
}

fn at(capability: &Capability, error: Error) -> Error {
    Error { message: format!("{}: {}", capability.place, error.message), ..error }
}

fn refused(capability: &Capability, error: Error) -> CapabilityReport {
    CapabilityReport {
        name: capability.name.clone(),
        status: CapabilityStatus::Refused(error),
        identity: String::new(),
        imports: Vec::new(),
    }
}

#[cfg(feature = "components")]
fn load_error(error: &wharf_sandbox::LoadError) -> Error {
    Error { kind: wharf_core::ErrorKind::Config, message: error.to_string(), hint: error.hint() }
}

#[cfg(feature = "components")]
fn import_lines(imports: &[wharf_sandbox::ImportReport]) -> Vec<ImportLine> {
    use wharf_sandbox::ImportVerdict;
    imports
        .iter()
        .map(|import| {
            let (verdict, hint) = match &import.verdict {
                ImportVerdict::Granted => ("granted", None),
                ImportVerdict::AnsweredWithDenial { grant_line } => ("answered with denial", grant_line.clone()),
                ImportVerdict::Unknown => ("unknown", None),
                ImportVerdict::WrongVersion { served } => {
                    ("wrong version", Some(format!("served: {}", served.join(", "))))
                }
            };
            ImportLine { name: import.name.clone(), verdict: verdict.to_owned(), hint }
        })
        .collect()
}

/// Reads a component that the operator named. The folder is opened first and the file within it, through handles.
#[cfg(feature = "components")]
fn read_component(path: &Path) -> Result<Vec<u8>, Error> {
    use std::io::Read;
    let why = |e: std::io::Error| {
        Error::config(format!("component {:?} cannot be read: {e}", path.display()))
            .hint("the path is relative to the harness file")
    };
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(Error::config(format!("component {:?} names no file", path.display())));
    };
    let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
    let folder = cap_std::fs::Dir::open_ambient_dir(parent, cap_std::ambient_authority()).map_err(why)?;
    // A pipe would be waited for as long as nobody writes to it.
    if !folder.metadata(name).map_err(why)?.is_file() {
        return Err(Error::config(format!("component {:?} is no regular file", path.display())));
    }
    let file = folder.open(name).map_err(why)?;
    let mut bytes = Vec::new();
    file.take(limits::COMPONENT_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(why)?;
    if bytes.len() as u64 > limits::COMPONENT_BYTES_MAX {
        return Err(Error::config(format!(
            "component {:?} has more than {} bytes",
            path.display(),
            limits::COMPONENT_BYTES_MAX
        )));
    }
    Ok(bytes)
}
