//! Values as people read them, and text of strangers made harmless for a terminal.

use std::time::Duration;

/// One line: control characters, line breaks included, are shown as escapes, so that what a model, a component or a
/// provider wrote can neither move the cursor nor pose as another line.
pub(crate) fn plain(text: &str) -> String {
    escaped(text, |_| false)
}

/// As [`plain`], but line breaks and tabs stay.
pub(crate) fn plain_lines(text: &str) -> String {
    escaped(text, |c| c == '\n' || c == '\t')
}

fn escaped(text: &str, keep: impl Fn(char) -> bool) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        // Besides control characters those that turn the reading direction around.
        let turns = matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        if (c.is_control() || turns) && !keep(c) {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

/// One line of at most `chars` characters, the rest cut.
pub(crate) fn short(text: &str, chars: usize) -> String {
    let text = plain(text);
    if text.chars().count() <= chars {
        return text;
    }
    text.chars().take(chars.saturating_sub(1)).chain(['…']).collect()
}

/// `340 ms`, `1.25 s`, `2 min 5 s`.
pub(crate) fn duration(time: Duration) -> String {
    let ms = time.as_millis();
    match ms {
        0 => format!("{:.1} ms", time.as_secs_f64() * 1000.0),
        1..1_000 => format!("{ms} ms"),
        1_000..60_000 => {
            let text = format!("{:.2}", time.as_secs_f64());
            format!("{} s", text.trim_end_matches('0').trim_end_matches('.'))
        }
        _ => {
            let seconds = time.as_secs();
            match seconds % 60 {
                0 => format!("{} min", seconds / 60),
                rest => format!("{} min {rest} s", seconds / 60),
            }
        }
    }
}

/// Milliseconds as [`duration`] writes them.
pub(crate) fn millis(ms: u64) -> String {
    duration(Duration::from_millis(ms))
}

/// `512 B`, `64 KiB`, `1.5 MiB`.
pub(crate) fn size(bytes: u64) -> String {
    let scaled = |unit: u64, name: &str| {
        let value = format!("{:.1}", bytes as f64 / unit as f64);
        format!("{} {name}", value.trim_end_matches(".0"))
    };
    match bytes {
        0..1_024 => format!("{bytes} B"),
        1_024..1_048_576 => scaled(1 << 10, "KiB"),
        1_048_576..1_073_741_824 => scaled(1 << 20, "MiB"),
        _ => scaled(1 << 30, "GiB"),
    }
}

/// A moment in UTC; a number out of a calendar's range is shown as it is.
pub(crate) fn moment(ms: u64) -> String {
    match i64::try_from(ms).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok()) {
        Some(time) => format!("{time:.3}"),
        None => ms.to_string(),
    }
}

/// `1 call`, `2 calls`.
pub(crate) fn count(n: u64, one: &str, many: &str) -> String {
    if n == 1 { format!("1 {one}") } else { format!("{n} {many}") }
}

/// An argument as it can be pasted into a shell.
pub(crate) fn shell(text: &str) -> String {
    let harmless =
        |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/' | ':' | '=' | '@' | ',' | '+');
    if !text.is_empty() && text.chars().all(harmless) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_read_well() {
        let times = [0, 7, 340, 1_000, 1_250, 59_999, 120_000, 125_400].map(millis);
        assert_eq!(times, ["0.0 ms", "7 ms", "340 ms", "1 s", "1.25 s", "60 s", "2 min", "2 min 5 s"]);
        assert_eq!(duration(Duration::from_micros(140)), "0.1 ms");
        let sizes = [0, 1_023, 1_024, 65_536, 1_572_864, 1 << 30].map(size);
        assert_eq!(sizes, ["0 B", "1023 B", "1 KiB", "64 KiB", "1.5 MiB", "1 GiB"]);
        assert_eq!(moment(1_700_000_000_123), "2023-11-14T22:13:20.123Z");
        assert_eq!(moment(u64::MAX), u64::MAX.to_string());
        assert_eq!([count(0, "call", "calls"), count(1, "call", "calls")], ["0 calls", "1 call"]);
    }

    #[test]
    fn text_of_strangers_stays_text() {
        assert_eq!(plain("a\u{1b}[2J\r\nb\u{202e}c"), "a\\u{1b}[2J\\r\\nb\\u{202e}c");
        assert_eq!(plain_lines("a\n\tb\r"), "a\n\tb\\r");
        assert_eq!(short("äöü abc", 4), "äöü…");
        assert_eq!(short("äöü", 3), "äöü");
    }

    #[test]
    fn an_argument_survives_a_shell() {
        assert_eq!(["a/b-1.toml", "", "it's", "$x"].map(shell), ["a/b-1.toml", "''", r"'it'\''s'", "'$x'"]);
    }
}
