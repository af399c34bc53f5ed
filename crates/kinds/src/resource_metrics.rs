//! NodeMetrics and PodMetrics (`metrics.k8s.io/v1beta1`), with the tables of metrics-server (`pkg/api/table.go`).
//! The server computes them.

use super::{Cell, Column, KindInfo, NAME, field_validation::items, generic_kind::GenericKind, text};
use api::quantity::Amount;
use serde_json::{Value, json};

const GROUP: &str = "metrics.k8s.io";

pub(super) static NODE_METRICS: GenericKind = GenericKind {
    columns: COLUMNS,
    ..GenericKind::new(&KindInfo {
        version: "v1beta1",
        storage: "nodes.metrics.k8s.io",
        computed: true,
        aggregation_fallback: true,
        ..KindInfo::cluster_scoped(GROUP, "NodeMetrics", "nodes", "")
    })
};

pub(super) static POD_METRICS: GenericKind = GenericKind {
    columns: COLUMNS,
    ..GenericKind::new(&KindInfo {
        version: "v1beta1",
        storage: "pods.metrics.k8s.io",
        computed: true,
        aggregation_fallback: true,
        ..KindInfo::namespaced(GROUP, "PodMetrics", "pods", "")
    })
};

const COLUMNS: &[Column] = &[
    Column { description: "Name of the resource", ..NAME },
    Column { format: "quantity", ..text("cpu", Cell::Computed(|m, _| json!(total_usage(m, "cpu").to_quantity().0))) },
    Column {
        format: "quantity",
        ..text("memory", Cell::Computed(|m, _| json!(total_usage(m, "memory").to_binary_quantity().0)))
    },
    Column { format: "duration", ..text("Window", Cell::Pointer("/window")) },
];

/// Returns the usage of a node, or the sum of a Pod's containers.
fn total_usage(metrics: &Value, resource: &str) -> Amount {
    let parts = items(metrics, "containers").chain([metrics]);
    let used = parts.filter_map(|part| Amount::parse(part["usage"][resource].as_str()?).ok());
    used.fold(Amount::ZERO, Amount::saturating_add)
}
