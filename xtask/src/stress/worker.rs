//! Trials in another process, so that a case that hangs, exhausts the stack or takes all memory is
//! a failure like any other. Parent to worker: the length of a scenario in a line, then the
//! scenario. Worker to parent: a line with what became of it.

use super::planted;
use crate::fuzz::{cpu_time, limited};
use anyhow::{Context, Result, bail};
use schedlab_study::generate::{Fault, Verdict, trial};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ExitCode, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// How often a worker is looked at.
const LOOK: Duration = Duration::from_millis(200);

/// A worker as its parent sees it.
pub(super) struct Worker {
    plant: String,
    running: Option<Running>,
}

struct Running {
    child: Child,
    requests: ChildStdin,
    answers: Receiver<String>,
}

impl Worker {
    /// `plant`: name of a planted fault, or `none`.
    pub(super) fn new(plant: &str) -> Worker {
        Worker { plant: plant.to_owned(), running: None }
    }

    /// What becomes of a scenario; it may take `limit` of CPU time.
    pub(super) fn trial(&mut self, text: &str, limit: Duration) -> Result<Verdict> {
        let running = match &mut self.running {
            Some(running) => running,
            none => none.insert(start(&self.plant)?),
        };
        let (begin, used) = (Instant::now(), cpu_time(&running.child));
        let sent = writeln!(running.requests, "{}", text.len())
            .and_then(|()| running.requests.write_all(text.as_bytes()))
            .and_then(|()| running.requests.flush());
        loop {
            match running.answers.recv_timeout(LOOK) {
                Ok(answer) => return read(&answer),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    sent.ok();
                    let status = self.end()?;
                    return Ok(Verdict::Failed(Fault::Dies, format!("the process died: {status}")));
                }
            }
            // A worker that gets no CPU does not hang.
            let busy = cpu_time(&running.child).saturating_sub(used);
            if busy > limit || begin.elapsed() > 10 * limit.max(Duration::from_secs(10)) {
                self.end()?;
                let what = format!("no answer after {} s of CPU time", busy.as_secs());
                return Ok(Verdict::Failed(Fault::Hangs, what));
            }
        }
    }

    /// Ends the process, if there is one.
    fn end(&mut self) -> Result<String> {
        let Some(mut running) = self.running.take() else { return Ok(String::new()) };
        running.child.kill().ok();
        Ok(running.child.wait().context("a worker cannot be waited for")?.to_string())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.end().ok();
    }
}

fn start(plant: &str) -> Result<Running> {
    let mut command = limited(&["stress", "--worker", plant])?;
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().context("cannot start a worker")?;
    let requests = child.stdin.take().context("a worker without standard input")?;
    let output = child.stdout.take().context("a worker without standard output")?;
    let (sender, answers) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    Ok(Running { child, requests, answers })
}

fn write(verdict: &Verdict) -> String {
    let text = match verdict {
        Verdict::Ran(events) => format!("ran {events}"),
        Verdict::Refused(why) => format!("refused {why}"),
        Verdict::Failed(fault, what) => format!("failed {} {what}", fault.name()),
    };
    text.replace('\n', " / ")
}

fn read(answer: &str) -> Result<Verdict> {
    let (kind, rest) = answer.split_once(' ').unwrap_or((answer, ""));
    Ok(match kind {
        "ran" => Verdict::Ran(rest.parse().context("the number of events")?),
        "refused" => Verdict::Refused(rest.to_owned()),
        "failed" => {
            let (name, what) = rest.split_once(' ').unwrap_or((rest, ""));
            let fault = Fault::ALL.iter().find(|(_, known)| *known == name);
            let (fault, _) = fault.with_context(|| format!("a worker answered `{answer}`"))?;
            Verdict::Failed(*fault, what.to_owned())
        }
        _ => bail!("a worker answered `{answer}`"),
    })
}

/// Where the last panic was.
static PLACE: Mutex<String> = Mutex::new(String::new());

/// The worker itself.
pub(super) fn run(plant: &str) -> Result<ExitCode> {
    let build = planted::builder(planted::find(plant)?);
    std::panic::set_hook(Box::new(|info| {
        if let (Some(at), Ok(mut place)) = (info.location(), PLACE.lock()) {
            *place = format!("{}:{}", at.file(), at.line());
        }
    }));
    end_with_parent();
    let mut requests = std::io::stdin().lock();
    let mut line = String::new();
    while requests.read_line(&mut line).context("the next request")? > 0 {
        let mut text = vec![0; line.trim().parse().context("the length of a scenario")?];
        line.clear();
        requests.read_exact(&mut text).context("a scenario")?;
        let text = String::from_utf8(text).context("a scenario is text")?;
        let mut verdict = trial(&text, &build);
        if let (Verdict::Failed(Fault::Panic, what), Ok(place)) = (&mut verdict, PLACE.lock()) {
            *what += &format!(" at {place}");
        }
        println!("{}", write(&verdict));
    }
    Ok(ExitCode::SUCCESS)
}

/// A worker that hangs does not outlive its parent.
fn end_with_parent() {
    let parent = std::os::unix::process::parent_id();
    std::thread::spawn(move || {
        while std::os::unix::process::parent_id() == parent {
            std::thread::sleep(Duration::from_secs(1));
        }
        std::process::exit(2);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_come_back_as_they_were() {
        let failed = |fault| Verdict::Failed(fault, "what it was".to_owned());
        let refused = Verdict::Refused("not today".to_owned());
        for verdict in
            [Verdict::Ran(7), refused].into_iter().chain(Fault::ALL.map(|(fault, _)| failed(fault)))
        {
            assert_eq!(read(&write(&verdict)).unwrap(), verdict);
        }
        assert!(!write(&Verdict::Refused("two\nlines".to_owned())).contains('\n'));
        assert!(read("maybe").is_err() && read("ran fast").is_err());
    }
}
