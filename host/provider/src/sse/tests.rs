//! Framing: the same events for every split, bounds, and work that grows with the bytes alone.

use futures::executor::block_on;
use futures::stream;
use proptest::prelude::*;

use super::*;

fn event(name: &str, data: &str) -> SseEvent {
    SseEvent { name: name.into(), data: data.into() }
}

fn message(data: &str) -> SseEvent {
    event("message", data)
}

type Read = (Vec<SseEvent>, Option<SseError<String>>);

/// Reads chunks to the end: the events, and the error if there was one.
fn read(chunks: Vec<Result<Vec<u8>, String>>, limits: SseLimits) -> Read {
    let mut all = Vec::new();
    let mut stream = events(stream::iter(chunks), limits);
    while let Some(next) = block_on(stream.next()) {
        match next {
            Ok(event) => all.push(event),
            Err(fault) => {
                assert_eq!(block_on(stream.next()), None, "nothing follows an error");
                return (all, Some(fault));
            }
        }
    }
    (all, None)
}

fn read_in(text: &[u8], size: usize, limits: SseLimits) -> Read {
    read(text.chunks(size.max(1)).map(|chunk| Ok(chunk.to_vec())).collect(), limits)
}

/// Checks one stream, whole and in every small chunk size.
fn check(text: impl AsRef<[u8]>, expected: &[SseEvent]) {
    let text = text.as_ref();
    for size in [text.len(), 1, 2, 3, 4, 5, 7, 11] {
        assert_eq!(
            read_in(text, size, SseLimits::default()),
            (expected.to_vec(), None),
            "{:?} in chunks of {size}",
            String::from_utf8_lossy(text)
        );
    }
}

#[test]
fn a_data_line_and_a_blank_line_are_an_event() {
    // covers P1
    check("data: {\"a\":1}\n\n", &[message("{\"a\":1}")]);
    check("data:x\n\n", &[message("x")]); // SSE-6: the space is optional
    check("data:  x\n\n", &[message(" x")]);
    check("event: response.created\ndata: 1\n\ndata: 2\n\n", &[event("response.created", "1"), message("2")]);
}

#[test]
fn endings_of_all_kinds_and_mixtures_are_endings() {
    // covers P17
    // SSE-2
    for text in [
        "data: a\n\ndata: b\n\n",
        "data: a\r\n\r\ndata: b\r\n\r\n",
        "data: a\r\rdata: b\r\r",
        "data: a\n\r\ndata: b\r\n\n",
    ] {
        check(text, &[message("a"), message("b")]);
    }
    check("data: a\r\ndata: b\r\rdata: c\n\r", &[message("a\nb"), message("c")]);
}

#[test]
fn data_lines_of_one_event_are_joined() {
    // covers P17
    // SSE-3
    check("data: {\ndata: \"a\": 1\ndata: }\n\n", &[message("{\n\"a\": 1\n}")]);
    check("data\n\n", &[message("")]);
}

#[test]
fn comments_are_no_part_of_an_event() {
    // covers P17
    // SSE-4
    check(": keep-alive\n\n: keep-alive\ndata: a\n:in between\ndata: b\n\n:\n", &[message("a\nb")]);
}

#[test]
fn one_mark_at_the_start_is_stripped_and_only_one() {
    // covers P17
    // SSE-5: bare eventsource-stream panics on this
    check("\u{feff}data: a\n\n\u{feff}data: b\n\ndata: \u{feff}c\n\n", &[message("a"), message("\u{feff}c")]);
    check("\u{feff}\u{feff}data: a\n\ndata: b\n\n", &[message("b")]);
    check("\u{feff}", &[]);
    check("\u{feff}\n\ndata: a\n\n", &[message("a")]);
    check("\u{feff}: comment\ndata: a\n\n", &[message("a")]);
}

#[test]
fn characters_cut_by_a_chunk_edge_stay_whole() {
    // covers P17
    // SSE-1
    check("data: żółć 🦀 \u{2028}\n\n", &[message("żółć 🦀 \u{2028}")]);
}

#[test]
fn an_unfinished_event_at_the_end_is_no_event() {
    // SSE-7
    check("data: a\n\ndata: b\n", &[message("a")]);
    check("data: a\n\ndata: b", &[message("a")]);
    check("data: a", &[]);
    check("", &[]);
}

#[test]
fn unknown_fields_and_odd_lines_are_ignored() {
    check("id: 1\nretry: x\nfoo: bar\nfoo\n\u{e9}t\u{e9}: x\ndata: a\n\n", &[message("a")]);
}

#[test]
fn bytes_that_are_not_utf8_are_a_typed_error_after_the_events_before() {
    for size in [1, 2, 3, 100] {
        assert_eq!(
            read_in(b"data: a\n\ndata: \xff\n\ndata: c\n\n", size, SseLimits::default()),
            (vec![message("a")], Some(SseError::NotUtf8 { line: 3, byte: 6 }))
        );
    }
    // A sequence that the line's end cuts is as wrong.
    assert_eq!(
        read_in(b"data: \xe2\x82\n\n", 4, SseLimits::default()),
        (vec![], Some(SseError::NotUtf8 { line: 1, byte: 6 }))
    );
}

#[test]
fn a_character_that_is_broken_over_chunks_is_an_error_and_one_that_is_whole_is_not() {
    // covers P17
    // Cut short by another character, by the line's end, by a mark of order, and a lone second byte.
    for (bad, byte) in
        [(&b"\xE2\x82x"[..], 7), (&b"\xF0\x9F\x98"[..], 7), (&b"\xE2\xEF\xBB\xBF"[..], 7), (&b"\x82"[..], 7)]
    {
        let text = [b"data: ok\r\n\r\ndata: \xE2\x82\xAC\n\ndata: x", bad, b"\n\ndata: never\n\n"].concat();
        for size in 1..=text.len() {
            let read = read_in(&text, size, SseLimits::default());
            let fault = SseError::NotUtf8 { line: 5, byte };
            assert_eq!(read, (vec![message("ok"), message("\u{20ac}")], Some(fault)), "{bad:?} in chunks of {size}");
        }
    }
}

#[test]
fn a_line_without_a_colon_is_a_field_without_a_value() {
    // covers P17
    check("data\n\n", &[message("")]);
    check("data\ndata\n\n", &[message("\n")]);
    check("event\ndata: 1\n\n", &[message("1")]);
    check("nonsense\ndata: 1\ndatax: 2\n data: 3\n\n", &[message("1")]);
    check("\u{feff}data: 1\r\n\r\n\u{feff}data: 2\r\n\r\n", &[message("1")]);
}

#[test]
fn a_broken_source_is_a_typed_error_after_the_events_before() {
    assert_eq!(
        read(vec![Ok(b"data: a\n\ndata: b\n".to_vec()), Err("reset".into())], SseLimits::default()),
        (vec![message("a")], Some(SseError::Source("reset".into())))
    );
}

#[test]
fn a_line_at_the_limit_passes_and_a_longer_one_is_a_typed_error() {
    let limits = SseLimits { line_bytes_max: 16, event_bytes_max: 1000 };
    let line = |length: usize| format!("data: a\n\ndata: {}\n\n", "x".repeat(length - 6));
    for size in [1, 5, 9, 1000] {
        assert_eq!(read_in(line(16).as_bytes(), size, limits), (vec![message("a"), message("xxxxxxxxxx")], None));
        for length in [17, 400] {
            assert_eq!(
                read_in(line(length).as_bytes(), size, limits),
                (vec![message("a")], Some(SseError::LineTooLong { limit: 16 }))
            );
        }
    }
    // It never ends, and is a comment.
    assert_eq!(
        read_in(format!("data: a\n\n:{}", "x".repeat(16)).as_bytes(), 3, limits),
        (vec![message("a")], Some(SseError::LineTooLong { limit: 16 }))
    );
}

#[test]
fn an_event_at_the_limit_passes_and_a_larger_one_is_a_typed_error() {
    let limits = SseLimits { line_bytes_max: 1000, event_bytes_max: 24 };
    let lines = |count: usize| format!("data: a\n\n{}\n", "data: xx\n:comments do not count\n".repeat(count));
    for size in [1, 5, 9, 10_000] {
        assert_eq!(read_in(lines(3).as_bytes(), size, limits), (vec![message("a"), message("xx\nxx\nxx")], None));
        for count in [4, 100] {
            assert_eq!(
                read_in(lines(count).as_bytes(), size, limits),
                (vec![message("a")], Some(SseError::EventTooLarge { limit: 24 }))
            );
        }
    }
}

#[test]
fn a_line_that_breaks_both_bounds_gives_one_answer_for_every_split() {
    let limits = SseLimits { line_bytes_max: 20, event_bytes_max: 24 };
    let text = format!("data: a\ndata: {}\n\n", "x".repeat(200));
    for size in [1, 5, 9, 1000] {
        assert_eq!(read_in(text.as_bytes(), size, limits), (vec![], Some(SseError::EventTooLarge { limit: 24 })));
    }
}

#[test]
fn work_grows_with_the_bytes_and_not_with_the_chunks() {
    let mut text = b"data: ".to_vec();
    text.resize(1 << 20, b'x');
    text.extend_from_slice(b"\n\n");
    for size in [1, 7, 1460, 1 << 21] {
        let mut lines = Lines::new(SseLimits::default());
        let mut ready = VecDeque::new();
        for chunk in text.chunks(size) {
            lines.push(chunk, &mut ready).unwrap();
        }
        assert_eq!(lines.work, 2 * (text.len() - 2), "chunks of {size}");
        // The decoder searches what it is given from the start: it is given each line once, and whole.
        let given: Vec<usize> = ready.iter().map(Vec::len).collect();
        assert_eq!(given, [1, text.len() - 1, 1], "chunks of {size}");
        assert!(ready.iter().all(|line| line.ends_with(b"\n")));
    }
}

/// A stream made of pieces that are hard to frame, and of noise.
fn pieces() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        Just("data: ".as_bytes().to_vec()),
        Just(b"data".to_vec()),
        Just(b"event: ".to_vec()),
        Just(b":".to_vec()),
        Just(b"\n".to_vec()),
        Just(b"\r".to_vec()),
        Just(b"\r\n".to_vec()),
        Just(b"\n\n".to_vec()),
        Just("\u{feff}".as_bytes().to_vec()),
        Just("é🦀".as_bytes().to_vec()),
        Just(b"\0".to_vec()),
        "[a-z {}\":,]{0,12}".prop_map(String::into_bytes),
        proptest::collection::vec(any::<u8>(), 0..3),
    ];
    proptest::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

/// What the standard says, on whole text and without care for speed: the model that the stream is compared with.
fn by_the_book(text: &str) -> Vec<SseEvent> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text).replace("\r\n", "\n").replace('\r', "\n");
    let mut lines: Vec<&str> = text.split('\n').collect();
    lines.pop(); // what no ending follows
    let (mut name, mut data, mut any, mut all) = (String::new(), String::new(), false, Vec::new());
    for line in lines {
        if line.is_empty() {
            let name = std::mem::take(&mut name);
            let data = std::mem::take(&mut data);
            if std::mem::take(&mut any) {
                let name = if name.is_empty() { "message".into() } else { name };
                all.push(SseEvent { name, data: data.strip_suffix('\n').unwrap_or(&data).into() });
            }
            continue;
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => name = value.into(),
            "data" => {
                data.push_str(value);
                data.push('\n');
                any = true;
            }
            _ => {}
        }
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    // covers P17
    #[test]
    fn any_chunking_gives_the_events_of_the_whole(text in pieces(), cuts in proptest::collection::vec(0usize..400, 0..12)) {
        let whole = read_in(&text, text.len(), SseLimits::default());
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
        cuts.extend([0, text.len()]);
        cuts.sort_unstable();
        let chunks = cuts.windows(2).map(|pair| Ok(text[pair[0]..pair[1]].to_vec())).collect();
        prop_assert_eq!(read(chunks, SseLimits::default()), whole);
    }

    // covers P17
    #[test]
    fn events_are_those_of_the_standard(text in pieces()) {
        if let Ok(text) = std::str::from_utf8(&text) {
            prop_assert_eq!(read_in(text.as_bytes(), 5, SseLimits::default()), (by_the_book(text), None));
        }
    }

    #[test]
    fn bounds_hold_for_any_chunking(text in pieces(), size in 1usize..20) {
        let limits = SseLimits { line_bytes_max: 14, event_bytes_max: 20 };
        prop_assert_eq!(read_in(&text, size, limits), read_in(&text, text.len(), limits));
    }
}
