//! Time as integer nanoseconds. No floating point, no wall clock.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Div, Mul, Rem, Sub, SubAssign};
use std::str::FromStr;

/// Nanoseconds: an instant since the start of a run, or a duration. Range 0 … 584 years.
#[derive(
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Debug,
    Default,
    JsonSchema,
    Serialize,
    Deserialize,
)]
#[serde(transparent)]
pub struct Ns(pub u64);

impl Ns {
    /// Zero nanoseconds.
    pub const ZERO: Ns = Ns(0);
    /// The largest instant; used for "never".
    pub const MAX: Ns = Ns(u64::MAX);

    /// `us` microseconds.
    pub const fn from_us(us: u64) -> Ns {
        Ns(us * 1_000)
    }
    /// `ms` milliseconds.
    pub const fn from_ms(ms: u64) -> Ns {
        Ns(ms * 1_000_000)
    }
    /// `s` seconds.
    pub const fn from_s(s: u64) -> Ns {
        Ns(s * 1_000_000_000)
    }
    /// `self - other`, or zero when `other` is larger.
    #[inline]
    pub const fn saturating_sub(self, other: Ns) -> Ns {
        Ns(self.0.saturating_sub(other.0))
    }
    /// `self + other`, or [`Ns::MAX`] on overflow.
    #[inline]
    pub const fn saturating_add(self, other: Ns) -> Ns {
        Ns(self.0.saturating_add(other.0))
    }
    /// `self - other`, or `None` when `other` is larger.
    #[inline]
    pub const fn checked_sub(self, other: Ns) -> Option<Ns> {
        match self.0.checked_sub(other.0) {
            Some(ns) => Some(Ns(ns)),
            None => None,
        }
    }

    /// Returns the time to the nanosecond, in the largest unit that gives a whole number: `1500us`,
    /// `2s`, `0ns`.
    pub fn exact(self) -> String {
        let fits = |unit: &&(u64, &str)| self.0 > 0 && self.0.is_multiple_of(unit.0);
        let units = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")];
        let (size, name) = units.iter().find(fits).copied().unwrap_or((1, "ns"));
        format!("{}{name}", self.0 / size)
    }
}

impl Add for Ns {
    type Output = Ns;
    #[inline]
    fn add(self, other: Ns) -> Ns {
        Ns(self.0 + other.0)
    }
}
impl AddAssign for Ns {
    #[inline]
    fn add_assign(&mut self, other: Ns) {
        self.0 += other.0;
    }
}
impl Sub for Ns {
    type Output = Ns;
    #[inline]
    fn sub(self, other: Ns) -> Ns {
        debug_assert!(self.0 >= other.0, "time went back: {} - {}", self.0, other.0);
        Ns(self.0 - other.0)
    }
}
impl SubAssign for Ns {
    #[inline]
    fn sub_assign(&mut self, other: Ns) {
        *self = *self - other;
    }
}
impl Mul<u64> for Ns {
    type Output = Ns;
    #[inline]
    fn mul(self, factor: u64) -> Ns {
        Ns(self.0 * factor)
    }
}
impl Div<u64> for Ns {
    type Output = Ns;
    #[inline]
    fn div(self, divisor: u64) -> Ns {
        Ns(self.0 / divisor)
    }
}
impl Rem<Ns> for Ns {
    type Output = Ns;
    #[inline]
    fn rem(self, other: Ns) -> Ns {
        Ns(self.0 % other.0)
    }
}
impl Sum for Ns {
    fn sum<I: Iterator<Item = Ns>>(iter: I) -> Ns {
        iter.fold(Ns::ZERO, Add::add)
    }
}

/// Prints three significant digits with the unit that fits: `999ns`, `12.3us`, `4.00ms`, `1.50s`.
impl fmt::Display for Ns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, name) = match self.0 {
            0..1_000 => return f.pad(&format!("{}ns", self.0)),
            1_000..1_000_000 => (1_000, "us"),
            1_000_000..1_000_000_000 => (1_000_000, "ms"),
            _ => (1_000_000_000, "s"),
        };
        let decimals = match self.0 / unit {
            0..10 => 2,
            10..100 => 1,
            _ => 0,
        };
        let scale = 10u64.pow(decimals);
        let scaled =
            (u128::from(self.0) * u128::from(scale) + u128::from(unit) / 2) / u128::from(unit);
        let (whole, part) = (scaled / u128::from(scale), scaled % u128::from(scale));
        if decimals == 0 {
            f.pad(&format!("{whole}{name}"))
        } else {
            f.pad(&format!("{whole}.{part:0width$}{name}", width = decimals as usize))
        }
    }
}

/// Why a text is not a time.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NsError {
    /// No unit, or an unknown one.
    #[error(
        "`{0}` is not a time: write a number and a unit, one of ns, us, ms, s, m, h (such as \
         \"30ms\")"
    )]
    Unit(String),
    /// A sign in front.
    #[error("`{0}` is negative: a time is 0 or more, such as \"30ms\"")]
    Negative(String),
    /// Not a decimal number, finer than 1 ns, or larger than 584 years.
    #[error(
        "`{0}` is not a time: the number must be decimal, in whole nanoseconds, below 500 years"
    )]
    Number(String),
}

/// Reads `"30ms"`, `"1.5us"`, `"250ns"`, `"2s"`, `"10m"`, `"1h"`. `µs` is accepted for `us`.
impl FromStr for Ns {
    type Err = NsError;

    fn from_str(text: &str) -> Result<Ns, NsError> {
        let trimmed = text.trim();
        if trimmed.starts_with('-') {
            return Err(NsError::Negative(text.to_owned()));
        }
        let split = trimmed.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '_'));
        let (number, unit) = trimmed.split_at(split.ok_or_else(|| NsError::Unit(text.to_owned()))?);
        let scale: u64 = match unit.trim() {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" | "min" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return Err(NsError::Unit(text.to_owned())),
        };
        decimal(&number.replace('_', ""), scale)
            .map(Ns)
            .ok_or_else(|| NsError::Number(text.to_owned()))
    }
}

/// `number` (digits with at most one point) times `scale`, exactly, or `None`.
fn decimal(number: &str, scale: u64) -> Option<u64> {
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && part.is_empty() {
        return None;
    }
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let mut total = u128::from(whole) * u128::from(scale);
    let mut place = u128::from(scale);
    for digit in part.chars() {
        let digit = digit.to_digit(10)?;
        if place % 10 != 0 && digit != 0 {
            return None;
        }
        place /= 10;
        total += u128::from(digit) * place;
    }
    u64::try_from(total).ok().filter(|&ns| ns < u64::MAX / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_every_unit() {
        for (text, ns) in [
            ("250ns", 250),
            ("1.5us", 1_500),
            ("30ms", 30_000_000),
            ("2s", 2_000_000_000),
            ("10m", 600_000_000_000),
            ("0.7 ms", 700_000),
        ] {
            assert_eq!(text.parse(), Ok(Ns(ns)), "{text}");
        }
    }

    #[test]
    fn refuses_what_is_not_a_time() {
        for text in
            ["", "30", "ms", "-1ms", "1.2.3ms", "0.1ns", "3 parsecs", "99999999999999999999s"]
        {
            assert!(text.parse::<Ns>().is_err(), "{text}");
        }
    }

    #[test]
    fn prints_three_digits() {
        for (ns, text) in [(0, "0ns"), (999, "999ns"), (12_345, "12.3us"), (4_000_000, "4.00ms")] {
            assert_eq!(Ns(ns).to_string(), text);
        }
        assert_eq!(Ns::from_ms(1_500).to_string(), "1.50s");
        assert_eq!(format!("{:>8}", Ns(5)), "     5ns");
    }
}
