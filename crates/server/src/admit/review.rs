//! A request as webhooks and policies see it: what it is about, in which forms, and who asks.

use super::hooks::Asked;
use crate::{
    authorization::{self, Decision, ResourceAttributes},
    conversion,
    kinds::KindRef,
    managed_fields,
    request::RequestInfo,
    service::{ApiServer, Call},
    status::ApiError,
    typed, user,
};
use admission::{
    AuthorizationAttributes, AuthorizationDecision, Authorizer,
    attributes::{Attributes, EquivalentResource, Operation},
    matching::Matching,
    webhook::is_exempt,
};
use apply::TypeRef;
use serde_json::{Value, json};
use std::{fmt, sync::Arc};
use store::Key;

/// A request that somebody is asked about.
pub(crate) struct Review<'a> {
    pub(crate) server: &'a ApiServer,
    pub(crate) call: &'a Call,
    pub(crate) about: Attributes,
    pub(crate) asked: Arc<Asked>,
    /// How the name begins that an object will get.
    pub(super) prefix: String,
    /// The kinds of the forms; none when the objects of the request are of a kind of their own, as a Scale is.
    kinds: Vec<KindRef>,
}

impl<'a> Review<'a> {
    /// The request, if there is anybody to ask. `options` is for example `CreateOptions`.
    pub(crate) fn of(
        server: &'a ApiServer,
        resource: &RequestInfo,
        call: &'a Call,
        operation: Operation,
        options: impl FnOnce() -> Value,
    ) -> Option<Self> {
        let (info, asked) = (resource.kind.info(), server.hooks.asked());
        if asked.is_empty() || is_exempt(info.group, info.plural) {
            return None;
        }
        let (options, mut kinds) = (options(), vec![resource.kind.clone()]);
        let others = resource.served.kinds_of_storage(info.storage).into_iter();
        let version = info.api_version();
        kinds.extend(others.filter(|kind| kind.info().api_version() != version));
        let form = |kind: &KindRef| {
            let info = kind.info();
            let of = |name: &str| [info.group, info.version, name].map(str::to_owned);
            EquivalentResource { resource: of(info.plural), kind: of(info.kind) }
        };
        let name = resource.name.clone().unwrap_or_default();
        let is_namespace = info.group.is_empty() && info.plural == "namespaces";
        let about = Attributes {
            operation,
            forms: kinds.iter().map(form).collect(),
            subresource: resource.subresource.clone().unwrap_or_default(),
            namespace: if is_namespace { name.clone() } else { resource.namespace.clone() },
            name,
            user: user::to_json(&call.user),
            dry: options["dryRun"].is_array(),
            options,
        };
        Some(Self { server, call, about, asked, prefix: String::new(), kinds })
    }

    /// The same, of which the objects are of this kind.
    pub(crate) fn of_kind(mut self, kind: [&str; 3]) -> Self {
        self.kinds.clear();
        for form in &mut self.about.forms {
            form.kind = kind.map(str::to_owned);
        }
        self
    }

    /// The object gets a name that begins so.
    pub(crate) fn generates(&mut self, prefix: &str) {
        prefix.clone_into(&mut self.prefix);
    }

    /// From now on, it is about an object of this name.
    pub(crate) fn named(&mut self, name: &str) {
        name.clone_into(&mut self.about.name);
        if self.about.is_namespace() {
            name.clone_into(&mut self.about.namespace);
        }
    }

    /// Whether the namespace is one that is asked about.
    pub(crate) fn selects_namespace(&self, matching: &Matching, object: Option<&Value>) -> Result<bool, ApiError> {
        if !matching.asks_for_namespace(&self.about) {
            return Ok(true);
        }
        // A namespace that comes, or changes, is as it will be.
        let own = object.filter(|_| self.about.is_namespace() && self.about.subresource.is_empty());
        let labels = match own {
            Some(namespace) => namespace["metadata"]["labels"].clone(),
            None => self.namespace()?["metadata"]["labels"].take(),
        };
        Ok(matching.selects_namespace(&labels))
    }

    /// The namespace of the request.
    pub(crate) fn namespace(&self) -> Result<Value, ApiError> {
        let name = self.about.namespace.as_str();
        let stored = self.server.store.get(&Key::new("namespaces", "", name));
        let stored = stored.ok_or_else(|| ApiError::namespace_not_found(name))?;
        serde_json::from_slice(&stored.data).map_err(ApiError::internal)
    }

    /// An object of the request in one of its forms.
    pub(crate) async fn in_form(&self, object: Option<&Value>, form: usize) -> Result<Value, ApiError> {
        let Some(object) = object else { return Ok(Value::Null) };
        self.between(object.clone(), 0, form).await
    }

    async fn between(&self, object: Value, from: usize, to: usize) -> Result<Value, ApiError> {
        match (self.kinds.get(from), self.kinds.get(to)) {
            (Some(before), Some(after)) if from != to => {
                conversion::convert(&self.server.webhooks, &**before, &**after, object).await
            }
            _ => Ok(object),
        }
    }

    /// What somebody made of an object in a form, as the request has it: with its defaults, and without what its kind does
    /// not know.
    pub(crate) async fn taken(&self, mut made: Value, form: usize) -> Result<Value, ApiError> {
        let Some(kind) = self.kinds.get(form) else {
            let [group, version, kind] = &self.about.forms[form].kind;
            let api_version = if group.is_empty() { version.clone() } else { format!("{group}/{version}") };
            return typed::object(&api_version, kind, &mut made).map(|_| made).map_err(ApiError::internal);
        };
        kind.decode(&mut made).map_err(ApiError::internal)?;
        kind.set_defaults(&mut made);
        let mut object = self.between(made, form, 0).await?;
        if form > 0 {
            self.kinds[0].set_defaults(&mut object);
        }
        Ok(object)
    }

    /// How the objects of a form are merged, if that is known.
    pub(crate) fn types(&self, form: usize) -> Option<TypeRef<'_>> {
        let Some(kind) = self.kinds.get(form) else {
            let [group, version, kind] = &self.about.forms.get(form)?.kind;
            return managed_fields::types::of(&format!("{group}/{version}"), kind);
        };
        kind.type_ref()
    }

    /// What an object in a form has that its kind does not know.
    pub(crate) fn unknown_fields(&self, object: &Value, form: usize) -> Result<Vec<String>, ApiError> {
        let Some(kind) = self.kinds.get(form).filter(|kind| !kind.is_custom()) else { return Ok(Vec::new()) };
        kind.decode(&mut object.clone()).map_err(ApiError::internal)
    }

    /// Who says what somebody may do.
    pub(crate) fn authority(&self) -> Arc<dyn Authorizer> {
        let resource = |i: usize| self.about.forms.first().map_or_else(String::new, |form| form.resource[i].clone());
        Arc::new(Authority {
            server: self.server.clone(),
            user: self.call.user.clone(),
            request: AuthorizationAttributes {
                group: resource(0),
                resource: resource(2),
                subresource: self.about.subresource.clone(),
                namespace: self.about.namespace.clone(),
                name: self.about.name.clone(),
                ..AuthorizationAttributes::default()
            },
        })
    }
}

/// The options of a request that writes, as reviews show them.
pub(crate) fn options(call: &Call, kind: &str, dry: bool) -> Value {
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

struct Authority {
    server: ApiServer,
    user: crate::UserInfo,
    request: AuthorizationAttributes,
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority").field("user", &self.user.name).finish_non_exhaustive()
    }
}

impl Authorizer for Authority {
    fn authorize(&self, question: &AuthorizationAttributes) -> AuthorizationDecision {
        let question = question.clone();
        let wanted = match question.path {
            Some(path) => authorization::Attributes {
                verb: question.verb,
                target: authorization::RequestTarget::NonResource(path),
            },
            None => {
                let about = ResourceAttributes {
                    group: question.group,
                    resource: question.resource,
                    subresource: question.subresource,
                    namespace: question.namespace,
                    name: question.name,
                    ..ResourceAttributes::default()
                };
                authorization::Attributes::for_resource(&question.verb, about)
            }
        };
        let account = question.account.map(|(namespace, name)| user::service_account(&namespace, &name));
        match authorization::authorize(&self.server, account.as_ref().unwrap_or(&self.user), &wanted) {
            Decision::Allowed(reason) => AuthorizationDecision { allowed: true, reason },
            Decision::NoOpinion(reason) => AuthorizationDecision { allowed: false, reason },
        }
    }

    fn request(&self) -> AuthorizationAttributes {
        self.request.clone()
    }
}
