//! Who may do what: members of `system:masters` everything, all others nothing yet.

use crate::{
    UserInfo,
    registry::Served,
    request::{self, Query, Resource},
    status::ApiError,
};
use http::Method;
use std::sync::Arc;

/// Whether the user may do this, else why not, in upstream's words.
pub(crate) fn check(
    served: &Arc<Served>,
    user: &UserInfo,
    method: &Method,
    path: &str,
    query: &str,
) -> Result<(), ApiError> {
    if user.groups.iter().any(|g| g == "system:masters") {
        return Ok(());
    }
    let Ok(resource) = request::resource(served, path) else {
        let verb = method.as_str().to_lowercase();
        let message = format!("forbidden: User {:?} cannot {verb} path {path:?}", user.name);
        return Err(ApiError::new(403, "Forbidden", message));
    };
    let info = resource.kind.info();
    let (verb, name) = (verb(method, &resource, query), resource.name.as_deref().unwrap_or(""));
    let part = resource.subresource.as_ref().map_or_else(String::new, |s| format!("/{s}"));
    let place = match resource.namespace.as_str() {
        "" => "at the cluster scope".to_owned(),
        namespace => format!("in the namespace {namespace:?}"),
    };
    let why = format!(
        "User {:?} cannot {verb} resource \"{}{part}\" in API group {:?} {place}",
        user.name, info.plural, info.group
    );
    Err(ApiError::forbidden(info, name, &why))
}

fn verb(method: &Method, resource: &Resource, query: &str) -> &'static str {
    let named = resource.name.is_some();
    match method.as_str() {
        "GET" if Query::parse(query).flag("watch") => "watch",
        "GET" if named => "get",
        "GET" => "list",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" if named => "delete",
        "DELETE" => "deletecollection",
        _ => "create",
    }
}
