//! Metrics of the API server, with upstream's names
//! (`k8s.io/apiserver/pkg/endpoints/metrics`).
//!
//! A request only increments counters; other values are computed when the metrics are scraped.

mod process;

use crate::{
    api_server::ApiServer,
    objects::{call::Call, request_scope::RequestScope},
};
use api::metrics::{CONTENT_TYPE, HistogramSample, MetricsPage};
use flowcontrol::FlowControl;
use http::{Method, Response};
use http_body_util::BodyExt;
use parking_lot::{Mutex, RwLock};
use response::{Body, HandlerResult};
use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering::Relaxed},
    },
};
use store::Scope;
use tokio::time::Instant;

/// Upper bounds of durations in microseconds.
const BOUNDS: [u64; 23] = [
    5_000, 25_000, 50_000, 100_000, 200_000, 400_000, 600_000, 800_000, 1_000_000, 1_250_000, 1_500_000, 2_000_000,
    3_000_000, 4_000_000, 5_000_000, 6_000_000, 8_000_000, 10_000_000, 15_000_000, 20_000_000, 30_000_000, 45_000_000,
    60_000_000,
];

/// Counters of the requests with the same labels.
#[derive(Default)]
struct Series {
    /// Number of responses by code.
    codes: Mutex<BTreeMap<u16, u64>>,
    /// Histogram of durations; the last bucket is beyond all bounds.
    durations: [AtomicU64; BOUNDS.len() + 1],
    /// In microseconds.
    total_micros: AtomicU64,
    /// Number of long-running requests in progress.
    long_running: AtomicI64,
}

impl Series {
    fn histogram(&self) -> HistogramSample {
        let counts = self.durations.iter().map(|count| count.load(Relaxed));
        let cumulative: Vec<u64> = counts
            .scan(0, |sum, count| {
                *sum += count;
                Some(*sum)
            })
            .collect();
        HistogramSample {
            buckets: BOUNDS.iter().zip(&cumulative).map(|(bound, count)| (*bound as f64 / 1e6, *count)).collect(),
            sum: self.total_micros.load(Relaxed) as f64 / 1e6,
            count: cumulative.last().copied().unwrap_or(0),
        }
    }
}

/// Metrics of requests.
#[derive(Default)]
pub(crate) struct Metrics {
    /// By the labels of their requests.
    series: RwLock<HashMap<Labels, Arc<Series>>>,
    read_only_inflight: AtomicI64,
    mutating_inflight: AtomicI64,
}

/// Measures a request. Its duration is recorded when this is dropped.
pub(crate) struct RequestMeasurement {
    metrics: Arc<Metrics>,
    series: Arc<Series>,
    started: Instant,
    /// Response code; 0 before the response.
    code: u16,
    is_mutating: bool,
    is_long_running: bool,
}

/// Returns the verb of upstream's metrics.
fn verb(call: &Call, named: bool) -> &'static str {
    match call.method {
        Method::GET | Method::HEAD if named => "GET",
        Method::GET | Method::HEAD if call.query.flag("watch") => "WATCH",
        Method::GET | Method::HEAD => "LIST",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH if call.content_type == crate::objects::patch::APPLY => "APPLY",
        Method::PATCH => "PATCH",
        Method::DELETE if named => "DELETE",
        Method::DELETE => "DELETECOLLECTION",
        _ => "OTHER",
    }
}

/// Labels of requests, without the response code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Labels {
    dry: &'static str,
    group: &'static str,
    resource: &'static str,
    scope: &'static str,
    subresource: &'static str,
    verb: &'static str,
    version: &'static str,
}

impl Labels {
    fn of(resource: &RequestScope, call: &Call, verb: &'static str) -> Self {
        let info = resource.kind.info();
        let subresource = match resource.subresource.as_deref() {
            Some("status") => "status",
            Some(part) => info.subresource(part).map_or("", |part| part.name),
            None => "",
        };
        let scope = match (&resource.name, resource.namespace.is_empty()) {
            (Some(_), _) => "resource",
            (None, _) if verb == "POST" => "resource",
            (None, false) => "namespace",
            (None, true) => "cluster",
        };
        let dry = if call.query.has("dryRun") { "All" } else { "" };
        Self { dry, group: info.group, resource: info.plural, scope, subresource, verb, version: info.version }
    }

    fn is_long_running(self) -> bool {
        matches!(self.verb, "WATCH" | "CONNECT")
    }

    fn pairs(self) -> api::metrics::Labels {
        let Self { dry, group, resource, scope, subresource, verb, version } = self;
        pairs([
            ("component", "apiserver"),
            ("dry_run", dry),
            ("group", group),
            ("resource", resource),
            ("scope", scope),
            ("subresource", subresource),
            ("verb", verb),
            ("version", version),
        ])
    }
}

/// Returns label names and values.
fn pairs<const N: usize>(labels: [(&'static str, &str); N]) -> api::metrics::Labels {
    labels.map(|(name, value)| (name, value.to_owned())).into()
}

impl RequestMeasurement {
    pub(crate) fn begin(metrics: &Arc<Metrics>, resource: &RequestScope, call: &Call) -> Self {
        let verb = match resource.subresource.as_deref() {
            Some("exec" | "attach" | "portforward" | "proxy" | "log") => "CONNECT",
            _ => verb(call, resource.name.is_some()),
        };
        let labels = Labels::of(resource, call, verb);
        let existing = metrics.series.read().get(&labels).cloned();
        let series = existing.unwrap_or_else(|| metrics.series.write().entry(labels).or_default().clone());
        let (is_long_running, is_mutating) = (labels.is_long_running(), !matches!(verb, "GET" | "LIST"));
        let measurement = Self {
            metrics: Arc::clone(metrics),
            series,
            started: Instant::now(),
            code: 0,
            is_mutating,
            is_long_running,
        };
        measurement.gauge().fetch_add(1, Relaxed);
        measurement
    }

    /// Returns the gauge of requests in progress.
    fn gauge(&self) -> &AtomicI64 {
        match (self.is_long_running, self.is_mutating) {
            (true, _) => &self.series.long_running,
            (false, true) => &self.metrics.mutating_inflight,
            (false, false) => &self.metrics.read_only_inflight,
        }
    }

    /// Records the response; a long-running request ends with its body.
    pub(crate) fn record_response(mut self, reply: HandlerResult) -> HandlerResult {
        let mut response = reply.unwrap_or_else(|error| response::error(&error));
        self.code = response.status().as_u16();
        if self.is_long_running {
            response = response.map(|body| {
                let keep_guard = move |frame| {
                    let _ = &self;
                    frame
                };
                body.map_frame(keep_guard).boxed_unsync()
            });
        }
        Ok(response)
    }
}

impl Drop for RequestMeasurement {
    fn drop(&mut self) {
        self.gauge().fetch_sub(1, Relaxed);
        // 499: the client disconnected before the response.
        let code = if self.code == 0 { 499 } else { self.code };
        let duration = u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX);
        let bucket = BOUNDS.iter().position(|bound| duration <= *bound).unwrap_or(BOUNDS.len());
        self.series.durations[bucket].fetch_add(1, Relaxed);
        self.series.total_micros.fetch_add(duration, Relaxed);
        *self.series.codes.lock().entry(code).or_default() += 1;
    }
}

/// Serves all metrics.
pub(crate) fn serve_metrics(server: &ApiServer) -> Response<Body> {
    let mut page = MetricsPage::default();
    add_requests(&server.metrics, &mut page);
    add_flow_control(&server.flow_control, &mut page);
    add_objects(server, &mut page);
    process::add(&mut page);
    response::full(200, CONTENT_TYPE, page.encode())
}

fn add_requests(metrics: &Metrics, page: &mut MetricsPage) {
    let all: Vec<(Labels, Arc<Series>)> =
        metrics.series.read().iter().map(|(labels, series)| (*labels, Arc::clone(series))).collect();
    let totals = all.iter().flat_map(|(labels, series)| {
        let codes = series.codes.lock().clone();
        codes.into_iter().map(|(code, count)| {
            let mut labels = labels.pairs();
            labels.push(("code", code.to_string()));
            (labels, count as f64)
        })
    });
    page.counter("apiserver_request_total", "Requests by verb, resource and code of the answer.", totals);
    let durations = all.iter().map(|(labels, series)| (labels.pairs(), series.histogram()));
    page.histogram("apiserver_request_duration_seconds", "How long requests took, in seconds.", durations);
    let long_running = all.iter().filter(|(labels, _)| labels.is_long_running()).map(|(labels, series)| {
        let mut labels = labels.pairs();
        labels.retain(|(name, value)| *name != "dry_run" || !value.is_empty());
        (labels, series.long_running.load(Relaxed) as f64)
    });
    let help = "Requests now that last for as long as clients want.";
    page.gauge("apiserver_longrunning_requests", help, long_running);
    let inflight = [("mutating", &metrics.mutating_inflight), ("readOnly", &metrics.read_only_inflight)];
    let inflight = inflight.map(|(kind, count)| (pairs([("request_kind", kind)]), count.load(Relaxed) as f64));
    page.gauge("apiserver_current_inflight_requests", "Requests that are carried out now.", inflight);
}

fn add_flow_control(flow_control: &FlowControl, page: &mut MetricsPage) {
    let metrics = flow_control.metrics();
    let schemas = || {
        metrics
            .flow_schemas
            .iter()
            .map(|schema| (schema, pairs([("flow_schema", &schema.name), ("priority_level", &schema.priority_level)])))
    };
    page.counter(
        "apiserver_flowcontrol_dispatched_requests_total",
        "Requests that were let go on.",
        schemas().map(|(schema, labels)| (labels, schema.dispatched as f64)),
    );
    let rejected = schemas().filter(|(schema, _)| schema.rejected > 0).map(|(schema, mut labels)| {
        labels.push(("reason", "queue-full".to_owned()));
        (labels, schema.rejected as f64)
    });
    let help = "Requests for which there was no room.";
    page.counter("apiserver_flowcontrol_rejected_requests_total", help, rejected);
    page.gauge(
        "apiserver_flowcontrol_current_executing_requests",
        "Requests that have a seat now.",
        schemas().map(|(schema, labels)| (labels, schema.executing as f64)),
    );
    page.gauge(
        "apiserver_flowcontrol_current_inqueue_requests",
        "Requests that wait for a seat now.",
        schemas().map(|(schema, labels)| (labels, schema.waiting as f64)),
    );
    let seats = metrics.priority_level_seats.iter();
    page.gauge(
        "apiserver_flowcontrol_nominal_limit_seats",
        "Seats of a priority level.",
        seats.map(|(level, seats)| (pairs([("priority_level", level)]), *seats as f64)),
    );
}

/// Adds the number of stored objects by resource, and the size of the store.
fn add_objects(server: &ApiServer, page: &mut MetricsPage) {
    page.gauge(
        "apiserver_storage_size_bytes",
        "Bytes that all stored objects take.",
        [(pairs([("storage_cluster_id", "podium")]), server.registry.store.usage().bytes as f64)],
    );
    let served = server.kinds.served();
    let mut seen = BTreeMap::new();
    for group in served.groups() {
        for kind in group.versions.iter().flat_map(|version| served.kinds(group.name, version)) {
            let info = kind.info();
            // Any version of a custom resource may be the stored one.
            if !info.create_only && !info.computed && (kind.is_custom() || !info.converted) {
                seen.insert(info.group_resource(), info.storage);
            }
        }
    }
    let objects = seen.into_iter().map(|(name, storage)| {
        let first_page = server.registry.store.list(&Scope::resource(storage), None, Some(1));
        (pairs([("resource", &name)]), (first_page.objects.len() + first_page.remaining) as f64)
    });
    page.gauge("apiserver_storage_objects", "Objects that are stored.", objects);
}
