//! Server-side apply: merges the configuration into the object, or creates it.

use crate::{
    http::clock::now,
    objects::{
        call::Call,
        decode::{self, DecodedBody},
        managed_fields::{self, FieldManager},
        managed_object::ManagedObject,
        object, object_identity, patch,
        request_scope::RequestScope,
        strict::{self, Validation},
        write::dry_run,
    },
    rest::{
        create::{self, NewObject},
        generic_registry::GenericRegistry,
        large_requests,
        update::{self, UpdatedObject},
        write_authorization,
    },
};
use ::apply::ManagedFields;
use errors::ApiError;
use kinds::Kind;
use parking_lot::Mutex;
use response::HandlerResult;
use serde_json::Value;

pub(crate) async fn apply(registry: &GenericRegistry, resource: &RequestScope, call: &Call) -> HandlerResult {
    let (kind, name) = (&*resource.kind, resource.name.as_deref().unwrap_or(""));
    managed_fields::validate_field_manager(call, "PatchOptions", true)?;
    let (dry, validation) = (dry_run(&call.query, "PatchOptions")?, Validation::parse(&call.query, "PatchOptions")?);
    object::negotiate_object(&call.accept, resource.kind.info())?;
    let (config, warnings) = read(call, validation)?;
    let config = Config { call, validation, read: Mutex::new(Some(config)) };
    let force = call.query.flag("force");
    let key = object::key(kind, &resource.namespace, name);
    let not_found = || ApiError::not_found(kind.info(), name);
    for _ in 0..large_requests::max_attempts(registry, resource, call) {
        let answer = if registry.store.get(&key).is_some() {
            let make = |old: &ManagedObject| {
                let manager = FieldManager::new(resource, call, now());
                let (object, managers) = applied(kind, || manager.apply(Some(old), config.take()?, force))?;
                Ok(UpdatedObject {
                    object,
                    warnings: warnings.clone(),
                    ownership: update::FieldOwnership::Applied(managers),
                })
            };
            update::update_and_respond(registry, resource, call, dry, make).await
        } else if resource.subresource.is_some() {
            return Err(not_found());
        } else {
            write_authorization::require_create(&registry.authorizer, resource, call)?;
            let manager = FieldManager::new(resource, call, now());
            let (value, managers) = applied(kind, || manager.apply(None, config.take()?, force))?;
            check_new(resource, &value)?;
            let new = NewObject { value, warnings: warnings.clone(), managers: Some(managers) };
            create::create_object(registry, resource, call, new, dry).await
        };
        match answer {
            // The object was created or deleted concurrently.
            Err(error) if error == not_found() || error.reason == "AlreadyExists" => {}
            answer => return answer,
        }
    }
    Err(ApiError::optimistic_lock_conflict(kind.info(), name))
}

/// The applied configuration. Applying consumes it, so a retry parses it again.
struct Config<'a> {
    call: &'a Call,
    validation: Validation,
    read: Mutex<Option<Value>>,
}

impl Config<'_> {
    fn take(&self) -> Result<Value, ApiError> {
        let first = self.read.lock().take();
        first.map_or_else(|| read(self.call, self.validation).map(|(config, _)| config), Ok)
    }
}

/// Parses a configuration in YAML or JSON; returns warnings about duplicate fields, too.
pub(crate) fn read(call: &Call, validation: Validation) -> Result<(Value, Vec<String>), ApiError> {
    let bad = |step: &str, message: &str| ApiError::bad_request(format!("error {step} YAML: {message}"));
    let DecodedBody { value, duplicates } =
        decode::yaml_or_json(&call.body).map_err(|error| bad("decoding", &error.to_string()))?;
    if !(value.is_object() || value.is_null()) {
        return Err(bad("decoding", "a configuration must be an object"));
    }
    match validation {
        Validation::Strict if !duplicates.is_empty() => {
            Err(bad("strict decoding", &format!("error converting YAML to JSON: {}", duplicates.join(", "))))
        }
        Validation::Warn => {
            Ok((value, duplicates.iter().flat_map(|duplicate| decode::split_warnings(duplicate)).collect()))
        }
        _ => Ok((value, Vec::new())),
    }
}

/// Applies a configuration, and decodes the result as its kind. Unknown fields were rejected by `apply`.
pub(crate) fn applied(
    kind: &dyn Kind,
    apply: impl Fn() -> Result<(Value, ManagedFields), ApiError>,
) -> Result<(Value, ManagedFields), ApiError> {
    let (value, managers) = apply()?;
    // An error contains the applied object, which is computed again only then.
    let shown = || apply().map(|(value, _)| value.to_string()).unwrap_or_default();
    let parsed = DecodedBody { value, duplicates: Vec::new() };
    let (object, _) = strict::check_patched(kind, parsed, patch::APPLY, shown, Validation::Ignore)?;
    Ok((object, managers))
}

/// Checks the metadata of an object that an apply creates.
fn check_new(resource: &RequestScope, object: &Value) -> Result<(), ApiError> {
    let (info, name) = (resource.kind.info(), resource.name.as_deref().unwrap_or(""));
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or("");
    if !text("uid").is_empty() {
        let uid = text("uid");
        let message =
            format!("uid mismatch: the provided object specified uid {uid}, and no existing object was found");
        return Err(ApiError::conflict(info, name, &message));
    }
    object_identity::check_named(resource, object)
}
