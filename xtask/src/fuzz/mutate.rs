//! Mutations that know what an input is made of.

use super::slt;
use crate::stress::Dice;
use serde_json::Value;

/// What an input is made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Shape {
    /// Lines of words; the words are what the target knows.
    Text(&'static [&'static str]),
    /// One JSON value.
    Json,
    /// A JSON value on each line.
    JsonLines,
    /// A recording: blocks with checksums.
    Recording,
    /// A protocol buffer.
    Proto,
    /// Other binary data.
    Bytes,
}

/// Numbers at the ends of what types hold.
const NUMBERS: [&str; 22] = [
    "0",
    "1",
    "2",
    "-1",
    "7",
    "63",
    "64",
    "255",
    "1024",
    "65535",
    "65536",
    "2147483647",
    "2147483648",
    "4294967295",
    "4294967296",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "0.000001",
    "1e308",
    "NaN",
];

/// Longest input.
const LONGEST: usize = 1 << 18;

/// A new input from those in the pool.
pub(super) fn mutate(shape: Shape, dice: &mut Dice, pool: &[Vec<u8>]) -> Vec<u8> {
    let mut input = dice.pick(pool).clone();
    for _ in 0..1 + dice.below(4) {
        // What repeats itself again and again would fill the memory of the fuzzer.
        input.truncate(LONGEST);
        let other = dice.pick(pool).clone();
        input = match shape {
            // Now and then plain bytes, so that nothing is assumed.
            _ if dice.chance(15) => bytes(dice, input, &other),
            Shape::Bytes => bytes(dice, input, &other),
            Shape::Text(words) => text(dice, input, &other, words),
            Shape::Json => json(dice, &input).unwrap_or_else(|| bytes(dice, input, &other)),
            Shape::JsonLines => json_lines(dice, input, &other),
            Shape::Recording => {
                slt::mutate(dice, &input).unwrap_or_else(|| bytes(dice, input, &other))
            }
            Shape::Proto => proto(dice, &input, 0).unwrap_or_else(|| bytes(dice, input, &other)),
        };
    }
    input
}

/// Any bytes.
pub(super) fn bytes(dice: &mut Dice, mut input: Vec<u8>, other: &[u8]) -> Vec<u8> {
    let at = dice.below(input.len() + 1);
    let end = (at + dice.below(64)).min(input.len());
    match dice.below(8) {
        0 => input.truncate(at),
        1 => input.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << dice.below(8)),
        2 => drop(input.drain(at..end)),
        3 => {
            let piece = input[at..end].to_vec();
            let to = dice.below(input.len() + 1);
            drop(input.splice(to..to, piece));
        }
        4 => {
            let from = dice.below(other.len() + 1);
            let piece = other[from..(from + dice.below(256)).min(other.len())].to_vec();
            drop(input.splice(at..end, piece));
        }
        5 => input.insert(at, dice.next() as u8),
        6 => {
            let value = dice
                .pick(&[0_u64, 1, 0x7f, 0xff, 0x7fff_ffff, 0xffff_ffff, u64::MAX])
                .to_le_bytes();
            let width = 1 << dice.below(4);
            for (byte, new) in input.iter_mut().skip(at).zip(&value[..width]) {
                *byte = *new;
            }
        }
        _ => input.truncate(other.len().min(at)),
    }
    input
}

/// Where words begin and end: numbers, names, and single marks.
fn words_of(text: &str) -> Vec<(usize, usize)> {
    let kind = |c: char| match c {
        c if c.is_ascii_digit() => 0,
        c if c.is_alphabetic() || c == '_' => 1,
        c if c.is_whitespace() => 2,
        _ => 3,
    };
    let mut found: Vec<(usize, usize)> = Vec::new();
    let mut last = None;
    for (at, c) in text.char_indices() {
        let end = at + c.len_utf8();
        match found.last_mut() {
            Some(word) if last == Some(kind(c)) && kind(c) != 3 => word.1 = end,
            _ => found.push((at, end)),
        }
        last = Some(kind(c));
    }
    found
}

fn text(dice: &mut Dice, input: Vec<u8>, other: &[u8], known: &[&str]) -> Vec<u8> {
    let Ok(mut text) = String::from_utf8(input.clone()) else { return bytes(dice, input, other) };
    let words = words_of(&text);
    if words.is_empty() || dice.chance(30) {
        return lines(dice, text, other).into_bytes();
    }
    let (from, to) = *dice.pick(&words);
    match dice.below(8) {
        // A number for a number where there is one.
        0..=2 => {
            let digits =
                |(a, b): &&(usize, usize)| text[*a..*b].starts_with(|c: char| c.is_ascii_digit());
            let numbers: Vec<_> = words.iter().filter(digits).copied().collect();
            let (from, to) = if numbers.is_empty() { (from, to) } else { *dice.pick(&numbers) };
            text.replace_range(from..to, dice.pick::<&str>(&NUMBERS));
        }
        3 if !known.is_empty() => text.replace_range(from..to, dice.pick::<&str>(known)),
        4 if !known.is_empty() => text.insert_str(from, dice.pick::<&str>(known)),
        5 => text.replace_range(from..to, ""),
        6 => {
            let (a, b) = *dice.pick(&words);
            let word = text[a..b].to_owned();
            text.replace_range(from..to, &word);
        }
        7 => {
            let other = String::from_utf8_lossy(other);
            let others = words_of(&other);
            if !others.is_empty() {
                let (a, b) = *dice.pick(&others);
                text.replace_range(from..to, &other[a..b]);
            }
        }
        _ => text.insert(
            from,
            *dice.pick(&['\0', '"', '\'', '\\', '\u{e9}', '\u{1f600}', '\n', '%', ';']),
        ),
    }
    text.into_bytes()
}

fn lines(dice: &mut Dice, text: String, other: &[u8]) -> String {
    let mut lines: Vec<&str> = text.split_inclusive('\n').collect();
    let at = dice.below(lines.len() + 1);
    let other = String::from_utf8_lossy(other);
    match dice.below(5) {
        0 if at < lines.len() => drop(lines.remove(at)),
        1 if at < lines.len() => lines.insert(at, lines[at]),
        2 if lines.len() > 1 => {
            let (from, to) = (dice.below(lines.len()), dice.below(lines.len()));
            lines.swap(from, to);
        }
        3 => {
            let others: Vec<&str> = other.split_inclusive('\n').collect();
            if !others.is_empty() {
                lines.insert(at, dice.pick::<&str>(&others));
            }
        }
        _ => lines.truncate(at),
    }
    lines.concat()
}

/// A value somewhere in the JSON becomes another one.
pub(super) fn json(dice: &mut Dice, input: &[u8]) -> Option<Vec<u8>> {
    let mut value: Value = serde_json::from_slice(input).ok()?;
    let size = nodes(&value);
    let mut at = dice.below(size);
    change(dice, &mut value, &mut at);
    serde_json::to_vec(&value).ok()
}

fn nodes(value: &Value) -> usize {
    1 + match value {
        Value::Array(all) => all.iter().map(nodes).sum(),
        Value::Object(all) => all.values().map(nodes).sum(),
        _ => 0,
    }
}

/// Changes the node with this number; true when it was found.
fn change(dice: &mut Dice, value: &mut Value, at: &mut usize) -> bool {
    if *at == 0 {
        other(dice, value);
        return true;
    }
    *at -= 1;
    match value {
        Value::Array(all) => all.iter_mut().any(|one| change(dice, one, at)),
        Value::Object(all) => all.values_mut().any(|one| change(dice, one, at)),
        _ => false,
    }
}

fn other(dice: &mut Dice, value: &mut Value) {
    let number =
        |dice: &mut Dice| serde_json::from_str(dice.pick::<&str>(&NUMBERS)).unwrap_or(Value::Null);
    match (dice.below(6), &mut *value) {
        (0, _) => *value = Value::Null,
        (1, _) => *value = number(dice),
        (2 | 3, Value::Number(_)) => *value = number(dice),
        (2, Value::String(text)) if text.len() < LONGEST / 64 => {
            *text = text.repeat(2 + dice.below(40))
        }
        (3, Value::String(text)) => text.extend(['\0', '\u{e9}', '"', '/']),
        (2, Value::Array(all)) if !all.is_empty() => {
            let again = dice.pick(all).clone();
            all.push(again);
        }
        (3, Value::Array(all)) if !all.is_empty() => drop(all.remove(dice.below(all.len()))),
        (2 | 3, Value::Object(all)) if !all.is_empty() => {
            let keys: Vec<String> = all.keys().cloned().collect();
            let key = dice.pick(&keys);
            let removed = all.remove(key);
            if dice.chance(30) {
                all.insert(format!("{key}_"), removed.unwrap_or_default());
            }
        }
        (4, _) => *value = Value::Array(vec![value.take(), Value::Null]),
        _ => *value = Value::String((*dice.pick(&NUMBERS)).to_owned()),
    }
}

fn json_lines(dice: &mut Dice, input: Vec<u8>, other: &[u8]) -> Vec<u8> {
    let mut all: Vec<Vec<u8>> =
        input.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
    if all.is_empty() || dice.chance(30) {
        return text(dice, input, other, &[]);
    }
    let at = dice.below(all.len());
    if let Some(mut line) = json(dice, &all[at]) {
        line.push(b'\n');
        all[at] = line;
    }
    all.concat()
}

fn varint(input: &[u8], at: &mut usize) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..70).step_by(7) {
        let byte = *input.get(*at)?;
        *at += 1;
        value |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Changes one field of a message, or one inside it; lengths stay right.
fn proto(dice: &mut Dice, input: &[u8], depth: usize) -> Option<Vec<u8>> {
    let (mut fields, mut at) = (Vec::new(), 0);
    while at < input.len() {
        let from = at;
        let key = varint(input, &mut at)?;
        let content = match key & 7 {
            0 => {
                varint(input, &mut at)?;
                at..at
            }
            1 => at + 8..at + 8,
            2 => {
                let length = usize::try_from(varint(input, &mut at)?).ok()?;
                at..at.checked_add(length)?
            }
            5 => at + 4..at + 4,
            _ => return None,
        };
        at = content.end;
        if at > input.len() {
            return None;
        }
        fields.push((from, key, content));
    }
    let chosen = dice.below(fields.len().max(1));
    let (from, key, content) = fields.get(chosen)?.clone();
    let mut out = input[..from].to_vec();
    let field = &input[from..content.end];
    let inner = (key & 7 == 2 && depth < 12 && dice.chance(80))
        .then(|| proto(dice, &input[content.clone()], depth + 1))
        .flatten();
    match (inner, dice.below(5)) {
        (Some(inner), _) => {
            put_varint(&mut out, key);
            put_varint(&mut out, inner.len() as u64);
            out.extend(inner);
        }
        (None, 0) => {}
        (None, 1) => out.extend([field, field].concat()),
        (None, 2) => {
            let number =
                *dice.pick(&[key & !7, (key & !7) + 8, 1 << 3, 117 << 3, u64::from(u32::MAX) << 3]);
            put_varint(&mut out, number | (key & 7));
            out.extend(&field[field.len().min(1)..]);
        }
        (None, _) if key & 7 == 0 => {
            put_varint(&mut out, key);
            put_varint(
                &mut out,
                *dice.pick(&[0, 1, 127, 1 << 31, 1 << 32, (1 << 63) - 1, 1 << 63, u64::MAX]),
            );
        }
        _ => out.extend(bytes(dice, field.to_vec(), &[])),
    }
    out.extend(&input[content.end..]);
    Some(out)
}
