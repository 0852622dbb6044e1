//! Kernel functions of sched_ext.

use super::kernel::{Iter, Kernel, Step};
use super::ops::{dsq, enq};
use schedlab_bpf::errno::{EBUSY, ENOENT};
use schedlab_bpf::{Generic, bstr, known_kfunc};

/// A kernel function with a model.
pub(super) enum Model {
    /// It needs memory only.
    Generic(Generic),
    /// It needs the scheduler's state.
    Own(Call),
}

/// See [`Model::Own`].
pub(super) type Call = fn(&mut Kernel, [u64; 5]) -> Step<u64>;

/// The model of a kernel function; `None`: there is none.
pub(super) fn model(name: &str) -> Option<Model> {
    let own = inserting(name)
        .or_else(|| queues(name))
        .or_else(|| iterators(name))
        .or_else(|| choosing(name))
        .or_else(|| machine(name))
        .or_else(|| tasks(name))
        .or_else(|| reports(name))
        .or_else(|| super::groups::walks(name));
    own.map(Model::Own).or_else(|| known_kfunc(name).map(Model::Generic))
}

fn by_vtime(kernel: &mut Kernel, p: u64, [dsq, slice, vtime, flags]: [u64; 4]) -> Step<u64> {
    let done = kernel.insert(p, dsq, slice, flags | enq::BY_VTIME)?;
    if done != 0 {
        kernel.set(p, kernel.layout.vtime, vtime);
    }
    Ok(done)
}

fn inserting(name: &str) -> Option<Call> {
    Some(match name {
        "scx_bpf_dsq_insert" | "scx_bpf_dispatch" | "scx_bpf_dsq_insert___v2" => {
            |k, a| k.insert(a[0], a[1], a[2], a[3])
        }
        "scx_bpf_dsq_insert_vtime" | "scx_bpf_dispatch_vtime" => {
            |k, a| by_vtime(k, a[0], [a[1], a[2], a[3], a[4]])
        }
        "__scx_bpf_dsq_insert_vtime" => |k, a| {
            let word = |i: u64| k.vm.memory.word(a[1] + 8 * i);
            let args = [word(0), word(1), word(2), word(3)];
            by_vtime(k, a[0], args)
        },
        "scx_bpf_dsq_move_to_local" | "scx_bpf_consume" => |k, a| k.consume_here(a[0], 0),
        "scx_bpf_dsq_move_to_local___v2" => |k, a| k.consume_here(a[0], a[1]),
        "scx_bpf_dispatch_nr_slots" => |k, _| Ok(k.batch.saturating_sub(k.buffer.len()) as u64),
        "scx_bpf_dispatch_cancel" => |k, _| {
            if k.buffer.pop().is_none() {
                k.error("dispatch buffer underflow");
            }
            Ok(0)
        },
        _ => return None,
    })
}

fn queues(name: &str) -> Option<Call> {
    Some(match name {
        "scx_bpf_create_dsq" => |k, a| k.create_queue(a[0]),
        "scx_bpf_destroy_dsq" => |k, a| {
            match k.own_queue(a[0]) {
                Some(queue) if !k.queues[queue].tasks.is_empty() => {
                    k.error(format_args!("attempting to destroy in-use dsq {:#018x}", a[0]));
                }
                _ => {
                    k.ids.remove(&a[0]);
                }
            }
            Ok(0)
        },
        "scx_bpf_dsq_nr_queued" => |k, a| {
            let here = k.locked.unwrap_or(k.vm.cpu);
            let queue = match a[0] {
                dsq::LOCAL => Some(here),
                id if id & dsq::LOCAL_ON == dsq::LOCAL_ON => {
                    Some((id & 0xffff_ffff) as usize).filter(|cpu| *cpu < k.cpus.len())
                }
                id => k.own_queue(id),
            };
            Ok(queue.map_or(ENOENT, |queue| k.queues[queue].tasks.len() as u64))
        },
        "scx_bpf_dsq_peek" => |k, a| {
            let first = k.own_queue(a[0]).and_then(|queue| k.queues[queue].tasks.front().copied());
            Ok(first.map_or(0, |t| k.tasks[t].addr))
        },
        "scx_bpf_reenqueue_local" | "scx_bpf_reenqueue_local___v2" => |k, _| {
            let cpu = k.vm.cpu;
            k.cpus[cpu].reenqueue = true;
            Ok(k.queues[cpu].tasks.len() as u64)
        },
        "scx_bpf_dsq_reenq" => |k, a| {
            let cpu = match a[0] {
                dsq::LOCAL => k.vm.cpu,
                id if id & dsq::LOCAL_ON == dsq::LOCAL_ON => (id & 0xffff) as usize,
                id => {
                    match k.own_queue(id) {
                        Some(queue) => k.reenqueued.push(queue),
                        None => k.error(format_args!("DSQ {id:#x} not allowed for reenq")),
                    }
                    return Ok(0);
                }
            };
            if let Some(cpu) = k.cpus.get_mut(cpu) {
                cpu.reenqueue = true;
            }
            Ok(0)
        },
        _ => return None,
    })
}

fn iterators(name: &str) -> Option<Call> {
    /// `SCX_DSQ_ITER_REV`.
    const REVERSED: u64 = 1 << 16;
    Some(match name {
        "bpf_iter_scx_dsq_new" => |k, a| {
            let Some(queue) = k.own_queue(a[1]) else {
                k.iters.remove(&a[0]);
                return Ok(ENOENT);
            };
            let list = k.queues[queue].tasks.iter().map(|t| (*t, k.tasks[*t].seq));
            let mut tasks: Vec<(usize, u64)> = list.collect();
            if a[2] & REVERSED != 0 {
                tasks.reverse();
            }
            k.iters.insert(a[0], Iter { queue, tasks, ..Iter::default() });
            Ok(0)
        },
        "bpf_iter_scx_dsq_next" => |k, a| {
            let Some(iter) = k.iters.get_mut(&a[0]) else { return Ok(0) };
            while let Some((t, seq)) = iter.tasks.get(iter.at).copied() {
                iter.at += 1;
                if k.tasks[t].queue == Some(iter.queue) && k.tasks[t].seq == seq {
                    return Ok(k.tasks[t].addr);
                }
            }
            Ok(0)
        },
        "bpf_iter_scx_dsq_destroy" => |k, a| {
            k.iters.remove(&a[0]);
            Ok(0)
        },
        "scx_bpf_dsq_move_set_slice" | "scx_bpf_dispatch_from_dsq_set_slice" => |k, a| {
            if let Some(iter) = k.iters.get_mut(&a[0]) {
                iter.slice = Some(a[1]);
            }
            Ok(0)
        },
        "scx_bpf_dsq_move_set_vtime" | "scx_bpf_dispatch_from_dsq_set_vtime" => |k, a| {
            if let Some(iter) = k.iters.get_mut(&a[0]) {
                iter.vtime = Some(a[1]);
            }
            Ok(0)
        },
        "scx_bpf_dsq_move" | "scx_bpf_dispatch_from_dsq" => {
            |k, a| k.move_iterated(a[0], a[1], a[2], a[3])
        }
        "scx_bpf_dsq_move_vtime" | "scx_bpf_dispatch_vtime_from_dsq" => {
            |k, a| k.move_iterated(a[0], a[1], a[2], a[3] | enq::BY_VTIME)
        }
        _ => return None,
    })
}

fn mask_or_all(kernel: &Kernel, addr: u64) -> u64 {
    if addr == 0 { u64::MAX } else { kernel.vm.memory.word(addr) }
}

fn choosing(name: &str) -> Option<Call> {
    Some(match name {
        "scx_bpf_select_cpu_dfl" => |k, a| {
            let t = k.task_of(a[0])?;
            let cpu = k.select_default(t, a[1] as u32 as usize, a[2], u64::MAX, 0);
            k.vm.memory.write(a[3], 1, u64::from(cpu >= 0));
            Ok(if cpu >= 0 { cpu as u64 } else { a[1] })
        },
        "scx_bpf_select_cpu_and" => |k, a| {
            let (t, mask) = (k.task_of(a[0])?, mask_or_all(k, a[3]));
            Ok(k.select_default(t, a[1] as u32 as usize, a[2], mask, a[4]) as u64)
        },
        "__scx_bpf_select_cpu_and" => |k, a| {
            let (t, mask) = (k.task_of(a[0])?, mask_or_all(k, a[1]));
            let prev = k.vm.memory.read(a[2], 4) as usize;
            let (wake, flags) = (k.vm.memory.word(a[2] + 8), k.vm.memory.word(a[2] + 16));
            Ok(k.select_default(t, prev, wake, mask, flags) as u64)
        },
        "scx_bpf_pick_idle_cpu" => |k, a| {
            if !k.check_idle_tracking(false) {
                return Ok(EBUSY);
            }
            let mask = k.vm.memory.word(a[0]);
            Ok(k.pick_idle(mask, a[1]) as u64)
        },
        "scx_bpf_pick_idle_cpu_node" => |k, a| {
            if !k.check_idle_tracking(true) {
                return Ok(EBUSY);
            }
            let mask = k.vm.memory.word(a[0]);
            Ok(k.pick_idle(mask, a[2]) as u64)
        },
        "scx_bpf_pick_any_cpu" | "scx_bpf_pick_any_cpu_node" => |k, a| {
            let mask = k.vm.memory.word(a[0]);
            let idle = if k.builtin_idle { k.pick_idle(mask, 0) } else { -1 };
            if idle >= 0 {
                return Ok(idle as u64);
            }
            Ok(k.vm.any_of(mask).map_or(EBUSY, |cpu| cpu as u64))
        },
        "scx_bpf_test_and_clear_cpu_idle" => {
            |k, a| Ok(valid(k, a[0]).map_or(0, |cpu| u64::from(k.claim(cpu))))
        }
        "scx_bpf_get_idle_cpumask" => |k, _| {
            k.check_idle_tracking(false);
            Ok(k.idle_mask)
        },
        "scx_bpf_get_idle_cpumask_node" => |k, _| {
            k.check_idle_tracking(true);
            Ok(k.idle_mask)
        },
        "scx_bpf_get_idle_smtmask" => |k, _| {
            k.check_idle_tracking(false);
            Ok(k.smt_mask_shown())
        },
        "scx_bpf_get_idle_smtmask_node" => |k, _| {
            k.check_idle_tracking(true);
            Ok(k.smt_mask_shown())
        },
        _ => return None,
    })
}

/// The CPU of a call, which is an error when it is not there (`scx_cpu_valid`).
fn valid(kernel: &mut Kernel, cpu: u64) -> Option<usize> {
    let number = cpu as u32 as usize;
    if number >= kernel.cpus.len() {
        kernel.error(format_args!("invalid CPU {}", cpu as i32));
        return None;
    }
    Some(number)
}

fn kick(kernel: &mut Kernel, cpu: u64, flags: u64) -> Step<u64> {
    const IDLE: u64 = 1;
    const PREEMPT: u64 = 2;
    const WAIT: u64 = 4;
    let Some(target) = valid(kernel, cpu) else { return Ok(0) };
    let here = kernel.vm.cpu;
    if flags & IDLE != 0 && flags & (PREEMPT | WAIT) != 0 {
        kernel.error("PREEMPT/WAIT cannot be used with SCX_KICK_IDLE");
        return Ok(0);
    }
    let kicks = &mut kernel.cpus[here].kicks;
    if flags & IDLE != 0 {
        kicks[1] |= 1 << target;
        return Ok(0);
    }
    kicks[0] |= 1 << target;
    if flags & PREEMPT != 0 {
        kicks[2] |= 1 << target;
    }
    Ok(0)
}

fn machine(name: &str) -> Option<Call> {
    Some(match name {
        "scx_bpf_kick_cpu" | "scx_bpf_kick_cid" => |k, a| kick(k, a[0], a[1]),
        "scx_bpf_get_online_cpumask" | "scx_bpf_get_possible_cpumask" => |k, _| Ok(k.online_mask),
        "scx_bpf_put_cpumask" | "scx_bpf_put_idle_cpumask" => |_, _| Ok(0),
        // The simulated machine has one frequency: full speed, and requests have no effect.
        "scx_bpf_cpuperf_cap"
        | "scx_bpf_cpuperf_cur"
        | "scx_bpf_cidperf_cap"
        | "scx_bpf_cidperf_cur" => |_, _| Ok(1024),
        "scx_bpf_cpuperf_set" | "scx_bpf_cidperf_set" => |_, _| Ok(0),
        "scx_bpf_nr_cpu_ids" | "scx_bpf_nr_cids" | "scx_bpf_nr_online_cids" => {
            |k, _| Ok(k.cpus.len() as u64)
        }
        "scx_bpf_nr_node_ids" => {
            |k, _| Ok(k.cpus.iter().map(|cpu| cpu.node_id as u64 + 1).max().unwrap_or(1))
        }
        "scx_bpf_cpu_node" => |k, a| {
            let cpu = k.cpus.get(a[0] as u32 as usize);
            Ok(cpu.map_or(0, |cpu| cpu.node_id as u64))
        },
        // CIDs are the CPUs' own numbers.
        "scx_bpf_this_cid" => |k, _| Ok(k.vm.cpu as u64),
        "scx_bpf_cpu_to_cid" | "scx_bpf_cid_to_cpu" => |_, a| Ok(a[0]),
        "scx_bpf_cpu_rq" => {
            |k, a| Ok(valid(k, a[0]).map_or(0, |cpu| k.rqs + k.rq_stride * cpu as u64))
        }
        "scx_bpf_locked_rq" => {
            |k, _| Ok(k.locked.map_or(0, |cpu| k.rqs + k.rq_stride * cpu as u64))
        }
        "scx_bpf_cpu_curr" | "scx_bpf_cid_curr" => {
            |k, a| Ok(valid(k, a[0]).map_or(0, |cpu| k.curr_addr(cpu)))
        }
        // No scheduler is below this one, so none has a task.
        "scx_bpf_sub_dispatch" => |_, _| Ok(0),
        "scx_bpf_cid_override" => |k, _| {
            k.error("scx_bpf_cid_override(): CIDs are the CPUs' own numbers in the simulator");
            Ok(0)
        },
        "scx_bpf_now" => |k, _| Ok(k.vm.now),
        _ => return None,
    })
}

fn tasks(name: &str) -> Option<Call> {
    Some(match name {
        "scx_bpf_task_cpu" | "scx_bpf_task_cid" => {
            |k, a| Ok(k.task_at(a[0]).map_or(0, |t| k.tasks[t].cpu as u64))
        }
        "scx_bpf_task_running" => |k, a| {
            let runs = |t: usize| k.cpus[k.tasks[t].cpu].curr == Some(t);
            Ok(u64::from(k.task_at(a[0]).is_some_and(runs)))
        },
        "scx_bpf_task_set_slice" => |k, a| {
            let t = k.task_of(a[0])?;
            k.set_slice(t, a[1]);
            Ok(1)
        },
        "scx_bpf_task_set_dsq_vtime" => |k, a| {
            k.task_of(a[0])?;
            k.set(a[0], k.layout.vtime, a[1]);
            Ok(1)
        },
        "scx_bpf_task_cgroup" => |k, a| {
            let group = k.task_at(a[0]).map_or(0, |t| k.tasks[t].group);
            Ok(k.groups.get(group).copied().unwrap_or(0))
        },
        "bpf_cgroup_from_id" => {
            |k, a| Ok(k.groups.get((a[0] as usize).wrapping_sub(1)).copied().unwrap_or(0))
        }
        "bpf_cgroup_ancestor" => |k, a| {
            let level = k.get(a[0], k.layout.cgroup_level);
            let at = a[0] + k.layout.cgroup_ancestors.0 + 8 * (a[1] & 15);
            Ok(if a[1] <= level { k.vm.memory.word(at) } else { 0 })
        },
        "bpf_cgroup_acquire" | "bpf_task_acquire" => |_, a| Ok(a[0]),
        "bpf_cgroup_release" | "bpf_task_release" => |_, _| Ok(0),
        "bpf_task_from_pid" => |k, a| {
            let pid = a[0] as u32;
            let is =
                |t: &&super::kernel::Task| t.alive && k.get(t.addr, k.layout.pid) == u64::from(pid);
            Ok(k.tasks.iter().find(is).map_or(0, |t| t.addr))
        },
        "scx_bpf_tid_to_task" => |k, a| {
            let task = k.tasks.get((a[0] as usize).wrapping_sub(1)).filter(|task| task.alive);
            Ok(task.map_or(0, |task| task.addr))
        },
        _ => return None,
    })
}

fn reports(name: &str) -> Option<Call> {
    Some(match name {
        "scx_bpf_error_bstr" => |k, a| {
            let text = bstr(&k.vm.memory, a[0], a[1]);
            k.end("scx_bpf_error", text);
            Ok(0)
        },
        "scx_bpf_exit_bstr" => |k, a| {
            let text = bstr(&k.vm.memory, a[1], a[2]);
            k.end("unregistered from BPF", format_args!("{text} (exit code {})", a[0] as i64));
            Ok(0)
        },
        "scx_bpf_dump_bstr" | "bpf_stream_vprintk" => |_, _| Ok(0),
        // No counter is kept: a program that reads them sees zeroes.
        "scx_bpf_events" => |k, a| {
            let zeroes = vec![0; (a[1] as usize).min(4096)];
            k.vm.memory.put(a[0], &zeroes);
            Ok(0)
        },
        _ => return None,
    })
}
