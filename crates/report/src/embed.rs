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

/// Deflated (RFC 1951) with an effort from 1 to 9, then base 85.
pub(crate) fn packed(bytes: &[u8], effort: u32) -> String {
    base85(&deflated(bytes, effort))
}

/// Deflated, with an effort from 1 to 9.
pub(crate) fn deflated(bytes: &[u8], effort: u32) -> Vec<u8> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::new(effort));
    let deflated = encoder.write_all(bytes).and_then(|()| encoder.finish());
    deflated.expect("memory can be written to")
}

/// Four bytes in five digits: 6 % shorter than base64, which has three in four. Of a page of a
/// million events that is 160 KB.
fn base85(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(4) * 5);
    for chunk in bytes.chunks(4) {
        let mut four = [0; 4];
        four[..chunk.len()].copy_from_slice(chunk);
        let mut rest = u32::from_be_bytes(four);
        let mut digits = [0; 5];
        for digit in digits.iter_mut().rev() {
            *digit = DIGITS[(rest % 85) as usize];
            rest /= 85;
        }
        // Of fewer bytes the first digits are enough, filled up with the last digit.
        text.extend(digits[..=chunk.len()].iter().map(|digit| char::from(*digit)));
    }
    text
}

/// Digits that neither JSON nor HTML need to escape; `ui/src/page/lanes/bytes.ts` has the same.
const DIGITS: &[u8; 85] =
    b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%()*+,-.:;=?@[]^_{|}";

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
    fn five_digits_are_four_bytes() {
        let all = [("", ""), ("f", "W("), ("fo", "W[V"), ("foo", "W[Zo"), ("foob", "W[Zp{")];
        assert_eq!(all.map(|(plain, _)| base85(plain.as_bytes())), all.map(|(_, coded)| coded));
        assert_eq!(base85(&[0; 4]) + &base85(&[255; 4]), "00000{NsC0");
        let text = base85(&(0..=255).collect::<Vec<u8>>());
        assert_eq!(json(&text).unwrap(), format!("\"{text}\""), "nothing is escaped");
    }

    #[test]
    fn varints() {
        let mut out = Vec::new();
        [0, 127, 128, 300, u64::MAX].into_iter().for_each(|value| varint(&mut out, value));
        assert_eq!(&out[..6], &[0, 127, 0x80, 1, 0xac, 2]);
        assert_eq!(out.len(), 16);
    }
}
