//! What is said while something takes long: a line that moves on a terminal, plain lines elsewhere.

use std::io::IsTerminal;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use wharf::sandbox::{CompileEvent, OnCompile};

use crate::say::plain;
use crate::screen::{DIM, say};

/// One line for a compilation, or none where there is nothing to say.
pub(crate) fn compile_text(event: &CompileEvent<'_>) -> Option<String> {
    match event {
        CompileEvent::Started { name, bytes } => {
            Some(format!("{}: {} KiB of WebAssembly to native code, once", plain(name), bytes.div_ceil(1024)))
        }
        CompileEvent::Finished { name, took } => Some(format!("{}: done in {:.1} s", plain(name), took.as_secs_f64())),
        _ => None, // a newer sandbox may tell more
    }
}

/// Shows compilations on standard error.
pub(crate) fn compiling() -> OnCompile {
    let moving = std::io::stderr().is_terminal();
    let bar: Mutex<Option<ProgressBar>> = Mutex::new(None);
    Arc::new(move |event| {
        let Some(text) = compile_text(&event) else { return };
        let mut bar = bar.lock().unwrap_or_else(PoisonError::into_inner); // it holds a bar or none, never half of one
        match event {
            CompileEvent::Started { .. } if moving => *bar = Some(spinner(text)),
            CompileEvent::Finished { .. } => {
                if let Some(bar) = bar.take() {
                    bar.finish_and_clear();
                }
                say(&format!("{DIM}compile {text}{DIM:#}"));
            }
            _ => say(&format!("{DIM}compile {text}{DIM:#}")),
        }
    })
}

fn spinner(text: String) -> ProgressBar {
    let bar = ProgressBar::new_spinner().with_message(text);
    // The template is ours; a default one shows too.
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} ({elapsed})") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(100));
    bar
}

/// A line that says how far a long look has come: on a terminal only, as it is gone when the look is over.
pub(crate) struct Steps(Option<ProgressBar>);

impl Steps {
    /// Begins, without a line yet.
    pub(crate) fn begin() -> Self {
        Self(std::io::stderr().is_terminal().then(|| spinner(String::new())))
    }

    /// Shows this from now on.
    pub(crate) fn show(&self, text: impl FnOnce() -> String) {
        if let Some(bar) = &self.0 {
            bar.set_message(text());
        }
    }

    /// Takes the line away.
    pub(crate) fn end(self) {
        if let Some(bar) = self.0 {
            bar.finish_and_clear();
        }
    }
}
