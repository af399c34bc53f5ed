//! Metrics of the API server in Prometheus' text format, with upstream's names (`k8s.io/apiserver/pkg/endpoints/metrics`).
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
use text::{Kind, Text};
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
    total: AtomicU64,
    /// Number of long-running requests in progress.
    lasting: AtomicI64,
}

/// Metrics of requests.
#[derive(Default)]
pub(crate) struct Metrics {
    /// By the labels of their requests.
    series: RwLock<HashMap<Labels, Arc<Series>>>,
    reading: AtomicI64,
    writing: AtomicI64,
}

/// A request in progress; its duration is recorded when it is dropped.
pub(crate) struct Measured {
    metrics: Arc<Metrics>,
    series: Arc<Series>,
    began: Instant,
    /// Response code; 0 before the response.
    code: u16,
    writes: bool,
    lasts: bool,
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

    fn lasts(self) -> bool {
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

impl Measured {
    pub(crate) fn begin(metrics: &Arc<Metrics>, resource: &RequestInfo, call: &Call) -> Self {
        let verb = match resource.subresource.as_deref() {
            Some("exec" | "attach" | "portforward" | "proxy" | "log") => "CONNECT",
            _ => verb(call, resource.name.is_some()),
        };
        let labels = Labels::of(resource, call, verb);
        let known = metrics.series.read().get(&labels).cloned();
        let series = known.unwrap_or_else(|| metrics.series.write().entry(labels).or_default().clone());
        let (lasts, writes) = (labels.lasts(), !matches!(verb, "GET" | "LIST"));
        let measured = Self { metrics: Arc::clone(metrics), series, began: Instant::now(), code: 0, writes, lasts };
        measured.counter().fetch_add(1, Relaxed);
        measured
    }

    /// Returns the gauge of requests in progress.
    fn counter(&self) -> &AtomicI64 {
        match (self.lasts, self.writes) {
            (true, _) => &self.series.lasting,
            (false, true) => &self.metrics.writing,
            (false, false) => &self.metrics.reading,
        }
    }

    /// Records the response; a long-running request ends with its body.
    pub(crate) fn answered(mut self, reply: HandlerResult) -> HandlerResult {
        let mut response = reply.unwrap_or_else(|error| response::error(&error));
        self.code = response.status().as_u16();
        if self.lasts {
            response = response.map(|body| {
                let goes_on = move |frame| {
                    let _ = &self;
                    frame
                };
                body.map_frame(goes_on).boxed_unsync()
            });
        }
        Ok(response)
    }
}

impl Drop for Measured {
    fn drop(&mut self) {
        self.counter().fetch_sub(1, Relaxed);
        // 499: the client disconnected before the response.
        let code = if self.code == 0 { 499 } else { self.code };
        let took = u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX);
        let place = BOUNDS.iter().position(|(_, bound)| took <= *bound).unwrap_or(BOUNDS.len());
        self.series.durations[place].fetch_add(1, Relaxed);
        self.series.total.fetch_add(took, Relaxed);
        *self.series.codes.lock().entry(code).or_default() += 1;
    }
}

/// Returns all metrics.
pub(crate) fn answer(server: &ApiServer) -> Response<Body> {
    let mut text = Text::default();
    requests(&server.metrics, &mut text);
    flows(&server.flow_control, &mut text);
    objects(server, &mut text);
    process::write(&mut text);
    response::full(200, "text/plain; version=0.0.4; charset=utf-8", text.0)
}

fn requests(metrics: &Metrics, text: &mut Text) {
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
            text.part("_bucket", &format!("{labels},le=\"{bound}\""), &sum);
        }
        sum += series.durations[BOUNDS.len()].load(Relaxed);
        text.part("_bucket", &format!("{labels},le=\"+Inf\""), &sum);
        text.part("_sum", labels, &text::seconds(series.total.load(Relaxed)));
        text.part("_count", labels, &sum);
    }
    text.family("apiserver_longrunning_requests", Kind::Gauge, "Requests now that last for as long as clients want.");
    for (labels, (known, series)) in &all {
        if known.lasts() {
            text.sample(&labels.replace("dry_run=\"\",", ""), &series.lasting.load(Relaxed));
        }
    }
    text.family("apiserver_current_inflight_requests", Kind::Gauge, "Requests that are carried out now.");
    text.sample("request_kind=\"mutating\"", &metrics.writing.load(Relaxed));
    text.sample("request_kind=\"readOnly\"", &metrics.reading.load(Relaxed));
}

fn flows(flows: &FlowControl, text: &mut Text) {
    let told = flows.told();
    let of = |schema: &str, level: &str| format!("flow_schema=\"{schema}\",priority_level=\"{level}\"");
    text.family("apiserver_flowcontrol_dispatched_requests_total", Kind::Counter, "Requests that were let go on.");
    told.schemas.iter().for_each(|s| text.sample(&of(&s.name, &s.level), &s.dispatched));
    text.family(
        "apiserver_flowcontrol_rejected_requests_total",
        Kind::Counter,
        "Requests for which there was no room.",
    );
    for schema in told.schemas.iter().filter(|s| s.rejected > 0) {
        text.sample(&format!("{},reason=\"queue-full\"", of(&schema.name, &schema.level)), &schema.rejected);
    }
    text.family("apiserver_flowcontrol_current_executing_requests", Kind::Gauge, "Requests that have a seat now.");
    told.schemas.iter().for_each(|s| text.sample(&of(&s.name, &s.level), &s.executing));
    text.family("apiserver_flowcontrol_current_inqueue_requests", Kind::Gauge, "Requests that wait for a seat now.");
    told.schemas.iter().for_each(|s| text.sample(&of(&s.name, &s.level), &s.waiting));
    text.family("apiserver_flowcontrol_nominal_limit_seats", Kind::Gauge, "Seats of a priority level.");
    told.levels.iter().for_each(|(level, seats)| text.sample(&format!("priority_level=\"{level}\""), seats));
}

/// Writes the number of stored objects by resource, and the size of the store.
fn objects(server: &ApiServer, text: &mut Text) {
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
        let some = server.store.list(&Scope::resource(storage), None, Some(1));
        text.sample(&format!("resource=\"{name}\""), &(some.objects.len() + some.remaining));
    }
}
