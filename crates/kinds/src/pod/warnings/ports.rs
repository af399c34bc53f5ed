//! Warnings for duplicate and overlapping container ports.

use super::{MAX_COMPARISONS, containers};
use crate::{
    FieldPath,
    field_validation::{items, text},
};
use serde_json::Value;
use std::collections::HashMap;

/// A container port.
struct Port<'a> {
    path: FieldPath,
    name: &'a str,
    number: i64,
    protocol: &'a str,
    host_port: i64,
    host_ip: &'a str,
}

impl<'a> Port<'a> {
    fn read(port: &'a Value, path: FieldPath) -> Self {
        let number = |field: &str| port[field].as_i64().unwrap_or(0);
        Self {
            path,
            name: text(port, "name"),
            number: number("containerPort"),
            protocol: text(port, "protocol"),
            host_port: number("hostPort"),
            host_ip: text(port, "hostIP"),
        }
    }

    /// Returns how the port conflicts with an earlier one.
    fn conflict(&self, earlier: &Self) -> Option<&'static str> {
        if (self.number, self.protocol) != (earlier.number, earlier.protocol) {
            return None;
        }
        let one_has_no_ip = self.host_ip.is_empty() != earlier.host_ip.is_empty();
        match self.host_port == earlier.host_port {
            true if self.host_ip == earlier.host_ip => Some("duplicate"),
            _ if self.host_port == 0 || earlier.host_port == 0 => Some("overlapping"),
            true if one_has_no_ip => Some("dangerously ambiguous"),
            _ => None,
        }
    }

    /// Formats the port like Go's `%+v`.
    fn go_format(&self) -> String {
        let Self { name, number, protocol, host_port, host_ip, .. } = self;
        format!("{{Name:{name} HostPort:{host_port} ContainerPort:{number} Protocol:{protocol} HostIP:{host_ip}}}")
    }
}

pub(super) fn warn_port_conflicts(spec: &Value, path: &FieldPath, all: &mut Vec<String>) {
    // Only ports with the same number and protocol can conflict.
    let mut earlier_ports: HashMap<(i64, &str), Vec<Port<'_>>> = HashMap::new();
    let mut comparisons = 0;
    for (list, i, c) in containers(spec) {
        for (j, port) in items(c, "ports").enumerate() {
            let port = Port::read(port, path.child(list).index(i).child("ports").index(j));
            if !port.host_ip.is_empty() && port.host_port == 0 {
                all.push(format!("{}: hostIP set without hostPort: {}", port.path, port.go_format()));
            }
            let earlier_ports = earlier_ports.entry((port.number, port.protocol)).or_default();
            comparisons += earlier_ports.len();
            if comparisons > MAX_COMPARISONS {
                continue;
            }
            let conflicts = earlier_ports.iter().filter_map(|earlier| Some((port.conflict(earlier)?, &earlier.path)));
            all.extend(conflicts.map(|(how, earlier)| format!("{}: {how} port definition with {earlier}", port.path)));
            earlier_ports.push(port);
        }
    }
    warn_duplicate_port_names(spec, path, all);
}

/// Warns of port names that concurrent containers share.
fn warn_duplicate_port_names(spec: &Value, path: &FieldPath, all: &mut Vec<String>) {
    let mut earlier_ports: HashMap<&str, FieldPath> = HashMap::new();
    let concurrent =
        containers(spec).filter(|(list, _, c)| *list != "initContainers" || c["restartPolicy"] == "Always");
    for (list, i, c) in concurrent {
        for (j, name) in items(c, "ports").map(|port| text(port, "name")).enumerate().filter(|(_, n)| !n.is_empty()) {
            let path = path.child(list).index(i).child("ports").index(j);
            match earlier_ports.get(name) {
                Some(first) => all.push(format!(
                    "{path}: duplicate port name {name:?} with {first}, services and probes that select ports by name will use {first}"
                )),
                None => drop(earlier_ports.insert(name, path)),
            }
        }
    }
}
