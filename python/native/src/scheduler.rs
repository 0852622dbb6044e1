//! A scheduler that is written in Python: one set of runnable tasks for all CPUs, of which it
//! picks.
//!
//! Each decision takes the interpreter's lock, so it is thousands of times slower than one in
//! Rust: for lessons and first ideas, not for measuring what a decision costs.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use schedlab_model::{CpuId, Ns, TaskId};
use schedlab_scheduler::{Change, Cmd, Cx, Needs, Pick, Prev, Runnable, Scheduler, Wake};
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A task that waits, as Python sees it: number, time of its wakeup or preemption, CPU time so far,
/// and the CPU it ran on last.
type Waiting = (usize, u64, u64, usize);

/// A scheduler in Python around which the engine's calls are laid.
pub(crate) struct PythonScheduler {
    object: Py<PyAny>,
    slice: Option<Ns>,
    state: RefCell<State>,
    /// Ends the run after an exception.
    stop: Option<Arc<AtomicBool>>,
}

#[derive(Default)]
struct State {
    /// Those that want a CPU and have none, in the order in which they came, with the time.
    runnable: Vec<(TaskId, Ns)>,
    /// By CPU: a decision is asked for and has not come.
    asked: Vec<bool>,
    raised: Option<PyErr>,
}

impl State {
    /// Asks an idle CPU on which `task` may run for a decision. `but`: the one that decides now.
    fn offer(&mut self, cx: &Cx<'_>, task: TaskId, but: Option<CpuId>) -> bool {
        let idle = |cpu: &CpuId| {
            Some(*cpu) != but
                && cx.cpu(*cpu).online
                && cx.cpu(*cpu).current().is_none()
                && !self.asked[cpu.index()]
        };
        let cpus = self.asked.len();
        let affinity = cx.task(task).affinity;
        let Some(cpu) = affinity.iter().take_while(|cpu| cpu.index() < cpus).find(idle) else {
            return false;
        };
        self.asked[cpu.index()] = true;
        cx.push(Cmd::Resched(cpu));
        true
    }
}

/// What Python sees of a task; the CPU time of one that runs holds its present stay.
fn seen(cx: &Cx<'_>, task: TaskId, since: Ns) -> Waiting {
    let view = cx.task(task);
    let stay = view.on_cpu().map_or(0, |_| cx.now.0.saturating_sub(view.entered().0));
    (task.index(), since.0, view.ran().0 + stay, view.last_cpu().index())
}

impl PythonScheduler {
    /// Around an object with the methods of `schedlab.Scheduler`.
    pub(crate) fn new(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let slice: Option<u64> = object.getattr("slice_ns")?.extract()?;
        if slice == Some(0) {
            return Err(PyValueError::new_err("slice_ns: longer than 0, or None for no slices"));
        }
        Ok(PythonScheduler {
            object: object.clone().unbind(),
            slice: slice.map(Ns),
            state: RefCell::default(),
            stop: None,
        })
    }

    /// After an exception this flag becomes true.
    pub(crate) fn ends_with(&mut self, stop: &Arc<AtomicBool>) {
        self.stop = Some(Arc::clone(stop));
    }

    /// The exception that ended the run.
    pub(crate) fn raised(&self) -> Option<PyErr> {
        self.state.borrow_mut().raised.take()
    }

    fn fail(&self, error: PyErr) {
        self.state.borrow_mut().raised.get_or_insert(error);
        if let Some(stop) = &self.stop {
            stop.store(true, Ordering::Relaxed);
        }
    }

    /// Calls a method; after an exception none is called any more.
    fn ask<T: for<'a, 'py> FromPyObject<'a, 'py, Error: Into<PyErr>>>(
        &self,
        call: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<Py<PyAny>>,
    ) -> Option<T> {
        if self.state.borrow().raised.is_some() {
            return None;
        }
        let answer = Python::attach(|py| {
            call(self.object.bind(py))?.bind(py).extract::<T>().map_err(Into::into)
        });
        answer.map_err(|error| self.fail(error)).ok()
    }

    /// Which of those that may run on `cpu` goes first.
    fn choose(&self, cx: &Cx<'_>, cpu: CpuId, allowed: &[(TaskId, Ns)]) -> Option<TaskId> {
        let waiting: Vec<Waiting> =
            allowed.iter().map(|(task, since)| seen(cx, *task, *since)).collect();
        let picked: Option<usize> = self.ask(|object| {
            let answer = object.call_method1("_pick", (cpu.index(), cx.now.0, waiting))?;
            Ok(answer.unbind())
        })?;
        let picked = picked.map(TaskId::from)?;
        if allowed.iter().any(|(task, _)| *task == picked) {
            return Some(picked);
        }
        self.fail(PyValueError::new_err(format!(
            "pick: task {} is not among the runnable tasks that it was given",
            picked.index()
        )));
        None
    }

    /// The first CPU whose running task gives way to `task`.
    fn preempt(&self, cx: &Cx<'_>, task: TaskId) {
        let affinity = cx.task(task).affinity;
        for cpu in affinity.iter().take_while(|cpu| cpu.index() < cx.world.cpus.len()) {
            let Some(running) = cx.cpu(cpu).current() else { continue };
            let gives_way: Option<bool> = self.ask(|object| {
                let arguments = (seen(cx, task, cx.now), seen(cx, running, cx.now), cx.now.0);
                Ok(object.call_method1("_preempts", arguments)?.unbind())
            });
            if gives_way == Some(true) {
                self.state.borrow_mut().asked[cpu.index()] = true;
                cx.push(Cmd::Resched(cpu));
                return;
            }
        }
    }
}

impl Scheduler for PythonScheduler {
    fn needs(&self) -> Needs {
        Needs { wakeups: true, exact_slices: self.slice.is_some(), ..Needs::default() }
    }

    fn init(&self, cx: &Cx<'_>) {
        let asked = vec![false; cx.world.cpus.len()];
        *self.state.borrow_mut() = State { asked, ..State::default() };
    }

    fn wake(&self, cx: &Cx<'_>, task: TaskId, _wake: Wake) {
        let offered = {
            let state = &mut *self.state.borrow_mut();
            state.runnable.push((task, cx.now));
            state.offer(cx, task, None)
        };
        if !offered {
            self.preempt(cx, task);
        }
    }

    fn leave(&self, _cx: &Cx<'_>, task: TaskId) {
        self.state.borrow_mut().runnable.retain(|(other, _)| *other != task);
    }

    fn yielded(&self, _cx: &Cx<'_>, _task: TaskId) {}

    fn schedule(&self, cx: &Cx<'_>, cpu: CpuId, prev: Option<TaskId>, why: Prev) -> Pick {
        let allowed: Vec<(TaskId, Ns)> = {
            let state = &mut *self.state.borrow_mut();
            state.asked[cpu.index()] = false;
            if let Some(task) = prev.filter(|_| why == Prev::Runnable) {
                state.runnable.push((task, cx.now));
            }
            let may_run = |(task, _): &&(TaskId, Ns)| cx.task(*task).affinity.contains(cpu);
            state.runnable.iter().filter(may_run).copied().collect()
        };
        let picked = if allowed.is_empty() { None } else { self.choose(cx, cpu, &allowed) };
        let state = &mut *self.state.borrow_mut();
        state.runnable.retain(|(task, _)| Some(*task) != picked);
        if let Some(task) = prev.filter(|task| why == Prev::Runnable && picked != Some(*task)) {
            state.offer(cx, task, Some(cpu));
        }
        match picked {
            Some(task) => Pick { slice_ns: self.slice, ..Pick::run(task) },
            None => Pick::IDLE,
        }
    }

    fn changed(&self, cx: &Cx<'_>, change: Change) {
        if let Change::Affinity(task) = change
            && cx.task(task).on_cpu().is_some_and(|cpu| !cx.task(task).affinity.contains(cpu))
        {
            cx.push(Cmd::Displace(task));
        }
    }

    fn resync(&self, cx: &Cx<'_>) {
        self.init(cx);
        for (index, view) in cx.world.tasks.iter().enumerate() {
            if view.alive && view.runnable() != Runnable::No && view.on_cpu().is_none() {
                let state = &mut *self.state.borrow_mut();
                state.runnable.push((index.into(), cx.now));
                state.offer(cx, index.into(), None);
            }
        }
    }

    fn explain(&self, _cx: &Cx<'_>, _cpu: CpuId) -> String {
        format!("runnable {:?}", self.state.borrow().runnable)
    }
}
