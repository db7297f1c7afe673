//! A crash in words: what happened and in which functions, innermost first. Names come from the component, so they are
//! bounded and escaped.

use std::fmt::Write as _;

use wasmtime::WasmBacktrace;
use wasmtime_wasi::I32Exit;

use crate::limits;

/// Functions that only carry a panic outwards: they would push out the names that tell something.
const NOISE: [&str; 8] = [
    "__rust",
    "rust_panic",
    "core::panicking::",
    "std::panicking::",
    "std::process::abort",
    "std::rt::",
    "std::sys::",
    "abort",
];

pub(crate) fn message(error: &wasmtime::Error) -> String {
    let mut message = match error.downcast_ref::<I32Exit>() {
        Some(exit) => format!("it exited with code {}", exit.0),
        None => error.root_cause().to_string(),
    };
    let names = error.downcast_ref::<WasmBacktrace>().map(names).unwrap_or_default();
    for (n, name) in names.iter().take(limits::TRAP_FRAMES_MAX).enumerate() {
        let between = if n == 0 { " in" } else { ", called from" };
        // Writing to a string cannot fail.
        let _ = write!(message, "{between} {}", name.escape_debug());
    }
    if message.len() > limits::TRAP_BYTES_MAX {
        message.truncate(message.floor_char_boundary(limits::TRAP_BYTES_MAX));
        message.push('…');
    }
    message
}

/// The functions, readable. The engine demangles names only where it writes a whole trace: a line of it is
/// `N: OFFSET - MODULE!FUNCTION`.
fn names(trace: &WasmBacktrace) -> Vec<String> {
    let text = trace.to_string();
    let all: Vec<&str> = text.lines().filter_map(|line| Some(line.split_once('!')?.1.trim())).collect();
    let telling: Vec<&str> =
        all.iter().copied().filter(|name| !NOISE.iter().any(|noise| name.starts_with(noise))).collect();
    let chosen = if telling.is_empty() { all } else { telling };
    chosen.into_iter().map(str::to_owned).collect()
}
