//! `disturb --answers N -- schedlab colocate ... --json`: what `colocate` answers beside a
//! disturber, N times with other stalls. The right answer is known beforehand (`--right`: settings
//! of which each meets the goal, where the default does not); the only other answer that is no
//! fault is that it cannot be told (exit code 3).

use super::{DisturbArgs, Disturbed, beside, wait};
use anyhow::{Context, Result, ensure};
use schedlab_model::CpuId;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// A run that takes longer is ended, unless `--for` says something else.
const LIMIT: Duration = Duration::from_secs(600);
/// The exit codes of a `colocate` that has an answer, and of one that cannot tell.
const ANSWERED: i32 = 0;
const CANNOT_TELL: i32 = 3;

/// What is asked about the answers; no times: nothing.
#[derive(clap::Args, Clone, Debug)]
pub(super) struct Asked {
    /// Run the command, a `schedlab colocate ... --json`, so many times beside other stalls, and
    /// judge the answers
    #[arg(long = "answers", value_name = "N", default_value_t = 0)]
    pub(super) times: u32,
    /// The settings that are right, such as idle,group-idle; the only other good answer is that it
    /// cannot be told
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(super) right: Vec<String>,
    /// The first line on how a setting does comes within this
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = crate::stress::time)]
    pub(super) within: Duration,
}

impl Asked {
    /// Refuses what does not go together.
    pub(super) fn check(&self, command: &[String]) -> Result<()> {
        if self.times == 0 {
            ensure!(
                self.right.is_empty(),
                "--right is about the answers of colocate: give --answers N, 1 or more"
            );
            return Ok(());
        }
        ensure!(
            command.iter().any(|word| word == "--json"),
            "--answers reads the result of `schedlab colocate ... --json`: the command has no \
             --json"
        );
        ensure!(
            !self.right.is_empty(),
            "--answers needs --right: the settings that are right, such as idle,group-idle"
        );
        Ok(())
    }
}

/// What one run said.
#[derive(Debug)]
struct Answer {
    /// `None`: it was ended after its time.
    status: Option<ExitStatus>,
    /// When the first line came that is an answer for the time being.
    first: Option<Duration>,
    took: Duration,
    result: Option<Value>,
    /// The end of standard error.
    said: Vec<String>,
}

/// Returns whether a line of progress says how a setting does so far.
fn is_useful(line: &str) -> bool {
    line.contains("so far: ") && !line.contains(" is not tried: ")
}

/// Returns what an answer is worth: the words for the table, or a fault.
fn judge(answer: &Answer, asked: &Asked) -> Result<&'static str, String> {
    let Some(status) = answer.status else {
        return Err(format!("not over after {:.0?}", answer.took));
    };
    if let Some(signal) = status.signal() {
        return Err(format!("killed by signal {signal}"));
    }
    let result = answer.result.as_ref().ok_or_else(|| format!("no result, {status}"))?;
    let failed = &result["given_back"]["failed"];
    if failed.as_array().is_none_or(|failed| !failed.is_empty()) {
        return Err(format!("not put back: {failed}"));
    }
    match answer.first {
        None => return Err("no useful line".to_owned()),
        Some(first) if first > asked.within => {
            return Err(format!("the first useful line came after {first:.1?}"));
        }
        Some(_) => {}
    }
    let chosen = result["chosen"].as_str().unwrap_or("nothing");
    match (status.code(), result["outcome"].as_str()) {
        (Some(ANSWERED), Some("met")) if asked.right.iter().any(|right| right == chosen) => {
            Ok("right")
        }
        (Some(CANNOT_TELL), Some("cannot-say")) => Ok("cannot tell"),
        (code, outcome) => Err(format!(
            "wrong: {chosen}, {}, exit code {}",
            outcome.unwrap_or("no outcome"),
            code.unwrap_or_default()
        )),
    }
}

/// Runs the command once.
fn ask(options: &DisturbArgs, failed: &AtomicBool) -> Result<Answer> {
    let (program, rest) = options.command.split_first().context("no command")?;
    let begin = Instant::now();
    let mut command = Command::new(program);
    command.args(rest).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map(Disturbed).with_context(|| program.clone())?;
    let errors = child.0.stderr.take().context("standard error")?;
    let mut out = child.0.stdout.take().context("standard output")?;
    let progress = std::thread::spawn(move || {
        let (mut first, mut said) = (None, Vec::new());
        for line in BufReader::new(errors).lines().map_while(Result::ok) {
            if is_useful(&line) {
                first.get_or_insert(begin.elapsed());
            }
            said.push(line);
        }
        (first, said)
    });
    let result = std::thread::spawn(move || {
        let mut text = String::new();
        out.read_to_string(&mut text).map(|_| text)
    });
    wait(Some(&mut child), options.time.or(Some(LIMIT)), failed)?;
    let status = child.0.try_wait()?;
    let took = begin.elapsed();
    // Where it is not over its pipes would stay open.
    drop(child);
    let (first, said) = progress.join().expect("it does not panic");
    let text = result.join().expect("it does not panic")?;
    Ok(Answer { status, first, took, result: serde_json::from_str(&text).ok(), said })
}

/// Asks as often as is asked for, with another seed each time, and prints a line for each.
pub(super) fn command(options: &DisturbArgs, cpus: &[CpuId]) -> Result<ExitCode> {
    let asked = &options.asked;
    let (mut right, mut cannot, mut slowest) = (0, 0, Duration::ZERO);
    for turn in 0..asked.times {
        let seed = options.seed.wrapping_add(u64::from(turn));
        let begin = Instant::now();
        let once = DisturbArgs { seed, ..options.clone() };
        let (answer, taken) = beside(&once, cpus, |failed| ask(&once, failed))?;
        let time = begin.elapsed().as_secs_f64();
        let away: Vec<String> = taken
            .iter()
            .map(|(_, sum)| format!("{:.1} %", sum.as_secs_f64() / time * 100.0))
            .collect();
        let verdict = judge(&answer, asked);
        let (words, fault) = match &verdict {
            Ok(words) => (*words, ""),
            Err(words) => (words.as_str(), "FAULT "),
        };
        let chosen =
            answer.result.as_ref().and_then(|result| result["chosen"].as_str()).unwrap_or("-");
        println!(
            "seed {seed}: {fault}{words} ({chosen}), first useful line after {}, over after {:.1} \
             s, CPUs away {}",
            answer.first.map_or("-".to_owned(), |first| format!("{:.1} s", first.as_secs_f64())),
            answer.took.as_secs_f64(),
            away.join(", ")
        );
        if verdict.is_err() {
            answer.said.iter().rev().take(12).rev().for_each(|line| println!("    | {line}"));
        }
        right += u32::from(verdict == Ok("right"));
        cannot += u32::from(verdict == Ok("cannot tell"));
        slowest = slowest.max(answer.first.unwrap_or(answer.took));
    }
    let bad = asked.times - right - cannot;
    println!(
        "answers: {} runs, {right} right, {cannot} cannot tell, {bad} faults; the slowest first \
         useful line after {:.1} s",
        asked.times,
        slowest.as_secs_f64()
    );
    Ok(ExitCode::from(u8::from(bad > 0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: i32, result: &str) -> Answer {
        let first = Some(Duration::from_secs(3));
        let (result, said) = (serde_json::from_str(result).ok(), Vec::new());
        let status = Some(ExitStatus::from_raw(status));
        Answer { status, first, took: Duration::from_secs(20), result, said }
    }

    #[test]
    fn only_a_right_answer_and_an_honest_none_are_no_faults() {
        let asked = Asked {
            times: 1,
            right: vec!["idle".to_owned(), "nice".to_owned()],
            within: Duration::from_secs(15),
        };
        let result = |chosen: &str, outcome: &str| {
            format!(
                r#"{{"chosen": {chosen}, "outcome": "{outcome}", "given_back": {{"failed": []}}}}"#
            )
        };
        let judge = |answer: &Answer| judge(answer, &asked);
        assert_eq!(judge(&answer(0, &result("\"idle\"", "met"))), Ok("right"));
        assert_eq!(judge(&answer(3 << 8, &result("\"batch\"", "cannot-say"))), Ok("cannot tell"));
        let faults = [
            (0, result("\"default\"", "met"), "wrong: default"),
            (1 << 8, result("null", "not"), "wrong: nothing, not, exit code 1"),
            // An outcome and an exit code that contradict each other.
            (0, result("\"idle\"", "cannot-say"), "wrong: idle"),
            (9, String::new(), "killed by signal 9"),
            (2 << 8, String::new(), "no result"),
            (
                3 << 8,
                r#"{"outcome": "cannot-say", "given_back": {"failed": ["thread 7"]}}"#.to_owned(),
                "not put back",
            ),
        ];
        for (status, result, words) in faults {
            let fault = judge(&answer(status, &result)).unwrap_err();
            assert!(fault.contains(words), "{fault}");
        }
        let late = Answer {
            first: Some(Duration::from_secs(16)),
            ..answer(0, &result("\"idle\"", "met"))
        };
        assert!(judge(&late).unwrap_err().contains("16.0s"));
        let silent = Answer { first: None, ..answer(3 << 8, &result("null", "cannot-say")) };
        assert_eq!(judge(&silent).unwrap_err(), "no useful line");
    }

    #[test]
    fn a_line_is_useful_that_says_how_a_setting_does() {
        assert!(is_useful(
            "  3.0 s  so far: default misses the goal (46 % of 'batch share < 30%')"
        ));
        assert!(!is_useful("  3.0 s  so far: elevation is not tried: one CPU only"));
        assert!(!is_useful("  0.1 s  a look: default"));
    }

    /// A command that says what `colocate` says, beside no disturber.
    #[test]
    fn a_run_is_read_to_its_end() {
        let script = r#"echo "0.1 s so far: default misses the goal" >&2; echo '{"chosen": "idle"}'; exit 3"#;
        let command = ["sh", "-c", script].map(str::to_owned).to_vec();
        let options: DisturbArgs = crate::parsed("--share 0 --for 100s").unwrap();
        let options = DisturbArgs { command, ..options };
        let answer = ask(&options, &AtomicBool::new(false)).unwrap();
        assert_eq!(answer.status.and_then(|status| status.code()), Some(3));
        assert!(answer.first.is_some() && answer.said.len() == 1, "{answer:?}");
        assert_eq!(answer.result.unwrap()["chosen"], "idle");
    }
}
