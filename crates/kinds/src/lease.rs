//! Lease (`coordination.k8s.io/v1`).

use super::{AGE, Cell, Column, FieldErrors, Kind, KindInfo, NAME, WriteContext, field_cursor::FieldCursor, text};
use serde_json::Value;

pub(super) struct Lease;

static INFO: KindInfo = KindInfo {
    group: "coordination.k8s.io",
    storage: "leases.coordination.k8s.io",
    allow_create_on_update: true,
    requires_resource_version: true,
    ..KindInfo::core("Lease", "leases", "lease")
};

const COLUMNS: &[Column] = &[NAME, text("Holder", Cell::Pointer("/spec/holderIdentity")), AGE];

impl Kind for Lease {
    fn info(&self) -> &'static KindInfo {
        &INFO
    }

    fn prepare_create(&self, object: &mut Value, _ctx: &WriteContext) {
        drop_coordinated_leader_election_fields(object, None);
    }

    fn prepare_update(&self, object: &mut Value, old: &Value, _ctx: &WriteContext) {
        drop_coordinated_leader_election_fields(object, Some(old));
    }

    fn validate_create(&self, object: &Value, _ctx: &WriteContext, errors: &mut FieldErrors) {
        let object = FieldCursor::object(object);
        let spec = object.at("spec");
        let duration = spec.at("leaseDurationSeconds");
        if duration.integer().is_some_and(|seconds| seconds <= 0) {
            duration.invalid("must be greater than 0", errors);
        }
        spec.at("leaseTransitions").nonnegative(errors);
    }

    fn validate_update(&self, object: &Value, _old: &Value, ctx: &WriteContext, errors: &mut FieldErrors) {
        self.validate_create(object, ctx, errors);
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }
}

/// Drops the fields of the feature gate `CoordinatedLeaderElection`, which is disabled and not implemented, unless the old
/// Lease has them.
fn drop_coordinated_leader_election_fields(object: &mut Value, old: Option<&Value>) {
    for field in ["strategy", "preferredHolder"] {
        if old.is_none_or(|old| old["spec"][field].is_null()) {
            object["spec"].as_object_mut().map(|spec| spec.remove(field));
        }
    }
}
