//! Helpers that need memory, maps and time only.

use crate::errno::{EFAULT, ENOENT};
use crate::{Host, MapKind, Stop, bstr, run};

/// Rounds that `bpf_loop` may have (`BPF_MAX_LOOPS`).
const LOOPS: u64 = 8 << 20;

/// The name of a helper by its number, where it is one that schedulers use.
pub fn helper_name(number: i32) -> &'static str {
    match number {
        1 => "bpf_map_lookup_elem",
        2 => "bpf_map_update_elem",
        3 => "bpf_map_delete_elem",
        4 => "bpf_probe_read",
        5 => "bpf_ktime_get_ns",
        6 => "bpf_trace_printk",
        7 => "bpf_get_prandom_u32",
        8 => "bpf_get_smp_processor_id",
        12 => "bpf_tail_call",
        14 => "bpf_get_current_pid_tgid",
        16 => "bpf_get_current_comm",
        22 => "bpf_perf_event_read",
        25 => "bpf_perf_event_output",
        35 => "bpf_get_current_task",
        45 => "bpf_probe_read_str",
        55 => "bpf_perf_event_read_value",
        80 => "bpf_get_current_cgroup_id",
        87 => "bpf_map_push_elem",
        88 => "bpf_map_pop_elem",
        89 => "bpf_map_peek_elem",
        93 => "bpf_spin_lock",
        94 => "bpf_spin_unlock",
        112 => "bpf_probe_read_user",
        113 => "bpf_probe_read_kernel",
        114 => "bpf_probe_read_user_str",
        115 => "bpf_probe_read_kernel_str",
        118 => "bpf_jiffies64",
        125 => "bpf_ktime_get_boot_ns",
        130 => "bpf_ringbuf_output",
        131 => "bpf_ringbuf_reserve",
        132 => "bpf_ringbuf_submit",
        133 => "bpf_ringbuf_discard",
        134 => "bpf_ringbuf_query",
        153 => "bpf_per_cpu_ptr",
        154 => "bpf_this_cpu_ptr",
        156 => "bpf_task_storage_get",
        157 => "bpf_task_storage_delete",
        158 => "bpf_get_current_task_btf",
        160 => "bpf_ktime_get_coarse_ns",
        164 => "bpf_for_each_map_elem",
        165 => "bpf_snprintf",
        169 => "bpf_timer_init",
        170 => "bpf_timer_set_callback",
        171 => "bpf_timer_start",
        172 => "bpf_timer_cancel",
        173 => "bpf_get_func_ip",
        176 => "bpf_get_branch_snapshot",
        177 => "bpf_trace_vprintk",
        181 => "bpf_loop",
        182 => "bpf_strncmp",
        194 => "bpf_kptr_xchg",
        195 => "bpf_map_lookup_percpu_elem",
        208 => "bpf_ktime_get_tai_ns",
        209 => "bpf_user_ringbuf_drain",
        210 => "bpf_cgrp_storage_get",
        211 => "bpf_cgrp_storage_delete",
        _ => "a helper of another kind of program",
    }
}

/// Whether [`generic_helper`] has this one.
pub fn knows_helper(number: i32) -> bool {
    matches!(
        number,
        1..=8 | 45 | 55 | 87..=89 | 93 | 94 | 112..=115 | 125 | 130..=134 | 160 | 164 | 165 | 177
            | 181 | 182 | 194 | 195 | 208
    )
}

/// Calls a helper; `None`: it needs more than memory, maps and time.
///
/// # Errors
/// The program must not go on.
pub fn generic_helper<H: Host>(
    host: &mut H,
    number: i32,
    a: [u64; 5],
) -> Result<Option<u64>, Stop> {
    if let Some(value) = of_maps(host, number, a)? {
        return Ok(Some(value));
    }
    if let Some(value) = of_memory(host, number, a)? {
        return Ok(Some(value));
    }
    let vm = host.vm();
    Ok(Some(match number {
        5 | 125 | 160 | 208 => vm.now,
        6 | 177 => 0,
        7 => {
            // xorshift64*: a stream that is a function of the run's seed.
            vm.random ^= vm.random << 13;
            vm.random ^= vm.random >> 7;
            vm.random ^= vm.random << 17;
            vm.random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32
        }
        8 => vm.cpu as u64,
        // Locks are free. Records for user space have no reader, so they are lost as on a full
        // ring.
        93 | 94 | 130..=134 => 0,
        // An element without a counter (`get_map_perf_counter`).
        55 => ENOENT,
        164 => for_each(host, a)?,
        181 => repeat(host, a)?,
        _ => return Ok(None),
    }))
}

fn of_maps<H: Host>(host: &mut H, number: i32, a: [u64; 5]) -> Result<Option<u64>, Stop> {
    let vm = host.vm();
    Ok(Some(match number {
        1 => vm.maps.lookup(&vm.memory, vm.map(a[0])?.0, a[1], vm.cpu),
        195 if a[2] as usize >= vm.cpus => 0,
        195 => vm.maps.lookup(&vm.memory, vm.map(a[0])?.0, a[1], a[2] as usize),
        2 => {
            let map = vm.map(a[0])?.0;
            vm.maps.update(&mut vm.memory, map, (a[1], a[2], a[3]), (vm.cpu, vm.cpus))?
        }
        3 => {
            let (number, map) = vm.map(a[0])?;
            let key = vm.memory.bytes(a[1], map.def.key as usize).unwrap_or_default().to_vec();
            match vm.maps.remove(&mut vm.memory, number, &key, vm.cpus) {
                true => 0,
                false => ENOENT,
            }
        }
        87 => {
            let (number, map) = vm.map(a[0])?;
            let value = vm.memory.bytes(a[1], map.def.value as usize);
            let value = value.ok_or_else(|| Stop::new("bpf_map_push_elem: no value"))?.to_vec();
            vm.maps.push(number, value)
        }
        88 | 89 => {
            let map = vm.map(a[0])?.0;
            match vm.maps.pop(map, number == 88) {
                Some(value) => put(host, a[1], &value)?,
                None => ENOENT,
            }
        }
        _ => return Ok(None),
    }))
}

fn of_memory<H: Host>(host: &mut H, number: i32, a: [u64; 5]) -> Result<Option<u64>, Stop> {
    /// Most that a program may read at once here: its stack and maps are smaller.
    const MOST: usize = 1 << 20;
    let vm = host.vm();
    Ok(Some(match number {
        4 | 112 | 113 => {
            let (to, n) = (a[0], a[1] as usize);
            match vm.memory.bytes(a[2], n).map(<[u8]>::to_vec) {
                Some(bytes) => put(host, to, &bytes)?,
                None if n <= MOST => {
                    put(host, to, &vec![0; n])?;
                    EFAULT
                }
                None => EFAULT,
            }
        }
        45 | 114 | 115 => {
            let text = vm.memory.text(a[2], (a[1] as usize).saturating_sub(1).min(4096));
            put_text(host, a[0], a[1], text)?
        }
        165 => {
            let text = bstr(&vm.memory, a[2], a[3]);
            put_text(host, a[0], a[1], text)?
        }
        182 => {
            let n = (a[1] as usize).min(4096);
            let order = vm.memory.text(a[0], n).cmp(&vm.memory.text(a[2], n));
            order as i64 as u64
        }
        194 => {
            let old = vm.memory.word(a[0]);
            vm.memory.set_word(a[0], a[1]);
            old
        }
        _ => return Ok(None),
    }))
}

fn put<H: Host>(host: &mut H, to: u64, bytes: &[u8]) -> Result<u64, Stop> {
    match host.vm().memory.put(to, bytes) {
        true => Ok(0),
        false => Err(Stop::new(format!(
            "a helper is to write {} bytes to {to:#x}, where no object \
             has that much room",
            bytes.len()
        ))),
    }
}

fn put_text<H: Host>(host: &mut H, to: u64, room: u64, text: String) -> Result<u64, Stop> {
    let mut bytes = text.into_bytes();
    bytes.truncate((room as usize).saturating_sub(1));
    bytes.push(0);
    if room > 0 {
        put(host, to, &bytes)?;
    }
    Ok(bytes.len() as u64)
}

fn callback<H: Host>(host: &mut H, address: u64) -> Result<usize, Stop> {
    let none = || Stop::new(format!("a callback at {address:#x} is no function of this object"));
    host.vm().function(address).ok_or_else(none)
}

fn repeat<H: Host>(host: &mut H, a: [u64; 5]) -> Result<u64, Stop> {
    let function = callback(host, a[1])?;
    if a[0] as u32 as u64 > LOOPS {
        return Ok(crate::errno::E2BIG);
    }
    for i in 0..a[0] as u32 as u64 {
        if run(host, function, &[i, a[2]])? != 0 {
            return Ok(i + 1);
        }
    }
    Ok(a[0] as u32 as u64)
}

fn for_each<H: Host>(host: &mut H, a: [u64; 5]) -> Result<u64, Stop> {
    let function = callback(host, a[1])?;
    let (number, map) = host.vm().map(a[0])?;
    let (kind, base, stride, max, room) =
        (map.kind, map.base, map.stride, u64::from(map.def.max), map.key_room);
    let elements: Vec<(Vec<u8>, u64)> = match kind {
        MapKind::Array | MapKind::PerCpuArray => {
            (0..max).map(|i| ((i as u32).to_le_bytes().to_vec(), base + i * stride)).collect()
        }
        _ => host.vm().maps.entries(number),
    };
    let mut done = 0;
    for (key, value) in elements {
        host.vm().memory.put(room, &key);
        done += 1;
        if run(host, function, &[a[0], room, value, a[2]])? != 0 {
            break;
        }
    }
    Ok(done)
}
