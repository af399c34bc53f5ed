//! Deletion: at once, after a grace period, or when the last finalizer is gone.

use crate::{
    object, read,
    reply::{self, Reply},
    request::Resource,
    select::Selection,
    service::{ApiServer, Call},
    status::ApiError,
    write::{dry_run, now, removable},
};
use serde_json::{Value, json};
use store::{Expect, Key, Object, Write, WriteError};

/// How often a deletion is tried again when another write came first.
const TRIES: usize = 20;

/// `DeleteOptions`, from the body and the query.
pub(crate) struct Options {
    pub(crate) grace: Option<i64>,
    uid: Option<String>,
    revision: Option<String>,
    dry_run: bool,
}

impl Options {
    pub(crate) fn parse(call: &Call) -> Result<Self, ApiError> {
        let body: Value = if call.body.is_empty() {
            json!({})
        } else {
            serde_json::from_slice(&call.body)
                .map_err(|e| ApiError::bad_request(format!("couldn't decode DeleteOptions: {e}")))?
        };
        Self::from_json(&body, call)
    }

    pub(crate) fn from_json(body: &Value, call: &Call) -> Result<Self, ApiError> {
        let text = |v: &Value| v.as_str().filter(|s| !s.is_empty()).map(str::to_owned);
        let grace = body["gracePeriodSeconds"].as_i64().or(call.query.number("gracePeriodSeconds")?);
        Ok(Self {
            grace,
            uid: text(&body["preconditions"]["uid"]),
            revision: text(&body["preconditions"]["resourceVersion"]),
            dry_run: dry_run(&call.query)? || body["dryRun"] == json!(["All"]),
        })
    }
}

pub(crate) async fn one(server: &ApiServer, resource: &Resource, call: &Call) -> Reply {
    let options = Options::parse(call)?;
    let name = resource.name.as_deref().unwrap_or("");
    let key = object::key(resource.kind, &resource.namespace, name);
    let (object, gone) = delete(server, resource, &key, &options).await?;
    let value = object::decode(resource.kind, &object);
    let info = resource.kind.info();
    // Upstream gives the object for Pods and for what stays for a while, and a Status for the rest.
    if !gone || info.kind == "Pod" || info.kind == "Namespace" {
        return Ok(reply::json(200, &value));
    }
    let details = json!({"name": name, "group": info.group, "kind": info.plural, "uid": value["metadata"]["uid"]});
    Ok(reply::json(
        200,
        &json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}),
    ))
}

pub(crate) async fn collection(server: &ApiServer, resource: &Resource, call: &Call) -> Reply {
    let options = Options::parse(call)?;
    let selection = Selection::parse(resource.kind, &call.query)?;
    let mut items = Vec::new();
    for object in server.store.list(&read::scope(resource), None, None).objects {
        if !selection.matches(&object::decode(resource.kind, &object)) {
            continue;
        }
        match delete(server, resource, &object.key, &options).await {
            Ok((object, _)) => items.push(object::decode(resource.kind, &object)),
            Err(e) if e.code == 404 => {}
            Err(e) => return Err(e),
        }
    }
    let info = resource.kind.info();
    let metadata = json!({"resourceVersion": server.store.revision().to_string()});
    Ok(reply::json(
        200,
        &json!({"kind": format!("{}List", info.kind), "apiVersion": info.api_version(), "metadata": metadata, "items": items}),
    ))
}

/// Deletes one object; gives it as it then is, and whether it is gone.
pub(crate) async fn delete(
    server: &ApiServer,
    resource: &Resource,
    key: &Key,
    options: &Options,
) -> Result<(Object, bool), ApiError> {
    let (kind, name) = (resource.kind, &*key.name);
    for _ in 0..TRIES {
        let current = server.store.get(key).ok_or_else(|| ApiError::not_found(kind.info(), name))?;
        let mut value = object::decode(kind, &current);
        check_preconditions(resource, &value, name, options)?;
        let before = value.clone();
        mark(resource, &mut value, options);
        let gone = removable(&value);
        if options.dry_run || (value == before && !gone) {
            return Ok((current, gone));
        }
        let (expect, encode) = (Expect::Revision(current.revision), object::encoder(kind, value));
        let write =
            if gone { Write::delete(key.clone(), expect, encode) } else { Write::put(key.clone(), expect, encode) };
        match server.store.write(write).await {
            Ok(object) => return Ok((object, gone)),
            Err(WriteError::Conflict { .. }) => {}
            Err(e) => return Err(ApiError::from_write(&e, kind.info(), name)),
        }
    }
    Err(ApiError::modified(kind.info(), name))
}

fn check_preconditions(resource: &Resource, value: &Value, name: &str, options: &Options) -> Result<(), ApiError> {
    let pairs = [("UID", &options.uid, "uid"), ("ResourceVersion", &options.revision, "resourceVersion")];
    for (what, wanted, field) in pairs {
        let have = value["metadata"][field].as_str().unwrap_or("");
        if let Some(wanted) = wanted.as_deref().filter(|w| *w != have) {
            let why = format!("Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {have}");
            return Err(ApiError::conflict(resource.kind.info(), name, &why));
        }
    }
    Ok(())
}

/// Marks an object as being deleted. A grace period only ever falls (LIFECYCLE.md 3.3, 3.7).
fn mark(resource: &Resource, value: &mut Value, options: &Options) {
    let grace = resource.kind.graceful_deletion(value, options.grace).unwrap_or(0);
    let marked = !value["metadata"]["deletionTimestamp"].is_null();
    let known = value["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0);
    if marked && (grace >= known || options.grace.is_none() && known > 0 && grace > 0) {
        return;
    }
    let end = now().checked_add(jiff::SignedDuration::from_secs(grace)).unwrap_or(jiff::Timestamp::MAX);
    value["metadata"]["deletionTimestamp"] = json!(end);
    value["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
    if !marked && resource.kind.info().generation && grace > 0 {
        value["metadata"]["generation"] = json!(value["metadata"]["generation"].as_i64().unwrap_or(0) + 1);
    }
    if resource.kind.info().kind == "Namespace" {
        value["status"]["phase"] = json!("Terminating");
    }
}
