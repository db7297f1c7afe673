//! What the demo shows while a turn runs: the model's text as it streams, and one line for each step, with the time since
//! the start. It decides nothing about the turn.

use std::io::Write as _;
use std::time::Instant;

use anstyle::{AnsiColor, Style};

/// Longest line of the model's text before it goes on in the next one, in characters.
const WIDTH: usize = 76;

/// Longest preview of an output, in characters.
const PREVIEW: usize = 58;

/// Lines on standard output.
pub(super) struct Screen {
    start: Instant,
    /// Where the model's line is, while one is open.
    column: Option<usize>,
    /// A space is due before the next word of that line.
    space: bool,
}

/// Who a line is about.
#[derive(Clone, Copy)]
pub(super) enum Who {
    Host,
    Model,
    Call,
    Deliver,
    Refuse,
}

impl Who {
    fn style(self) -> Style {
        let color = match self {
            Self::Host => return Style::new().dimmed(),
            Self::Model => return Style::new(),
            Self::Call => AnsiColor::Cyan,
            Self::Deliver => AnsiColor::Green,
            Self::Refuse => AnsiColor::Red,
        };
        Style::new().fg_color(Some(color.into()))
    }
}

impl Screen {
    pub(super) fn new() -> Self {
        Self { start: Instant::now(), column: None, space: false }
    }

    /// A piece of the model's text.
    pub(super) fn text(&mut self, text: &str) {
        for piece in text.split_inclusive(' ') {
            let word = piece.trim_end();
            if self.column.is_none_or(|column| column + word.chars().count() > WIDTH) {
                self.end_text();
                self.prefix(Who::Model, "model");
                self.column = Some(0);
            } else if self.space {
                self.put(" ");
            }
            self.put(word);
            self.space = piece.ends_with(' ');
            self.column = self.column.map(|column| column + piece.chars().count());
        }
    }

    /// One line; breaks the model's text off, which goes on in a new line.
    pub(super) fn line(&mut self, who: Who, label: &str, text: &str) {
        self.end_text();
        self.prefix(who, label);
        let style = who.style();
        self.put(&format!("{style}{text}{style:#}\n"));
    }

    /// A line without time or label.
    pub(super) fn plain(&mut self, text: &str) {
        self.end_text();
        self.put(text);
        self.put("\n");
    }

    /// Ends the model's line.
    pub(super) fn end_text(&mut self) {
        self.space = false;
        if self.column.take().is_some() {
            self.put("\n");
        }
    }

    fn prefix(&mut self, who: Who, label: &str) {
        let style = who.style();
        let seconds = self.start.elapsed().as_secs_f64();
        self.put(&format!("{seconds:6.2}  {style}{label:<8}{style:#} "));
    }

    fn put(&mut self, text: &str) {
        let mut out = anstream::stdout().lock();
        // A reader that went away (`wharf demo | head`) does not stop the turn.
        out.write_all(text.as_bytes()).and_then(|()| out.flush()).ok();
    }
}

/// The head of an output on one line.
pub(super) fn preview(output: &str) -> String {
    let line = output.replace(['\n', '\t'], " ");
    if line.chars().count() <= PREVIEW { line } else { line.chars().take(PREVIEW).chain("…".chars()).collect() }
}
