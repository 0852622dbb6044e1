//! Helpers that know tasks, CPUs and timers.

use super::kernel::{Kernel, Step, TimerState};
use crate::{Cmd, Timer};
use schedlab_bpf::errno::{EBUSY, EINVAL};
use schedlab_bpf::{Stop, helper_name, run};
use schedlab_model::{CpuId, Ns};

/// Which helpers there are beside the generic ones.
pub(super) fn has_helper(number: i32) -> bool {
    schedlab_bpf::knows_helper(number)
        || matches!(number, 14 | 35 | 118 | 153 | 154 | 156..=158 | 169..=172 | 210 | 211)
}

/// `BPF_F_TIMER_ABS`.
const ABSOLUTE: u64 = 1;

impl Kernel {
    pub(super) fn own_helper(&mut self, number: i32, a: [u64; 5]) -> Step<u64> {
        let cpu = self.vm.cpu;
        Ok(match number {
            14 => match self.cpus[cpu].curr {
                Some(t) => {
                    let addr = self.tasks[t].addr;
                    self.get(addr, self.layout.tgid) << 32 | self.get(addr, self.layout.pid)
                }
                None => 0,
            },
            35 | 158 => self.curr_addr(cpu),
            118 => self.jiffies(),
            153 | 154 => {
                let of = if number == 153 { a[1] as u32 as usize } else { cpu };
                let stride = self.per_cpu.get(&a[0]).copied().unwrap_or(0);
                if of < self.cpus.len() { a[0] + stride * of as u64 } else { 0 }
            }
            156 | 210 => {
                if number == 156 && self.task_at(a[1]).is_none_or(|t| !self.tasks[t].alive) {
                    return Ok(0);
                }
                self.storage(a)?
            }
            157 | 211 => {
                let map = self.vm.map(a[0])?.0;
                let (key, cpus) = (a[1].to_le_bytes(), self.vm.cpus);
                let vm = &mut self.vm;
                vm.maps.remove(&mut vm.memory, map, &key, cpus);
                0
            }
            169 => self.timer_init(a)?,
            170 => match self.timer_at.get(&a[0]) {
                Some(timer) => {
                    self.timers[*timer].callback = self.vm.function(a[1]);
                    0
                }
                None => EINVAL,
            },
            171 => self.timer_start(a),
            172 => match self.timer_at.get(&a[0]) {
                Some(timer) => u64::from(self.disarm(*timer)),
                None => EINVAL,
            },
            _ => {
                let name = helper_name(number);
                return Err(Stop::new(format!("helper {name} ({number}) is not modelled")));
            }
        })
    }

    fn storage(&mut self, a: [u64; 5]) -> Step<u64> {
        const CREATE: u64 = 1;
        let (map, def) = self.vm.map(a[0])?;
        let bytes = def.def.value as usize;
        let vm = &mut self.vm;
        let known = vm.maps.storage(&mut vm.memory, map, a[1], false)?;
        if known != 0 || a[3] & CREATE == 0 {
            return Ok(known);
        }
        let value = vm.maps.storage(&mut vm.memory, map, a[1], true)?;
        if a[2] != 0
            && let Some(first) = vm.memory.bytes(a[2], bytes).map(<[u8]>::to_vec)
        {
            vm.memory.put(value, &first);
        }
        Ok(value)
    }

    fn timer_init(&mut self, a: [u64; 5]) -> Step<u64> {
        let map = self.vm.map(a[1])?.0;
        if self.timer_at.contains_key(&a[0]) {
            return Ok(EBUSY);
        }
        self.timer_at.insert(a[0], self.timers.len());
        self.timers.push(TimerState { addr: a[0], map, ..TimerState::default() });
        Ok(0)
    }

    fn timer_start(&mut self, a: [u64; 5]) -> u64 {
        let Some(&timer) = self.timer_at.get(&a[0]) else { return EINVAL };
        if self.timers[timer].callback.is_none() {
            return EINVAL;
        }
        self.disarm(timer);
        let now = self.vm.now;
        let at = if a[2] & ABSOLUTE != 0 { a[1].max(now) } else { now.saturating_add(a[1]) };
        let cpu = self.vm.cpu;
        self.armings += 1;
        let entry = (at, self.armings, timer);
        let list = &mut self.cpus[cpu].timers;
        list.insert(list.partition_point(|other| *other < entry), entry);
        self.timers[timer].armed_on = Some(cpu);
        self.arm(cpu);
        0
    }

    fn disarm(&mut self, timer: usize) -> bool {
        let Some(cpu) = self.timers[timer].armed_on.take() else { return false };
        self.cpus[cpu].timers.retain(|entry| entry.2 != timer);
        true
    }

    /// Asks the driver for the first timer of a CPU.
    fn arm(&mut self, cpu: usize) {
        if let Some((at, ..)) = self.cpus[cpu].timers.first() {
            self.cmds.push(Cmd::Arm(Timer::Cpu(CpuId::from(cpu), 0), Ns(*at)));
        }
    }

    /// Timers of a CPU that are due call their programs.
    pub(super) fn timers_due(&mut self, cpu: usize) -> Step {
        while let Some((at, _, timer)) = self.cpus[cpu].timers.first().copied() {
            if at > self.vm.now {
                break;
            }
            self.cpus[cpu].timers.remove(0);
            self.timers[timer].armed_on = None;
            let TimerState { addr, map, callback, .. } = self.timers[timer];
            let (Some(entry), Some(map)) = (callback, self.vm.maps.get(map)) else { continue };
            // The key is the number of the element that holds the timer.
            let index = addr.wrapping_sub(map.base) / map.stride.max(1);
            let (head, room) = (map.head, map.key_room);
            let value = map.base + index * map.stride;
            self.vm.memory.write(room, 4, index);
            self.vm.cpu = cpu;
            run(self, entry, &[head, room, value]).map_err(|stop| {
                let place = stop.instruction().and_then(|at| self.object.place(at));
                Stop::new(format!("timer: {}", stop.locate(place)))
            })?;
            if self.ended.is_some() {
                break;
            }
        }
        self.arm(cpu);
        Ok(())
    }
}
