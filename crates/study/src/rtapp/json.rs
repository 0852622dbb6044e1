//! JSON as rt-app and workgen take it: comments, commas before a closing bracket, keys that have no
//! value (`"suspend",`), and objects in which a key may come again and whose order counts.

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use std::fmt;

/// A value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Json {
    Null,
    Flag(bool),
    Number(i64),
    /// A number that is not whole, or too large; nothing here may be one.
    Fraction,
    Text(String),
    List(Vec<Json>),
    Object(Vec<(String, Json)>),
}

impl Json {
    /// What it is, for messages.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Json::Null => "null",
            Json::Flag(_) => "true or false",
            Json::Number(_) => "a number",
            Json::Fraction => "a number that is not whole",
            Json::Text(_) => "a text",
            Json::List(_) => "a list",
            Json::Object(_) => "an object",
        }
    }
}

/// Reads a text; the error says line and column.
pub(super) fn parse(text: &str) -> Result<Json, String> {
    serde_json::from_str(&with_values(&plain(text)))
        .map_err(|error| format!("not valid JSON: {error}"))
}

/// The text with blanks in the place of comments and of commas before a closing bracket.
fn plain(text: &str) -> String {
    let mut out: Vec<char> = text.chars().collect();
    let mut at = 0;
    // A comma that comes after a value, and after which nothing came yet.
    let (mut comma, mut after_value) = (None, false);
    while at < out.len() {
        match (out[at], out.get(at + 1)) {
            ('"', _) => {
                (comma, after_value) = (None, true);
                at += 1;
                while at < out.len() && out[at] != '"' {
                    at += if out[at] == '\\' { 2 } else { 1 };
                }
            }
            ('/', Some('*')) => at = blank(&mut out, at, true),
            ('/', Some('/')) => at = blank(&mut out, at, false),
            (',', _) => (comma, after_value) = (after_value.then_some(at), false),
            ('}' | ']', _) => {
                if let Some(comma) = comma.take() {
                    out[comma] = ' ';
                }
                after_value = true;
            }
            (c, _) if c.is_whitespace() => {}
            (c, _) => (comma, after_value) = (None, !matches!(c, '{' | '[' | ':')),
        }
        at += 1;
    }
    out.into_iter().collect()
}

/// The text with an empty value for each key `"suspend"` that has none. Only that event may leave
/// its value out (workgen, check_suspend_json), and only a key can be a text between `{` or `,` and
/// `,` or `}` of an object.
fn with_values(text: &str) -> String {
    const KEY: &str = "\"suspend\"";
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(KEY) {
        let (before, after) = rest.split_at(at + KEY.len());
        out.push_str(before);
        let begins = out[..out.len() - KEY.len()].trim_end().ends_with(['{', ',']);
        if begins && after.trim_start().starts_with([',', '}']) {
            out.push_str(":\"\"");
        }
        rest = after;
    }
    out + rest
}

/// Blanks out the comment at `at`; gives back its last character's place.
fn blank(out: &mut [char], mut at: usize, block: bool) -> usize {
    let begin = at;
    while at < out.len() {
        let ends = if block {
            at >= begin + 3 && out[at - 1] == '*' && out[at] == '/'
        } else {
            out[at] == '\n'
        };
        if ends {
            break;
        }
        at += 1;
    }
    let end = at.min(out.len().saturating_sub(1));
    // Line ends stay, so that messages name the right line.
    out[begin..=end].iter_mut().filter(|c| **c != '\n').for_each(|c| *c = ' ');
    end
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Json, D::Error> {
        deserializer.deserialize_any(Any)
    }
}

struct Any;

impl<'de> Visitor<'de> for Any {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }
    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }
    fn visit_bool<E>(self, value: bool) -> Result<Json, E> {
        Ok(Json::Flag(value))
    }
    fn visit_i64<E>(self, value: i64) -> Result<Json, E> {
        Ok(Json::Number(value))
    }
    fn visit_u64<E>(self, value: u64) -> Result<Json, E> {
        Ok(i64::try_from(value).map_or(Json::Fraction, Json::Number))
    }
    fn visit_f64<E>(self, _: f64) -> Result<Json, E> {
        Ok(Json::Fraction)
    }
    fn visit_str<E>(self, value: &str) -> Result<Json, E> {
        Ok(Json::Text(value.to_owned()))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Json, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = list.next_element()? {
            values.push(value);
        }
        Ok(Json::List(values))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Json, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Json::Object(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_order_and_repeats_and_forgives_comments_and_commas() {
        let text = "{ /* c */ \"run\": 1, // d\n \"a/*b\": [1, 2,], \"run\": 1.5, }";
        let Json::Object(entries) = parse(text).unwrap() else { panic!("an object") };
        let keys: Vec<&str> = entries.iter().map(|(key, _)| key.as_str()).collect();
        assert_eq!(keys, ["run", "a/*b", "run"]);
        assert_eq!(entries[1].1, Json::List(vec![Json::Number(1), Json::Number(2)]));
        assert_eq!(entries[2].1, Json::Fraction);
        let Json::Object(entries) = parse("{ \"suspend\", \"run\": 1, \"suspend\" }").unwrap()
        else {
            panic!("an object")
        };
        assert_eq!(
            (entries.len(), &entries[0].1, &entries[2].1),
            (3, &entries[2].1, &Json::Text(String::new()))
        );
        assert!(parse("{\n\"a\" 1}").unwrap_err().contains("line 2"));
        for bad in ["", "/", "/*", "//", "\"\\", "[1,", "{,}", "/*/"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
