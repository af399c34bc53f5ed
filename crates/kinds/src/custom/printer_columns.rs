//! Table columns of custom kinds (`additionalPrinterColumns`).

use crate::age;
use api::{
    float,
    rfc3339::{self, Precision},
};
use jiff::Timestamp;
use schema::JsonPath;
use serde_json::{Value, json};

/// A printer column.
#[derive(Debug)]
pub(super) struct PrinterColumn {
    definition: Value,
    kind: String,
    path: JsonPath,
}

impl PrinterColumn {
    /// Parses the columns of a version; the default is the age. Columns from the first invalid path on are omitted.
    pub(super) fn read(version: &Value) -> Vec<Self> {
        let age = json!([{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp",
            "description": "How long ago the object was created."}]);
        let columns_value = &version["additionalPrinterColumns"];
        let columns = columns_value.as_array().filter(|c| !c.is_empty()).or(age.as_array());
        columns.into_iter().flatten().map_while(Self::parse).collect()
    }

    fn parse(column: &Value) -> Option<Self> {
        let text = |key: &str| column[key].as_str().unwrap_or("");
        let path = text("jsonPath");
        let description = match text("description") {
            "" => format!("Custom resource definition column (in JSONPath format): {path}"),
            text => text.to_owned(),
        };
        let definition = json!({
            "name": text("name"), "type": text("type"), "format": text("format"), "description": description,
            "priority": column["priority"].as_i64().unwrap_or(0),
        });
        Some(Self { definition, kind: text("type").to_owned(), path: JsonPath::parse(path).ok()? })
    }

    pub(super) fn definition(&self) -> Value {
        self.definition.clone()
    }

    pub(super) fn cell(&self, object: &Value, now: Timestamp) -> Value {
        let found = self.path.find(object);
        let Some(value) = found.first() else { return Value::Null };
        match (self.kind.as_str(), value) {
            ("string", Value::String(_)) | ("boolean", Value::Bool(_)) | ("number", Value::Number(_)) => {
                (*value).clone()
            }
            ("string", Value::Null) => json!("<no value>"),
            ("string", Value::Number(number)) if number.is_f64() => {
                json!(float::format_float(number.as_f64().unwrap_or(0.0)))
            }
            ("string", other) => json!(other.to_string()),
            #[expect(clippy::cast_possible_truncation, reason = "as upstream does")]
            ("integer", Value::Number(number)) => json!(number.as_i64().or(number.as_f64().map(|f| f as i64))),
            ("date", Value::String(text)) if text.is_empty() || text == "null" => json!("<unknown>"),
            ("date", Value::String(text)) if rfc3339::parse(text, Precision::Seconds).is_ok() => {
                json!(age(Some(text), now))
            }
            ("date", Value::String(_)) => json!("<invalid>"),
            _ => Value::Null,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::PrinterColumn;
    use jiff::Timestamp;
    use serde_json::{Value, json};

    #[test]
    fn printer_column_cells_match_upstream() {
        let now: Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
        for (kind, value, expected) in [
            ("string", json!("a"), json!("a")),
            ("string", json!(null), json!("<no value>")),
            ("string", json!(3), json!("3")),
            ("string", json!(1.5), json!("1.5")),
            ("string", json!(1_000_000.0), json!("1e+06")),
            ("string", json!(true), json!("true")),
            ("string", json!({"a": [1, "b"]}), json!(r#"{"a":[1,"b"]}"#)),
            ("integer", json!(3), json!(3)),
            ("integer", json!(3.7), json!(3)),
            ("integer", json!("3"), json!(null)),
            ("boolean", json!("true"), json!(null)),
            ("number", json!(null), json!(null)),
            ("date", json!("2026-01-02T03:04:00Z"), json!("5s")),
            ("date", json!(""), json!("<unknown>")),
            ("date", json!("null"), json!("<unknown>")),
            ("date", json!("2026-01-02"), json!("<invalid>")),
            ("date", json!("2026-01-02 03:04:00Z"), json!("<invalid>")),
            ("date", json!(5), json!(null)),
        ] {
            let column = json!({"name": "C", "type": kind, "jsonPath": ".v"});
            let column = PrinterColumn::parse(&column).unwrap();
            assert_eq!(column.cell(&json!({"v": value}), now), expected, "{kind} {value}");
            assert_eq!(column.cell(&json!({}), now), Value::Null);
        }
    }
}
