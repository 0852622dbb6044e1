//! Data for scripts inside a page.

use flate2::Compression;
use flate2::write::DeflateEncoder;
use serde::Serialize;
use std::io::Write;

/// JSON that can stand inside `<script>`: no character in it can end the element, open a comment,
/// or break a line of an old parser of scripts.
pub(crate) fn json(data: &impl Serialize) -> Result<String, serde_json::Error> {
    let plain = serde_json::to_string(data)?;
    let mut safe = String::with_capacity(plain.len());
    for c in plain.chars() {
        match c {
            '<' => safe.push_str("\\u003c"),
            '>' => safe.push_str("\\u003e"),
            '&' => safe.push_str("\\u0026"),
            '\u{2028}' => safe.push_str("\\u2028"),
            '\u{2029}' => safe.push_str("\\u2029"),
            other => safe.push(other),
        }
    }
    Ok(safe)
}

/// Deflated (RFC 1951) with an effort from 1 to 9, then base64.
pub(crate) fn packed(bytes: &[u8], effort: u32) -> String {
    base64(&deflated(bytes, effort))
}

/// Deflated, with an effort from 1 to 9.
pub(crate) fn deflated(bytes: &[u8], effort: u32) -> Vec<u8> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::new(effort));
    let deflated = encoder.write_all(bytes).and_then(|()| encoder.finish());
    deflated.expect("memory can be written to")
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |at: usize| u32::from(chunk.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for digit in 0..4 {
            let shown = digit <= chunk.len();
            text.push(if shown {
                char::from(DIGITS[(bits >> (18 - 6 * digit) & 63) as usize])
            } else {
                '='
            });
        }
    }
    text
}

/// A number in groups of seven bits, the lowest first; all groups but the last have bit 7 set.
pub(crate) fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_json_ends_a_script() {
        let hostile = "</script><!-- \u{2028} & \"><img src=x>";
        let text = json(&hostile).unwrap();
        assert!(!text.contains(['<', '>', '&', '\u{2028}']), "{text}");
        assert_eq!(serde_json::from_str::<String>(&text).unwrap(), hostile);
    }

    #[test]
    fn base64_of_the_rfc() {
        for (plain, coded) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")]
        {
            assert_eq!(base64(plain.as_bytes()), coded);
        }
    }

    #[test]
    fn varints() {
        let mut out = Vec::new();
        [0, 127, 128, 300, u64::MAX].into_iter().for_each(|value| varint(&mut out, value));
        assert_eq!(&out[..6], &[0, 127, 0x80, 1, 0xac, 2]);
        assert_eq!(out.len(), 16);
    }
}
