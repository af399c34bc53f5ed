//! Whoever writes a policy may read what configures it, and whoever binds one what it is bound to: policies tell what they
//! read (`pkg/registry/admissionregistration/{validating,mutating}admissionpolicy{,binding}/authz.go`).

use super::{Attributes, Decision, ResourceAbout, decide};
use crate::{
    ApiServer, UserInfo,
    kinds::{FieldErrors, FieldPath},
    request::RequestInfo,
};
use serde_json::Value;
use store::Key;

const GROUP: &str = "admissionregistration.k8s.io";

/// What a policy or a binding names that the user may not read; `old` is there for a change.
pub(crate) fn check_params(
    server: &ApiServer,
    user: &UserInfo,
    resource: &RequestInfo,
    new: &Value,
    old: Option<&Value>,
    errors: &mut FieldErrors,
) {
    let info = resource.kind.info();
    if info.group != GROUP || user.is_master() || resource.subresource.is_some() {
        return;
    }
    let (spec, before, path) = (&new["spec"], old.map(|old| &old["spec"]), FieldPath::new("spec"));
    let reader = Reader { server, user };
    match info.plural {
        "validatingadmissionpolicies" | "mutatingadmissionpolicies"
            if spec["paramKind"].is_object() && before.is_none_or(|old| old["paramKind"] != spec["paramKind"]) =>
        {
            if let Err(why) = reader.of_kind(&spec["paramKind"]) {
                errors.forbidden(&path.child("paramKind"), &why);
            }
        }
        // Where it holds says of which namespaces it reads, too.
        "validatingadmissionpolicybindings" | "mutatingadmissionpolicybindings"
            if spec["paramRef"].is_object() && before != Some(spec) =>
        {
            if let Err(why) = reader.of_binding(info.plural, spec) {
                errors.forbidden(&path.child("paramRef"), &why);
            }
        }
        _ => {}
    }
}

/// Whoever must be able to read.
struct Reader<'a> {
    server: &'a ApiServer,
    user: &'a UserInfo,
}

impl Reader<'_> {
    /// A policy may be bound to any object of its kind of parameters.
    fn of_kind(&self, kind: &Value) -> Result<(), String> {
        if self.may("get", kind, "*", "*") {
            return Ok(());
        }
        let text = |field: &str| kind[field].as_str().unwrap_or("");
        Err(format!(
            "user {} must have \"get\" permission on all objects of the referenced paramKind (kind={}, apiVersion={})",
            shown(self.user),
            text("kind"),
            text("apiVersion")
        ))
    }

    fn of_binding(&self, plural: &str, spec: &Value) -> Result<(), String> {
        let policies = plural.replace("policybindings", "policies");
        let policy = Key::new(policies.as_str(), "", spec["policyName"].as_str().unwrap_or(""));
        let policy = self.server.store.get(&policy);
        let policy = policy.and_then(|stored| serde_json::from_slice::<Value>(&stored.data).ok()).unwrap_or_default();
        let text = |field: &str| spec["paramRef"][field].as_str().unwrap_or("");
        // Upstream tells them apart for mutating policies alone.
        let verb = if text("name").is_empty() && plural.starts_with("mutating") { "list" } else { "get" };
        if self.may(verb, &policy["spec"]["paramKind"], text("namespace"), text("name")) {
            return Ok(());
        }
        let user = shown(self.user);
        Err(format!("user {user} does not have {verb:?} permission on the object referenced by paramRef"))
    }

    /// Of a kind that is not known it must be anything.
    fn may(&self, verb: &str, kind: &Value, namespace: &str, name: &str) -> bool {
        let any = || "*".to_owned();
        let (group, resource) = match (kind["apiVersion"].as_str(), kind["kind"].as_str()) {
            (Some(version), Some(kind)) => {
                let served = self.server.registry.served();
                let plural =
                    served.find_object_kind(version, kind).map_or_else(any, |kind| kind.info().plural.to_owned());
                (version.rsplit_once('/').map_or("", |(group, _)| group).to_owned(), plural)
            }
            _ => (any(), any()),
        };
        let [namespace, name] = [namespace, name].map(str::to_owned);
        let about = ResourceAbout { group, resource, namespace, name, ..ResourceAbout::default() };
        matches!(decide(self.server, self.user, &Attributes::to(verb, about)), Decision::Allowed(_))
    }
}

/// As Go shows it.
fn shown(user: &UserInfo) -> String {
    let extra: Vec<String> = user.extra.iter().map(|(key, values)| format!("{key}:[{}]", values.join(" "))).collect();
    format!("&{{{} {} [{}] map[{}]}}", user.name, user.uid, user.groups.join(" "), extra.join(" "))
}
