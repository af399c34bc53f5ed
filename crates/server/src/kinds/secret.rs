//! Secret.

use super::{
    Column, FieldErrors, FieldPath, Kind, KindInfo, Row, WriteContext, age_cell, column,
    config_map::{check_immutable, check_keys},
    name_cell, secret_rules,
};
use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use std::collections::BTreeMap;

pub(super) struct Secret;

static INFO: KindInfo = KindInfo::core("Secret", "secrets", "secret");

const COLUMNS: &[Column] = &[
    Column { format: "name", ..column("Name", "string", 0) },
    column("Type", "string", 0),
    column("Data", "string", 0),
    column("Age", "string", 0),
];

impl Kind for Secret {
    fn info(&self) -> &'static KindInfo {
        &INFO
    }

    fn default(&self, object: &mut Value) {
        let Some(map) = object.as_object_mut() else { return };
        if map.get("type").is_none_or(|t| t == "") {
            map.insert("type".to_owned(), json!("Opaque"));
        }
        // `stringData` is for writing only: it is merged into `data`.
        if let Some(Value::Object(plain)) = map.remove("stringData") {
            let data = map.entry("data").or_insert_with(|| json!({}));
            for (key, value) in plain {
                data[key] = json!(STANDARD.encode(value.as_str().unwrap_or("")));
            }
        }
    }

    fn validate_create(&self, object: &Value, _ctx: &WriteContext, errors: &mut FieldErrors) {
        check_keys(object, "data", errors);
        secret_rules::check(object, errors);
    }

    fn validate_update(&self, object: &Value, old: &Value, ctx: &WriteContext, errors: &mut FieldErrors) {
        if object["type"] != old["type"] {
            errors.invalid(&FieldPath::new("type"), &object["type"], "field is immutable");
        }
        check_immutable(object, old, &["data"], errors);
        self.validate_create(object, ctx, errors);
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, object: &Value, now: jiff::Timestamp) -> Row {
        let data = json!(object["data"].as_object().map_or(0, serde_json::Map::len));
        Row {
            cells: vec![name_cell(object), object["type"].clone(), data, age_cell(object, now)],
            conditions: Vec::new(),
        }
    }

    fn selectable_fields(&self) -> &'static [&'static str] {
        &["type"]
    }

    fn field_values(&self, object: &Value) -> BTreeMap<&'static str, String> {
        BTreeMap::from([("type", object["type"].as_str().unwrap_or("").to_owned())])
    }
}
