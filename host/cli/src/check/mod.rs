//! `wharf check`: loads a harness as `wharf run` would, asks nobody, and says what each tool ends up with and which line
//! decided it.

pub(crate) mod explain;
mod report;

use std::sync::{Arc, Mutex, PoisonError};

use wharf::core::Error;
use wharf::core::harness::KeySource;
use wharf::core::names::did_you_mean;
use wharf::{Agent, CapabilityStatus};

use crate::args::CheckArgs;
use crate::exit::Exit;
use crate::open::HarnessFile;
use crate::{exit, screen};

/// Checks it.
///
/// # Errors
/// All faults of the harness file; a rule for a tool that is not there; a config that does not fit; an unknown tool to
/// explain.
pub(crate) async fn run(args: CheckArgs) -> anyhow::Result<Exit> {
    let file = HarnessFile::find(&args.harness)?;
    let harness = file.read()?;
    // A key that is not there is worth a note, not a fault: what is checked is the file. It stands for the key where the
    // provider's other settings are checked, and is sent to nobody.
    let missing: Arc<Mutex<Vec<String>>> = Arc::default();
    let noted = missing.clone();
    let wharf = file.wharf_with_env(None, move |name| {
        std::env::var(name).ok().or_else(|| {
            noted.lock().unwrap_or_else(PoisonError::into_inner).push(name.to_owned());
            Some("not set".to_owned())
        })
    })?;
    let agent = file.load(&wharf, harness).await?;
    let provider = provider(&agent);
    let unset = missing.lock().unwrap_or_else(PoisonError::into_inner).clone();
    if let Some(asked) = &args.explain {
        let tool = find(&agent, asked)?;
        if args.json {
            screen::print_json(&explain::as_json(&agent, tool))?;
        } else {
            screen::print(&explain::as_text(&agent, tool))?;
        }
    } else if args.json {
        screen::print_json(&report::as_json(&agent, &provider, &unset))?;
    } else {
        screen::print(&report::as_text(&agent, &provider, &unset))?;
    }
    let mut faults = 0;
    if let Err(error) = &provider {
        tell(error, &mut faults);
    }
    for one in agent.reports() {
        match &one.status {
            CapabilityStatus::Refused(error) => tell(error, &mut faults),
            CapabilityStatus::Loaded { refused, .. } => {
                for tool in refused {
                    tell(&tool.error, &mut faults);
                }
            }
        }
    }
    if faults > 0 {
        return Ok(Exit::Usage);
    }
    Ok(Exit::Ok)
}

fn tell(error: &Error, faults: &mut u32) {
    *faults += 1;
    for told in exit::faults(&error.clone().into()) {
        screen::error(&told.message);
        if let Some(hint) = told.hint {
            screen::hint(&hint);
        }
    }
}

/// What is known of the model's provider without asking it.
struct Provider {
    model: String,
    driver: String,
    async_calls: bool,
    continuation: bool,
    retrieval: bool,
    key: String,
}

fn provider(agent: &Agent) -> Result<Provider, Error> {
    let model = agent.model(None, None)?;
    let driver = agent.driver(&model)?;
    let support = driver.support(&model.model);
    let key = agent.harness().providers().get(&model.provider).and_then(|provider| provider.api_key.as_ref());
    Ok(Provider {
        model: model.to_string(),
        driver: driver.protocol().to_owned(),
        async_calls: support.async_calls,
        continuation: support.continuation,
        retrieval: support.retrieval,
        key: match key {
            Some(KeySource::Env(name)) => format!("environment variable {name}"),
            Some(KeySource::File(path)) => format!("file {path}"),
            None => "none".to_owned(),
        },
    })
}

/// The tool that `capability.tool` names.
fn find<'a>(agent: &'a Agent, asked: &str) -> Result<&'a wharf::core::rules::BoundTool, Error> {
    let named = |tool: &wharf::core::rules::BoundTool| format!("{}.{}", tool.capability(), tool.own_name());
    if let Some(tool) = agent.tools().iter().find(|tool| named(tool) == asked || tool.name().as_str() == asked) {
        return Ok(tool);
    }
    let names: Vec<String> = agent.tools().iter().map(named).collect();
    let hint = did_you_mean(asked, names.iter().map(String::as_str)).unwrap_or_else(|| match names.as_slice() {
        [] => "the harness has no tools".to_owned(),
        names => format!("there are {}", names.join(", ")),
    });
    Err(Error::config(format!("there is no tool {asked:?} to explain")).hint(hint))
}
