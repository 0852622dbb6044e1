//! Kernel functions that need memory only: number iterators, CPU masks, arenas, locks.

use crate::errno::EINVAL;
use crate::{Stop, Vm};

/// A kernel function.
pub type Generic = fn(&mut Vm, [u64; 5]) -> Result<u64, Stop>;

/// Bytes of a CPU mask with its count of references (`struct bpf_cpumask` of 8,192 CPUs).
pub const MASK_BYTES: usize = 1032;
const REFERENCES: u64 = 1024;

/// The model of a kernel function; `None`: it needs more than memory.
pub fn known_kfunc(name: &str) -> Option<Generic> {
    iterators(name).or_else(|| masks(name)).or_else(|| rest(name))
}

fn iterators(name: &str) -> Option<Generic> {
    Some(match name {
        "bpf_iter_num_new" => |vm, a| {
            let (start, end) = (a[1] as i32, a[2] as i32);
            let good = start <= end;
            let (current, end) = if good { (start.wrapping_sub(1), end) } else { (0, 0) };
            vm.memory.write(a[0], 4, u64::from(current as u32));
            vm.memory.write(a[0].wrapping_add(4), 4, u64::from(end as u32));
            Ok(if good { 0 } else { EINVAL })
        },
        "bpf_iter_num_next" => |vm, a| {
            let current = vm.memory.read(a[0], 4) as i32;
            let end = vm.memory.read(a[0].wrapping_add(4), 4) as i32;
            if i64::from(current) + 1 >= i64::from(end) {
                vm.memory.write(a[0], 8, 0);
                return Ok(0);
            }
            vm.memory.write(a[0], 4, u64::from((current + 1) as u32));
            Ok(a[0])
        },
        "bpf_iter_num_destroy" => |vm, a| {
            vm.memory.write(a[0], 8, 0);
            Ok(0)
        },
        _ => return None,
    })
}

/// The bit of a CPU that is there.
fn bit(vm: &Vm, cpu: u64) -> u64 {
    let cpu = cpu as u32;
    if (cpu as usize) < vm.cpus && cpu < 64 { 1 << cpu } else { 0 }
}

fn change(vm: &mut Vm, mask: u64, new: impl Fn(u64) -> u64) -> u64 {
    let old = vm.memory.word(mask);
    vm.memory.set_word(mask, new(old));
    old
}

fn all(vm: &Vm) -> u64 {
    if vm.cpus >= 64 { u64::MAX } else { (1 << vm.cpus) - 1 }
}

/// The next CPU after the last answer given on this one (`cpumask_any_and_distribute`).
pub(crate) fn distribute(vm: &mut Vm, mask: u64) -> Option<usize> {
    if mask == 0 {
        return None;
    }
    let here = vm.cpu;
    let last = vm.distributed.get(here).copied().unwrap_or(0);
    let above = if last >= 63 { 0 } else { mask & u64::MAX << (last + 1) };
    let cpu = if above != 0 { above } else { mask }.trailing_zeros() as usize;
    if let Some(last) = vm.distributed.get_mut(here) {
        *last = cpu;
    }
    Some(cpu)
}

fn first(vm: &Vm, mask: u64) -> u64 {
    if mask == 0 { vm.cpus as u64 } else { u64::from(mask.trailing_zeros()) }
}

fn masks(name: &str) -> Option<Generic> {
    Some(match name {
        "bpf_cpumask_create" => |vm, _| {
            let mask = vm.memory.alloc(MASK_BYTES)?;
            vm.memory.set_word(mask + REFERENCES, 1);
            Ok(mask)
        },
        "bpf_cpumask_acquire" => |vm, a| {
            change(vm, a[0].wrapping_add(REFERENCES), |n| n + 1);
            Ok(a[0])
        },
        "bpf_cpumask_release" => |vm, a| {
            if change(vm, a[0].wrapping_add(REFERENCES), |n| n.saturating_sub(1)) == 1 {
                vm.memory.release(a[0], MASK_BYTES);
            }
            Ok(0)
        },
        "bpf_cpumask_first" => |vm, a| Ok(first(vm, vm.memory.word(a[0]))),
        "bpf_cpumask_first_zero" => |vm, a| Ok(first(vm, !vm.memory.word(a[0]) & all(vm))),
        "bpf_cpumask_first_and" => {
            |vm, a| Ok(first(vm, vm.memory.word(a[0]) & vm.memory.word(a[1])))
        }
        "bpf_cpumask_set_cpu" => |vm, a| {
            let one = bit(vm, a[0]);
            change(vm, a[1], |mask| mask | one);
            Ok(0)
        },
        "bpf_cpumask_clear_cpu" => |vm, a| {
            let one = bit(vm, a[0]);
            change(vm, a[1], |mask| mask & !one);
            Ok(0)
        },
        "bpf_cpumask_test_cpu" => |vm, a| Ok(u64::from(vm.memory.word(a[1]) & bit(vm, a[0]) != 0)),
        "bpf_cpumask_test_and_set_cpu" => |vm, a| {
            let one = bit(vm, a[0]);
            Ok(u64::from(change(vm, a[1], |mask| mask | one) & one != 0))
        },
        "bpf_cpumask_test_and_clear_cpu" => |vm, a| {
            let one = bit(vm, a[0]);
            Ok(u64::from(change(vm, a[1], |mask| mask & !one) & one != 0))
        },
        "bpf_cpumask_setall" => |vm, a| {
            let all = all(vm);
            change(vm, a[0], |_| all);
            Ok(0)
        },
        "bpf_cpumask_clear" => |vm, a| {
            change(vm, a[0], |_| 0);
            Ok(0)
        },
        _ => return two_masks(name),
    })
}

fn two_masks(name: &str) -> Option<Generic> {
    Some(match name {
        "bpf_cpumask_and" => |vm, a| {
            let mask = vm.memory.word(a[1]) & vm.memory.word(a[2]);
            vm.memory.set_word(a[0], mask);
            Ok(u64::from(mask != 0))
        },
        "bpf_cpumask_or" => |vm, a| {
            let mask = vm.memory.word(a[1]) | vm.memory.word(a[2]);
            vm.memory.set_word(a[0], mask);
            Ok(0)
        },
        "bpf_cpumask_xor" => |vm, a| {
            let mask = vm.memory.word(a[1]) ^ vm.memory.word(a[2]);
            vm.memory.set_word(a[0], mask);
            Ok(0)
        },
        "bpf_cpumask_copy" => |vm, a| {
            let mask = vm.memory.word(a[1]);
            vm.memory.set_word(a[0], mask);
            Ok(0)
        },
        "bpf_cpumask_equal" => |vm, a| Ok(u64::from(vm.memory.word(a[0]) == vm.memory.word(a[1]))),
        "bpf_cpumask_intersects" => {
            |vm, a| Ok(u64::from(vm.memory.word(a[0]) & vm.memory.word(a[1]) != 0))
        }
        "bpf_cpumask_subset" => {
            |vm, a| Ok(u64::from(vm.memory.word(a[0]) & !vm.memory.word(a[1]) == 0))
        }
        "bpf_cpumask_empty" => |vm, a| Ok(u64::from(vm.memory.word(a[0]) == 0)),
        "bpf_cpumask_full" => |vm, a| Ok(u64::from(vm.memory.word(a[0]) & all(vm) == all(vm))),
        "bpf_cpumask_weight" => |vm, a| Ok(u64::from(vm.memory.word(a[0]).count_ones())),
        "bpf_cpumask_any_distribute" => |vm, a| {
            let mask = vm.memory.word(a[0]);
            Ok(distribute(vm, mask).unwrap_or(vm.cpus) as u64)
        },
        "bpf_cpumask_any_and_distribute" => |vm, a| {
            let mask = vm.memory.word(a[0]) & vm.memory.word(a[1]);
            Ok(distribute(vm, mask).unwrap_or(vm.cpus) as u64)
        },
        _ => return None,
    })
}

/// One CPU at a time runs BPF here: locks are always free, and read sections end by themselves.
fn rest(name: &str) -> Option<Generic> {
    Some(match name {
        "bpf_rcu_read_lock"
        | "bpf_rcu_read_unlock"
        | "bpf_preempt_disable"
        | "bpf_preempt_enable"
        | "bpf_res_spin_lock"
        | "bpf_res_spin_unlock"
        | "bpf_local_irq_save"
        | "bpf_local_irq_restore"
        | "bpf_res_spin_lock_irqsave"
        | "bpf_res_spin_unlock_irqrestore" => |_, _| Ok(0),
        "bpf_arena_alloc_pages" => |vm, a| Ok(vm.memory.arena_pages(a[2] & 0xffff_ffff)),
        // Those at the front, which are never given out here.
        "bpf_arena_reserve_pages" => |_, _| Ok(0),
        // Pages stay: an address is used once only.
        "bpf_arena_free_pages" => |_, _| Ok(0),
        _ => return None,
    })
}

impl Vm {
    /// As the kernel's `cpumask_any_and_distribute`: the next CPU of `mask` after the last answer
    /// given on this CPU.
    pub fn any_of(&mut self, mask: u64) -> Option<usize> {
        distribute(self, mask)
    }
}
