//! Student's t: what a difference of means must exceed, in standard errors.

use statrs::distribution::{ContinuousCDF, StudentsT};

/// Returns the two-sided critical value of Student's t with `freedom` degrees of freedom (at least
/// 1), when each of `numbers` comparisons gets an equal part of `error` (Bonferroni).
pub fn t_critical(error: f64, numbers: usize, freedom: f64) -> f64 {
    let tail = error / numbers.max(1) as f64 / 2.0;
    // A standard t has location 0 and scale 1; a freedom that is not a number (no variance at all)
    // counts as 1.
    let freedom = if freedom.is_nan() { 1.0 } else { freedom.max(1.0) };
    StudentsT::new(0.0, 1.0, freedom).map_or(f64::INFINITY, |t| -t.inverse_cdf(tail))
}

/// Returns the sample variance (n - 1 in the denominator), and 0 for fewer than two values.
pub fn variance(values: impl Iterator<Item = f64>) -> f64 {
    let values: Vec<f64> = values.collect();
    let count = values.len() as f64;
    if count < 2.0 {
        return 0.0;
    }
    let mean = values.iter().sum::<f64>() / count;
    values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0)
}

/// Returns the degrees of freedom of a difference of two means by Welch (1947), from the variance
/// of each mean and the number of values behind it. `None`: both variances are 0.
pub fn welch_freedom(variances: [f64; 2], counts: [usize; 2]) -> Option<f64> {
    let [a, b] = counts.map(|count| count as f64 - 1.0);
    let [va, vb] = variances;
    (va + vb > 0.0).then(|| (va + vb).powi(2) / (va * va / a + vb * vb / b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn critical_values_are_those_of_the_tables() {
        // Two-sided 5 %, and 0.1 % for 50 numbers.
        for (numbers, freedom, table) in [
            (1, 39.0, 2.0227),
            (50, 39.0, 3.5581),
            (1, 8.0, 2.3060),
            (50, 8.0, 5.0413),
            (1, 4.0, 2.7764),
            (50, 4.0, 8.6103),
            (1, 1.0, 12.7062),
            (50, 1.0, 636.62),
        ] {
            let found = t_critical(0.05, numbers, freedom);
            assert!(
                (found / table - 1.0).abs() < 5e-5,
                "{numbers}, {freedom}: {found}, not {table}"
            );
        }
        // 1 in 10,000 with four degrees of freedom: where an expansion around the normal
        // distribution is 3 % off.
        assert!((t_critical(1e-4, 1, 4.0) / 15.544 - 1.0).abs() < 1e-4);
    }

    #[test]
    fn freedom_is_welchs() {
        assert_eq!(welch_freedom([2.0, 2.0], [6, 6]), Some(10.0));
        assert_eq!(welch_freedom([2.0, 0.0], [6, 6]), Some(5.0));
        assert_eq!(welch_freedom([0.0, 0.0], [6, 6]), None);
    }

    #[test]
    fn variance_has_one_degree_of_freedom_less() {
        assert_eq!(variance([1.0, 2.0, 3.0, 4.0].into_iter()), 5.0 / 3.0);
        assert_eq!(variance([7.0].into_iter()), 0.0);
    }
}
