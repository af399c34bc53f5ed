//! Ports that are had twice: by several containers of a Pod, or by one.

use super::{MAX_COMPARISONS, containers};
use crate::kinds::{
    FieldPath,
    checks::{items, text},
};
use serde_json::Value;
use std::collections::HashMap;

/// One port of one container.
struct Port<'a> {
    at: FieldPath,
    name: &'a str,
    number: i64,
    protocol: &'a str,
    host_port: i64,
    host_ip: &'a str,
}

impl<'a> Port<'a> {
    fn read(port: &'a Value, at: FieldPath) -> Self {
        let number = |field: &str| port[field].as_i64().unwrap_or(0);
        Self {
            at,
            name: text(port, "name"),
            number: number("containerPort"),
            protocol: text(port, "protocol"),
            host_port: number("hostPort"),
            host_ip: text(port, "hostIP"),
        }
    }

    /// In what way it is in the way of an earlier one.
    fn clash(&self, earlier: &Self) -> Option<&'static str> {
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

    /// As Go writes it.
    fn shown(&self) -> String {
        let Self { name, number, protocol, host_port, host_ip, .. } = self;
        format!("{{Name:{name} HostPort:{host_port} ContainerPort:{number} Protocol:{protocol} HostIP:{host_ip}}}")
    }
}

pub(super) fn ports(spec: &Value, path: &FieldPath, all: &mut Vec<String>) {
    // Only ports of one number and protocol can clash.
    let mut before: HashMap<(i64, &str), Vec<Port<'_>>> = HashMap::new();
    let mut comparisons = 0;
    for (list, i, c) in containers(spec) {
        for (j, port) in items(c, "ports").enumerate() {
            let port = Port::read(port, path.child(list).index(i).child("ports").index(j));
            if !port.host_ip.is_empty() && port.host_port == 0 {
                all.push(format!("{}: hostIP set without hostPort: {}", port.at, port.shown()));
            }
            let before = before.entry((port.number, port.protocol)).or_default();
            comparisons += before.len();
            if comparisons > MAX_COMPARISONS {
                continue;
            }
            let clashes = before.iter().filter_map(|earlier| Some((port.clash(earlier)?, &earlier.at)));
            all.extend(clashes.map(|(how, earlier)| format!("{}: {how} port definition with {earlier}", port.at)));
            before.push(port);
        }
    }
    names(spec, path, all);
}

/// Names that several containers have which run at the same time.
fn names(spec: &Value, path: &FieldPath, all: &mut Vec<String>) {
    let mut before: HashMap<&str, FieldPath> = HashMap::new();
    let at_once = containers(spec).filter(|(list, _, c)| *list != "initContainers" || c["restartPolicy"] == "Always");
    for (list, i, c) in at_once {
        for (j, name) in items(c, "ports").map(|port| text(port, "name")).enumerate().filter(|(_, n)| !n.is_empty()) {
            let at = path.child(list).index(i).child("ports").index(j);
            match before.get(name) {
                Some(first) => all.push(format!(
                    "{at}: duplicate port name {name:?} with {first}, services and probes that select ports by name will use {first}"
                )),
                None => drop(before.insert(name, at)),
            }
        }
    }
}
