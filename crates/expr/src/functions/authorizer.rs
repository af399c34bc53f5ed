//! Authorizer library (`apiserver/pkg/cel/library/authz.go`). The authorizer is part of the value.

use crate::{
    EvalError, Value,
    eval::{Evaluator, Outcome},
};
use std::{fmt::Debug, sync::Arc};

/// Cost of an authorization check.
const CHECK_COST: u64 = 350_000;

/// Authorizes requests.
pub trait Authorizer: Debug + Send + Sync {
    /// Returns the decision for a check.
    fn authorize(&self, question: &AuthorizationAttributes) -> AuthorizationDecision;

    /// Returns the attributes of the current request (`authorizer.requestResource`).
    fn request(&self) -> AuthorizationAttributes;
}

/// Attributes of an authorization check; unset attributes are empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names of Kubernetes' attributes")]
pub struct AuthorizationAttributes {
    /// Namespace and name of the service account; `None` for the user of the current request.
    pub account: Option<(String, String)>,
    pub path: Option<String>,
    pub verb: String,
    pub group: String,
    pub resource: String,
    pub subresource: String,
    pub namespace: String,
    pub name: String,
    pub field_selector: String,
}

/// Decision of an authorizer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthorizationDecision {
    /// Whether the request is allowed.
    pub allowed: bool,
    /// Reason of the decision.
    pub reason: String,
}

/// Builder of an authorization check.
#[derive(Debug, Clone)]
pub struct AuthorizerBuilder {
    authority: Arc<dyn Authorizer>,
    question: AuthorizationAttributes,
    /// Name of the builder's type in the table of functions.
    pub(crate) stage: &'static str,
}

impl AuthorizerBuilder {
    /// Creates the value of the variable `authorizer`.
    pub fn new(authority: Arc<dyn Authorizer>) -> Self {
        Self { authority, question: AuthorizationAttributes::default(), stage: "authorizer" }
    }

    /// Returns the value of `authorizer.requestResource`.
    pub(crate) fn request_resource(&self) -> Value {
        let account = self.question.account.clone();
        let question = AuthorizationAttributes { account, ..self.authority.request() };
        Value::Authorizer(Arc::new(Self { authority: Arc::clone(&self.authority), question, stage: "resourcecheck" }))
    }
}

/// Calls a method of an authorizer or check.
pub(super) fn call_method(
    evaluator: &mut Evaluator,
    name: &str,
    builder: &AuthorizerBuilder,
    args: &[Value],
) -> Outcome {
    let texts: Option<Vec<String>> =
        args.iter().map(|arg| if let Value::String(text) = arg { Some(text.to_string()) } else { None }).collect();
    let mut next = builder.clone();
    let question = &mut next.question;
    match (builder.stage, name, texts.as_deref()) {
        ("authorizer", "serviceAccount", Some([namespace, name])) => {
            for (field, errors) in
                [("name", api::names::dns1123_subdomain(name)), ("namespace", api::names::dns1123_label(namespace))]
            {
                if !errors.is_empty() {
                    return Err(EvalError::new(format!("Invalid service account {field}")));
                }
            }
            question.account = Some((namespace.clone(), name.clone()));
        }
        ("authorizer", "path", Some([path])) => {
            question.path = Some(path.clone());
            next.stage = "pathcheck";
        }
        ("authorizer", "group", Some([group])) => {
            question.group.clone_from(group);
            next.stage = "groupcheck";
        }
        ("groupcheck", "resource", Some([resource])) => {
            question.resource.clone_from(resource);
            next.stage = "resourcecheck";
        }
        ("resourcecheck", "subresource", Some([part])) => question.subresource.clone_from(part),
        ("resourcecheck", "namespace", Some([namespace])) => question.namespace.clone_from(namespace),
        ("resourcecheck", "name", Some([name])) => question.name.clone_from(name),
        ("resourcecheck", "fieldSelector", Some([selector])) => question.field_selector.clone_from(selector),
        // Podium's authorizer ignores label selectors: a permission without one also covers labeled objects.
        ("resourcecheck", "labelSelector", Some([_])) => {}
        ("resourcecheck" | "pathcheck", "check", Some([verb])) => {
            evaluator.charge(CHECK_COST)?;
            question.verb.clone_from(verb);
            return Ok(Value::Verdict(Arc::new(next.authority.authorize(&next.question))));
        }
        _ => return Err(EvalError::overload()),
    }
    Ok(Value::Authorizer(Arc::new(next)))
}

/// Calls a method of a decision.
pub(super) fn call_decision_method(name: &str, verdict: &AuthorizationDecision, args: &[Value]) -> Outcome {
    match (name, args) {
        ("allowed", []) => Ok(Value::Bool(verdict.allowed)),
        ("reason", []) => Ok(Value::string(&verdict.reason)),
        ("errored", []) => Ok(Value::Bool(false)),
        ("error", []) => Ok(Value::string("")),
        _ => Err(EvalError::overload()),
    }
}
