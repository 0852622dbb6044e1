//! Load averages of run queues and units, in 2^precision per fully busy vCPU.

use super::super::common::now;
use super::state::Credit2;
use crate::Cx;
use schedlab_model::TaskId;

/// Averages are kept in steps of 2^10 ns.
const GRANULARITY_SHIFT: u32 = 10;

impl Credit2 {
    /// The load of the run queue (and of the unit) changes by `change`; averages are brought up to
    /// date.
    pub(super) fn load_change(
        &mut self,
        cx: &Cx<'_>,
        rq: usize,
        task: Option<TaskId>,
        change: i64,
    ) {
        let t = now(cx) >> GRANULARITY_SHIFT;
        let (window, precision) =
            (self.settings.window - GRANULARITY_SHIFT, self.settings.precision);
        let queue = &mut self.queues[rq];
        let (last, load) = (queue.load_last, queue.load);
        queue.avgload = average(queue.avgload, load, last, t, window, precision);
        queue.b_avgload = average(queue.b_avgload, load, last, t, window, precision);
        queue.load += change;
        queue.load_last = t;
        if let Some(task) = task {
            self.unit_load_change(cx, task, change);
        }
    }

    /// Brings the average of a unit up to date; `change` says which load the past interval had.
    pub(super) fn unit_load_change(&mut self, cx: &Cx<'_>, task: TaskId, change: i64) {
        let t = now(cx) >> GRANULARITY_SHIFT;
        let (window, precision) =
            (self.settings.window - GRANULARITY_SHIFT, self.settings.precision);
        let unit = self.unit_mut(task);
        let load = match change {
            0 => i64::from(unit.runnable()),
            1 => 0,
            _ => 1,
        };
        unit.avgload = average(unit.avgload, load, unit.load_last, t, window, precision);
        unit.load_last = t;
    }
}

fn average(avg: i64, load: i64, last: i64, t: i64, window: u32, precision: u32) -> i64 {
    if last + (1 << window) < t {
        return load << precision;
    }
    let delta = (t - last).max(0);
    avg + ((delta * (load << precision)) >> window) - ((delta * avg) >> window)
}
