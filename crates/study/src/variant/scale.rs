//! Lengths and distributions of lengths, times a factor.

use schedlab_model::{Draw, Ns};

/// Returns `by` / `of` of a length.
pub(super) fn scale(ns: Ns, by: u64, of: u64) -> Ns {
    Ns(u64::try_from(u128::from(ns.0) * u128::from(by) / u128::from(of)).unwrap_or(u64::MAX / 2))
}

/// Multiplies every length by `by` / `of`.
pub(super) fn scale_draw(draw: &mut Draw, by: u64, of: u64) {
    match draw {
        Draw::Fixed(ns) | Draw::Exponential { mean: ns } | Draw::LogNormal { median: ns, .. } => {
            *ns = scale(*ns, by, of);
        }
        Draw::Uniform { low, high } => (*low, *high) = (scale(*low, by, of), scale(*high, by, of)),
        Draw::Mix(parts) => parts.iter_mut().for_each(|(_, part)| scale_draw(part, by, of)),
        Draw::Cycle(values) | Draw::Empirical(values) => {
            values.iter_mut().for_each(|value| *value = scale(*value, by, of));
        }
        Draw::SplitMix { low, span } => (*low, *span) = (scale(*low, by, of), scale(*span, by, of)),
    }
}
