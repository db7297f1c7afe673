//! `wharf tool …`: a component by itself, without a harness and without a model.

mod call;
mod inspect;

use std::path::{Path, PathBuf};

use serde_json::Value;
use wharf::core::Error;
use wharf::core::grants::{Grants, Limits};
use wharf::core::schema::Schema;
use wharf::sandbox::{Capability, LoadRequest, Roots, Sandbox};

use crate::open::sandbox_options;
use crate::{files, limits};

pub(crate) use call::call;
pub(crate) use inspect::inspect;

/// Reads a component.
///
/// # Errors
/// A config error that names the file.
fn read(path: &Path) -> Result<Vec<u8>, Error> {
    files::read(path, limits::COMPONENT_BYTES_MAX).map_err(|error| {
        Error::config(format!("component {:?} cannot be read: {error}", path.display().to_string()))
            .hint("give the path of a component, a file ending in .wasm")
    })
}

/// The name under which a component goes in messages: its file's.
fn name(path: &Path) -> String {
    path.file_stem().map_or_else(|| "component".to_owned(), |stem| stem.to_string_lossy().into_owned())
}

/// Reads a config as it was typed.
///
/// # Errors
/// A config error if it is no JSON object.
fn config(text: &str) -> Result<Value, Error> {
    let fault = |why: String| {
        Error::config(format!("--config {why}")).hint(r#"give a JSON object: --config '{"root":"/docs"}'"#)
    };
    let value: Value = serde_json::from_str(text).map_err(|error| fault(format!("is not JSON: {error}")))?;
    if value.is_object() { Ok(value) } else { Err(fault("is no JSON object".to_owned())) }
}

/// Loads a component under these grants and limits. Paths of grants are relative to this folder; the data folder of a
/// harness that may be here is not within reach.
///
/// # Errors
/// As [`Sandbox::load`].
async fn load(name: String, bytes: Vec<u8>, grants: Grants, limits: Limits) -> Result<Capability, Error> {
    let data = PathBuf::from(".wharf");
    let sandbox = Sandbox::new(sandbox_options())
        .map_err(|error| Error::config(format!("the sandbox cannot be started: {error}")))?;
    let roots = Roots { base: PathBuf::from("."), masked: vec![data], ..Roots::default() };
    Ok(sandbox.load(LoadRequest { name, bytes: bytes.into(), grants, limits, roots }).await?)
}

/// Checks a config against the component's own schema, as loading a harness does.
///
/// # Errors
/// A config error that says what does not fit.
async fn check_config(capability: &Capability, config: &Value) -> Result<Option<Value>, Error> {
    let schema = capability.config_schema().await?;
    match &schema {
        Some(source) => {
            let schema = Schema::compile(source)
                .map_err(|fault| Error::config(format!("its config schema cannot be used: {fault}")))?;
            schema.check(config).map_err(|misfit| {
                Error::config(format!("--config does not fit: {misfit}"))
                    .hint("`wharf tool inspect` shows the schema of its config")
            })?;
        }
        None if config.as_object().is_some_and(|members| !members.is_empty()) => {
            return Err(Error::config("it takes no config").hint("leave --config out"));
        }
        None => {}
    }
    Ok(schema)
}
