//! The rows of a result: what its list holds, each with what the lists around it say.

use super::results::{ResultShape, RowsOf};
use super::sheet::Sheet;
use super::tree::Tree;
use serde_json::Value;
use std::io::{self, Write};

/// A row before it is written: its fields in order.
type Fields = Vec<(String, Value)>;

/// Writes the rows of a result: those of each of its tables that it has.
pub(super) fn write<W: Write>(
    tree: &Tree,
    shape: &ResultShape,
    sheet: &mut Sheet<W>,
) -> io::Result<()> {
    for rows_of in shape.rows {
        let around: Fields = rows_of
            .with
            .iter()
            .filter_map(|key| Some(((*key).to_owned(), tree.get(key)?.value())))
            .collect();
        let mut rows = Vec::new();
        collect(tree, rows_of.path, &around, &mut rows);
        write_table(shape, rows_of, &rows, sheet)?;
    }
    Ok(())
}

/// Returns the sentences of a result that come before its tables.
pub(super) fn answers(tree: &Tree, shape: &ResultShape) -> Vec<String> {
    shape.answers.iter().filter_map(|key| tree.text(key)).map(str::to_owned).collect()
}

fn write_table<W: Write>(
    shape: &ResultShape,
    of: &RowsOf,
    rows: &[(Fields, Tree)],
    sheet: &mut Sheet<W>,
) -> io::Result<()> {
    let name = of.path.last().copied().unwrap_or("result");
    if sheet.has_objects() {
        for (around, leaf) in rows {
            sheet.table(name, Vec::new())?;
            let mut object = around.clone();
            if let Tree::Object(own) = leaf {
                let own = own.iter().filter(|(key, _)| key != "schema");
                object.extend(own.map(|(key, value)| (key.clone(), value.value())));
            }
            sheet.object(&object)?;
        }
        return Ok(());
    }
    let rows: Vec<Fields> = rows
        .iter()
        .map(|(around, leaf)| {
            let mut fields = around.clone();
            flatten("", leaf, shape.pairs, &mut fields);
            fields
        })
        .collect();
    let mut columns: Vec<String> = Vec::new();
    for (key, _) in rows.iter().flatten() {
        if !columns.contains(key) {
            columns.push(key.clone());
        }
    }
    if columns.is_empty() {
        return Ok(());
    }
    let place = |column: &String| shape.columns.iter().position(|first| first == column);
    columns.sort_by_key(|column| place(column).unwrap_or(usize::MAX));
    sheet.table(name, columns.clone())?;
    for row in &rows {
        let of = |column: &String| {
            row.iter().find(|(key, _)| key == column).map(|(_, value)| value.clone())
        };
        let values: Vec<Value> =
            columns.iter().map(|column| of(column).unwrap_or(Value::Null)).collect();
        sheet.row(&values)?;
    }
    Ok(())
}

/// Collects what lies at the end of `path`, with the plain fields of what it lies in: those of
/// `rows` are `row.NAME`.
fn collect(tree: &Tree, path: &[&str], around: &Fields, rows: &mut Vec<(Fields, Tree)>) {
    let Some((key, rest)) = path.split_first() else {
        rows.push((around.clone(), tree.clone()));
        return;
    };
    for item in items(key, tree.get(key)) {
        let mut around = around.clone();
        if let (Tree::Object(all), false) = (&item, rest.is_empty()) {
            let one = key.strip_suffix('s').unwrap_or(key);
            for (name, value) in all {
                if let Tree::Leaf(value) = value {
                    around.push((format!("{one}.{name}"), value.clone()));
                }
            }
        }
        collect(&item, rest, &around, rows);
    }
}

/// Returns the items of a list, or the entries of an object with their key as `name`. An item that
/// is no object becomes one.
fn items(key: &str, list: Option<&Tree>) -> Vec<Tree> {
    let object = |field: &str, item: &Tree| match item {
        Tree::Object(_) => item.clone(),
        _ => Tree::Object(vec![(field.to_owned(), item.clone())]),
    };
    match list {
        Some(Tree::List(items)) => items.iter().map(|item| object(key, item)).collect(),
        Some(Tree::Object(all)) => all
            .iter()
            .map(|(name, item)| {
                let mut fields = vec![("name".to_owned(), Tree::Leaf(name.as_str().into()))];
                if let Tree::Object(own) = object("value", item) {
                    fields.extend(own);
                }
                Tree::Object(fields)
            })
            .collect(),
        _ => Vec::new(),
    }
}

/// Adds the fields of a tree: those of an object in it are `OUTER.INNER`, a list of plain values is
/// one text. Lists of objects are left out: they are tables of their own, and in JSON.
fn flatten(prefix: &str, tree: &Tree, pairs: &[&str], fields: &mut Fields) {
    let named =
        |key: &str| if prefix.is_empty() { key.to_owned() } else { format!("{prefix}.{key}") };
    match tree {
        Tree::Object(all) => {
            for (key, value) in all.iter().filter(|(key, _)| key != "schema") {
                flatten(&named(key), value, pairs, fields);
            }
        }
        Tree::List(items) if pairs.contains(&prefix) => {
            let ends = items.iter().enumerate();
            fields.extend(ends.map(|(at, item)| (named(&(at + 1).to_string()), item.value())));
        }
        Tree::List(items) => {
            fields.extend(one_text(items).map(|text| (prefix.to_owned(), text.into())))
        }
        Tree::Leaf(value) => fields.push((prefix.to_owned(), value.clone())),
    }
}

/// Returns a list of texts as one, and a list of numbers in brackets; `None` for one of objects.
fn one_text(items: &[Tree]) -> Option<String> {
    let text = |item: &Tree| match item {
        Tree::Leaf(Value::String(text)) => Some(text.clone()),
        _ => None,
    };
    if let Some(texts) = items.iter().map(text).collect::<Option<Vec<_>>>() {
        return Some(texts.join("; "));
    }
    items.iter().all(|item| matches!(item, Tree::Leaf(_))).then(|| {
        let values: Vec<Value> = items.iter().map(Tree::value).collect();
        Value::from(values).to_string()
    })
}

#[cfg(test)]
mod tests {
    use super::super::ResultFormat;
    use super::*;

    #[test]
    fn a_row_has_what_is_around_it() {
        let text = r#"{"at_ns":5,"rows":[{"name":"a","cells":[{"metric":"p99","value":{"median":1.5},"runs":[1,2],"deep":[{}]}]},
                       {"name":"b","cells":[{"metric":"p50","change":"x"}]}]}"#;
        let tree: Tree = serde_json::from_str(text).unwrap();
        const ROWS: &[RowsOf] = &[RowsOf { path: &["rows", "cells"], with: &["at_ns"] }];
        let shape = ResultShape { rows: ROWS, ..ResultShape::default() };
        let mut sheet = Sheet::new(Vec::new(), ResultFormat::Csv, "x");
        write(&tree, &shape, &mut sheet).unwrap();
        let expected =
            "at_ns,row.name,metric,value.median,runs,change\n5,a,p99,1.5,\"[1,2]\",\n5,b,p50,,,x\n";
        assert_eq!(String::from_utf8(sheet.finish().unwrap()).unwrap(), expected);
    }
}
