//! What the client saw, and whether the client itself was the bottleneck.

use super::{Client, LoadRequest, LoopKind};
use crate::Ladder;
use serde::{Deserialize, Serialize};

/// Above this part of one CPU the client may be what limits the throughput. (A client that waits
/// for replies is rarely above it; the share, not the limit, is printed.)
const BUSY: f64 = 0.80;

/// The result of a load.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct LoadReport {
    /// What was asked for.
    pub request: LoadRequest,
    /// Requests sent, warm-up included.
    pub sent: u64,
    /// Replies, warm-up included.
    pub replies: u64,
    /// Error replies.
    pub errors: u64,
    /// Requests that had no reply two seconds after the end.
    pub unanswered: u64,
    /// Replies to requests of the counted part, per second of it.
    pub throughput_per_s: f64,
    /// From the intended send time (open loop), or from the send (closed loop, where there is no
    /// intention).
    pub latency: Ladder,
    /// From the actual send: what a client without correction would print.
    pub uncorrected: Ladder,
    /// How late requests left.
    pub send_lag: Ladder,
    /// CPU time of the client per time, 0 … 1.
    pub client_cpu_share: f64,
    /// How often the client slept and was woken.
    pub client_wakeups: u64,
    /// Why the numbers should not be trusted; empty when nothing speaks against them.
    pub doubts: Vec<String>,
}

impl Client {
    pub(crate) fn report(&self, request: &LoadRequest) -> LoadReport {
        let share = self.cpu_ns as f64 / self.wall_ns.max(1) as f64;
        let lag = Ladder::from_histogram(&self.lag);
        let latency = Ladder::from_histogram(&self.latency);
        let mut doubts = Vec::new();
        if share > BUSY {
            doubts.push(format!(
                "the client used {:.0} % of a CPU: it may be the bottleneck; give it a CPU of its \
                 own or less load",
                share * 100.0
            ));
        }
        if matches!(request.kind, LoopKind::Open { .. })
            && lag.p99_ns > latency.p99_ns / 2
            && lag.p99_ns > 50_000
        {
            doubts.push(format!(
                "1 % of the requests left more than {} us late: much of the latency is the \
                 client's own",
                lag.p99_ns / 1000
            ));
        }
        let unanswered = self.sent - self.replies;
        if unanswered > 0 {
            doubts.push(format!("{unanswered} requests had no reply and are not in the latencies"));
        }
        if self.errors > 0 {
            doubts.push(format!("{} replies were errors", self.errors));
        }
        LoadReport {
            request: request.clone(),
            sent: self.sent,
            replies: self.replies,
            errors: self.errors,
            unanswered,
            throughput_per_s: self.counted as f64 / (request.duration.0 as f64 / 1e9),
            latency,
            uncorrected: Ladder::from_histogram(&self.service),
            send_lag: lag,
            client_cpu_share: share,
            client_wakeups: self.sleeps,
            doubts,
        }
    }
}
