//! `serviceaccounts/NAME/token`: a token for an account, bound to what it is to die with
//! (upstream's `pkg/registry/core/serviceaccount/storage/token.go` and `pkg/serviceaccount/claims.go`).

use super::ISSUER;
use crate::{
    admission::dynamic,
    authorization::node,
    create, decode,
    kinds::{FieldErrors, FieldPath},
    request::RequestInfo,
    response::{self, HandlerResult},
    service::{ApiServer, Call},
    status::ApiError,
    write::{dry_run, now},
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest};
use serde_json::{Value, json};
use store::Key;

const KIND: [&str; 3] = ["authentication.k8s.io", "v1", "TokenRequest"];
const DEFAULT_SECONDS: i64 = 3600;
const LEAST_SECONDS: i64 = 600;
const MOST_SECONDS: i64 = 1 << 32;

/// Answers a TokenRequest.
pub(crate) async fn create(server: &ApiServer, resource: &RequestInfo, call: &Call) -> HandlerResult {
    let key = server.signing_key.as_ref().ok_or_else(ApiError::no_such_path)?;
    let (info, name) = (resource.kind.info(), resource.name.as_deref().unwrap_or(""));
    let dry = dry_run(&call.query, "CreateOptions")?;
    let mut request = read(resource, call, name)?;
    let mut body = serde_json::to_value(&request).map_err(ApiError::internal)?;
    let context = dynamic::mutate_body(server, resource, call, KIND, &mut body, dry).await?;
    request.spec = serde_json::from_value(body["spec"].clone()).map_err(ApiError::internal)?;
    node::restrict_token(server, &call.user, resource, &serde_json::to_value(&request.spec).unwrap_or_default())?;
    let account = stored(server, "serviceaccounts", &resource.namespace, name);
    let account = account.ok_or_else(|| ApiError::not_found(info, name))?;
    check_uid(&body, &account, name)?;
    let seconds = request.spec.expiration_seconds.unwrap_or(DEFAULT_SECONDS);
    let audiences = Some(request.spec.audiences.clone()).filter(|a| !a.is_empty());
    let audiences = audiences.unwrap_or_else(|| vec![ISSUER.to_owned()]);
    check(seconds)?;
    let now = now();
    body["metadata"] = metadata(&body, &account, now);
    if let Some(context) = context {
        body["spec"]["audiences"] = json!(audiences);
        dynamic::validate(&context, Some(&body), None).await?;
    }
    let bound = match &request.spec.bound_object_ref {
        Some(reference) => Some(bound_object(server, resource, name, reference)?),
        None => None,
    };
    let (seconds, shortened) = server.token_lifetime.grant(seconds);
    call.warnings.lock().extend(shortened);
    let extensible = audiences.iter().any(|a| a == ISSUER) && matches!(&bound, Some((kind, _)) if *kind == "pod");
    let extended = server.token_lifetime.extended(seconds).filter(|_| extensible);
    let end = |seconds: i64| now.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX);
    let (node, object) = (bound.as_ref().and_then(|(_, o)| node_of(server, o)), bound);
    let mut about = json!({"namespace": resource.namespace, "serviceaccount": reference(&account)});
    if let Some((kind, object)) = &object {
        about[*kind] = reference(object);
    }
    if let Some(node) = node {
        about["node"] = node;
    }
    if extended.is_some() {
        about["warnafter"] = json!(end(seconds).as_second());
    }
    let id = uuid::Uuid::new_v4().to_string();
    call.trail.annotate("authentication.kubernetes.io/issued-credential-id", format!("JTI={id}"));
    let claims = json!({
        "aud": audiences, "iss": ISSUER, "sub": format!("system:serviceaccount:{}:{name}", resource.namespace),
        "iat": now.as_second(), "nbf": now.as_second(), "jti": id,
        "exp": end(extended.unwrap_or(seconds)).as_second(), "kubernetes.io": about,
    });
    let token = key.sign(&claims).ok_or_else(|| ApiError::internal("the token could not be signed"))?;
    let answer = json!({
        "kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1",
        "metadata": body["metadata"],
        "spec": {"audiences": audiences, "expirationSeconds": seconds, "boundObjectRef": request.spec.bound_object_ref},
        "status": {"token": token, "expirationTimestamp": end(seconds)},
    });
    Ok(response::json(201, &answer))
}

fn read(resource: &RequestInfo, call: &Call, name: &str) -> Result<TokenRequest, ApiError> {
    let mut body = decode::body_of_kind(call, "TokenRequest")?;
    create::set_request_namespace(resource, &mut body)?;
    // Its fields have Go's zero values where a client leaves them out.
    for (field, empty) in [("metadata", json!({})), ("spec", json!({}))] {
        if body[field].is_null() {
            body[field] = empty;
        }
    }
    if let Some(spec) = body["spec"].as_object_mut() {
        for (field, default) in [("audiences", json!([])), ("expirationSeconds", json!(DEFAULT_SECONDS))] {
            if spec.get(field).is_none_or(Value::is_null) {
                spec.insert(field.to_owned(), default);
            }
        }
    }
    if let Some(fields) = body.as_object_mut() {
        // What the server says.
        fields.remove("status");
        fields.insert("kind".to_owned(), json!("TokenRequest"));
        fields.insert("apiVersion".to_owned(), json!("authentication.k8s.io/v1"));
    }
    let request: TokenRequest = serde_json::from_value(body)
        .map_err(|e| ApiError::bad_request(format!("couldn't decode TokenRequest: {e}")))?;
    let mut errors = FieldErrors::default();
    if let Some(other) = request.metadata.name.as_deref().filter(|given| !given.is_empty() && *given != name) {
        let why = "must match the service account name if specified";
        errors.invalid(&FieldPath::new("metadata").child("name"), &json!(other), why);
    }
    if errors.is_empty() {
        return Ok(request);
    }
    Err(ApiError::invalid_named("authentication.k8s.io", "TokenRequest", name, &errors))
}

/// The request is about this account, and not about an earlier one of its name.
fn check_uid(request: &Value, account: &Value, name: &str) -> Result<(), ApiError> {
    let uid = account["metadata"]["uid"].as_str().unwrap_or("");
    match request["metadata"]["uid"].as_str().filter(|wanted| !wanted.is_empty() && *wanted != uid) {
        Some(wanted) => {
            let why = format!(
                "the UID in the token request ({wanted}) does not match the UID of the service account ({uid})"
            );
            let [group, _, kind] = KIND;
            Err(ApiError::conflict_in(group, kind, name, &why))
        }
        None => Ok(()),
    }
}

/// The metadata of the request, with what upstream fills in from its account.
fn metadata(request: &Value, account: &Value, now: Timestamp) -> Value {
    let mut metadata = request["metadata"].as_object().cloned().unwrap_or_default();
    for field in ["name", "namespace", "uid"] {
        metadata.insert(field.to_owned(), account["metadata"][field].clone());
    }
    metadata.insert("creationTimestamp".to_owned(), json!(now));
    Value::Object(metadata)
}

fn check(seconds: i64) -> Result<(), ApiError> {
    let (mut errors, path) = (FieldErrors::default(), FieldPath::new("spec").child("expirationSeconds"));
    if seconds < LEAST_SECONDS {
        errors.invalid(&path, &json!(seconds), "may not specify a duration less than 10 minutes");
    }
    if seconds > MOST_SECONDS {
        errors.invalid(&path, &json!(seconds), "may not specify a duration larger than 2^32 seconds");
    }
    if errors.is_empty() {
        return Ok(());
    }
    Err(ApiError::invalid_named("authentication.k8s.io", "TokenRequest", "", &errors))
}

pub(super) fn stored(server: &ApiServer, plural: &'static str, namespace: &str, name: &str) -> Option<Value> {
    let found = server.store.get(&Key::new(plural, namespace, name))?;
    serde_json::from_slice(&found.data).ok()
}

/// The kinds that a token can be bound to, in any version of the core group: its claim, and where they live.
fn kind_of(group: &str, kind: &str) -> Option<(&'static str, &'static str, bool)> {
    match (group, kind) {
        ("", "Pod") => Some(("pod", "pods", true)),
        ("", "Secret") => Some(("secret", "secrets", true)),
        ("", "Node") => Some(("node", "nodes", false)),
        _ => None,
    }
}

/// A group and a version, both empty where they cannot be read (`schema.FromAPIVersionAndKind`).
fn group_version(api_version: &str) -> (&str, &str) {
    match api_version.split_once('/') {
        None => ("", api_version),
        Some((group, version)) if !version.contains('/') => (group, version),
        Some(_) => ("", ""),
    }
}

/// What the token is to die with; it must be there, and a Pod must run as this account.
fn bound_object(
    server: &ApiServer,
    resource: &RequestInfo,
    account: &str,
    reference: &BoundObjectReference,
) -> Result<(&'static str, Value), ApiError> {
    let word = |field: &Option<String>| field.clone().unwrap_or_default();
    let (api_version, kind) = (word(&reference.api_version), word(&reference.kind));
    let (group, version) = group_version(&api_version);
    let Some((claim, plural, namespaced)) = kind_of(group, &kind) else {
        let why = format!("cannot bind token to object of type {group}/{version}, Kind={kind}");
        return Err(ApiError::bad_request(why));
    };
    if reference.name.as_deref().unwrap_or_default().is_empty() {
        // What upstream's store says of a name that is none.
        return Err(ApiError::bad_request("Name parameter required."));
    }
    let (name, namespace) = (word(&reference.name), if namespaced { resource.namespace.as_str() } else { "" });
    let object = stored(server, plural, namespace, &name)
        .ok_or_else(|| ApiError::new(404, "NotFound", format!("{plural} {name:?} not found")))?;
    if claim == "pod" && object["spec"]["serviceAccountName"] != account {
        return Err(ApiError::bad_request(format!(
            "cannot bind token for serviceaccount {account:?} to pod running with different serviceaccount name."
        )));
    }
    let uid = object["metadata"]["uid"].as_str().unwrap_or("");
    match reference.uid.as_deref().filter(|wanted| !wanted.is_empty() && *wanted != uid) {
        Some(wanted) => {
            let why = format!(
                "the UID in the bound object reference ({wanted}) does not match the UID in record. The object might have been deleted and then recreated"
            );
            Err(ApiError::conflict_on(&kind, &name, &why))
        }
        None => Ok((claim, object)),
    }
}

fn reference(object: &Value) -> Value {
    json!({"name": object["metadata"]["name"], "uid": object["metadata"]["uid"]})
}

/// The node that a Pod is bound to.
fn node_of(server: &ApiServer, pod: &Value) -> Option<Value> {
    let name = pod["spec"]["nodeName"].as_str().filter(|n| !n.is_empty())?;
    Some(stored(server, "nodes", "", name).map_or_else(|| json!({"name": name}), |node| reference(&node)))
}
