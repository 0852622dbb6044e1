//! The time of a line, in each way in which tracers write it.

use memchr::memchr;

/// How a line writes its time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::import::text) enum Time {
    /// Seconds with decimals.
    Seconds,
    /// A whole number of an unknown clock (`trace_clock` x86-tsc, counter, uptime).
    Ticks,
    /// Microseconds since the start of the buffer (ftrace's `latency-format`).
    Microseconds,
}

/// So many digits are below 2^64 in any case.
const ALWAYS_FIT: usize = 19;

/// `123.456789:` with 1 to 9 decimals, `123456:`, `123us!:`.
pub(super) fn time(word: &str) -> Option<(u64, Time)> {
    let word = word.strip_suffix(':')?;
    let bytes = word.as_bytes();
    if !bytes.first()?.is_ascii_digit() {
        return None;
    }
    match memchr(b'.', bytes) {
        Some(point) => seconds(&bytes[..point], &bytes[point + 1..]).map(|at| (at, Time::Seconds)),
        None => {
            if let Some(at) = digits(bytes) {
                return Some((at, Time::Ticks));
            }
            // A mark of how long the gap is may follow: `+ ! # * @ $`
            // (Documentation/trace/ftrace.rst).
            let number =
                word.trim_end_matches(['+', '!', '#', '*', '@', '$']).strip_suffix("us")?;
            Some((digits(number.as_bytes())?.checked_mul(1000)?, Time::Microseconds))
        }
    }
}

pub(super) fn digits(bytes: &[u8]) -> Option<u64> {
    if bytes.is_empty() {
        return None;
    }
    if bytes.len() <= ALWAYS_FIT {
        let mut value = 0;
        for byte in bytes {
            let digit = byte.wrapping_sub(b'0');
            if digit > 9 {
                return None;
            }
            value = value * 10 + u64::from(digit);
        }
        return Some(value);
    }
    bytes.iter().try_fold(0u64, |value, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        value.checked_mul(10)?.checked_add(digit)
    })
}

pub(in crate::import::text) fn seconds(whole: &[u8], part: &[u8]) -> Option<u64> {
    const SCALE: [u64; 9] =
        [100_000_000, 10_000_000, 1_000_000, 100_000, 10_000, 1_000, 100, 10, 1];
    let scale = SCALE.get(part.len().checked_sub(1)?)?;
    digits(whole)?.checked_mul(1_000_000_000)?.checked_add(digits(part)? * scale)
}
