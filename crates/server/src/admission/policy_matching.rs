//! Matching of policies and their bindings, and their parameters (`apiserver/pkg/admission/plugin/policy/{generic,matching}`).

use super::context::AdmissionContext;
use crate::objects::{conversion, kind_registry::ServedKinds};
use ::admission::{
    matching::{Matching, MatchingError},
    policy::{Binding, is_ignored},
};
use errors::ApiError;
use kinds::{Kind, selector};
use serde_json::Value;
use store::{Key, Scope};

/// Error of the configuration of a policy or a binding.
#[derive(Debug, thiserror::Error)]
pub(super) enum PolicyConfigurationError {
    #[error(transparent)]
    Matching(#[from] MatchingError),
    #[error("{0}")]
    Api(Box<ApiError>),
    #[error("failed to find resource referenced by paramKind: '{version}, Kind={kind}'")]
    ParamKind { version: String, kind: String },
    #[error("cannot use namespaced paramRef in policy binding that matches cluster-scoped resources")]
    NamespacedParamRef,
    #[error("paramRef.namespace must not be provided for a cluster-scoped `paramKind`")]
    ParamRefNamespace,
    #[error("no params found for policy binding with `Deny` parameterNotFoundAction")]
    NoParams,
}

impl From<ApiError> for PolicyConfigurationError {
    fn from(error: ApiError) -> Self {
        Self::Api(Box::new(error))
    }
}

/// Returns the index of the equivalent resource that a policy or binding matches, if there is one (`Matcher.Matches`).
pub(super) fn matching_resource(
    context: &AdmissionContext<'_>,
    matching: &Result<Matching, MatchingError>,
    object: Option<&Value>,
    old: Option<&Value>,
) -> Result<Option<usize>, PolicyConfigurationError> {
    let matching = matching.as_ref().map_err(Clone::clone)?;
    let equivalent =
        matching.matching_resource(&context.attributes).filter(|_| matching.matches_object_selector(object, old));
    let Some(equivalent) = equivalent else { return Ok(None) };
    let matches_namespace = context.matches_namespace_selector(matching, object)?;
    Ok(matches_namespace.then_some(equivalent))
}

/// As [`matching_resource`], for a policy, whose `paramKind` must be served.
pub(super) fn policy_matching_resource(
    context: &AdmissionContext<'_>,
    matching: &Result<Matching, MatchingError>,
    params: Option<&(String, String)>,
    object: Option<&Value>,
    old: Option<&Value>,
) -> Result<Option<usize>, PolicyConfigurationError> {
    let [group, _, resource] = &context.attributes.equivalent_resources[0].resource;
    let equivalent =
        if is_ignored(group, resource) { None } else { matching_resource(context, matching, object, old)? };
    if equivalent.is_some()
        && let Some(params) = params
    {
        param_kind(&context.control.kinds.served(), params)?;
    }
    Ok(equivalent)
}

/// Returns the kind of the parameters of a policy (`ensureParamsForPolicyLocked`).
fn param_kind<'a>(
    served: &'a ServedKinds,
    (version, kind): &'a (String, String),
) -> Result<&'a dyn Kind, PolicyConfigurationError> {
    let found = served.find_object_kind(version, kind);
    found.ok_or_else(|| PolicyConfigurationError::ParamKind { version: version.clone(), kind: kind.clone() })
}

/// Returns the variable `namespaceObject`: the Namespace of the request without some metadata, null for cluster-scoped objects
/// (`CreateNamespaceObject`).
pub(super) fn namespace_object(context: &AdmissionContext<'_>) -> Result<Value, ApiError> {
    let attributes = &context.attributes;
    if attributes.namespace.is_empty() || attributes.is_namespace() {
        return Ok(Value::Null);
    }
    let mut object = context.namespace()?;
    for field in ["managedFields", "ownerReferences", "selfLink"] {
        object["metadata"].as_object_mut().map(|m| m.remove(field));
    }
    Ok(object)
}

/// Returns the parameters of a policy for a binding; null without `paramKind` or `paramRef` (`CollectParams`).
pub(super) async fn collect_params(
    context: &AdmissionContext<'_>,
    kind: Option<&(String, String)>,
    binding: &Binding,
) -> Result<Vec<Value>, PolicyConfigurationError> {
    let (Some(kind), reference) = (kind, &binding.params) else { return Ok(vec![Value::Null]) };
    if reference.is_null() {
        return Ok(vec![Value::Null]);
    }
    let served = context.control.kinds.served();
    let kind = param_kind(&served, kind)?;
    let given = reference["namespace"].as_str().unwrap_or("");
    let namespace = match (kind.info().namespaced, given) {
        (true, "") if context.attributes.namespace.is_empty() => {
            return Err(PolicyConfigurationError::NamespacedParamRef);
        }
        (true, "") => context.attributes.namespace.as_str(),
        (true, given) => given,
        (false, "") => "",
        (false, _) => return Err(PolicyConfigurationError::ParamRefNamespace),
    };
    let found = find_params(context, kind, namespace, reference).await?;
    if found.is_empty() && reference["parameterNotFoundAction"] == "Deny" {
        return Err(PolicyConfigurationError::NoParams);
    }
    Ok(found)
}

async fn find_params(
    context: &AdmissionContext<'_>,
    kind: &dyn Kind,
    namespace: &str,
    reference: &Value,
) -> Result<Vec<Value>, ApiError> {
    let (control, storage) = (context.control, kind.info().storage);
    if let Some(name) = reference["name"].as_str().filter(|name| !name.is_empty()) {
        let stored = control.store.get(&Key::new(storage, namespace, name));
        let stored: Vec<store::Object> = stored.into_iter().collect();
        return conversion::decode_all(&control.webhooks, kind, &stored).await;
    }
    let scope = Scope::resource(storage).in_namespace(namespace);
    let all = control.store.list(&scope, None, None).objects;
    let mut all = conversion::decode_all(&control.webhooks, kind, &all).await?;
    all.retain(|o| selector::matches(&reference["selector"], &o["metadata"]["labels"]).unwrap_or(false));
    Ok(all)
}
