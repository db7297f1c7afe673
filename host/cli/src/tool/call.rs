//! `wharf tool call`: one call, under exactly the grants that were typed.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use serde_json::{Value, json};
use wharf::core::Error;
use wharf::core::grants::{FileAccess, FileGrant, Grants, Limits};
use wharf::core::names::did_you_mean;
use wharf::core::schema::Schema;
use wharf::core::tool::{Content, Definition, FailureKind, InputFormat};
use wharf::sandbox::{CallReport, Captured, Invocation, Observer, Progress};

use super::{check_config, config, load, name, read};
use crate::args::CallArgs;
use crate::exit::Exit;
use crate::say::{duration, plain, plain_lines, size};
use crate::screen::{BAD, DIM};
use crate::{files, limits, screen};

/// Calls it.
///
/// # Errors
/// Arguments that cannot be read, a component that cannot be loaded, an unknown tool, input that does not fit.
pub(crate) async fn call(args: CallArgs) -> anyhow::Result<Exit> {
    let grants = grants(&args.dirs, &args.env)?;
    let time = time(&args.time)?;
    let config = config(&args.config)?;
    let bytes = read(&args.file)?;
    let input = if args.input == "-" {
        files::read_stdin(limits::INPUT_BYTES_MAX).context("the input cannot be read from standard input")?
    } else {
        args.input
    };
    let limits = Limits { time, ..Limits::default() };
    let capability = load(name(&args.file), bytes, grants, limits).await?;
    check_config(&capability, &config).await?;
    let config = config.to_string();
    let definitions = capability.definitions(&config).await?;
    let tool = find(&definitions, &args.tool)?;
    check_input(tool, &input)?;
    let invocation = Invocation {
        tool: tool.name.clone(),
        input,
        config,
        call_id: "call".into(),
        idempotency_key: "call".to_owned(),
        attempt: 1,
        limits: None,
        time_limit: None,
        attachments: Vec::new(),
    };
    let report = capability.invoke(invocation, Arc::new(Told)).await;
    tell(&args.tool, report, args.json)
}

/// Shows progress as it comes.
struct Told;

impl Observer for Told {
    fn progress(&self, progress: Progress) {
        screen::say(&format!("{DIM}{}{DIM:#}", plain(&progress.message)));
    }
}

fn tell(tool: &str, report: CallReport, as_json: bool) -> anyhow::Result<Exit> {
    let CallReport { outcome, stdout, stderr, elapsed, memory_peak_bytes } = report;
    captured("stdout", &stdout);
    captured("stderr", &stderr);
    let failure = outcome.failure();
    if as_json {
        let facts = json!({
            "elapsed_ms": elapsed.as_secs_f64() * 1000.0,
            "memory_peak_bytes": memory_peak_bytes,
            "stdout": captured_json(&stdout),
            "stderr": captured_json(&stderr),
        });
        let mut value: Value = serde_json::from_str(&outcome.into_envelope()).context("the outcome is not JSON")?;
        if let (Some(members), Value::Object(facts)) = (value.as_object_mut(), facts) {
            members.extend(facts);
        }
        screen::print_json(&value)?;
    } else {
        if let wharf::sandbox::CallOutcome::Success(contents) = &outcome {
            for content in contents {
                screen::print(&shown(content))?;
            }
        }
        screen::say(&format!("{DIM}{}, {} of memory{DIM:#}", duration(elapsed), size(memory_peak_bytes)));
    }
    match failure {
        None => Ok(Exit::Ok),
        Some(failure) => {
            screen::say(&format!(
                "{BAD}error{BAD:#}: tool {tool:?} failed ({}): {}",
                failure.kind.as_str(),
                plain_lines(&failure.message)
            ));
            if failure.kind == FailureKind::Denied {
                screen::hint("nothing is granted that is not named: --dir ./docs:/docs, --env NAME=VALUE");
            }
            Ok(Exit::Failed)
        }
    }
}

fn shown(content: &Content) -> String {
    match content {
        Content::Text(text) | Content::Json(text) => text.clone(),
        Content::Blob(blob) => {
            let name = blob.name.as_deref().unwrap_or("unnamed");
            format!("[{} of {}, {}]", size(blob.bytes.len() as u64), plain(&blob.media_type), plain(name))
        }
    }
}

fn captured(stream: &str, captured: &Captured) {
    for line in captured.text.lines() {
        screen::say(&format!("{DIM}{stream}:{DIM:#} {}", plain(line)));
    }
    if captured.truncated {
        screen::say(&format!("{DIM}{stream}: {} in all, the rest is not shown{DIM:#}", size(captured.total_bytes)));
    }
}

fn captured_json(captured: &Captured) -> Value {
    json!({ "text": captured.text, "truncated": captured.truncated, "total_bytes": captured.total_bytes })
}

fn find<'d>(definitions: &'d [Definition], wanted: &str) -> Result<&'d Definition, Error> {
    definitions.iter().find(|one| one.name.as_str() == wanted).ok_or_else(|| {
        let names: Vec<&str> = definitions.iter().map(|one| one.name.as_str()).collect();
        let hint =
            did_you_mean(wanted, names.iter().copied()).unwrap_or_else(|| format!("it offers {}", names.join(", ")));
        Error::config(format!("the component offers no tool {wanted:?}")).hint(hint)
    })
}

/// Input that does not fit would be refused before the tool runs, and is here too.
fn check_input(tool: &Definition, input: &str) -> Result<(), Error> {
    let InputFormat::JsonSchema(source) = &tool.input else { return Ok(()) };
    let value: Value = serde_json::from_str(input).map_err(|error| {
        Error::config(format!("the input of tool {:?} is not JSON: {error}", tool.name.as_str()))
            .hint("it is a function: give a JSON object that fits its schema (`wharf tool inspect`)")
    })?;
    let schema = Schema::compile(source)
        .map_err(|fault| Error::config(format!("the schema of tool {:?} {fault}", tool.name.as_str())))?;
    schema.check(&value).map_err(|misfit| {
        Error::config(format!("the input of tool {:?} does not fit: {misfit}", tool.name.as_str()))
            .hint("`wharf tool inspect` shows its schema")
    })
}

fn grants(dirs: &[String], env: &[String]) -> Result<Grants, Error> {
    let mut grants = Grants::default();
    for text in dirs {
        grants.files.push(folder(text)?);
    }
    for text in env {
        match text.split_once('=') {
            Some((name, value)) if !name.is_empty() => {
                grants.env.insert(name.to_owned(), value.to_owned());
            }
            Some(_) | None => {
                return Err(Error::config(format!("--env {text:?} has no name and value")).hint("--env LANG=C.UTF-8"));
            }
        }
    }
    Ok(grants)
}

fn folder(text: &str) -> Result<FileGrant, Error> {
    let fault = |why: &str| {
        Error::config(format!("--dir {text:?} {why}")).hint("--dir ./docs:/docs to read, --dir ./out:/out:rw to write")
    };
    let (rest, access) = match text.strip_suffix(":rw") {
        Some(rest) => (rest, FileAccess::ReadWrite),
        None => (text.strip_suffix(":ro").unwrap_or(text), FileAccess::Read),
    };
    let (host, guest) = rest.rsplit_once(':').ok_or_else(|| fault("does not say under which path the tool sees it"))?;
    if host.is_empty() {
        return Err(fault("names no folder"));
    }
    if !guest.starts_with('/') {
        return Err(fault("has a path for the tool that is not absolute"));
    }
    Ok(FileGrant { host: host.to_owned(), guest: guest.to_owned(), access, overlap: false })
}

fn time(text: &str) -> Result<Duration, Error> {
    let fault = || Error::config(format!("--time {text:?} is no time")).hint("--time 10s, --time 500ms, --time 1m30s");
    let time: jiff::SignedDuration = text.parse().map_err(|_| fault())?;
    let time = Duration::try_from(time).map_err(|_| fault())?;
    if time.is_zero() { Err(fault()) } else { Ok(time) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_read_only_unless_it_says_otherwise() {
        let grant = |host: &str, guest: &str, access| FileGrant {
            host: host.into(),
            guest: guest.into(),
            access,
            overlap: false,
        };
        assert_eq!(folder("./docs:/docs"), Ok(grant("./docs", "/docs", FileAccess::Read)));
        assert_eq!(folder("docs:/:ro"), Ok(grant("docs", "/", FileAccess::Read)));
        assert_eq!(folder("/a:b:/out:rw"), Ok(grant("/a:b", "/out", FileAccess::ReadWrite)));
        for bad in ["docs", "docs:docs", ":/docs", "docs:rw", ""] {
            assert_eq!(folder(bad).expect_err(bad).kind, wharf::core::ErrorKind::Config);
        }
    }

    #[test]
    fn times_have_a_unit_and_are_longer_than_nothing() {
        assert_eq!(time("10s"), Ok(Duration::from_secs(10)));
        assert_eq!(time("1m30s"), Ok(Duration::from_secs(90)));
        assert_eq!(time("500ms"), Ok(Duration::from_millis(500)));
        for bad in ["10", "0s", "-3s", "soon", ""] {
            assert!(time(bad).is_err(), "{bad}");
        }
    }
}
