//! Source files that nothing mounts: they look like code, but are never compiled.

use super::source::Parsed;
use crate::finding::Finding;
use crate::tree::{Metadata, relative};
use anyhow::Result;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Finds `.rs` files that no target reaches through `mod` declarations.
pub(super) fn check(
    root: &Path,
    metadata: &Metadata,
    files: &[String],
    sources: &BTreeMap<String, Parsed>,
    findings: &mut Vec<Finding>,
) -> Result<()> {
    let known: BTreeSet<&str> = files.iter().map(String::as_str).collect();
    let mut reached = BTreeSet::new();
    for target in metadata.packages.iter().flat_map(|package| &package.targets) {
        reach(&relative(root, &target.src_path), true, sources, &known, &mut reached);
    }
    for manifest in
        files.iter().filter(|file| file.starts_with("fuzz/") && file.ends_with("Cargo.toml"))
    {
        fuzz_targets(root, manifest, sources, &known, &mut reached)?;
    }
    for file in files.iter().filter(|file| file.ends_with(".rs") && !reached.contains(*file)) {
        findings.push(Finding::new(
            file,
            0,
            "is dead: no `mod` reaches it from a target of its crate",
        ));
    }
    Ok(())
}

/// `fuzz/` is a workspace of its own (it needs a nightly compiler), so its targets are read as
/// text.
fn fuzz_targets(
    root: &Path,
    manifest: &str,
    sources: &BTreeMap<String, Parsed>,
    known: &BTreeSet<&str>,
    reached: &mut BTreeSet<String>,
) -> Result<()> {
    let folder = manifest.trim_end_matches("Cargo.toml");
    for line in std::fs::read_to_string(root.join(manifest))?.lines() {
        if let Some(path) =
            line.trim().strip_prefix("path = \"").and_then(|rest| rest.strip_suffix('"'))
        {
            let file = format!("{folder}{path}");
            if known.contains(file.as_str()) {
                reach(&file, true, sources, known, reached);
            }
        }
    }
    Ok(())
}

/// Adds `file` and every module file below it. `top`: its modules lie beside it, not in a folder of
/// its name.
fn reach(
    file: &str,
    top: bool,
    sources: &BTreeMap<String, Parsed>,
    known: &BTreeSet<&str>,
    reached: &mut BTreeSet<String>,
) {
    if !reached.insert(file.to_owned()) {
        return;
    }
    // What cannot be parsed is reported already.
    let Some(parsed) = sources.get(file) else { return };
    let (folder, name) = file.rsplit_once('/').unwrap_or(("", file));
    let stem = name.trim_end_matches(".rs");
    let below = if top || stem == "mod" { folder.to_owned() } else { format!("{folder}/{stem}") };
    for module in modules(folder, &below, &parsed.file.items) {
        let found = module.iter().find(|candidate| known.contains(candidate.as_str()));
        if let Some(candidate) = found {
            reach(candidate, false, sources, known, reached);
        }
    }
}

/// For each `mod x;` (also inside inline modules) the places where its file may lie.
fn modules(folder: &str, below: &str, items: &[syn::Item]) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    for item in items {
        let syn::Item::Mod(module) = item else { continue };
        let name = module.ident.to_string();
        match (&module.content, path_attribute(&module.attrs)) {
            (Some((_, inner)), _) => {
                found.extend(modules(folder, &format!("{below}/{name}"), inner))
            }
            (None, Some(path)) => found.push(vec![join(folder, &path)]),
            (None, None) => {
                found.push(vec![format!("{below}/{name}.rs"), format!("{below}/{name}/mod.rs")])
            }
        }
    }
    found
}

fn path_attribute(attributes: &[syn::Attribute]) -> Option<String> {
    attributes.iter().find_map(|attribute| {
        let syn::Meta::NameValue(pair) = &attribute.meta else { return None };
        let syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) = &pair.value else {
            return None;
        };
        pair.path.is_ident("path").then(|| text.value())
    })
}

/// `folder/path` with `..` resolved.
fn join(folder: &str, path: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').collect();
    for part in path.split('/') {
        match part {
            "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_found_beside_below_and_by_path() {
        let parsed =
            syn::parse_file("mod a; mod b { mod c; } #[path = \"../d.rs\"] mod d; fn f() {}")
                .unwrap();
        let found = modules("x/src", "x/src", &parsed.items);
        assert_eq!(found[0], ["x/src/a.rs", "x/src/a/mod.rs"]);
        assert_eq!(found[1][0], "x/src/b/c.rs");
        assert_eq!(found[2], ["x/d.rs"]);
    }
}
