//! Variants: what a user wants to try, in one line.
//!
//! ```text
//! batch idle: sysbench policy=idle nice=5 cpus=0-1 ; redis-server policy=fifo:1
//! capped: sysbench group=/batch ; /batch cpu.max=50ms/100ms
//! twice the work: redis-server demand=x2
//! alone: sysbench off
//! no throttling: scheduler sched_rt_runtime_us=999990
//! agents: delegation mode=global costs=ghost-2021
//! k8s: pod redis requests.cpu=2 limits.cpu=off
//! host: guest web cpu.weight=400 ; guest batch cpu.max=50ms/100ms
//! ```
//! A target is a task (name, glob such as `worker-*`, class, or pid of a recording), a control
//! group (a path that begins with `/`), a pod of Kubernetes (`pod NAME`), a guest of KVM
//! (`guest NAME`), a source, the word `scheduler`, whose settings are knobs, `machine`, whose
//! settings are `preempt=` and `threaded_irqs=`, or `delegation`: where the scheduler runs.

mod apply;
mod guest;
mod pod;
mod scale;
pub(crate) mod setting;
mod subject;

pub use apply::Applied;
pub(crate) use guest::TARGET as OF_GUEST;
pub(crate) use pod::TARGET as OF_POD;
pub use setting::{GroupSetting, MachineSetting, PodSetting, Setting, SourceSetting, TaskSetting};
pub use subject::Subject;

use schedlab_model::text::{is_hostile, quoted};
use std::borrow::Cow;

/// One thing to try.
#[derive(Clone, PartialEq, Debug)]
pub struct Variant {
    /// Its name in tables.
    pub name: String,
    /// The schedulers that it is tried with (names or globs); empty = all of them.
    pub schedulers: Vec<String>,
    /// What changes.
    pub clauses: Vec<Clause>,
}

impl Variant {
    /// Changes nothing of a recording.
    pub(crate) fn as_recorded() -> Variant {
        Variant { name: "as recorded".to_owned(), schedulers: Vec::new(), clauses: Vec::new() }
    }
}

/// The changes of one target.
#[derive(Clone, PartialEq, Debug)]
pub struct Clause {
    /// What changes, as written.
    pub target: String,
    /// How, in order.
    pub settings: Vec<Setting>,
}

/// What is wrong with a variant.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VariantError {
    /// No `:` after the name, or nothing follows it.
    #[error(
        "`{0}` changes nothing: write 'NAME: TARGET SETTING...', such as 'batch idle: sysbench \
         policy=idle'"
    )]
    Empty(String),
    /// A setting that is not `key=value`.
    #[error(
        "`{0}` is not a setting: write KEY=VALUE, such as policy=idle, nice=5, cpus=0-1, \
         demand=x2, or off"
    )]
    Syntax(String),
    /// An unknown key.
    #[error("`{target}` has no setting `{key}`{hint}")]
    Key {
        /// The target.
        target: String,
        /// As given.
        key: String,
        /// The nearest one, or all.
        hint: String,
    },
    /// A bad value.
    #[error("{0}")]
    Value(String),
    /// No task is called so.
    #[error("there is no task, group or source `{target}` here{hint}")]
    Target {
        /// As given.
        target: String,
        /// The nearest one, or all.
        hint: String,
    },
    /// A CPU that the machine does not have.
    #[error("`{0}`: {1}")]
    Cpu(String, String),
}

impl Variant {
    /// Reads `NAME: TARGET SETTING... ; TARGET SETTING...`. Without `NAME:` the text is its own
    /// name.
    pub fn parse(text: &str) -> Result<Variant, VariantError> {
        let (name, rest) = match text.split_once(':') {
            // `redis policy=fifo:1` has a colon too, but no name.
            Some((name, rest)) if !name.contains('=') && !name.trim().is_empty() => {
                (name.trim(), rest)
            }
            _ => (text.trim(), text),
        };
        Variant::parse_named(name, rest)
    }

    /// Reads `TARGET SETTING... ; TARGET SETTING...`.
    pub fn parse_named(name: &str, text: &str) -> Result<Variant, VariantError> {
        let clauses = split(text)
            .into_iter()
            .map(str::trim)
            .filter(|clause| !clause.is_empty())
            .map(clause)
            .collect::<Result<Vec<_>, _>>()?;
        match clauses.is_empty() {
            true => Err(VariantError::Empty(text.trim().to_owned())),
            false => Ok(Variant { name: name.to_owned(), schedulers: Vec::new(), clauses }),
        }
    }
}

/// Returns the texts between semicolons. One in the quotes around a target is a part of the name.
fn split(text: &str) -> Vec<&str> {
    let (mut all, mut rest) = (Vec::new(), text);
    loop {
        let begin = rest.len() - rest.trim_start().len();
        let name = match rest[begin..].strip_prefix('"').and_then(|name| name.find('"')) {
            Some(length) => begin + length + 2,
            None => begin,
        };
        let Some(end) = rest[name..].find(';') else {
            all.push(rest);
            return all;
        };
        all.push(&rest[..name + end]);
        rest = &rest[name + end + 1..];
    }
}

fn clause(text: &str) -> Result<Clause, VariantError> {
    let (target, rest) = match text.strip_prefix('"').and_then(|rest| rest.split_once('"')) {
        Some((quoted, rest)) => (quoted, rest),
        None => target_of(text),
    };
    // Between settings a line may end; in a name nothing does.
    if target.contains(is_hostile) || rest.contains(|c| is_hostile(c) && !matches!(c, '\n' | '\t'))
    {
        return Err(VariantError::Value(format!("`{}` has a control character", quoted(text))));
    }
    if target.contains('=') {
        return Err(VariantError::Value(format!(
            "`{text}`: say first what changes: TARGET SETTING..., such as \"sysbench policy=idle\""
        )));
    }
    let settings = parts(rest)
        .iter()
        .map(|part| Setting::parse(target, part))
        .collect::<Result<Vec<_>, _>>()?;
    match settings.is_empty() {
        true => Err(VariantError::Empty(text.to_owned())),
        false => Ok(Clause { target: without_slashes(target), settings }),
    }
}

/// Returns the target before the first blank, or before the second one in `pod NAME` and
/// `guest NAME`, and the rest.
fn target_of(text: &str) -> (&str, &str) {
    let (first, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let of = [OF_POD, OF_GUEST].into_iter().find(|of| text.starts_with(of));
    if let Some((of, named)) = of.and_then(|of| Some((of, text.strip_prefix(of)?))) {
        let blanks = named.len() - named.trim_start().len();
        let end = named[blanks..].find(char::is_whitespace).map_or(named.len(), |end| blanks + end);
        let name = &named[blanks..end];
        // A task may be called `pod` or `guest`, too.
        if !name.is_empty() && !name.contains('=') && name != "off" {
            return text.split_at(of.len() + end);
        }
    }
    (first, rest)
}

/// Returns the settings of `text`, which stand between blanks. The kernel's own form of `cpu.max`
/// has a blank inside.
fn parts(text: &str) -> Vec<String> {
    let mut parts: Vec<String> = Vec::new();
    for word in without_quotes(text).split_whitespace() {
        match parts.last_mut() {
            Some(last)
                if last.starts_with("cpu.max=") && word.bytes().all(|b| b.is_ascii_digit()) =>
            {
                *last = format!("{last} {word}");
            }
            _ => parts.push(word.to_owned()),
        }
    }
    parts
}

/// Returns `text` without the quotes around values: `cpu.max='25%'` and `cpu.max="25000 100000"`
/// are read as without them.
fn without_quotes(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('=') {
        plain += before;
        plain.push('=');
        let quote = after.chars().next().filter(|first| matches!(first, '\'' | '"'));
        rest = after;
        if let Some(quote) = quote
            && let Some((value, behind)) = after[1..].split_once(quote)
        {
            plain += value;
            rest = behind;
        }
    }
    plain + rest
}

/// Returns a target as a variant has it: in quotes where it has blanks or the end of a clause in
/// it.
pub(crate) fn quoted_target(target: &str) -> Cow<'_, str> {
    match target.contains(|c: char| c.is_whitespace() || c == ';') {
        true => format!("\"{target}\"").into(),
        false => target.into(),
    }
}

/// `/a//b/` is the group `/a/b`.
fn without_slashes(target: &str) -> String {
    if !target.starts_with('/') {
        return target.to_owned();
    }
    let parts: Vec<&str> = target.split('/').filter(|part| !part.is_empty()).collect();
    format!("/{}", parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use schedlab_model::{Ns, Policy};

    #[test]
    fn reads_the_line_of_the_issue() {
        let variant =
            Variant::parse("NAME: TASK policy=idle nice=5 cpus=0-1 ; OTHER policy=fifo:1").unwrap();
        assert_eq!(variant.name, "NAME");
        assert_eq!(variant.clauses.len(), 2);
        assert_eq!(variant.clauses[0].settings.len(), 3);
        assert_eq!(
            variant.clauses[1].settings,
            [Setting::Task(TaskSetting::Policy(Policy::Fifo(1)))]
        );
    }

    #[test]
    fn a_limit_may_be_written_as_the_kernel_and_systemd_do() {
        for text in [
            "cpu.max=25ms/100ms",
            "cpu.max=25ms",
            "cpu.max=25%",
            "cpu.max=25000 100000",
            "cpu.max=25000",
            "cpu.max='25%'",
            "cpu.max=\"25%\"",
            "cpu.max='25000 100000'",
            "cpu.max=\"25000 100000\"",
        ] {
            let variant = Variant::parse(&format!("x: /g {text} cpu.weight=50")).unwrap();
            let Setting::Group(GroupSetting::Max(Some(limit))) = &variant.clauses[0].settings[0]
            else {
                panic!("{text}: {variant:?}")
            };
            assert_eq!((limit.quota, limit.period), (Ns::from_ms(25), Ns::from_ms(100)), "{text}");
            assert_eq!(variant.clauses[0].settings.len(), 2);
        }
        let half = Variant::parse("x: /g cpu.max=150%").unwrap();
        assert!(format!("{half:?}").contains("150000000"), "{half:?}");
        for text in ["cpu.max=max", "cpu.max=max 100000"] {
            let all = format!("{:?}", Variant::parse(&format!("x: /g {text}")).unwrap());
            assert!(all.contains("Max(None)"), "{text}: {all}");
        }
        assert!(
            Variant::parse("x: /g cpu.max=25%%").unwrap_err().to_string().contains("percentage")
        );
        assert!(
            Variant::parse("x: /g cpu.max=5").unwrap_err().to_string().contains("at least 1ms")
        );
    }

    #[test]
    fn a_name_is_no_syntax() {
        let target = |text: &str| {
            Variant::parse_named("x", text).map(|variant| variant.clauses[0].target.clone())
        };
        assert_eq!(target("\"a;b\" nice=1 ; c nice=2").unwrap(), "a;b");
        assert_eq!(target(&format!("{} nice=1", quoted_target("a; b"))).unwrap(), "a; b");
        let two = Variant::parse_named("x", "\"a b\" nice=1\n nice=2 ;\n\"c\" nice=3").unwrap();
        assert_eq!(
            (two.clauses.len(), two.clauses[0].settings.len()),
            (2, 2),
            "lines may end between settings"
        );
        for (text, part) in
            [("\"a\tb\" nice=1", r#"`"a\tb" nice=1`"#), ("a\u{202e} nice=1", r"`a\u{202e} nice=1`")]
        {
            let said = target(text).unwrap_err().to_string();
            assert_eq!(said, format!("{part} has a control character"));
        }
        let long =
            target(&format!("\"{}\u{7}\" nice=1", "x".repeat(70_000))).unwrap_err().to_string();
        assert!(long.chars().count() < 300, "{long}");
    }

    #[test]
    fn a_colon_in_a_value_is_not_a_name() {
        let variant = Variant::parse("redis policy=fifo:1").unwrap();
        assert_eq!(variant.name, "redis policy=fifo:1");
        assert_eq!(variant.clauses[0].target, "redis");
    }

    #[test]
    fn reads_every_setting() {
        let text = "x: /g cpu.max=50ms/100ms cpu.weight=200 cpu.idle=on cpus=0 ; t demand=x1.5 \
                    slice=3ms \
                    group=/g ; s rate=50% clients=3 ; u off ; scheduler a=b ; \"two words\" nice=-5";
        let variant = Variant::parse(text).unwrap();
        assert_eq!(variant.clauses[0].settings[1], Setting::Group(GroupSetting::Shares(2048)));
        assert_eq!(variant.clauses[1].settings[0], Setting::Task(TaskSetting::Demand(1500)));
        let [rate, clients] =
            [SourceSetting::Rate(500), SourceSetting::Clients(3)].map(Setting::Source);
        assert_eq!(variant.clauses[2].settings, [rate, clients]);
        assert_eq!(variant.clauses[3].settings, [Setting::Task(TaskSetting::Off)]);
        assert_eq!(variant.clauses[5].target, "two words");
        let pod = Variant::parse("k8s: pod redis requests.cpu=2 limits.cpu=off").unwrap();
        assert_eq!(pod.clauses[0].target, "pod redis");
        let pod = &pod.clauses[0].settings;
        let wanted = [PodSetting::Requests(2000), PodSetting::Limits(None)].map(Setting::Pod);
        assert_eq!(*pod, wanted);
        let task = Variant::parse("x: pod nice=5 policy=idle").unwrap();
        assert_eq!((task.clauses[0].target.as_str(), task.clauses[0].settings.len()), ("pod", 2));
    }

    #[test]
    fn refusals_teach() {
        for (text, part) in [
            ("x: ", "changes nothing"),
            ("x: yes", "changes nothing"),
            ("x: yes polisy=idle", "did you mean `policy`"),
            ("x: yes policy=idel", "use other, batch, idle"),
            ("x: yes nice=40", "-20 to 19"),
            ("x: yes demand=2", "x2 or x0.5"),
            ("x: policy=idle", "say first what"),
            ("x: /g cpu.mx=1ms", "did you mean `cpu.max`"),
            ("x: /g cpu.max=10us/100ms", "at least 1ms"),
            ("x: yes quickly", "KEY=VALUE"),
            ("x: pod redis requests.cpu=two", "such as 2, 0.5 or 500m"),
            ("x: pod redis request.cpu=2", "did you mean `requests.cpu`"),
            ("x: pod redis conversion=old", "linear"),
        ] {
            let error = Variant::parse(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
