//! Durations and sizes as people write them: `"10s"`, `"64MiB"`.

use std::time::Duration;

/// Reads a duration: a number and `ms`, `s`, `m`, `h` or `d`, once or several times (`"1m30s"`).
///
/// # Errors
/// Why it is none.
pub fn duration(text: &str) -> Result<Duration, String> {
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err("is empty".to_owned());
    }
    let mut total_ms: f64 = 0.0;
    while !rest.is_empty() {
        let (number, unit, after) = number_and_unit(rest)?;
        let unit_ms = match unit {
            "ms" => 1.0,
            "s" => 1_000.0,
            "m" => 60_000.0,
            "h" => 3_600_000.0,
            "d" => 86_400_000.0,
            "" => return Err("has no unit (ms, s, m, h or d)".to_owned()),
            other => return Err(format!("has the unit {other:?}, which is none of ms, s, m, h and d")),
        };
        total_ms += number * unit_ms;
        rest = after;
    }
    let whole = total_ms.round();
    if whole < 1.0 {
        return Err("is less than a millisecond".to_owned());
    }
    // The bound keeps the cast exact; what is allowed is far below it.
    if whole > 1e15 {
        return Err("is too long".to_owned());
    }
    Ok(Duration::from_millis(whole as u64))
}

/// Reads a size: a number and `B`, `KiB`, `MiB` or `GiB`.
///
/// # Errors
/// Why it is none.
pub(super) fn size(text: &str) -> Result<u64, String> {
    let (number, unit, after) = number_and_unit(text.trim())?;
    if !after.is_empty() {
        return Err(format!("goes on after its unit with {after:?}"));
    }
    let factor: u64 = match unit {
        "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "" => return Err("has no unit (B, KiB, MiB or GiB)".to_owned()),
        "KB" | "MB" | "GB" | "kB" | "K" | "M" | "G" => {
            return Err(format!("has the unit {unit:?}, which is ambiguous; units are B, KiB, MiB and GiB"));
        }
        other => return Err(format!("has the unit {other:?}, which is none of B, KiB, MiB and GiB")),
    };
    let bytes = (number * factor as f64).round();
    if bytes > 1e15 {
        return Err("is too large".to_owned());
    }
    Ok(bytes as u64)
}

/// A size as it would be written.
pub(crate) fn write_size(bytes: u64) -> String {
    for (unit, factor) in [("GiB", 1u64 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)] {
        if bytes >= factor && bytes.is_multiple_of(factor) {
            return format!("{}{unit}", bytes / factor);
        }
    }
    format!("{bytes}B")
}

/// A duration as it would be written.
pub fn write_duration(time: Duration) -> String {
    let ms = time.as_millis();
    for (unit, factor) in [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000)] {
        if ms >= factor && ms.is_multiple_of(factor) {
            return format!("{}{unit}", ms / factor);
        }
    }
    format!("{ms}ms")
}

fn number_and_unit(text: &str) -> Result<(f64, &str, &str), String> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, rest) = text.split_at(end);
    let number: f64 = number.parse().map_err(|_| "does not begin with a number".to_owned())?;
    let rest = rest.trim_start();
    let end = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
    let (unit, after) = rest.split_at(end);
    Ok((number, unit, after.trim_start()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_written() {
        for (text, ms) in [
            ("10s", 10_000),
            ("500ms", 500),
            ("1.5s", 1_500),
            ("1m30s", 90_000),
            ("2h", 7_200_000),
            ("1 m", 60_000),
            ("90d", 90 * 86_400_000),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for (text, why) in [
            ("", "is empty"),
            ("10", "has no unit (ms, s, m, h or d)"),
            ("s", "does not begin with a number"),
            ("-1s", "does not begin with a number"),
            ("10 parsecs", r#"has the unit "parsecs", which is none of ms, s, m, h and d"#),
            ("0s", "is less than a millisecond"),
            ("99999999999999999h", "is too long"),
            ("1..5s", "does not begin with a number"),
            ("1s!", "does not begin with a number"),
        ] {
            assert_eq!(duration(text), Err(why.to_owned()), "{text}");
        }
    }

    #[test]
    fn sizes_read_as_written() {
        for (text, bytes) in [("64KiB", 65_536), ("64MiB", 64 << 20), ("1.5GiB", 3 << 29), ("10 B", 10), ("0B", 0)] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for (text, why) in [
            ("64", "has no unit (B, KiB, MiB or GiB)"),
            ("64MB", r#"has the unit "MB", which is ambiguous; units are B, KiB, MiB and GiB"#),
            ("64 apples", r#"has the unit "apples", which is none of B, KiB, MiB and GiB"#),
            ("64KiB2", r#"goes on after its unit with "2""#),
            ("9999999999GiB", "is too large"),
        ] {
            assert_eq!(size(text), Err(why.to_owned()), "{text}");
        }
    }

    #[test]
    fn what_is_written_reads_back() {
        for bytes in [1, 1023, 1024, 65_536, 3 << 29, 4 << 30] {
            assert_eq!(size(&write_size(bytes)), Ok(bytes));
        }
        for ms in [1, 999, 1_000, 90_000, 3_600_000, 36 * 3_600_000, 90 * 86_400_000] {
            let time = Duration::from_millis(ms);
            assert_eq!(duration(&write_duration(time)), Ok(time));
        }
    }
}
