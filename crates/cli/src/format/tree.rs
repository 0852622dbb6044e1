//! JSON whose objects keep the order of their keys, which becomes the order of columns.

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use std::fmt;

/// A JSON value.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Tree {
    Leaf(Value),
    List(Vec<Tree>),
    Object(Vec<(String, Tree)>),
}

impl Tree {
    /// Returns the value under a key of an object.
    pub(super) fn get(&self, key: &str) -> Option<&Tree> {
        match self {
            Tree::Object(all) => all.iter().find(|(name, _)| name == key).map(|(_, value)| value),
            _ => None,
        }
    }

    /// Returns the text under a key of an object.
    pub(super) fn text(&self, key: &str) -> Option<&str> {
        match self.get(key) {
            Some(Tree::Leaf(Value::String(text))) => Some(text),
            _ => None,
        }
    }

    /// Returns the value as serde_json has it.
    pub(super) fn value(&self) -> Value {
        match self {
            Tree::Leaf(value) => value.clone(),
            Tree::List(list) => list.iter().map(Tree::value).collect(),
            Tree::Object(all) => all
                .iter()
                .map(|(key, tree)| (key.clone(), tree.value()))
                .collect::<Map<_, _>>()
                .into(),
        }
    }
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Tree, D::Error> {
        deserializer.deserialize_any(Reader)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Tree;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("JSON")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Tree, E> {
        Ok(Tree::Leaf(value.into()))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Tree, E> {
        Ok(Tree::Leaf(value.into()))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Tree, E> {
        Ok(Tree::Leaf(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Tree, E> {
        Ok(Tree::Leaf(value.into()))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Tree, E> {
        Ok(Tree::Leaf(value.into()))
    }

    fn visit_unit<E: Error>(self) -> Result<Tree, E> {
        Ok(Tree::Leaf(Value::Null))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Tree, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = from.next_element()? {
            list.push(item);
        }
        Ok(Tree::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Tree, A::Error> {
        let mut all = Vec::new();
        while let Some(entry) = from.next_entry()? {
            all.push(entry);
        }
        Ok(Tree::Object(all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_keep_their_order() {
        let text = r#"{"z":1,"a":[-2,0.5,null,true,"x"],"m":{"b":1,"a":2}}"#;
        let tree: Tree = serde_json::from_str(text).unwrap();
        let Tree::Object(all) = &tree else { panic!("{tree:?}") };
        assert_eq!(all.iter().map(|(key, _)| key.as_str()).collect::<Vec<_>>(), ["z", "a", "m"]);
        assert_eq!(tree.value(), serde_json::from_str::<Value>(text).unwrap());
    }
}
