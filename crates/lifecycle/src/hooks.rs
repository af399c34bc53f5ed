//! Lifecycle hooks: postStart belongs to the start of a container, preStop to its end (`killContainer` of
//! `kuberuntime_container.go`).

use crate::{
    Hook,
    container::{Container, Instance},
};
use k8s_openapi::api::core::v1::Container as Spec;
use serde::{Deserialize, Serialize};

/// How far the hooks of one container that the runtime made have come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Hooks {
    pub(crate) post_start: PostStart,
    /// It was run, whatever came of it: the stop signal waits for it no longer.
    pub(crate) pre_stop_over: bool,
}

/// How far the postStart hook has come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum PostStart {
    /// It is to be run, or runs: the container does not count as running yet.
    #[default]
    Pending,
    Done,
    /// The container is killed for it.
    Failed,
}

pub(crate) fn has(spec: &Spec, hook: Hook) -> bool {
    spec.lifecycle.as_ref().is_some_and(|l| match hook {
        Hook::PostStart => l.post_start.is_some(),
        Hook::PreStop => l.pre_stop.is_some(),
    })
}

/// How far the postStart hook of a process that runs has come, if it has one.
pub(crate) fn post_start(container: &Container, spec: &Spec) -> Option<PostStart> {
    let instance = container.current.as_ref().filter(|_| container.is_running() && has(spec, Hook::PostStart))?;
    Some(instance.hooks.post_start)
}

/// Whether nothing of a start is left to be done but probes.
pub(crate) fn post_start_passed(container: &Container, spec: &Spec) -> bool {
    post_start(container, spec).is_none_or(|progress| progress == PostStart::Done)
}

/// Whether the preStop hook comes before the stop signal.
pub(crate) fn pre_stop_pending(instance: &Instance, spec: &Spec) -> bool {
    has(spec, Hook::PreStop) && !instance.hooks.pre_stop_over
}
