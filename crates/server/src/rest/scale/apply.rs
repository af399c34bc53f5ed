//! Server-side apply of a Scale. Its managers are stored in the scaled object (upstream's `ScaleHandler`).

use super::{SCALE, Scale, ScalePaths, scale_for_update, write};
use crate::{
    http::clock::now,
    objects::{
        call::Call, managed_fields, managed_object::ManagedObject, request_scope::RequestScope, strict::Validation,
    },
    rest::{generic_registry::GenericRegistry, server_side_apply},
};
use ::apply::{ApplyError, Converter, Filter, ManagedFields, Path, Request, ScaleHandler, TypeRef};
use errors::ApiError;
use kinds::apply_types;
use response::HandlerResult;
use serde_json::Value;

const VERSION: &str = "autoscaling/v1";

/// The only version of Scale.
struct OneVersion;

impl Converter for OneVersion {
    fn root(&self, api_version: &str) -> Option<TypeRef<'_>> {
        apply_types::type_ref(api_version, SCALE.kind)
    }

    fn convert(&self, object: &Value, _from: &str, _to: &str) -> Option<Value> {
        Some(object.clone())
    }
}

pub(super) async fn apply(registry: &GenericRegistry, resource: &RequestScope, call: &Call) -> HandlerResult {
    managed_fields::validate_field_manager(call, "PatchOptions", true)?;
    let validation = Validation::parse(&call.query, "PatchOptions")?;
    let (config, warnings) = server_side_apply::read(call, validation)?;
    if (&config["apiVersion"], &config["kind"]) != (&Value::from(VERSION), &Value::from(SCALE.kind)) {
        let text = |field: &str| config[field].as_str().unwrap_or("");
        let (group, version) = text("apiVersion").rsplit_once('/').unwrap_or(("", text("apiVersion")));
        let found = format!("{group}/{version}, Kind={}", text("kind"));
        return Err(ApiError::bad_request(format!("invalid object type: {found}")));
    }
    let force = call.query.flag("force");
    write(registry, resource, call, "PatchOptions", |old| {
        let merged = || merged(resource, call, old, &config, force);
        let (scale, managers) = server_side_apply::applied(&Scale, merged)?;
        Ok((scale, warnings.clone(), Some(managers)))
    })
    .await
}

/// Applies a configuration to the Scale; returns it, and the managers of its object.
fn merged(
    resource: &RequestScope,
    call: &Call,
    old: &ManagedObject,
    config: &Value,
    force: bool,
) -> Result<(Value, ManagedFields), ApiError> {
    let kind = &*resource.kind;
    let equivalents = resource.served.kinds_of_storage(kind.info().storage);
    let path_of = |version: &str| {
        let equivalent = equivalents.iter().find(|equivalent| equivalent.info().api_version() == version)?;
        Some(path(equivalent.scale()))
    };
    let own_path = Path::of_fields(&["spec", "replicas"]);
    let handler = ScaleHandler { path_of: &path_of, own_path: &own_path, own_version: VERSION };
    let (live, parent_managers) = (scale_for_update(kind, &old.object)?, &old.managers);
    let (manager, time) = (managed_fields::field_manager_name(call), now().to_string());
    let request = Request {
        versions: &OneVersion,
        api_version: VERSION,
        subresource: "scale",
        manager: &manager,
        time: &time,
        filter: &Filter::Everything,
    };
    let applied = ::apply::apply(&request, Some(&live), config.clone(), handler.to_subresource(parent_managers), force);
    let applied = applied.map_err(|error| match error {
        ApplyError::Conflicts(conflicts) => managed_fields::apply_conflict(&conflicts),
        error => {
            let text = |field: &str| config["metadata"][field].as_str().unwrap_or("");
            let object = format!("{}/{}; {VERSION}, Kind={}", text("namespace"), text("name"), SCALE.kind);
            ApiError::bad_request(format!("failed to create typed patch object ({object}): {error}"))
        }
    })?;
    let managers = handler.to_parent(parent_managers, &applied.managers, &kind.info().api_version());
    Ok((applied.object, managers))
}

/// Returns the path of an object's replicas.
fn path(paths: &ScalePaths) -> Path {
    if paths.is_built_in() {
        return Path::of_fields(&["spec", "replicas"]);
    }
    Path::of_fields(&paths.spec_replicas.iter().map(String::as_str).collect::<Vec<_>>())
}
