//! A Pod as the checks look at it, and how they say what they found.

use super::Violation;
use api::pod;
use k8s_openapi::{
    api::core::v1::{Container, PodSecurityContext, PodSpec, SecurityContext},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use std::{borrow::Cow, collections::BTreeSet};

pub(super) struct Subject<'a> {
    pub(super) meta: &'a ObjectMeta,
    pub(super) spec: &'a PodSpec,
    /// The version of the standards.
    pub(super) minor: u32,
    /// Init containers, then containers, then ephemeral ones.
    containers: Vec<Cow<'a, Container>>,
}

impl<'a> Subject<'a> {
    pub(super) fn new(meta: &'a ObjectMeta, spec: &'a PodSpec, minor: u32) -> Self {
        let lasting = spec.init_containers.iter().flatten().chain(&spec.containers).map(Cow::Borrowed);
        let containers = lasting.chain(pod::ephemeral(spec).into_iter().map(Cow::Owned)).collect();
        Self { meta, spec, minor, containers }
    }

    pub(super) fn pod(&self) -> Option<&PodSecurityContext> {
        self.spec.security_context.as_ref()
    }

    pub(super) fn containers(&self) -> impl Iterator<Item = &Container> {
        self.containers.iter().map(AsRef::as_ref)
    }

    /// The names of the containers for which this holds.
    pub(super) fn names(&self, holds: impl Fn(&Container) -> bool) -> Vec<&str> {
        self.containers().filter(|c| holds(c)).map(|c| c.name.as_str()).collect()
    }

    /// The names of the containers whose security context has this.
    pub(super) fn with(&self, has: impl Fn(&SecurityContext) -> bool) -> Vec<&str> {
        self.names(|c| c.security_context.as_ref().is_some_and(&has))
    }

    /// Windows has no such thing, and validation no way to set it.
    pub(super) fn is_windows(&self) -> bool {
        self.spec.os.as_ref().is_some_and(|os| os.name == "windows")
    }

    /// Whether root in the Pod is nobody outside (KEP-127).
    pub(super) fn has_own_users(&self) -> bool {
        self.spec.host_users == Some(false)
    }
}

pub(super) fn violation(reason: &'static str, detail: String) -> Option<Violation> {
    Some(Violation { reason, detail })
}

pub(super) fn plural<'a>(count: usize, one: &'a str, many: &'a str) -> &'a str {
    if count == 1 { one } else { many }
}

pub(super) fn quoted<S: AsRef<str>>(items: impl IntoIterator<Item = S>) -> String {
    let items: Vec<String> = items.into_iter().map(|item| format!("\"{}\"", item.as_ref())).collect();
    items.join(", ")
}

/// `container "a"`, `containers "a", "b"`.
pub(super) fn named(containers: &[&str]) -> String {
    format!("{} {}", plural(containers.len(), "container", "containers"), quoted(containers))
}

/// Who sets something, on the Pod and on containers; `None` for nobody.
pub(super) fn setters(pod: bool, containers: &[&str]) -> Option<String> {
    let containers = (!containers.is_empty()).then(|| named(containers));
    let all: Vec<String> = pod.then(|| "pod".to_owned()).into_iter().chain(containers).collect();
    (!all.is_empty()).then(|| all.join(" and "))
}

/// What is set, in order, each once.
pub(super) fn set_of<'a>(values: impl IntoIterator<Item = &'a str>) -> BTreeSet<&'a str> {
    values.into_iter().collect()
}
