//! Update and patch: read, change, validate and store. A conflict is retried when the client gave no `resourceVersion`.

use crate::{
    admission::{self, AdmissionContext, dynamic, resource_quota},
    http::clock::now,
    ip_allocator::service_allocation,
    objects::{
        call::Call,
        decode,
        managed_fields::{self, RequestedManagedFields},
        managed_object::ManagedObject,
        object,
        object_identity::{self, requested_version},
        patch as patches,
        request_scope::RequestScope,
        storage_errors,
        strict::{self, Validation},
        write::{dry_run, respond_with_object, respond_with_value, should_delete_during_update, with_warnings},
    },
    rest::{
        create::{self, NewObject},
        generic_registry::GenericRegistry,
        large_requests, policy_params, scale, server_side_apply,
        store_quota::Purpose,
        write_authorization,
    },
};
use ::admission::attributes::Operation;
use apply::ManagedFields;
use errors::ApiError;
use http::Method;
use kinds::{FieldErrors, KindInfo, WriteContext, object_meta};
use response::HandlerResult;
use serde_json::{Value, json};
use std::{borrow::Cow, sync::Arc};
use store::{Object, Precondition, Write, WriteError};

/// Attempts of a write without a precondition when other writes come first.
pub(crate) const MAX_ATTEMPTS: usize = 20;

/// The object that an update or patch results in, before admission.
pub(crate) struct UpdatedObject {
    /// In the form of the request's version, without defaults and `managedFields`.
    pub(crate) object: Value,
    pub(crate) warnings: Vec<String>,
    pub(crate) ownership: FieldOwnership,
}

/// How the field ownership of the written object is determined.
pub(crate) enum FieldOwnership {
    /// The request's manager owns the fields that it changes.
    Updated(RequestedManagedFields),
    /// Server-side apply has computed the managers.
    Applied(ManagedFields),
}

pub(crate) async fn update(registry: &GenericRegistry, resource: &RequestScope, call: &Call) -> HandlerResult {
    let kind = &*resource.kind;
    managed_fields::validate_field_manager(call, "UpdateOptions", false)?;
    let (dry, validation) = (dry_run(&call.query, "UpdateOptions")?, Validation::parse(&call.query, "UpdateOptions")?);
    let parsed = decode::parse(call, kind)?;
    let is_reset = managed_fields::is_reset(&parsed.value);
    let (mut value, warnings) = strict::check(kind, parsed, validation)?;
    object_identity::check_named(resource, &value)?;
    if kind.info().allow_create_on_update && resource.subresource.is_none() && is_absent(registry, resource) {
        return create_on_update(registry, resource, call, value, warnings, dry).await;
    }
    let requested = RequestedManagedFields::take(&mut value, is_reset);
    let make = |old: &ManagedObject| {
        // A name or UID of another object is the first error to be reported.
        object_identity::check(resource, call.method == Method::PUT, &value, &old.object)?;
        let ownership = FieldOwnership::Updated(requested.clone());
        Ok(UpdatedObject { object: value.clone(), warnings: warnings.clone(), ownership })
    };
    update_and_respond(registry, resource, call, dry, make).await
}

fn is_absent(registry: &GenericRegistry, resource: &RequestScope) -> bool {
    let name = resource.name.as_deref().unwrap_or("");
    registry.store.get(&object::key(&*resource.kind, &resource.namespace, name)).is_none()
}

/// Creates the object of an update that does not exist (upstream's `AllowCreateOnUpdate`), unless the update has a
/// `resourceVersion`.
async fn create_on_update(
    registry: &GenericRegistry,
    resource: &RequestScope,
    call: &Call,
    value: Value,
    warnings: Vec<String>,
    dry: bool,
) -> HandlerResult {
    let (info, name) = (resource.kind.info(), resource.name.as_deref().unwrap_or(""));
    write_authorization::require_create(&registry.authorizer, resource, call)?;
    if requested_version(&value).is_some() {
        return Err(ApiError::not_found(info, name));
    }
    object_identity::check(resource, true, &value, &Value::Null)?;
    create::create_object(registry, resource, call, NewObject { value, warnings, managers: None }, dry).await
}

pub(crate) async fn patch(registry: &GenericRegistry, resource: &RequestScope, call: &Call) -> HandlerResult {
    let kind = &*resource.kind;
    if call.content_type == patches::APPLY {
        return Box::pin(server_side_apply::apply(registry, resource, call)).await;
    }
    patches::check_type(kind, &call.content_type)?;
    managed_fields::validate_field_manager(call, "PatchOptions", false)?;
    let (dry, validation) = (dry_run(&call.query, "PatchOptions")?, Validation::parse(&call.query, "PatchOptions")?);
    update_and_respond(registry, resource, call, dry, |old| {
        let patch = || patches::apply(&call.content_type, old.whole(), &call.body);
        let shown = || patches::format_invalid(&call.content_type, &call.body, patch);
        let patched = patch()?;
        let is_reset = managed_fields::is_reset(&patched.value);
        let (mut object, warnings) = strict::check_patched(kind, patched, &call.content_type, shown, validation)?;
        let ownership = FieldOwnership::Updated(RequestedManagedFields::take(&mut object, is_reset));
        Ok(UpdatedObject { object, warnings, ownership })
    })
    .await
}

/// Updates an object with `make`, and responds with the result.
pub(crate) async fn update_and_respond(
    registry: &GenericRegistry,
    resource: &RequestScope,
    call: &Call,
    dry: bool,
    make: impl Fn(&ManagedObject) -> Result<UpdatedObject, ApiError>,
) -> HandlerResult {
    object::negotiate_object(&call.accept, resource.kind.info())?;
    let (updated, warnings) = update_object(registry, resource, call, dry, make).await?;
    let response = match updated {
        UpdateResult::Stored(object) => {
            respond_with_object(&registry.webhooks, &*resource.kind, 200, &object, call).await
        }
        UpdateResult::DryRun(value) => respond_with_value(&*resource.kind, 200, value, call),
    };
    Ok(with_warnings(response?, &warnings))
}

/// The result of [`update_object`].
pub(crate) enum UpdateResult {
    Stored(Object),
    /// The object that would be stored without dry run.
    DryRun(Value),
}

/// Updates an object with `make`: admission, validation, and a guarded write. Returns the stored object, and warnings.
pub(crate) async fn update_object(
    registry: &GenericRegistry,
    resource: &RequestScope,
    call: &Call,
    dry: bool,
    make: impl Fn(&ManagedObject) -> Result<UpdatedObject, ApiError>,
) -> Result<(UpdateResult, Vec<String>), ApiError> {
    let (kind, name) = (&*resource.kind, resource.name.as_deref().unwrap_or(""));
    let key = object::key(kind, &resource.namespace, name);
    let context = admission_context(registry, resource, call, dry);
    for _ in 0..large_requests::max_attempts(registry, resource, call) {
        let current = registry.store.get(&key).ok_or_else(|| ApiError::not_found(kind.info(), name))?;
        let old = registry.large_object_cache.live(&registry.webhooks, kind, &current).await?;
        let UpdatedObject { object, mut warnings, ownership } = make(&old)?;
        object_identity::check(resource, call.method == Method::PUT, &object, &old.object)?;
        object_identity::require_version(kind.info(), &object)?;
        let mut new = mutate(registry, resource, call, object, &old, ownership, context.as_ref()).await?;
        prepare_and_validate(registry, resource, call, &mut new.object, &old.object)?;
        let addresses =
            service_allocation::take(&registry.store, &registry.ip_allocation_lock, resource, &mut new.object).await?;
        warnings.extend(admission::validate(
            &registry.admission,
            resource,
            &new.object,
            Some(&old.object),
            &call.audit,
        )?);
        // As in create, the allocated addresses are not locked while webhooks are called.
        let _locked = match &context {
            None => addresses,
            Some(context) => {
                drop(addresses);
                let (whole_new, whole_old) = (new.whole(), old.whole());
                let (new_object, old_object) =
                    (admission_object(resource, &whole_new), admission_object(resource, &whole_old));
                dynamic::validate(context, Some(&new_object), Some(&old_object)).await?;
                service_allocation::take(&registry.store, &registry.ip_allocation_lock, resource, &mut new.object)
                    .await?
            }
        };
        let is_charged = resource_quota::handles_update(resource, &new.object, &old.object);
        let quota_lock = if is_charged { resource_quota::lock(&registry.admission, resource).await } else { None };
        quota_lock
            .as_ref()
            .map_or(Ok(()), |lock| lock.check(&registry.store, resource, &new.object, Some(&old.object)))?;
        warnings.extend(object_meta::warnings(&new.object, Some(&old.object)));
        if resource.subresource.is_none() {
            warnings.extend(kind.warnings(&new.object, Some(&old.object)));
        }
        // An update without changes is not written, and does not change the times of managers.
        let is_same = new.object == old.object && new.managers.equals_ignoring_times(&old.managers);
        if is_same {
            new.managers = old.managers.clone();
        }
        let gone = should_delete_during_update(&new.object);
        // An object in an outdated stored form is rewritten, so that a changed encryption key takes effect
        // (`origState.stale` in upstream's etcd3 store).
        let rewrites = current.is_stale && !dry;
        if is_same && !gone && !rewrites {
            return Ok((UpdateResult::Stored(current), warnings));
        }
        if dry {
            return Ok((UpdateResult::DryRun(new.whole()), warnings));
        }
        let (new, expect) =
            (new.into_storage_form(&registry.webhooks, kind).await?, Precondition::Revision(current.revision));
        let template = new.encode()?;
        let write =
            if gone { Write::delete(key.clone(), expect, template) } else { Write::put(key.clone(), expect, template) };
        match registry.store_object(&call.user, kind, Purpose::Update, write).await {
            Ok(object) => {
                registry.large_object_cache.wrote(kind, &object, new);
                return Ok((UpdateResult::Stored(object), warnings));
            }
            Err(WriteError::Conflict { .. }) => {}
            Err(e) => return Err(storage_errors::from_write_error(&e, kind.info(), name)),
        }
    }
    Err(ApiError::optimistic_lock_conflict(kind.info(), name))
}

/// Whether the desired state has changed: all fields except metadata and status.
fn desired_state_changed(info: &KindInfo, new: &Value, old: &Value) -> bool {
    let (Some(new), Some(old)) = (new.as_object(), old.as_object()) else { return true };
    let is_ignored = |key: &str| key == "metadata" || key == "status" && info.status;
    new.iter().any(|(key, value)| !is_ignored(key) && old.get(key) != Some(value))
        || old.keys().any(|key| !is_ignored(key) && !new.contains_key(key))
}

/// Returns the context of dynamic admission of an update, if webhooks or policies are registered.
fn admission_context<'a>(
    registry: &'a GenericRegistry,
    resource: &RequestScope,
    call: &'a Call,
    dry: bool,
) -> Option<AdmissionContext<'a>> {
    let options = || admission::operation_options(call, "UpdateOptions", dry);
    let context = AdmissionContext::new(&registry.admission, resource, call, Operation::Update, options)?;
    let is_scale = resource.subresource.as_deref() == Some("scale");
    Some(if is_scale { context.with_kind(["autoscaling", "v1", "Scale"]) } else { context })
}

/// Returns the object that webhooks and policies see: the Scale for the `scale` subresource.
fn admission_object<'a>(resource: &RequestScope, object: &'a Value) -> Cow<'a, Value> {
    match resource.subresource.as_deref() {
        Some("scale") => Cow::Owned(scale::scale_of(&*resource.kind, object)),
        _ => Cow::Borrowed(object),
    }
}

/// Defaults an object, and runs mutating admission; tracks field ownership.
async fn mutate(
    registry: &GenericRegistry,
    resource: &RequestScope,
    call: &Call,
    mut new: Value,
    old: &ManagedObject,
    ownership: FieldOwnership,
    context: Option<&AdmissionContext<'_>>,
) -> Result<ManagedObject, ApiError> {
    let kind = &*resource.kind;
    object_meta::preserve_system_metadata(&mut new, &old.object);
    // As upstream, the result of a patch is checked for duplicates as after admission.
    let when = if call.method == Method::PATCH { object_meta::AFTER_ADMISSION } else { "" };
    call.warnings.lock().extend(object_meta::drop_duplicate_owners(&mut new["metadata"], when));
    kind.set_defaults(&mut new);
    let managers = match ownership {
        FieldOwnership::Applied(managers) => managers,
        FieldOwnership::Updated(requested) => {
            managed_fields::FieldManager::new(resource, call, now()).update(Some(old), &new, requested)
        }
    };
    let admit = |new: &mut Value| {
        kind.apply_admission_defaults(new);
        admission::admit(&registry.admission, resource, new, Some(&old.object), &call.audit)
    };
    admit(&mut new)?;
    let mut new = ManagedObject { object: new, managers };
    let Some(context) = context else { return Ok(new) };
    if let (Cow::Owned(mut new_scale), old_scale) =
        (admission_object(resource, &new.object), admission_object(resource, &old.object))
    {
        if dynamic::mutate(context, &mut new_scale, Some(&old_scale), &|_| Ok(())).await? {
            scale::set_replicas(kind, &mut new.object, &new_scale);
        }
        return Ok(new);
    }
    let mut object = new.whole();
    if !dynamic::mutate(context, &mut object, Some(&old.whole()), &admit).await? {
        return Ok(new);
    }
    object_identity::check(resource, false, &object, &old.object)?;
    object_meta::preserve_system_metadata(&mut object, &old.object);
    call.warnings
        .lock()
        .extend(object_meta::drop_duplicate_owners(&mut object["metadata"], object_meta::AFTER_ADMISSION));
    let managers = managed_fields::after_admission(&mut object, new.managers, call);
    Ok(ManagedObject { object, managers })
}

fn prepare_and_validate(
    registry: &GenericRegistry,
    resource: &RequestScope,
    call: &Call,
    new: &mut Value,
    old: &Value,
) -> Result<(), ApiError> {
    let kind = &*resource.kind;
    let ctx = WriteContext { now: now(), gates: Arc::clone(&registry.gates), target: resource.target() };
    write_authorization::check_write(registry, &call.user, resource, new, Some(old))?;
    kind.prepare_update(new, old, &ctx);
    // Fields that neither object has stay absent.
    for field in ["spec", "status"] {
        if new[field].is_null() {
            new.as_object_mut().map(|m| m.remove(field));
        }
    }
    let annotated = kind.info().annotations_bump_generation
        && resource.subresource.is_none()
        && new["metadata"]["annotations"] != old["metadata"]["annotations"];
    if kind.info().generation && (annotated || desired_state_changed(kind.info(), new, old)) {
        new["metadata"]["generation"] = json!(old["metadata"]["generation"].as_i64().unwrap_or(0) + 1);
    }
    if resource.subresource.is_none() {
        kind.derive_status(new, &|group, version, name| resource.served.custom_type(group, version, name));
    }
    object::check_depth(new)?;
    let mut errors = FieldErrors::default();
    object_meta::validate(kind, new, &mut errors);
    object_meta::validate_update(new, old, &mut errors);
    kind.validate_update(new, old, &ctx, &mut errors);
    if errors.is_empty() {
        policy_params::check_policy_params(
            &registry.store,
            &registry.authorizer,
            &call.user,
            resource,
            new,
            Some(old),
            &mut errors,
        );
    }
    if errors.is_empty() {
        Ok(())
    } else {
        Err(ApiError::invalid(kind.info(), new["metadata"]["name"].as_str().unwrap_or(""), &errors))
    }
}
