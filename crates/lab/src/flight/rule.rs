//! A rule: when something is an incident.

use crate::record::stop_conditions::{Word, condition, words};
use crate::record::{StopCondition, StretchKind};
use schedlab_model::Ns;
use std::fmt;
use std::str::FromStr;

/// Time over which a percentile is taken unless the rule says one.
const OVER: Ns = Ns::from_s(10);

/// Longest time over which a rule may look.
const LONGEST: Ns = Ns::from_s(3600);

/// When something is an incident.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Rule {
    /// One stretch of a task is too long.
    Stretch(StopCondition),
    /// A sum over several is.
    Window(WindowRule),
}

/// A rule about all waits of a server within a time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WindowRule {
    /// Whose waits; `None`: any task's but the recorder's.
    pub server: Option<String>,
    /// What is compared.
    pub figure: Figure,
    /// The limit.
    pub limit: Ns,
    /// The time; zero: each wait by itself.
    pub over: Ns,
}

/// What a [`WindowRule`] compares.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Figure {
    /// A percentile of the waits, in millionths.
    Percentile(u32),
    /// The time for which limits held tasks back.
    Throttled,
}

impl Figure {
    /// Returns the waits from which on the figure counts: below, a percentile is the longest of
    /// them.
    pub fn least(self) -> u64 {
        match self {
            Figure::Percentile(part) => 1_000_000u64.div_ceil(u64::from(1_000_000 - part).max(1)),
            Figure::Throttled => 0,
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rule = match self {
            Rule::Stretch(condition) => return condition.fmt(f),
            Rule::Window(rule) => rule,
        };
        let server = rule.server.as_deref().unwrap_or("any task");
        match rule.figure {
            Figure::Percentile(part) => {
                write!(f, "{server} wait p{} > {}", f64::from(part) / 1e4, rule.limit)?;
            }
            Figure::Throttled => write!(f, "{server} throttled > {}", rule.limit)?,
        }
        if rule.over > Ns::ZERO { write!(f, " over {}", rule.over) } else { Ok(()) }
    }
}

impl FromStr for Rule {
    type Err = String;

    fn from_str(text: &str) -> Result<Rule, String> {
        parse(text).map_err(|what| {
            format!(
                "'{text}': {what}. Write [SERVER] wait|run|block > TIME, [SERVER] wait p99 > TIME \
                 over TIME, or [SERVER] throttled > TIME over TIME"
            )
        })
    }
}

fn parse(text: &str) -> Result<Rule, String> {
    let words = words(text)?;
    let end = words.iter().position(|word| word.is("over")).unwrap_or(words.len());
    let (head, over) = words.split_at(end);
    let over = match over {
        [] => None,
        [_, time @ ..] => Some(self::time(time, "after `over`")?),
    };
    let at = head.iter().position(|word| word.is(">"));
    let (before, limit) = at.map_or((head, head), |at| (&head[..at], &head[at + 1..]));
    let figure = figure(before)?;
    let Some((figure, server)) = figure.filter(|_| at.is_some()) else {
        if over.is_some() {
            return Err(
                "`over` goes with a percentile or with throttled: a wait, run or block is \
                        one stretch"
                    .to_owned(),
            );
        }
        return condition(head).map(Rule::Stretch);
    };
    let limit = time(limit, "after `>`")?;
    let over = match (figure, over) {
        (Figure::Percentile(_), None) => OVER,
        (Figure::Throttled, None) => Ns::ZERO,
        (_, Some(over)) if over > LONGEST || over == Ns::ZERO => {
            return Err(format!("over {over}: more than 0 and at most {LONGEST}"));
        }
        (_, Some(over)) => over,
    };
    Ok(Rule::Window(WindowRule { server, figure, limit, over }))
}

/// Returns what is compared, and of which server; `None`: it is about one stretch.
fn figure(before: &[Word]) -> Result<Option<(Figure, Option<String>)>, String> {
    let (figure, rest) = match before {
        [rest @ .., measure, word] if percentile(word).is_some() => {
            let is_wait = StretchKind::named(&measure.text) == Some(StretchKind::Wait);
            if measure.quoted || !is_wait {
                return Err(format!("`{}`: percentiles are of waits", word.text));
            }
            (percentile(word).map(Figure::Percentile), rest)
        }
        [rest @ .., word] if word.is("throttled") => (Some(Figure::Throttled), rest),
        _ => return Ok(None),
    };
    let server = match rest {
        [] => None,
        [one] => Some(one.text.clone()).filter(|name| name != "*" && name != "any"),
        _ => return Err("a name with blanks is written in quotes".to_owned()),
    };
    Ok(figure.map(|figure| (figure, server)))
}

/// Returns the percentile that a word such as `p99.9` names, in millionths.
fn percentile(word: &Word) -> Option<u32> {
    let digits = word.text.strip_prefix('p').filter(|_| !word.quoted)?;
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let part: f64 = digits.parse().ok().filter(|_| is_number)?;
    (part > 0.0 && part < 100.0).then_some((part * 1e4).round() as u32)
}

fn time(words: &[Word], place: &str) -> Result<Ns, String> {
    if words.is_empty() {
        return Err(format!("{place} a time is missing"));
    }
    let text: String = words.iter().map(|word| word.text.as_str()).collect();
    text.parse::<Ns>().map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read_and_printed() {
        let window = |text: &str| match text.parse::<Rule>().unwrap() {
            Rule::Window(rule) => rule,
            Rule::Stretch(other) => panic!("{other:?}"),
        };
        let rule = window("postgresql.service wait p99 > 5ms over 20s");
        assert_eq!(rule.server.as_deref(), Some("postgresql.service"));
        assert_eq!((rule.limit, rule.over), (Ns::from_ms(5), Ns::from_s(20)));
        assert_eq!((rule.figure, rule.figure.least()), (Figure::Percentile(990_000), 100));
        assert_eq!(window("wait p99.9 > 1 ms").figure, Figure::Percentile(999_000));
        assert_eq!(window("wait p50>1ms").over, OVER);
        assert_eq!(window("pod:1f9a throttled > 20ms").over, Ns::ZERO);
        assert!(matches!("redis wait > 10ms".parse(), Ok(Rule::Stretch(_))));
        // A program may be called like a percentile.
        assert!(matches!("'p99' wait > 10ms".parse(), Ok(Rule::Stretch(_))));
        for text in [
            "redis-server waited > 10.0ms",
            "any task wait p99.9 > 5.00ms over 10.0s",
            "/x throttled > 20.0ms over 1.00s",
        ] {
            let rule: Rule =
                text.replace("any task ", "").replace("waited", "wait").parse().unwrap();
            assert_eq!(rule.to_string(), text);
        }
    }

    #[test]
    fn what_cannot_be_is_refused_with_the_grammar() {
        for (text, says) in [
            ("redis wait > 10ms over 1s", "`over` goes with"),
            ("redis run p99 > 1ms", "percentiles are of waits"),
            ("redis wait p99 > over 1s", "after `>` a time is missing"),
            ("redis wait p99 > 1ms over", "after `over` a time is missing"),
            ("redis wait p99 > 1ms over 2h", "at most"),
            ("a b throttled > 1ms", "in quotes"),
            ("redis wait", "no `>`"),
            ("redis wait p99", "no `>`"),
        ] {
            let error = text.parse::<Rule>().unwrap_err();
            assert!(error.contains(says) && error.contains("[SERVER]"), "{text}: {error}");
        }
    }
}
