//! NodeMetrics and PodMetrics (`metrics.k8s.io/v1beta1`), with the tables of metrics-server (`pkg/api/table.go`). What they
//! say is found out in `resource_metrics`.

use super::{Cell, Column, KindInfo, NAME, checks::items, plain::Plain, text};
use api::quantity::Amount;
use serde_json::{Value, json};

const GROUP: &str = "metrics.k8s.io";

pub(super) static NODE_METRICS: Plain = Plain {
    columns: COLUMNS,
    ..Plain::of(&KindInfo {
        version: "v1beta1",
        storage: "nodes.metrics.k8s.io",
        computed: true,
        stand_in: true,
        ..KindInfo::of_cluster(GROUP, "NodeMetrics", "nodes", "")
    })
};

pub(super) static POD_METRICS: Plain = Plain {
    columns: COLUMNS,
    ..Plain::of(&KindInfo {
        version: "v1beta1",
        storage: "pods.metrics.k8s.io",
        computed: true,
        stand_in: true,
        ..KindInfo::of(GROUP, "PodMetrics", "pods", "")
    })
};

const COLUMNS: &[Column] = &[
    Column { description: "Name of the resource", ..NAME },
    Column { format: "quantity", ..text("cpu", Cell::Of(|m, _| json!(total(m, "cpu").to_quantity().0))) },
    Column { format: "quantity", ..text("memory", Cell::Of(|m, _| json!(total(m, "memory").to_binary_quantity().0))) },
    Column { format: "duration", ..text("Window", Cell::At("/window")) },
];

/// What a node uses, or all containers of a Pod together.
fn total(metrics: &Value, resource: &str) -> Amount {
    let parts = items(metrics, "containers").chain([metrics]);
    let used = parts.filter_map(|part| Amount::parse(part["usage"][resource].as_str()?).ok());
    used.fold(Amount::ZERO, Amount::plus)
}
