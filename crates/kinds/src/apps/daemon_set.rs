//! DaemonSet.

use super::{
    GROUP,
    status::{ReplicaCounts, validate_collision_count},
    validate_immutable_selector,
};
use crate::{
    AGE, Cell, FieldErrors, KindInfo, NAME, defaulting, enums,
    field_cursor::FieldCursor,
    field_validation::{parse_percent, validate_int_or_percent},
    generic_kind::GenericKind,
    integer,
    pod_template_spec::{self, CONTAINERS, IMAGES, SELECTOR},
    selector, text,
};
use serde_json::{Value, json};

const COUNTS: ReplicaCounts = ReplicaCounts {
    counts: &[
        "currentNumberScheduled",
        "numberMisscheduled",
        "desiredNumberScheduled",
        "numberReady",
        "updatedNumberScheduled",
        "numberAvailable",
        "numberUnavailable",
    ],
    bounded_by_replicas: &[],
    ready_name: "",
};

pub(crate) static DAEMON_SET: GenericKind = GenericKind {
    columns: &[
        NAME,
        integer("Desired", Cell::Pointer("/status/desiredNumberScheduled")),
        integer("Current", Cell::Pointer("/status/currentNumberScheduled")),
        integer("Ready", Cell::Pointer("/status/numberReady")),
        integer("Up-to-date", Cell::Pointer("/status/updatedNumberScheduled")),
        integer("Available", Cell::Pointer("/status/numberAvailable")),
        text(
            "Node Selector",
            Cell::Computed(|d, _| selector::labels_table_cell(&d["spec"]["template"]["spec"]["nodeSelector"])),
        ),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    default,
    validate,
    validate_change: validate_immutable_selector,
    warnings: |object, old| pod_template_spec::warnings(object, old, pod_template_spec::SPEC_PATH),
    validate_status: |object, old, errors| {
        COUNTS.validate(object, errors);
        validate_collision_count(object, old, errors);
    },
    ..GenericKind::new(&KindInfo {
        short_names: &["ds"],
        categories: &["all"],
        status: true,
        generation: true,
        ..KindInfo::namespaced(GROUP, "DaemonSet", "daemonsets", "daemonset")
    })
};

/// Sets the defaults of a DaemonSet (`SetDefaults_DaemonSet`).
fn default(object: &mut Value) {
    pod_template_spec::set_pod_template_defaults(object, pod_template_spec::SPEC);
    defaulting::set_defaults_at(object, "/spec", &[("revisionHistoryLimit", json!(10))]);
    defaulting::set_defaults_at(object, "/spec/updateStrategy", &[("type", json!("RollingUpdate"))]);
    if object["spec"]["updateStrategy"]["type"] == "RollingUpdate" {
        defaulting::set_defaults_at(object, "/spec/updateStrategy", &[("rollingUpdate", json!({}))]);
        let values = [("maxUnavailable", json!(1)), ("maxSurge", json!(0))];
        defaulting::set_defaults_at(object, "/spec/updateStrategy/rollingUpdate", &values);
    }
}

/// Validates a DaemonSet (`ValidateDaemonSetSpec`).
fn validate(object: &Value, errors: &mut FieldErrors) {
    let object = FieldCursor::object(object);
    let spec = object.at("spec");
    let (selector, template) = (spec.at("selector"), spec.at("template"));
    selector::validate(&selector, errors);
    let labels = template.at("metadata").at("labels").value();
    if let Some(selected) = selector::matches(selector.value(), labels) {
        pod_template_spec::validate_selector_matches(&template, selected, errors);
    }
    if !selector.is_null() && selector::is_empty(selector.value()) {
        selector.invalid("empty selector is invalid for daemonset", errors);
    }
    pod_template_spec::validate_for_controller(&template, "DaemonSet", errors);
    spec.at("minReadySeconds").nonnegative(errors);
    validate_update_strategy(&spec.at("updateStrategy"), errors);
    spec.at("revisionHistoryLimit").nonnegative(errors);
}

/// Validates the update strategy (`ValidateRollingUpdateDaemonSet`).
fn validate_update_strategy(strategy: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    let (kind, rolling) = (strategy.at("type"), strategy.at("rollingUpdate"));
    match kind.text() {
        "OnDelete" => {}
        "RollingUpdate" => {
            let (unavailable, surge) = (rolling.at("maxUnavailable"), rolling.at("maxSurge"));
            for field in [unavailable, surge] {
                validate_int_or_percent(&field, errors);
                if parse_percent(field.value()).is_some_and(|p| p > 100) {
                    field.invalid("must not be greater than 100%", errors);
                }
            }
            let is_zero = |v: &Value| v.is_null() || v.as_i64() == Some(0) || parse_percent(v) == Some(0);
            match (is_zero(unavailable.value()), is_zero(surge.value())) {
                (false, false) => surge.invalid("may not be set when maxUnavailable is non-zero", errors),
                (true, true) => unavailable.required("cannot be 0 when maxSurge is 0", errors),
                _ => {}
            }
        }
        _ => kind.supported(enums::DAEMON_SET_STRATEGIES, errors),
    }
}
