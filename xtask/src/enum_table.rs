//! Generates `crates/wire/src/enums.txt`: the enum fields of Kubernetes objects and their values.
//!
//! The sources are Go packages: types marked with `+enum`, their constants, and struct fields of these types.

use crate::generate::{PACKAGES, sources};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt::Write as _,
    path::Path,
};

/// The relevant declarations of a Go package.
#[derive(Default)]
struct Package {
    /// Enum values by type.
    enums: BTreeMap<String, BTreeSet<String>>,
    structs: BTreeMap<String, Vec<Field>>,
    /// Type aliases of other packages' types.
    aliases: HashMap<String, String>,
    /// Types and values of constants. A value may be the name of another constant.
    constants: HashMap<String, (String, String)>,
    /// Imported packages by their local names.
    imports: HashMap<String, String>,
}

struct Field {
    /// JSON name; empty for an inlined struct.
    json: String,
    /// Type without pointers, lists and maps.
    type_name: String,
}

/// Generates the table from the directory `staging/src/k8s.io`.
pub(crate) fn table(staging: &Path) -> anyhow::Result<String> {
    let mut all = BTreeMap::new();
    for each in PACKAGES.iter().filter(|each| !each.is_json_only()) {
        all.insert(each.name.to_owned(), package(&sources(&each.path(staging))?));
    }
    let enums: Vec<_> = all.values().map(|package| enums(&all, package)).collect();
    all.values_mut().zip(enums).for_each(|(package, enums)| package.enums = enums);
    let mut out = String::from(
        "# Enum fields of Kubernetes objects; crates/wire/src/enums.rs reads it.\n\
         # Generated from Kubernetes v1.35 (`+enum`) with `cargo xtask generate`. Do not edit.\n\
         # [package], then one line for each field: object, field, values.\n",
    );
    for (name, package) in &all {
        writeln!(out, "[{name}]")?;
        for struct_name in package.structs.keys() {
            for (field, values) in fields(&all, package, struct_name) {
                let values: Vec<&str> = values.iter().map(String::as_str).collect();
                writeln!(out, "{struct_name} {field} {}", values.join("|"))?;
            }
        }
    }
    Ok(out)
}

/// Returns the enum fields of a struct in order, including those of inlined structs.
fn fields<'a>(
    all: &'a BTreeMap<String, Package>,
    package: &'a Package,
    struct_name: &str,
) -> Vec<(&'a str, &'a BTreeSet<String>)> {
    let mut found = Vec::new();
    for field in package.structs.get(struct_name).into_iter().flatten() {
        let Some((home, name)) = find(all, package, package.aliases.get(&field.type_name).unwrap_or(&field.type_name))
        else {
            continue;
        };
        if field.json.is_empty() {
            found.extend(fields(all, home, name));
        } else if let Some(values) = home.enums.get(name) {
            found.push((field.json.as_str(), values));
        }
    }
    found
}

/// Resolves a name: `v1.Protocol` in another package, `Protocol` in this one.
fn find<'a, 'b>(
    all: &'a BTreeMap<String, Package>,
    package: &'a Package,
    name: &'b str,
) -> Option<(&'a Package, &'b str)> {
    match name.split_once('.') {
        Some((alias, name)) => Some((package.imports.get(alias).and_then(|home| all.get(home))?, name)),
        None => Some((package, name)),
    }
}

/// Returns the values of a package's enums, resolving constants of other packages.
fn enums(all: &BTreeMap<String, Package>, package: &Package) -> BTreeMap<String, BTreeSet<String>> {
    let mut enums = package.enums.clone();
    for (enum_name, value) in package.constants.values() {
        let Some(values) = enums.get_mut(enum_name) else { continue };
        let elsewhere = || find(all, package, value).and_then(|(home, name)| home.constants.get(name));
        let text = |value: &str| value.strip_prefix('"').and_then(|v| v.strip_suffix('"')).map(str::to_owned);
        values.extend(text(value).or_else(|| text(&elsewhere()?.1)));
    }
    enums
}

fn package(text: &str) -> Package {
    let (mut package, marked) = (Package::default(), marked(text));
    let mut open: Option<String> = None;
    for line in text.lines() {
        let code = line.trim();
        if code.starts_with("//") {
            continue;
        }
        if let Some((alias, path)) = import(code) {
            package.imports.insert(alias, path);
        } else if let Some(name) = line.strip_prefix("type ").and_then(|rest| rest.strip_suffix(" struct {")) {
            open = Some(name.to_owned());
        } else if line == "}" {
            open = None;
        } else if let Some(struct_name) = &open {
            package.structs.entry(struct_name.clone()).or_default().extend(field(code));
        } else if let Some((name, alias)) = line.strip_prefix("type ").and_then(|rest| rest.split_once(" = ")) {
            package.aliases.insert(name.to_owned(), alias.to_owned());
        } else {
            package.constants.extend(constant(code));
        }
    }
    package.enums = marked.into_iter().map(|name| (name, BTreeSet::new())).collect();
    package
}

/// Returns the types whose comments have the marker `+enum`.
fn marked(text: &str) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    let mut marked = false;
    for line in text.lines() {
        if let Some(comment) = line.strip_prefix("//") {
            marked |= comment.trim() == "+enum";
        } else {
            let name = line.strip_prefix("type ").and_then(|rest| rest.strip_suffix(" string"));
            all.extend(name.filter(|_| std::mem::take(&mut marked)).map(str::to_owned));
            marked = false;
        }
    }
    all
}

/// Parses an import: `corev1 "k8s.io/api/core/v1"`.
fn import(code: &str) -> Option<(String, String)> {
    let (alias, path) = code.strip_suffix('"')?.split_once('"')?;
    let path = path.strip_prefix("k8s.io/api/")?;
    let alias = if alias.trim().is_empty() { path.rsplit('/').next()? } else { alias.trim() };
    Some((alias.to_owned(), path.to_owned()))
}

/// Parses a constant into name, type and value: `PullAlways PullPolicy = "Always"`, or `PullAlways = PullPolicy("Always")`.
fn constant(code: &str) -> Option<(String, (String, String))> {
    let (left, right) = code.split_once(" = ")?;
    let words: Vec<&str> = left.strip_prefix("const ").unwrap_or(left).split_whitespace().collect();
    let (name, type_name, value) = match words.as_slice() {
        [name, type_name] => (*name, *type_name, right),
        [name] => {
            let (type_name, value) = right.strip_suffix(')')?.split_once('(')?;
            (*name, type_name, value)
        }
        _ => return None,
    };
    // The text after a value is a comment.
    let value = value.split(" //").next().unwrap_or(value).trim();
    Some((name.to_owned(), (type_name.to_owned(), value.to_owned())))
}

fn field(code: &str) -> Option<Field> {
    let tag = code.split_once("json:\"")?.1.split_once('"')?.0;
    let words: Vec<&str> = code.split('`').next()?.split_whitespace().collect();
    let type_name = match words.as_slice() {
        [type_name] | [_, type_name] => *type_name,
        _ => return None,
    };
    let type_name = type_name.rsplit(['*', ']']).next()?;
    Some(Field { json: tag.split(',').next()?.to_owned(), type_name: type_name.to_owned() })
}
