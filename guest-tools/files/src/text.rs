//! What is text and what is not. Knows bytes, no files.

use crate::limits;

/// Why bytes are not shown as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NotText {
    /// A NUL or a well-known beginning.
    Binary(&'static str),
    /// UTF-8 breaks off at this byte.
    BadUtf8 { offset: u64 },
}

impl NotText {
    /// What a tool answers in place of garbage.
    pub(crate) fn describe(&self, path: &str, bytes: u64) -> String {
        match self {
            Self::Binary(kind) => {
                format!("note: {path} is a binary file ({kind}, {bytes} bytes); its content is not shown")
            }
            Self::BadUtf8 { offset } => format!(
                "note: {path} is not UTF-8 text ({bytes} bytes, first bad byte at {offset}); its content is not shown"
            ),
        }
    }
}

/// Looks at the beginning of a file.
pub(crate) fn sniff(beginning: &[u8]) -> Result<(), NotText> {
    const KINDS: [(&[u8], &str); 10] = [
        (b"\x89PNG\r\n", "a PNG image"),
        (b"\xff\xd8\xff", "a JPEG image"),
        (b"GIF8", "a GIF image"),
        (b"%PDF-", "a PDF document"),
        (b"PK\x03\x04", "a ZIP archive"),
        (b"\x1f\x8b", "gzip data"),
        (b"\x7fELF", "an ELF program"),
        (b"\0asm", "a WebAssembly file"),
        (b"\xff\xfe", "UTF-16 text"),
        (b"\xfe\xff", "UTF-16 text"),
    ];
    if let Some((_, kind)) = KINDS.iter().find(|(magic, _)| beginning.starts_with(magic)) {
        return Err(NotText::Binary(kind));
    }
    if beginning.iter().take(limits::SNIFF_BYTES).any(|byte| *byte == 0) {
        return Err(NotText::Binary("of unknown kind"));
    }
    Ok(())
}

/// Bytes of a whole file as text.
pub(crate) fn whole(bytes: &[u8]) -> Result<&str, NotText> {
    sniff(bytes)?;
    std::str::from_utf8(bytes).map_err(|error| NotText::BadUtf8 { offset: error.valid_up_to() as u64 })
}

/// The longest beginning of `bytes` that is whole UTF-8, when only the last character may be cut.
pub(crate) fn whole_characters(bytes: &[u8]) -> Result<&str, usize> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Ok(text),
        Err(error) if error.error_len().is_none() => {
            let (good, _) = bytes.split_at(error.valid_up_to());
            std::str::from_utf8(good).map_err(|error| error.valid_up_to())
        }
        Err(error) => Err(error.valid_up_to()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binary_is_told_from_text() {
        assert_eq!(whole("grüße\n".as_bytes()), Ok("grüße\n"));
        assert_eq!(whole(b"a\0b"), Err(NotText::Binary("of unknown kind")));
        assert_eq!(whole(b"\x89PNG\r\n\x1a\n"), Err(NotText::Binary("a PNG image")));
        assert_eq!(whole(b"ab\xffcd"), Err(NotText::BadUtf8 { offset: 2 }));
    }

    #[test]
    fn cut_character_is_left_out_and_bad_bytes_are_not_text() {
        assert_eq!(whole_characters(&"aé".as_bytes()[..2]), Ok("a"));
        assert_eq!(whole_characters(b"a\xffb"), Err(1));
    }
}
