//! Parsing and serialization of `managedFields`.

use apply::ManagedFields;
use serde_json::{Value, json};

fn entry(manager: &str, operation: &str, time: &str) -> Value {
    json!({
        "manager": manager, "operation": operation, "apiVersion": "v1", "time": time,
        "fieldsType": "FieldsV1", "fieldsV1": {"f:a": {}},
    })
}

#[test]
fn managed_fields_entries_are_sorted_as_upstream() {
    let (apply, old) = (entry("z", "Apply", "2026-01-03T00:00:00Z"), entry("b", "Update", "2026-01-01T00:00:00Z"));
    let (a, b) = (entry("a", "Update", "2026-01-02T00:00:00Z"), entry("b", "Update", "2026-01-02T00:00:00Z"));
    let mut sub = b.clone();
    sub["subresource"] = json!("status");
    let mut none = old.clone();
    none["apiVersion"] = json!("v0");
    none.as_object_mut().unwrap().remove("time");
    let mixed = json!([sub, b, a, none, apply]);
    let managers = ManagedFields::from_json(&mixed).unwrap();
    assert_eq!(managers.to_json().unwrap(), json!([apply, none, a, b, sub]));
    assert_eq!(ManagedFields::from_json(&Value::Null).unwrap().to_json(), None);
}

#[test]
fn invalid_entry_is_refused_with_upstreams_message() {
    for (field, value, expected) in [
        ("operation", json!("Patch"), "operation must be `Apply` or `Update`"),
        ("apiVersion", json!(""), "apiVersion must not be empty"),
        ("fieldsType", json!(null), "missing fieldsType in managed fields entry 0"),
        ("fieldsType", json!("FieldsV2"), "invalid fieldsType \"FieldsV2\" in managed fields entry 0"),
        ("fieldsV1", json!({"x": {}}), "error decoding set: missing colon: x"),
    ] {
        let mut bad = entry("m", "Apply", "2026-01-01T00:00:00Z");
        bad[field] = value;
        assert_eq!(ManagedFields::from_json(&json!([bad])).unwrap_err().to_string(), expected, "{bad}");
    }
}
