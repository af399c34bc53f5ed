//! Devices that others use are for namespaces that are marked for it (`adminAccess`; `AuthorizedForAdmin` and
//! `AuthorizedForAdminStatus` of upstream's `pkg/registry/resource`).

use crate::{
    kinds::{FieldErrors, FieldPath, KindInfo, WriteTarget},
    request::RequestInfo,
    service::ApiServer,
};
use serde_json::Value;
use store::Key;

/// The label of such a namespace.
const MARK: &str = "resource.kubernetes.io/admin-access";

/// Whether a claim, or a template for one, may ask for what it asks for, or be given what its new status says. What it asks
/// for never changes, and what it was given was allowed when it was.
pub(super) fn check(
    server: &ApiServer,
    resource: &RequestInfo,
    object: &Value,
    old: Option<&Value>,
    errors: &mut FieldErrors,
) {
    let Some(path) = wanted(resource.kind.info(), resource.target(), object, old) else { return };
    let stored = server.store.get(&Key::new("namespaces", "", resource.namespace.as_str()));
    let namespace: Value = stored.and_then(|stored| serde_json::from_slice(&stored.data).ok()).unwrap_or_default();
    if namespace["metadata"]["labels"][MARK] != "true" {
        let why = format!("admin access to devices requires the `{MARK}: true` label on the containing namespace");
        errors.forbidden(&path, &why);
    }
}

/// Where such access is asked for first, if it is new.
fn wanted(info: &KindInfo, target: WriteTarget, object: &Value, old: Option<&Value>) -> Option<FieldPath> {
    let requests = match info.kind {
        _ if info.group != "resource.k8s.io" => return None,
        "ResourceClaim" => &object["spec"]["devices"]["requests"],
        "ResourceClaimTemplate" => &object["spec"]["spec"]["devices"]["requests"],
        _ => return None,
    };
    let first = |list: &Value, is: fn(&Value) -> bool| list.as_array().and_then(|list| list.iter().position(is));
    match (target, old) {
        (WriteTarget::Main, None) => {
            let index = first(requests, |request| request["exactly"]["adminAccess"] == true)?;
            // Upstream names the field so, for templates too.
            Some(FieldPath::new("spec").child("devices").child("requests").index(index).child("adminAccess"))
        }
        (WriteTarget::Status, Some(old)) => {
            let given = |object: &Value| {
                let results = &object["status"]["allocation"]["devices"]["results"];
                first(results, |result| result["adminAccess"] == true)
            };
            let index = given(object).filter(|_| given(old).is_none())?;
            let results = FieldPath::new("status").child("allocation").child("devices").child("results");
            Some(results.index(index).child("adminAccess"))
        }
        _ => None,
    }
}
