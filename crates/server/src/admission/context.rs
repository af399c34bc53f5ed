//! Context of a request in dynamic admission: its attributes, the conversion of its objects to equivalent resources, and the
//! authorizer of expressions.

use super::registrations::Registrations;
use crate::{
    admission::admission_control::AdmissionControl,
    objects::{call::Call, conversion, request_scope::RequestScope},
};
use ::admission::{
    AuthorizationAttributes, AuthorizationDecision, Authorizer,
    attributes::{Attributes, EquivalentResource, Operation},
    matching::Matching,
    webhook::is_exempt,
};
use apply::TypeRef;
use auth::stored_object;
use errors::ApiError;
use kinds::KindRef;
use request::{Decision, ResourceAttributes, user};
use serde_json::{Value, json};
use std::{fmt, sync::Arc};
use wire::typed;

/// A request for which webhooks and policies are called.
pub(crate) struct AdmissionContext<'a> {
    pub(crate) control: &'a AdmissionControl,
    pub(crate) call: &'a Call,
    pub(crate) attributes: Attributes,
    pub(super) registrations: Arc<Registrations>,
    pub(super) generate_name: String,
    /// The kinds of the equivalent resources; empty if the objects of the request are of another kind, for example Scale.
    kinds: Vec<KindRef>,
}

impl<'a> AdmissionContext<'a> {
    /// Creates the context of a request; `None` if nothing is registered. `options` are for example `CreateOptions`.
    pub(crate) fn new(
        control: &'a AdmissionControl,
        resource: &RequestScope,
        call: &'a Call,
        operation: Operation,
        options: impl FnOnce() -> Value,
    ) -> Option<Self> {
        let (info, registrations) = (resource.kind.info(), control.registrations.registrations());
        if registrations.is_empty() || is_exempt(info.group, info.plural) {
            return None;
        }
        let (options, mut kinds) = (options(), vec![resource.kind.clone()]);
        let others = resource.served.kinds_of_storage(info.storage).into_iter();
        let version = info.api_version();
        kinds.extend(others.filter(|kind| kind.info().api_version() != version));
        let equivalent = |kind: &KindRef| {
            let info = kind.info();
            let triple = |name: &str| [info.group, info.version, name].map(str::to_owned);
            EquivalentResource { resource: triple(info.plural), kind: triple(info.kind) }
        };
        let name = resource.name.clone().unwrap_or_default();
        let is_namespace = info.group.is_empty() && info.plural == "namespaces";
        let attributes = Attributes {
            operation,
            equivalent_resources: kinds.iter().map(equivalent).collect(),
            subresource: resource.subresource.clone().unwrap_or_default(),
            namespace: if is_namespace { name.clone() } else { resource.namespace.clone() },
            name,
            user: user::to_json(&call.user),
            dry: options["dryRun"].is_array(),
            options,
        };
        Some(Self { control, call, attributes, registrations, generate_name: String::new(), kinds })
    }

    /// Sets the kind of the objects, if it is not that of the resource.
    pub(crate) fn with_kind(mut self, kind: [&str; 3]) -> Self {
        self.kinds.clear();
        for equivalent in &mut self.attributes.equivalent_resources {
            equivalent.kind = kind.map(str::to_owned);
        }
        self
    }

    /// Sets the `generateName` of a new object.
    pub(crate) fn set_generate_name(&mut self, prefix: &str) {
        prefix.clone_into(&mut self.generate_name);
    }

    /// Sets the name of the object.
    pub(crate) fn set_name(&mut self, name: &str) {
        name.clone_into(&mut self.attributes.name);
        if self.attributes.is_namespace() {
            name.clone_into(&mut self.attributes.namespace);
        }
    }

    /// Whether the namespace selector matches (`MatchNamespaceSelector`).
    pub(super) fn matches_namespace_selector(
        &self,
        matching: &Matching,
        object: Option<&Value>,
    ) -> Result<bool, ApiError> {
        if !matching.has_namespace_selector(&self.attributes) {
            return Ok(true);
        }
        // The labels of a Namespace that is created or updated are the new ones.
        let namespace_object =
            object.filter(|_| self.attributes.is_namespace() && self.attributes.subresource.is_empty());
        let labels = match namespace_object {
            Some(namespace) => namespace["metadata"]["labels"].clone(),
            None => self.namespace()?["metadata"]["labels"].take(),
        };
        Ok(matching.matches_namespace_selector(&labels))
    }

    /// Returns the Namespace of the request.
    pub(super) fn namespace(&self) -> Result<Value, ApiError> {
        let name = self.attributes.namespace.as_str();
        let namespace = stored_object::try_get(&self.control.store, "namespaces", "", name);
        namespace.map_err(ApiError::internal)?.ok_or_else(|| ApiError::namespace_not_found(name))
    }

    /// Converts an object of the request to an equivalent resource (`VersionedObject`).
    pub(super) async fn versioned_object(&self, object: Option<&Value>, equivalent: usize) -> Result<Value, ApiError> {
        let Some(object) = object else { return Ok(Value::Null) };
        self.convert(object.clone(), 0, equivalent).await
    }

    async fn convert(&self, object: Value, from: usize, to: usize) -> Result<Value, ApiError> {
        match (self.kinds.get(from), self.kinds.get(to)) {
            (Some(source), Some(target)) if from != to => {
                conversion::convert(&self.control.webhooks, &**source, &**target, object).await
            }
            _ => Ok(object),
        }
    }

    /// Converts a mutated object of an equivalent resource back to the resource of the request, with defaults and without
    /// unknown fields.
    pub(super) async fn request_object(&self, mut mutated: Value, equivalent: usize) -> Result<Value, ApiError> {
        let Some(kind) = self.kinds.get(equivalent) else {
            let [group, version, kind] = &self.attributes.equivalent_resources[equivalent].kind;
            let api_version = if group.is_empty() { version.clone() } else { format!("{group}/{version}") };
            return typed::decode_object(&api_version, kind, &mut mutated).map(|_| mutated).map_err(ApiError::internal);
        };
        kind.decode(&mut mutated).map_err(ApiError::internal)?;
        kind.set_defaults(&mut mutated);
        let mut object = self.convert(mutated, equivalent, 0).await?;
        if equivalent > 0 {
            self.kinds[0].set_defaults(&mut object);
        }
        Ok(object)
    }

    /// Returns the merge schema of an equivalent resource, if it is known.
    pub(super) fn type_ref(&self, equivalent: usize) -> Option<TypeRef<'_>> {
        let Some(kind) = self.kinds.get(equivalent) else {
            let [group, version, kind] = &self.attributes.equivalent_resources.get(equivalent)?.kind;
            return kinds::apply_types::type_ref(&format!("{group}/{version}"), kind);
        };
        kind.type_ref()
    }

    /// Returns the errors for unknown fields of an object of an equivalent resource.
    pub(super) fn unknown_fields(&self, object: &Value, equivalent: usize) -> Result<Vec<String>, ApiError> {
        let Some(kind) = self.kinds.get(equivalent).filter(|kind| !kind.is_custom()) else { return Ok(Vec::new()) };
        kind.decode(&mut object.clone()).map_err(ApiError::internal)
    }

    /// Returns the authorizer of expressions.
    pub(super) fn authorizer(&self) -> Arc<dyn Authorizer> {
        let resource = |i: usize| {
            self.attributes
                .equivalent_resources
                .first()
                .map_or_else(String::new, |resource| resource.resource[i].clone())
        };
        Arc::new(RequestAuthorizer {
            authorizer: Arc::clone(&self.control.authorizer),
            user: self.call.user.clone(),
            request: AuthorizationAttributes {
                group: resource(0),
                resource: resource(2),
                subresource: self.attributes.subresource.clone(),
                namespace: self.attributes.namespace.clone(),
                name: self.attributes.name.clone(),
                ..AuthorizationAttributes::default()
            },
        })
    }
}

/// Returns the options of a write, as in the AdmissionRequest.
pub(crate) fn operation_options(call: &Call, kind: &str, dry: bool) -> Value {
    let mut options = json!({"kind": kind, "apiVersion": "meta.k8s.io/v1"});
    if dry {
        options["dryRun"] = json!(["All"]);
    }
    for field in ["fieldManager", "fieldValidation"] {
        if let Some(value) = call.query.get(field).filter(|_| kind != "DeleteOptions") {
            options[field] = json!(value);
        }
    }
    options
}

/// Authorizer of CEL expressions, with the user of the request.
struct RequestAuthorizer {
    authorizer: Arc<auth::authorization::Authorizer>,
    user: request::UserInfo,
    request: AuthorizationAttributes,
}

impl fmt::Debug for RequestAuthorizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestAuthorizer").field("user", &self.user.name).finish_non_exhaustive()
    }
}

impl Authorizer for RequestAuthorizer {
    fn authorize(&self, check: &AuthorizationAttributes) -> AuthorizationDecision {
        let check = check.clone();
        let attributes = match check.path {
            Some(path) => request::Attributes { verb: check.verb, target: request::RequestTarget::NonResource(path) },
            None => {
                let resource = ResourceAttributes {
                    group: check.group,
                    resource: check.resource,
                    subresource: check.subresource,
                    namespace: check.namespace,
                    name: check.name,
                    ..ResourceAttributes::default()
                };
                request::Attributes::for_resource(&check.verb, resource)
            }
        };
        let account = check.account.map(|(namespace, name)| user::service_account(&namespace, &name));
        match self.authorizer.authorize(account.as_ref().unwrap_or(&self.user), &attributes) {
            Decision::Allowed(reason) => AuthorizationDecision { allowed: true, reason },
            Decision::NoOpinion(reason) => AuthorizationDecision { allowed: false, reason },
        }
    }

    fn request(&self) -> AuthorizationAttributes {
        self.request.clone()
    }
}
