//! The interpreter.

use crate::insn::{Insn, Kind};
use crate::memory::Miss;
use crate::{ARENA, ARENA_USER, FUNCTIONS, Map, Maps, Memory, Stop, alu};
use std::sync::Arc;

/// Instructions that one outermost call may execute: the kernel ends a `may_goto` loop after 250 ms
/// (`BPF_MAX_TIMED_LOOPS`), which is this many at one instruction a nanosecond.
pub const BUDGET: u64 = 250_000_000;
/// Rounds after which `may_goto` leaves a loop (`BPF_MAX_LOOPS`).
const ROUNDS: u64 = 8 << 20;
/// Bytes of stack of one function (`MAX_BPF_STACK`).
const FRAME: u64 = 512;
/// Frames follow each other with a gap, so that one does not reach into the next.
const STRIDE: u64 = FRAME + 64;
/// Functions in each other (`MAX_CALL_FRAMES` is 8 for one program; callbacks nest).
const DEPTH: usize = 32;

/// What runs an object: it gives kernel functions and helpers.
pub trait Host {
    /// The machine.
    fn vm(&mut self) -> &mut Vm;
    /// Calls kernel function number `which` (as the linker was told).
    ///
    /// # Errors
    /// The program must not go on.
    fn kfunc(&mut self, which: u32, args: [u64; 5]) -> Result<u64, Stop>;
    /// Calls a helper.
    ///
    /// # Errors
    /// The program must not go on.
    fn helper(&mut self, number: i32, args: [u64; 5]) -> Result<u64, Stop>;
}

/// Memory, instructions and maps of a linked object.
#[derive(Debug, Default)]
pub struct Vm {
    /// Memory.
    pub memory: Memory,
    /// Maps.
    pub maps: Maps,
    /// Time that helpers see, in nanoseconds.
    pub now: u64,
    /// CPU on which programs run.
    pub cpu: usize,
    /// CPUs of the machine.
    pub cpus: usize,
    /// State of the random numbers that helpers give.
    pub random: u64,
    /// By CPU: the last answer of `cpumask_any_and_distribute` there.
    pub distributed: Vec<usize>,
    /// Instructions that one outermost call may execute.
    pub budget: u64,
    /// Instructions executed.
    pub executed: u64,
    /// Loads outside memory, which gave 0.
    pub outside: u64,
    pub(crate) code: Arc<[Insn]>,
    pub(crate) poison: crate::insn::Poison,
    pub(crate) stack: u64,
    pub(crate) contexts: u64,
    depth: usize,
    /// Instructions and rounds that the outermost call has left.
    left: u64,
    rounds: u64,
}

/// A caller that waits: its next instruction and the registers that it keeps.
struct Caller {
    next: usize,
    kept: [u64; 5],
}

impl Vm {
    /// Room for stack and contexts.
    ///
    /// # Errors
    /// The memory is full.
    pub(crate) fn open(&mut self) -> Result<(), Stop> {
        self.stack = self.memory.alloc(DEPTH * STRIDE as usize)?;
        self.contexts = self.memory.alloc(DEPTH * 128)?;
        for frame in 0..DEPTH as u64 {
            self.memory.gap(self.stack + STRIDE * frame, (STRIDE - FRAME) as usize);
            self.memory.gap(self.contexts + 128 * frame + 96, 32);
        }
        Ok(())
    }
    /// Writes the arguments of a callback where its program expects them, and returns that address.
    pub fn context(&mut self, args: &[u64]) -> u64 {
        let at = self.contexts + 128 * self.depth.min(DEPTH - 1) as u64;
        for (i, value) in args.iter().take(12).enumerate() {
            self.memory.set_word(at + 8 * i as u64, *value);
        }
        at
    }
    /// The first instruction of the function at an address.
    pub fn function(&self, address: u64) -> Option<usize> {
        let at = address.wrapping_sub(FUNCTIONS) / 8;
        (address >= FUNCTIONS && at < self.code.len() as u64).then_some(at as usize)
    }
    /// A map by the address of its head.
    ///
    /// # Errors
    /// There is none at this address.
    pub fn map(&self, head: u64) -> Result<(usize, &Map), Stop> {
        self.maps.at(&self.memory, head)
    }

    fn enter(&mut self) -> Result<u64, Stop> {
        if self.depth == DEPTH {
            return Err(Stop::new("functions are nested too deeply"));
        }
        if self.depth == 0 {
            self.memory.settle();
            (self.left, self.rounds) = (self.budget, ROUNDS);
        }
        self.depth += 1;
        Ok(self.stack + STRIDE * self.depth as u64)
    }

    /// Counts instructions that were executed.
    fn count(&mut self, n: u64) -> Result<(), Stop> {
        self.executed += n;
        self.left = self.left.checked_sub(n).ok_or_else(|| {
            let n = self.budget;
            Stop::new(format!("the program does not end: {n} instructions in one call"))
        })?;
        Ok(())
    }

    fn load(&mut self, address: u64, insn: Insn) -> Result<u64, Stop> {
        let value = match self.memory.load(address, usize::from(insn.size)) {
            Ok(value) => value,
            Err(Miss::Outside) => {
                self.outside += 1;
                0
            }
            Err(Miss::Gap) => return Err(beside("reads", address)),
        };
        let unused = 64 - 8 * u32::from(insn.size);
        Ok(match insn.kind {
            Kind::LoadSigned => (((value << unused) as i64) >> unused) as u64,
            _ => value,
        })
    }

    fn store(&mut self, address: u64, size: u8, value: u64) -> Result<(), Stop> {
        self.memory.store(address, usize::from(size), value).map_err(|_| beside("writes", address))
    }

    fn atomic(&mut self, insn: Insn, r: &mut [u64; 11]) -> Result<(), Stop> {
        const ACQUIRE: i64 = 0x100;
        const EXCHANGE_IF: i64 = 0xf1;
        let (d, s) = (usize::from(insn.dst), usize::from(insn.src));
        let base = if insn.imm == ACQUIRE { r[s] } else { r[d] };
        let address = base.wrapping_add(insn.off as u64);
        let n = usize::from(insn.size);
        let cut = |value: u64| if n == 8 { value } else { value & ((1 << (8 * n)) - 1) };
        let old = self.memory.load(address, n).map_err(|_| beside("changes", address))?;
        let new = alu::atomic(insn.imm, old, cut(r[s]), cut(r[0]))
            .ok_or_else(|| Stop::new(format!("atomic operation {:#x} is not known", insn.imm)))?;
        match insn.imm {
            ACQUIRE => {
                r[d] = old;
                return Ok(());
            }
            EXCHANGE_IF => r[0] = old,
            code if code & 1 == 1 => r[s] = old,
            _ => {}
        }
        self.store(address, insn.size, new)
    }
}

fn beside(does: &str, address: u64) -> Stop {
    Stop::new(format!(
        "the program {does} memory at {address:#x}, which belongs to no object (a verifier would \
         have refused it)"
    ))
}

/// Runs the function at `entry` with up to five arguments.
///
/// # Errors
/// It did what cannot be, or did not end.
pub fn run<H: Host>(host: &mut H, entry: usize, args: &[u64]) -> Result<u64, Stop> {
    let depth = host.vm().depth;
    let result = execute(host, entry, args);
    host.vm().depth = depth;
    result
}

fn execute<H: Host>(host: &mut H, entry: usize, args: &[u64]) -> Result<u64, Stop> {
    let code = Arc::clone(&host.vm().code);
    let mut r = [0u64; 11];
    for (register, value) in r[1..6].iter_mut().zip(args) {
        *register = *value;
    }
    r[10] = host.vm().enter()?;
    let mut callers: Vec<Caller> = Vec::new();
    let (mut pc, mut n) = (entry, 0u64);
    loop {
        let Some(insn) = code.get(pc).copied() else {
            return Err(Stop::new("the program runs past its last instruction"));
        };
        let at = pc;
        pc += 1;
        n += 1;
        let (d, s) = (usize::from(insn.dst), usize::from(insn.src));
        let b = if insn.by_register { r[s] } else { insn.imm as u64 };
        match insn.kind {
            Kind::Alu64 => {
                r[d] = alu::alu64(insn.code, insn.off, r[d], b).unwrap_or(0);
            }
            Kind::Alu32 => {
                r[d] = alu::alu32(insn.code, insn.off, r[d], b).unwrap_or(0);
            }
            Kind::Jump64 if alu::holds(insn.code, true, r[d], b) => pc = insn.off as usize,
            Kind::Jump32 if alu::holds(insn.code, false, r[d], b) => pc = insn.off as usize,
            Kind::Jump64 | Kind::Jump32 => {}
            Kind::Load | Kind::LoadSigned => {
                let address = r[s].wrapping_add(insn.off as u64);
                r[d] = host.vm().load(address, insn).map_err(|stop| stop.at(at))?;
            }
            Kind::Store => {
                let address = r[d].wrapping_add(insn.off as u64);
                host.vm().store(address, insn.size, b).map_err(|stop| stop.at(at))?;
            }
            Kind::Number => {
                r[d] = insn.imm as u64;
                pc += 1;
            }
            Kind::Goto => pc = insn.off as usize,
            Kind::Exit => match callers.pop() {
                Some(caller) => {
                    pc = caller.next;
                    r[6..=10].copy_from_slice(&caller.kept);
                    host.vm().depth -= 1;
                }
                None => {
                    host.vm().count(n)?;
                    return Ok(r[0]);
                }
            },
            _ => {
                host.vm().count(std::mem::take(&mut n)).map_err(|stop| stop.at(at))?;
                pc =
                    rare(host, insn, (at, pc), &mut r, &mut callers).map_err(|stop| stop.at(at))?;
            }
        }
        if n > 1 << 20 {
            host.vm().count(std::mem::take(&mut n)).map_err(|stop| stop.at(at))?;
        }
    }
}

/// Everything but arithmetic, jumps and memory. Returns the next instruction.
fn rare<H: Host>(
    host: &mut H,
    insn: Insn,
    (at, next): (usize, usize),
    r: &mut [u64; 11],
    callers: &mut Vec<Caller>,
) -> Result<usize, Stop> {
    let (d, s) = (usize::from(insn.dst), usize::from(insn.src));
    let arena = |side: u64, pointer: u64| match pointer as u32 {
        0 => 0,
        low => side | u64::from(low),
    };
    match insn.kind {
        Kind::Local => {
            callers.push(Caller { next, kept: [r[6], r[7], r[8], r[9], r[10]] });
            r[10] = host.vm().enter()?;
            return Ok(insn.imm as usize);
        }
        Kind::Kfunc => r[0] = host.kfunc(insn.imm as u32, [r[1], r[2], r[3], r[4], r[5]])?,
        Kind::Helper => r[0] = host.helper(insn.imm as i32, [r[1], r[2], r[3], r[4], r[5]])?,
        Kind::Atomic => host.vm().atomic(insn, r)?,
        Kind::ToLittle => r[d] = alu::order(r[d], insn.imm, false),
        Kind::Swap => r[d] = alu::order(r[d], insn.imm, true),
        Kind::CastKernel => r[d] = arena(ARENA, r[s]),
        Kind::CastUser => r[d] = arena(ARENA_USER, r[s]),
        Kind::MayGoto => match host.vm().rounds.checked_sub(1) {
            Some(left) => host.vm().rounds = left,
            None => return Ok(insn.off as usize),
        },
        Kind::Poisoned => {
            let what = host.vm().poison.get(&at).cloned().unwrap_or_default();
            return Err(Stop::new(what));
        }
        _ => return Err(Stop::new("the program runs into the middle of an instruction")),
    }
    Ok(next)
}
