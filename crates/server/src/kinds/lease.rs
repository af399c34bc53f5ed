//! Lease (`coordination.k8s.io/v1`).

use super::{Column, Kind, KindInfo, Row, age_cell, column, name_cell};
use serde_json::Value;

pub(super) struct Lease;

static INFO: KindInfo = KindInfo {
    group: "coordination.k8s.io",
    storage: "leases.coordination.k8s.io",
    ..KindInfo::core("Lease", "leases", "lease")
};

const COLUMNS: &[Column] = &[
    Column { format: "name", ..column("Name", "string", 0) },
    column("Holder", "string", 0),
    column("Age", "string", 0),
];

impl Kind for Lease {
    fn info(&self) -> &'static KindInfo {
        &INFO
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, object: &Value, now: jiff::Timestamp) -> Row {
        let holder = object["spec"]["holderIdentity"].clone();
        Row { cells: vec![name_cell(object), holder, age_cell(object, now)], conditions: Vec::new() }
    }
}
