//! What an object is and needs, for `schedlab bpf inspect`.

use super::ops::NEVER_CALLED;
use super::{BpfOption, ObjectError, ops, options, setup};
use schedlab_bpf::{BpfError, Btf, MapKind, Object, essential, helper_name, reached};
use std::collections::BTreeSet;

/// What an object is and needs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Inspection {
    /// The scheduler's own name.
    pub scheduler: String,
    /// `sched_ext_ops`, or another form of it.
    pub form: String,
    /// Instructions.
    pub instructions: usize,
    /// Numbers of `sched_ext_ops` that are not 0.
    pub values: Vec<(String, u64)>,
    /// Its callbacks.
    pub callbacks: Vec<Callback>,
    /// Kernel functions that callbacks reach, in all.
    pub kfuncs: Vec<String>,
    /// Helpers that callbacks reach.
    pub helpers: Vec<String>,
    /// Its maps.
    pub maps: Vec<ListedMap>,
    /// What can be set.
    pub options: Vec<BpfOption>,
    /// Sections of programs that nothing runs here.
    pub not_run: Vec<String>,
    /// What is known with a kernel's type information.
    pub kernel: Option<KernelView>,
}

/// A callback.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Callback {
    /// Its name.
    pub name: String,
    /// Instructions that it reaches.
    pub instructions: usize,
    /// Why it is never called here; `None`: it is.
    pub never: Option<&'static str>,
}

/// A map.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListedMap {
    /// Its name.
    pub name: String,
    /// Its kind; `None`: the simulator has none such.
    pub kind: Option<&'static str>,
    /// Bytes of a key.
    pub key: u32,
    /// Bytes of a value.
    pub value: u32,
    /// Greatest number of entries.
    pub max: u32,
    /// It holds timers.
    pub timer: bool,
}

/// An object under a kernel.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct KernelView {
    /// Functions that this kernel lacks; the object asks before it calls them.
    pub absent: Vec<String>,
    /// Functions and helpers that the simulator lacks, each with a callback that reaches it.
    pub lacking: Vec<(String, String)>,
    /// Fields that this kernel lacks.
    pub fields: Vec<String>,
    /// Why the object cannot run; `None`: it can.
    pub refused: Option<String>,
}

/// Reads an object.
///
/// # Errors
/// The file is no BPF object with a scheduler.
pub fn inspect(path: &str, file: &[u8], kernel: Option<&Btf>) -> Result<Inspection, ObjectError> {
    let wrong = |why: BpfError| ObjectError::File { path: path.to_owned(), why };
    let mut object = Object::parse(file).map_err(wrong)?;
    if let Some(kernel) = kernel {
        options::fill_enumerators(&mut object, kernel);
    }
    let scheduler = ops::scheduler(&object)
        .map_err(|why| ObjectError::Refused { path: path.to_owned(), why })?
        .clone();
    let present = |name: &str| kernel.is_none_or(|k| setup::has_function(&object, k, name));
    let (mut kfuncs, mut helpers) = (BTreeSet::new(), BTreeSet::new());
    let mut callbacks = Vec::new();
    for (name, entry) in &scheduler.calls {
        let found = reached(&object, *entry, present);
        kfuncs.extend(found.kfuncs.iter().map(|name| essential(name).to_owned()));
        helpers.extend(found.helpers.iter().copied());
        let never = NEVER_CALLED.iter().find(|(one, _)| one == name).map(|(_, why)| *why);
        let instructions = found.instructions.len();
        callbacks.push(Callback { name: name.clone(), instructions, never });
    }
    let map = |map: &schedlab_bpf::MapDef| ListedMap {
        name: map.name.clone(),
        kind: MapKind::of(map.kind).map(MapKind::word),
        key: map.key,
        value: map.value,
        max: map.max,
        timer: setup::holds_timer(&object, map.value_type),
    };
    Ok(Inspection {
        scheduler: scheduler.text.clone(),
        form: scheduler.ty.clone(),
        instructions: object.code.len(),
        values: scheduler.values.into_iter().collect(),
        callbacks,
        kfuncs: kfuncs.into_iter().collect(),
        helpers: helpers.into_iter().map(|n: i32| format!("{} ({n})", helper_name(n))).collect(),
        maps: object.maps.iter().map(map).collect(),
        options: options::list(&object),
        not_run: setup::programs_not_run(&object),
        kernel: kernel.map(|kernel| view(&object, kernel)),
    })
}

fn view(object: &Object, kernel: &Btf) -> KernelView {
    let named = object.refs.values().filter_map(|reference| match reference {
        schedlab_bpf::Ref::Kfunc(name) | schedlab_bpf::Ref::KfuncAddress(name) => Some(name),
        _ => None,
    });
    let absent: BTreeSet<String> =
        named.filter(|name| !setup::has_function(object, kernel, name)).cloned().collect();
    let (_, poisoned) = object.for_kernel(kernel);
    let fields: BTreeSet<String> = poisoned.into_values().collect();
    let unknown = setup::maps_without_model(object);
    let refused = match unknown.first() {
        Some(map) => Some(format!("its map `{map}` is of a kind that the simulator does not have")),
        None => setup::refused(object, kernel).err(),
    };
    KernelView {
        absent: absent.into_iter().collect(),
        lacking: setup::lacking(object, kernel),
        fields: fields.into_iter().collect(),
        refused,
    }
}
