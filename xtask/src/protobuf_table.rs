//! Generates `crates/wire/src/protobuf/messages.txt`: field numbers and JSON names of Kubernetes' protobuf messages.
//!
//! The sources are numbers and types from `generated.proto` files, JSON names and `omitempty` from the tags of the Go structs,
//! and the markers in their comments, which the `.proto` files repeat.

use crate::{
    generate::{PACKAGES, Package, api_version, sources},
    go_types::GoTypes,
    json_types,
};
use anyhow::{Context, bail};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt::Write as _,
    fs,
    path::Path,
};

/// Messages with a special JSON encoding, by the end of their name, and their keyword in the table.
const SPECIAL: [(&str, &str); 11] = [
    ("pkg.apis.meta.v1.Time", "time"),
    ("pkg.apis.meta.v1.MicroTime", "microtime"),
    ("pkg.apis.meta.v1.Duration", "duration"),
    ("pkg.apis.meta.v1.FieldsV1", "json"),
    ("pkg.api.resource.Quantity", "quantity"),
    ("pkg.util.intstr.IntOrString", "intorstring"),
    ("pkg.runtime.RawExtension", "raw"),
    ("pkg.apis.apiextensions.v1.JSON", "json"),
    ("pkg.apis.apiextensions.v1.JSONSchemaPropsOrArray", "list|JSONSchemaProps"),
    ("pkg.apis.apiextensions.v1.JSONSchemaPropsOrBool", "bool|JSONSchemaProps"),
    // Only of `dependencies`, which validation forbids.
    ("pkg.apis.apiextensions.v1.JSONSchemaPropsOrStringArray", "list|JSONSchemaProps"),
];

/// Generates the table from the directory `staging/src/k8s.io`.
pub(crate) fn table(staging: &Path) -> anyhow::Result<String> {
    let mut out = String::from(
        "# Field numbers and JSON names of Kubernetes protobuf messages; crates/wire/src/protobuf/message_table.rs reads it.\n\
         # Generated from Kubernetes v1.35 (generated.proto, tags of the Go structs) with `cargo xtask generate`. Do not edit.\n\
         # [package apiVersion], then one line for each message, its fields in the order of the Go struct: name:number=type.\n\
         # After a message's name: `~atomic` for server-side apply, `%name` the discriminator of a union, `@` has apiVersion and kind.\n\
         # Types: `.` a message inlined in the parent's JSON, `*` a pointer, `[]` a list, `{}` a map of strings to the type.\n\
         # `!` a field without omitempty, which is required, unless it has a `?`; `+` a field with omitempty that is required.\n\
         # `~map:name` the topology for server-side apply, `&merge:name` the strategy of a strategic merge patch, each with its\n\
         # keys. `^value` the declared default.\n",
    );
    for each in &PACKAGES {
        package(&mut out, each, &each.path(staging))?;
        if each.name == "meta/v1" {
            json_types::append(&mut out, &sources(&each.path(staging))?)?;
        }
    }
    Ok(out)
}

fn package(out: &mut String, Package { name, roots, .. }: &Package, directory: &Path) -> anyhow::Result<()> {
    let source = sources(directory)?;
    let types = GoTypes::read(&source, directory)?;
    let file = directory.join("generated.proto");
    let proto = fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
    writeln!(out, "[{name} {}]", api_version(directory)?)?;
    let mut messages = messages(&proto)?;
    if !roots.is_empty() {
        let used = used_messages(&messages, roots);
        messages.retain(|message, _| used.contains(message));
    }
    for (message, Message { markers, fields, .. }) in messages {
        if types.slices.contains(&message) {
            writeln!(out, "{message} []string")?;
            continue;
        }
        // The core group's List is that of meta/v1.
        if special_local(&message).is_some()
            || message == "Timestamp"
            || (*name, message.as_str()) == ("core/v1", "List")
        {
            continue;
        }
        let Some(go) = types.structs.get(&message) else { bail!("{name}.{message} has no struct") };
        out.push_str(&message);
        out.push_str(&markers);
        out.push_str(if go.has_type_meta { "@" } else { "" });
        let mut fields: Vec<_> = fields.into_iter().collect();
        fields.sort_by_key(|(number, _)| go.fields.get(number).map(|field| field.index));
        for (number, ProtoField { kind, presence, merging, default }) in fields {
            let field = go.fields.get(&number);
            let field = field.with_context(|| format!("{name}.{message} has no field {number} in its struct"))?;
            let pointer = if field.pointer { "*" } else { "" };
            let required = match (field.always, presence) {
                (true, Some(Presence::Optional)) => "!?",
                (true, _) => "!",
                (false, Some(Presence::Required)) => "+",
                (false, _) => "",
            };
            let default = default.map(|d| resolve_default(&d, &source)).transpose()?.unwrap_or_default();
            write!(out, " {}:{number}={pointer}{kind}{required}{merging}{default}", field.json)?;
        }
        out.push('\n');
    }
    Ok(())
}

/// Returns the messages that some messages contain, and themselves.
fn used_messages(all: &BTreeMap<String, Message>, roots: &[&str]) -> BTreeSet<String> {
    let mut used = BTreeSet::new();
    let mut open: Vec<String> = roots.iter().map(|root| (*root).to_owned()).collect();
    while let Some(name) = open.pop() {
        let Some(message) = all.get(&name).filter(|_| used.insert(name)) else { continue };
        let kinds = message.fields.values().map(|field| field.kind.trim_start_matches(['[', ']', '{', '}']));
        open.extend(kinds.map(|kind| kind.rsplit('|').next().unwrap_or(kind).to_owned()));
    }
    used
}

/// A message of a `.proto` file.
#[derive(Default)]
struct Message {
    is_union: bool,
    /// `~atomic` for an atomic struct in server-side apply, and `%name` with the discriminator of a union.
    markers: String,
    /// By field number.
    fields: BTreeMap<u32, ProtoField>,
}

/// Whether a field must be set, if a marker says it (`hasOptionalTag` of upstream's OpenAPI generator).
enum Presence {
    Optional,
    Required,
}

/// A field of a message in a `.proto` file.
struct ProtoField {
    kind: String,
    presence: Option<Presence>,
    /// Merge markers.
    merging: String,
    /// `+default`: JSON, or `ref(NAME)` for a constant.
    default: Option<String>,
}

/// Formats a declared default, for example `^"TCP"`.
fn resolve_default(default: &str, source: &str) -> anyhow::Result<String> {
    let Some(name) = default.strip_prefix("ref(").and_then(|d| d.strip_suffix(')')) else {
        return Ok(format!("^{default}"));
    };
    let line = source.lines().map(str::trim).find(|line| line.split_whitespace().next() == Some(name));
    let value = line.and_then(|line| line.split_once(" = ")).with_context(|| format!("no constant {name}"))?.1;
    Ok(format!("^{value}"))
}

/// Parses the messages of a `.proto` file.
fn messages(text: &str) -> anyhow::Result<BTreeMap<String, Message>> {
    let mut all = BTreeMap::new();
    let mut open: Option<(String, Message)> = None;
    let mut markers = Markers::new();
    for line in text.lines().map(str::trim) {
        if let Some(comment) = line.strip_prefix("//") {
            if let Some(marker) = comment.trim().strip_prefix('+') {
                let (name, value) = marker.split_once('=').unwrap_or((marker, ""));
                markers.entry(name).or_default().push(value.trim());
            }
        } else if let Some(name) = line.strip_prefix("message ").and_then(|l| l.strip_suffix(" {")) {
            let is_atomic = markers.get("structType").is_some_and(|m| m.contains(&"atomic"));
            let is_union = markers.contains_key("union");
            markers.clear();
            let markers = if is_atomic { "~atomic" } else { "" }.to_owned();
            open = Some((name.to_owned(), Message { is_union, markers, fields: BTreeMap::new() }));
        } else if line == "}" {
            markers.clear();
            all.extend(open.take());
        } else if let Some((_, message)) = &mut open
            && let Some((left, number)) = line.strip_suffix(';').and_then(|l| l.split_once(" = "))
        {
            let (kind, name) = left.rsplit_once(' ').with_context(|| format!("no type in {line:?}"))?;
            let number = number.parse().with_context(|| format!("no number in {line:?}"))?;
            let markers = std::mem::take(&mut markers);
            if message.is_union && markers.contains_key("unionDiscriminator") {
                message.markers = format!("{}%{name}", message.markers);
            }
            message.fields.insert(number, ProtoField::new(kind, &markers)?);
        }
    }
    Ok(all)
}

/// Values of the markers of a declaration.
type Markers<'a> = HashMap<&'a str, Vec<&'a str>>;

impl ProtoField {
    fn new(kind: &str, markers: &Markers<'_>) -> anyhow::Result<Self> {
        let presence = match (markers.contains_key("optional"), markers.contains_key("required")) {
            (true, _) => Some(Presence::Optional),
            (false, true) => Some(Presence::Required),
            (false, false) => None,
        };
        let default = markers.get("default").and_then(|m| m.first()).map(|d| (*d).to_owned());
        Ok(Self { kind: field_type(kind)?, presence, merging: merging(markers), default })
    }
}

/// Formats the merge markers of a field for apply and strategic merge patches: `~map:name&merge:name`.
fn merging(markers: &Markers<'_>) -> String {
    let mut formatted = String::new();
    for (marker, sign, keys) in [
        ("listType", '~', "listMapKey"),
        ("mapType", '~', ""),
        ("structType", '~', ""),
        ("patchStrategy", '&', "patchMergeKey"),
    ] {
        let Some(value) = markers.get(marker).and_then(|m| m.first()) else { continue };
        formatted.push(sign);
        formatted += value;
        if let Some(keys) = markers.get(keys) {
            formatted.push(':');
            formatted += &keys.join(":");
        }
    }
    formatted
}

fn field_type(kind: &str) -> anyhow::Result<String> {
    if let Some(value) = kind.strip_prefix("map<string, ").and_then(|k| k.strip_suffix('>')) {
        return Ok(format!("{{}}{}", type_name(value)?));
    }
    match kind.split_once(' ') {
        Some(("repeated", kind)) => Ok(format!("[]{}", type_name(kind)?)),
        Some(("optional", kind)) => type_name(kind),
        _ => bail!("{kind:?}: unknown type"),
    }
}

fn type_name(kind: &str) -> anyhow::Result<String> {
    let qualified = SPECIAL.iter().find(|(end, _)| kind.ends_with(&format!(".{end}"))).map(|(_, word)| *word);
    if let Some(word) = qualified.or_else(|| special_local(kind)) {
        return Ok(word.to_owned());
    }
    if let Some(path) = kind.strip_prefix('.') {
        let parts: Vec<&str> = path.split('.').collect();
        let [.., package, version, message] = parts.as_slice() else { bail!("{kind:?} has no package") };
        return Ok(format!("{package}/{version}.{message}"));
    }
    if matches!(kind, "string" | "bool" | "int32" | "int64" | "double" | "bytes")
        || kind.starts_with(char::is_uppercase)
    {
        return Ok(kind.to_owned());
    }
    bail!("{kind:?}: unknown type")
}

/// Returns the keyword of a message of the own package with a special encoding.
fn special_local(message: &str) -> Option<&'static str> {
    let found = SPECIAL.iter().find(|(end, _)| end.starts_with("pkg.apis.") && end.rsplit('.').next() == Some(message));
    found.map(|(_, word)| *word)
}
