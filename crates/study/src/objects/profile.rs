//! Profiles of schedulers in BPF: TOML files that say what a user half sets up before it attaches.

use schedlab_model::text::shown;
use schedlab_scheduler::sched_ext::{Each, Profile, ProfileCall, ProfileSet};
use serde::Deserialize;
use std::collections::BTreeMap;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct File {
    scheduler: String,
    /// Where the values come from, for readers.
    #[serde(default)]
    #[expect(dead_code, reason = "it is written for readers of the file")]
    source: String,
    #[serde(default)]
    not_played: String,
    #[serde(default)]
    options: BTreeMap<String, Value>,
    #[serde(default)]
    per_cpu: BTreeMap<String, Value>,
    #[serde(default)]
    set: Vec<Set>,
    #[serde(default)]
    maps: BTreeMap<String, Value>,
    #[serde(default)]
    call: Vec<Call>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Set {
    each: EachWord,
    options: BTreeMap<String, Value>,
}

/// A program that gives room for a CPU mask.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Mask {
    program: String,
    member: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Call {
    program: String,
    #[serde(default)]
    each: EachWord,
    #[serde(default)]
    with_smt: bool,
    #[serde(default)]
    after_attach: bool,
    mask: Option<Mask>,
    #[serde(default)]
    args: BTreeMap<String, Value>,
}

#[derive(Deserialize, Default, Clone, Copy)]
#[serde(rename_all = "kebab-case")]
enum EachWord {
    #[default]
    Once,
    Cpu,
    Sibling,
    Node,
    Llc,
    Neighbour,
    Part,
}

impl From<EachWord> for Each {
    fn from(word: EachWord) -> Each {
        match word {
            EachWord::Once => Each::Once,
            EachWord::Cpu => Each::Cpu,
            EachWord::Sibling => Each::Sibling,
            EachWord::Node => Each::Node,
            EachWord::Llc => Each::Llc,
            EachWord::Neighbour => Each::Neighbour,
            EachWord::Part => Each::Part,
        }
    }
}

/// A number, a switch, or text.
#[derive(Deserialize)]
#[serde(untagged)]
enum Value {
    Number(i64),
    Switch(bool),
    Text(String),
}

fn pairs(of: BTreeMap<String, Value>) -> Vec<(String, String)> {
    let text = |value| match value {
        Value::Number(number) => number.to_string(),
        Value::Switch(on) => on.to_string(),
        Value::Text(text) => text,
    };
    of.into_iter().map(|(name, value)| (name, text(value))).collect()
}

/// Reads a profile.
///
/// # Errors
/// What is wrong, with the line.
pub(super) fn parse(text: &str) -> Result<Profile, String> {
    let file: File = toml::from_str(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start.min(text.len()));
        let line = 1 + text.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count();
        format!("line {line}: {}", shown(error.message()))
    })?;
    let call = |call: Call| ProfileCall {
        program: call.program,
        each: call.each.into(),
        with_smt: call.with_smt,
        after_attach: call.after_attach,
        mask: call.mask.map(|mask| (mask.program, mask.member)),
        args: pairs(call.args),
    };
    let set = |set: Set| ProfileSet { each: set.each.into(), options: pairs(set.options) };
    Ok(Profile {
        scheduler: file.scheduler,
        not_played: shown(&file.not_played).into_owned(),
        options: pairs(file.options),
        per_cpu: pairs(file.per_cpu),
        sets: file.set.into_iter().map(set).collect(),
        maps: pairs(file.maps),
        calls: file.call.into_iter().map(call).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_says_what_is_not_played() {
        let profile = parse("scheduler = \"x\"\nnot-played = \"it balances\"\n").unwrap();
        assert_eq!(profile.not_played, "it balances");
    }

    #[test]
    fn a_profile_is_read_and_faults_are_named_with_their_line() {
        let text = "scheduler = \"x\"\n[options]\nslice = \"1ms\"\nsmt = true\nn = 3\n[[call]]\n\
                    program = \"enable\"\neach = \"sibling\"\nwith-smt = true\nargs = { a = \"cpu\" }\n";
        let profile = parse(text).expect("a profile");
        let set = ["n=3", "slice=1ms", "smt=true"].map(|pair| {
            let (name, value) = pair.split_once('=').expect("a pair");
            (name.to_owned(), value.to_owned())
        });
        assert_eq!(profile.options, set);
        assert_eq!(profile.calls[0].each, Each::Sibling);
        for (text, said) in [
            ("scheduler = 1\n", "line 1"),
            ("scheduler = \"x\"\nslice = 1\n", "line 2: unknown field `slice`"),
            ("scheduler = \"x\"\n[[call]]\nprogram = \"p\"\neach = \"cluster\"\n", "line 4"),
            ("[options]\n", "missing field `scheduler`"),
        ] {
            let why = parse(text).expect_err("a fault");
            assert!(why.contains(said), "{text}: {why}");
        }
    }
}
