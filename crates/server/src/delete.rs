//! Deletion: at once, after a grace period, or when the last finalizer is gone.

mod propagation;

use crate::{
    admit::{self, review::Review},
    authorization::node::{self, End},
    conversion, decode,
    kinds::{FieldErrors, FieldPath, priority_class::is_of_the_system},
    list_options::ListOptions,
    object::{self, Include, View},
    read,
    request::Resource,
    response::{self, Reply},
    selectors::Selection,
    service::{ApiServer, Call},
    status::ApiError,
    write::{dry_run, now, removable, with_warnings},
};
use admission::about::Operation;
use api::text::is_yes;
use futures::{StreamExt, TryStreamExt, future::ready, stream};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::DeleteOptions;
use propagation::Propagation;
use serde_json::{Value, json};
use store::{Allowance, Expect, Key, Object, Write, WriteError};

/// How often a deletion is tried again when another write came first.
const TRIES: usize = 20;
/// How many objects of a collection are deleted at once.
const AT_ONCE: usize = 32;
/// Namespaces that upstream's `NamespaceLifecycle` admission never lets go.
const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];

/// `DeleteOptions`, from the body or the query.
pub(crate) struct Options {
    grace: Option<i64>,
    uid: Option<String>,
    pub(crate) revision: Option<String>,
    pub(crate) dry_run: bool,
    propagation: Option<Propagation>,
    /// Whether what depends on it is expressly to go, too, in the old form.
    takes_dependents: bool,
}

impl Options {
    /// Nothing but that it shall go.
    pub(crate) fn plain() -> Self {
        Self { grace: None, uid: None, revision: None, dry_run: false, propagation: None, takes_dependents: false }
    }

    fn warnings(&self, resource: &Resource) -> Vec<String> {
        let untold = resource.kind.info().orphan_warning.filter(|_| self.propagation.is_none());
        untold.map(str::to_owned).into_iter().collect()
    }

    pub(crate) fn parse(call: &Call) -> Result<Self, ApiError> {
        if call.body.is_empty() {
            return Self::from_query(call);
        }
        let body = decode::options(call, "DeleteOptions")?;
        Self::from_json(&body, call)
    }

    fn from_query(call: &Call) -> Result<Self, ApiError> {
        let orphan = call.query.get("orphanDependents").map(is_yes);
        let propagation = propagation::parse(call.query.get("propagationPolicy"), orphan)?;
        Ok(Self {
            propagation,
            takes_dependents: orphan == Some(false),
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
        // Clients send it as a kind of whatever group they talk to.
        fields.retain(|key, _| key != "kind" && key != "apiVersion");
        let options: DeleteOptions = serde_json::from_value(body).map_err(|e| bad(&e))?;
        let propagation = propagation::parse(options.propagation_policy.as_deref(), options.orphan_dependents)?;
        let wanted = options.dry_run.unwrap_or_default();
        if wanted.iter().any(|d| d != "All") {
            let mut errors = FieldErrors::default();
            errors.not_supported(&FieldPath::new("dryRun"), &json!(wanted), &["All"]);
            return Err(ApiError::invalid_options("DeleteOptions", &errors));
        }
        let preconditions = options.preconditions.unwrap_or_default();
        Ok(Self {
            propagation,
            takes_dependents: options.orphan_dependents == Some(false),
            grace: options.grace_period_seconds,
            uid: preconditions.uid,
            revision: preconditions.resource_version,
            dry_run: !wanted.is_empty() || dry_run(&call.query, "DeleteOptions")?,
        })
    }
}

pub(crate) async fn one(server: &ApiServer, resource: &Resource, call: &Call) -> Reply {
    let options = Options::parse(call)?;
    let name = resource.name.as_deref().unwrap_or("");
    let key = object::key(&*resource.kind, &resource.namespace, name);
    node::restrict_end(server, &call.user, resource, &key, End::Delete)?;
    let review = review(server, resource, call, &options);
    let (object, gone) = reviewed(server, resource, &key, &options, review.as_ref()).await?;
    let answer = deleted(server, resource, &options, &object, gone).await?;
    Ok(with_warnings(answer, &options.warnings(resource)))
}

async fn deleted(server: &ApiServer, resource: &Resource, options: &Options, object: &Object, gone: bool) -> Reply {
    let (info, name) = (resource.kind.info(), resource.name.as_deref().unwrap_or(""));
    // What stays for a while is shown as it is.
    if !gone || info.returns_deleted_object() {
        let code = if !gone && options.takes_dependents { 202 } else { 200 };
        return Ok(response::json(code, &conversion::decode(&server.webhooks, &*resource.kind, object).await?));
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

pub(crate) async fn collection(server: &ApiServer, resource: &Resource, call: &Call) -> Reply {
    let info = resource.kind.info();
    // As upstream: never over all namespaces at once, and never the namespaces themselves.
    if info.namespaced == resource.namespace.is_empty() || info.plural == "namespaces" {
        return Err(ApiError::method_not_allowed());
    }
    let options = Options::parse(call)?;
    let (view, include) = (object::list_view(&call.accept, info)?, Include::parse(&call.query)?);
    let selection = Selection::parse(&resource.kind, &call.query)?;
    // It deletes what a list with these options shows, and no more.
    let listed = ListOptions::parse(&call.query, false)?;
    let review = review(server, resource, call, &options);
    let (kind, options, review) = (&*resource.kind, &options, review.as_ref());
    let read::Page { objects: all, mut metadata } = read::page(server, resource, &selection, &listed).await?;
    // Several at a time share the disk's flushes.
    let deleted = stream::iter(all).map(|object| async move {
        match reviewed(server, resource, &object.key, options, review).await {
            Ok((object, _)) => Ok(Some(object)),
            Err(e) if e.code == 404 => Ok(None),
            Err(e) => Err(e),
        }
    });
    let deleted: Vec<Object> =
        deleted.buffered(AT_ONCE).try_filter_map(|object| ready(Ok(object))).try_collect().await?;
    let items = conversion::decode_all(&server.webhooks, kind, &deleted).await?;
    metadata["resourceVersion"] = json!(server.store.revision().to_string());
    let answer = match view {
        View::Whole => {
            json!({"kind": kind.list_kind(), "apiVersion": info.api_version(), "metadata": metadata, "items": items})
        }
        View::Metadata => object::metadata_list(&items, &metadata),
        View::Table => object::table(kind, &items, &metadata, true, include),
    };
    Ok(with_warnings(response::json(200, &answer), &options.warnings(resource)))
}

/// What webhooks and policies are asked about a deletion, if there are any.
fn review<'a>(server: &'a ApiServer, resource: &Resource, call: &'a Call, options: &Options) -> Option<Review<'a>> {
    let shown = || {
        let mut shown = admit::review::options(call, "DeleteOptions", options.dry_run);
        if let Some(grace) = options.grace {
            shown["gracePeriodSeconds"] = json!(grace);
        }
        if let Some(policy) = options.propagation {
            shown["propagationPolicy"] = json!(policy.name());
        }
        for (field, value) in [("uid", &options.uid), ("resourceVersion", &options.revision)] {
            if let Some(value) = value {
                shown["preconditions"][field] = json!(value);
            }
        }
        shown
    };
    Review::of(server, resource, call, Operation::Delete, shown)
}

/// Deletes one object; gives it as it then is, and whether it is gone.
pub(crate) async fn delete(
    server: &ApiServer,
    resource: &Resource,
    key: &Key,
    options: &Options,
) -> Result<(Object, bool), ApiError> {
    reviewed(server, resource, key, options, None).await
}

/// The same, when nobody who is asked minds.
async fn reviewed(
    server: &ApiServer,
    resource: &Resource,
    key: &Key,
    options: &Options,
    review: Option<&Review<'_>>,
) -> Result<(Object, bool), ApiError> {
    let (kind, name) = (&*resource.kind, &*key.name);
    if kind.info().plural == "namespaces" && IMMORTAL.contains(&name) {
        return Err(ApiError::forbidden(kind.info(), name, "this namespace may not be deleted"));
    }
    if kind.info().plural == "priorityclasses" && is_of_the_system(name) {
        return Err(ApiError::forbidden(kind.info(), name, "this is a system priority class and cannot be deleted"));
    }
    for _ in 0..TRIES {
        let current = server.store.get(key).ok_or_else(|| ApiError::not_found(kind.info(), name))?;
        let mut value = conversion::as_stored(kind, &current);
        if !value.is_object() {
            // Its finalizers are not known, and it is not to go past them.
            return Err(ApiError::internal(format!("the stored object {name:?} cannot be read")));
        }
        match kind.info().plural {
            // These delete by themselves upstream, and say it otherwise.
            "namespaces" | "customresourcedefinitions" => check_own_preconditions(kind.info(), &value, name, options)?,
            _ => check_preconditions(resource, &value, name, options)?,
        }
        if let Some(review) = review {
            let shown = conversion::decode(&server.webhooks, kind, &current).await?;
            admit::outside::end(review, &shown).await?;
        }
        let before = value.clone();
        if kind.info().plural != "events" {
            propagation::mark(&mut value["metadata"], options.propagation.or(propagation::default(kind.info())));
        }
        mark(resource, &mut value, options.grace, now());
        let gone = removable(&value);
        if options.dry_run || (value == before && !gone) {
            return Ok((current, gone));
        }
        // What has no grace and goes at once is shown as it was: nothing of its deletion was ever written.
        let is_graceful = kind.graceful_deletion(&before, options.grace).is_some();
        let last = if gone && !is_graceful { before } else { value };
        let (expect, template) = (Expect::Revision(current.revision), object::encode(kind, last)?);
        let write =
            if gone { Write::delete(key.clone(), expect, template) } else { Write::put(key.clone(), expect, template) };
        match server.store.write(write.with_allowance(Allowance::Unlimited)).await {
            Ok(object) => return Ok((object, gone)),
            Err(WriteError::Conflict { .. }) => {}
            Err(e) => return Err(ApiError::from_write(&e, kind.info(), name)),
        }
    }
    Err(ApiError::modified(kind.info(), name))
}

/// Upstream's words (`rest.BeforeDelete`), in which the resource is called by its kind.
pub(crate) fn check_preconditions(
    resource: &Resource,
    value: &Value,
    name: &str,
    options: &Options,
) -> Result<(), ApiError> {
    let pairs = [
        ("UID", &options.uid, "uid", "The object might have been deleted and then recreated"),
        ("ResourceVersion", &options.revision, "resourceVersion", "The object might have been modified"),
    ];
    for (what, wanted, field, hint) in pairs {
        let have = value["metadata"][field].as_str().unwrap_or("");
        if let Some(wanted) = wanted.as_deref().filter(|w| *w != have) {
            let why = format!(
                "the {what} in the precondition ({wanted}) does not match the {what} in record ({have}). {hint}"
            );
            let info = resource.kind.info();
            let group = if info.group.is_empty() { String::new() } else { format!(".{}", info.group) };
            return Err(ApiError::conflict_on(&format!("{}{group}", info.kind), name, &why));
        }
    }
    Ok(())
}

/// The same of Namespaces and definitions (`REST.Delete` of each).
fn check_own_preconditions(
    info: &crate::kinds::KindInfo,
    value: &Value,
    name: &str,
    options: &Options,
) -> Result<(), ApiError> {
    let pairs = [("UID", &options.uid, "uid"), ("ResourceVersion", &options.revision, "resourceVersion")];
    for (what, wanted, field) in pairs {
        let have = value["metadata"][field].as_str().unwrap_or("");
        if let Some(wanted) = wanted.as_deref().filter(|w| *w != have) {
            let why = format!("Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {have}");
            return Err(ApiError::conflict(info, name, &why));
        }
    }
    Ok(())
}

/// Marks an object as being deleted. A grace period only ever falls (LIFECYCLE.md 3.3, 3.7; `rest.BeforeDelete`).
fn mark(resource: &Resource, value: &mut Value, asked: Option<i64>, now: Timestamp) {
    let asked = asked.map(|a| if a < 0 { 1 } else { a });
    let last = Timestamp::from_second(Timestamp::MAX.as_second()).unwrap_or(Timestamp::MAX);
    let after = |from: Timestamp, seconds: i64| {
        from.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(if seconds < 0 { now } else { last })
    };
    let known = value["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0);
    let time: Option<Timestamp> = value["metadata"]["deletionTimestamp"].as_str().and_then(|t| t.parse().ok());
    match time {
        Some(time) if known > 0 => {
            let Some(mut grace) = asked.filter(|a| *a < known) else { return };
            let mut end = after(time, grace - known);
            if end < now {
                // The kubelet still has the last word unless it is forced.
                (end, grace) = (now, grace.min(1));
            }
            value["metadata"]["deletionTimestamp"] = json!(end);
            value["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
        }
        // Only finalizers hold it.
        Some(_) => {}
        None => {
            let grace = resource.kind.graceful_deletion(value, asked).unwrap_or(0);
            value["metadata"]["deletionTimestamp"] = json!(after(now, grace));
            value["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
            if let Some(generation) = value["metadata"]["generation"].as_i64().filter(|g| *g > 0) {
                value["metadata"]["generation"] = json!(generation + 1);
            }
            resource.kind.begin_deletion(value);
        }
    }
    if resource.kind.info().kind == "Namespace" {
        value["status"]["phase"] = json!("Terminating");
    }
}
