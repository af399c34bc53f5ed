//! `serviceaccounts/NAME/token`: creates a token for a service account, which may be bound to an object
//! (upstream's `pkg/registry/core/serviceaccount/storage/token.go` and `pkg/serviceaccount/claims.go`).

use crate::{
    admission::{dynamic, node_restriction},
    http::{authentication::Authentication, clock::now},
    objects::{call::Call, decode, object_identity, request_scope::RequestScope, write::dry_run},
    rest::generic_registry::GenericRegistry,
};
use auth::{
    stored_object,
    tokens::{ISSUER, TokenLifetime},
};
use errors::{ApiError, GroupKind, GroupResource};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest};
use kinds::{FieldErrors, FieldPath};
use response::HandlerResult;
use serde_json::{Value, json};
use store::Store;

const KIND: [&str; 3] = ["authentication.k8s.io", "v1", "TokenRequest"];
const DEFAULT_EXPIRATION_SECONDS: i64 = 3600;
const MIN_EXPIRATION_SECONDS: i64 = 600;
const MAX_EXPIRATION_SECONDS: i64 = 1 << 32;

/// Handles a TokenRequest.
pub(crate) async fn create(
    registry: &GenericRegistry,
    authentication: &Authentication,
    token_lifetime: &TokenLifetime,
    resource: &RequestScope,
    call: &Call,
) -> HandlerResult {
    let key = authentication.signing_key.as_ref().ok_or_else(ApiError::no_such_path)?;
    let (info, name) = (resource.kind.info(), resource.name.as_deref().unwrap_or(""));
    let dry = dry_run(&call.query, "CreateOptions")?;
    let mut request = decode_request(resource, call, name)?;
    let mut body = serde_json::to_value(&request).map_err(ApiError::internal)?;
    let context = dynamic::mutate_body(&registry.admission, resource, call, KIND, &mut body, dry).await?;
    request.spec = serde_json::from_value(body["spec"].clone()).map_err(ApiError::internal)?;
    node_restriction::restrict_token(
        &registry.admission,
        &call.user,
        resource,
        &serde_json::to_value(&request.spec).unwrap_or_default(),
    )?;
    let account = stored_object::get(&registry.store, "serviceaccounts", &resource.namespace, name);
    let account = account.ok_or_else(|| ApiError::not_found(info, name))?;
    check_uid(&body, &account, name)?;
    let seconds = request.spec.expiration_seconds.unwrap_or(DEFAULT_EXPIRATION_SECONDS);
    let audiences = Some(request.spec.audiences.clone()).filter(|a| !a.is_empty());
    let audiences = audiences.unwrap_or_else(|| vec![ISSUER.to_owned()]);
    validate_expiration(seconds)?;
    let now = now();
    body["metadata"] = metadata(&body, &account, now);
    if let Some(context) = context {
        body["spec"]["audiences"] = json!(audiences);
        dynamic::validate(&context, Some(&body), None).await?;
    }
    let bound = match &request.spec.bound_object_ref {
        Some(object_reference) => Some(bound_object(&registry.store, resource, name, object_reference)?),
        None => None,
    };
    let (seconds, shortened) = token_lifetime.grant(seconds);
    call.warnings.lock().extend(shortened);
    let extensible = audiences.iter().any(|a| a == ISSUER) && matches!(&bound, Some((kind, _)) if *kind == "pod");
    let extended = token_lifetime.extended(seconds).filter(|_| extensible);
    let end = |seconds: i64| now.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX);
    let (node, object) = (bound.as_ref().and_then(|(_, o)| node_reference(&registry.store, o)), bound);
    let mut private_claims = json!({"namespace": resource.namespace, "serviceaccount": object_reference(&account)});
    if let Some((kind, object)) = &object {
        private_claims[*kind] = object_reference(object);
    }
    if let Some(node) = node {
        private_claims["node"] = node;
    }
    if extended.is_some() {
        private_claims["warnafter"] = json!(end(seconds).as_second());
    }
    let id = uuid::Uuid::new_v4().to_string();
    call.audit.annotate("authentication.kubernetes.io/issued-credential-id", format!("JTI={id}"));
    let claims = json!({
        "aud": audiences, "iss": ISSUER, "sub": format!("system:serviceaccount:{}:{name}", resource.namespace),
        "iat": now.as_second(), "nbf": now.as_second(), "jti": id,
        "exp": end(extended.unwrap_or(seconds)).as_second(), "kubernetes.io": private_claims,
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

fn decode_request(resource: &RequestScope, call: &Call, name: &str) -> Result<TokenRequest, ApiError> {
    let mut body = decode::body_of_kind(call, "TokenRequest")?;
    object_identity::set_request_namespace(resource, &mut body)?;
    // Absent fields have Go's zero values.
    for (field, empty) in [("metadata", json!({})), ("spec", json!({}))] {
        if body[field].is_null() {
            body[field] = empty;
        }
    }
    if let Some(spec) = body["spec"].as_object_mut() {
        for (field, default) in [("audiences", json!([])), ("expirationSeconds", json!(DEFAULT_EXPIRATION_SECONDS))] {
            if spec.get(field).is_none_or(Value::is_null) {
                spec.insert(field.to_owned(), default);
            }
        }
    }
    if let Some(fields) = body.as_object_mut() {
        // Set by the server only.
        fields.remove("status");
        fields.insert("kind".to_owned(), json!("TokenRequest"));
        fields.insert("apiVersion".to_owned(), json!("authentication.k8s.io/v1"));
    }
    let request: TokenRequest = serde_json::from_value(body)
        .map_err(|e| ApiError::bad_request(format!("couldn't decode TokenRequest: {e}")))?;
    let mut errors = FieldErrors::default();
    if let Some(other) = request.metadata.name.as_deref().filter(|given| !given.is_empty() && *given != name) {
        let message = "must match the service account name if specified";
        errors.invalid(&FieldPath::new("metadata").child("name"), &json!(other), message);
    }
    if errors.is_empty() {
        return Ok(request);
    }
    Err(ApiError::invalid(GroupKind::new("authentication.k8s.io", "TokenRequest"), name, &errors))
}

/// Requires the UID in the request to be the account's.
fn check_uid(request: &Value, account: &Value, name: &str) -> Result<(), ApiError> {
    let uid = account["metadata"]["uid"].as_str().unwrap_or("");
    match request["metadata"]["uid"].as_str().filter(|requested| !requested.is_empty() && *requested != uid) {
        Some(requested) => {
            let message = format!(
                "the UID in the token request ({requested}) does not match the UID of the service account ({uid})"
            );
            let [group, _, kind] = KIND;
            Err(ApiError::conflict(GroupResource::new(group, kind), name, &message))
        }
        None => Ok(()),
    }
}

/// Returns the metadata of the request, with the fields that upstream sets from the account.
fn metadata(request: &Value, account: &Value, now: Timestamp) -> Value {
    let mut metadata = request["metadata"].as_object().cloned().unwrap_or_default();
    for field in ["name", "namespace", "uid"] {
        metadata.insert(field.to_owned(), account["metadata"][field].clone());
    }
    metadata.insert("creationTimestamp".to_owned(), json!(now));
    Value::Object(metadata)
}

fn validate_expiration(seconds: i64) -> Result<(), ApiError> {
    let (mut errors, path) = (FieldErrors::default(), FieldPath::new("spec").child("expirationSeconds"));
    if seconds < MIN_EXPIRATION_SECONDS {
        errors.invalid(&path, &json!(seconds), "may not specify a duration less than 10 minutes");
    }
    if seconds > MAX_EXPIRATION_SECONDS {
        errors.invalid(&path, &json!(seconds), "may not specify a duration larger than 2^32 seconds");
    }
    if errors.is_empty() {
        return Ok(());
    }
    Err(ApiError::invalid(GroupKind::new("authentication.k8s.io", "TokenRequest"), "", &errors))
}

/// Returns the claim and the resource of a kind to which tokens can be bound, and whether it is namespaced.
fn bindable_kind(group: &str, kind: &str) -> Option<(&'static str, &'static str, bool)> {
    match (group, kind) {
        ("", "Pod") => Some(("pod", "pods", true)),
        ("", "Secret") => Some(("secret", "secrets", true)),
        ("", "Node") => Some(("node", "nodes", false)),
        _ => None,
    }
}

/// Returns group and version, both empty if they are invalid (`schema.FromAPIVersionAndKind`).
fn group_version(api_version: &str) -> (&str, &str) {
    match api_version.split_once('/') {
        None => ("", api_version),
        Some((group, version)) if !version.contains('/') => (group, version),
        Some(_) => ("", ""),
    }
}

/// Returns the object to which the token is bound. It must exist, and a Pod must run as this account.
fn bound_object(
    store: &Store,
    resource: &RequestScope,
    account: &str,
    object_reference: &BoundObjectReference,
) -> Result<(&'static str, Value), ApiError> {
    let word = |field: &Option<String>| field.clone().unwrap_or_default();
    let (api_version, kind) = (word(&object_reference.api_version), word(&object_reference.kind));
    let (group, version) = group_version(&api_version);
    let Some((claim, plural, namespaced)) = bindable_kind(group, &kind) else {
        let message = format!("cannot bind token to object of type {group}/{version}, Kind={kind}");
        return Err(ApiError::bad_request(message));
    };
    if object_reference.name.as_deref().unwrap_or_default().is_empty() {
        // The error of upstream's store for an empty name.
        return Err(ApiError::bad_request("Name parameter required."));
    }
    let (name, namespace) = (word(&object_reference.name), if namespaced { resource.namespace.as_str() } else { "" });
    let object = stored_object::get(store, plural, namespace, &name)
        .ok_or_else(|| ApiError::new(404, "NotFound", format!("{plural} {name:?} not found")))?;
    if claim == "pod" && object["spec"]["serviceAccountName"] != account {
        return Err(ApiError::bad_request(format!(
            "cannot bind token for serviceaccount {account:?} to pod running with different serviceaccount name."
        )));
    }
    let uid = object["metadata"]["uid"].as_str().unwrap_or("");
    match object_reference.uid.as_deref().filter(|requested| !requested.is_empty() && *requested != uid) {
        Some(requested) => {
            let message = format!(
                "the UID in the bound object reference ({requested}) does not match the UID in record. The object might have been deleted and then recreated"
            );
            Err(ApiError::conflict(GroupResource::core(&kind), &name, &message))
        }
        None => Ok((claim, object)),
    }
}

fn object_reference(object: &Value) -> Value {
    json!({"name": object["metadata"]["name"], "uid": object["metadata"]["uid"]})
}

/// Returns the reference of the node of a Pod.
fn node_reference(store: &Store, pod: &Value) -> Option<Value> {
    let name = pod["spec"]["nodeName"].as_str().filter(|n| !n.is_empty())?;
    Some(
        stored_object::get(store, "nodes", "", name)
            .map_or_else(|| json!({"name": name}), |node| object_reference(&node)),
    )
}
