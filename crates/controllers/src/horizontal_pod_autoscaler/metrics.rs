//! Clients of the metrics APIs: `metrics.k8s.io`, `custom.metrics.k8s.io` and `external.metrics.k8s.io`
//! (`metrics/client.go`, `k8s.io/metrics/pkg/client`).

use super::{
    calculator::{Sample, Samples},
    scale_target::{RequestError, ScaleClient, ScaleError, get, group_of},
};
use api::{
    resources::Amount,
    selector::{UnknownOperatorError, format_label_selector},
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::autoscaling::v2::{CrossVersionObjectReference, MetricIdentifier, MetricSpec},
    apimachinery::pkg::{
        api::resource::Quantity,
        apis::meta::v1::{APIGroup, LabelSelector, Time},
    },
};
use kube::Client;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, de::DeserializeOwned};
use std::{collections::BTreeMap, time::Duration};

/// Timeout of a metrics request, so that an unresponsive server does not block other autoscalers.
const METRICS_TIMEOUT: Duration = Duration::from_secs(10);
/// Window of custom metrics that do not state one.
const DEFAULT_METRIC_WINDOW: SignedDuration = SignedDuration::from_mins(1);
const CUSTOM: &str = "custom.metrics.k8s.io";
/// Characters that are not escaped in a path segment.
const UNRESERVED: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'*');

/// Why a metric cannot be read, with upstream's message.
#[derive(Debug, thiserror::Error)]
pub(super) enum MetricsError {
    #[error("unable to fetch metrics: context deadline exceeded")]
    Timeout,
    /// Validation rejects such metrics.
    #[error("there is no {0}")]
    MissingSource(&'static str),
    #[error("unknown metric source type {0:?}")]
    UnknownType(String),
    #[error(transparent)]
    Selector(#[from] UnknownOperatorError),
    #[error("unable to fetch metrics from {api} metrics API: {source}")]
    Request { api: &'static str, source: RequestError },
    #[error("no metrics returned from {0} metrics API")]
    Empty(&'static str),
    #[error("failed to get container metrics: container {container} not present in metrics for pod {pod}")]
    MissingContainer { container: String, pod: String },
    #[error("unable to fetch metrics from custom metrics API: unable to map kind {kind} to resource: {source}")]
    Mapping { kind: String, source: ScaleError },
    #[error(
        "unable to fetch metrics from custom metrics API: the custom metrics API server returned {0} results when we asked for exactly one"
    )]
    ResultCount(usize),
    #[error("unable to fetch metrics from custom metrics API: no custom metrics API ({CUSTOM}) registered")]
    NotRegistered,
    #[error("unable to fetch metrics from custom metrics API: no known available metric versions found")]
    UnknownVersions,
}

/// Values of a metric.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reading {
    /// Of each Pod.
    Pods(Samples),
    /// Of one object, in thousandths.
    Object(i64),
    /// Of external series.
    External(Vec<i64>),
}

#[derive(Deserialize)]
#[serde(bound = "T: DeserializeOwned")]
struct List<T> {
    items: Option<Vec<T>>,
}

#[derive(Deserialize)]
pub(super) struct PodMetrics {
    metadata: Named,
    timestamp: Option<Time>,
    window: Option<String>,
    containers: Option<Vec<ContainerMetrics>>,
}

#[derive(Deserialize)]
struct ContainerMetrics {
    name: String,
    usage: Option<BTreeMap<String, Quantity>>,
}

#[derive(Deserialize)]
struct Named {
    name: String,
}

/// Item of custom metrics, in either version, and of external metrics.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct MetricValue {
    described_object: Option<Named>,
    timestamp: Option<Time>,
    #[serde(alias = "window")]
    window_seconds: Option<i64>,
    value: Quantity,
}

/// Reads the values of a metric.
pub(super) async fn read(
    client: &Client,
    targets: &ScaleClient,
    spec: &MetricSpec,
    namespace: &str,
    selector: &str,
) -> Result<Reading, MetricsError> {
    let reading = async {
        match spec.type_.as_str() {
            "Resource" => {
                let name = spec.resource.as_ref().map(|r| r.name.as_str()).unwrap_or_default();
                resource(client, namespace, selector, name, None).await
            }
            "ContainerResource" => {
                let source = spec.container_resource.as_ref().ok_or(MetricsError::MissingSource("container"))?;
                resource(client, namespace, selector, &source.name, Some(&source.container)).await
            }
            "Pods" => {
                let source = spec.pods.as_ref().ok_or(MetricsError::MissingSource("metric"))?;
                custom_of_pods(client, namespace, selector, &source.metric).await
            }
            "Object" => {
                let source = spec.object.as_ref().ok_or(MetricsError::MissingSource("metric"))?;
                custom_of(client, targets, namespace, &source.described_object, &source.metric).await
            }
            "External" => {
                let source = spec.external.as_ref().ok_or(MetricsError::MissingSource("metric"))?;
                external(client, namespace, &source.metric).await
            }
            other => Err(MetricsError::UnknownType(other.to_owned())),
        }
    };
    tokio::time::timeout(METRICS_TIMEOUT, reading).await.unwrap_or(Err(MetricsError::Timeout))
}

async fn resource(
    client: &Client,
    namespace: &str,
    selector: &str,
    name: &str,
    container: Option<&str>,
) -> Result<Reading, MetricsError> {
    let path = format!("/apis/metrics.k8s.io/v1beta1/namespaces/{namespace}/pods{}", query(selector, ""));
    let list: Result<List<PodMetrics>, _> = get(client, &path).await;
    let list = list.map_err(|e| failed("resource", e, "get pods.metrics.k8s.io"))?;
    let items = some(list, "resource")?;
    if let Some(container) = container {
        let lacks = |pod: &&PodMetrics| pod.containers.iter().flatten().all(|c| c.name != container);
        if let Some(PodMetrics { metadata, .. }) = items.iter().find(lacks) {
            let pod = format!("{namespace}/{}", metadata.name);
            return Err(MetricsError::MissingContainer { container: container.to_owned(), pod });
        }
    }
    Ok(Reading::Pods(items.iter().filter_map(|pod| sample(pod, name, container)).collect()))
}

/// Returns a Pod's usage, if the container, or all containers, have a value.
pub(super) fn sample(pod: &PodMetrics, resource: &str, container: Option<&str>) -> Option<(String, Sample)> {
    let usage = |c: &ContainerMetrics| Some(Amount::try_from(c.usage.as_ref()?.get(resource)?).ok()?.milli());
    let mut containers = pod.containers.iter().flatten();
    let value = match container {
        Some(name) => usage(containers.find(|c| c.name == name)?)?,
        None => {
            let all: Option<Vec<i64>> = containers.map(usage).collect();
            all.filter(|all| !all.is_empty())?.into_iter().fold(0, i64::saturating_add)
        }
    };
    let window = pod.window.as_ref().and_then(|text| text.parse().ok()).unwrap_or_default();
    Some((pod.metadata.name.clone(), Sample { value, at: time(pod.timestamp.as_ref()), window }))
}

async fn custom_of_pods(
    client: &Client,
    namespace: &str,
    selector: &str,
    metric: &MetricIdentifier,
) -> Result<Reading, MetricsError> {
    let parameters = query(selector, &selector_text(metric.selector.as_ref())?);
    let path = format!("namespaces/{namespace}/pods/*/{}{parameters}", encoded(&metric.name));
    let items = some(custom(client, &path, "get pods.custom.metrics.k8s.io *").await?, "custom")?;
    let sample = |item: &MetricValue| {
        let window = item.window_seconds.map_or(DEFAULT_METRIC_WINDOW, SignedDuration::from_secs);
        let name = item.described_object.as_ref()?.name.clone();
        Some((name, Sample { value: milli(&item.value), at: time(item.timestamp.as_ref()), window }))
    };
    Ok(Reading::Pods(items.iter().filter_map(sample).collect()))
}

async fn custom_of(
    client: &Client,
    targets: &ScaleClient,
    namespace: &str,
    object: &CrossVersionObjectReference,
    metric: &MetricIdentifier,
) -> Result<Reading, MetricsError> {
    let parameters = query("", &selector_text(metric.selector.as_ref())?);
    let group = group_of(object.api_version.as_deref().unwrap_or_default()).unwrap_or_default();
    let (resource, name) = if object.kind == "Namespace" && group.is_empty() {
        // Metrics of a Namespace object have another path than those of objects in a namespace.
        ("metrics".to_owned(), String::new())
    } else {
        let found = targets.resource(&group, &object.kind).await;
        let qualified = format!("{}.{group}", object.kind);
        let kind = qualified.trim_end_matches('.').to_owned();
        let found = found.map_err(|source| MetricsError::Mapping { kind, source })?;
        let resource = format!("{}.{group}", found.plural);
        (resource.trim_end_matches('.').to_owned(), format!("/{}", encoded(&object.name)))
    };
    let path = format!("namespaces/{namespace}/{resource}{name}/{}{parameters}", encoded(&metric.name));
    let operation = format!("get {resource}.{CUSTOM} {}", object.name);
    let items = custom(client, &path, &operation).await?.items.unwrap_or_default();
    match items.as_slice() {
        [one] => Ok(Reading::Object(milli(&one.value))),
        _ => Err(MetricsError::ResultCount(items.len())),
    }
}

async fn custom(client: &Client, path: &str, operation: &str) -> Result<List<MetricValue>, MetricsError> {
    let version = version(client).await?;
    let read = get(client, &format!("/apis/{version}/{path}")).await;
    read.map_err(|e| failed("custom", e, operation))
}

/// Returns the preferred version of the custom metrics API if it is supported, or else the first supported one.
async fn version(client: &Client) -> Result<String, MetricsError> {
    let group: Option<APIGroup> = match get(client, &format!("/apis/{CUSTOM}")).await {
        Ok(group) => Some(group),
        Err(e) if crate::worker::is_code(&e, 404) => None,
        Err(e) => return Err(failed("custom", e, &format!("get {CUSTOM}"))),
    };
    let group = group.ok_or(MetricsError::NotRegistered)?;
    let all = group.preferred_version.iter().chain(&group.versions).map(|version| version.group_version.clone());
    let known = |version: &String| {
        let name = version.strip_prefix(CUSTOM).and_then(|rest| rest.strip_prefix('/'));
        matches!(name, Some("v1beta1" | "v1beta2"))
    };
    all.into_iter().find(known).ok_or(MetricsError::UnknownVersions)
}

async fn external(client: &Client, namespace: &str, metric: &MetricIdentifier) -> Result<Reading, MetricsError> {
    let parameters = query(&selector_text(metric.selector.as_ref())?, "");
    let name = encoded(&metric.name);
    let path = format!("/apis/external.metrics.k8s.io/v1beta1/namespaces/{namespace}/{name}{parameters}");
    let list: Result<List<MetricValue>, _> = get(client, &path).await;
    let operation = format!("get {}.external.metrics.k8s.io", metric.name);
    let items = some(list.map_err(|e| failed("external", e, &operation))?, "external")?;
    Ok(Reading::External(items.iter().map(|item| milli(&item.value)).collect()))
}

fn some<T>(list: List<T>, api: &'static str) -> Result<Vec<T>, MetricsError> {
    let items = list.items.unwrap_or_default();
    if items.is_empty() { Err(MetricsError::Empty(api)) } else { Ok(items) }
}

fn failed(api: &'static str, error: kube::Error, request: &str) -> MetricsError {
    MetricsError::Request { api, source: RequestError::new(error, request) }
}

/// Returns a quantity in thousandths.
pub(super) fn milli(value: &Quantity) -> i64 {
    Amount::try_from(value).unwrap_or_default().milli()
}

fn time(time: Option<&Time>) -> Timestamp {
    time.map_or(Timestamp::MIN, |time| time.0)
}

fn encoded(part: &str) -> String {
    utf8_percent_encode(part, &UNRESERVED).to_string()
}

/// Returns the query with the selectors that are not empty.
fn query(labels: &str, metric_labels: &str) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    for (name, value) in [("labelSelector", labels), ("metricLabelSelector", metric_labels)] {
        if !value.is_empty() {
            query.append_pair(name, value);
        }
    }
    let query = query.finish();
    if query.is_empty() { query } else { format!("?{query}") }
}

/// Formats a selector for a query (`LabelSelectorAsSelector`); none and an empty one are an empty string.
pub(super) fn selector_text(selector: Option<&LabelSelector>) -> Result<String, UnknownOperatorError> {
    let Some(selector) = selector else { return Ok(String::new()) };
    let labels = selector.match_labels.iter().flatten().map(|(key, value)| (key.as_str(), value.as_str()));
    let expressions = selector.match_expressions.iter().flatten().map(|one| {
        let values = one.values.iter().flatten().map(String::as_str).collect();
        (one.key.as_str(), one.operator.as_str(), values)
    });
    format_label_selector(labels, expressions)
}
