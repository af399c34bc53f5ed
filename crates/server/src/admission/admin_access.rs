//! Admin access to devices (`adminAccess`) requires a label on the namespace (`AuthorizedForAdmin` and
//! `AuthorizedForAdminStatus` of upstream's `pkg/registry/resource`).

use crate::objects::request_scope::RequestScope;
use auth::stored_object;
use kinds::{FieldErrors, FieldPath, KindInfo, WriteTarget};
use serde_json::Value;
use store::Store;

/// Label of namespaces that allow admin access.
const ADMIN_ACCESS_LABEL: &str = "resource.kubernetes.io/admin-access";

/// Checks a new claim or claim template, or the status of a claim that is newly allocated. Requests are immutable.
pub(super) fn validate(
    store: &Store,
    resource: &RequestScope,
    object: &Value,
    old: Option<&Value>,
    errors: &mut FieldErrors,
) {
    let Some(path) = admin_access_path(resource.kind.info(), resource.target(), object, old) else { return };
    let namespace = stored_object::get(store, "namespaces", "", &resource.namespace).unwrap_or_default();
    if namespace["metadata"]["labels"][ADMIN_ACCESS_LABEL] != "true" {
        let message = format!(
            "admin access to devices requires the `{ADMIN_ACCESS_LABEL}: true` label on the containing namespace"
        );
        errors.forbidden(&path, &message);
    }
}

/// Returns the path of the first new `adminAccess`.
fn admin_access_path(info: &KindInfo, target: WriteTarget, object: &Value, old: Option<&Value>) -> Option<FieldPath> {
    let requests = match info.kind {
        _ if info.group != "resource.k8s.io" => return None,
        "ResourceClaim" => &object["spec"]["devices"]["requests"],
        "ResourceClaimTemplate" => &object["spec"]["spec"]["devices"]["requests"],
        _ => return None,
    };
    let first = |list: &Value, predicate: fn(&Value) -> bool| list.as_array()?.iter().position(predicate);
    match (target, old) {
        (WriteTarget::Main, None) => {
            let index = first(requests, |request| request["exactly"]["adminAccess"] == true)?;
            // Upstream's path, for templates too.
            Some(FieldPath::new("spec").child("devices").child("requests").index(index).child("adminAccess"))
        }
        (WriteTarget::Status, Some(old)) => {
            let allocated = |object: &Value| {
                let results = &object["status"]["allocation"]["devices"]["results"];
                first(results, |result| result["adminAccess"] == true)
            };
            let index = allocated(object).filter(|_| allocated(old).is_none())?;
            let results = FieldPath::new("status").child("allocation").child("devices").child("results");
            Some(results.index(index).child("adminAccess"))
        }
        _ => None,
    }
}
