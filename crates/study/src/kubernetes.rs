//! CPU requests and limits of Kubernetes, as the kubelet makes control groups of them
//! (pkg/kubelet/cm/helpers_linux.go, Kubernetes 1.35): requests become shares, limits a quota of
//! each period, and cgroup v2 gets a weight that is computed from the shares.

use schedlab_model::text::{decimal, scaled};
use schedlab_model::{Bandwidth, Ns};
use std::fmt;
use std::str::FromStr;

/// Shares of a whole CPU, and their bounds (`SharesPerCPU`, `MinShares`, `MaxShares`).
const SHARES: (u64, u64, u64) = (1024, 2, 262_144);

/// `QuotaPeriod`: the kubelet's default; `--cpu-cfs-quota-period` changes it.
pub const PERIOD: Ns = Ns::from_ms(100);

/// `MinQuotaPeriod`: the smallest quota.
const LEAST_QUOTA: Ns = Ns::from_ms(1);

/// Returns `2`, `0.5` or `500m` in thousandths of a CPU.
///
/// # Errors
/// What is allowed.
pub fn millicores(text: &str) -> Result<u64, String> {
    let milli = match text.strip_suffix('m') {
        Some(whole) => whole.parse().ok(),
        None => scaled(text, 3),
    };
    milli
        .filter(|milli| (1..=100_000_000).contains(milli))
        .ok_or_else(|| "must be CPUs such as 2, 0.5 or 500m (as in a manifest), or off".to_owned())
}

/// Returns thousandths of a CPU as a manifest has them: `2`, `500m`.
pub fn quantity(milli: u64) -> String {
    if milli.is_multiple_of(1000) { (milli / 1000).to_string() } else { format!("{milli}m") }
}

/// Returns thousandths of a CPU as people say them: `2`, `0.5`.
pub fn cpus(milli: u64) -> String {
    decimal(milli, 3)
}

/// Returns the shares of a request (`MilliCPUToShares`).
pub fn shares_of_request(milli: u64) -> u64 {
    (milli * SHARES.0 / 1000).clamp(SHARES.1, SHARES.2)
}

/// Returns the quota of a limit (`MilliCPUToQuota`).
pub fn quota_of_limit(milli: u64) -> Bandwidth {
    let quota = Ns(PERIOD.0 / 1000 * milli).max(LEAST_QUOTA);
    Bandwidth { quota, period: PERIOD, burst: Ns::ZERO }
}

/// Returns the limit of a quota, in thousandths of a CPU.
pub fn limit_of_quota(quota: &Bandwidth) -> u64 {
    quota.quota.0 * 1000 / quota.period.0.max(1)
}

/// What becomes of shares in a control group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Conversion {
    /// cgroup v1: nothing, `cpu.shares` is written.
    Shares,
    /// `cpu.weight` grows as shares do: kubelet before 1.35, runc before 1.3.2, crun before 1.23.
    Linear,
    /// `cpu.weight` is 100 for 1024 shares: kubelet from 1.35 on, runc from 1.3.2 on.
    Quadratic,
}

impl Conversion {
    /// All of them.
    pub const ALL: [Conversion; 3] =
        [Conversion::Quadratic, Conversion::Linear, Conversion::Shares];

    /// Returns its name in variants.
    pub const fn name(self) -> &'static str {
        match self {
            Conversion::Shares => "shares",
            Conversion::Linear => "linear",
            Conversion::Quadratic => "quadratic",
        }
    }

    /// Returns the `cpu.weight` of shares; `None`: cgroup v1 has none.
    pub fn weight(self, shares: u64) -> Option<u64> {
        let (_, least, most) = SHARES;
        let shares = shares.clamp(least, most);
        match self {
            Conversion::Shares => None,
            // KEP 2254: from 2 to 262144 into 1 to 10000.
            Conversion::Linear => Some(1 + (shares - least) * 9999 / (most - least)),
            // opencontainers/cgroups 0.0.4, utils.go: through (2, 1), (1024, 100), (262144, 10000).
            Conversion::Quadratic if shares == most => Some(10_000),
            Conversion::Quadratic => {
                let l = libm::log2(shares as f64);
                let exponent = (l * l + 125.0 * l) / 612.0 - 7.0 / 34.0;
                Some(libm::ceil(libm::pow(10.0, exponent)) as u64)
            }
        }
    }

    /// Returns the smallest shares that have at least this weight.
    pub fn shares_of_weight(self, weight: u64) -> u64 {
        let (_, mut low, mut high) = SHARES;
        while low < high {
            let middle = low.midpoint(high);
            match self.weight(middle).unwrap_or(middle) < weight {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        low
    }
}

impl FromStr for Conversion {
    type Err = String;

    fn from_str(text: &str) -> Result<Conversion, String> {
        Conversion::ALL.into_iter().find(|one| one.name() == text).ok_or_else(|| {
            "must be quadratic (kubelet from 1.35 on), linear (before), or shares (cgroup v1)"
                .to_owned()
        })
    }
}

impl fmt::Display for Conversion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_limits_as_the_kubelet_has_them() {
        for (text, milli) in [("2", 2000), ("0.5", 500), ("500m", 500), ("1.5", 1500), ("1m", 1)] {
            assert_eq!(millicores(text), Ok(milli), "{text}");
        }
        for text in ["", "0", "-1", "m", "1.5m", "two", "off", "1e9"] {
            assert!(millicores(text).is_err(), "{text}");
        }
        assert_eq!([2000, 1500].map(quantity), ["2", "1500m"]);
        assert_eq!([0, 1, 250, 1000, 1_000_000].map(shares_of_request), [2, 2, 256, 1024, 262_144]);
        let quotas = [5, 500, 2500].map(|milli| quota_of_limit(milli).quota);
        assert_eq!(quotas, [Ns::from_ms(1), Ns::from_ms(50), Ns::from_ms(250)]);
    }

    /// The values of both conversions that the documents and tests of runc, crun and Kubernetes
    /// name: 100m, 250m, one CPU, and the ends.
    #[test]
    fn weights_of_both_formulas() {
        let table =
            [(2, 1, 1), (102, 4, 17), (256, 10, 35), (1024, 39, 100), (262_144, 10_000, 10_000)];
        for (shares, linear, quadratic) in table {
            assert_eq!(Conversion::Linear.weight(shares), Some(linear), "{shares}");
            assert_eq!(Conversion::Quadratic.weight(shares), Some(quadratic), "{shares}");
        }
        assert_eq!(Conversion::Shares.weight(1024), None);
    }

    #[test]
    fn weights_lead_back_to_shares() {
        for conversion in [Conversion::Linear, Conversion::Quadratic] {
            let mut last = 0;
            for shares in (2..=262_144).step_by(37) {
                let weight = conversion.weight(shares).unwrap();
                assert!(weight >= last, "{conversion} {shares}");
                last = weight;
                let back = conversion.shares_of_weight(weight);
                assert!(back <= shares && conversion.weight(back) == Some(weight));
            }
        }
        assert_eq!(Conversion::Shares.shares_of_weight(512), 512);
    }
}
