//! Schemas of `metrics.k8s.io/v1beta1` (`k8s.io/metrics`), which k8s-openapi does not contain.

use super::schemas::{API_VERSION, KIND, METADATA};
use k8s_openapi::{
    ClusterResourceScope, NamespaceResourceScope, Resource,
    apimachinery::pkg::{
        api::resource::Quantity,
        apis::meta::v1::{ObjectMeta, Time},
    },
};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::json;
use std::borrow::Cow;

const PACKAGE: &str = "io.k8s.metrics.pkg.apis.metrics.v1beta1";

pub(super) struct NodeMetrics;
pub(super) struct PodMetrics;
struct ContainerMetrics;
struct Duration;

impl Resource for NodeMetrics {
    const API_VERSION: &'static str = "metrics.k8s.io/v1beta1";
    const GROUP: &'static str = "metrics.k8s.io";
    const KIND: &'static str = "NodeMetrics";
    const VERSION: &'static str = "v1beta1";
    const URL_PATH_SEGMENT: &'static str = "nodes";
    type Scope = ClusterResourceScope;
}

impl Resource for PodMetrics {
    const API_VERSION: &'static str = NodeMetrics::API_VERSION;
    const GROUP: &'static str = NodeMetrics::GROUP;
    const KIND: &'static str = "PodMetrics";
    const VERSION: &'static str = NodeMetrics::VERSION;
    const URL_PATH_SEGMENT: &'static str = "pods";
    type Scope = NamespaceResourceScope;
}

impl JsonSchema for NodeMetrics {
    fn schema_name() -> Cow<'static, str> {
        format!("{PACKAGE}.NodeMetrics").into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let used = usage(generator);
        object(generator, "NodeMetrics sets resource usage metrics of a node.", "usage", used)
    }
}

impl JsonSchema for PodMetrics {
    fn schema_name() -> Cow<'static, str> {
        format!("{PACKAGE}.PodMetrics").into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let containers = json_schema!({
            "description": "Metrics for all containers are collected within the same time window.",
            "type": "array",
            "items": generator.subschema_for::<ContainerMetrics>(),
        });
        object(generator, "PodMetrics sets resource usage metrics of a pod.", "containers", containers)
    }
}

impl JsonSchema for ContainerMetrics {
    fn schema_name() -> Cow<'static, str> {
        format!("{PACKAGE}.ContainerMetrics").into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "ContainerMetrics sets resource usage metrics of a container.",
            "type": "object",
            "properties": {
                "name": {"description": "Container name corresponding to the one from pod.spec.containers.", "type": "string"},
                "usage": usage(generator),
            },
            "required": ["name", "usage"],
        })
    }
}

impl JsonSchema for Duration {
    fn schema_name() -> Cow<'static, str> {
        "io.k8s.apimachinery.pkg.apis.meta.v1.Duration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "Duration is a wrapper around time.Duration which supports correct marshaling to YAML and JSON. In particular, it marshals into strings, which can be used as map keys in json.",
            "type": "string",
        })
    }
}

fn usage(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "description": "The memory usage is the memory working set.",
        "type": "object",
        "additionalProperties": generator.subschema_for::<Quantity>(),
    })
}

/// Returns the schema of a kind with the common properties and its own one.
fn object(generator: &mut SchemaGenerator, description: &str, group_version_kind: &str, schema: Schema) -> Schema {
    let described = |mut schema: Schema, description: &str| {
        schema.ensure_object().insert("description".to_owned(), json!(description));
        schema
    };
    let interval = "The following fields define time interval from which metrics were collected from the interval [Timestamp-Window, Timestamp].";
    let mut object = json_schema!({
        "description": description,
        "type": "object",
        "properties": {
            "apiVersion": {"description": API_VERSION, "type": "string"},
            "kind": {"description": KIND, "type": "string"},
            "metadata": described(generator.subschema_for::<ObjectMeta>(), METADATA),
            "timestamp": described(generator.subschema_for::<Time>(), interval),
            "window": generator.subschema_for::<Duration>(),
        },
        "required": ["timestamp", "window", group_version_kind],
    });
    if let Some(properties) = object.get_mut("properties").and_then(|p| p.as_object_mut()) {
        properties.insert(group_version_kind.to_owned(), schema.into());
    }
    object
}
