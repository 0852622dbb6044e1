//! What the user half of a scheduler sets up before it attaches: options that depend on the
//! machine, arrays with an element for each CPU, maps of the machine's size, `syscall` programs.
//!
//! A profile says it in words of the machine (`cpus`, `smt`, `cpu`, `sibling`, …), so that one file
//! serves every machine.

use super::kernel::{Kernel, Step};
use super::options;
use crate::World;
use schedlab_bpf::{Btf, Kind, Object, Stop, run};
use schedlab_model::CpuId;

/// What a user half sets up.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Profile {
    /// The name of the scheduler that it is for (`ops.name`).
    pub scheduler: String,
    /// Options and their values.
    pub options: Vec<(String, String)>,
    /// Arrays, and the value of each CPU's element.
    pub per_cpu: Vec<(String, String)>,
    /// Maps, and how many entries they have.
    pub maps: Vec<(String, String)>,
    /// Programs that are run.
    pub calls: Vec<ProfileCall>,
}

/// A `syscall` program that is run once, or for each CPU.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProfileCall {
    /// Its name.
    pub program: String,
    /// For what.
    pub each: Each,
    /// Only on a machine whose cores have several hardware threads.
    pub with_smt: bool,
    /// Once the scheduler has begun, not before.
    pub after_attach: bool,
    /// Members of the structure that it takes, and their values.
    pub args: Vec<(String, String)>,
}

/// For what a program is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Each {
    /// Once.
    #[default]
    Once,
    /// For each CPU.
    Cpu,
    /// For each CPU with each other one of its core.
    Sibling,
}

/// Words that a value may be.
pub const WORDS: [&str; 10] =
    ["cpus", "cores", "llcs", "nodes", "smt", "numa", "cpu", "sibling", "llc", "node"];

/// A machine, as user halves see it.
struct View<'a> {
    world: &'a World,
    enumerators: schedlab_bpf::Enumerators,
}

impl View<'_> {
    fn of(&self, cpu: usize) -> schedlab_model::CpuPlace {
        self.world.topology.places()[cpu]
    }
    fn count<T: Ord>(&self, of: impl Fn(schedlab_model::CpuPlace) -> T) -> usize {
        let all = self.world.topology.places().iter().map(|place| of(*place));
        all.collect::<std::collections::BTreeSet<T>>().len()
    }
    fn cpus(&self) -> usize {
        self.world.cpus.len()
    }
    fn smt(&self) -> bool {
        self.count(|place| place.core) < self.cpus()
    }
    /// The CPUs that share a core with one, itself left out.
    fn siblings(&self, cpu: usize) -> Vec<usize> {
        let core = self.world.topology.sharing(CpuId::from(cpu), |place| place.core);
        (0..self.cpus())
            .filter(|other| *other != cpu && core.contains(CpuId::from(*other)))
            .collect()
    }

    /// The value of a text, for a CPU and another one of its core.
    fn value(&self, text: &str, at: Option<(usize, usize)>) -> Result<i128, String> {
        let cpu = || at.map(|(cpu, _)| cpu).ok_or("has a meaning only for each CPU".to_owned());
        let word = |text: &str| -> Result<Option<usize>, String> {
            Ok(Some(match text {
                "cpus" => self.cpus(),
                "cores" => self.count(|place| place.core),
                "llcs" => self.count(|place| place.llc),
                "nodes" => self.count(|place| place.node),
                "smt" => usize::from(self.smt()),
                "numa" => usize::from(self.count(|place| place.node) > 1),
                "cpu" => cpu()?,
                "sibling" => at.map_or_else(|| cpu().map(|_| 0), |(_, other)| Ok(other))?,
                "llc" => self.of(cpu()?).llc as usize,
                "node" => self.of(cpu()?).node as usize,
                _ => return Ok(None),
            }))
        };
        if let Some(number) = options::number(text) {
            return Ok(number);
        }
        if let Some(number) = word(text).map_err(|why| format!("`{text}` {why}"))? {
            return Ok(number as i128);
        }
        // Flags of the kernel: those that it lacks are 0, as scx's compat layer has it.
        let flags = text.split('|').map(str::trim);
        if flags.clone().all(|name| name.starts_with("SCX_")) {
            let known = flags.map(|name| self.enumerators.get(name).copied().unwrap_or(0));
            return Ok(i128::from(known.fold(0, |all, flag| all | flag)));
        }
        Err(format!(
            "`{text}` is no number, time, flag of the kernel (SCX_...) or one of {}",
            WORDS.join(", ")
        ))
    }
}

impl Profile {
    /// Sets options, arrays and maps of an object that has the size of the machine already.
    ///
    /// # Errors
    /// The object has no such option, or a value does not fit.
    pub(super) fn apply(
        &self,
        object: &mut Object,
        kernel: &Btf,
        world: &World,
    ) -> Result<(), String> {
        let view = View { world, enumerators: kernel.enumerators() };
        for (name, text) in &self.options {
            let value = view.value(text, None).map_err(|why| format!("{name}: {why}"))?;
            options::set(object, name, &value.to_string())?;
        }
        for (name, text) in &self.per_cpu {
            for cpu in 0..view.cpus() {
                let value = view.value(text, Some((cpu, cpu)));
                let value = value.map_err(|why| format!("{name}: {why}"))?;
                options::set(object, &format!("{name}[{cpu}]"), &value.to_string())?;
            }
        }
        for (name, text) in &self.maps {
            let value = view.value(text, None).map_err(|why| format!("{name}: {why}"))?;
            let map = object.maps.iter_mut().find(|map| map.name == *name);
            let map = map.ok_or_else(|| format!("it has no map `{name}`"))?;
            map.max = u32::try_from(value)
                .ok()
                .filter(|max| (1..1 << 24).contains(max))
                .ok_or_else(|| format!("map `{name}` cannot have {value} entries"))?;
        }
        Ok(())
    }

    /// Runs the programs that run before the scheduler begins, or those after.
    pub(super) fn call(&self, kernel: &mut Kernel, world: &World, after: bool) -> Step {
        let view = View { world, enumerators: schedlab_bpf::Enumerators::new() };
        for call in self.calls.iter().filter(|call| call.after_attach == after) {
            if call.with_smt && !view.smt() {
                continue;
            }
            let cpus = 0..view.cpus();
            let places: Vec<Option<(usize, usize)>> = match call.each {
                Each::Once => vec![None],
                Each::Cpu => cpus.map(|cpu| Some((cpu, cpu))).collect(),
                Each::Sibling => cpus
                    .flat_map(|cpu| view.siblings(cpu).into_iter().map(move |other| (cpu, other)))
                    .map(Some)
                    .collect(),
            };
            for at in places {
                one(kernel, call, &view, at)?;
            }
        }
        Ok(())
    }
}

/// Runs a program with its arguments.
fn one(
    kernel: &mut Kernel,
    call: &ProfileCall,
    view: &View<'_>,
    at: Option<(usize, usize)>,
) -> Step {
    let object = std::sync::Arc::clone(&kernel.object);
    let name = &call.program;
    let stop = |why: String| Stop::new(format!("profile: {name}: {why}"));
    let program = object.programs.iter().find(|one| one.name == *name && one.section == "syscall");
    let program = program.ok_or_else(|| stop("there is no such `syscall` program".to_owned()))?;
    let (context, structure) = (kernel.args, argument(&object, name));
    for word in 0..16 {
        kernel.vm.memory.set_word(context + 8 * word, 0);
    }
    for (member, text) in &call.args {
        let value = view.value(text, at).map_err(|why| stop(format!("{member}: {why}")))?;
        let field = structure.and_then(|ty| object.btf.member(ty, member));
        let field = field.ok_or_else(|| stop(format!("its argument has no member `{member}`")))?;
        let (offset, bytes) = (u64::from(field.bit / 8), object.btf.size(field.ty) as usize);
        if offset >= 120 || !matches!(bytes, 1 | 2 | 4 | 8) {
            return Err(stop(format!("member `{member}` is no number")));
        }
        kernel.vm.memory.write(context + offset, bytes, value as u64);
    }
    let answer = run(kernel, program.start, &[context]).map_err(|why| {
        let place = why.instruction().and_then(|at| object.place(at));
        Stop::new(format!("profile: {name}(): {}", why.locate(place)))
    })?;
    match answer as u32 {
        0 => Ok(()),
        code => Err(stop(format!("it returned {}", code as i32))),
    }
}

/// The structure to which a program's argument points.
fn argument(object: &Object, program: &str) -> Option<u32> {
    let btf = &object.btf;
    let Kind::Func(proto) = btf.kind(btf.function(program)?) else { return None };
    let Kind::Proto(_, arguments) = btf.kind(*proto) else { return None };
    match btf.plain_kind(arguments.first()?.1) {
        Kind::Ptr(to) => Some(btf.plain(*to)),
        _ => None,
    }
}
