//! Parameters of admission policies: a user who writes a policy or a binding must be authorized to read the parameters,
//! which the policy could disclose
//! (`pkg/registry/admissionregistration/{validating,mutating}admissionpolicy{,binding}/authz.go`).

use crate::objects::{kind_registry::ServedKinds, request_scope::RequestScope};
use auth::{authorization::Authorizer, stored_object};
use kinds::{FieldErrors, FieldPath};
use request::{Attributes, Decision, ResourceAttributes, UserInfo};
use serde_json::Value;
use store::Store;

const GROUP: &str = "admissionregistration.k8s.io";

/// Adds an error for parameters that the user may not read. `old` is set for an update.
pub(crate) fn check_policy_params(
    store: &Store,
    authorizer: &Authorizer,
    user: &UserInfo,
    resource: &RequestScope,
    new: &Value,
    old: Option<&Value>,
    errors: &mut FieldErrors,
) {
    let info = resource.kind.info();
    if info.group != GROUP || user.is_master() || resource.subresource.is_some() {
        return;
    }
    let (spec, old_spec, path) = (&new["spec"], old.map(|old| &old["spec"]), FieldPath::new("spec"));
    let authorizer = ParamAuthorizer { store, authorizer, served: &resource.served, user };
    match info.plural {
        "validatingadmissionpolicies" | "mutatingadmissionpolicies"
            if spec["paramKind"].is_object() && old_spec.is_none_or(|old| old["paramKind"] != spec["paramKind"]) =>
        {
            if let Err(error) = authorizer.check_param_kind(&spec["paramKind"]) {
                errors.forbidden(&path.child("paramKind"), &error.to_string());
            }
        }
        // `matchResources` also determines the namespaces of the parameters.
        "validatingadmissionpolicybindings" | "mutatingadmissionpolicybindings"
            if spec["paramRef"].is_object() && old_spec != Some(spec) =>
        {
            if let Err(error) = authorizer.check_param_ref(info.plural, spec) {
                errors.forbidden(&path.child("paramRef"), &error.to_string());
            }
        }
        _ => {}
    }
}

/// Error of a user who may not read the parameters.
#[derive(Debug, thiserror::Error)]
enum ParamAccessError {
    #[error(
        "user {user} must have \"get\" permission on all objects of the referenced paramKind (kind={kind}, apiVersion={api_version})"
    )]
    Kind { user: String, kind: String, api_version: String },
    #[error("user {user} does not have {verb:?} permission on the object referenced by paramRef")]
    Ref { user: String, verb: &'static str },
}

/// Authorizes a user to read parameters.
struct ParamAuthorizer<'a> {
    store: &'a Store,
    authorizer: &'a Authorizer,
    served: &'a ServedKinds,
    user: &'a UserInfo,
}

impl ParamAuthorizer<'_> {
    /// A policy may be bound to any object of its `paramKind`.
    fn check_param_kind(&self, kind: &Value) -> Result<(), ParamAccessError> {
        if self.is_authorized("get", kind, "*", "*") {
            return Ok(());
        }
        let text = |field: &str| kind[field].as_str().unwrap_or("").to_owned();
        let (kind, api_version) = (text("kind"), text("apiVersion"));
        Err(ParamAccessError::Kind { user: go_format(self.user), kind, api_version })
    }

    fn check_param_ref(&self, plural: &str, spec: &Value) -> Result<(), ParamAccessError> {
        let policies = plural.replace("policybindings", "policies");
        let name = spec["policyName"].as_str().unwrap_or("");
        let policy = stored_object::get(self.store, policies, "", name).unwrap_or_default();
        let text = |field: &str| spec["paramRef"][field].as_str().unwrap_or("");
        // Upstream distinguishes the verbs for mutating policies only.
        let verb = if text("name").is_empty() && plural.starts_with("mutating") { "list" } else { "get" };
        if self.is_authorized(verb, &policy["spec"]["paramKind"], text("namespace"), text("name")) {
            return Ok(());
        }
        Err(ParamAccessError::Ref { user: go_format(self.user), verb })
    }

    /// Whether the user may read objects of a kind; of an unknown kind, all resources.
    fn is_authorized(&self, verb: &str, kind: &Value, namespace: &str, name: &str) -> bool {
        let any = || "*".to_owned();
        let (group, resource) = match (kind["apiVersion"].as_str(), kind["kind"].as_str()) {
            (Some(version), Some(kind)) => {
                let plural =
                    self.served.find_object_kind(version, kind).map_or_else(any, |kind| kind.info().plural.to_owned());
                (version.rsplit_once('/').map_or("", |(group, _)| group).to_owned(), plural)
            }
            _ => (any(), any()),
        };
        let [namespace, name] = [namespace, name].map(str::to_owned);
        let attributes = ResourceAttributes { group, resource, namespace, name, ..ResourceAttributes::default() };
        matches!(
            self.authorizer.authorize(self.user, &Attributes::for_resource(verb, attributes)),
            Decision::Allowed(_)
        )
    }
}

/// Formats a user as Go's `%v` of `user.DefaultInfo`.
fn go_format(user: &UserInfo) -> String {
    let extra: Vec<String> = user.extra.iter().map(|(key, values)| format!("{key}:[{}]", values.join(" "))).collect();
    format!("&{{{} {} [{}] map[{}]}}", user.name, user.uid, user.groups.join(" "), extra.join(" "))
}
