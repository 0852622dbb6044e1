//! The deterministic simulator: a [`Machine`] with named [`Costs`], tasks as small programs,
//! sources of requests, any [`Scheduler`](schedlab_scheduler::Scheduler), and online [`Metrics`].
//!
//! [`run`] is the whole interface. The same inputs and seed give the same events, byte for byte, on
//! every machine. The order inside an instant is that of the trait's contract: tick edges, then
//! everything else in arming order, until the instant is drained; then the reschedule requests,
//! first in first out, merged; then the programs of the tasks that were switched in go on.
#![forbid(unsafe_code)]
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

mod costs;
mod delegation;
mod engine;
mod error;
mod hash;
mod machine;
mod metrics;
mod nested;
mod outcome;
mod preemption;
mod rng;
mod stop;

pub use costs::Costs;
pub use delegation::{
    AgentMetrics, Delegation, DelegationCosts, DelegationMetrics, Failed, Failure, Mode,
    run_delegated,
};
pub use engine::run;
pub use error::SimError;
pub use machine::{Delays, Machine, RunOptions, TickSkew};
pub use metrics::{
    ChannelMetrics, CpuMetrics, DecisionMetrics, Distribution, Fairness, Held, Metrics,
    ObjectMetrics, SourceMetrics, TaskMetrics, WorkConservation,
};
pub use nested::{Domain, NestedOutcome, places, run_nested, run_nested_seen};
pub use outcome::{Outcome, Stuck, WaitsFor};
pub use preemption::{PreemptModel, Preemption};
pub use stop::Stop;
