//! Delete: immediate, graceful, or pending until the last finalizer is removed.

mod propagation;

use crate::{
    admission::{
        self, AdmissionContext, dynamic,
        node_restriction::{self, Removal},
    },
    http::clock::now,
    objects::{
        call::Call,
        conversion, decode,
        list_options::ListOptions,
        object::{self, IncludeObjectPolicy, Representation},
        request_scope::RequestScope,
        selectors::Selection,
        storage_errors,
        write::{dry_run, should_delete_during_update, with_warnings},
    },
    rest::{generic_registry::GenericRegistry, read},
};
use ::admission::attributes::Operation;
use api::text::parse_query_bool;
use errors::{ApiError, GroupResource};
use futures::{StreamExt, TryStreamExt, future::ready, stream};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::DeleteOptions;
use kinds::{FieldErrors, FieldPath, priority_class::is_system_priority_class};
use propagation::Propagation;
use response::HandlerResult;
use serde_json::{Value, json};
use store::{Key, Object, Precondition, QuotaAllowance, Write, WriteError};

/// Attempts of a deletion when writes conflict.
const MAX_ATTEMPTS: usize = 20;
/// Concurrent deletions of a collection.
const DELETE_COLLECTION_WORKERS: usize = 32;
/// Namespaces that upstream's `NamespaceLifecycle` admission protects (`immortalNamespaces`).
const IMMORTAL_NAMESPACES: [&str; 3] = ["default", "kube-system", "kube-public"];

/// `DeleteOptions`, from the body or the query.
pub(crate) struct DeletionOptions {
    grace: Option<i64>,
    uid: Option<String>,
    pub(crate) revision: Option<String>,
    pub(crate) dry_run: bool,
    propagation: Option<Propagation>,
    /// Whether the deprecated `orphanDependents` is false.
    deletes_dependents: bool,
}

impl DeletionOptions {
    /// Empty options.
    pub(crate) fn empty() -> Self {
        Self { grace: None, uid: None, revision: None, dry_run: false, propagation: None, deletes_dependents: false }
    }

    fn warnings(&self, resource: &RequestScope) -> Vec<String> {
        let warning = resource.kind.info().orphan_warning.filter(|_| self.propagation.is_none());
        warning.map(str::to_owned).into_iter().collect()
    }

    pub(crate) fn parse(call: &Call) -> Result<Self, ApiError> {
        if call.body.is_empty() {
            return Self::from_query(call);
        }
        let body = decode::body_of_kind(call, "DeleteOptions")?;
        Self::from_json(&body, call)
    }

    fn from_query(call: &Call) -> Result<Self, ApiError> {
        let orphan = call.query.get("orphanDependents").map(parse_query_bool);
        let propagation = propagation::parse(call.query.get("propagationPolicy"), orphan)?;
        Ok(Self {
            propagation,
            deletes_dependents: orphan == Some(false),
            grace: call.query.number("gracePeriodSeconds")?,
            uid: None,
            revision: None,
            dry_run: dry_run(&call.query, "DeleteOptions")?,
        })
    }

    pub(crate) fn from_json(body: &Value, call: &Call) -> Result<Self, ApiError> {
        let mut body = body.clone();
        if body.is_null() {
            body = json!({});
        }
        let bad = |e: &dyn std::fmt::Display| ApiError::bad_request(format!("couldn't decode DeleteOptions: {e}"));
        let fields = body.as_object_mut().ok_or_else(|| bad(&"it is no JSON object"))?;
        if fields.get("kind").is_some_and(|k| k != "DeleteOptions" && k != "") {
            return Err(bad(&format!("it is of kind {}", fields["kind"])));
        }
        // Clients send `DeleteOptions` with the API version of the group that they call.
        fields.retain(|key, _| key != "kind" && key != "apiVersion");
        let options: DeleteOptions = serde_json::from_value(body).map_err(|e| bad(&e))?;
        let propagation = propagation::parse(options.propagation_policy.as_deref(), options.orphan_dependents)?;
        let dry_runs = options.dry_run.unwrap_or_default();
        if dry_runs.iter().any(|d| d != "All") {
            let mut errors = FieldErrors::default();
            errors.not_supported(&FieldPath::new("dryRun"), &json!(dry_runs), &["All"]);
            return Err(ApiError::invalid_options("DeleteOptions", &errors));
        }
        let preconditions = options.preconditions.unwrap_or_default();
        Ok(Self {
            propagation,
            deletes_dependents: options.orphan_dependents == Some(false),
            grace: options.grace_period_seconds,
            uid: preconditions.uid,
            revision: preconditions.resource_version,
            dry_run: !dry_runs.is_empty() || dry_run(&call.query, "DeleteOptions")?,
        })
    }
}

pub(crate) async fn delete_one(registry: &GenericRegistry, resource: &RequestScope, call: &Call) -> HandlerResult {
    let options = DeletionOptions::parse(call)?;
    let name = resource.name.as_deref().unwrap_or("");
    let key = object::key(&*resource.kind, &resource.namespace, name);
    node_restriction::restrict_removal(&registry.store, &call.user, resource, &key, Removal::Delete)?;
    let context = admission_context(registry, resource, call, &options);
    let (object, gone) = delete_with_admission(registry, resource, &key, &options, context.as_ref()).await?;
    let response = deletion_response(registry, resource, &options, &object, gone).await?;
    Ok(with_warnings(response, &options.warnings(resource)))
}

async fn deletion_response(
    registry: &GenericRegistry,
    resource: &RequestScope,
    options: &DeletionOptions,
    object: &Object,
    gone: bool,
) -> HandlerResult {
    let (info, name) = (resource.kind.info(), resource.name.as_deref().unwrap_or(""));
    // An object that is not deleted yet is returned itself.
    if !gone || info.returns_deleted_object() {
        let code = if !gone && options.deletes_dependents { 202 } else { 200 };
        return Ok(response::json(code, &conversion::decode(&registry.webhooks, &*resource.kind, object).await?));
    }
    let value = conversion::as_stored(&*resource.kind, object);
    let mut details = json!({"name": name, "kind": info.plural, "uid": value["metadata"]["uid"]});
    if !info.group.is_empty() {
        details["group"] = json!(info.group);
    }
    Ok(response::json(
        200,
        &json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}),
    ))
}

pub(crate) async fn delete_collection(
    registry: &GenericRegistry,
    resource: &RequestScope,
    call: &Call,
) -> HandlerResult {
    let info = resource.kind.info();
    // As upstream: not across all namespaces, and not for namespaces.
    if info.namespaced == resource.namespace.is_empty() || info.plural == "namespaces" {
        return Err(ApiError::method_not_allowed());
    }
    let options = DeletionOptions::parse(call)?;
    let (view, include) = (object::negotiate_list(&call.accept, info)?, IncludeObjectPolicy::parse(&call.query)?);
    let selection = Selection::parse(&resource.kind, &call.query)?;
    // Deletes exactly the objects that a list with these options returns.
    let listed = ListOptions::parse(&call.query, false)?;
    let context = admission_context(registry, resource, call, &options);
    let (kind, options, context) = (&*resource.kind, &options, context.as_ref());
    let read::Page { objects: all, mut metadata } = read::list_page(registry, resource, &selection, &listed).await?;
    // Concurrent writes share flushes of the disk.
    let deletions = stream::iter(all).map(|object| async move {
        match delete_with_admission(registry, resource, &object.key, options, context).await {
            Ok((object, _)) => Ok(Some(object)),
            Err(e) if e.code == 404 => Ok(None),
            Err(e) => Err(e),
        }
    });
    let deleted: Vec<Object> =
        deletions.buffered(DELETE_COLLECTION_WORKERS).try_filter_map(|object| ready(Ok(object))).try_collect().await?;
    let items = conversion::decode_all(&registry.webhooks, kind, &deleted).await?;
    metadata["resourceVersion"] = json!(registry.store.revision().to_string());
    let answer = match view {
        Representation::Object => {
            json!({"kind": kind.list_kind(), "apiVersion": info.api_version(), "metadata": metadata, "items": items})
        }
        Representation::Metadata => object::metadata_list(&items, &metadata),
        Representation::Table => object::table(kind, &items, &metadata, true, include),
    };
    Ok(with_warnings(response::json(200, &answer), &options.warnings(resource)))
}

/// Returns the context of dynamic admission of a deletion, if webhooks or policies are registered.
fn admission_context<'a>(
    registry: &'a GenericRegistry,
    resource: &RequestScope,
    call: &'a Call,
    options: &DeletionOptions,
) -> Option<AdmissionContext<'a>> {
    let delete_options = || {
        let mut object = admission::operation_options(call, "DeleteOptions", options.dry_run);
        if let Some(grace) = options.grace {
            object["gracePeriodSeconds"] = json!(grace);
        }
        if let Some(policy) = options.propagation {
            object["propagationPolicy"] = json!(policy.name());
        }
        for (field, value) in [("uid", &options.uid), ("resourceVersion", &options.revision)] {
            if let Some(value) = value {
                object["preconditions"][field] = json!(value);
            }
        }
        object
    };
    AdmissionContext::new(&registry.admission, resource, call, Operation::Delete, delete_options)
}

/// Deletes one object; returns it, and whether it is removed from the store.
pub(crate) async fn delete_object(
    registry: &GenericRegistry,
    resource: &RequestScope,
    key: &Key,
    options: &DeletionOptions,
) -> Result<(Object, bool), ApiError> {
    delete_with_admission(registry, resource, key, options, None).await
}

/// Like [`delete_object`], after validating admission.
async fn delete_with_admission(
    registry: &GenericRegistry,
    resource: &RequestScope,
    key: &Key,
    options: &DeletionOptions,
    context: Option<&AdmissionContext<'_>>,
) -> Result<(Object, bool), ApiError> {
    let (kind, name) = (&*resource.kind, &*key.name);
    if kind.info().plural == "namespaces" && IMMORTAL_NAMESPACES.contains(&name) {
        return Err(ApiError::forbidden(kind.info(), name, "this namespace may not be deleted"));
    }
    if kind.info().plural == "priorityclasses" && is_system_priority_class(name) {
        return Err(ApiError::forbidden(kind.info(), name, "this is a system priority class and cannot be deleted"));
    }
    for _ in 0..MAX_ATTEMPTS {
        let current = registry.store.get(key).ok_or_else(|| ApiError::not_found(kind.info(), name))?;
        let mut value = conversion::as_stored(kind, &current);
        if !value.is_object() {
            // Its finalizers are unknown, so deleting it could bypass them.
            return Err(ApiError::internal(format!("the stored object {name:?} cannot be read")));
        }
        match kind.info().plural {
            // Upstream's registries of these have their own messages.
            "namespaces" | "customresourcedefinitions" => check_own_preconditions(kind.info(), &value, name, options)?,
            _ => check_preconditions(resource, &value, name, options)?,
        }
        if let Some(context) = context {
            let object = conversion::decode(&registry.webhooks, kind, &current).await?;
            dynamic::admit_deletion(context, &object).await?;
        }
        let original = value.clone();
        if kind.info().plural != "events" {
            propagation::set_finalizers(
                &mut value["metadata"],
                options.propagation.or(propagation::default(kind.info())),
            );
        }
        set_deletion_fields(resource, &mut value, options.grace, now());
        let gone = should_delete_during_update(&value);
        if options.dry_run || (value == original && !gone) {
            return Ok((current, gone));
        }
        // An object that is removed at once without a grace period is returned unmarked: its deletion fields were never stored.
        let is_graceful = kind.check_graceful_delete(&original, options.grace).is_some();
        let last = if gone && !is_graceful { original } else { value };
        let (expect, template) = (Precondition::Revision(current.revision), object::encode(kind, last)?);
        let write =
            if gone { Write::delete(key.clone(), expect, template) } else { Write::put(key.clone(), expect, template) };
        match registry.store.write(write.with_allowance(QuotaAllowance::Unlimited)).await {
            Ok(object) => return Ok((object, gone)),
            Err(WriteError::Conflict { .. }) => {}
            Err(e) => return Err(storage_errors::from_write_error(&e, kind.info(), name)),
        }
    }
    Err(ApiError::optimistic_lock_conflict(kind.info(), name))
}

/// Validates the preconditions with upstream's messages (`rest.BeforeDelete`), which name the kind, not the resource.
pub(crate) fn check_preconditions(
    resource: &RequestScope,
    value: &Value,
    name: &str,
    options: &DeletionOptions,
) -> Result<(), ApiError> {
    let pairs = [
        ("UID", &options.uid, "uid", "The object might have been deleted and then recreated"),
        ("ResourceVersion", &options.revision, "resourceVersion", "The object might have been modified"),
    ];
    for (label, expected, field, hint) in pairs {
        let found = value["metadata"][field].as_str().unwrap_or("");
        if let Some(expected) = expected.as_deref().filter(|w| *w != found) {
            let message = format!(
                "the {label} in the precondition ({expected}) does not match the {label} in record ({found}). {hint}"
            );
            let info = resource.kind.info();
            let group = if info.group.is_empty() { String::new() } else { format!(".{}", info.group) };
            return Err(ApiError::conflict(GroupResource::core(&format!("{}{group}", info.kind)), name, &message));
        }
    }
    Ok(())
}

/// Validates the preconditions of Namespaces and definitions (`REST.Delete` of each).
fn check_own_preconditions(
    info: &kinds::KindInfo,
    value: &Value,
    name: &str,
    options: &DeletionOptions,
) -> Result<(), ApiError> {
    let pairs = [("UID", &options.uid, "uid"), ("ResourceVersion", &options.revision, "resourceVersion")];
    for (label, expected, field) in pairs {
        let found = value["metadata"][field].as_str().unwrap_or("");
        if let Some(expected) = expected.as_deref().filter(|w| *w != found) {
            let message =
                format!("Precondition failed: {label} in precondition: {expected}, {label} in object meta: {found}");
            return Err(ApiError::conflict(info, name, &message));
        }
    }
    Ok(())
}

/// Sets deletion timestamp and grace period. A later deletion can only shorten the grace period (`rest.BeforeDelete`).
fn set_deletion_fields(resource: &RequestScope, value: &mut Value, requested: Option<i64>, now: Timestamp) {
    let requested = requested.map(|a| if a < 0 { 1 } else { a });
    let last = Timestamp::from_second(Timestamp::MAX.as_second()).unwrap_or(Timestamp::MAX);
    let after = |from: Timestamp, seconds: i64| {
        from.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(if seconds < 0 { now } else { last })
    };
    let known = value["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0);
    let time: Option<Timestamp> = value["metadata"]["deletionTimestamp"].as_str().and_then(|t| t.parse().ok());
    match time {
        Some(time) if known > 0 => {
            let Some(mut grace) = requested.filter(|a| *a < known) else { return };
            let mut end = after(time, grace - known);
            if end < now {
                // Unless the deletion is forced, the kubelet confirms it.
                (end, grace) = (now, grace.min(1));
            }
            value["metadata"]["deletionTimestamp"] = json!(end);
            value["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
        }
        // Only finalizers are left.
        Some(_) => {}
        None => {
            let grace = resource.kind.check_graceful_delete(value, requested).unwrap_or(0);
            value["metadata"]["deletionTimestamp"] = json!(after(now, grace));
            value["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
            if let Some(generation) = value["metadata"]["generation"].as_i64().filter(|g| *g > 0) {
                value["metadata"]["generation"] = json!(generation + 1);
            }
            resource.kind.begin_deletion(value, now);
        }
    }
    if resource.kind.info().kind == "Namespace" {
        value["status"]["phase"] = json!("Terminating");
    }
}
