//! The `scale` subresource (`autoscaling/v1`).

mod apply;

use crate::{
    objects::{
        call::Call,
        conversion, decode,
        managed_fields::{self, RequestedManagedFields},
        managed_object::ManagedObject,
        object, object_identity, patch as patches,
        request_scope::RequestScope,
        strict::{self, Validation},
        write::{dry_run, respond_with_value, with_warnings},
    },
    rest::{
        generic_registry::GenericRegistry,
        update::{self, FieldOwnership, UpdateResult, UpdatedObject},
    },
};
use ::apply::ManagedFields;
use errors::{ApiError, GroupResource};
use kinds::{AGE, Cell, Column, FieldErrors, FieldPath, Kind, KindInfo, NAME, ScalePaths, integer, selector};
use response::HandlerResult;
use serde_json::{Value, json};

/// Kind of the body of scale requests.
static SCALE: KindInfo = KindInfo::namespaced("autoscaling", "Scale", "scales", "scale");
/// Replicas of a custom resource whose `specReplicasPath` is absent, in updates (upstream's `invalidSpecReplicas`).
const UNSET: i64 = i32::MIN as i64;

/// Kind of Scales.
struct Scale;

/// `scaleColumnDefinitions` of upstream's printers.
static COLUMNS: [Column; 4] = [
    NAME,
    integer("Desired", Cell::Computed(|scale, _| json!(replicas(scale)))),
    integer("Available", Cell::Computed(|scale, _| json!(scale["status"]["replicas"].as_i64().unwrap_or(0)))),
    AGE,
];

impl Kind for Scale {
    fn info(&self) -> &KindInfo {
        &SCALE
    }

    fn columns(&self) -> &'static [Column] {
        &COLUMNS
    }
}

/// Returns the value at a path.
fn at<'a>(object: &'a Value, path: &[String]) -> &'a Value {
    path.iter().fold(object, |value, part| &value[part.as_str()])
}

fn set(object: &mut Value, path: &[String], value: Value) {
    let Some((first, rest)) = path.split_first() else { return *object = value };
    if !object.is_object() {
        *object = json!({});
    }
    set(&mut object[first.as_str()], rest, value);
}

/// Handles a request for the `scale` subresource.
pub(crate) async fn handle(registry: &GenericRegistry, resource: &RequestScope, call: &Call) -> HandlerResult {
    let (info, name) = (resource.kind.info(), resource.name.as_deref().unwrap_or(""));
    let missing = ApiError::not_found(info, name);
    let is_read = call.method == "GET";
    handle_by_method(registry, resource, call).await.map_err(|error| {
        let is_missing = error.code == missing.code && error.message == missing.message;
        if is_missing { not_found(info, name, is_read) } else { error }
    })
}

/// Returns the error of a missing object, which depends on upstream's store (`ScaleREST` and `scaleUpdatedObjectInfo`).
fn not_found(info: &KindInfo, name: &str, is_read: bool) -> ApiError {
    let not_found =
        |group: &str| ApiError::not_found(GroupResource::new(group, &format!("{}/scale", info.plural)), name);
    match (info.group, info.plural) {
        ("apps", "statefulsets") if is_read => ApiError::not_found(info, name),
        ("apps", _) => not_found("apps"),
        ("", "replicationcontrollers") => not_found(if is_read { "autoscaling" } else { "" }),
        _ => ApiError::not_found(info, name),
    }
}

async fn handle_by_method(registry: &GenericRegistry, resource: &RequestScope, call: &Call) -> HandlerResult {
    let kind = &*resource.kind;
    match call.method.as_str() {
        "GET" => {
            let name = resource.name.as_deref().unwrap_or("");
            let stored = registry.store.get(&object::key(kind, &resource.namespace, name));
            let stored = stored.ok_or_else(|| ApiError::not_found(kind.info(), name))?;
            let object = conversion::decode(&registry.webhooks, kind, &stored).await?;
            respond_with_value(&Scale, 200, scale_for_get(kind, &object)?, call)
        }
        "PUT" => {
            managed_fields::validate_field_manager(call, "UpdateOptions", false)?;
            let validation = Validation::parse(&call.query, "UpdateOptions")?;
            let parsed = decode::parse(call, &Scale)?;
            let (scale, warnings) = strict::check(&Scale, parsed, validation)?;
            object_identity::check_named(resource, &scale)?;
            write(registry, resource, call, "UpdateOptions", |_| Ok((scale.clone(), warnings.clone(), None))).await
        }
        "PATCH" if call.content_type == patches::APPLY => apply::apply(registry, resource, call).await,
        "PATCH" => {
            managed_fields::validate_field_manager(call, "PatchOptions", false)?;
            patches::check_type(kind, &call.content_type)?;
            let validation = Validation::parse(&call.query, "PatchOptions")?;
            write(registry, resource, call, "PatchOptions", |object| {
                let object = scale_for_update(kind, &object.object)?;
                let patched = || patches::apply(&call.content_type, object.clone(), &call.body);
                let text = || patches::format_invalid(&call.content_type, &call.body, patched);
                let (scale, warnings) =
                    strict::check_patched(&Scale, patched()?, &call.content_type, text, validation)?;
                Ok((scale, warnings, None))
            })
            .await
        }
        _ => Err(ApiError::method_not_allowed()),
    }
}

/// Updates the replicas of an object with the Scale that `make` returns, and its managers if `make` returns them.
async fn write(
    registry: &GenericRegistry,
    resource: &RequestScope,
    call: &Call,
    options: &str,
    make: impl Fn(&ManagedObject) -> Result<(Value, Vec<String>, Option<ManagedFields>), ApiError>,
) -> HandlerResult {
    let dry = dry_run(&call.query, options)?;
    let (written, warnings) = update::update_object(registry, resource, call, dry, |old| {
        check_types(&*resource.kind, &old.object)?;
        let (scale, warnings, managers) = make(old)?;
        validate(resource, &scale)?;
        let mut object = old.object.clone();
        // Name, UID and `resourceVersion` of the Scale are those of its object.
        for field in ["name", "namespace", "uid"] {
            let (from, into) = (&scale["metadata"][field], &mut object["metadata"]);
            match from {
                Value::Null => drop(into.as_object_mut().map(|m| m.remove(field))),
                value => into[field] = value.clone(),
            }
        }
        // Without `resourceVersion`, any version is updated.
        if let version @ Value::String(_) = &scale["metadata"]["resourceVersion"] {
            object["metadata"]["resourceVersion"] = version.clone();
        }
        set_replicas(&*resource.kind, &mut object, &scale);
        let ownership =
            managers.map_or(FieldOwnership::Updated(RequestedManagedFields::Absent), FieldOwnership::Applied);
        Ok(UpdatedObject { object, warnings, ownership })
    })
    .await?;
    let object = match written {
        UpdateResult::Stored(stored) => conversion::decode(&registry.webhooks, &*resource.kind, &stored).await?,
        UpdateResult::DryRun(value) => value,
    };
    Ok(with_warnings(respond_with_value(&Scale, 200, scale_of(&*resource.kind, &object), call)?, &warnings))
}

/// Sets the replicas of an object from its Scale.
pub(crate) fn set_replicas(kind: &dyn Kind, object: &mut Value, scale: &Value) {
    match kind.scale() {
        paths if paths.is_built_in() => object["spec"]["replicas"] = json!(replicas(scale)),
        paths => set(object, &paths.spec_replicas, json!(replicas(scale))),
    }
}

fn replicas(object: &Value) -> i64 {
    object["spec"]["replicas"].as_i64().unwrap_or(0)
}

/// Upstream's `ValidateScale`; the replicas of a custom resource are validated by its schema.
fn validate(resource: &RequestScope, scale: &Value) -> Result<(), ApiError> {
    let (mut errors, paths) = (FieldErrors::default(), resource.kind.scale());
    let name = scale["metadata"]["name"].as_str().unwrap_or("");
    if name.is_empty() {
        errors.required(&FieldPath::new("metadata").child("name"), "name or generateName is required");
    }
    if paths.is_built_in() && replicas(scale) < 0 {
        let path = FieldPath::new("spec").child("replicas");
        errors.invalid(&path, &scale["spec"]["replicas"], "must be greater than or equal to 0");
    }
    if !errors.is_empty() {
        return Err(ApiError::invalid(&SCALE, resource.name.as_deref().unwrap_or(""), &errors));
    }
    if !paths.is_built_in() && replicas(scale) == UNSET {
        let path = paths.spec_replicas_path();
        return Err(ApiError::bad_request(format!("the spec replicas field {path:?} cannot be empty")));
    }
    Ok(())
}

/// Checks that the scale fields of an object have the right types.
fn check_types(kind: &dyn Kind, object: &Value) -> Result<(), ApiError> {
    kind.scale().check_types(object).map_err(|error| ApiError::new(500, "", error.to_string()))
}

/// Returns the Scale of a GET; `specReplicasPath` of a custom resource must exist.
fn scale_for_get(kind: &dyn Kind, object: &Value) -> Result<Value, ApiError> {
    check_types(kind, object)?;
    if kind.scale().is_unset(object) {
        let path = kind.scale().spec_replicas_path();
        return Err(ApiError::internal(format!("the spec replicas field {path:?} does not exist")));
    }
    Ok(scale_of(kind, object))
}

/// Returns the Scale for an update, with [`UNSET`] replicas if `specReplicasPath` does not exist.
fn scale_for_update(kind: &dyn Kind, object: &Value) -> Result<Value, ApiError> {
    check_types(kind, object)?;
    let mut scale = scale_of(kind, object);
    if kind.scale().is_unset(object) {
        scale["spec"]["replicas"] = json!(UNSET);
    }
    Ok(scale)
}

/// Returns the Scale of an object.
pub(crate) fn scale_of(kind: &dyn Kind, object: &Value) -> Value {
    let mut metadata = json!({});
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        metadata[field] = object["metadata"][field].clone();
    }
    let paths = kind.scale();
    let label_selector = &object["spec"]["selector"];
    // The selector of a ReplicationController is a plain map of labels.
    let selector = if !paths.is_built_in() {
        at(object, &paths.label_selector).as_str().filter(|_| !paths.label_selector.is_empty()).unwrap_or("").to_owned()
    } else if object["kind"] == "ReplicationController" {
        selector::format_labels(label_selector)
    } else {
        selector::format(label_selector)
    };
    let (replicas, current) = if paths.is_built_in() {
        (replicas(object), &object["status"]["replicas"])
    } else {
        (at(object, &paths.spec_replicas).as_i64().unwrap_or(0), at(object, &paths.status_replicas))
    };
    let mut scale = json!({
        "apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": metadata, "spec": {},
        "status": {"replicas": current.as_i64().unwrap_or(0)},
    });
    if replicas != 0 {
        scale["spec"]["replicas"] = json!(replicas);
    }
    if !selector.is_empty() {
        scale["status"]["selector"] = json!(selector);
    }
    scale
}
