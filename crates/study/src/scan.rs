//! One setting with many values: `base_slice_ns=0.7ms,1.4ms,2.8ms` (a knob) or
//! `sysbench nice=0..19` (a setting of a target).

use crate::variant::quoted_target;

/// Most values of one scan.
const MOST: usize = 64;

/// A scan, as variants.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Scan {
    /// What is changed, such as `sysbench nice`.
    pub what: String,
    /// The values, as written.
    pub values: Vec<String>,
    target: String,
    key: String,
}

impl Scan {
    /// Reads `[TARGET ]KEY=VALUE,VALUE...`; a range of whole numbers is `LOW..HIGH`. Without a
    /// target the key is a knob of the scheduler.
    ///
    /// # Errors
    /// What is wrong, and what is allowed.
    pub fn parse(text: &str) -> Result<Scan, String> {
        let form = || {
            format!(
                "`{text}` is no scan: write KEY=V1,V2 (a knob) or TARGET KEY=V1,V2, such as \
                 'sysbench nice=0..19'"
            )
        };
        let (left, values) = text.rsplit_once('=').ok_or_else(form)?;
        let (target, key) =
            left.trim().rsplit_once(char::is_whitespace).unwrap_or(("scheduler", left.trim()));
        let values = values_of(values.trim()).ok_or_else(form)?;
        if key.is_empty() || values.len() < 2 {
            return Err(form());
        }
        if values.len() > MOST {
            return Err(format!("`{text}` has {} values: give {MOST} at most", values.len()));
        }
        let target = target.trim().trim_matches(['"', '\'']).to_owned();
        let what = if target == "scheduler" { key.to_owned() } else { format!("{target} {key}") };
        Ok(Scan { what, values, target, key: key.to_owned() })
    }

    /// Returns a variant for each value, as a user would write it; it is its own name.
    pub fn variants(&self) -> Vec<String> {
        let named =
            |value: &String| format!("{} {}={value}", quoted_target(&self.target), self.key);
        self.values.iter().map(named).collect()
    }
}

fn values_of(text: &str) -> Option<Vec<String>> {
    if let Some((low, high)) = text.split_once("..") {
        let (low, high): (i64, i64) = (low.parse().ok()?, high.parse().ok()?);
        return (low < high && high.abs_diff(low) < 10_000)
            .then(|| (low..=high).map(|n| n.to_string()).collect());
    }
    let values: Vec<String> = text.split(',').map(|value| value.trim().to_owned()).collect();
    (!values.iter().any(String::is_empty)).then_some(values)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::variant::Variant;

    #[test]
    fn a_scan_is_a_variant_for_each_value() {
        let knob = Scan::parse("base_slice_ns=0.7ms,1.4ms, 2.8ms").unwrap();
        assert_eq!(knob.variants()[1], "scheduler base_slice_ns=1.4ms");
        assert_eq!((knob.what.as_str(), knob.values.len()), ("base_slice_ns", 3));
        let nice = Scan::parse("sysbench nice=-2..2").unwrap();
        assert_eq!(nice.values, ["-2", "-1", "0", "1", "2"]);
        for text in nice.variants().iter().chain(&knob.variants()) {
            assert!(Variant::parse(text).is_ok(), "{text}");
        }
        let idle = Scan::parse("/batch cpu.weight=1,10").unwrap();
        assert_eq!(idle.variants(), ["/batch cpu.weight=1", "/batch cpu.weight=10"]);
        for text in ["Web Content nice=1,2", "\"Web Content\" nice=1,2"] {
            let blanks = Scan::parse(text).unwrap();
            assert_eq!(blanks.what, "Web Content nice");
            assert_eq!(blanks.variants(), ["\"Web Content\" nice=1", "\"Web Content\" nice=2"]);
            let variant = Variant::parse(&blanks.variants()[0]).unwrap();
            assert_eq!(variant.clauses[0].target, "Web Content");
        }
    }

    #[test]
    fn what_is_no_scan_is_said() {
        for text in ["", "nice", "nice=1", "sysbench nice=", "nice=5..2", "nice=1,,2", "=1,2"] {
            assert!(Scan::parse(text).unwrap_err().contains("is no scan"), "{text}");
        }
        assert!(Scan::parse("nice=0..99").unwrap_err().contains("64 at most"));
    }
}
