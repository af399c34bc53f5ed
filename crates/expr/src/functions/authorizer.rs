//! `authorizer`: whether somebody may do something. Who decides is given with the value.

use crate::{EvalError, Value, eval::Evaluator, eval::Outcome};
use std::{fmt::Debug, sync::Arc};

/// What a question costs.
const COST: u64 = 350_000;

/// Decides who may do what.
pub trait Authorize: Debug + Send + Sync {
    /// Whether it may be done.
    fn decide(&self, question: &Question) -> Verdict;

    /// What the request itself is about.
    fn request(&self) -> Question;
}

/// What somebody wants to do; what is not said is empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names of Kubernetes' attributes")]
pub struct Question {
    /// Namespace and name of the service account that is meant; without one it is whoever makes the request.
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

/// Whether somebody may.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// Whether it is allowed.
    pub allowed: bool,
    /// Why, or why not.
    pub reason: String,
}

/// A question that is being put together.
#[derive(Debug, Clone)]
pub struct Asking {
    authority: Arc<dyn Authorize>,
    question: Question,
    /// Its type's name in the table of functions.
    pub(crate) stage: &'static str,
}

impl Asking {
    /// Where every question begins.
    pub fn new(authority: Arc<dyn Authorize>) -> Self {
        Self { authority, question: Question::default(), stage: "authorizer" }
    }

    /// The value of `authorizer.requestResource`.
    pub(crate) fn of_request(&self) -> Value {
        let account = self.question.account.clone();
        let question = Question { account, ..self.authority.request() };
        Value::Asking(Arc::new(Self { authority: Arc::clone(&self.authority), question, stage: "resourcecheck" }))
    }
}

pub(super) fn on(evaluator: &mut Evaluator, name: &str, asking: &Asking, args: &[Value]) -> Outcome {
    let texts: Option<Vec<String>> =
        args.iter().map(|arg| if let Value::String(text) = arg { Some(text.to_string()) } else { None }).collect();
    let mut next = asking.clone();
    let question = &mut next.question;
    match (asking.stage, name, texts.as_deref()) {
        ("authorizer", "serviceAccount", Some([namespace, name])) => {
            for (what, wrong) in
                [("name", api::names::dns1123_subdomain(name)), ("namespace", api::names::dns1123_label(namespace))]
            {
                if !wrong.is_empty() {
                    return Err(EvalError::new(format!("Invalid service account {what}")));
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
        // What is allowed for everything is allowed for what has a label, too.
        ("resourcecheck", "labelSelector", Some([_])) => {}
        ("resourcecheck" | "pathcheck", "check", Some([verb])) => {
            evaluator.pay(COST)?;
            question.verb.clone_from(verb);
            return Ok(Value::Verdict(Arc::new(next.authority.decide(&next.question))));
        }
        _ => return Err(EvalError::overload()),
    }
    Ok(Value::Asking(Arc::new(next)))
}

pub(super) fn of_verdict(name: &str, verdict: &Verdict, args: &[Value]) -> Outcome {
    match (name, args) {
        ("allowed", []) => Ok(Value::Bool(verdict.allowed)),
        ("reason", []) => Ok(Value::text(&verdict.reason)),
        ("errored", []) => Ok(Value::Bool(false)),
        ("error", []) => Ok(Value::text("")),
        _ => Err(EvalError::overload()),
    }
}
