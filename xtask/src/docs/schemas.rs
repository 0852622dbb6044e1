//! `docs/schema` and the tables of fields in the pages, from the types of the results: a field is
//! described once, in its doc comment.

use serde_json::{Map, Value, json};
use std::collections::VecDeque;
use std::fmt::Write;

/// Says in a schema where it comes from.
const MADE: &str = "made by `cargo xtask docs` from the type";

/// The tables of fields in the pages.
const TABLES: &[SchemaTables] = &[
    SchemaTables {
        page: "docs/result-schema.md",
        schema: schedlab_study::result::SCHEMA,
        from: "Study (crates/study/src/result.rs)",
    },
    SchemaTables {
        page: "docs/fleet.md",
        schema: schedlab_study::fleet::SCHEMA,
        from: "Fleet (crates/study/src/fleet.rs)",
    },
    SchemaTables {
        page: "docs/fleet.md",
        schema: schedlab_study::fleet::compare::SCHEMA,
        from: "FleetStudy (crates/study/src/fleet/compare.rs)",
    },
    SchemaTables {
        page: "docs/exchange-formats.md",
        schema: schedlab_study::diff::totals::SCHEMA,
        from: "Totals (crates/study/src/diff/totals.rs)",
    },
    SchemaTables {
        page: "docs/live-schema.md",
        schema: schedlab_lab::confirm::SCHEMA,
        from: "Confirmed (crates/lab/src/confirm/answer.rs)",
    },
    SchemaTables {
        page: "docs/live-schema.md",
        schema: schedlab_lab::top::SCHEMA,
        from: "TopOutput (crates/lab/src/top.rs)",
    },
    SchemaTables {
        page: "docs/live-schema.md",
        schema: schedlab_lab::colocate::SCHEMA,
        from: "ColocateOutput (crates/lab/src/colocate/answer.rs)",
    },
    SchemaTables {
        page: "docs/experiment-schema.md",
        schema: schedlab_lab::experiment::SCHEMA,
        from: "ExperimentOutput (crates/lab/src/experiment/result.rs)",
    },
    SchemaTables {
        page: "docs/latency-schema.md",
        schema: schedlab_lab::latency::SCHEMA,
        from: "LatencyResult (crates/lab/src/latency/single.rs)",
    },
    SchemaTables {
        page: "docs/latency-schema.md",
        schema: schedlab_lab::latency::MATRIX_SCHEMA,
        from: "MatrixOutput (crates/lab/src/latency/matrix.rs)",
    },
    SchemaTables {
        page: "docs/runqueue-schema.md",
        schema: schedlab_lab::runqueue::SCHEMA,
        from: "RunqueueResult (crates/lab/src/runqueue.rs)",
    },
    SchemaTables {
        page: "docs/live-schema.md",
        schema: schedlab_live::status::SCHEMA,
        from: "StatusOutput (crates/live/src/status.rs)",
    },
    SchemaTables {
        page: "docs/live-schema.md",
        schema: schedlab_live::detach::SCHEMA,
        from: "RestoreOutput (crates/live/src/detach.rs)",
    },
    SchemaTables {
        page: "docs/live-schema.md",
        schema: schedlab_live::driver::SCHEMA,
        from: "RunOutput (crates/live/src/driver.rs)",
    },
    SchemaTables {
        page: "docs/watch-schema.md",
        schema: schedlab_lab::watch::output::SCHEMA,
        from: "WatchOutput (crates/lab/src/watch/output.rs)",
    },
    SchemaTables {
        page: "docs/flight.md",
        schema: schedlab_lab::flight::log::SCHEMA,
        from: "FlightLine (crates/lab/src/flight/log.rs)",
    },
    SchemaTables {
        page: "docs/show-schema.md",
        schema: schedlab_trace::analysis::show::json::SCHEMA,
        from: "ShowOutput (crates/trace/src/analysis/show/json.rs)",
    },
    SchemaTables {
        page: "docs/measuring.md",
        schema: schedlab_measure::stress::SCHEMA,
        from: "StressOutput (crates/measure/src/stress/output.rs)",
    },
];

/// Where a page has the tables of a schema.
pub(super) struct SchemaTables {
    /// The page.
    pub(super) page: &'static str,
    /// The schema's name.
    schema: &'static str,
    /// The type that it is made from, and its file.
    from: &'static str,
}

impl SchemaTables {
    /// Returns the line before the tables.
    pub(super) fn begin(&self) -> String {
        format!("<!-- made by `cargo xtask docs` from {} -->\n", self.from)
    }

    /// Returns the tables.
    pub(super) fn tables(&self, all: &[(&'static str, Value)]) -> String {
        let found = all.iter().find(|(name, _)| *name == self.schema);
        found.map_or_else(String::new, |(name, schema)| tables(name, schema))
    }
}

/// Returns the places of all tables.
pub(super) fn places() -> &'static [SchemaTables] {
    TABLES
}

/// Returns each schema that is made from types: its name in the field `schema`, and itself.
pub(super) fn all() -> Vec<(&'static str, Value)> {
    let made = |(name, schema): (&'static str, schedlab_study::schemas::Schema)| {
        let mut schema = schema.to_value();
        plain(&mut schema);
        schema["$comment"] = json!(MADE);
        (name, schema)
    };
    schedlab_study::schemas::all()
        .into_iter()
        .chain(schedlab_lab::schemas::all())
        .map(made)
        .collect()
}

/// Returns the file of a schema.
pub(super) fn file(name: &str) -> String {
    format!("docs/schema/{}.json", name.trim_start_matches("schedlab-").replace('/', "-"))
}

/// Takes the links of rustdoc out of all descriptions, and their line breaks.
fn plain(schema: &mut Value) {
    match schema {
        Value::Object(map) => map.iter_mut().for_each(|(key, value)| match value {
            Value::String(text) if key == "description" => {
                *text = text.replace("[`", "`").replace("`]", "`").replace('\n', " ");
            }
            _ => plain(value),
        }),
        Value::Array(items) => items.iter_mut().for_each(plain),
        _ => {}
    }
}

/// Returns a table of fields for each type of a schema, the result's own first.
pub(super) fn tables(name: &str, schema: &Value) -> String {
    let mut text = String::new();
    let mut waiting: VecDeque<String> = VecDeque::new();
    let mut seen: Vec<String> = Vec::new();
    table(&mut text, &format!("`{name}`"), schema);
    refs(schema, &mut waiting);
    while let Some(next) = waiting.pop_front() {
        let Some(def) = schema.get("$defs").and_then(|defs| defs.get(&next)) else { continue };
        if seen.contains(&next) {
            continue;
        }
        table(&mut text, &format!("`{next}`"), def);
        refs(def, &mut waiting);
        seen.push(next);
    }
    text
}

/// Writes the table of one type: its fields, or its values.
fn table(text: &mut String, title: &str, schema: &Value) {
    let about = schema.get("description").and_then(Value::as_str).unwrap_or_default();
    let _ = write!(text, "\n### {title}\n{about}\n\n");
    if let Some(fields) = schema.get("properties").and_then(Value::as_object) {
        text.push_str("| field | holds | what it is |\n|---|---|---|\n");
        for (name, field) in ordered(schema, fields) {
            let missing = if required(schema).any(|of| of == name) { "" } else { ", or missing" };
            let what = field.get("description").and_then(Value::as_str).unwrap_or_default();
            let _ = writeln!(
                text,
                "| `{name}` | {}{missing} | {} |",
                holds(field),
                what.replace('|', "\\|")
            );
        }
    } else if let Some(values) = schema.get("oneOf").and_then(Value::as_array) {
        text.push_str("| value | what it means |\n|---|---|\n");
        for value in values {
            let what = value.get("description").and_then(Value::as_str).unwrap_or_default();
            let names = value.get("const").map(|one| vec![one.clone()]);
            let names = names
                .or_else(|| value.get("enum").and_then(Value::as_array).cloned())
                .unwrap_or_default();
            let names: Vec<String> =
                names.iter().filter_map(Value::as_str).map(|name| format!("`{name}`")).collect();
            let _ = writeln!(text, "| {} | {} |", names.join(", "), what.replace('|', "\\|"));
        }
    }
}

fn required(schema: &Value) -> impl Iterator<Item = &str> {
    schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

/// Returns the fields in the order of the type: those that are always there first.
fn ordered<'a>(schema: &'a Value, fields: &'a Map<String, Value>) -> Vec<(&'a String, &'a Value)> {
    let mut all: Vec<(&String, &Value)> = fields.iter().collect();
    let place = |name: &String| required(schema).position(|of| of == name).unwrap_or(usize::MAX);
    all.sort_by_key(|(name, _)| place(name));
    all
}

/// Returns the types that a schema names, in the order of its fields.
fn refs(schema: &Value, found: &mut VecDeque<String>) {
    match schema {
        Value::Object(map) => {
            found.extend(
                map.get("$ref").and_then(Value::as_str).and_then(name_of).map(str::to_owned),
            );
            if let Some(fields) = map.get("properties").and_then(Value::as_object) {
                ordered(schema, fields).into_iter().for_each(|(_, field)| refs(field, found));
            }
            let inner =
                map.iter().filter(|(key, _)| !matches!(key.as_str(), "$defs" | "properties"));
            inner.for_each(|(_, value)| refs(value, found));
        }
        Value::Array(items) => items.iter().for_each(|item| refs(item, found)),
        _ => {}
    }
}

fn name_of(reference: &str) -> Option<&str> {
    reference.strip_prefix("#/$defs/")
}

/// Returns what a field holds, in words.
fn holds(schema: &Value) -> String {
    if let Some(value) = schema.get("const").and_then(Value::as_str) {
        return format!("`{value}`");
    }
    if let Some(name) = schema.get("$ref").and_then(Value::as_str).and_then(name_of) {
        return format!("[`{name}`](#{})", name.to_lowercase());
    }
    let any = schema.get("anyOf").and_then(Value::as_array);
    if let Some(any) = any {
        return any.iter().map(holds).collect::<Vec<_>>().join(" or ");
    }
    if let Some(items) = schema.get("prefixItems").and_then(Value::as_array) {
        return format!("list of {}", items.iter().map(holds).collect::<Vec<_>>().join(" and "));
    }
    let of_type = |name: &str| match name {
        "array" => format!("list of {}", schema.get("items").map_or_else(String::new, holds)),
        "object" => match schema.get("additionalProperties") {
            Some(values) => format!("by name: {}", holds(values)),
            None => "object".to_owned(),
        },
        "boolean" => "true or false".to_owned(),
        "integer" => "whole number".to_owned(),
        "string" => "text".to_owned(),
        name => name.to_owned(),
    };
    match schema.get("type") {
        Some(Value::String(name)) => of_type(name),
        Some(Value::Array(names)) => {
            names.iter().filter_map(Value::as_str).map(of_type).collect::<Vec<_>>().join(" or ")
        }
        _ => "anything".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_becomes_a_table() {
        let schema = json!({
            "description": "A run.", "required": ["seeds", "end"],
            "properties": {
                "end": { "$ref": "#/$defs/End", "description": "How it | ended." },
                "notes": { "type": ["array", "null"], "items": { "type": "string" } },
                "seeds": { "type": "array", "items": { "type": "integer" }, "description": "Of \
                    each." },
            },
            "$defs": { "End": { "description": "An end.", "oneOf": [{ "const": "done", "description": "By itself." }] } },
        });
        let text = tables("schedlab-run/1", &schema);
        let expected = "\n### `schedlab-run/1`\nA run.\n\n| field | holds | what it is |\n\
                        |---|---|---|\n\
            | `seeds` | list of whole number | Of each. |\n\
            | `end` | [`End`](#end) | How it \\| ended. |\n\
            | `notes` | list of text or null, or missing |  |\n\
            \n### `End`\nAn end.\n\n| value | what it means |\n|---|---|\n| `done` | By itself. |\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn descriptions_have_no_links_of_rustdoc() {
        for (name, schema) in all() {
            let text = schema.to_string();
            assert!(!text.contains("[`"), "{name}");
            assert!(text.contains("\"description\""), "{name}");
        }
    }
}
