//! A crash in words: what happened and in which functions, innermost first. Names come from the component, so they are
//! bounded before anything is done with them, and escaped. The engine's own text of a trace is never made: it demangles
//! C++ names, and a short one can stand for more text than there is memory; it would do so after the call's time is over.

use std::fmt::{self, Write};

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

/// The functions, readable; those without a name by their index.
fn names(trace: &WasmBacktrace) -> Vec<String> {
    let name = |frame: &wasmtime::FrameInfo| match frame.func_name() {
        Some(name) => readable(name),
        None => format!("function {}", frame.func_index()),
    };
    let all: Vec<String> = trace.frames().iter().map(name).collect();
    let telling: Vec<String> =
        all.iter().filter(|name| !NOISE.iter().any(|noise| name.starts_with(noise))).cloned().collect();
    if telling.is_empty() { all } else { telling }
}

/// A name of a Rust function as its author wrote it, any other as it is; cut to a bound.
fn readable(name: &str) -> String {
    let mut text = Bounded { text: String::new(), room: limits::FUNCTION_NAME_BYTES_MAX, cut: false };
    let demangled = (name.len() <= limits::FUNCTION_MANGLED_BYTES_MAX)
        .then(|| rustc_demangle::try_demangle(name).ok())
        .flatten()
        .map(|demangled| write!(text, "{demangled:#}"));
    if demangled.is_none() {
        // What does not fit is cut, and marked below.
        let _ = text.write_str(name);
    }
    if text.cut {
        text.text.push('…');
    }
    text.text
}

/// Text up to a bound; the first write past it fails, which ends whoever writes.
struct Bounded {
    text: String,
    room: usize,
    cut: bool,
}

impl Write for Bounded {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        if more.len() <= self.room {
            self.text.push_str(more);
            self.room -= more.len();
            return Ok(());
        }
        self.text.push_str(&more[..more.floor_char_boundary(self.room)]);
        (self.room, self.cut) = (0, true);
        Err(fmt::Error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rust_names_are_read_and_others_stay_as_they_are() {
        for (name, shown) in [
            ("_ZN4core9panicking5panic17h0123456789abcdefE", "core::panicking::panic"),
            ("_RNvCskwGfYPst2Cb_3foo16example_function", "foo::example_function"),
            ("_ZN3foo3barEv", "_ZN3foo3barEv"),
            ("_Z3fooi", "_Z3fooi"),
            ("read_config", "read_config"),
            ("", ""),
        ] {
            assert_eq!(readable(name), shown, "{name}");
        }
    }

    // A name of some hundred bytes whose every level doubles what it stands for.
    #[test]
    fn no_name_is_longer_than_its_bound_however_much_it_stands_for() {
        let max = limits::FUNCTION_NAME_BYTES_MAX;
        let at = "x".repeat(max);
        assert_eq!(readable(&at), at);
        assert_eq!(readable(&format!("{at}x")), format!("{at}…"));
        assert_eq!(readable(&"é".repeat(100_000)), format!("{}…", "é".repeat(max / 2)));
        let rust = doubling();
        assert!(rust.len() < limits::FUNCTION_MANGLED_BYTES_MAX);
        let shown = readable(&rust);
        assert!(shown.starts_with("a::f::<((), ()), (((), ()), ((), ()))"), "{shown}");
        assert_eq!(shown.len(), max + '…'.len_utf8());
        let long = format!("_ZN{}E", "3foo".repeat(10_000));
        assert_eq!(readable(&long), format!("{}…", &long[..max]));
    }

    /// `a::f` with 40 type arguments, each a pair of the one before it.
    fn doubling() -> String {
        const DIGITS: &[u8; 62] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
        let mut symbol = "INvC1a1f".to_owned();
        let mut before = "u".to_owned();
        for _ in 0..40 {
            let at = symbol.len();
            symbol.push_str(&format!("T{before}{before}E"));
            // Positions are written from one on, to the base 62, the first as nothing.
            let digits = match at.checked_sub(1) {
                Some(n) if n < 62 => char::from(DIGITS[n]).to_string(),
                Some(n) => [n / 62, n % 62].map(|digit| char::from(DIGITS[digit])).iter().collect(),
                None => String::new(),
            };
            before = format!("B{digits}_");
        }
        format!("_R{symbol}E")
    }
}
