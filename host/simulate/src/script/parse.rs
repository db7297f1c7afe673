//! A script from TOML. The format is documented in the parent module; it must never know sockets or events.

use std::io::Read;
use std::path::Path;
use std::time::Duration;

use super::error::ScriptError;
use super::model::*;
use super::reader::{Field, Source, Table};
use crate::limits;

const ITEM_TYPES: &str =
    "text, refusal, reasoning, function_call, custom_tool_call, other, raw, comment, wait or wait_for";

impl Script {
    /// Reads a script file.
    ///
    /// # Errors
    /// The file cannot be read, is larger than [`limits::SCRIPT_BYTES_MAX`], or is not a script.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, ScriptError> {
        let path = path.as_ref();
        let read = |source| ScriptError::Read { path: path.to_owned(), source };
        let file = std::fs::File::open(path).map_err(read)?;
        let mut text = String::new();
        file.take(limits::SCRIPT_BYTES_MAX + 1).read_to_string(&mut text).map_err(read)?;
        Self::parse(&path.display().to_string(), &text)
    }

    /// Reads a script from text; `file` is the name in messages, and the script's name if it has none of its own.
    ///
    /// # Errors
    /// The text is too large, is not TOML, or is not a script.
    pub fn parse(file: &str, text: &str) -> Result<Self, ScriptError> {
        if text.len() as u64 > limits::SCRIPT_BYTES_MAX {
            return Err(ScriptError::TooLarge { file: file.to_owned(), bytes_max: limits::SCRIPT_BYTES_MAX });
        }
        let mut root = Source::new(file, text).root()?;
        let mut script = Script::new(root.read("name", Field::text)?.unwrap_or(file.to_owned()));
        if let Some(order) = root
            .read("order", |field| field.one_of(&[("in-order", Order::InOrder), ("first-match", Order::FirstMatch)]))?
        {
            script.order = order;
        }
        if let Some(prefix) = root.read("id_prefix", Field::text)? {
            script.id_prefix = prefix;
        }
        script.api_key = root.read("api_key", Field::text)?.map(ApiKey);
        script.steps =
            root.require("step", "begin the first answer with [[step]]")?.list(|field| step(field.table()?))?;
        root.finish()?;
        Ok(script)
    }
}

fn step(mut table: Table<'_>) -> Result<Step, ScriptError> {
    let name = table.read("name", Field::text)?;
    let expect = table.read("expect", |field| expect(field.table()?))?.unwrap_or_default();
    let pairing = match table.read("unchecked", Field::flag)? {
        Some(true) => PairingRule::Unchecked,
        Some(false) | None => PairingRule::Checked,
    };
    let http = table.read("http", |field| http(field.table()?))?;
    let drop = table.read("drop", Field::flag)?.unwrap_or(false);
    let answer = answer(&mut table)?;
    let several = table
        .bad("has more than one answer", "keep one of http, drop, or the keys of a response (item, finish, usage …)");
    let reply = match (http, drop, answer) {
        (Some(http), false, None) => Reply::Http(http),
        (None, true, None) => Reply::Drop,
        (None, false, answer) => Reply::Answer(Box::new(answer.unwrap_or_else(Answer::new))),
        (Some(_), true, _) | (Some(_), false, Some(_)) | (None, true, Some(_)) => {
            return Err(several);
        }
    };
    table.finish()?;
    Ok(Step { name, expect, pairing, reply })
}

fn strings(field: Field<'_>) -> Result<Vec<String>, ScriptError> {
    field.list(Field::text)
}

fn expect(mut table: Table<'_>) -> Result<Expect, ScriptError> {
    let expect = Expect {
        previous: table.read("previous_response_id", Field::text)?.map(|id| match id.as_str() {
            "none" => ExpectPrevious::Absent,
            "latest" => ExpectPrevious::Latest,
            _ => ExpectPrevious::Is(id),
        }),
        outputs: table.read("outputs", strings)?.unwrap_or_default(),
        only_outputs: table.read("only_outputs", strings)?,
        model: table.read("model", Field::text)?,
        tools: table.read("tools", strings)?.unwrap_or_default(),
        contains: table.read("contains", strings)?.unwrap_or_default(),
        lacks: table.read("lacks", strings)?.unwrap_or_default(),
        instructions: table.read("instructions", strings)?.unwrap_or_default(),
        stream: table.read("stream", Field::flag)?,
    };
    table.finish()?;
    Ok(expect)
}

fn http(mut table: Table<'_>) -> Result<HttpReply, ScriptError> {
    let status_field = table.require("status", "add a status code such as status = 429")?;
    let bad_status = status_field.bad("is not an HTTP status", "write a number from 200 to 599");
    let status =
        u16::try_from(status_field.count()?).ok().filter(|status| (200..600).contains(status)).ok_or(bad_status)?;
    let headers = table.read("headers", |field| headers(field.table()?))?.unwrap_or_default();
    let body = table.read("body", Field::text)?;
    let content_type = table.read("content_type", Field::text)?;
    let message = table.read("message", Field::text)?;
    let kind = table.read("type", Field::text)?;
    let code = table.read("code", Field::text)?;
    let param = table.read("param", Field::text)?;
    let is_error = message.is_some() || kind.is_some() || code.is_some() || param.is_some();
    if is_error && (body.is_some() || content_type.is_some()) {
        return Err(
            table.bad("has both a body and an error", "keep body and content_type, or message, type, code and param")
        );
    }
    table.finish()?;
    let body = match body {
        Some(text) => {
            HttpBody::Text { content_type: content_type.unwrap_or_else(|| "application/json".to_owned()), text }
        }
        None => HttpBody::Error {
            message: message.unwrap_or_else(|| format!("scripted status {status}")),
            kind: kind
                .unwrap_or_else(|| if status >= 500 { "server_error" } else { "invalid_request_error" }.to_owned()),
            code,
            param,
        },
    };
    Ok(HttpReply { status, headers, body })
}

fn headers(table: Table<'_>) -> Result<Vec<(String, String)>, ScriptError> {
    table
        .into_fields()
        .into_iter()
        .map(|(name, field)| {
            let bad_name = field.bad("is no header name", "use letters, digits and -");
            let bad_value = field.bad("has a character that no header can carry", "use printable ASCII");
            if axum::http::HeaderName::from_bytes(name.as_bytes()).is_err() {
                return Err(bad_name);
            }
            let value = field.text()?;
            if axum::http::HeaderValue::from_str(&value).is_err() {
                return Err(bad_value);
            }
            Ok((name, value))
        })
        .collect()
}

/// The keys of a response; none of them means that the step has no response of its own.
fn answer(table: &mut Table<'_>) -> Result<Option<Answer>, ScriptError> {
    let items = table.read("item", |field| field.list(|field| item(field.table()?)))?;
    let usage = table.read("usage", usage)?;
    let finish = table.read("finish", |field| finish(field.table()?))?;
    let ending = table.read("ending", ending)?;
    let framing = table.read("framing", |field| framing(field.table()?))?;
    let omit = table.read("omit", |field| {
        field.list(|field| {
            field.one_of(&[
                ("created", Omitted::Created),
                ("in_progress", Omitted::InProgress),
                ("sequence_numbers", Omitted::SequenceNumbers),
                ("deltas", Omitted::Deltas),
                ("added", Omitted::Added),
                ("terminal_output", Omitted::TerminalOutput),
            ])
        })
    })?;
    let retrieve = table.read("retrieve", |field| match field.as_str() {
        Some(_) => Ok(vec![retrieved(field)?]),
        None => field.list(retrieved),
    })?;
    let if_broken = table.read("if_broken", retrieved)?;
    let model = table.read("model", Field::text)?;
    let absent = items.is_none()
        && usage.is_none()
        && finish.is_none()
        && ending.is_none()
        && framing.is_none()
        && omit.is_none()
        && retrieve.is_none()
        && if_broken.is_none()
        && model.is_none();
    if absent {
        return Ok(None);
    }
    Ok(Some(Answer {
        items: items.unwrap_or_default(),
        usage: usage.unwrap_or(Some(Usage::default())),
        finish: finish.unwrap_or_default(),
        ending: ending.unwrap_or_default(),
        framing: framing.unwrap_or_default(),
        omit: omit.unwrap_or_default(),
        retrieve: retrieve.unwrap_or_default(),
        if_broken: if_broken.unwrap_or_default(),
        model,
    }))
}

fn retrieved(field: Field<'_>) -> Result<Retrieved, ScriptError> {
    field.one_of(&[
        ("not_found", Retrieved::NotFound),
        ("queued", Retrieved::Queued),
        ("in_progress", Retrieved::InProgress),
        ("completed", Retrieved::Completed),
        ("incomplete", Retrieved::Incomplete),
        ("failed", Retrieved::Failed),
        ("cancelled", Retrieved::Cancelled),
    ])
}

fn item(mut table: Table<'_>) -> Result<Item, ScriptError> {
    let kind_hint = format!("add type = one of {ITEM_TYPES}");
    let kind = table.require("type", &kind_hint)?;
    let read = kind.one_of::<fn(&mut Table<'_>) -> Result<Item, ScriptError>>(&[
        ("text", |table| Ok(Item::Text(text_item(table)?))),
        ("refusal", |table| Ok(Item::Refusal(text_item(table)?))),
        ("reasoning", reasoning),
        ("function_call", |table| Ok(Item::FunctionCall(call(table, "arguments")?))),
        ("custom_tool_call", |table| Ok(Item::CustomCall(call(table, "input")?))),
        ("other", |table| Ok(Item::Other(json_object(table)?))),
        ("raw", |table| Ok(Item::Raw(json_object(table)?))),
        ("comment", |table| Ok(Item::Comment(table.require("text", "add text = \"…\"")?.text()?))),
        ("wait", |table| Ok(Item::Wait(table.require("time", "add time = \"200ms\"")?.pause()?))),
        ("wait_for", |table| Ok(Item::WaitFor(table.require("gate", "add gate = \"…\"")?.text()?))),
    ])?;
    let item = read(&mut table)?;
    table.finish()?;
    Ok(item)
}

fn json_object(table: &mut Table<'_>) -> Result<serde_json::Value, ScriptError> {
    let field = table.require("json", "add json = '''{\"type\": …}'''")?;
    let complaint = field.bad("is not an object with a type", "write '''{\"type\": \"…\", …}'''");
    let value = field.json()?;
    match value.get("type").and_then(serde_json::Value::as_str) {
        Some(_) => Ok(value),
        None => Err(complaint),
    }
}

fn text_item(table: &mut Table<'_>) -> Result<TextItem, ScriptError> {
    Ok(TextItem {
        text: table.require("text", "add text = \"…\"")?.text()?,
        pace: pace(table, Chunk::Words)?,
        phase: table.read("phase", Field::text)?,
        extent: extent(table)?,
    })
}

fn reasoning(table: &mut Table<'_>) -> Result<Item, ScriptError> {
    Ok(Item::Reasoning(ReasoningItem {
        summary: table.require("summary", "add summary = \"…\"")?.text()?,
        pace: pace(table, Chunk::Words)?,
        encrypted: table.read("encrypted", Field::text)?,
    }))
}

fn call(table: &mut Table<'_>, text: &'static str) -> Result<CallItem, ScriptError> {
    Ok(CallItem {
        call_id: table.require("call_id", "add call_id = \"call_…\"")?.text()?,
        name: table.require("name", "add name = the tool's name")?.text()?,
        text: table.require(text, &format!("add {text} = '''…''', exactly as the model writes it"))?.text()?,
        mode: match table.read("async", Field::flag)? {
            Some(true) => CallMode::Async,
            Some(false) | None => CallMode::Awaited,
        },
        pace: pace(table, Chunk::Whole)?,
        extent: extent(table)?,
    })
}

fn pace(table: &mut Table<'_>, usual: Chunk) -> Result<Pace, ScriptError> {
    let chunk = table.read("chunk", |field| {
        if field.is_integer() {
            return field.size().map(Chunk::Chars);
        }
        match field.as_str() {
            Some(_) => field.one_of(&[("words", Chunk::Words), ("whole", Chunk::Whole)]),
            None => Err(field.wrong_type("\"words\", \"whole\" or a number of characters")),
        }
    })?;
    let delay = table.read("delay", Field::pause)?;
    Ok(Pace { chunk: chunk.unwrap_or(usual), delay: delay.unwrap_or(Duration::ZERO) })
}

fn extent(table: &mut Table<'_>) -> Result<Extent, ScriptError> {
    let extent = table.read("extent", |field| {
        field.one_of(&[
            ("completed", Extent::Completed),
            ("incomplete", Extent::Incomplete),
            ("partial", Extent::Partial),
        ])
    })?;
    Ok(extent.unwrap_or_default())
}

fn usage(field: Field<'_>) -> Result<Option<Usage>, ScriptError> {
    if field.as_str().is_some() {
        return field.one_of(&[("none", None)]);
    }
    let mut table = field.table()?;
    let usage = Usage {
        input: table.read("input", Field::count)?.unwrap_or(0),
        cached: table.read("cached", Field::count)?.unwrap_or(0),
        cache_write: table.read("cache_write", Field::count)?.unwrap_or(0),
        output: table.read("output", Field::count)?.unwrap_or(0),
        reasoning: table.read("reasoning", Field::count)?.unwrap_or(0),
    };
    table.finish()?;
    Ok(Some(usage))
}

fn finish(mut table: Table<'_>) -> Result<Finish, ScriptError> {
    let status = table.require("status", "add status = \"completed\" or another")?.one_of(&[
        ("completed", "completed"),
        ("incomplete", "incomplete"),
        ("failed", "failed"),
        ("cancelled", "cancelled"),
        ("error", "error"),
        ("none", "none"),
    ])?;
    let finish = match status {
        "incomplete" => Finish::Incomplete {
            reason: table.require("reason", "add reason = \"max_output_tokens\" or another")?.text()?,
        },
        "failed" => {
            let (code, message) = code_and_message(&mut table)?;
            Finish::Failed { code, message }
        }
        "error" => {
            let (code, message) = code_and_message(&mut table)?;
            Finish::Error { code, message }
        }
        "cancelled" => Finish::Cancelled,
        "none" => Finish::Nothing,
        _ => Finish::Completed,
    };
    table.finish()?;
    Ok(finish)
}

fn code_and_message(table: &mut Table<'_>) -> Result<(String, String), ScriptError> {
    Ok((
        table.require("code", "add code = \"server_error\" or another")?.text()?,
        table.require("message", "add message = \"…\"")?.text()?,
    ))
}

fn ending(field: Field<'_>) -> Result<Ending, ScriptError> {
    if field.as_str().is_some() {
        return field.one_of(&[("close", Ending::Close), ("hang", Ending::Hang)]);
    }
    let mut table = field.table()?;
    let after = table.require("after_events", "add after_events = the number of whole events")?;
    let cut = Cut {
        after_events: after.size()?,
        extra_bytes: table.read("extra_bytes", Field::size)?.unwrap_or(0),
        how: table
            .read("how", |field| field.one_of(&[("abort", CutHow::Abort), ("clean", CutHow::Clean)]))?
            .unwrap_or_default(),
    };
    table.finish()?;
    Ok(Ending::Cut(cut))
}

fn framing(mut table: Table<'_>) -> Result<Framing, ScriptError> {
    let usual = Framing::default();
    let framing = Framing {
        line_ending: table
            .read("line_ending", |field| {
                field.one_of(&[("lf", LineEnding::Lf), ("crlf", LineEnding::CrLf), ("cr", LineEnding::Cr)])
            })?
            .unwrap_or(usual.line_ending),
        bom: table.read("bom", Field::flag)?.unwrap_or(usual.bom),
        event_lines: table.read("event_lines", Field::flag)?.unwrap_or(usual.event_lines),
        multiline: table.read("multiline", Field::flag)?.unwrap_or(usual.multiline),
        comments: table.read("comments", Field::flag)?.unwrap_or(usual.comments),
        done: table.read("done", Field::flag)?.unwrap_or(usual.done),
        chunk_bytes: table.read("chunk_bytes", Field::size)?,
        content_type: table.read("content_type", Field::text)?.unwrap_or(usual.content_type),
    };
    table.finish()?;
    Ok(framing)
}
