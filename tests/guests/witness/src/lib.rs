//! Three tools that do the same and differ in their names alone, so that a harness can give each another replay class: a run
//! appends `tool call_id attempt idempotency_key` to `/witness/log`, on disk before it goes on, and stays for as long as
//! there is a file `/witness/hold/CALL_ID`. Whoever kills the host reads in the log what ran, whatever the host remembers.

use std::{fs, io::Write, path::Path, thread, time::Duration};

use serde::Deserialize;
use wharf_tool_sdk::{Call, Component, Failure, JsonSchema, NoConfig, Tool};

/// Between two looks whether the run may end. There is no way to be told of a file.
const LOOK_EVERY: Duration = Duration::from_millis(2);

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Nothing {}

struct Witness;

impl Component for Witness {
    type Config = NoConfig;

    fn tools(_: &NoConfig) -> Result<Vec<Tool<NoConfig>>, Failure> {
        Ok(vec![
            Tool::json("pay", "Must never run twice.", |call: &Call<NoConfig>, _: Nothing| run("pay", call)),
            Tool::json("look", "May run again.", |call: &Call<NoConfig>, _: Nothing| run("look", call)),
            Tool::json("book", "May run again with its key.", |call: &Call<NoConfig>, _: Nothing| run("book", call)),
        ])
    }
}

fn run(tool: &str, call: &Call<NoConfig>) -> Result<String, Failure> {
    let Call { call_id, attempt, idempotency_key, .. } = call;
    let line = format!("{tool} {call_id} {attempt} {idempotency_key}\n");
    let append = || {
        let mut log = fs::OpenOptions::new().create(true).append(true).open("/witness/log")?;
        // One write, so that lines of two runs never mix.
        log.write_all(line.as_bytes())?;
        log.sync_all()
    };
    append().map_err(|error| Failure::from_io("/witness/log", &error))?;
    let hold = format!("/witness/hold/{call_id}");
    while Path::new(&hold).exists() {
        thread::sleep(LOOK_EVERY);
    }
    Ok(format!("{call_id} run {attempt}"))
}

wharf_tool_sdk::export_tools!(Witness);
