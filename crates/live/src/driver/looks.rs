//! How often a supervisor looks at everything.

use schedlab_model::Ns;

/// When a supervisor writes the status file and looks at every thread and request: ten times a
/// second, and less often where that would be more than a tenth of a CPU. It has a real-time
/// priority: on a slow machine, or with many threads, the fair class of its CPU would starve, and a
/// kernel with a fair server takes the CPU from the agent, too, for 50 ms of a second (seen in a
/// guest whose CPUs are emulated).
#[derive(Clone, Copy, Debug, Default)]
pub struct Looks {
    began: Ns,
    /// CPU time.
    used: Ns,
}

impl Looks {
    const EVERY: Ns = Ns::from_ms(100);
    /// Who asks by `schedlab detach` waits for no longer.
    const AT_MOST: Ns = Ns::from_ms(1_000);
    /// The part of a CPU: one of so many.
    const PART: u64 = 10;

    /// Returns whether it is time to.
    pub fn is_due(&self, now: Ns) -> bool {
        let pause = Ns(self.used.0.saturating_mul(Looks::PART)).clamp(Looks::EVERY, Looks::AT_MOST);
        now.saturating_sub(self.began) >= pause
    }

    /// Notes a look that used so much CPU time.
    pub fn looked(&mut self, began: Ns, used: Ns) {
        *self = Looks { began, used };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_that_takes_long_is_taken_less_often() {
        let ms = Ns::from_ms;
        let mut looks = Looks::default();
        assert!(!looks.is_due(ms(99)) && looks.is_due(ms(100)));
        looks.looked(ms(1_000), ms(2));
        assert!(!looks.is_due(ms(1_099)) && looks.is_due(ms(1_100)));
        looks.looked(ms(2_000), ms(45));
        assert!(!looks.is_due(ms(2_449)) && looks.is_due(ms(2_450)));
        looks.looked(ms(3_000), ms(1_000));
        assert!(!looks.is_due(ms(3_999)) && looks.is_due(ms(4_000)), "a second at most");
    }
}
