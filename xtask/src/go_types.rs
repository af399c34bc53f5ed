//! The declarations of a Go package that the message table needs.

use crate::generate::sources;
use std::{collections::HashMap, path::Path};

/// A struct of a Go package.
#[derive(Default)]
pub(crate) struct GoStruct {
    /// Whether it has `apiVersion` and `kind`, which are not on the wire.
    pub(crate) has_type_meta: bool,
    /// The fields on the wire, by number.
    pub(crate) fields: HashMap<u32, GoField>,
}

/// A field of a Go struct.
pub(crate) struct GoField {
    /// Index of the field in the struct.
    pub(crate) index: usize,
    pub(crate) json: String,
    pub(crate) pointer: bool,
    /// Without `omitempty`.
    pub(crate) always: bool,
}

/// Types of a Go package.
#[derive(Default)]
pub(crate) struct GoTypes {
    pub(crate) structs: HashMap<String, GoStruct>,
    /// Names of the types that are a list of strings.
    pub(crate) slices: Vec<String>,
}

impl GoTypes {
    /// Parses the types of a package, and those that it takes from version 1: `type MatchCondition v1.MatchCondition`.
    pub(crate) fn read(source: &str, directory: &Path) -> anyhow::Result<Self> {
        let mut types = Self::parse(source);
        let definitions = source.lines().filter_map(|line| line.strip_prefix("type ")?.split_once(" v1."));
        let definitions: Vec<_> = definitions.filter(|(name, _)| !name.contains(' ')).collect();
        if !definitions.is_empty() {
            let mut v1 = Self::parse(&sources(&directory.join("../v1"))?);
            let taken = definitions.into_iter();
            types.structs.extend(taken.filter_map(|(name, other)| Some((name.to_owned(), v1.structs.remove(other)?))));
        }
        Ok(types)
    }

    fn parse(source: &str) -> Self {
        let mut types = Self::default();
        let mut open: Option<(String, GoStruct)> = None;
        for line in source.lines() {
            if let Some(rest) = line.strip_prefix("type ") {
                match rest.split_once(' ') {
                    Some((name, "struct {")) => open = Some((name.to_owned(), GoStruct::default())),
                    Some((name, "struct{}")) => drop(types.structs.insert(name.to_owned(), GoStruct::default())),
                    Some((name, "[]string")) => types.slices.push(name.to_owned()),
                    _ => {}
                }
            } else if line == "}" {
                types.structs.extend(open.take());
            } else if let Some((_, GoStruct { has_type_meta, fields })) = &mut open {
                *has_type_meta |= line
                    .split_whitespace()
                    .next()
                    .is_some_and(|word| matches!(word, "TypeMeta" | "metav1.TypeMeta" | "v1.TypeMeta"));
                fields.extend(field(line, fields.len()));
            }
        }
        types
    }
}

/// Parses a field with both tags. A field without a number, like `TypeMeta`, is not on the wire.
fn field(line: &str, index: usize) -> Option<(u32, GoField)> {
    let code = line.trim();
    if code.starts_with("//") {
        return None;
    }
    let number = tag(code, "protobuf")?.split(',').nth(1)?.parse().ok()?;
    let mut json = tag(code, "json")?.split(',');
    let name = json.next()?;
    let options: Vec<&str> = json.collect();
    let inlined = options.contains(&"inline");
    let before_tags = code.split('`').next()?;
    Some((
        number,
        GoField {
            index,
            json: if inlined { ".".to_owned() } else { name.to_owned() },
            pointer: before_tags.split_whitespace().nth(1).is_some_and(|t| t.starts_with('*')),
            always: !inlined && !options.iter().any(|o| matches!(*o, "omitempty" | "omitzero")),
        },
    ))
}

/// Returns the value of a field's tag, for example `name,omitempty` of `json`.
pub(crate) fn tag<'a>(code: &'a str, name: &str) -> Option<&'a str> {
    Some(code.split_once(&format!("{name}:\""))?.1.split_once('"')?.0)
}
