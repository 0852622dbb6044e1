//! What a guest's console says about its tests.

use super::catalogue::Verdict;

/// One test, as its guest tells it.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Told {
    pub(super) name: String,
    pub(super) verdicts: Vec<Verdict>,
    /// It came to its end.
    pub(super) ended: bool,
    /// Seconds of the guest's time.
    pub(super) time_s: f64,
    /// For each command that a fault is about: the command and what it printed, at most
    /// [`EVIDENCE`] lines of it.
    pub(super) evidence: Vec<String>,
}

/// So many lines of a command's output are shown below a fault: a log of CI is all that its reader
/// has.
const EVIDENCE: usize = 16;

/// All tests of a boot.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Transcript {
    /// Seconds of the guest's time until its first process ran; `None`: it did not come so far.
    pub(super) up_s: Option<f64>,
    pub(super) tests: Vec<Told>,
    /// Lines of the kernel's log that tell of faults.
    pub(super) kernel: Vec<String>,
    /// The guest came to its end.
    pub(super) over: bool,
}

/// Reads a console: lines that begin with `@`.
pub(super) fn read(console: &str) -> Transcript {
    let mut transcript = Transcript::default();
    // The last command and its output, until a fault shows them.
    let mut command: Vec<&str> = Vec::new();
    for line in console.lines() {
        if line.starts_with("$ ") {
            command.clear();
        }
        if !line.starts_with('@') && command.len() < EVIDENCE {
            command.push(line);
        }
        // A line of the kernel may come in between; what a test says begins a line all the same.
        let Some((word, text)) = line.strip_prefix('@').and_then(|rest| rest.split_once(' '))
        else {
            continue;
        };
        let name = || text.split(' ').next().unwrap_or_default().to_owned();
        let at = text.rsplit(' ').next().and_then(|word| word.parse::<f64>().ok());
        match word {
            "up" => transcript.up_s = at,
            "test" => {
                let begin =
                    Told { name: name(), time_s: at.unwrap_or_default(), ..Told::default() };
                transcript.tests.push(begin);
            }
            "ok" | "bad" => {
                if let Some(test) = transcript.tests.last_mut() {
                    test.verdicts.push(Verdict { good: word == "ok", text: text.to_owned() });
                    if word == "bad" {
                        test.evidence.extend(command.drain(..).map(str::to_owned));
                    }
                }
            }
            "end" => {
                if let Some(test) = transcript.tests.last_mut() {
                    test.ended = true;
                    test.time_s = at.map_or(0.0, |at| at - test.time_s);
                }
            }
            "kernel" => transcript.kernel.push(text.to_owned()),
            "over" => transcript.over = true,
            _ => {}
        }
    }
    transcript
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_belong_to_the_test_that_runs() {
        let console = "[    0.1] noise\n@up 6.1.0-56-amd64 4 CPUs at 5.20\n@test doctor at 5.30\n\
                       $ schedlab doctor\n\
                       @ok doctor ends well\n@bad bpf works\n@end doctor 0 at 7.80\n\
                       @test record at 7.90\n@ok a b\n\
                       @kernel BUG: something\n";
        let read = read(console);
        assert_eq!((read.up_s, read.over, read.kernel.len()), (Some(5.2), false, 1));
        let doctor = &read.tests[0];
        assert!(doctor.ended && (doctor.time_s - 2.5).abs() < 1e-9);
        assert_eq!(doctor.verdicts.iter().map(|v| v.good).collect::<Vec<_>>(), [true, false]);
        assert_eq!(doctor.verdicts[1].text, "bpf works");
        assert_eq!(doctor.evidence, ["$ schedlab doctor"]);
        assert!(!read.tests[1].ended, "it was cut off");
    }
}
