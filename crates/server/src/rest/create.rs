//! Create: decode, default, admit, prepare, validate, store.

use crate::{
    admission::{self, AdmissionContext, certificates, dynamic, resource_quota},
    http::clock::now,
    ip_allocator::service_allocation,
    objects::{
        call::Call,
        decode,
        generated_name::generate_name,
        managed_fields::{self, RequestedManagedFields},
        managed_object::ManagedObject,
        object, object_identity,
        request_scope::RequestScope,
        storage_errors,
        strict::{self, Validation},
        write::{dry_run, respond_with_object, respond_with_value, with_warnings},
    },
    rest::{generic_registry::GenericRegistry, policy_params, store_quota::Purpose, write_authorization},
};
use ::admission::attributes::Operation;
use apply::ManagedFields;
use errors::ApiError;
use kinds::{FieldErrors, WriteContext, WriteTarget, object_meta};
use response::HandlerResult;
use serde_json::{Value, json};
use std::sync::{Arc, LazyLock};
use store::{Key, Precondition, Write, WriteError};
use wire::partial_json::Outline;

/// Metadata that only the server sets.
const SYSTEM_METADATA: [&str; 8] = [
    "uid",
    "creationTimestamp",
    "generation",
    "resourceVersion",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "selfLink",
    "managedFields",
];
/// Attempts to generate a free name (upstream's `maxNameGenerationCreateAttempts`).
const MAX_NAME_ATTEMPTS: usize = 8;

/// An object to create.
pub(crate) struct NewObject {
    /// In its kind's version, without defaults.
    pub(crate) value: Value,
    pub(crate) warnings: Vec<String>,
    /// Field managers; `None` lets the creator own all fields.
    pub(crate) managers: Option<ManagedFields>,
}

pub(crate) async fn create(registry: &GenericRegistry, resource: &RequestScope, call: &Call) -> HandlerResult {
    managed_fields::validate_field_manager(call, "CreateOptions", false)?;
    let (dry, validation) = (dry_run(&call.query, "CreateOptions")?, Validation::parse(&call.query, "CreateOptions")?);
    object::negotiate_object(&call.accept, resource.kind.info())?;
    let (value, warnings) = strict::check(&*resource.kind, decode::parse(call, &*resource.kind)?, validation)?;
    create_object(registry, resource, call, NewObject { value, warnings, managers: None }, dry).await
}

/// Creates an object, for a create request, or for an update or apply of an object that does not exist (`Store.Create`).
pub(crate) async fn create_object(
    registry: &GenericRegistry,
    resource: &RequestScope,
    call: &Call,
    new: NewObject,
    dry: bool,
) -> HandlerResult {
    let kind = &*resource.kind;
    let NewObject { mut value, mut warnings, managers } = new;
    // An apply may have a resource version although the object does not exist.
    let versioned = managers.is_none() && object_identity::is_versioned(&value);
    let namespace = namespace_of(registry, resource, &value)?;
    if kind.info().namespaced {
        value["metadata"]["namespace"] = json!(namespace);
    }
    if kind.is_terminating() {
        // `forbidCreateAdmission`: the object would be deleted with its definition at once.
        let (name, message) = (
            value["metadata"]["name"].as_str().unwrap_or(""),
            "create not allowed while custom resource definition is terminating",
        );
        return Err(ApiError::forbidden(kind.info(), name, message));
    }
    let options = || admission::operation_options(call, "CreateOptions", dry);
    let mut context = AdmissionContext::new(&registry.admission, resource, call, Operation::Create, options);
    if let Some(context) = &mut context {
        context.set_name(value["metadata"]["name"].as_str().unwrap_or(""));
        context.set_generate_name(value["metadata"]["generateName"].as_str().unwrap_or(""));
    }
    let ManagedObject { object: mut value, managers } =
        admit_object(registry, resource, call, value, managers, context.as_ref()).await?;
    let prefix = value["metadata"]["generateName"].as_str().unwrap_or("").to_owned();
    // Webhooks may have set the name.
    let generated = value["metadata"]["name"].as_str().unwrap_or("").is_empty() && !prefix.is_empty();
    for attempts_left in (0..MAX_NAME_ATTEMPTS).rev() {
        // A name that the client set is tried once.
        let mut object = if generated && attempts_left > 0 { value.clone() } else { value.take() };
        if generated {
            object["metadata"]["name"] = json!(generate_name(&prefix));
        }
        prepare(registry, resource, call, &mut object)?;
        certificates::restrict_certificate_subject(resource, &object)?;
        warnings.extend(admission::validate(&registry.admission, resource, &object, None, &call.audit)?);
        let addresses =
            service_allocation::take(&registry.store, &registry.ip_allocation_lock, resource, &mut object).await?;
        let name = object["metadata"]["name"].as_str().unwrap_or("").to_owned();
        warnings.extend(object_meta::warnings(&object, None).into_iter().chain(kind.warnings(&object, None)));
        let mut new = ManagedObject { object, managers: managers.clone() };
        let key = object::key(kind, &namespace, &name);
        // Addresses are not locked while webhooks are called; they are allocated again afterwards.
        let _held = match &mut context {
            None => addresses,
            Some(context) => {
                drop(addresses);
                context.set_name(&name);
                dynamic::validate(context, Some(&new.whole()), None).await?;
                service_allocation::take(&registry.store, &registry.ip_allocation_lock, resource, &mut new.object)
                    .await?
            }
        };
        let quota_lock = resource_quota::lock(&registry.admission, resource).await;
        quota_lock.as_ref().map_or(Ok(()), |lock| lock.check(&registry.store, resource, &new.object, None))?;
        if dry {
            if registry.store.get(&key).is_some() {
                return Err(ApiError::already_exists(kind.info(), &name));
            }
            let mut shown = new.whole();
            if kind.is_custom() {
                // A response has the defaults of the status too.
                kind.set_defaults(&mut shown);
            }
            return Ok(with_warnings(respond_with_value(kind, 201, shown, call)?, &warnings));
        }
        if versioned {
            // Upstream's storage layer returns this after admission and validation, as a plain error.
            return Err(ApiError::new(500, "", "resourceVersion should not be set on objects to be created"));
        }
        let new = new.into_storage_form(&registry.webhooks, kind).await?;
        let write = Write::put(key, Precondition::Absent, new.encode()?);
        match registry.store_object(&call.user, kind, Purpose::Create, write).await {
            Ok(object) => {
                registry.large_object_cache.wrote(kind, &object, new);
                return Ok(with_warnings(
                    respond_with_object(&registry.webhooks, kind, 201, &object, call).await?,
                    &warnings,
                ));
            }
            Err(WriteError::AlreadyExists { .. }) if generated => {}
            Err(e) => return Err(storage_errors::from_write_error(&e, kind.info(), &name)),
        }
    }
    Err(ApiError::generate_name_conflict(kind.info(), &prefix))
}

/// Sets defaults, runs mutating admission, and computes the field managers.
async fn admit_object(
    registry: &GenericRegistry,
    resource: &RequestScope,
    call: &Call,
    mut value: Value,
    managers: Option<ManagedFields>,
    context: Option<&AdmissionContext<'_>>,
) -> Result<ManagedObject, ApiError> {
    let kind = &*resource.kind;
    let is_reset = managed_fields::is_reset(&value);
    let requested = RequestedManagedFields::take(&mut value, is_reset);
    let metadata = &mut value["metadata"];
    for field in SYSTEM_METADATA {
        metadata.as_object_mut().map(|m| m.remove(field));
    }
    call.warnings.lock().extend(object_meta::drop_duplicate_owners(metadata, ""));
    kind.set_defaults(&mut value);
    // Fields that admission and the server set have no manager.
    let new = || managed_fields::FieldManager::new(resource, call, now()).update(None, &value, requested);
    let managers = managers.unwrap_or_else(new);
    let admit = |value: &mut Value| {
        kind.apply_admission_defaults(value);
        admission::admit(&registry.admission, resource, value, None, &call.audit)
    };
    admit(&mut value)?;
    let made = ManagedObject { object: value, managers };
    let Some(context) = context else { return Ok(made) };
    let mut object = made.whole();
    if !dynamic::mutate(context, &mut object, None, &admit).await? {
        return Ok(made);
    }
    let managers = managed_fields::after_admission(&mut object, made.managers, call);
    if kind.info().namespaced && object["metadata"]["namespace"] != json!(resource.namespace) {
        return Err(object_identity::namespace_mismatch());
    }
    call.warnings
        .lock()
        .extend(object_meta::drop_duplicate_owners(&mut object["metadata"], object_meta::AFTER_ADMISSION));
    Ok(ManagedObject { object, managers })
}

/// Sets system metadata, prepares and validates an object (`rest.BeforeCreate`).
fn prepare(
    registry: &GenericRegistry,
    resource: &RequestScope,
    call: &Call,
    value: &mut Value,
) -> Result<(), ApiError> {
    let kind = &*resource.kind;
    let ctx = WriteContext { now: now(), gates: Arc::clone(&registry.gates), target: WriteTarget::Main };
    let metadata = &mut value["metadata"];
    // Admission may have set system metadata.
    for field in SYSTEM_METADATA {
        metadata.as_object_mut().map(|m| m.remove(field));
    }
    metadata["uid"] = json!(uuid::Uuid::new_v4().to_string());
    metadata["creationTimestamp"] = json!(ctx.now);
    if kind.info().generation {
        metadata["generation"] = json!(1);
    }
    let name = metadata["name"].as_str().unwrap_or("").to_owned();
    certificates::set_csr_requestor(&call.user, resource, value);
    write_authorization::check_write(registry, &call.user, resource, value, None)?;
    kind.prepare_create(value, &ctx);
    kind.derive_status(value, &|group, version, name| resource.served.custom_type(group, version, name));
    object::check_depth(value)?;
    let mut errors = FieldErrors::default();
    object_meta::validate(kind, value, &mut errors);
    kind.validate_create(value, &ctx, &mut errors);
    if errors.is_empty() {
        policy_params::check_policy_params(
            &registry.store,
            &registry.authorizer,
            &call.user,
            resource,
            value,
            None,
            &mut errors,
        );
    }
    if errors.is_empty() { Ok(()) } else { Err(ApiError::invalid(kind.info(), &name, &errors)) }
}

/// Outline of an object's `metadata.deletionTimestamp`.
static DELETION_TIMESTAMP: LazyLock<Outline> = LazyLock::new(|| {
    let mut outline = Outline::default();
    outline.add(["metadata", "deletionTimestamp"].into_iter());
    outline
});

/// Returns the namespace of a new object: the request's, which must exist and not be terminating.
fn namespace_of(registry: &GenericRegistry, resource: &RequestScope, value: &Value) -> Result<String, ApiError> {
    let info = resource.kind.info();
    if !info.namespaced {
        return Ok(String::new());
    }
    let given = value["metadata"]["namespace"].as_str().unwrap_or("");
    let namespace = &resource.namespace;
    if namespace.is_empty() {
        return Err(ApiError::method_not_allowed());
    }
    if !given.is_empty() && given != namespace {
        return Err(object_identity::namespace_mismatch());
    }
    let found = registry.store.get(&Key::new("namespaces", "", namespace.as_str()));
    let object = found.ok_or_else(|| ApiError::namespace_not_found(namespace))?;
    if !DELETION_TIMESTAMP.read(&object.data)["metadata"]["deletionTimestamp"].is_null() {
        let text = format!("unable to create new content in namespace {namespace} because it is being terminated");
        let error = ApiError::forbidden(info, value["metadata"]["name"].as_str().unwrap_or(""), &text);
        let message = format!("namespace {namespace} is being terminated");
        return Err(error.with_cause("NamespaceTerminating", &message, "metadata.namespace"));
    }
    Ok(namespace.clone())
}
