//! `published_in`, `figure`, `fitted` and `cause` of an `[[expect]]`: which published figure it is
//! about.

use super::document::{Item, ScenarioError, Section};
use super::expect::{Cause, Publication};
use crate::published::sources;
use schedlab_model::text::nearest;

/// The keys that say more about `published`.
const MORE: [&str; 4] = ["published_in", "figure", "fitted", "cause"];

/// What the section says; `published_in` of the whole scenario holds where the section has none.
pub(super) fn read(
    root: &Section<'_>,
    section: &Section<'_>,
) -> Result<Option<Publication>, ScenarioError> {
    if section.get("published").is_none() {
        return match MORE.into_iter().find_map(|key| section.get(key).map(|item| (key, item))) {
            Some((key, item)) => {
                Err(item
                    .error(format!("`{key}` says more about a published figure: add `published`")))
            }
            None => Ok(None),
        };
    }
    let source = match section.get("published_in").or_else(|| root.get("published_in")) {
        Some(item) => Some(known(&item)?),
        None => None,
    };
    Ok(Some(Publication {
        source,
        figure: section.optional("figure", |item| Ok(item.text()?.trim().to_owned()))?,
        fitted: section.optional("fitted", |item| item.flag())?.unwrap_or(false),
        cause: section.optional("cause", |item| cause(&item))?,
    }))
}

/// Checks that a source is known.
fn known(item: &Item<'_>) -> Result<String, ScenarioError> {
    let text = item.text()?;
    let ids = || sources().iter().map(|source| source.id.as_str());
    if ids().any(|id| id == text) {
        return Ok(text.to_owned());
    }
    let hint = nearest(text, ids()).map_or_else(
        || format!("; there are: {}", ids().collect::<Vec<_>>().join(", ")),
        |right| format!(": did you mean `{right}`?"),
    );
    Err(item
        .error(format!("there is no source `{text}`{hint}. Leave it out for a source of your own")))
}

fn cause(item: &Item<'_>) -> Result<Cause, ScenarioError> {
    let text = item.text()?;
    Cause::ALL.into_iter().find(|cause| cause.word() == text).ok_or_else(|| {
        let all = Cause::ALL.map(Cause::word).join(", ");
        item.error(format!("`{text}` is not a cause; there are: {all}"))
    })
}
