//! Maps at run time.

use crate::errno::{E2BIG, EEXIST, EINVAL, ENOENT};
use crate::{BpfError, MapDef, Memory, Stop};
use std::collections::{BTreeMap, VecDeque};

/// What kind of map: those that are modelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MapKind {
    /// Elements by number.
    Array,
    /// Elements by number, for each CPU.
    PerCpuArray,
    /// Elements by key.
    Hash,
    /// Elements by key, for each CPU.
    PerCpuHash,
    /// First in, first out.
    Queue,
    /// Last in, first out.
    Stack,
    /// A value for each task or control group.
    Storage,
    /// Maps by number.
    ArrayOfMaps,
    /// Maps by key.
    HashOfMaps,
    /// Shared pages.
    Arena,
    /// Messages to user space, which has no reader here: they are dropped.
    Ring,
    /// Performance counters, of which the simulated machine has none: every element is empty.
    Counters,
}

impl MapKind {
    /// The kind with this number in `enum bpf_map_type`.
    pub fn of(number: u32) -> Option<MapKind> {
        Some(match number {
            2 => MapKind::Array,
            6 => MapKind::PerCpuArray,
            1 | 9 => MapKind::Hash,
            5 | 10 => MapKind::PerCpuHash,
            22 => MapKind::Queue,
            23 => MapKind::Stack,
            29 | 32 => MapKind::Storage,
            12 => MapKind::ArrayOfMaps,
            13 => MapKind::HashOfMaps,
            33 => MapKind::Arena,
            27 | 31 => MapKind::Ring,
            4 => MapKind::Counters,
            _ => return None,
        })
    }
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            MapKind::Array => "array",
            MapKind::PerCpuArray => "per-CPU array",
            MapKind::Hash => "hash",
            MapKind::PerCpuHash => "per-CPU hash",
            MapKind::Queue => "queue",
            MapKind::Stack => "stack",
            MapKind::Storage => "storage",
            MapKind::ArrayOfMaps => "array of maps",
            MapKind::HashOfMaps => "hash of maps",
            MapKind::Arena => "arena",
            MapKind::Ring => "ring buffer",
            MapKind::Counters => "performance counters",
        }
    }
    fn is_per_cpu(self) -> bool {
        matches!(self, MapKind::PerCpuArray | MapKind::PerCpuHash)
    }
}

/// A map.
#[derive(Debug)]
pub struct Map {
    /// Its definition.
    pub def: MapDef,
    /// Its kind.
    pub kind: MapKind,
    /// The address that programs know it by.
    pub head: u64,
    /// Elements of an array.
    pub base: u64,
    /// Distance between elements.
    pub stride: u64,
    /// Room for a key, for callbacks.
    pub key_room: u64,
    values: BTreeMap<Vec<u8>, u64>,
    queue: VecDeque<Vec<u8>>,
}

/// All maps.
#[derive(Debug, Default)]
pub struct Maps(Vec<Map>);

/// Gap between the elements of a map.
const GAP: u64 = 8;

impl Maps {
    /// Makes a map.
    ///
    /// # Errors
    /// A kind that is not modelled, or one that does not fit.
    pub fn make(
        &mut self,
        memory: &mut Memory,
        def: &MapDef,
        cpus: usize,
    ) -> Result<usize, BpfError> {
        let kind = MapKind::of(def.kind).ok_or_else(|| {
            BpfError::Refused(format!(
                "map `{}` is of type {}, which is not modelled",
                def.name, def.kind
            ))
        })?;
        let number = self.0.len();
        let full = |stop: Stop| BpfError::Refused(format!("map `{}`: {stop}", def.name));
        let head = memory.alloc(64).map_err(full)?;
        memory.set_word(head, number as u64);
        let stride = u64::from(def.value.max(1).next_multiple_of(8)) + GAP;
        let copies = if kind.is_per_cpu() { cpus as u64 } else { 1 };
        let mut map = Map {
            kind,
            head,
            base: 0,
            stride,
            key_room: memory.alloc(def.key.max(8) as usize).map_err(full)?,
            values: BTreeMap::new(),
            queue: VecDeque::new(),
            def: def.clone(),
        };
        if matches!(kind, MapKind::Array | MapKind::PerCpuArray | MapKind::ArrayOfMaps) {
            let elements = u64::from(def.max) * copies;
            map.base = memory.alloc((elements * stride) as usize).map_err(full)?;
            for element in 0..elements {
                let end = map.base + stride * (element + 1);
                memory.gap(end - GAP, GAP as usize);
            }
        }
        self.0.push(map);
        Ok(number)
    }
    /// The map whose head is here.
    pub(crate) fn at(&self, memory: &Memory, head: u64) -> Result<(usize, &Map), Stop> {
        let number = memory.word(head) as usize;
        match self.0.get(number) {
            Some(map) if map.head == head => Ok((number, map)),
            _ => Err(Stop::new(format!("{head:#x} is no map"))),
        }
    }
    /// A map by number.
    pub fn get(&self, number: usize) -> Option<&Map> {
        self.0.get(number)
    }
    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Map> {
        self.0.iter()
    }
    /// Writes what maps of maps hold from the start; all maps are there.
    pub(crate) fn fill(&mut self, memory: &mut Memory) {
        for map in &self.0 {
            for (slot, inner) in map.def.initial.iter().enumerate() {
                if let Some(inner) = self.0.get(*inner)
                    && map.kind == MapKind::ArrayOfMaps
                    && (slot as u32) < map.def.max
                {
                    memory.set_word(map.base + map.stride * slot as u64, inner.head);
                }
            }
        }
    }

    /// The address of a value; 0: there is none.
    pub fn lookup(&self, memory: &Memory, map: usize, key: u64, cpu: usize) -> u64 {
        let Some(map) = self.0.get(map) else { return 0 };
        match map.kind {
            MapKind::Array | MapKind::PerCpuArray | MapKind::ArrayOfMaps => {
                let (index, max) = (memory.read(key, 4), u64::from(map.def.max));
                if index >= max {
                    return 0;
                }
                let copy = if map.kind.is_per_cpu() { max * cpu as u64 } else { 0 };
                let at = map.base + map.stride * (index + copy);
                if map.kind == MapKind::ArrayOfMaps { memory.word(at) } else { at }
            }
            MapKind::Hash | MapKind::PerCpuHash | MapKind::HashOfMaps => {
                let copy = if map.kind.is_per_cpu() { map.stride * cpu as u64 } else { 0 };
                let key = memory.bytes(key, map.def.key as usize).unwrap_or_default();
                let value = map.values.get(key).map_or(0, |value| value + copy);
                if map.kind == MapKind::HashOfMaps { memory.word(value) } else { value }
            }
            _ => 0,
        }
    }

    /// The value of a key that the host made up (storage); `make`: zeroes if there is none.
    ///
    /// # Errors
    /// The memory is full.
    pub fn storage(
        &mut self,
        memory: &mut Memory,
        map: usize,
        key: u64,
        make: bool,
    ) -> Result<u64, Stop> {
        let Some(map) = self.0.get_mut(map) else { return Ok(0) };
        let key = key.to_le_bytes().to_vec();
        if let Some(value) = map.values.get(&key) {
            return Ok(*value);
        }
        if !make {
            return Ok(0);
        }
        let value = memory.alloc(map.def.value.max(1) as usize)?;
        map.values.insert(key, value);
        Ok(value)
    }

    /// Removes a value; false: there is none.
    pub fn remove(&mut self, memory: &mut Memory, map: usize, key: &[u8], cpus: usize) -> bool {
        let Some(map) = self.0.get_mut(map) else { return false };
        let Some(value) = map.values.remove(key) else { return false };
        memory.release(value, map.bytes(cpus));
        true
    }
    /// Removes the storage of `key` in all maps: its task has ended.
    pub fn forget(&mut self, memory: &mut Memory, key: u64) {
        for map in 0..self.0.len() {
            if self.0[map].kind == MapKind::Storage {
                self.remove(memory, map, &key.to_le_bytes(), 1);
            }
        }
    }

    /// `bpf_map_update_elem`.
    ///
    /// # Errors
    /// Key or value are no memory, or the map is of a kind without it.
    pub(crate) fn update(
        &mut self,
        memory: &mut Memory,
        map: usize,
        (key, value, flags): (u64, u64, u64),
        (cpu, cpus): (usize, usize),
    ) -> Result<u64, Stop> {
        const ONLY_NEW: u64 = 1;
        const ONLY_OLD: u64 = 2;
        let found = self.lookup(memory, map, key, cpu);
        let Some(map) = self.0.get_mut(map) else { return Ok(EINVAL) };
        let bytes = |memory: &Memory, at: u64, n: u32| {
            let none = || Stop::new("bpf_map_update_elem: key or value is no memory");
            memory.bytes(at, n as usize).map(<[u8]>::to_vec).ok_or_else(none)
        };
        let new = bytes(memory, value, map.def.value)?;
        match map.kind {
            MapKind::Array | MapKind::PerCpuArray if found == 0 => return Ok(E2BIG),
            MapKind::Array | MapKind::PerCpuArray if flags & ONLY_NEW != 0 => return Ok(EEXIST),
            MapKind::Array | MapKind::PerCpuArray => {
                memory.put(found, &new);
            }
            MapKind::Hash | MapKind::PerCpuHash => match found {
                0 if flags & ONLY_OLD != 0 => return Ok(ENOENT),
                0 => {
                    let evicts = matches!(map.def.kind, 9 | 10);
                    if map.values.len() >= map.def.max as usize && !evicts {
                        return Ok(E2BIG);
                    }
                    let key = bytes(memory, key, map.def.key)?;
                    let place = memory.alloc(map.bytes(cpus))?;
                    let copy = if map.kind.is_per_cpu() { map.stride * cpu as u64 } else { 0 };
                    memory.put(place + copy, &new);
                    map.values.insert(key, place);
                }
                _ if flags & ONLY_NEW != 0 => return Ok(EEXIST),
                _ => {
                    memory.put(found, &new);
                }
            },
            kind => {
                let what = format!("bpf_map_update_elem of a map of kind {}", kind.word());
                return Err(Stop::new(what));
            }
        }
        Ok(0)
    }

    pub(crate) fn push(&mut self, map: usize, value: Vec<u8>) -> u64 {
        let Some(map) = self.0.get_mut(map) else { return EINVAL };
        if map.queue.len() >= map.def.max as usize {
            return E2BIG;
        }
        map.queue.push_back(value);
        0
    }
    pub(crate) fn pop(&mut self, map: usize, take: bool) -> Option<Vec<u8>> {
        let map = self.0.get_mut(map)?;
        match (map.kind, take) {
            (MapKind::Stack, true) => map.queue.pop_back(),
            (MapKind::Stack, false) => map.queue.back().cloned(),
            (_, true) => map.queue.pop_front(),
            (_, false) => map.queue.front().cloned(),
        }
    }
    /// Keys and values of a hash, for `bpf_for_each_map_elem`.
    pub(crate) fn entries(&self, map: usize) -> Vec<(Vec<u8>, u64)> {
        let values = self.0.get(map).map(|map| &map.values);
        values.into_iter().flatten().map(|(key, value)| (key.clone(), *value)).collect()
    }
}

impl Map {
    /// Bytes of one entry.
    fn bytes(&self, cpus: usize) -> usize {
        match self.kind {
            MapKind::Storage => self.def.value.max(1) as usize,
            MapKind::PerCpuHash => self.stride as usize * cpus,
            _ => self.stride as usize,
        }
    }
}
