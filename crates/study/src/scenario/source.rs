//! `[[source]]` sections, `channels` and `locks`.

use super::document::{Item, ScenarioError, Section};
use super::draw::parse_draw;
use super::step::{Names, find};
use schedlab_model::{ChannelId, ChannelSpec, Draw, LockId, Ns, SourceKind, SourceSpec};
use toml::de::DeValue;

const KEYS: [&str; 8] = ["name", "into", "open", "start", "at", "clients", "think", "one_way"];
const CHANNEL_KEYS: [&str; 4] = ["name", "count", "initial", "capacity"];

/// `channels = ["requests", { name = "pipe", capacity = 16 }]`
pub(super) fn read_channels(
    root: &Section<'_>,
    names: &mut Names,
) -> Result<Vec<ChannelSpec>, ScenarioError> {
    let mut channels: Vec<ChannelSpec> = Vec::new();
    let Some(list) = root.get("channels") else { return Ok(channels) };
    for item in list.list()? {
        let mut spec = ChannelSpec::default();
        let mut count = None;
        if let DeValue::Table(_) = item.value {
            let section = item.section("a channel", &CHANNEL_KEYS)?;
            spec.name = section.need("name", "name = \"requests\"")?.text()?.to_owned();
            count = section.optional("count", |item| item.integer(1, 100_000))?;
            spec.initial =
                section.optional("initial", |item| item.integer(0, 1 << 31))?.unwrap_or(0) as u32;
            spec.capacity = section
                .optional("capacity", |item| item.integer(1, 1 << 31))?
                .map(|value| value as u32);
        } else {
            spec.name = item.text()?.to_owned();
        }
        for number in 1..=count.unwrap_or(1) {
            let name = match count {
                Some(_) => format!("{}-{number}", spec.name),
                None => spec.name.clone(),
            };
            new_name("channel", &name, &item, &names.channels)?;
            names.channels.push(name.clone());
            channels.push(ChannelSpec { name, ..spec.clone() });
        }
    }
    Ok(channels)
}

/// Reads `locks = ["m", { name = "n", protocol = "inherit" }]`; returns those with priority
/// inheritance.
pub(super) fn read_locks(
    root: &Section<'_>,
    names: &mut Names,
) -> Result<Vec<LockId>, ScenarioError> {
    let mut inheriting = Vec::new();
    let Some(list) = root.get("locks") else { return Ok(inheriting) };
    for item in list.list()? {
        let (name, inherits) = match item.value {
            DeValue::Table(_) => {
                let section = item.section("a lock", &["name", "protocol"])?;
                let name = section.need("name", "name = \"m\"")?.text()?.to_owned();
                (name, section.optional("protocol", protocol)?.unwrap_or(false))
            }
            _ => (item.text()?.to_owned(), false),
        };
        new_name("lock", &name, &item, &names.locks)?;
        if inherits {
            inheriting.push(LockId::from(names.locks.len()));
        }
        names.locks.push(name);
    }
    Ok(inheriting)
}

/// Whether a protocol is priority inheritance.
fn protocol(item: Item<'_>) -> Result<bool, ScenarioError> {
    match item.text()? {
        "none" => Ok(false),
        "inherit" => Ok(true),
        other => {
            Err(item.error(format!("`{other}`: the protocol of a lock is \"none\" or \"inherit\"")))
        }
    }
}

fn new_name(
    what: &str,
    name: &str,
    item: &Item<'_>,
    known: &[String],
) -> Result<(), ScenarioError> {
    if name.is_empty() || name.contains(char::is_whitespace) {
        return Err(item.error(format!("the name of a {what} is one word, such as \"requests\"")));
    }
    if known.iter().any(|other| other == name) {
        return Err(item.error(format!("there are two {what}s `{name}`")));
    }
    Ok(())
}

/// Reads every source.
pub(super) fn read(root: &Section<'_>, names: &Names) -> Result<Vec<SourceSpec>, ScenarioError> {
    let sections = root.sections("source", "[[source]]", &KEYS)?;
    let mut sources: Vec<SourceSpec> = Vec::new();
    for section in &sections {
        let name = section.need("name", "name = \"clients\"")?;
        if sources.iter().any(|source| Some(source.name.as_str()) == name.value.as_str()) {
            return Err(name.error(format!("there are two sources `{}`", name.text()?)));
        }
        let into = section.need("into", "into = \"requests\" (a channel)")?;
        let channel = find("channel", "channels", into.text()?, &names.channels);
        sources.push(SourceSpec {
            name: name.text()?.to_owned(),
            into: ChannelId::from(channel.map_err(|message| into.error(message))?),
            kind: kind(section)?,
            one_way: section.optional("one_way", draw)?.unwrap_or(Draw::Fixed(Ns::ZERO)),
        });
    }
    Ok(sources)
}

fn draw(item: Item<'_>) -> Result<Draw, ScenarioError> {
    let text = item.text().map_err(|_| item.time().expect_err("not a text"))?;
    parse_draw(text).map_err(|message| item.error(format!("{}: {message}", item.key)))
}

fn kind(section: &Section<'_>) -> Result<SourceKind, ScenarioError> {
    let ways = [section.get("open"), section.get("at"), section.get("clients")];
    if ways.iter().flatten().count() != 1 {
        return Err(section.error(
            "a source is either open = \"exp 1ms\" (the gap between requests), or clients = 32 \
             (each waits for \
             its reply), or at = [\"1ms\", \"2ms\"]: give exactly one",
        ));
    }
    let only = |key: &'static str, with: &str| match section.get(key) {
        Some(item) => Err(item.error(format!("`{key}` has a meaning only with `{with}`"))),
        None => Ok(()),
    };
    let [open, at, clients] = ways;
    if let Some(item) = open {
        only("think", "clients")?;
        let start = section.optional("start", |item| item.time())?.unwrap_or(Ns::ZERO);
        let interarrival = draw(item.clone())?;
        if interarrival == Draw::Fixed(Ns::ZERO) {
            return Err(item.error("`open` is the gap between requests and must be longer than 0"));
        }
        return Ok(SourceKind::Open { interarrival, start });
    }
    only("start", "open")?;
    if let Some(item) = at {
        only("think", "clients")?;
        let at = item.list()?.iter().map(Item::time).collect::<Result<Vec<_>, _>>()?;
        if !at.is_sorted() {
            return Err(item.error("the times of `at` must ascend"));
        }
        return Ok(SourceKind::Recorded { at });
    }
    let clients = clients.expect("one of three").integer(1, 1_000_000)? as u32;
    let think = section.optional("think", draw)?.unwrap_or(Draw::Fixed(Ns::ZERO));
    Ok(SourceKind::Closed { clients, think })
}
