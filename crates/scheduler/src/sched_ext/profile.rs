//! What the user half of a scheduler sets up before it attaches: options that depend on the
//! machine, arrays with an element for each CPU, maps of the machine's size, `syscall` programs.
//!
//! A profile says it in words of the machine ([`super::WORDS`]), so that one file serves every
//! machine.

use super::kernel::{Kernel, Step};
use super::machine::{At, View};
use super::options;
use crate::World;
use schedlab_bpf::{Btf, Kind, Object, Stop, run};
use std::sync::Arc;

/// What a user half sets up.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Profile {
    /// The name of the scheduler that it is for (`ops.name`).
    pub scheduler: String,
    /// What the user half does while the scheduler runs, which is not played; empty: nothing.
    pub not_played: String,
    /// Options and their values.
    pub options: Vec<(String, String)>,
    /// Arrays, and the value of each CPU's element.
    pub per_cpu: Vec<(String, String)>,
    /// Options of each CPU, cache, or pair of them.
    pub sets: Vec<ProfileSet>,
    /// Maps, and how many entries they have.
    pub maps: Vec<(String, String)>,
    /// Programs that are run.
    pub calls: Vec<ProfileCall>,
}

/// Options that are set for each part of the machine; their names say where: `domains[llc].id`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProfileSet {
    /// For what.
    pub each: Each,
    /// Options and their values.
    pub options: Vec<(String, String)>,
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
    /// A program that gives room for a CPU mask, and the member of its argument with the address:
    /// what is there is filled, and `mask` is the address.
    pub mask: Option<(String, String)>,
    /// Members of the structure that it takes, and their values.
    pub args: Vec<(String, String)>,
}

/// For what a program is run, or an option set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Each {
    /// Once.
    #[default]
    Once,
    /// For each CPU.
    Cpu,
    /// For each CPU with each other one of its core.
    Sibling,
    /// For each NUMA node.
    Node,
    /// For each last-level cache.
    Llc,
    /// For each last-level cache with each other one, the nearest first.
    Neighbour,
    /// For the machine, and then each node, last-level cache, core and CPU.
    Part,
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
        let enumerators = kernel.enumerators();
        let types = object.btf.clone();
        let view = View { topology: &world.topology, enumerators: &enumerators, types: &types };
        set(object, &view, &self.options, &view.whole())?;
        let own = |(name, text): &(String, String)| (format!("{name}[cpu]"), text.clone());
        let per_cpu: Vec<_> = self.per_cpu.iter().map(own).collect();
        for at in view.each(Each::Cpu) {
            set(object, &view, &per_cpu, &at)?;
        }
        for own in &self.sets {
            for at in view.each(own.each) {
                set(object, &view, &own.options, &at)?;
            }
        }
        for (name, text) in &self.maps {
            let value = view.value(text, &At::default()).map_err(|why| format!("{name}: {why}"))?;
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
        let (enumerators, object) = (schedlab_bpf::Enumerators::new(), kernel.object.clone());
        let view =
            View { topology: &world.topology, enumerators: &enumerators, types: &object.btf };
        for call in self.calls.iter().filter(|call| call.after_attach == after) {
            if call.with_smt && !view.smt() {
                continue;
            }
            for mut at in view.each(call.each) {
                if let Some((program, member)) = &call.mask {
                    let program = Program::find(kernel, program)?;
                    program.run(kernel, &[], (&view, &at))?;
                    let (place, bytes) = program.place(member)?;
                    let address = kernel.vm.memory.read(place, bytes);
                    let span = at.word("span").unwrap_or(0);
                    kernel.vm.memory.set_word(address, span);
                    at.set("mask", address);
                }
                let program = Program::find(kernel, &call.program)?;
                program.run(kernel, &call.args, (&view, &at))?;
            }
        }
        Ok(())
    }
}

/// Sets options whose names may hold places: `domains[llc].id`, `table[1..11][order]`.
fn set(
    object: &mut Object,
    view: &View<'_>,
    options: &[(String, String)],
    at: &At,
) -> Result<(), String> {
    for (name, text) in options {
        let value = view.value(text, at).map_err(|why| format!("{name}: {why}"))?;
        for place in view.places(name, at).map_err(|why| format!("{name}: {why}"))? {
            options::set(object, &place, &value.to_string())?;
        }
    }
    Ok(())
}

/// A `syscall` program.
struct Program<'a> {
    name: &'a str,
    object: Arc<Object>,
    entry: usize,
    /// Where its argument lies, and of what type it is.
    context: u64,
    structure: Option<u32>,
}

impl<'a> Program<'a> {
    fn find(kernel: &Kernel, name: &'a str) -> Step<Program<'a>> {
        let object = Arc::clone(&kernel.object);
        let is = |one: &&schedlab_bpf::Program| one.name == name && one.section == "syscall";
        let entry = object.programs.iter().find(is).map(|program| program.start);
        let structure = argument(&object, name);
        let (context, entry) = (kernel.args, entry.unwrap_or(usize::MAX));
        let program = Program { name, object, entry, context, structure };
        match entry {
            usize::MAX => Err(program.stop("there is no such `syscall` program".to_owned())),
            _ => Ok(program),
        }
    }

    fn stop(&self, why: String) -> Stop {
        Stop::new(format!("profile: {}: {why}", self.name))
    }

    /// Where a member of its argument lies, and its bytes.
    fn place(&self, member: &str) -> Step<(u64, usize)> {
        let btf = &self.object.btf;
        let found = self.structure.and_then(|ty| options::walk(btf, ty, &format!(".{member}")));
        let (offset, ty) =
            found.ok_or_else(|| self.stop(format!("its argument has no member `{member}`")))?;
        let bytes = btf.size(ty) as usize;
        if offset >= 120 || !matches!(bytes, 1 | 2 | 4 | 8) {
            return Err(self.stop(format!("member `{member}` is no number")));
        }
        Ok((self.context + offset as u64, bytes))
    }

    /// Runs it with these arguments, which stay where they are, as it left them.
    fn run(
        &self,
        kernel: &mut Kernel,
        args: &[(String, String)],
        (view, at): (&View<'_>, &At),
    ) -> Step {
        for word in 0..16 {
            kernel.vm.memory.set_word(self.context + 8 * word, 0);
        }
        for (member, text) in args {
            let value = view.value(text, at);
            let value = value.map_err(|why| self.stop(format!("{member}: {why}")))?;
            let (address, bytes) = self.place(member)?;
            kernel.vm.memory.write(address, bytes, value as u64);
        }
        let answer = run(kernel, self.entry, &[self.context]).map_err(|why| {
            let place = why.instruction().and_then(|at| self.object.place(at));
            Stop::new(format!("profile: {}(): {}", self.name, why.locate(place)))
        })?;
        match answer as u32 {
            0 => Ok(()),
            code => Err(self.stop(format!("it returned {}", code as i32))),
        }
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
