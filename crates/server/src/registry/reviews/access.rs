//! Access reviews: `kubectl auth can-i` (upstream's `pkg/registry/authorization`).

use super::{ReviewError, selectors};
use auth::authorization::Authorizer;
use errors::ApiError;
use kinds::{FieldErrors, FieldPath};
use request::{Attributes, Decision, RequestTarget, ResourceAttributes, UserInfo};
use serde_json::{Value, json};

/// SelfSubjectAccessReview.
pub(super) fn self_subject_access_review(
    authorizer: &Authorizer,
    user: &UserInfo,
    review: &mut Value,
) -> Result<(), ReviewError> {
    validate(review, false)?;
    decide(authorizer, user, review);
    Ok(())
}

/// SubjectAccessReview and LocalSubjectAccessReview.
pub(super) fn subject_access_review(authorizer: &Authorizer, review: &mut Value) -> Result<(), ReviewError> {
    validate(review, true)?;
    let spec = &review["spec"];
    let text = |field: &str| spec[field].as_str().unwrap_or("").to_owned();
    let list = |value: &Value| serde_json::from_value(value.clone()).unwrap_or_default();
    let extra = spec["extra"].as_object().into_iter().flatten();
    let extra = extra.map(|(key, values)| (key.clone(), list(values))).collect();
    let user = UserInfo { name: text("user"), uid: text("uid"), groups: list(&spec["groups"]), extra };
    decide(authorizer, &user, review);
    Ok(())
}

fn decide(authorizer: &Authorizer, user: &UserInfo, review: &mut Value) {
    let (allowed, reason) = match authorizer.authorize(user, &attributes(&review["spec"])) {
        Decision::Allowed(reason) => (true, reason),
        Decision::NoOpinion(reason) => (false, reason),
    };
    review["status"] = json!({"allowed": allowed});
    if !reason.is_empty() {
        review["status"]["reason"] = json!(reason);
    }
}

/// Returns the attributes that a review is about.
fn attributes(spec: &Value) -> Attributes {
    let (resource, other) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
    let text = |object: &Value, field: &str| object[field].as_str().unwrap_or("").to_owned();
    if resource.is_null() {
        return Attributes { verb: text(other, "verb"), target: RequestTarget::NonResource(text(other, "path")) };
    }
    let resource_attributes = ResourceAttributes {
        group: text(resource, "group"),
        resource: text(resource, "resource"),
        subresource: text(resource, "subresource"),
        namespace: text(resource, "namespace"),
        name: text(resource, "name"),
        field_requirements: field_requirements(&resource["fieldSelector"]),
    };
    Attributes::for_resource(&text(resource, "verb"), resource_attributes)
}

/// Returns the fields that a selector requires to have one value.
fn field_requirements(selector: &Value) -> Vec<(String, String)> {
    // As in the query of a request.
    if let Some(raw) = selector["rawSelector"].as_str().filter(|raw| !raw.is_empty()) {
        return request::field_requirements(raw);
    }
    let requirements = selector["requirements"].as_array().into_iter().flatten();
    let requirement = |r: &Value| match r["values"].as_array().map(Vec::as_slice) {
        Some([value]) if r["operator"] == "In" => Some((r["key"].as_str()?.to_owned(), value.as_str()?.to_owned())),
        _ => None,
    };
    requirements.filter_map(requirement).collect()
}

/// Upstream's `ValidateSubjectAccessReview`, and the validation of the related kinds.
fn validate(review: &Value, needs_subject: bool) -> Result<(), ReviewError> {
    let (mut errors, spec) = (FieldErrors::default(), &review["spec"]);
    let path = FieldPath::new("spec");
    let (resource, other) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
    if !resource.is_null() && !other.is_null() {
        let message = "cannot be specified in combination with resourceAttributes";
        // Upstream prints the internal type, with Go's field names.
        let shown = json!({"Path": other["path"].as_str().unwrap_or(""), "Verb": other["verb"].as_str().unwrap_or("")});
        errors.invalid(&path.child("nonResourceAttributes"), &shown, message);
    }
    if resource.is_null() && other.is_null() {
        let message = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
        errors.invalid(&path.child("resourceAttributes"), &Value::Null, message);
    }
    let has_no_subject =
        spec["user"].as_str().unwrap_or("").is_empty() && spec["groups"].as_array().is_none_or(Vec::is_empty);
    if needs_subject && has_no_subject {
        errors.invalid(&path.child("user"), &json!(""), "at least one of user or group must be specified");
    }
    selectors::validate(resource, &path.child("resourceAttributes"), &mut errors);
    metadata(review, &mut errors);
    if errors.is_empty() { Ok(()) } else { Err(ReviewError::Invalid(errors)) }
}

/// Validates the metadata of a review: it has no name, and the namespace of its request.
fn metadata(review: &Value, errors: &mut FieldErrors) {
    let (metadata, spec) = (&review["metadata"], &review["spec"]);
    let local = review["kind"] == "LocalSubjectAccessReview";
    let is_set = |(field, value): (&String, &Value)| {
        let counts = field != "managedFields" && !(local && field == "namespace");
        counts && !matches!(value, Value::Null) && *value != json!("")
    };
    if metadata.as_object().into_iter().flatten().any(is_set) {
        let message = if local { "must be empty except for namespace" } else { "must be empty" };
        errors.invalid(&FieldPath::new("metadata"), metadata, message);
    }
    if !local {
        return;
    }
    let (resource, other) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
    let path = FieldPath::new("spec");
    let namespace = resource["namespace"].as_str().unwrap_or("");
    if !resource.is_null() && metadata["namespace"] != namespace {
        let at = path.child("resourceAttributes").child("namespace");
        errors.invalid(&at, &json!(namespace), "must match metadata.namespace");
    }
    if !other.is_null() {
        errors.invalid(&path.child("nonResourceAttributes"), other, "disallowed on this kind of request");
    }
}

/// SelfSubjectRulesReview: the caller's rules in a namespace.
pub(super) fn self_subject_rules_review(
    authorizer: &Authorizer,
    user: &UserInfo,
    review: &mut Value,
) -> Result<(), ReviewError> {
    let namespace = review["spec"]["namespace"].as_str().unwrap_or("").to_owned();
    if namespace.is_empty() {
        return Err(ReviewError::Other(ApiError::bad_request("no namespace on request")));
    }
    let (mut resources, mut paths) = (Vec::new(), Vec::new());
    let errors = authorizer.rbac().with_resolver(|resolver| {
        let (rules, errors) = resolver.rules_for(user, &namespace);
        for rule in rules {
            let list = if rule.resources.is_empty() { None } else { Some(&mut resources) };
            list.into_iter().for_each(|list: &mut Vec<Value>| {
                let mut value = json!({"verbs": rule.verbs, "apiGroups": rule.api_groups, "resources": rule.resources});
                if !rule.resource_names.is_empty() {
                    value["resourceNames"] = json!(rule.resource_names);
                }
                list.push(value);
            });
            if !rule.non_resource_urls.is_empty() {
                paths.push(json!({"verbs": rule.verbs, "nonResourceURLs": rule.non_resource_urls}));
            }
        }
        errors
    });
    // The node authorizer allows more than the roles of a node.
    let node = auth::authorization::node::node_identity(user)
        .map(|_| "node authorizer does not support user rule resolution".to_owned());
    let incomplete = node.is_some();
    review["metadata"] = json!({});
    review["spec"] = json!({});
    review["status"] = json!({"resourceRules": resources, "nonResourceRules": paths, "incomplete": incomplete});
    if let Some(errors) = node.or(errors) {
        review["status"]["evaluationError"] = json!(errors);
    }
    Ok(())
}
