//! Usage of this protocol in disjoint buckets (P15). Here cached and cache-written tokens are inside the input, and
//! reasoning tokens inside the output; other protocols count otherwise.

use serde_json::Value;
use wharf_core::model::Usage;

/// Reads a usage object; `None` if it is none. A value that is not a non-negative integer counts as absent.
pub(super) fn read(value: &Value) -> Option<Usage> {
    if !value.is_object() {
        return None;
    }
    let input = count(value, &["input_tokens", "prompt_tokens"]);
    let output = count(value, &["output_tokens", "completion_tokens"]);
    let input_details = &value["input_tokens_details"];
    let cache_read = count(input_details, &["cached_tokens"]).min(input);
    let cache_write = count(input_details, &["cache_write_tokens"]).min(input - cache_read);
    let reasoning = count(&value["output_tokens_details"], &["reasoning_tokens"]).min(output);
    Some(Usage {
        fresh_input: input - cache_read - cache_write,
        cache_read,
        cache_write,
        visible_output: output - reasoning,
        reasoning,
        total: count(value, &["total_tokens"]).max(input.saturating_add(output)),
        raw: Some(value.clone()),
    })
}

fn count(value: &Value, names: &[&str]) -> u64 {
    names.iter().find_map(|name| value[*name].as_u64()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// fresh, read, write, visible, reasoning, total
    fn check(raw: Value, [fresh_input, cache_read, cache_write, visible_output, reasoning, total]: [u64; 6]) {
        let expected =
            Usage { fresh_input, cache_read, cache_write, visible_output, reasoning, total, raw: Some(raw.clone()) };
        assert_eq!(read(&raw), Some(expected));
    }

    #[test]
    fn buckets_are_disjoint_and_the_total_is_the_larger() {
        // covers P15
        let details = |total: u64| {
            json!({
                "input_tokens": 100, "input_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 30},
                "output_tokens": 50, "output_tokens_details": {"reasoning_tokens": 20}, "total_tokens": total,
            })
        };
        check(details(150), [10, 60, 30, 30, 20, 150]);
        check(details(149), [10, 60, 30, 30, 20, 150]);
        check(details(200), [10, 60, 30, 30, 20, 200]);
        check(json!({"input_tokens": 3, "output_tokens": 4}), [3, 0, 0, 4, 0, 7]);
        check(json!({"prompt_tokens": 3, "completion_tokens": 4, "cost": 0.1}), [3, 0, 0, 4, 0, 7]);
        check(json!({}), [0; 6]);
    }

    #[test]
    fn odd_numbers_neither_panic_nor_overlap() {
        // covers P15
        check(
            json!({"input_tokens": 10, "input_tokens_details": {"cached_tokens": 8, "cache_write_tokens": 8}}),
            [0, 8, 2, 0, 0, 10],
        );
        check(json!({"input_tokens": -1, "output_tokens": 1.5, "total_tokens": "9"}), [0; 6]);
        check(json!({"input_tokens": u64::MAX, "output_tokens": 2}), [u64::MAX, 0, 0, 2, 0, u64::MAX]);
        check(json!({"output_tokens": 2, "output_tokens_details": {"reasoning_tokens": 9}}), [0, 0, 0, 0, 2, 2]);
        assert_eq!(read(&json!(null)), None);
        assert_eq!(read(&json!([1])), None);
    }
}
