//! The grammar of rt-app before 1.0: a task had one execution time and period, and a list of
//! resources that it took in order. rt-app reads it no longer; a file of it is named, with the
//! events that say the same.

use super::Mistake;
use super::json::Json;
use super::program::find;

/// Keys that only that grammar has.
const KEYS: [&str; 3] = ["exec", "lock_order", "resources"];

/// Refuses a task or phase of that grammar.
pub(super) fn refuse(entries: &[(String, Json)], place: &str) -> Result<(), Mistake> {
    let Some((key, _)) = entries.iter().find(|(key, _)| KEYS.contains(&key.as_str())) else {
        return Ok(());
    };
    let number = |key: &str| match find(entries, key) {
        Some(Json::Number(number)) => number.to_string(),
        _ => "N".to_owned(),
    };
    let (exec, period) = (number("exec"), number("period"));
    let mut message = format!(
        "`{key}` is of the grammar of rt-app before 1.0, which rt-app itself reads no longer: \
         convert `exec` and `period` into \
         \"run\": {exec}, \"timer\": {{ \"ref\": \"t\", \"period\": {period} }}"
    );
    if key != "exec" || entries.iter().any(|(key, _)| KEYS[1..].contains(&key.as_str())) {
        message += ", and `lock_order` and `resources` into the events \"lock\", \"wait\", \
                    \"signal\" and \"unlock\" in their order, with \
                    \"run\" between them for each duration";
    }
    Err((format!("{place}.{key}"), message))
}
