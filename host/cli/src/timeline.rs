//! A turn as bars over a common time axis, drawn in text: which calls ran while which response streamed, and when their
//! outputs were delivered. It knows no terminal and no colour.

use crate::say::short;

/// Width of the column with the names, in characters.
const NAME: usize = 16;

/// One bar.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Row {
    name: String,
    kind: Kind,
    start: f64,
    end: f64,
    /// When its output was put into a delivery, in seconds; for a call.
    pub(crate) delivered: Option<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Response,
    Call,
    Refused,
}

impl Row {
    /// A response that streamed from `start` to `end`, in seconds.
    pub(crate) fn response(id: &str, start: f64, end: f64) -> Self {
        Self { name: id.to_owned(), kind: Kind::Response, start, end, delivered: None }
    }

    /// A call that ran from `start` to `end`, in seconds.
    pub(crate) fn call(name: &str, start: f64, end: f64) -> Self {
        Self { name: name.to_owned(), kind: Kind::Call, start, end, delivered: None }
    }

    /// A call that policy refused.
    pub(crate) fn refused(name: &str, at: f64) -> Self {
        Self { name: name.to_owned(), kind: Kind::Refused, start: at, end: at, delivered: None }
    }

    /// True for a call of this tool, refused or not.
    pub(crate) fn is_call_named(&self, name: &str) -> bool {
        self.kind != Kind::Response && self.name == name
    }
}

/// Draws the rows, in the order in which they began, at most `width` characters wide.
///
/// `=` is a response that streams, `#` a call that runs, `x` a refusal, `.` a result that waits, `>` its delivery.
pub(crate) fn draw(rows: &[Row], width: usize) -> String {
    let mut rows: Vec<&Row> = rows.iter().collect();
    rows.sort_by(|a, b| a.start.total_cmp(&b.start));
    let last = rows.iter().map(|row| row.end.max(row.delivered.unwrap_or(0.0))).fold(0.0, f64::max);
    let columns = width.saturating_sub(NAME + 2).max(10);
    let scale = if last > 0.0 { (columns - 1) as f64 / last } else { 0.0 };
    let at = |seconds: f64| ((seconds * scale).round() as usize).min(columns - 1);
    let mut lines = Vec::with_capacity(rows.len() + 2);
    for row in rows {
        let mut bar = vec![' '; columns];
        let mark = match row.kind {
            Kind::Response => '=',
            Kind::Call => '#',
            Kind::Refused => 'x',
        };
        if let Some(delivered) = row.delivered {
            fill(&mut bar, at(row.end), at(delivered), '.');
            fill(&mut bar, at(delivered), at(delivered), '>');
        }
        let end = match row.delivered {
            Some(delivered) if at(delivered) == at(row.end) => at(row.end).saturating_sub(1).max(at(row.start)),
            Some(_) | None => at(row.end),
        };
        fill(&mut bar, at(row.start), end, mark);
        let bar: String = bar.into_iter().collect();
        lines.push(format!("{:<NAME$}  {}", short(&row.name, NAME), bar.trim_end()));
    }
    let left = "0 s";
    let right = format!("{last:.1} s");
    let gap = columns.saturating_sub(left.len() + right.len());
    lines.push(format!("{:<NAME$}  {left}{}{right}", "", " ".repeat(gap)));
    lines.push("= response streams   # call runs   . result waits   > delivered   x refused".to_owned());
    lines.join("\n") + "\n"
}

fn fill(bar: &mut [char], from: usize, to: usize, mark: char) {
    for cell in bar.iter_mut().take(to + 1).skip(from) {
        *cell = mark;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlap_waiting_and_refusal_are_seen_at_a_glance() {
        let mut slow = Row::call("word_stats", 0.2, 4.0);
        slow.delivered = Some(4.0);
        let mut fast = Row::call("search_files", 0.5, 0.8);
        fast.delivered = Some(1.4);
        let rows = [slow, Row::response("resp_1", 0.0, 1.4), fast, Row::refused("write_file", 2.0)];
        let expected = "\
resp_1            ===============
word_stats          #####################################>
search_files           ####.....>
write_file                            x
                  0 s                                4.0 s
= response streams   # call runs   . result waits   > delivered   x refused
";
        assert_eq!(draw(&rows, 58), expected);
    }

    #[test]
    fn nothing_to_draw_is_no_fault() {
        assert!(draw(&[], 40).starts_with(' '));
    }
}
