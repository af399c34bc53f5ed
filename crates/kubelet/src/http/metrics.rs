//! Metrics in Prometheus' text format: `/metrics`, `/metrics/resource` (`pkg/kubelet/metrics/collectors`, which
//! metrics-server reads), `/metrics/cadvisor` and `/metrics/probes`. All but the last are collected on request.

use crate::{
    Shared,
    cgroup::CgroupUsage,
    pod_stats::{self, PodStats},
};
use api::metrics::{self, Labels, MetricsPage};
use axum::{
    extract::State,
    http::header::CONTENT_TYPE,
    response::{IntoResponse, Response},
};
use jiff::Timestamp;
use std::sync::Arc;

/// Serves a page.
fn respond(page: &MetricsPage) -> Response {
    ([(CONTENT_TYPE, metrics::CONTENT_TYPE)], page.encode()).into_response()
}

/// Converts to floating point, as Prometheus samples are.
fn float(n: u64) -> f64 {
    n as f64
}

/// Converts nanoseconds to seconds.
fn seconds(nanos: u64) -> f64 {
    float(nanos) / 1e9
}

fn since_epoch(at: Timestamp) -> f64 {
    at.as_duration().as_secs_f64()
}

/// Returns the labels of a Pod, or of a container in it.
fn labels(pod: &PodStats, container: Option<&str>) -> Labels {
    let meta = &pod.pod.metadata;
    let word = |w: &Option<String>| w.clone().unwrap_or_default();
    let container = container.map(|name| ("container", name.to_owned()));
    container.into_iter().chain([("pod", word(&meta.name)), ("namespace", word(&meta.namespace))]).collect()
}

/// Returns a sample for each container that has a value.
fn of_containers(pods: &[PodStats], value: impl Fn(&pod_stats::ContainerStats) -> Option<f64>) -> Vec<(Labels, f64)> {
    let containers = pods.iter().flat_map(|p| p.containers.iter().map(move |c| (p, c)));
    containers.filter_map(|(p, c)| Some((labels(p, Some(&c.name)), value(c)?))).collect()
}

fn of_pods(pods: &[PodStats], value: impl Fn(&CgroupUsage) -> Option<f64>) -> Vec<(Labels, f64)> {
    pods.iter().filter_map(|p| Some((labels(p, None), value(&p.usage)?))).collect()
}

pub(super) async fn probes(State(shared): State<Arc<Shared>>) -> Response {
    let mut page = MetricsPage::default();
    shared.probes.add(&mut page);
    respond(&page)
}

pub(super) async fn resource(State(shared): State<Arc<Shared>>) -> Response {
    let pods = pod_stats::collect(&shared, pod_stats::active(&shared), false).await;
    let stats = shared.evictions.system_stats();
    let memory = stats.memory();
    let mut page = MetricsPage::default();
    let none = Labels::new;
    let error = f64::from(u8::from(memory.is_none()));
    let (cpu, working) = ("Cumulative cpu time consumed by the", "Current working set of the");
    page.counter(
        "node_cpu_usage_seconds_total",
        &format!("{cpu} node in core-seconds"),
        stats.cpu().map(|n| (none(), seconds(n))),
    );
    page.gauge(
        "node_memory_working_set_bytes",
        &format!("{working} node in bytes"),
        memory.map(|m| (none(), float(m.total.saturating_sub(m.available)))),
    );
    page.gauge(
        "node_swap_usage_bytes",
        "Current swap usage of the node in bytes. Reported only on non-windows systems",
        memory.map(|m| (none(), float(m.swap_total.saturating_sub(m.swap_free)))),
    );
    page.counter(
        "container_cpu_usage_seconds_total",
        &format!("{cpu} container in core-seconds"),
        of_containers(&pods, |c| c.usage.cpu.map(seconds)),
    );
    page.gauge(
        "container_memory_working_set_bytes",
        &format!("{working} container in bytes"),
        of_containers(&pods, |c| c.usage.working_set.map(float)),
    );
    page.gauge(
        "container_swap_usage_bytes",
        "Current amount of the container swap usage in bytes. Reported only on non-windows systems",
        of_containers(&pods, |c| c.usage.swap.map(float)),
    );
    page.counter(
        "pod_cpu_usage_seconds_total",
        &format!("{cpu} pod in core-seconds"),
        of_pods(&pods, |u| u.cpu.map(seconds)),
    );
    page.gauge(
        "pod_memory_working_set_bytes",
        &format!("{working} pod in bytes"),
        of_pods(&pods, |u| u.working_set.map(float)),
    );
    page.gauge(
        "pod_swap_usage_bytes",
        "Current amount of the pod swap usage in bytes. Reported only on non-windows systems",
        of_pods(&pods, |u| u.swap.map(float)),
    );
    // Clients compute rates of usage from the timestamps.
    page.set_timestamp(shared.now());
    page.gauge(
        "container_start_time_seconds",
        "Start time of the container since unix epoch in seconds",
        of_containers(&pods, |c| c.started_at.map(since_epoch)),
    );
    for name in ["scrape_error", "resource_scrape_error"] {
        page.gauge(name, "1 if there was an error while getting container metrics, 0 otherwise", [(none(), error)]);
    }
    respond(&page)
}

pub(super) async fn cadvisor(State(shared): State<Arc<Shared>>) -> Response {
    let pods = pod_stats::collect(&shared, pod_stats::active(&shared), false).await;
    let mut page = MetricsPage::default();
    let cgroup = |mut labels: Labels, path: &Option<String>| {
        labels.insert(1, ("id", path.clone().unwrap_or_default()));
        labels
    };
    // The container label of the whole Pod is empty, as in cAdvisor.
    let all: Vec<(Labels, CgroupUsage)> = pods
        .iter()
        .flat_map(|p| {
            let containers = p.containers.iter().map(|c| (cgroup(labels(p, Some(&c.name)), &c.cgroup), c.usage));
            containers.chain([(cgroup(labels(p, Some("")), &p.cgroup), p.usage)])
        })
        .collect();
    let values = |value: fn(&CgroupUsage) -> Option<u64>| {
        all.iter().filter_map(|(labels, usage)| Some((labels.clone(), float(value(usage)?)))).collect::<Vec<_>>()
    };
    let cpu = values(|u| u.cpu).into_iter().map(|(labels, nanos)| (labels, nanos / 1e9));
    page.counter("container_cpu_usage_seconds_total", "Cumulative cpu time consumed in seconds.", cpu);
    page.gauge("container_memory_usage_bytes", "Current memory usage in bytes.", values(|u| u.memory));
    page.gauge("container_memory_working_set_bytes", "Current working set in bytes.", values(|u| u.working_set));
    page.gauge("container_memory_rss", "Size of RSS in bytes.", values(|u| u.rss));
    page.gauge("container_memory_swap", "Container swap usage in bytes.", values(|u| u.swap));
    page.gauge("container_spec_memory_limit_bytes", "Memory limit for the container.", values(|u| u.memory_limit));
    page.gauge("container_processes", "Number of processes running inside the container.", values(|u| u.processes));
    let amount = |name: &str| shared.node_resources.capacity.get(name).map_or(0.0, |a| float(a.value().unsigned_abs()));
    page.gauge("machine_cpu_cores", "Number of logical CPU cores.", [(Labels::new(), amount("cpu"))]);
    page.gauge(
        "machine_memory_bytes",
        "Amount of memory installed on the machine.",
        [(Labels::new(), amount("memory"))],
    );
    respond(&page)
}

pub(super) async fn kubelet(State(shared): State<Arc<Shared>>) -> Response {
    let pods = pod_stats::active(&shared);
    let running = |p: &lifecycle::Pod| {
        let names = api::pod::containers(crate::pods::spec(p)).map(|(_, c)| &c.name);
        names.filter(|name| p.is_running(name)).count() as u64
    };
    let containers: u64 = pods.iter().map(|p| running(p)).sum();
    let sandboxes = pods.iter().filter(|p| p.sandbox_id().is_some()).count() as u64;
    let mut page = MetricsPage::default();
    let none = Labels::new;
    let one = |name: &'static str, value: &str| vec![(name, value.to_owned())];
    page.gauge(
        "kubelet_node_name",
        "The node's name. The count is always 1.",
        [(one("node", &shared.options.node_name), 1.0)],
    );
    let tasks = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    page.gauge("podium_tasks", "Number of tasks of the whole process", [(none(), float(tasks as u64))]);
    let cache_entries =
        crate::cache_sizes::counts(&shared).into_iter().map(|(cache, n)| (one("cache", cache), float(n as u64)));
    page.gauge("podium_kubelet_cache_entries", "Number of entries in the kubelet's caches of Pods", cache_entries);
    page.gauge("kubelet_running_pods", "Number of pods that have a running pod sandbox", [(none(), float(sandboxes))]);
    page.gauge(
        "kubelet_running_containers",
        "Number of containers currently running",
        [(one("container_state", "running"), float(containers))],
    );
    page.gauge(
        "kubelet_active_pods",
        "The number of pods the kubelet considers active",
        [(none(), float(pods.len() as u64))],
    );
    let evictions = shared.evictions.counts().into_iter().map(|(signal, n)| (one("eviction_signal", signal), float(n)));
    page.counter("kubelet_evictions", "Cumulative number of pod evictions by eviction signal", evictions);
    let preemptions = shared.evictions.preemptions();
    let preemptions = preemptions.into_iter().map(|(resource, n)| (one("preemption_signal", &resource), float(n)));
    page.counter("kubelet_preemptions", "Cumulative number of pod preemptions by preemption resource", preemptions);
    let (began, ended) = shared.shutdown.last();
    for (name, event, at) in [
        ("kubelet_graceful_shutdown_start_time_seconds", "start", began),
        ("kubelet_graceful_shutdown_end_time_seconds", "end", ended),
    ] {
        let help = format!("Last graceful shutdown {event} time since unix epoch in seconds");
        page.gauge(name, &help, [(none(), at.map_or(0.0, since_epoch))]);
    }
    page.gauge(
        "kubernetes_build_info",
        "A metric with a constant '1' value labeled by version",
        [(one("git_version", api::KUBERNETES_VERSION), 1.0)],
    );
    let read = |file: &str| crate::host_file::read_text(format!("/proc/self/{file}")).unwrap_or_default();
    let open_files = std::fs::read_dir("/proc/self/fd").ok().map(Iterator::count);
    metrics::process::add(&mut page, &read("stat"), &read("status"), open_files);
    respond(&page)
}
