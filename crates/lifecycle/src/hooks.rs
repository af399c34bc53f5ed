//! Lifecycle hooks: postStart is part of starting a container, preStop of stopping it (`killContainer` in
//! `kuberuntime_container.go`).

use crate::{
    Hook,
    container::{Container, Instance},
};
use k8s_openapi::api::core::v1::Container as Spec;
use serde::{Deserialize, Serialize};

/// Hook state of one container in the runtime.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Hooks {
    pub(crate) post_start: PostStart,
    /// Whether the preStop hook ended, successfully or not; then the stop signal is sent.
    pub(crate) pre_stop_over: bool,
}

/// State of the postStart hook.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum PostStart {
    /// Not ended yet: the container does not count as running.
    #[default]
    Pending,
    Done,
    /// Failed: the container is killed.
    Failed,
}

pub(crate) fn has(spec: &Spec, hook: Hook) -> bool {
    spec.lifecycle.as_ref().is_some_and(|l| match hook {
        Hook::PostStart => l.post_start.is_some(),
        Hook::PreStop => l.pre_stop.is_some(),
    })
}

/// Returns the state of the postStart hook of a running container, if it has one.
pub(crate) fn post_start(container: &Container, spec: &Spec) -> Option<PostStart> {
    let instance = container.current.as_ref().filter(|_| container.is_running() && has(spec, Hook::PostStart))?;
    Some(instance.hooks.post_start)
}

/// Returns whether the postStart hook does not block the probes any more.
pub(crate) fn post_start_passed(container: &Container, spec: &Spec) -> bool {
    post_start(container, spec).is_none_or(|state| state == PostStart::Done)
}

/// Returns whether the preStop hook must still end before the stop signal.
pub(crate) fn pre_stop_pending(instance: &Instance, spec: &Spec) -> bool {
    has(spec, Hook::PreStop) && !instance.hooks.pre_stop_over
}
