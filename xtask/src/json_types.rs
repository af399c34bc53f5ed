//! Generates the messages of types that have no protobuf: `meta.k8s.io` Tables (`+protobuf=false`). The numbers of their fields
//! are their positions.

use crate::go_types::tag;
use anyhow::{Context, bail, ensure};
use std::fmt::Write as _;

/// The types.
const TYPES: [&str; 4] = ["Table", "TableColumnDefinition", "TableRow", "TableRowCondition"];

/// Appends the messages of the Go types of `meta/v1`; those of version `v1beta1` are aliases.
pub(crate) fn append(out: &mut String, source: &str) -> anyhow::Result<()> {
    writeln!(out, "[json/table-v1 meta.k8s.io/v1]")?;
    for name in TYPES {
        out.push_str(name);
        let body = source.split_once(&format!("type {name} struct {{\n")).with_context(|| format!("no type {name}"))?.1;
        let body = body.split_once("\n}").with_context(|| format!("{name} has no end"))?.0;
        let code = body.lines().map(str::trim).filter(|line| line.contains("json:\"") && !line.starts_with("//"));
        let fields = code.filter(|line| !line.starts_with("TypeMeta "));
        for (number, line) in (1..).zip(fields) {
            let json: Vec<&str> = tag(line, "json").unwrap_or_default().split(',').collect();
            let go_type = line.split('`').next().and_then(|words| words.split_whitespace().last()).unwrap_or_default();
            let always = if json.contains(&"omitempty") { "" } else { "!" };
            let json_name = json.first().filter(|name| !name.is_empty()).with_context(|| format!("{line}: no name"))?;
            write!(out, " {json_name}:{number}={}{always}", field_type(go_type, source)?)?;
        }
        out.push('\n');
    }
    writeln!(out, "[json/table-v1beta1 meta.k8s.io/v1beta1]\nTable .:1=json/table-v1.Table")?;
    Ok(())
}

/// Returns a Go type in the notation of the table.
fn field_type(go_type: &str, source: &str) -> anyhow::Result<String> {
    if let Some(element) = go_type.strip_prefix("[]") {
        return Ok(format!("[]{}", field_type(element, source)?));
    }
    Ok(match go_type {
        "string" | "bool" | "int32" => go_type.to_owned(),
        "interface{}" => "json".to_owned(),
        "runtime.RawExtension" => "raw".to_owned(),
        "ListMeta" => format!("meta/v1.{go_type}"),
        name if TYPES.contains(&name) => name.to_owned(),
        name if name.starts_with(char::is_uppercase) => {
            ensure!(source.contains(&format!("type {name} string\n")), "{name} is not a string");
            "string".to_owned()
        }
        name => bail!("{name:?}: unknown type"),
    })
}
