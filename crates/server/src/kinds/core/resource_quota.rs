//! ResourceQuota. What it allows is held by `admit/quota.rs`; its status is a controller's.

use super::is_negative;
use crate::kinds::{AGE, Cell, FieldErrors, FieldPath, KindInfo, NAME, checks::immutable, plain::Plain, text};
use serde_json::{Value, json};

pub(in crate::kinds) static RESOURCE_QUOTA: Plain = Plain {
    columns: &[
        NAME,
        text("Request", Cell::Of(|q, _| json!(used(q, false)))),
        text("Limit", Cell::Of(|q, _| json!(used(q, true)))),
        AGE,
    ],
    validate,
    validate_change: |object, old, errors| {
        let path = FieldPath::new("spec").child("scopes");
        immutable(&object["spec"]["scopes"], &old["spec"]["scopes"], &path, errors);
    },
    ..Plain::of(&KindInfo {
        short_names: &["quota"],
        status: true,
        ..KindInfo::core("ResourceQuota", "resourcequotas", "resourcequota")
    })
};

/// `cpu: 1/2, pods: 3/10`, of limits or of everything else.
fn used(quota: &Value, limits: bool) -> String {
    let status = &quota["status"];
    let hard = status["hard"].as_object().into_iter().flatten();
    let mut all: Vec<String> = hard
        .filter(|(name, _)| name.starts_with("limits") == limits)
        .map(|(name, hard)| {
            let shown = |v: &Value| v.as_str().unwrap_or("0").to_owned();
            format!("{name}: {}/{}", shown(&status["used"][name]), shown(hard))
        })
        .collect();
    all.sort();
    all.join(", ")
}

/// `ValidateResourceQuotaSpec`.
fn validate(object: &Value, errors: &mut FieldErrors) {
    let path = FieldPath::new("spec").child("hard");
    for (name, quantity) in object["spec"]["hard"].as_object().into_iter().flatten() {
        let at = path.key(name);
        api::names::qualified_name(name).iter().for_each(|e| errors.invalid(&at, &json!(name), e));
        if is_negative(quantity) {
            errors.invalid(&at, quantity, "must be greater than or equal to 0");
        }
    }
}
