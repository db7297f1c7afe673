//! Events as the bytes of an event stream. It must never know what an event means.

use bytes::Bytes;
use serde_json::Value;

use crate::script::{Framing, LineEnding};

/// Turns events into bytes, one after another.
pub(crate) struct Framer {
    framing: Framing,
    at_start: bool,
}

impl Framer {
    pub(crate) fn new(framing: Framing) -> Self {
        Self { framing, at_start: true }
    }

    pub(crate) fn event(&mut self, event: &Value) -> Vec<u8> {
        let mut lines = Vec::new();
        if self.framing.comments {
            lines.push(": keep-alive".to_owned());
        }
        if let (true, Some(kind)) = (self.framing.event_lines, event.get("type").and_then(Value::as_str)) {
            lines.push(format!("event: {kind}"));
        }
        // Both writers quote line endings inside strings, so no line of ours can be broken by a text.
        if self.framing.multiline {
            lines.extend(format!("{event:#}").lines().map(|line| format!("data: {line}")));
        } else {
            lines.push(format!("data: {event}"));
        }
        lines.push(String::new());
        self.bytes(&lines)
    }

    pub(crate) fn comment(&mut self, text: &str) -> Vec<u8> {
        let mut lines: Vec<String> = text.lines().map(|line| format!(": {line}")).collect();
        lines.push(String::new());
        self.bytes(&lines)
    }

    /// What ends the body, if anything does.
    pub(crate) fn last(&mut self) -> Vec<u8> {
        if self.framing.done { self.bytes(&["data: [DONE]".to_owned(), String::new()]) } else { Vec::new() }
    }

    /// Pieces of the size that the script asks for.
    pub(crate) fn cut(&self, bytes: Vec<u8>) -> impl Iterator<Item = Bytes> + use<> {
        let size = self.framing.chunk_bytes.map_or(bytes.len(), |size| size).max(1);
        let mut rest = Bytes::from(bytes);
        std::iter::from_fn(move || (!rest.is_empty()).then(|| rest.split_to(size.min(rest.len()))))
    }

    fn bytes(&mut self, lines: &[String]) -> Vec<u8> {
        let end = match self.framing.line_ending {
            LineEnding::Lf => "\n",
            LineEnding::CrLf => "\r\n",
            LineEnding::Cr => "\r",
        };
        let mut bytes = Vec::new();
        if std::mem::take(&mut self.at_start) && self.framing.bom {
            bytes.extend_from_slice("\u{feff}".as_bytes());
        }
        for line in lines {
            bytes.extend_from_slice(line.as_bytes());
            bytes.extend_from_slice(end.as_bytes());
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(framing: Framing, expected: &str) {
        let mut framer = Framer::new(framing);
        let mut bytes = framer.event(&json!({ "type": "a", "x": "1\n2" }));
        bytes.extend(framer.event(&json!({ "type": "b" })));
        bytes.extend(framer.last());
        assert_eq!(String::from_utf8_lossy(&bytes), expected);
    }

    #[test]
    fn each_framing_gives_its_bytes() {
        let usual = Framing::default();
        check(
            usual.clone(),
            "event: a\ndata: {\"type\":\"a\",\"x\":\"1\\n2\"}\n\nevent: b\ndata: {\"type\":\"b\"}\n\n",
        );
        check(
            Framing { line_ending: LineEnding::CrLf, event_lines: false, done: true, ..usual.clone() },
            "data: {\"type\":\"a\",\"x\":\"1\\n2\"}\r\n\r\ndata: {\"type\":\"b\"}\r\n\r\ndata: [DONE]\r\n\r\n",
        );
        check(
            Framing { line_ending: LineEnding::Cr, event_lines: false, bom: true, ..usual.clone() },
            "\u{feff}data: {\"type\":\"a\",\"x\":\"1\\n2\"}\r\rdata: {\"type\":\"b\"}\r\r",
        );
        check(
            Framing { multiline: true, comments: true, event_lines: false, ..usual },
            ": keep-alive\ndata: {\ndata:   \"type\": \"a\",\ndata:   \"x\": \"1\\n2\"\ndata: }\n\n: keep-alive\ndata: {\ndata:   \"type\": \"b\"\ndata: }\n\n",
        );
    }

    #[test]
    fn pieces_have_the_asked_size_and_join_to_the_whole() {
        let cut = |chunk_bytes| {
            let framer = Framer::new(Framing { chunk_bytes, ..Framing::default() });
            framer.cut(b"abcdefg".to_vec()).map(|piece| piece.to_vec()).collect::<Vec<_>>()
        };
        assert_eq!(cut(Some(3)), vec![b"abc".to_vec(), b"def".to_vec(), b"g".to_vec()]);
        assert_eq!(cut(Some(0)).len(), 7);
        assert_eq!(cut(None), vec![b"abcdefg".to_vec()]);
    }
}
