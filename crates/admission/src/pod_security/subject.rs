//! Pod and version under check, and formatting of the findings.

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
    /// Version of the standards.
    pub(super) minor: u32,
    /// Init containers, containers and ephemeral containers, in this order (`visitContainers`).
    containers: Vec<Cow<'a, Container>>,
}

impl<'a> Subject<'a> {
    pub(super) fn new(meta: &'a ObjectMeta, spec: &'a PodSpec, minor: u32) -> Self {
        let main = spec.init_containers.iter().flatten().chain(&spec.containers).map(Cow::Borrowed);
        let containers = main.chain(pod::ephemeral_containers(spec).into_iter().map(Cow::Owned)).collect();
        Self { meta, spec, minor, containers }
    }

    pub(super) fn pod(&self) -> Option<&PodSecurityContext> {
        self.spec.security_context.as_ref()
    }

    pub(super) fn containers(&self) -> impl Iterator<Item = &Container> {
        self.containers.iter().map(AsRef::as_ref)
    }

    /// Returns the names of the containers that match a predicate.
    pub(super) fn container_names(&self, predicate: impl Fn(&Container) -> bool) -> Vec<&str> {
        self.containers().filter(|c| predicate(c)).map(|c| c.name.as_str()).collect()
    }

    /// Returns the names of the containers whose security context matches a predicate.
    pub(super) fn with_security_context(&self, predicate: impl Fn(&SecurityContext) -> bool) -> Vec<&str> {
        self.container_names(|c| c.security_context.as_ref().is_some_and(&predicate))
    }

    /// Whether the Pod's OS is Windows, where API validation forbids the Linux fields.
    pub(super) fn is_windows(&self) -> bool {
        self.spec.os.as_ref().is_some_and(|os| os.name == "windows")
    }

    /// Whether the Pod has a user namespace (`hostUsers: false`, KEP-127).
    pub(super) fn has_user_namespace(&self) -> bool {
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

/// Formats names: `container "a"`, `containers "a", "b"`.
pub(super) fn named(containers: &[&str]) -> String {
    format!("{} {}", plural(containers.len(), "container", "containers"), quoted(containers))
}

/// Formats the Pod and containers that set a field; `None` if none does.
pub(super) fn setters(pod: bool, containers: &[&str]) -> Option<String> {
    let containers = (!containers.is_empty()).then(|| named(containers));
    let all: Vec<String> = pod.then(|| "pod".to_owned()).into_iter().chain(containers).collect();
    (!all.is_empty()).then(|| all.join(" and "))
}

/// Returns the distinct values, sorted.
pub(super) fn set_of<'a>(values: impl IntoIterator<Item = &'a str>) -> BTreeSet<&'a str> {
    values.into_iter().collect()
}
