//! What the conversion found and assumed, in words.

use super::{ReplayReport, SilentTask, TickFit};
use schedlab_model::Ns;
use std::fmt;

/// Some lines for people.
impl fmt::Display for ReplayReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = self.outside_permille();
        writeln!(
            f,
            "{} activations; wakeups: {} by tasks, {} by softirqs after interrupts, {} by \
             interrupts and timers, \
             {} unknown ({}.{} % from outside)",
            self.activations,
            self.wakes_by_tasks,
            self.wakes_by_softirq,
            self.wakes_by_hardirq,
            self.wakes_unknown,
            part / 10,
            part % 10
        )?;
        writeln!(
            f,
            "assumed: {} outside wakeups at their recorded times; relative sleeps: {} device, {} \
             timer, {} of \
             tasks that want the CPU always, {} in closed loops",
            self.absolute_wakes,
            self.device_sleeps,
            self.timer_sleeps,
            self.hungry_sleeps,
            self.loop_sleeps
        )?;
        write!(
            f,
            "{} closed loops, {} loops driven from outside, {} event loops, {} endless tasks, \
             {} activations cut off at the end",
            self.closed_loops.len(),
            self.driven_loops.len(),
            self.event_loops,
            self.hogs.len(),
            self.cut
        )?;
        self.fmt_unknown(f)?;
        if let Some(siblings) = &self.siblings {
            write!(f, "\n{siblings}")?;
        }
        if self.recorder.taken > Ns::ZERO {
            write!(f, "\n{}", self.recorder)?;
        }
        self.fmt_ticks(f)
    }
}

impl ReplayReport {
    /// What had to be assumed because the recording does not show it.
    fn fmt_unknown(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fmt_stopped(f)?;
        for runtime in &self.runtimes {
            write!(
                f,
                "\n{} threads of {} share the work of {} that run at a time: {} takeovers from \
                 threads that had waited for {} \
                 ({} % of those that wait so long), which still ran for {} (medians, fitted)",
                runtime.threads.len(),
                runtime.threads.first().copied().unwrap_or_default(),
                runtime.lanes,
                runtime.takeovers,
                runtime.after,
                runtime.permille / 10,
                runtime.rest
            )?;
        }
        if !self.makers.is_empty() {
            write!(
                f,
                "\n{} tasks start one command after the other: the replay repeats the commands \
                 when these are done",
                self.makers.len()
            )?;
        }
        if !self.prompt.is_empty() {
            write!(
                f,
                "\nservers that almost never block: {}. After each reply they wait until their \
                 client has run as far as it had in the recording",
                self.prompt.len()
            )?;
        }
        for SilentTask { task, others, messages } in &self.silent {
            write!(
                f,
                "\n{task} almost never blocks: each reply was ready when it looked ({messages} \
                 messages). The replay makes it wait for the \
                 {others} threads that produce the replies"
            )?;
        }
        Ok(())
    }

    /// Tasks that were not done at the end, of which nobody knows what they still wanted.
    fn fmt_stopped(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.unfinished.is_empty() {
            write!(
                f,
                "\nstarted late and were still working at the end, where the replay stops them: \
                 {} tasks or kernel threads",
                self.unfinished.len()
            )?;
        }
        if !self.starved.is_empty() {
            write!(
                f,
                "\nwaited until the end and got almost no CPU time, so the replay stops them \
                 there: {} tasks or kernel threads",
                self.starved.len()
            )?;
        }
        Ok(())
    }

    fn fmt_ticks(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (cpu, fit) in self.ticks.iter().enumerate() {
            match fit {
                None => write!(f, "\nCPU {cpu}: tick phase unknown, drawn for each seed")?,
                Some(TickFit { first, switches: 0, .. }) => {
                    write!(
                        f,
                        "\nCPU {cpu}: tick phase {first}, copied from another CPU (no switch on \
                         CPU {cpu} shows it)"
                    )?;
                }
                Some(TickFit { first, switches, of }) => write!(
                    f,
                    "\nCPU {cpu}: tick phase {first}, fitted to {switches} of {of} times that a \
                     task lost the CPU"
                )?,
            }
        }
        Ok(())
    }
}
