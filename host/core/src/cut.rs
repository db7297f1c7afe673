//! Cuts outputs that are over their limit: head and tail stay, the middle is named by its size. Cuts are at character
//! boundaries, and JSON is never cut inside: it becomes text that says what it was. Pure functions over values.

use serde_json::Value;

use crate::tool::{Content, Failure};

/// Text and JSON of all contents together brought to `limit` bytes, notices apart. Small contents stay whole; what they
/// leave of the limit is shared among the large ones. Blobs are references in an output and are not counted.
pub fn cut_contents(contents: Vec<Content>, limit: u64) -> Vec<Content> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let lengths: Vec<usize> = contents.iter().map(text_length).collect();
    if lengths.iter().fold(0_usize, |sum, length| sum.saturating_add(*length)) <= limit {
        return contents;
    }
    let budgets = share(&lengths, limit);
    let cut = |(content, budget): (Content, usize)| match content {
        Content::Text(text) if text.len() > budget => Content::Text(cut_text(&text, budget)),
        Content::Json(text) if text.len() > budget => Content::Text(format!(
            "[JSON of {} bytes, over the limit: what follows is its beginning and end, not valid JSON]\n{}",
            text.len(),
            cut_text(&text, budget)
        )),
        whole @ (Content::Text(_) | Content::Json(_) | Content::Blob(_)) => whole,
    };
    contents.into_iter().zip(budgets).map(cut).collect()
}

/// The first and the last bytes of `text`, `limit` together at most, and between them how many are missing.
///
/// ```
/// assert_eq!(wharf_core::cut::cut_text("abcdefghij", 4), "ab\n[… 6 bytes cut …]\nij");
/// assert_eq!(wharf_core::cut::cut_text("abcd", 4), "abcd");
/// ```
pub fn cut_text(text: &str, limit: usize) -> String {
    if text.len() <= limit {
        return text.to_owned();
    }
    let head_end = text.floor_char_boundary(limit.div_ceil(2));
    let tail_start = text.ceil_char_boundary(text.len() - limit / 2);
    let (head, tail) = (&text[..head_end], &text[tail_start..]);
    format!("{head}\n[… {} bytes cut …]\n{tail}", text.len() - head.len() - tail.len())
}

/// Message and details of a failure, each brought to `limit` bytes, notices apart. Details that are too long become text.
pub fn cut_failure(failure: Failure, limit: u64) -> Failure {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let details = failure.details.map(|details| {
        let text = details.to_string();
        if text.len() > limit { Value::String(cut_text(&text, limit)) } else { details }
    });
    Failure { message: cut_text(&failure.message, limit), details, ..failure }
}

fn text_length(content: &Content) -> usize {
    match content {
        Content::Text(text) | Content::Json(text) => text.len(),
        Content::Blob(_) => 0,
    }
}

/// What each of these lengths may have of `limit`: those under an equal share their own length, the others an equal share
/// of what is left.
fn share(lengths: &[usize], limit: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..lengths.len()).collect();
    order.sort_by_key(|n| lengths[*n]);
    let mut budgets = vec![0; lengths.len()];
    let mut left = limit;
    for (done, n) in order.into_iter().enumerate() {
        let equal = left / (lengths.len() - done);
        budgets[n] = lengths[n].min(equal);
        left -= budgets[n];
    }
    budgets
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    // LIM-5: an output is bounded whatever the component returns.
    proptest! {
        #[test]
        fn cut_text_keeps_head_and_tail_within_the_limit(text in "\\PC*", limit in 0_usize..64) {
            let cut = cut_text(&text, limit);
            if text.len() <= limit {
                prop_assert_eq!(cut, text);
            } else {
                let (head, rest) = cut.split_once("\n[… ").unwrap();
                let (_, tail) = rest.rsplit_once(" bytes cut …]\n").unwrap();
                prop_assert!(text.starts_with(head) && text.ends_with(tail));
                prop_assert!(head.len() + tail.len() <= limit);
                // Each side loses less than one character to the boundary.
                prop_assert!(head.len() + tail.len() + 2 * 3 >= limit);
            }
        }

        #[test]
        fn budgets_never_exceed_the_limit_and_waste_none(lengths in proptest::collection::vec(0_usize..1000, 0..8), limit in 0_usize..4000) {
            let budgets = share(&lengths, limit);
            let total: usize = budgets.iter().sum();
            prop_assert!(total <= limit);
            prop_assert!(lengths.iter().sum::<usize>() <= limit || total + lengths.len() > limit);
            for (budget, length) in budgets.iter().zip(&lengths) {
                prop_assert!(budget <= length);
            }
        }
    }

    #[test]
    fn at_the_limit_nothing_is_cut_and_one_past_it_is() {
        let text = |n: usize| vec![Content::Text("x".repeat(n))];
        assert_eq!(cut_contents(text(100), 100), text(100));
        assert_eq!(
            cut_contents(text(101), 100),
            vec![Content::Text(format!("{}\n[… 1 bytes cut …]\n{}", "x".repeat(50), "x".repeat(50)))]
        );
    }

    #[test]
    fn a_failures_message_and_details_are_cut_and_the_rest_stays() {
        use crate::tool::FailureKind;
        use serde_json::json;
        let failure = |message: &str, details| Failure {
            retry_after_ms: Some(7),
            details: Some(details),
            ..Failure::new(FailureKind::Conflict, message)
        };
        let at = failure("abcdef", json!("1234"));
        assert_eq!(cut_failure(at.clone(), 6), at);
        assert_eq!(
            cut_failure(failure("abcdefg", json!([1, 2, 3])), 6),
            failure("abc\n[… 1 bytes cut …]\nefg", json!("[1,\n[… 1 bytes cut …]\n,3]"))
        );
    }

    #[test]
    fn json_is_never_cut_inside() {
        let json = format!("[{}]", vec!["1"; 100].join(","));
        let cut = cut_contents(vec![Content::Json(json.clone()), Content::Json("{}".into())], 50);
        assert_eq!(
            cut,
            vec![
                Content::Text(format!(
                    "[JSON of 201 bytes, over the limit: what follows is its beginning and end, not valid JSON]\n{}\n[… 153 bytes cut …]\n{}",
                    &json[..24],
                    &json[201 - 24..]
                )),
                Content::Json("{}".into()),
            ]
        );
    }
}
