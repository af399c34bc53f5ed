//! Resource metrics of nodes and Pods (`metrics.k8s.io/v1beta1`), unless metrics-server is installed. Kubelets are scraped
//! on request only.

mod exposition;
mod scrape;
mod usage;

pub(crate) use scrape::NodeSampleCache;

use crate::{
    http::clock,
    objects::{
        call::Call,
        list_options::ListOptions,
        object::{self, IncludeObjectPolicy, Representation},
        request_scope::RequestScope,
        selectors::Selection,
        write,
    },
    registry::kubelet_client::KubeletClient,
};
use api::{duration, quantity::Amount};
use errors::{ApiError, GroupResource};
use kinds::{Kind, NODE, POD};
use response::HandlerResult;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::{BTreeSet, HashMap};
use store::Scope;
use usage::{SamplePair, Usage};

/// Handles a request for NodeMetrics or PodMetrics.
pub(crate) async fn handle(
    kubelets: &KubeletClient,
    cache: &NodeSampleCache,
    resource: &RequestScope,
    call: &Call,
) -> HandlerResult {
    if call.method != http::Method::GET {
        return Err(ApiError::method_not_allowed());
    }
    let kind = &*resource.kind;
    if let Some(name) = &resource.name {
        object::negotiate_object(&call.accept, kind.info())?;
        let targets = find_targets(kubelets, resource, Some(name));
        if targets.is_empty() {
            return Err(missing(kind, name));
        }
        let not_measured = || unmeasured(kind, &resource.namespace, name);
        let found = metrics(kubelets, cache, kind, targets).await.into_iter().next().ok_or_else(not_measured)?;
        return write::respond_with_value(kind, 200, typed(kind, found), call);
    }
    if call.query.flag("watch") {
        let message = format!("watch is not supported on resources of kind {:?}", kind.info().group_resource());
        return Err(ApiError::new(405, "MethodNotAllowed", message));
    }
    let (view, include) =
        (object::negotiate_list(&call.accept, kind.info())?, IncludeObjectPolicy::parse(&call.query)?);
    let selection = Selection::parse(&resource.kind, &call.query)?;
    ListOptions::parse(&call.query, false)?;
    let mut targets = find_targets(kubelets, resource, selection.name());
    targets.retain(|target| selection.matches(&json!({"metadata": target.metadata})));
    let items = metrics(kubelets, cache, kind, targets).await;
    Ok(response::json(
        200,
        &match view {
            Representation::Object => {
                json!({"kind": kind.list_kind(), "apiVersion": kind.info().api_version(), "metadata": {}, "items": items})
            }
            Representation::Metadata => object::metadata_list(&items, &json!({})),
            Representation::Table => {
                let items: Vec<Value> = items.into_iter().map(|item| typed(kind, item)).collect();
                object::table(kind, &items, &json!({}), true, include)
            }
        },
    ))
}

/// A Pod or a node whose metrics are requested.
struct MetricsTarget {
    /// Metadata of the metrics object: names and labels.
    metadata: Value,
    namespace: String,
    name: String,
    /// The node whose kubelet is scraped.
    node: String,
}

/// The parsed fields of a Pod or a node.
#[derive(Deserialize)]
struct PartialObject {
    metadata: Metadata,
    #[serde(default)]
    spec: Spec,
}

#[derive(Deserialize)]
struct Metadata {
    name: String,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    labels: Map<String, Value>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct Spec {
    #[serde(default)]
    node_name: String,
}

/// Lists the Pods or nodes of a request, sorted by name.
fn find_targets(kubelets: &KubeletClient, resource: &RequestScope, name: Option<&str>) -> Vec<MetricsTarget> {
    let of_pods = resource.kind.info().namespaced;
    let mut scope = Scope::resource(if of_pods { POD } else { NODE }.info().storage);
    if !of_pods || !resource.namespace.is_empty() {
        scope = scope.in_namespace(resource.namespace.as_str());
    }
    if let Some(name) = name {
        scope = scope.named(name);
    }
    let objects = kubelets.store.list(&scope, None, None).objects;
    let parsed = objects.iter().filter_map(|object| serde_json::from_slice::<PartialObject>(&object.data).ok());
    let target = |PartialObject { metadata: Metadata { name, namespace, labels }, spec }: PartialObject| {
        let mut metadata = json!({"name": name, "creationTimestamp": clock::now().to_string()});
        if of_pods {
            metadata["namespace"] = json!(namespace);
        }
        if !labels.is_empty() {
            metadata["labels"] = Value::Object(labels);
        }
        let node = if of_pods { spec.node_name } else { name.clone() };
        MetricsTarget { metadata, namespace, name, node }
    };
    parsed.map(target).collect()
}

/// Returns the metrics of the Pods or nodes that have samples.
async fn metrics(
    kubelets: &KubeletClient,
    cache: &NodeSampleCache,
    kind: &dyn Kind,
    targets: Vec<MetricsTarget>,
) -> Vec<Value> {
    let existing: BTreeSet<String> = {
        let nodes = kubelets.store.list(&Scope::resource(NODE.info().storage), None, None).objects;
        nodes.iter().map(|node| node.key.name.to_string()).collect()
    };
    cache.retain(|node| existing.contains(node));
    let nodes = targets.iter().map(|target| &target.node).filter(|node| existing.contains(*node)).cloned().collect();
    let pairs: HashMap<String, SamplePair> = cache.sample_pairs(kubelets, nodes).await;
    let of_pods = kind.info().namespaced;
    let measured = |MetricsTarget { metadata, namespace, name, node }: MetricsTarget| {
        let pair = pairs.get(&node)?;
        if of_pods { pod(metadata, pair, &namespace, &name) } else { node_metrics(metadata, pair) }
    };
    targets.into_iter().filter_map(measured).collect()
}

fn node_metrics(metadata: Value, pair: &SamplePair) -> Option<Value> {
    let usage = pair.node()?;
    let mut metrics = interval(metadata, &usage);
    metrics["usage"] = resources(&usage);
    Some(metrics)
}

fn pod(metadata: Value, pair: &SamplePair, namespace: &str, name: &str) -> Option<Value> {
    let containers = pair.pod(namespace, name)?;
    // As metrics-server, the earliest timestamp of the containers.
    let first = containers.values().min_by_key(|usage| usage.at)?;
    let mut metrics = interval(metadata, first);
    let container = |(name, usage): (&&str, &Usage)| json!({"name": name, "usage": resources(usage)});
    metrics["containers"] = containers.iter().map(container).collect();
    Some(metrics)
}

fn interval(metadata: Value, usage: &Usage) -> Value {
    let at = clock::truncate_to_seconds(usage.at);
    json!({"metadata": metadata, "timestamp": at.to_string(), "window": duration::format_duration(usage.window)})
}

fn resources(usage: &Usage) -> Value {
    let cpu = Amount::parse(&format!("{}n", usage.cpu)).unwrap_or_default().to_quantity();
    let memory = Amount::units(i64::try_from(usage.memory).unwrap_or(i64::MAX)).to_binary_quantity();
    json!({"cpu": cpu, "memory": memory})
}

/// Adds `kind` and `apiVersion`, which items of a list omit.
fn typed(kind: &dyn Kind, mut metrics: Value) -> Value {
    metrics["kind"] = json!(kind.info().kind);
    metrics["apiVersion"] = json!(kind.info().api_version());
    metrics
}

/// Returns metrics-server's error for a Pod or node that does not exist, which is that of its listers.
fn missing(kind: &dyn Kind, name: &str) -> ApiError {
    if kind.info().namespaced {
        ApiError::not_found(POD.info(), name)
    } else {
        ApiError::not_found(GroupResource::core("node"), name)
    }
}

/// Returns the error for a Pod or node without samples.
fn unmeasured(kind: &dyn Kind, namespace: &str, name: &str) -> ApiError {
    let (resource, name) = match kind.info().namespaced {
        true => ("podmetrics", format!("{namespace}/{name}")),
        false => ("nodemetrics", name.to_owned()),
    };
    ApiError::not_found(GroupResource::new(kind.info().group, resource), &name)
}
