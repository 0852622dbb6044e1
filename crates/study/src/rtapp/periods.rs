//! The periods of a task's timers.

use super::json::Json;
use super::program::{event, find};

/// Whether the timers of a task, those of its phases included, have more than one period.
pub(super) fn has_several_periods(entries: &[(String, Json)]) -> bool {
    fn collect<'j>(entries: &'j [(String, Json)], periods: &mut Vec<&'j Json>) {
        for (key, value) in entries {
            match (value, event(key)) {
                (Json::Object(timer), Some("timer")) => periods.extend(find(timer, "period")),
                (Json::Object(inner), None) => collect(inner, periods),
                _ => {}
            }
        }
    }
    let mut periods = Vec::new();
    collect(entries, &mut periods);
    periods.windows(2).any(|pair| pair[0] != pair[1])
}
