//! Definitions of maps, which are types: `__uint(max_entries, 4)` is a pointer to an array of 4.

use crate::{Btf, Kind};

/// How a map is defined.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MapDef {
    /// Its name.
    pub name: String,
    /// `enum bpf_map_type`.
    pub kind: u32,
    /// Bytes of a key.
    pub key: u32,
    /// Bytes of a value.
    pub value: u32,
    /// Greatest number of entries.
    pub max: u32,
    /// Flags.
    pub flags: u32,
    /// Type of a value; 0: not said.
    pub value_type: u32,
    /// The maps in this one.
    pub inner: Option<Box<MapDef>>,
    /// Numbers of the maps that are in it from the start.
    pub initial: Vec<usize>,
}

impl MapDef {
    pub(super) fn read(btf: &Btf, name: &str, ty: u32, depth: usize) -> MapDef {
        let mut map = MapDef { name: name.to_owned(), ..MapDef::default() };
        let pointee = |ty: u32| match btf.plain_kind(ty) {
            Kind::Ptr(to) => *to,
            _ => 0,
        };
        let number = |ty: u32| match btf.plain_kind(pointee(ty)) {
            Kind::Array(_, n) => *n,
            _ => 0,
        };
        for member in btf.members(ty) {
            match btf.string(member.name) {
                "type" => map.kind = number(member.ty),
                "max_entries" => map.max = number(member.ty),
                "map_flags" => map.flags = number(member.ty),
                "key_size" => map.key = number(member.ty),
                "value_size" => map.value = number(member.ty),
                "key" => map.key = btf.size(pointee(member.ty)),
                "value" => {
                    map.value_type = pointee(member.ty);
                    map.value = btf.size(map.value_type);
                }
                "values" => {
                    if let Kind::Array(of, _) = btf.plain_kind(member.ty)
                        && depth == 0
                        && matches!(btf.plain_kind(pointee(*of)), Kind::Struct(..))
                    {
                        map.inner = Some(Box::new(MapDef::read(btf, "inner", pointee(*of), 1)));
                        map.value = 4;
                    }
                }
                _ => {}
            }
        }
        map
    }
}
