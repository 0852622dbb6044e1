//! Lengths and distributions as text: `3us`, `exp 1ms`, `uniform 1ms..20ms`,
//! `mix 99.5% 4us, 0.5% 10ms`.

use schedlab_model::text::nearest;
use schedlab_model::text::{decimal, scaled};
use schedlab_model::{Draw, Ns, NsError};

/// How messages show what is allowed.
const FORMS: &str = "\"3us\", \"exp 1ms\", \"uniform 1ms..20ms\", \"lognormal 1ms sigma 0.5\", \
                     \"mix 99.5% 4us, 0.5% 10ms\", \"cycle 1ms, 2ms\", \"any 1ms, 2ms\"";
const WORDS: [&str; 7] = ["exp", "uniform", "lognormal", "mix", "cycle", "any", "splitmix"];

/// Reads a length or a distribution. The error says what is allowed.
pub fn parse_draw(text: &str) -> Result<Draw, String> {
    let text = text.trim();
    let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let rest = rest.trim();
    match word {
        "exp" => Ok(Draw::Exponential { mean: positive(rest)? }),
        "uniform" => uniform(rest),
        "lognormal" => log_normal(rest),
        "mix" => mix(rest),
        "cycle" => Ok(Draw::Cycle(times(rest)?)),
        "any" => Ok(Draw::Empirical(times(rest)?)),
        "splitmix" => split_mix(rest),
        _ if text.starts_with(|c: char| c.is_ascii_digit() || c == '.' || c == '-') => {
            Ok(Draw::Fixed(time(text)?))
        }
        _ => {
            let hint = nearest(word, WORDS.into_iter()).map(|w| format!("did you mean `{w}`? "));
            Err(format!("`{text}` is not a length: {}write {FORMS}", hint.unwrap_or_default()))
        }
    }
}

fn time(text: &str) -> Result<Ns, String> {
    text.parse().map_err(|error: NsError| error.to_string())
}

fn positive(text: &str) -> Result<Ns, String> {
    match time(text)? {
        Ns::ZERO => Err("the mean must be longer than 0, such as \"exp 1ms\"".to_owned()),
        mean => Ok(mean),
    }
}

fn times(text: &str) -> Result<Vec<Ns>, String> {
    text.split(',').map(|part| time(part.trim())).collect()
}

fn uniform(text: &str) -> Result<Draw, String> {
    let (low, high) =
        text.split_once("..").ok_or("write \"uniform 1ms..20ms\", the ends included")?;
    let (low, high) = (time(low)?, time(high)?);
    if low > high {
        return Err(format!(
            "\"uniform {text}\": the first end must not be larger than the second"
        ));
    }
    Ok(Draw::Uniform { low, high })
}

fn log_normal(text: &str) -> Result<Draw, String> {
    let form = "write \"lognormal MEDIAN sigma S\", such as \"lognormal 1ms sigma 0.5\" (S from \
                0.001 to 10)";
    let (median, sigma) = text.split_once("sigma").ok_or(form)?;
    let sigma_permille =
        scaled(sigma.trim(), 3).filter(|s| (1..=10_000).contains(s)).ok_or(form)?;
    Ok(Draw::LogNormal { median: time(median)?, sigma_permille: sigma_permille as u32 })
}

fn mix(text: &str) -> Result<Draw, String> {
    let mut parts = Vec::new();
    for part in text.split(',') {
        let form = || format!("`{}`: write each part of a mix as \"PERCENT% LENGTH\"", part.trim());
        let (percent, rest) = part.trim().split_once('%').ok_or_else(form)?;
        let weight =
            scaled(percent.trim(), 3).filter(|w| (1..=100_000).contains(w)).ok_or_else(form)?;
        if rest.trim().starts_with("mix") {
            return Err("a mix inside a mix: write all parts in one list".to_owned());
        }
        parts.push((weight as u32, parse_draw(rest)?));
    }
    let sum: u32 = parts.iter().map(|(weight, _)| weight).sum();
    if sum != 100_000 {
        let sum = f64::from(sum) / 1000.0;
        return Err(format!(
            "the parts of \"mix {text}\" add up to {sum}%, they must add up to 100%"
        ));
    }
    Ok(Draw::Mix(parts))
}

fn split_mix(text: &str) -> Result<Draw, String> {
    let (low, span) = text.split_once("span").ok_or("write \"splitmix LOW span SPAN\"")?;
    Ok(Draw::SplitMix { low: time(low)?, span: positive(span.trim())? })
}

/// The text that [`parse_draw`] reads as `draw`.
pub fn show_draw(draw: &Draw) -> String {
    let list = |values: &[Ns]| values.iter().map(|ns| ns.exact()).collect::<Vec<_>>().join(", ");
    match draw {
        Draw::Fixed(length) => length.exact(),
        Draw::Exponential { mean } => format!("exp {}", mean.exact()),
        Draw::Uniform { low, high } => format!("uniform {}..{}", low.exact(), high.exact()),
        Draw::LogNormal { median, sigma_permille } => {
            format!("lognormal {} sigma {}", median.exact(), decimal(u64::from(*sigma_permille), 3))
        }
        Draw::Mix(parts) => {
            let sum: u64 = parts.iter().map(|(weight, _)| u64::from(*weight)).sum();
            // Scenarios have weights of thousandths of a per cent.
            let part = |(weight, draw): &(u32, Draw)| {
                format!(
                    "{}% {}",
                    decimal(u64::from(*weight) * 100_000 / sum.max(1), 3),
                    show_draw(draw)
                )
            };
            format!("mix {}", parts.iter().map(part).collect::<Vec<_>>().join(", "))
        }
        Draw::Cycle(values) => format!("cycle {}", list(values)),
        Draw::Empirical(values) => format!("any {}", list(values)),
        Draw::SplitMix { low, span } => format!("splitmix {} span {}", low.exact(), span.exact()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_every_form() {
        assert_eq!(parse_draw("3us"), Ok(Draw::Fixed(Ns(3000))));
        assert_eq!(parse_draw("exp 1ms"), Ok(Draw::Exponential { mean: Ns::from_ms(1) }));
        let (low, high) = (Ns::from_ms(1), Ns::from_ms(20));
        assert_eq!(parse_draw("uniform 1ms..20ms"), Ok(Draw::Uniform { low, high }));
        let log = Draw::LogNormal { median: Ns::from_ms(1), sigma_permille: 500 };
        assert_eq!(parse_draw("lognormal 1ms sigma 0.5"), Ok(log.clone()));
        let mix = vec![
            (99_500, Draw::Fixed(Ns(4000))),
            (500, Draw::Exponential { mean: Ns::from_ms(10) }),
        ];
        assert_eq!(parse_draw("mix 99.5% 4us, 0.5% exp 10ms"), Ok(Draw::Mix(mix)));
        assert_eq!(
            parse_draw("cycle 1ms, 2ms"),
            Ok(Draw::Cycle(vec![Ns::from_ms(1), Ns::from_ms(2)]))
        );
        for draw in [&log, &Draw::Mix(vec![(99_500, Draw::Fixed(Ns(4001))), (500, log.clone())])] {
            assert_eq!(parse_draw(&show_draw(draw)).as_ref(), Ok(draw));
        }
        let split = Draw::SplitMix { low: Ns::from_ms(1), span: Ns::from_ms(19) };
        assert_eq!(parse_draw("splitmix 1ms span 19ms"), Ok(split));
    }

    #[test]
    fn teaches_what_is_allowed() {
        for (text, part) in [
            ("expo 1ms", "did you mean `exp`"),
            ("30", "a number and a unit"),
            ("-3us", "negative"),
            ("uniform 5ms..1ms", "must not be larger"),
            ("mix 50% 1ms, 40% 2ms", "add up to 90%"),
            ("exp 0ms", "longer than 0"),
            ("", "not a length"),
        ] {
            let error = parse_draw(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn scales_decimals_exactly() {
        assert_eq!(scaled("99.5", 3), Some(99_500));
        assert_eq!(scaled(".5", 3), Some(500));
        for bad in ["", ".", "1.2345", "-1", "1e3", "x"] {
            assert_eq!(scaled(bad, 3), None, "{bad}");
        }
    }
}
