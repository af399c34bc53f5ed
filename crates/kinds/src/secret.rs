//! Secret.

use super::{
    AGE, Cell, Column, FieldErrors, FieldPath, Kind, KindInfo, NAME, WriteContext,
    config_map::{validate_immutable_data, validate_keys},
    secret_validation, text, tls_key_pair,
};
use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

pub(super) struct Secret;

static INFO: KindInfo = KindInfo::core("Secret", "secrets", "secret");

const COLUMNS: &[Column] = &[NAME, text("Type", Cell::Pointer("/type")), text("Data", Cell::Count("/data")), AGE];

impl Kind for Secret {
    fn info(&self) -> &'static KindInfo {
        &INFO
    }

    fn set_defaults(&self, object: &mut Value) {
        let Some(map) = object.as_object_mut() else { return };
        if map.get("type").is_none_or(|t| t == "") {
            map.insert("type".to_owned(), json!("Opaque"));
        }
        // `stringData` is write-only: it is merged into `data`.
        if let Some(Value::Object(plain)) = map.remove("stringData") {
            let data = map.entry("data").or_insert_with(|| json!({}));
            for (key, value) in plain {
                data[key] = json!(STANDARD.encode(value.as_str().unwrap_or("")));
            }
        }
    }

    /// Warns of an invalid TLS key pair (`warningsForSecret`).
    fn warnings(&self, object: &Value, _old: Option<&Value>) -> Vec<String> {
        if object["type"] != "kubernetes.io/tls" {
            return Vec::new();
        }
        let decode = |key: &str| STANDARD.decode(object["data"][key].as_str().unwrap_or("")).unwrap_or_default();
        tls_key_pair::x509_key_pair_error(&decode("tls.crt"), &decode("tls.key"))
            .map(str::to_owned)
            .into_iter()
            .collect()
    }

    fn validate_create(&self, object: &Value, _ctx: &WriteContext, errors: &mut FieldErrors) {
        validate_keys(object, "data", errors);
        secret_validation::validate_secret(object, errors);
    }

    fn validate_update(&self, object: &Value, old: &Value, ctx: &WriteContext, errors: &mut FieldErrors) {
        if object["type"] != old["type"] {
            errors.invalid(&FieldPath::new("type"), &object["type"], "field is immutable");
        }
        validate_immutable_data(object, old, &["data"], errors);
        self.validate_create(object, ctx, errors);
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn selectable_fields(&self) -> &'static [&'static str] {
        &["type"]
    }
}
