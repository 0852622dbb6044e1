//! What the options of several commands have in common.

use anyhow::{Context as _, anyhow, bail};
use schedlab_host::StopSignal;
use schedlab_model::Ns;

/// Installs the handler of Ctrl-C: the command ends early, and what it changed is put back.
pub(crate) fn stop_signal() -> anyhow::Result<StopSignal> {
    StopSignal::install().context("cannot catch Ctrl-C")
}

/// Refuses rounds of live commands that are too short to say anything.
pub(crate) fn long_enough(option: &str, round: Ns) -> anyhow::Result<()> {
    if round < Ns::from_ms(100) {
        bail!("{option} {round}: a round has 100 ms at least");
    }
    Ok(())
}

/// Returns the numbers of a list such as `2,4,8`, or of `2..1024` (powers of two times the first).
pub(crate) fn numbers(option: &str, text: &str, most: u32) -> anyhow::Result<Vec<u32>> {
    let advice =
        || format!("{option} {text}: give numbers from 1 to {most}, such as 2,4,8 or 2..1024");
    let number = |text: &str| -> anyhow::Result<u32> {
        let number: u32 = text.trim().parse().map_err(|_| anyhow!(advice()))?;
        if number == 0 || number > most {
            bail!(advice());
        }
        Ok(number)
    };
    let Some((low, high)) = text.split_once("..") else {
        return text.split(',').map(number).collect();
    };
    let (low, high) = (number(low)?, number(high)?);
    if low > high {
        bail!(advice());
    }
    Ok(std::iter::successors(Some(low), |n| n.checked_mul(2)).take_while(|n| *n <= high).collect())
}
