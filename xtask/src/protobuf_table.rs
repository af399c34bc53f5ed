//! Generates `crates/wire/src/protobuf/messages.txt`: field numbers and JSON names of Kubernetes' protobuf messages.
//!
//! The sources are checkouts of `kubernetes/api` and `kubernetes/apimachinery` at one tag: numbers and types from their
//! `generated.proto` files, JSON names and `omitempty` from the tags of the Go structs.

use anyhow::{Context, bail};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt::Write as _,
    fs,
    path::Path,
};

/// Packages of `kubernetes/api` with a stable version or with a served kind.
pub(crate) const PACKAGES: [&str; 22] = [
    "core/v1",
    "admissionregistration/v1",
    "admissionregistration/v1alpha1",
    "admissionregistration/v1beta1",
    "apps/v1",
    "authentication/v1",
    "authorization/v1",
    "autoscaling/v1",
    "autoscaling/v2",
    "batch/v1",
    "certificates/v1",
    "coordination/v1",
    "discovery/v1",
    "events/v1",
    "flowcontrol/v1",
    "networking/v1",
    "node/v1",
    "policy/v1",
    "rbac/v1",
    "resource/v1",
    "scheduling/v1",
    "storage/v1",
];

/// Kinds that are served in versions of which not all kinds are; messages that they do not use are left out.
const SERVED_IN_PREVIEWS: [&str; 2] = ["MutatingAdmissionPolicyList", "MutatingAdmissionPolicyBindingList"];

/// Messages with a special JSON encoding, by the end of their name, and their keyword in the table.
const SPECIAL: [(&str, &str); 6] = [
    ("pkg.apis.meta.v1.Time", "time"),
    ("pkg.apis.meta.v1.MicroTime", "microtime"),
    ("pkg.apis.meta.v1.FieldsV1", "json"),
    ("pkg.api.resource.Quantity", "quantity"),
    ("pkg.util.intstr.IntOrString", "intorstring"),
    ("pkg.runtime.RawExtension", "raw"),
];

/// A field of a Go struct.
struct GoField {
    /// Index of the field in the struct.
    index: usize,
    json: String,
    pointer: bool,
    always: bool,
}

/// Structs by name with their fields by number, and the names of slice types.
type GoTypes = (HashMap<String, HashMap<u32, GoField>>, Vec<String>);

pub(crate) fn run(api: &Path, apimachinery: &Path, to: &Path) -> anyhow::Result<()> {
    let mut out = String::from(
        "# Field numbers and JSON names of Kubernetes protobuf messages; crates/wire/src/protobuf/message_table.rs reads it.\n\
         # Generated from kubernetes/api and kubernetes/apimachinery v0.35 (generated.proto, tags of the Go structs) with\n\
         # `cargo xtask generate`. Do not edit.\n\
         # [package apiVersion], then one line for each message, its fields in the order of the Go struct: name:number=type.\n\
         # Types: `.` a message inlined in the parent's JSON, `*` a pointer, `[]` a list, `{}` a map of strings to the type.\n\
         # `!` a field without omitempty. `~map:name` the topology for server-side apply, `&merge:name` the strategy of a\n\
         # strategic merge patch, each with its keys. `^value` the declared default.\n",
    );
    package(&mut out, "meta/v1", &apimachinery.join("pkg/apis/meta/v1"), "v1")?;
    for name in PACKAGES {
        let dir = api.join(name);
        let group = group_name(&dir)?;
        let version = name.rsplit('/').next().unwrap_or_default();
        let api_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
        package(&mut out, name, &dir, &api_version)?;
    }
    fs::write(to, out).with_context(|| format!("writing {}", to.display()))
}

/// Reads the API group of a package from its `register.go`.
fn group_name(dir: &Path) -> anyhow::Result<String> {
    let text = fs::read_to_string(dir.join("register.go")).with_context(|| format!("reading {}", dir.display()))?;
    let line = text.lines().find(|l| l.trim().starts_with("const GroupName") || l.trim().starts_with("GroupName "));
    Ok(line.and_then(|l| l.split('"').nth(1)).context("no GroupName")?.to_owned())
}

/// Reads the Go files of a package except for tests and generated files.
pub(crate) fn sources(dir: &Path) -> anyhow::Result<String> {
    let mut all = String::new();
    for entry in fs::read_dir(dir).with_context(|| format!("reading {}", dir.display()))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.ends_with(".go") && !name.ends_with("_test.go") && !name.contains("generated") {
            all += &fs::read_to_string(&path)?;
        }
    }
    Ok(all)
}

fn package(out: &mut String, name: &str, dir: &Path, api_version: &str) -> anyhow::Result<()> {
    let source = sources(dir)?;
    let (mut structs, slices) = go_types(&source);
    structs.extend(structs_of_v1(&source, dir)?);
    let proto = fs::read_to_string(dir.join("generated.proto"))?;
    writeln!(out, "[{name} {api_version}]")?;
    let mut messages = messages(&proto)?;
    if api_version.contains("alpha") || api_version.contains("beta") {
        let used = used_messages(&messages, &SERVED_IN_PREVIEWS);
        messages.retain(|message, _| used.contains(message));
    }
    for (message, Message { struct_marker, fields }) in messages {
        if slices.contains(&message) {
            writeln!(out, "{message} []string")?;
            continue;
        }
        // The core group's List is that of meta/v1.
        if ["Time", "MicroTime", "Duration", "FieldsV1", "Timestamp"].contains(&message.as_str())
            || (name, message.as_str()) == ("core/v1", "List")
        {
            continue;
        }
        let Some(go) = structs.get(&message) else { bail!("{name}.{message} has no struct") };
        out.push_str(&message);
        out.push_str(struct_marker);
        let mut fields: Vec<_> = fields.into_iter().collect();
        fields.sort_by_key(|(number, _)| go.get(number).map(|field| field.index));
        for (number, ProtoField { kind, merging, default }) in fields {
            let field =
                go.get(&number).with_context(|| format!("{name}.{message} has no field {number} in its struct"))?;
            let pointer = if field.pointer { "*" } else { "" };
            let always = if field.always { "!" } else { "" };
            let default = default.map(|d| resolve_default(&d, &source)).transpose()?.unwrap_or_default();
            write!(out, " {}:{number}={pointer}{kind}{always}{merging}{default}", field.json)?;
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
        let names = message.fields.values().map(|field| field.kind.trim_start_matches(['[', ']', '{', '}']).to_owned());
        open.extend(names);
    }
    used
}

/// Returns the structs that a version takes from version 1: `type MatchCondition v1.MatchCondition`.
fn structs_of_v1(source: &str, dir: &Path) -> anyhow::Result<HashMap<String, HashMap<u32, GoField>>> {
    let definitions = source.lines().filter_map(|line| line.strip_prefix("type ")?.split_once(" v1."));
    let definitions: Vec<_> = definitions.filter(|(name, _)| !name.contains(' ')).collect();
    if definitions.is_empty() {
        return Ok(HashMap::new());
    }
    let (mut structs, _) = go_types(&sources(&dir.join("../v1"))?);
    let taken = definitions.into_iter().filter_map(|(name, other)| Some((name.to_owned(), structs.remove(other)?)));
    Ok(taken.collect())
}

/// A message of a `.proto` file.
#[derive(Default)]
struct Message {
    /// `~atomic` for an atomic struct in server-side apply.
    struct_marker: &'static str,
    /// By field number.
    fields: BTreeMap<u32, ProtoField>,
}

/// A field of a message in a `.proto` file.
struct ProtoField {
    kind: String,
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
    let mut markers = HashMap::<&str, Vec<&str>>::new();
    for line in text.lines().map(str::trim) {
        if let Some(comment) = line.strip_prefix("//") {
            if let Some((name, value)) = comment.trim().strip_prefix('+').and_then(|c| c.split_once('=')) {
                markers.entry(name).or_default().push(value.trim());
            }
        } else if let Some(name) = line.strip_prefix("message ").and_then(|l| l.strip_suffix(" {")) {
            let atomic = markers.get("structType").is_some_and(|m| m.contains(&"atomic"));
            markers.clear();
            open = Some((
                name.to_owned(),
                Message { struct_marker: if atomic { "~atomic" } else { "" }, ..Message::default() },
            ));
        } else if line == "}" {
            markers.clear();
            all.extend(open.take());
        } else if let Some((_, message)) = &mut open
            && let Some((left, number)) = line.strip_suffix(';').and_then(|l| l.split_once(" = "))
        {
            let (kind, _) = left.rsplit_once(' ').with_context(|| format!("no type in {line:?}"))?;
            let number = number.parse().with_context(|| format!("no number in {line:?}"))?;
            let markers = std::mem::take(&mut markers);
            let default = markers.get("default").and_then(|m| m.first()).map(|d| (*d).to_owned());
            message.fields.insert(number, ProtoField { kind: field_type(kind)?, merging: merging(&markers), default });
        }
    }
    Ok(all)
}

/// Formats the merge markers of a field for apply and strategic merge patches: `~map:name&merge:name`.
fn merging(markers: &HashMap<&str, Vec<&str>>) -> String {
    let mut formatted = String::new();
    for (marker, sign, keys) in [
        ("listType", '~', "listMapKey"),
        ("mapType", '~', ""),
        ("structType", '~', ""),
        ("patchStrategy", '&', "patchMergeKey"),
    ] {
        let Some(value) = markers.get(marker).and_then(|m| m.first()) else { continue };
        // Granular is the default of maps and structs.
        if *value == "granular" {
            continue;
        }
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
    if let Some((_, word)) = SPECIAL.iter().find(|(end, _)| kind == *end || kind.ends_with(&format!(".{end}"))) {
        return Ok((*word).to_owned());
    }
    if let Some((_, word)) =
        SPECIAL.iter().find(|(end, _)| end.starts_with("pkg.apis.meta") && end.rsplit('.').next() == Some(kind))
    {
        return Ok((*word).to_owned());
    }
    if let Some(path) = kind.strip_prefix('.') {
        let parts: Vec<&str> = path.split('.').collect();
        let [.., package, version, message] = parts.as_slice() else { bail!("{kind:?} has no package") };
        return Ok(format!("{package}/{version}.{message}"));
    }
    if matches!(kind, "string" | "bool" | "int32" | "int64" | "bytes") || kind.starts_with(char::is_uppercase) {
        return Ok(kind.to_owned());
    }
    bail!("{kind:?}: unknown type")
}

fn go_types(text: &str) -> GoTypes {
    let (mut structs, mut slices) = (HashMap::new(), Vec::new());
    let mut open: Option<(String, HashMap<u32, GoField>)> = None;
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("type ") {
            match rest.split_once(' ') {
                Some((name, "struct {")) => open = Some((name.to_owned(), HashMap::new())),
                Some((name, "struct{}")) => drop(structs.insert(name.to_owned(), HashMap::new())),
                Some((name, "[]string")) => slices.push(name.to_owned()),
                _ => {}
            }
        } else if line == "}" {
            structs.extend(open.take());
        } else if let Some((_, fields)) = &mut open {
            fields.extend(go_field(line, fields.len()));
        }
    }
    (structs, slices)
}

/// Parses a field with both tags. A field without a number, like `TypeMeta`, is not on the wire.
fn go_field(line: &str, index: usize) -> Option<(u32, GoField)> {
    let code = line.trim();
    if code.starts_with("//") {
        return None;
    }
    let tag =
        |name: &str| code.split_once(&format!("{name}:\"")).and_then(|(_, rest)| rest.split_once('"')).map(|(t, _)| t);
    let number = tag("protobuf")?.split(',').nth(1)?.parse().ok()?;
    let mut json = tag("json")?.split(',');
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
