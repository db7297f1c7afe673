//! `wharf session show`: records, responses, calls, timeline.

use serde_json::{Value, json};
use wharf::core::OrgId;
use wharf::core::events::Event;
use wharf::store::Store;

use crate::args::SessionArgs;
use crate::exit::Exit;
use crate::open;
use crate::say::{count, millis, moment, plain, short};
use crate::story::{CallRow, Entry, ResponseRow, Story, TurnRow, entries};
use crate::table::Table;
use crate::{limits, screen, timeline};

/// Shows a session.
///
/// # Errors
/// Store and corruption errors; a config error for a session that is not there.
pub(crate) async fn show(args: SessionArgs) -> anyhow::Result<Exit> {
    let Some((store, flag)) = crate::store::existing(&args.harness).await? else {
        return Err(open::no_session(&args.session, None).into());
    };
    let key = open::existing_session(&*store, &args.session).await?;
    let entries = entries(&*store, &key).await?;
    let story = Story::of(&entries);
    if args.json {
        screen::print_json(&as_json(&args.session, &entries, &story))?;
        return Ok(Exit::Ok);
    }
    screen::print(&as_text(&args.session, &entries, &story))?;
    if let Some(owner) = owner(&*store, &args.session).await? {
        screen::say(&format!("in use by {owner}"));
    }
    if story.is_open() {
        screen::hint(&format!("go on with: wharf session resume {}{flag}", crate::say::shell(&args.session)));
    }
    Ok(Exit::Ok)
}

async fn owner(store: &dyn Store, session: &str) -> anyhow::Result<Option<String>> {
    let sessions = store.sessions(&OrgId::local(), limits::SESSIONS_MAX).await?;
    Ok(sessions.iter().find(|one| one.key.session.as_str() == session).and_then(super::owner_text))
}

fn as_text(session: &str, entries: &[Entry], story: &Story) -> String {
    let mut out = format!("session {}: {}\n", plain(session), count(entries.len() as u64, "record", "records"));
    for (at, turn) in story.turns.iter().enumerate() {
        let took = turn.ended_ms.map(|end| format!(" in {}", millis(end.saturating_sub(turn.begun_ms))));
        out.push_str(&format!(
            "turn {} {}: {}{}\n    {}\n",
            at + 1,
            moment(turn.begun_ms),
            plain(&turn.state),
            took.unwrap_or_default(),
            short(&turn.input, limits::TALK_CHARS_MAX)
        ));
    }
    let mut section = |title: &str, body: String| {
        if !body.is_empty() {
            out.push_str(&format!("\n{title}\n{body}"));
        }
    };
    section("records", records(entries).to_string());
    section("responses", responses(&story.responses));
    section("calls", calls(&story.calls));
    section("timeline", drawn(story));
    out
}

fn drawn(story: &Story) -> String {
    let rows = story.timeline();
    if rows.is_empty() { String::new() } else { timeline::draw(&rows, limits::TIMELINE_WIDTH) }
}

fn records(entries: &[Entry]) -> Table {
    let mut table = Table::new(&["#", "TIME", "RECORD", "FACTS"]);
    for entry in entries {
        let facts = Event::of(entry.seq, &entry.record).map(|event| facts(&event.details)).unwrap_or_default();
        table.row([
            entry.seq.to_string(),
            moment(entry.at_ms),
            entry.record.kind().to_owned(),
            short(&facts, limits::TALK_CHARS_MAX),
        ]);
    }
    table
}

/// `call_id=call_1 attempt=1`; what is not there is left out.
fn facts(details: &Value) -> String {
    let Some(members) = details.as_object() else { return String::new() };
    let texts = members.iter().filter(|(_, value)| !value.is_null()).map(|(name, value)| match value {
        Value::String(text) => format!("{name}={text}"),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            format!("{name}={value}")
        }
    });
    texts.collect::<Vec<_>>().join(" ")
}

fn responses(rows: &[ResponseRow]) -> String {
    let mut table = Table::new(&["#", "ID", "STATE", "TOOK", "FIRST TEXT", "TOKENS", "TEXT"]);
    for row in rows {
        table.row([
            row.number.to_string(),
            row.id.as_deref().map(plain).unwrap_or_default(),
            plain(&row.state),
            row.ended_ms.map(|end| millis(end.saturating_sub(row.begun_ms))).unwrap_or_default(),
            row.first_token_ms.map(millis).unwrap_or_default(),
            row.tokens.map(|n| n.to_string()).unwrap_or_default(),
            short(&row.text, 40),
        ]);
    }
    if table.is_empty() { String::new() } else { table.to_string() }
}

fn calls(rows: &[CallRow]) -> String {
    let mut table = Table::new(&["ID", "TOOL", "ASYNC", "REPLAY", "RUNS", "STATE", "HOW", "RAN", "DELIVERED"]);
    for row in rows {
        table.row([
            plain(&row.id),
            plain(&row.tool),
            if row.is_async { "yes" } else { "no" }.to_owned(),
            row.replay.clone(),
            row.attempts.to_string(),
            row.state.clone(),
            row.how.clone().unwrap_or_default(),
            row.ran_ms().map(millis).unwrap_or_default(),
            row.delivered_ms.map(moment).unwrap_or_default(),
        ]);
    }
    if table.is_empty() { String::new() } else { table.to_string() }
}

fn as_json(session: &str, entries: &[Entry], story: &Story) -> Value {
    json!({
        "session": session,
        "open": story.is_open(),
        "turns": story.turns.iter().map(turn_json).collect::<Vec<_>>(),
        "responses": story.responses.iter().map(response_json).collect::<Vec<_>>(),
        "calls": story.calls.iter().map(call_json).collect::<Vec<_>>(),
        "records": entries.iter().map(record_json).collect::<Vec<_>>(),
    })
}

fn record_json(entry: &Entry) -> Value {
    // It came from a journal, so it has a stored form, and what we wrote ourselves a moment ago is JSON.
    let encoded = entry.record.encode().ok();
    let body: Value =
        encoded.as_ref().and_then(|encoded| serde_json::from_str(&encoded.body).ok()).unwrap_or(Value::Null);
    json!({
        "seq": entry.seq.0, "at": moment(entry.at_ms), "kind": entry.record.kind(),
        "version": encoded.map(|encoded| encoded.version), "body": body,
    })
}

fn turn_json(row: &TurnRow) -> Value {
    json!({
        "turn": row.id, "input": row.input, "state": row.state, "begun": moment(row.begun_ms),
        "ended": row.ended_ms.map(moment),
    })
}

fn response_json(row: &ResponseRow) -> Value {
    json!({
        "number": row.number, "id": row.id, "state": row.state, "begun": moment(row.begun_ms),
        "ended": row.ended_ms.map(moment), "first_token_ms": row.first_token_ms, "tokens": row.tokens, "text": row.text,
    })
}

fn call_json(row: &CallRow) -> Value {
    json!({
        "id": row.id, "tool": row.tool, "async": row.is_async, "replay": row.replay, "attempts": row.attempts,
        "state": row.state, "how": row.how, "accepted": moment(row.accepted_ms),
        "runs": row.runs.iter().map(|(begin, end)| json!({ "begun": moment(*begin), "ended": end.map(moment) })).collect::<Vec<_>>(),
        "settled": row.settled_ms.map(moment), "delivered": row.delivered_ms.map(moment),
    })
}
