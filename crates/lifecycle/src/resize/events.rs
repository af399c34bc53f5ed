//! Messages of resize Events (`pkg/kubelet/events`).

use k8s_openapi::api::core::v1::{Container, Pod, ResourceRequirements};
use serde::Serialize;

/// JSON of the message, in upstream's field order.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Summary<'a> {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    init_containers: Vec<Resources<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    containers: Vec<Resources<'a>>,
    generation: i64,
    #[serde(skip_serializing_if = "str::is_empty")]
    error: &'a str,
}

#[derive(Serialize)]
struct Resources<'a> {
    name: &'a str,
    resources: ResourceRequirements,
}

/// Formats the message: `Pod resize started: {"containers":[…],"generation":2}`.
pub(super) fn message(pod: &Pod, generation: i64, prefix: &str, error: &str) -> String {
    let spec = pod.spec.as_ref();
    let summary = Summary {
        init_containers: summaries(spec.and_then(|s| s.init_containers.as_deref())),
        containers: summaries(spec.map(|s| s.containers.as_slice())),
        generation,
        error,
    };
    format!("{prefix}: {}", serde_json::to_string(&summary).unwrap_or_default())
}

fn summaries(containers: Option<&[Container]>) -> Vec<Resources<'_>> {
    let all = containers.into_iter().flatten();
    all.map(|c| Resources { name: &c.name, resources: c.resources.clone().unwrap_or_default() }).collect()
}
