//! The two streams of the terminal: data goes to standard output, talk to standard error. Colour only where a person
//! reads; nothing is said by colour alone. It must never know what a turn is.

use std::io::{self, IsTerminal, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anstyle::{AnsiColor, Style};

use crate::say::plain_lines;

/// For what fails.
pub(crate) const BAD: Style = AnsiColor::Red.on_default().bold();
/// For what a person should look at.
pub(crate) const NOTE: Style = AnsiColor::Yellow.on_default();
/// For what went well.
pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
/// For names.
pub(crate) const NAME: Style = AnsiColor::Cyan.on_default();
/// For what matters less.
pub(crate) const DIM: Style = Style::new().dimmed();

/// Talk and the model's text, which may share one terminal.
pub(crate) struct Screen {
    state: Mutex<State>,
    /// Standard output is a terminal: text of models is made harmless for it.
    out_is_terminal: bool,
    /// Both streams are the terminal, so talk has to begin a line of its own.
    shared: bool,
    shows_text: bool,
}

#[derive(Default)]
struct State {
    mid_line: bool,
    /// The first failure to write to standard output; told at the end.
    failed: Option<io::Error>,
}

impl Screen {
    /// Shows text as it comes.
    pub(crate) fn with_text() -> Self {
        Self::new(true)
    }

    /// Shows talk alone; standard output is kept for one JSON object.
    pub(crate) fn without_text() -> Self {
        Self::new(false)
    }

    fn new(shows_text: bool) -> Self {
        let out_is_terminal = io::stdout().is_terminal();
        Self {
            state: Mutex::default(),
            out_is_terminal,
            shared: out_is_terminal && io::stderr().is_terminal(),
            shows_text,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // What is kept cannot be half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A piece of the model's text.
    pub(crate) fn text(&self, text: &str) {
        if !self.shows_text || text.is_empty() {
            return;
        }
        let harmless = if self.out_is_terminal { plain_lines(text) } else { text.to_owned() };
        let mut state = self.state();
        state.mid_line = !text.ends_with('\n');
        let mut out = io::stdout().lock();
        let written = out.write_all(harmless.as_bytes()).and_then(|()| out.flush());
        if let Err(error) = written {
            state.failed.get_or_insert(error);
        }
    }

    /// Ends the line of text, if one is open.
    pub(crate) fn end_text(&self) {
        if self.state().mid_line {
            self.text("\n");
        }
    }

    /// A line of talk.
    pub(crate) fn talk(&self, line: &str) {
        if self.shared {
            self.end_text();
        }
        let _order = self.state();
        say(line);
    }

    /// What went wrong with standard output, if anything.
    ///
    /// # Errors
    /// The first failure to write to it.
    pub(crate) fn check(&self) -> io::Result<()> {
        match self.state().failed.take() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }
}

/// A line of talk where no text streams.
pub(crate) fn say(line: &str) {
    // Talk that nobody can read any more is lost without harm.
    writeln!(anstream::stderr(), "{line}").ok();
}

/// `error: …`
pub(crate) fn error(message: &str) {
    say(&format!("{BAD}error{BAD:#}: {message}"));
}

/// `warning: …`
pub(crate) fn warning(message: &str) {
    say(&format!("{NOTE}warning{NOTE:#}: {message}"));
}

/// `hint: …`
pub(crate) fn hint(message: &str) {
    say(&format!("{NAME}hint{NAME:#}: {message}"));
}

/// Data: a text with its line end.
///
/// # Errors
/// Standard output cannot be written to.
pub(crate) fn print(text: &str) -> io::Result<()> {
    let mut out = anstream::stdout().lock();
    out.write_all(text.as_bytes())?;
    if !text.ends_with('\n') {
        out.write_all(b"\n")?;
    }
    out.flush()
}

/// Data: one JSON value, indented where a person reads it.
///
/// # Errors
/// Standard output cannot be written to.
pub(crate) fn print_json(value: &serde_json::Value) -> io::Result<()> {
    if io::stdout().is_terminal() { print(&format!("{value:#}")) } else { print(&value.to_string()) }
}
