//! Update and patch: read, change, validate, store; again when another write came first and the client named no version.

use crate::{
    admit::{self, review::Review},
    authorization,
    create::{self, New},
    decode,
    existing_object::Live,
    identity::{self, named_version},
    kinds::{FieldErrors, KindInfo, WriteContext},
    large_requests,
    managed_fields::{self, Asked},
    object, object_meta, patch as patches,
    request::Resource,
    response::Reply,
    scale, server_side_apply,
    service::{ApiServer, Call},
    services,
    status::ApiError,
    store_quota::Purpose,
    strict::{self, Validation},
    write::{dry_run, now, removable, show, show_value, with_warnings},
};
use admission::about::Operation;
use apply::Managers;
use http::Method;
use serde_json::{Value, json};
use std::{borrow::Cow, sync::Arc};
use store::{Expect, Object, Write, WriteError};

/// How often a write without a precondition is tried again when another came first.
pub(crate) const TRIES: usize = 20;

/// What a request makes of an object.
pub(crate) struct Made {
    /// In the form of its kind, without defaults and `managedFields`.
    pub(crate) object: Value,
    pub(crate) warnings: Vec<String>,
    pub(crate) ownership: Ownership,
}

/// Who owns what once it is written.
pub(crate) enum Ownership {
    /// Whoever writes owns what changes.
    Update(Asked),
    /// That is known.
    Settled(Managers),
}

pub(crate) async fn update(server: &ApiServer, resource: &Resource, call: &Call) -> Reply {
    let kind = &*resource.kind;
    managed_fields::require(call, "UpdateOptions", false)?;
    let (dry, validation) = (dry_run(&call.query, "UpdateOptions")?, Validation::parse(&call.query, "UpdateOptions")?);
    let parsed = decode::parse(call, kind)?;
    let is_reset = managed_fields::is_reset(&parsed.value);
    let (mut value, warnings) = strict::check(kind, parsed, validation)?;
    identity::check_named(resource, &value)?;
    if kind.info().created_by_update && resource.subresource.is_none() && is_absent(server, resource) {
        return make_new(server, resource, call, value, warnings, dry).await;
    }
    let asked = Asked::take(&mut value, is_reset);
    let make = |old: &Live| {
        // Who names another object is told that first.
        identity::check(resource, call.method == Method::PUT, &value, &old.object)?;
        let ownership = Ownership::Update(asked.clone());
        Ok(Made { object: value.clone(), warnings: warnings.clone(), ownership })
    };
    change(server, resource, call, dry, make).await
}

fn is_absent(server: &ApiServer, resource: &Resource) -> bool {
    let name = resource.name.as_deref().unwrap_or("");
    server.store.get(&object::key(&*resource.kind, &resource.namespace, name)).is_none()
}

/// An update of what is not there makes it, unless it is of a version of it.
async fn make_new(
    server: &ApiServer,
    resource: &Resource,
    call: &Call,
    value: Value,
    warnings: Vec<String>,
    dry: bool,
) -> Reply {
    let (info, name) = (resource.kind.info(), resource.name.as_deref().unwrap_or(""));
    authorization::may_create(server, resource, call)?;
    if named_version(&value).is_some() {
        return Err(ApiError::not_found(info, name));
    }
    identity::check(resource, true, &value, &Value::Null)?;
    create::write(server, resource, call, New { value, warnings, managers: None }, dry).await
}

pub(crate) async fn patch(server: &ApiServer, resource: &Resource, call: &Call) -> Reply {
    let kind = &*resource.kind;
    if call.content_type == patches::APPLY {
        return Box::pin(server_side_apply::apply(server, resource, call)).await;
    }
    patches::check_type(kind, &call.content_type)?;
    managed_fields::require(call, "PatchOptions", false)?;
    let (dry, validation) = (dry_run(&call.query, "PatchOptions")?, Validation::parse(&call.query, "PatchOptions")?);
    change(server, resource, call, dry, |old| {
        let made = || patches::apply(&call.content_type, old.whole(), &call.body);
        let shown = || patches::shown(&call.content_type, &call.body, made);
        let patched = made()?;
        let is_reset = managed_fields::is_reset(&patched.value);
        let (mut object, warnings) = strict::check_patched(kind, patched, &call.content_type, shown, validation)?;
        let ownership = Ownership::Update(Asked::take(&mut object, is_reset));
        Ok(Made { object, warnings, ownership })
    })
    .await
}

/// Writes what `make` makes of the object that is there, and answers with that.
pub(crate) async fn change(
    server: &ApiServer,
    resource: &Resource,
    call: &Call,
    dry: bool,
    make: impl Fn(&Live) -> Result<Made, ApiError>,
) -> Reply {
    object::view(&call.accept, resource.kind.info())?;
    let (written, warnings) = write(server, resource, call, dry, make).await?;
    let answer = match written {
        Written::Stored(object) => show(server, &*resource.kind, 200, &object, call).await,
        Written::Dry(value) => show_value(&*resource.kind, 200, value, call),
    };
    Ok(with_warnings(answer?, &warnings))
}

/// What a request has made of an object.
pub(crate) enum Written {
    Stored(Object),
    /// What would be stored.
    Dry(Value),
}

/// Writes what `make` makes of the object that is there; gives what it has become, and warnings.
pub(crate) async fn write(
    server: &ApiServer,
    resource: &Resource,
    call: &Call,
    dry: bool,
    make: impl Fn(&Live) -> Result<Made, ApiError>,
) -> Result<(Written, Vec<String>), ApiError> {
    let (kind, name) = (&*resource.kind, resource.name.as_deref().unwrap_or(""));
    let key = object::key(kind, &resource.namespace, name);
    let review = review(server, resource, call, dry);
    for _ in 0..large_requests::tries(server, resource, call) {
        let current = server.store.get(&key).ok_or_else(|| ApiError::not_found(kind.info(), name))?;
        let old = server.recent.live(&server.webhooks, kind, &current).await?;
        let Made { object, mut warnings, ownership } = make(&old)?;
        identity::check(resource, call.method == Method::PUT, &object, &old.object)?;
        identity::check_has_version(kind.info(), &object)?;
        let mut new = admitted(server, resource, call, object, &old, ownership, review.as_ref()).await?;
        prepare(server, resource, call, &mut new.object, &old.object)?;
        let addresses = services::take(server, resource, &mut new.object).await?;
        warnings.extend(admit::check(server, resource, &new.object, Some(&old.object), &call.trail)?);
        // As when it was new, nobody waits while others are asked.
        let _held = match &review {
            None => addresses,
            Some(review) => {
                drop(addresses);
                let (whole_new, whole_old) = (new.whole(), old.whole());
                let (shown_new, shown_old) = (shown(resource, &whole_new), shown(resource, &whole_old));
                admit::outside::validate(review, Some(&shown_new), Some(&shown_old)).await?;
                services::take(server, resource, &mut new.object).await?
            }
        };
        let takes = admit::quota::may_take(resource, &new.object, &old.object);
        let counted = if takes { admit::quota::turn(server, resource).await } else { None };
        counted.as_ref().map_or(Ok(()), |turn| turn.check(server, resource, &new.object, Some(&old.object)))?;
        warnings.extend(object_meta::warnings(&new.object, Some(&old.object)));
        if resource.subresource.is_none() {
            warnings.extend(kind.warnings(&new.object, Some(&old.object)));
        }
        // Who writes what is there already leaves no trace, not even a time.
        let is_same = new.object == old.object && new.managers.is_same_but_times(&old.managers);
        if is_same {
            new.managers = old.managers.clone();
        }
        let gone = removable(&new.object);
        // One in an outdated form is written again: so a change of the encryption reaches it (`origState.stale` in etcd3).
        let rewrites = current.is_stale && !dry;
        if is_same && !gone && !rewrites {
            return Ok((Written::Stored(current), warnings));
        }
        if dry {
            return Ok((Written::Dry(new.whole()), warnings));
        }
        let (new, expect) = (new.stored(&server.webhooks, kind).await?, Expect::Revision(current.revision));
        let template = new.encode()?;
        let write =
            if gone { Write::delete(key.clone(), expect, template) } else { Write::put(key.clone(), expect, template) };
        match server.store_object(&call.user, kind, Purpose::Update, write).await {
            Ok(object) => {
                server.recent.wrote(kind, &object, new);
                return Ok((Written::Stored(object), warnings));
            }
            Err(WriteError::Conflict { .. }) => {}
            // It was there a moment ago.
            Err(e) => return Err(ApiError::from_write(&e, kind.info(), name)),
        }
    }
    Err(ApiError::modified(kind.info(), name))
}

/// Whether what is wanted has changed: everything but the metadata and the status.
fn wants_another(info: &KindInfo, new: &Value, old: &Value) -> bool {
    let (Some(new), Some(old)) = (new.as_object(), old.as_object()) else { return true };
    let told = |key: &str| key == "metadata" || key == "status" && info.status;
    new.iter().any(|(key, value)| !told(key) && old.get(key) != Some(value))
        || old.keys().any(|key| !told(key) && !new.contains_key(key))
}

/// What webhooks and policies are asked about a change, if there are any.
fn review<'a>(server: &'a ApiServer, resource: &Resource, call: &'a Call, dry: bool) -> Option<Review<'a>> {
    let options = || admit::review::options(call, "UpdateOptions", dry);
    let review = Review::of(server, resource, call, Operation::Update, options)?;
    let is_scale = resource.subresource.as_deref() == Some("scale");
    Some(if is_scale { review.of_kind(["autoscaling", "v1", "Scale"]) } else { review })
}

/// The object, as those who are asked see it: of a scale it is the scale.
fn shown<'a>(resource: &Resource, object: &'a Value) -> Cow<'a, Value> {
    match resource.subresource.as_deref() {
        Some("scale") => Cow::Owned(scale::scale_of(&*resource.kind, object)),
        _ => Cow::Borrowed(object),
    }
}

/// The object as others make it, and who owns what of it.
async fn admitted(
    server: &ApiServer,
    resource: &Resource,
    call: &Call,
    mut new: Value,
    old: &Live,
    ownership: Ownership,
    review: Option<&Review<'_>>,
) -> Result<Live, ApiError> {
    let kind = &*resource.kind;
    object_meta::keep(&mut new, &old.object);
    // Of a patch, upstream looks at what came of it.
    let when = if call.method == Method::PATCH { object_meta::AFTER_ADMISSION } else { "" };
    call.told.lock().extend(object_meta::drop_duplicate_owners(&mut new["metadata"], when));
    kind.default(&mut new);
    let managers = match ownership {
        Ownership::Settled(managers) => managers,
        Ownership::Update(asked) => managed_fields::Write::new(resource, call, now()).update(Some(old), &new, asked),
    };
    let complete = |new: &mut Value| {
        kind.complete(new);
        admit::complete_change(server, resource, new, Some(&old.object));
        Ok(())
    };
    complete(&mut new)?;
    let mut new = Live { object: new, managers };
    let Some(review) = review else { return Ok(new) };
    if let (Cow::Owned(mut new_scale), old_scale) = (shown(resource, &new.object), shown(resource, &old.object)) {
        if admit::outside::mutate(review, &mut new_scale, Some(&old_scale), &|_| Ok(())).await? {
            scale::put(kind, &mut new.object, &new_scale);
        }
        return Ok(new);
    }
    let mut object = new.whole();
    if !admit::outside::mutate(review, &mut object, Some(&old.whole()), &complete).await? {
        return Ok(new);
    }
    identity::check(resource, false, &object, &old.object)?;
    object_meta::keep(&mut object, &old.object);
    call.told.lock().extend(object_meta::drop_duplicate_owners(&mut object["metadata"], object_meta::AFTER_ADMISSION));
    let managers = managed_fields::after_admission(&mut object, new.managers, call);
    Ok(Live { object, managers })
}

fn prepare(server: &ApiServer, resource: &Resource, call: &Call, new: &mut Value, old: &Value) -> Result<(), ApiError> {
    let kind = &*resource.kind;
    let ctx = WriteContext { now: now(), gates: Arc::clone(&server.gates), target: resource.target() };
    authorization::check_write(server, &call.user, resource, new, Some(old))?;
    kind.prepare_update(new, old, &ctx);
    // What neither has stays absent.
    for field in ["spec", "status"] {
        if new[field].is_null() {
            new.as_object_mut().map(|m| m.remove(field));
        }
    }
    let annotated = kind.info().generation_of_annotations
        && resource.subresource.is_none()
        && new["metadata"]["annotations"] != old["metadata"]["annotations"];
    if kind.info().generation && (annotated || wants_another(kind.info(), new, old)) {
        new["metadata"]["generation"] = json!(old["metadata"]["generation"].as_i64().unwrap_or(0) + 1);
    }
    if resource.subresource.is_none() {
        kind.observe(new, &|group, version, name| resource.served.known(group, version, name));
    }
    object::check_depth(new)?;
    let mut errors = FieldErrors::default();
    object_meta::validate(kind, new, &mut errors);
    object_meta::validate_update(new, old, &mut errors);
    kind.validate_update(new, old, &ctx, &mut errors);
    if errors.is_empty() {
        authorization::check_params(server, &call.user, resource, new, Some(old), &mut errors);
    }
    if errors.is_empty() {
        Ok(())
    } else {
        Err(ApiError::invalid(kind.info(), new["metadata"]["name"].as_str().unwrap_or(""), &errors))
    }
}
