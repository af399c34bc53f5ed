//! Authorization of what depends on the written object.

use super::{escalation, generic_registry::GenericRegistry};
use crate::{
    admission::{certificates, node_restriction},
    objects::{call::Call, request_scope::RequestScope},
};
use auth::authorization::Authorizer;
use errors::ApiError;
use request::{Attributes, ResourceAttributes, UserInfo};
use serde_json::Value;

/// Checks what depends on the written object: NodeRestriction, RBAC escalation, and approval of certificate signing
/// requests. `old` is set for an update.
pub(crate) fn check_write(
    registry: &GenericRegistry,
    user: &UserInfo,
    resource: &RequestScope,
    new: &Value,
    old: Option<&Value>,
) -> Result<(), ApiError> {
    if user.is_master() {
        return Ok(());
    }
    let operation =
        old.map_or(node_restriction::Operation::Create(new), |old| node_restriction::Operation::Update(new, old));
    node_restriction::restrict(&registry.store, user, resource, operation)?;
    escalation::check(&registry.authorizer, user, resource, new, old)?;
    old.map_or(Ok(()), |old| certificates::check(&registry.authorizer, user, resource, new, old))
}

/// Requires the verb `create` for an update or an apply that would create the object.
pub(crate) fn require_create(authorizer: &Authorizer, resource: &RequestScope, call: &Call) -> Result<(), ApiError> {
    let info = resource.kind.info();
    let (group, plural) = (info.group.to_owned(), info.plural.to_owned());
    let name = resource.name.clone().unwrap_or_default();
    // The attributes of a Namespace have its own name as the namespace.
    let namespace = if plural == "namespaces" { name.clone() } else { resource.namespace.clone() };
    let resource = ResourceAttributes { group, resource: plural, namespace, name, ..ResourceAttributes::default() };
    authorizer.require(&call.user, &Attributes::for_resource("create", resource))
}
