//! The lines that cyclictest shows while it measures.

use schedlab_measure::LatencyLine;
use schedlab_model::Policy;

/// Returns a line for each thread as cyclictest prints it; times in microseconds.
pub(super) fn lines(lines: &[LatencyLine], policy: Policy) -> String {
    let priority = match policy {
        Policy::Fifo(priority) | Policy::Rr(priority) => priority,
        _ => 0,
    };
    let line = |(index, line): (usize, &LatencyLine)| {
        let us = |ns: u64| ns / 1000;
        format!(
            "T:{index:2} ({:5}) P:{priority:2} I:{} C:{:7} Min:{:7} Act:{:5} Avg:{:5} Max:{:8}",
            line.tid,
            us(line.interval.0),
            line.count,
            us(line.min),
            us(line.last),
            us(line.mean),
            us(line.max)
        )
    };
    lines.iter().enumerate().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use schedlab_model::Ns;

    #[test]
    fn lines_look_like_those_of_cyclictest() {
        let interval = Ns::from_ms(1);
        let line = LatencyLine {
            tid: 4711,
            interval,
            count: 1000,
            min: 2_900,
            last: 8_000,
            mean: 7_000,
            max: 93_000,
        };
        assert_eq!(
            lines(&[line], Policy::Fifo(49)),
            "T: 0 ( 4711) P:49 I:1000 C:   1000 Min:      2 Act:    8 Avg:    7 Max:      93"
        );
    }

    /// The numbers of a line that cyclictest printed give that line again.
    #[test]
    #[allow(clippy::print_stderr)] // a test that is skipped says its name
    fn lines_are_those_of_the_cyclictest_that_is_installed() {
        let ran = std::process::Command::new("cyclictest")
            .args([
                "-q",
                "-t2",
                "-i",
                "1000",
                "-d",
                "500",
                "-l",
                "20",
                "--policy=other",
                "--default-system",
            ])
            .output();
        let printed =
            ran.map(|out| String::from_utf8_lossy(&out.stdout).into_owned()).unwrap_or_default();
        let theirs: Vec<&str> = printed.lines().filter(|line| line.starts_with("T:")).collect();
        if theirs.is_empty() {
            assert!(
                std::env::var("CI").map_or(true, |ci| ci != "true"),
                "CI installs rt-tests (.ci/run)"
            );
            eprintln!("SKIPPED: no cyclictest here");
            return;
        }
        for line in theirs {
            let number = |name: &str| -> u64 {
                let rest = line.split_once(name).unwrap_or_else(|| panic!("no {name} in {line}")).1;
                let digits = rest.trim_start_matches([' ', '(']);
                digits.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
            };
            let line_again = LatencyLine {
                tid: line.split_once('(').map(|_| number("(") as u32).unwrap(),
                interval: Ns::from_us(number("I:")),
                count: number("C:"),
                min: number("Min:") * 1000,
                last: number("Act:") * 1000,
                mean: number("Avg:") * 1000,
                max: number("Max:") * 1000,
            };
            let index = number("T:") as usize;
            let all = vec![line_again; index + 1];
            let text = lines(&all, Policy::Other);
            assert_eq!(text.lines().last().unwrap().trim_end(), line.trim_end());
        }
    }
}
