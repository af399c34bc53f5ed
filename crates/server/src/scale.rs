//! The `scale` subresource: how many there should be, as an object of its own (`autoscaling/v1`), whatever the kind.

use crate::{
    decode,
    kinds::{FieldErrors, FieldPath, KindInfo, selector},
    managed::{self, Asked},
    object, patch as patches,
    reply::{self, Reply},
    request::Resource,
    service::{ApiServer, Call},
    status::ApiError,
    strict::{self, Validation},
    update::{self, Made, Ownership, Written},
    write::{dry_run, with_warnings},
};
use serde_json::{Value, json};

/// What the body of these requests is.
static SCALE: KindInfo = KindInfo::of("autoscaling", "Scale", "scales", "scale");

pub(crate) async fn answer(server: &ApiServer, resource: &Resource, call: &Call) -> Reply {
    let kind = resource.kind;
    match call.method.as_str() {
        "GET" => {
            let name = resource.name.as_deref().unwrap_or("");
            let stored = server.store.get(&object::key(kind, &resource.namespace, name));
            let stored = stored.ok_or_else(|| ApiError::not_found(kind.info(), name))?;
            Ok(reply::json(200, &scale_of(&object::decode(kind, &stored))))
        }
        "PUT" => {
            managed::require(call, "UpdateOptions", false)?;
            let validation = Validation::parse(&call.query, "UpdateOptions")?;
            let parsed = decode::parse(call, &SCALE)?;
            let (scale, warnings) = strict::check(&SCALE, &parsed, validation)?;
            write(server, resource, call, "UpdateOptions", |_| Ok((scale.clone(), warnings.clone()))).await
        }
        "PATCH" => {
            managed::require(call, "PatchOptions", false)?;
            patches::check_type(&call.content_type)?;
            let validation = Validation::parse(&call.query, "PatchOptions")?;
            write(server, resource, call, "PatchOptions", |before| {
                let patched = patches::apply(&call.content_type, before, &call.body)?;
                strict::check_patched(&SCALE, &patched, None, validation)
            })
            .await
        }
        _ => Err(ApiError::method_not_allowed()),
    }
}

/// Writes the number of the scale that `make` makes of the one that is there.
async fn write(
    server: &ApiServer,
    resource: &Resource,
    call: &Call,
    options: &str,
    make: impl Fn(&Value) -> Result<(Value, Vec<String>), ApiError>,
) -> Reply {
    let dry = dry_run(&call.query, options)?;
    let (written, warnings) = update::write(server, resource, call, dry, |old| {
        let (scale, warnings) = make(&scale_of(old))?;
        validate(resource, &scale)?;
        let mut object = old.clone();
        // It is the object's name and version that the scale speaks of.
        for field in ["name", "namespace", "uid", "resourceVersion"] {
            let (from, into) = (&scale["metadata"][field], &mut object["metadata"]);
            match from {
                Value::Null => drop(into.as_object_mut().map(|m| m.remove(field))),
                value => into[field] = value.clone(),
            }
        }
        object["spec"]["replicas"] = json!(replicas(&scale));
        Ok(Made { object, warnings, ownership: Ownership::Update(Asked::Nothing) })
    })
    .await?;
    let object = match written {
        Written::Stored(stored) => object::decode(resource.kind, &stored),
        Written::Dry(value) => value,
    };
    Ok(with_warnings(reply::json(200, &scale_of(&object)), &warnings))
}

fn replicas(object: &Value) -> i64 {
    object["spec"]["replicas"].as_i64().unwrap_or(0)
}

/// `ValidateScale`.
fn validate(resource: &Resource, scale: &Value) -> Result<(), ApiError> {
    let mut errors = FieldErrors::default();
    let name = scale["metadata"]["name"].as_str().unwrap_or("");
    if name.is_empty() {
        errors.required(&FieldPath::new("metadata").child("name"), "name or generateName is required");
    }
    if replicas(scale) < 0 {
        let path = FieldPath::new("spec").child("replicas");
        errors.invalid(&path, &scale["spec"]["replicas"], "must be greater than or equal to 0");
    }
    let name = resource.name.as_deref().unwrap_or("");
    if errors.is_empty() { Ok(()) } else { Err(ApiError::invalid(&SCALE, name, &errors)) }
}

/// How many there are, should be, and which they are.
fn scale_of(object: &Value) -> Value {
    let mut metadata = json!({});
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        metadata[field] = object["metadata"][field].clone();
    }
    let wanted = &object["spec"]["selector"];
    // That of a ReplicationController is older than label selectors.
    let selector = if object["kind"] == "ReplicationController" {
        selector::labels_as_text(wanted)
    } else {
        selector::as_text(wanted)
    };
    let mut scale = json!({
        "apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": metadata, "spec": {},
        "status": {"replicas": object["status"]["replicas"].as_i64().unwrap_or(0)},
    });
    if replicas(object) != 0 {
        scale["spec"]["replicas"] = json!(replicas(object));
    }
    if !selector.is_empty() {
        scale["status"]["selector"] = json!(selector);
    }
    scale
}
