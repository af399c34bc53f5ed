//! Validation of the data of Secrets by their type (`ValidateSecret`).

use super::{FieldErrors, FieldPath};
use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

/// Maximum size of the data of a ConfigMap or Secret in bytes (`MaxSecretSize`).
pub(super) const MAX_SECRET_SIZE: usize = 1 << 20;

pub(super) fn validate_secret(secret: &Value, errors: &mut FieldErrors) {
    let data = FieldPath::new("data");
    let values = secret["data"].as_object();
    let decoded = |v: &Value| STANDARD.decode(v.as_str().unwrap_or("")).unwrap_or_default();
    if values.into_iter().flatten().map(|(_, v)| decoded(v).len()).sum::<usize>() > MAX_SECRET_SIZE {
        errors.too_long(&data, MAX_SECRET_SIZE);
    }
    let has = |key: &str| secret["data"].get(key).is_some();
    match secret["type"].as_str().unwrap_or("") {
        "kubernetes.io/service-account-token" => {
            let name = "kubernetes.io/service-account.name";
            if secret["metadata"]["annotations"][name].as_str().unwrap_or("").is_empty() {
                errors.required(&FieldPath::new("metadata").child("annotations").key(name), "");
            }
        }
        "kubernetes.io/dockercfg" => validate_json_key(secret, ".dockercfg", &data, errors),
        "kubernetes.io/dockerconfigjson" => validate_json_key(secret, ".dockerconfigjson", &data, errors),
        "kubernetes.io/basic-auth" if !has("username") && !has("password") => {
            errors.required(&data.key("username"), "");
            errors.required(&data.key("password"), "");
        }
        "kubernetes.io/ssh-auth" if decoded(&secret["data"]["ssh-privatekey"]).is_empty() => {
            errors.required(&data.key("ssh-privatekey"), "");
        }
        "kubernetes.io/tls" => {
            ["tls.crt", "tls.key"].iter().filter(|k| !has(k)).for_each(|k| errors.required(&data.key(k), ""));
        }
        _ => {}
    }
}

fn validate_json_key(secret: &Value, key: &str, data: &FieldPath, errors: &mut FieldErrors) {
    let Some(value) = secret["data"].get(key) else { return errors.required(&data.key(key), "") };
    let bytes = STANDARD.decode(value.as_str().unwrap_or("")).unwrap_or_default();
    if serde_json::from_slice::<Value>(&bytes).is_err() {
        errors.invalid(&data.key(key), &json!("<secret contents redacted>"), "it is no valid JSON");
    }
}
