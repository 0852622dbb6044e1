//! The `[delegation]` section: where the scheduler runs.

use super::document::{Item, ScenarioError, Section};
use crate::delegation::DelegationSpec;
use toml::de::DeValue;

pub(super) fn read(root: &Section<'_>, cpus: usize) -> Result<DelegationSpec, ScenarioError> {
    let mut spec = DelegationSpec::default();
    let Some(section) = root.get("delegation") else { return Ok(spec) };
    let mut entries = section.entries()?;
    // A preset comes first: single costs replace its values.
    entries.sort_by_key(|item| item.key != "costs");
    for item in entries {
        let value = text(&item)?;
        spec.set(item.key, &value, cpus).map_err(|message| item.error(message))?;
    }
    Ok(spec)
}

/// A value as a variant would write it.
fn text(item: &Item<'_>) -> Result<String, ScenarioError> {
    match item.value {
        DeValue::Integer(number) => Ok(number.as_str().to_owned()),
        DeValue::Array(_) => {
            let names = item.list()?.iter().map(Item::text).collect::<Result<Vec<_>, _>>()?;
            Ok(names.join(","))
        }
        _ => Ok(item.text()?.to_owned()),
    }
}
