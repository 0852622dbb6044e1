//! Where subjects are in a list, by kind and name: a recording of a large machine has thousands,
//! and every one of them is looked for in every row.

use crate::measurements::Kind;
use std::collections::HashMap;
use std::sync::OnceLock;

/// The places in a list, noted when one is asked for first. Two lists do not differ by them.
#[derive(Debug, Default)]
pub struct Places(OnceLock<Noted>);

#[derive(Debug)]
struct Noted {
    /// Length of the list.
    length: usize,
    by_name: HashMap<String, Vec<(Kind, usize)>>,
}

impl Places {
    /// Returns the first subject of this kind and name; `key` tells both of each. A list that has
    /// grown or shrunk since is searched.
    pub(crate) fn find<'a, T>(
        &self,
        list: &'a [T],
        key: impl Fn(&T) -> (Kind, &str),
        wanted: (Kind, &str),
    ) -> Option<&'a T> {
        let noted = self.0.get_or_init(|| Noted::new(list, &key));
        if noted.length != list.len() {
            return list.iter().find(|one| key(one) == wanted);
        }
        let (kind, name) = wanted;
        let (_, at) = noted.by_name.get(name)?.iter().find(|(of, _)| *of == kind)?;
        list.get(*at)
    }
}

impl Noted {
    fn new<T>(list: &[T], key: &impl Fn(&T) -> (Kind, &str)) -> Noted {
        let mut by_name: HashMap<String, Vec<(Kind, usize)>> = HashMap::new();
        for (at, one) in list.iter().enumerate() {
            let (kind, name) = key(one);
            by_name.entry(name.to_owned()).or_default().push((kind, at));
        }
        Noted { length: list.len(), by_name }
    }
}

impl Clone for Places {
    fn clone(&self) -> Places {
        Places::default()
    }
}

impl PartialEq for Places {
    fn eq(&self, _: &Places) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_a_kind_and_name_is_found() {
        let mut list = vec![(Kind::Class, "a"), (Kind::Source, "a"), (Kind::Class, "a")];
        let places = Places::default();
        let find = |list: &[(Kind, &'static str)], wanted| {
            let found = places.find(list, |one| *one, wanted);
            found.and_then(|one| list.iter().position(|other| std::ptr::eq(one, other)))
        };
        assert_eq!(find(&list, (Kind::Class, "a")), Some(0));
        assert_eq!(find(&list, (Kind::Source, "a")), Some(1));
        assert_eq!(find(&list, (Kind::Task, "a")), None);
        list.push((Kind::Task, "b"));
        assert_eq!(find(&list, (Kind::Task, "b")), Some(3));
    }
}
