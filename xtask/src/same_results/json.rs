//! What must be equal in two outputs.

use serde_json::Value;

/// A text of at least this many words is a sentence, which may read differently; a shorter one is a
/// name.
const SENTENCE_WORDS: usize = 4;

/// What a comparison found.
#[derive(Debug, Default)]
pub(super) struct Comparison {
    /// Values that are the same.
    pub(super) same: usize,
    /// Keys that only the new output has.
    pub(super) added: usize,
    /// Numbers, names and keys that differ.
    pub(super) differences: Vec<String>,
    /// Sentences that read differently.
    pub(super) sentences: Vec<String>,
}

impl Comparison {
    /// Compares two outputs: as JSON where both are, else byte by byte.
    pub(super) fn texts(&mut self, name: &str, old: &[u8], new: &[u8]) {
        match (serde_json::from_slice(old), serde_json::from_slice(new)) {
            (Ok(old), Ok(new)) => self.values(name, &old, &new),
            _ if old == new => self.same += 1,
            _ if name.is_empty() && self.lines(old, new) => {}
            _ => {
                let at = old
                    .iter()
                    .zip(new)
                    .position(|(a, b)| a != b)
                    .unwrap_or(old.len().min(new.len()));
                let line = old[..at].iter().filter(|byte| **byte == b'\n').count() + 1;
                let name = if name.is_empty() { "output" } else { name };
                self.differences.push(format!("{name}: differs from line {line} on"));
            }
        }
    }

    /// Whether two printed texts differ only in the words of their sentences. What a file holds is
    /// compared byte by byte.
    fn lines(&mut self, old: &[u8], new: &[u8]) -> bool {
        let (old, new) = (String::from_utf8_lossy(old), String::from_utf8_lossy(new));
        let (old, new): (Vec<_>, Vec<_>) = (old.lines().collect(), new.lines().collect());
        let pairs = || old.iter().zip(&new).filter(|(old, new)| old != new);
        let reads_differently = |old: &str, new: &str| {
            is_sentence(old) && is_sentence(new) && numbers(old).eq(numbers(new))
        };
        if old.len() != new.len() || !pairs().all(|(old, new)| reads_differently(old, new)) {
            return false;
        }
        self.sentences.extend(pairs().map(|(old, new)| format!("{old:?} -> {new:?}")));
        self.same += old.len() - pairs().count();
        true
    }

    fn values(&mut self, path: &str, old: &Value, new: &Value) {
        match (old, new) {
            (Value::Object(old), Value::Object(new)) => {
                for (key, value) in old {
                    let path = format!("{path}.{key}");
                    match new.get(key) {
                        Some(other) => self.values(&path, value, other),
                        None => self.differences.push(format!("{path}: gone")),
                    }
                }
                self.added += new.keys().filter(|key| !old.contains_key(*key)).count();
            }
            (Value::Array(old), Value::Array(new)) => {
                if old.len() != new.len() {
                    self.differences.push(format!(
                        "{path}: {} entries -> {}",
                        old.len(),
                        new.len()
                    ));
                }
                for (index, (old, new)) in old.iter().zip(new).enumerate() {
                    self.values(&format!("{path}[{index}]"), old, new);
                }
            }
            (Value::String(old), Value::String(new))
                if old != new && is_sentence(old) && is_sentence(new) =>
            {
                self.sentences.push(format!("{path}: {old:?} -> {new:?}"));
            }
            _ if old == new => self.same += 1,
            _ => self.differences.push(format!("{path}: {old} -> {new}")),
        }
    }
}

fn numbers(text: &str) -> impl Iterator<Item = &str> {
    text.split(|letter: char| !letter.is_ascii_digit() && letter != '.')
        .filter(|part| part.contains(char::is_numeric))
}

fn is_sentence(text: &str) -> bool {
    text.split_whitespace().count() >= SENTENCE_WORDS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compare(old: &str, new: &str) -> Comparison {
        let mut comparison = Comparison::default();
        comparison.texts("", old.as_bytes(), new.as_bytes());
        comparison
    }

    #[test]
    fn a_changed_number_name_or_key_is_found() {
        let old = r#"{"rows": [{"name": "redis server", "p99_ns": 12.5, "hash": "00ff"}]}"#;
        assert!(compare(old, old).differences.is_empty());
        for (from, to, path) in [
            ("12.5", "12.6", ".rows[0].p99_ns"),
            ("p99_ns", "p99", ".rows[0].p99_ns: gone"),
            ("redis server", "redis client", ".rows[0].name"),
            ("00ff", "00fe", ".rows[0].hash"),
            ("[{", "[{}, {", ".rows: 1 entries -> 2"),
        ] {
            let found = compare(old, &old.replace(from, to)).differences;
            assert!(found.iter().any(|line| line.contains(path)), "{from} {to}: {found:?}");
        }
    }

    #[test]
    fn a_sentence_may_read_differently_and_a_key_may_be_new() {
        let old = r#"{"verdict": "nothing of it changes much", "seeds": [1]}"#;
        let new = r#"{"verdict": "the p99 is unchanged here", "seeds": [1], "unit": "ns"}"#;
        let found = compare(old, new);
        assert!(found.differences.is_empty(), "{found:?}");
        assert_eq!((found.same, found.added, found.sentences.len()), (1, 1, 1));
        // Of two words it is a name.
        assert_eq!(
            compare(r#"{"a": "batch idle"}"#, r#"{"a": "batch nice"}"#).differences.len(),
            1
        );
    }

    #[test]
    fn what_is_no_json_must_be_equal() {
        assert_eq!(compare("a\nb\n", "a\nb\n").same, 1);
        assert_eq!(compare("a\nb\n", "a\nc\n").differences, ["output: differs from line 2 on"]);
        // But for a printed sentence, whose numbers must be equal.
        let said = "it was repaired: 8 switches moved\n";
        let found = compare(said, &said.replace("moved", "put back"));
        assert_eq!((found.differences.len(), found.sentences.len()), (0, 1), "{found:?}");
        assert_eq!(compare(said, &said.replace('8', "9")).differences.len(), 1);
    }
}
