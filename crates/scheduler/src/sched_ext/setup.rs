//! From an object and a machine to a kernel that runs it.

use super::calls::{self, Model};
use super::helpers::has_helper;
use super::kernel::{Cpu, Kernel, Parts, Rules};
use super::layout::Layout;
use super::ops::{self, Op, dsq, flag};
use super::{Source, options};
use crate::World;
use schedlab_bpf::{BpfError, Btf, Kind, Object, Stop, Symbols, Vm, helper_name, link, reached};
use schedlab_model::CpuId;
use std::collections::BTreeMap;
use std::sync::Arc;

/// CPUs that a machine may have: masks are one word here.
pub(super) const MOST_CPUS: usize = 64;

/// What the kernel gives to an object.
struct Given<'a> {
    models: Vec<Model>,
    names: Vec<String>,
    cpus: usize,
    rqs: Option<u64>,
    rq_stride: u64,
    per_cpu: BTreeMap<u64, u64>,
    world: &'a World,
}

impl Symbols for Given<'_> {
    fn function(&mut self, name: &str) -> Option<u32> {
        if let Some(known) = self.names.iter().position(|one| one == name) {
            return Some(known as u32);
        }
        let model = calls::model(name)?;
        self.names.push(name.to_owned());
        self.models.push(model);
        Some(self.models.len() as u32 - 1)
    }

    fn variable(&mut self, name: &str, bytes: usize, vm: &mut Vm) -> Result<u64, BpfError> {
        let full = |stop: Stop| BpfError::Refused(stop.to_string());
        if name == "runqueues" {
            let addr = vm.memory.alloc(self.rq_stride as usize * self.cpus).map_err(full)?;
            self.per_cpu.insert(addr, self.rq_stride);
            self.rqs = Some(addr);
            return Ok(addr);
        }
        let stride = bytes.max(8).next_multiple_of(64);
        let addr = vm.memory.alloc(stride * self.cpus).map_err(full)?;
        self.per_cpu.insert(addr, stride as u64);
        for cpu in 0..self.cpus {
            let llc = self.world.topology.sharing(CpuId::from(cpu), |place| place.llc);
            let value = match name {
                "sd_llc_id" => llc.lowest().map_or(0, |cpu| u64::from(cpu.0)),
                "sd_llc_size" => llc.count() as u64,
                _ => continue,
            };
            vm.memory.write(addr + (stride * cpu) as u64, 4, value);
        }
        Ok(addr)
    }

    fn config(&mut self, name: &str) -> Option<u64> {
        match name {
            "CONFIG_HZ" => Some(u64::from(self.world.hz)),
            "CONFIG_NR_CPUS" => Some(8192),
            "CONFIG_PREEMPT_RCU" => Some(1),
            _ => None,
        }
    }
}

/// Which kernel's rules the type information asks for.
pub(super) fn rules(kernel: &Btf) -> Rules {
    let custody = kernel.enumerators().contains_key("SCX_TASK_IN_CUSTODY");
    Rules {
        dequeue_always: custody,
        server: kernel.field("rq", "ext_server").is_some(),
        idle_topology: kernel.function("scx_bpf_dsq_insert").is_some() || custody,
    }
}

/// Kernel functions and helpers that callbacks reach and the simulator does not have: of each the
/// name and a callback.
pub(super) fn lacking(object: &Object, kernel: &Btf) -> Vec<(String, String)> {
    let present = |name: &str| has_function(object, kernel, name);
    let mut all: Vec<(String, String)> = Vec::new();
    let Ok(scheduler) = ops::scheduler(object) else { return all };
    for (callback, entry) in &scheduler.calls {
        let never = ops::NEVER_CALLED.iter().any(|(name, _)| name == callback);
        if never {
            continue;
        }
        let found = reached(object, *entry, present);
        let kfuncs = found.kfuncs.iter().filter(|name| present(name));
        let kfuncs = kfuncs.map(|name| schedlab_bpf::essential(name));
        let kfuncs = kfuncs.filter(|name| calls::model(name).is_none()).map(str::to_owned);
        let helpers = found.helpers.iter().filter(|number| !has_helper(**number));
        let helpers = helpers.map(|number| format!("{} ({number})", helper_name(*number)));
        for name in kfuncs.chain(helpers) {
            if !all.iter().any(|(known, _)| *known == name) {
                all.push((name, callback.clone()));
            }
        }
    }
    all
}

/// Whether the kernel has a function as the object declares it.
pub(super) fn has_function(object: &Object, kernel: &Btf, name: &str) -> bool {
    let Some(function) = kernel.function(schedlab_bpf::essential(name)) else { return false };
    let own = object.btf.function(name);
    own.is_none_or(|own| object.btf.arguments(own) == kernel.arguments(function))
}

/// Callbacks of the object that the kernel does not have.
fn unknown_callbacks(object: &Object, kernel: &Btf, ty: &str) -> Vec<String> {
    let Ok(scheduler) = ops::scheduler(object) else { return Vec::new() };
    let Some(id) = kernel.structure(ty) else { return Vec::new() };
    let has = |name: &str| kernel.member(id, name).is_some();
    scheduler.calls.keys().filter(|name| !has(name)).cloned().collect()
}

/// Why an object cannot run under a kernel with these types, whatever the machine.
pub(super) fn refused(object: &Object, kernel: &Btf) -> Result<(), String> {
    if kernel.structure("sched_ext_ops").is_none() {
        return Err("the kernel's type information has no `struct sched_ext_ops`: that kernel is \
                    built without sched_ext (CONFIG_SCHED_CLASS_EXT); take the BTF of one that \
                    has it, Linux 6.12 or later (--kernel-btf)"
            .to_owned());
    }
    let scheduler = ops::scheduler(object)?;
    let ty = schedlab_bpf::essential(&scheduler.ty).to_owned();
    if kernel.structure(&ty).is_none() {
        return Err(format!(
            "it is a `struct {ty}`, which this kernel does not have: it needs a later one \
             (--kernel-btf)"
        ));
    }
    let unknown = unknown_callbacks(object, kernel, &ty);
    if !unknown.is_empty() {
        return Err(format!(
            "this kernel has no ops.{}(): the object is for another kernel (--kernel-btf)",
            unknown.join("() and ops.")
        ));
    }
    if let Some((name, callback)) = lacking(object, kernel).first() {
        return Err(format!(
            "ops.{callback}() reaches {name}, which the simulator does not have (`schedlab bpf \
             inspect` lists all such calls)"
        ));
    }
    Ok(())
}

/// A kernel that has loaded the object; nothing of it has run.
pub(super) fn build(source: &Source, world: &World) -> Result<Kernel, String> {
    let cpus = world.cpus.len();
    if cpus > MOST_CPUS {
        return Err(format!("schedulers in BPF run on at most {MOST_CPUS} CPUs here, not {cpus}"));
    }
    refused(&source.object, &source.kernel)?;
    let mut object = Object::clone(&source.object);
    options::fit_to_machine(&mut object, cpus);
    if let Some(profile) = &source.profile {
        let wrong = |why: String| format!("profile: {why}");
        profile.apply(&mut object, &source.kernel, world).map_err(wrong)?;
        // What was chosen goes before what the profile says.
        for (name, value) in &source.chosen {
            options::set(&mut object, name, value)?;
        }
    }
    let (object, layout) = (Arc::new(object), Layout::of(&source.kernel));
    let rq_stride = (layout.rq_bytes as u64 + 16).next_multiple_of(64);
    let mut given = Given {
        models: Vec::new(),
        names: Vec::new(),
        cpus,
        rqs: None,
        rq_stride,
        per_cpu: BTreeMap::new(),
        world,
    };
    let linked = link(&object, &source.kernel, cpus, &mut given);
    let mut linked = linked.map_err(|error| error.to_string())?;
    let rqs = match given.rqs {
        Some(named) => named,
        None => linked.vm.memory.alloc(rq_stride as usize * cpus).map_err(|s| s.to_string())?,
    };
    let parts = Parts {
        vm: linked.vm,
        rules: rules(&source.kernel),
        models: given.models,
        hz: u64::from(world.hz),
        object: Arc::clone(&object),
        layout,
    };
    let mut kernel = Kernel::new(parts);
    kernel.per_cpu = given.per_cpu;
    (kernel.rqs, kernel.rq_stride) = (rqs, rq_stride);
    furnish(&mut kernel, world).map_err(|stop| stop.to_string())?;
    attach(&mut kernel, &object)?;
    Ok(kernel)
}

/// CPUs, queues, masks, groups and tasks.
fn furnish(kernel: &mut Kernel, world: &World) -> Result<(), Stop> {
    let cpus = world.cpus.len();
    let all = if cpus == 64 { u64::MAX } else { (1 << cpus) - 1 };
    let mut masks = [0; 3];
    for mask in &mut masks {
        *mask = kernel.vm.memory.alloc(schedlab_bpf::MASK_BYTES)?;
        kernel.vm.memory.set_word(*mask, all);
    }
    [kernel.idle_mask, kernel.smt_mask, kernel.online_mask] = masks;
    kernel.args = kernel.vm.memory.alloc(256)?;
    for (cpu, view) in world.cpus.iter().enumerate() {
        let id = CpuId::from(cpu);
        let idle_task = kernel.idle_task(cpu)?;
        let place = world.topology.places()[cpu];
        kernel.cpus.push(Cpu {
            online: view.online,
            idle_task,
            smt: world.topology.sharing(id, |place| place.core).first_word(),
            llc: world.topology.sharing(id, |place| place.llc).first_word(),
            node: world.topology.sharing(id, |place| place.node).first_word(),
            node_id: place.node as usize,
            ..Cpu::default()
        });
        let rq = kernel.rqs + kernel.rq_stride * cpu as u64;
        let layout = kernel.layout;
        kernel.set(rq, layout.rq_curr, idle_task);
        kernel.set(rq, layout.rq_idle, idle_task);
        kernel.set(rq, layout.rq_cpu, cpu as u64);
        kernel.add_queue(dsq::LOCAL)?;
    }
    kernel.add_queue(dsq::GLOBAL)?;
    kernel.place_groups(world)?;
    kernel.place_tasks(world)?;
    kernel.place_servers(world);
    Ok(())
}

/// Callbacks and numbers of the scheduler's struct_ops.
fn attach(kernel: &mut Kernel, object: &Object) -> Result<(), String> {
    let scheduler = ops::scheduler(object)?;
    kernel.name = scheduler.text.clone();
    for (name, entry) in &scheduler.calls {
        if let Some(op) = Op::ALL.iter().find(|op| op.name() == ops::plain(name)) {
            kernel.set_entry(*op, *entry);
        }
    }
    let value = |name: &str| scheduler.values.get(name).copied();
    kernel.flags = value("flags").unwrap_or(0);
    if let Some(ms) = value("timeout_ms") {
        kernel.timeout = ms.saturating_mul(1_000_000).min(ops::WATCHDOG);
    }
    if let Some(batch) = value("dispatch_max_batch") {
        kernel.batch = batch.min(65_536) as usize;
    }
    kernel.builtin_idle =
        !kernel.has(Op::UpdateIdle) || kernel.flags & flag::KEEP_BUILTIN_IDLE != 0;
    if kernel.timeout == 0 {
        return Err("ops.timeout_ms is 0".to_owned());
    }
    Ok(())
}

/// Programs of the object beside its callbacks, which nothing runs here.
pub(super) fn programs_not_run(object: &Object) -> Vec<String> {
    let mut sections: Vec<String> = object
        .programs
        .iter()
        .map(|program| program.section.clone())
        .filter(|name| !name.starts_with("struct_ops") && name != ".text")
        .collect();
    sections.dedup();
    sections.sort();
    sections.dedup();
    sections
}

/// Maps of kinds without a model.
pub(super) fn maps_without_model(object: &Object) -> Vec<String> {
    let unknown = |map: &&schedlab_bpf::MapDef| schedlab_bpf::MapKind::of(map.kind).is_none();
    object.maps.iter().filter(unknown).map(|map| map.name.clone()).collect()
}

/// Whether a type of the object is a timer, for lists.
pub(super) fn holds_timer(object: &Object, ty: u32) -> bool {
    object.btf.members(ty).iter().any(|member| {
        let plain = object.btf.plain(member.ty);
        matches!(object.btf.kind(plain), Kind::Struct(..)) && object.btf.name(plain) == "bpf_timer"
    })
}
