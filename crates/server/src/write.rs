//! Create, update and patch: decode, default, prepare, validate, store.

use crate::{
    kinds::{FieldErrors, FieldPath, Kind, WriteContext, WriteTarget},
    object, patch as patches,
    reply::{self, Body, Reply},
    request::{Query, Resource},
    service::{ApiServer, Call},
    status::ApiError,
    strict,
};
use http::{HeaderValue, Response};
use serde_json::{Value, json};
use store::{Expect, Object, Write, WriteError};

/// Letters of generated names: no vowels, so no words (upstream's `rand.SafeEncodeString`).
const SAFE: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
/// How often a write without a precondition is tried again when another came first.
const TRIES: usize = 20;

pub(crate) fn dry_run(query: &Query) -> Result<bool, ApiError> {
    match query.get("dryRun") {
        None => Ok(false),
        Some("All") => Ok(true),
        Some(other) => Err(ApiError::new(
            422,
            "Invalid",
            format!("dryRun: Unsupported value: {other:?}: supported values: \"All\""),
        )),
    }
}

fn with_warnings(mut response: Response<Body>, warnings: &[String]) -> Response<Body> {
    for warning in warnings {
        if let Ok(value) = HeaderValue::from_str(&format!("299 - {warning:?}")) {
            response.headers_mut().append("warning", value);
        }
    }
    response
}

fn show(kind: &dyn Kind, code: u16, object: &Object, call: &Call) -> Reply {
    Ok(match object::view(&call.accept)? {
        object::View::Whole => reply::bytes(code, object::bytes(kind, object)),
        object::View::Metadata => reply::json(code, &object::metadata_only(&object::decode(kind, object))),
        object::View::Table => {
            let value = object::decode(kind, object);
            reply::json(code, &object::table(kind, &[value], &json!({}), true))
        }
    })
}

pub(crate) async fn create(server: &ApiServer, resource: &Resource, call: &Call) -> Reply {
    let kind = resource.kind;
    let (mut value, warnings) = strict::check(kind.info(), &strict::parse(call)?, &call.query)?;
    let namespace = namespace_of(server, resource, &value)?;
    let metadata = &mut value["metadata"];
    if metadata["name"].as_str().unwrap_or("").is_empty()
        && let Some(prefix) = metadata["generateName"].as_str().filter(|p| !p.is_empty())
    {
        metadata["name"] = json!(generate(prefix));
    }
    if kind.info().namespaced {
        metadata["namespace"] = json!(namespace);
    }
    let ctx = WriteContext { now: now(), target: WriteTarget::Main };
    metadata["uid"] = json!(uuid::Uuid::new_v4().to_string());
    metadata["creationTimestamp"] = json!(ctx.now);
    for field in ["resourceVersion", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "managedFields"] {
        metadata.as_object_mut().map(|m| m.remove(field));
    }
    if kind.info().generation {
        metadata["generation"] = json!(1);
    }
    kind.default(&mut value);
    kind.prepare_create(&mut value, &ctx);
    let mut errors = FieldErrors::default();
    check_metadata(kind, &value, &mut errors);
    kind.validate_create(&value, &ctx, &mut errors);
    let name = value["metadata"]["name"].as_str().unwrap_or("").to_owned();
    if !errors.is_empty() {
        return Err(ApiError::invalid(kind.info(), &name, &errors));
    }
    let key = object::key(kind, &namespace, &name);
    if dry_run(&call.query)? {
        if server.store.get(&key).is_some() {
            return Err(ApiError::already_exists(kind.info(), &name));
        }
        return Ok(with_warnings(reply::json(201, &value), &warnings));
    }
    let write = Write::put(key, Expect::Absent, object::encoder(kind, value));
    let object = server.store.write(write).await.map_err(|e| ApiError::from_write(&e, kind.info(), &name))?;
    Ok(with_warnings(show(kind, 201, &object, call)?, &warnings))
}

/// Now, to the second, as Kubernetes writes times.
pub(crate) fn now() -> jiff::Timestamp {
    let now = jiff::Timestamp::now();
    jiff::Timestamp::from_second(now.as_second()).unwrap_or(now)
}

fn generate(prefix: &str) -> String {
    // Upstream cuts what would make the name longer than 63 bytes.
    let end = prefix.char_indices().map(|(i, c)| i + c.len_utf8()).take_while(|end| *end <= 58).last().unwrap_or(0);
    let suffix = uuid::Uuid::new_v4().into_bytes();
    let letters: String = suffix.iter().take(5).map(|b| char::from(SAFE[usize::from(*b) % SAFE.len()])).collect();
    format!("{}{letters}", &prefix[..end])
}

/// The namespace of a new object: that of the path, which must exist and not be ending.
fn namespace_of(server: &ApiServer, resource: &Resource, value: &Value) -> Result<String, ApiError> {
    let info = resource.kind.info();
    if !info.namespaced {
        return Ok(String::new());
    }
    let given = value["metadata"]["namespace"].as_str().unwrap_or("");
    let namespace = &resource.namespace;
    if namespace.is_empty() {
        return Err(ApiError::bad_request("an empty namespace may not be set during creation"));
    }
    if !given.is_empty() && given != namespace {
        return Err(ApiError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    let found = server.store.get(&store::Key::new("namespaces", "", namespace.as_str()));
    let Some(object) = found else {
        let message = format!("namespaces {namespace:?} not found");
        return Err(ApiError::new(404, "NotFound", message));
    };
    let ending =
        serde_json::from_slice::<Value>(&object.data).is_ok_and(|v| !v["metadata"]["deletionTimestamp"].is_null());
    if ending {
        let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
        return Err(ApiError::forbidden(info, value["metadata"]["name"].as_str().unwrap_or(""), &why));
    }
    Ok(namespace.clone())
}

fn check_metadata(kind: &dyn Kind, value: &Value, errors: &mut FieldErrors) {
    let (path, metadata) = (FieldPath::new("metadata"), &value["metadata"]);
    match metadata["name"].as_str().unwrap_or("") {
        "" => errors.required(&path.child("name"), "name or generateName is required"),
        name => kind.validate_name(name).iter().for_each(|e| errors.invalid(&path.child("name"), &json!(name), e)),
    }
    let labels = path.child("labels");
    for (key, v) in metadata["labels"].as_object().into_iter().flatten() {
        api::names::qualified_name(key).iter().for_each(|e| errors.invalid(&labels, &json!(key), e));
        api::names::label_value(v.as_str().unwrap_or("")).iter().for_each(|e| errors.invalid(&labels, v, e));
    }
    for key in metadata["annotations"].as_object().into_iter().flat_map(|m| m.keys()) {
        let lower = key.to_lowercase();
        api::names::qualified_name(&lower)
            .iter()
            .for_each(|e| errors.invalid(&path.child("annotations"), &json!(key), e));
    }
    for (i, f) in metadata["finalizers"].as_array().into_iter().flatten().enumerate() {
        let path = path.child("finalizers").index(i);
        api::names::qualified_name(f.as_str().unwrap_or("")).iter().for_each(|e| errors.invalid(&path, f, e));
    }
}

pub(crate) async fn update(server: &ApiServer, resource: &Resource, call: &Call) -> Reply {
    let (value, warnings) = strict::check(resource.kind.info(), &strict::parse(call)?, &call.query)?;
    let name = resource.name.as_deref().unwrap_or("");
    if value["metadata"]["name"].as_str().unwrap_or(name) != name {
        let given = value["metadata"]["name"].as_str().unwrap_or("");
        return Err(ApiError::bad_request(format!(
            "the name of the object ({given}) does not match the name on the URL ({name})"
        )));
    }
    change(server, resource, call, &warnings, |_| Ok(value.clone())).await
}

pub(crate) async fn patch(server: &ApiServer, resource: &Resource, call: &Call) -> Reply {
    let (info, warnings) = (resource.kind.info(), Vec::new());
    change(server, resource, call, &warnings, |old| {
        let patched = patches::apply(&call.content_type, old, &call.body)?;
        strict::check(info, &patched, &call.query).map(|(value, _)| value)
    })
    .await
}

/// Reads, changes and writes; again when another write came first and the client named no version.
async fn change(
    server: &ApiServer,
    resource: &Resource,
    call: &Call,
    warnings: &[String],
    make: impl Fn(&Value) -> Result<Value, ApiError>,
) -> Reply {
    let (kind, name) = (resource.kind, resource.name.as_deref().unwrap_or(""));
    let key = object::key(kind, &resource.namespace, name);
    for _ in 0..TRIES {
        let current = server.store.get(&key).ok_or_else(|| ApiError::not_found(kind.info(), name))?;
        let old = object::decode(kind, &current);
        let mut new = make(&old)?;
        let named = new["metadata"]["resourceVersion"].as_str().filter(|v| !v.is_empty()).map(str::to_owned);
        if named.as_ref().is_some_and(|v| *v != current.revision.to_string()) {
            return Err(ApiError::modified(kind.info(), name));
        }
        if new["metadata"]["uid"].as_str().is_some_and(|u| !u.is_empty() && old["metadata"]["uid"] != u) {
            let why = format!(
                "Precondition failed: UID in precondition: {}, UID in object meta: {}",
                new["metadata"]["uid"], old["metadata"]["uid"]
            );
            return Err(ApiError::conflict(kind.info(), name, &why));
        }
        prepare(kind, resource, &mut new, &old)?;
        if new == old {
            return Ok(with_warnings(show(kind, 200, &current, call)?, warnings));
        }
        if dry_run(&call.query)? {
            return Ok(with_warnings(reply::json(200, &new), warnings));
        }
        let expect = Expect::Revision(current.revision);
        let write = if removable(&new) {
            Write::delete(key.clone(), expect, object::encoder(kind, new))
        } else {
            Write::put(key.clone(), expect, object::encoder(kind, new))
        };
        match server.store.write(write).await {
            Ok(object) => return Ok(with_warnings(show(kind, 200, &object, call)?, warnings)),
            // A patch read what it changes: it carries the version it read, and may read again.
            Err(WriteError::Conflict { .. }) => {}
            Err(e) => return Err(ApiError::from_write(&e, kind.info(), name)),
        }
    }
    Err(ApiError::modified(kind.info(), name))
}

/// What was only kept by finalizers goes with the last of them.
pub(crate) fn removable(value: &Value) -> bool {
    let metadata = &value["metadata"];
    let held = |list: &Value| list.as_array().is_some_and(|f| !f.is_empty());
    let ending =
        !metadata["deletionTimestamp"].is_null() && metadata["deletionGracePeriodSeconds"].as_i64().unwrap_or(0) == 0;
    let held_by_content = value["kind"] == "Namespace" && held(&value["spec"]["finalizers"]);
    ending && !held_by_content && !held(&metadata["finalizers"])
}

fn prepare(kind: &dyn Kind, resource: &Resource, new: &mut Value, old: &Value) -> Result<(), ApiError> {
    let target = match resource.subresource.as_deref() {
        None => WriteTarget::Main,
        Some("status") => WriteTarget::Status,
        Some(_) => WriteTarget::Sub("finalize"),
    };
    let ctx = WriteContext { now: now(), target };
    for field in [
        "uid",
        "name",
        "namespace",
        "creationTimestamp",
        "generation",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "resourceVersion",
        "generateName",
    ] {
        match old["metadata"].get(field) {
            Some(value) => new["metadata"][field] = value.clone(),
            None => drop(new["metadata"].as_object_mut().map(|m| m.remove(field))),
        }
    }
    new["metadata"].as_object_mut().map(|m| m.remove("managedFields"));
    kind.default(new);
    kind.prepare_update(new, old, &ctx);
    // What neither has stays absent.
    for field in ["spec", "status"] {
        if new[field].is_null() {
            new.as_object_mut().map(|m| m.remove(field));
        }
    }
    if kind.info().generation && new["spec"] != old["spec"] {
        new["metadata"]["generation"] = json!(old["metadata"]["generation"].as_i64().unwrap_or(0) + 1);
    }
    let mut errors = FieldErrors::default();
    check_metadata(kind, new, &mut errors);
    kind.validate_update(new, old, &ctx, &mut errors);
    if errors.is_empty() {
        Ok(())
    } else {
        Err(ApiError::invalid(kind.info(), new["metadata"]["name"].as_str().unwrap_or(""), &errors))
    }
}
