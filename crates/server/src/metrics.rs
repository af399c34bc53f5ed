//! Metrics of the API server in Prometheus' text format, with upstream's names
//! (`k8s.io/apiserver/pkg/endpoints/metrics`).
//!
//! A request only increments counters; other values are computed when the metrics are scraped.

mod process;
mod text;

use crate::{
    flowcontrol::FlowControl,
    request::RequestInfo,
    response::{self, Body, HandlerResult},
    service::{ApiServer, Call},
};
use http::{Method, Response};
use http_body_util::BodyExt;
use parking_lot::{Mutex, RwLock};
use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering::Relaxed},
    },
};
use store::Scope;
use text::{Kind, MetricsText};
use tokio::time::Instant;

/// Upper bounds of durations in seconds, as text and in microseconds.
const BOUNDS: [(&str, u64); 23] = [
    ("0.005", 5_000),
    ("0.025", 25_000),
    ("0.05", 50_000),
    ("0.1", 100_000),
    ("0.2", 200_000),
    ("0.4", 400_000),
    ("0.6", 600_000),
    ("0.8", 800_000),
    ("1", 1_000_000),
    ("1.25", 1_250_000),
    ("1.5", 1_500_000),
    ("2", 2_000_000),
    ("3", 3_000_000),
    ("4", 4_000_000),
    ("5", 5_000_000),
    ("6", 6_000_000),
    ("8", 8_000_000),
    ("10", 10_000_000),
    ("15", 15_000_000),
    ("20", 20_000_000),
    ("30", 30_000_000),
    ("45", 45_000_000),
    ("60", 60_000_000),
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
        Method::PATCH if call.content_type == crate::patch::APPLY => "APPLY",
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
    fn of(resource: &RequestInfo, call: &Call, verb: &'static str) -> Self {
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
}

impl fmt::Display for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { dry, group, resource, scope, subresource, verb, version } = self;
        // Names of resources contain no characters to escape.
        write!(
            f,
            "component=\"apiserver\",dry_run=\"{dry}\",group=\"{group}\",resource=\"{resource}\",scope=\"{scope}\",subresource=\"{subresource}\",verb=\"{verb}\",version=\"{version}\""
        )
    }
}

impl RequestMeasurement {
    pub(crate) fn begin(metrics: &Arc<Metrics>, resource: &RequestInfo, call: &Call) -> Self {
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
        let bucket = BOUNDS.iter().position(|(_, bound)| duration <= *bound).unwrap_or(BOUNDS.len());
        self.series.durations[bucket].fetch_add(1, Relaxed);
        self.series.total_micros.fetch_add(duration, Relaxed);
        *self.series.codes.lock().entry(code).or_default() += 1;
    }
}

/// Serves all metrics.
pub(crate) fn serve_metrics(server: &ApiServer) -> Response<Body> {
    let mut text = MetricsText::default();
    write_requests(&server.metrics, &mut text);
    write_flow_control(&server.flow_control, &mut text);
    write_objects(server, &mut text);
    process::write(&mut text);
    response::full(200, "text/plain; version=0.0.4; charset=utf-8", text.0)
}

fn write_requests(metrics: &Metrics, text: &mut MetricsText) {
    let all: BTreeMap<String, (Labels, Arc<Series>)> =
        metrics.series.read().iter().map(|(labels, s)| (labels.to_string(), (*labels, s.clone()))).collect();
    text.family("apiserver_request_total", Kind::Counter, "Requests by verb, resource and code of the answer.");
    for (labels, (_, series)) in &all {
        for (code, count) in series.codes.lock().iter() {
            text.sample(&format!("code=\"{code}\",{labels}"), count);
        }
    }
    text.family("apiserver_request_duration_seconds", Kind::Histogram, "How long requests took, in seconds.");
    for (labels, (_, series)) in &all {
        let mut sum = 0;
        for ((bound, _), count) in BOUNDS.iter().zip(&series.durations) {
            sum += count.load(Relaxed);
            text.sample_with_suffix("_bucket", &format!("{labels},le=\"{bound}\""), &sum);
        }
        sum += series.durations[BOUNDS.len()].load(Relaxed);
        text.sample_with_suffix("_bucket", &format!("{labels},le=\"+Inf\""), &sum);
        text.sample_with_suffix("_sum", labels, &text::seconds(series.total_micros.load(Relaxed)));
        text.sample_with_suffix("_count", labels, &sum);
    }
    text.family("apiserver_longrunning_requests", Kind::Gauge, "Requests now that last for as long as clients want.");
    for (labels, (parsed, series)) in &all {
        if parsed.is_long_running() {
            text.sample(&labels.replace("dry_run=\"\",", ""), &series.long_running.load(Relaxed));
        }
    }
    text.family("apiserver_current_inflight_requests", Kind::Gauge, "Requests that are carried out now.");
    text.sample("request_kind=\"mutating\"", &metrics.mutating_inflight.load(Relaxed));
    text.sample("request_kind=\"readOnly\"", &metrics.read_only_inflight.load(Relaxed));
}

fn write_flow_control(flow_control: &FlowControl, text: &mut MetricsText) {
    let metrics = flow_control.metrics();
    let labels = |schema: &str, level: &str| format!("flow_schema=\"{schema}\",priority_level=\"{level}\"");
    text.family("apiserver_flowcontrol_dispatched_requests_total", Kind::Counter, "Requests that were let go on.");
    metrics.flow_schemas.iter().for_each(|s| text.sample(&labels(&s.name, &s.priority_level), &s.dispatched));
    text.family(
        "apiserver_flowcontrol_rejected_requests_total",
        Kind::Counter,
        "Requests for which there was no room.",
    );
    for schema in metrics.flow_schemas.iter().filter(|s| s.rejected > 0) {
        text.sample(
            &format!("{},reason=\"queue-full\"", labels(&schema.name, &schema.priority_level)),
            &schema.rejected,
        );
    }
    text.family("apiserver_flowcontrol_current_executing_requests", Kind::Gauge, "Requests that have a seat now.");
    metrics.flow_schemas.iter().for_each(|s| text.sample(&labels(&s.name, &s.priority_level), &s.executing));
    text.family("apiserver_flowcontrol_current_inqueue_requests", Kind::Gauge, "Requests that wait for a seat now.");
    metrics.flow_schemas.iter().for_each(|s| text.sample(&labels(&s.name, &s.priority_level), &s.waiting));
    text.family("apiserver_flowcontrol_nominal_limit_seats", Kind::Gauge, "Seats of a priority level.");
    metrics
        .priority_level_seats
        .iter()
        .for_each(|(level, seats)| text.sample(&format!("priority_level=\"{level}\""), seats));
}

/// Writes the number of stored objects by resource, and the size of the store.
fn write_objects(server: &ApiServer, text: &mut MetricsText) {
    text.family("apiserver_storage_size_bytes", Kind::Gauge, "Bytes that all stored objects take.");
    text.sample("storage_cluster_id=\"podium\"", &server.store.usage().bytes);
    text.family("apiserver_storage_objects", Kind::Gauge, "Objects that are stored.");
    let served = server.registry.served();
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
    for (name, storage) in seen {
        let first_page = server.store.list(&Scope::resource(storage), None, Some(1));
        text.sample(&format!("resource=\"{name}\""), &(first_page.objects.len() + first_page.remaining));
    }
}
