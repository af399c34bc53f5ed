//! Allocation of cluster IPs and node ports of Services (upstream's `pkg/registry/core/service/ipallocator` and
//! `portallocator`).

use crate::{
    ip_allocator::{ip_addresses, service_ranges::Ranges},
    objects::{object, request_scope::RequestScope},
};
use api::address::ipv4;
use errors::ApiError;
use kinds::{FieldErrors, FieldPath, KindInfo, is_headless_without_selector, needs_health_check, needs_node_ports};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    net::Ipv4Addr,
};
use store::{Scope, Store};

const NODE_PORTS: std::ops::RangeInclusive<i64> = 30_000..=32_767;

/// Addresses and ports of the other Services.
struct Taken {
    ips: HashSet<Ipv4Addr>,
    /// The address that the Service itself already has.
    current_ip: Option<Ipv4Addr>,
    ports: BTreeSet<i64>,
}

impl Taken {
    fn look(store: &Store, resource: &RequestScope, name: &str) -> Self {
        let mut taken = Self { ips: HashSet::new(), current_ip: None, ports: BTreeSet::new() };
        for stored in store.list(&Scope::resource(resource.kind.info().storage), None, None).objects {
            let other = object::decode(&*resource.kind, &stored);
            let ip = other["spec"]["clusterIP"].as_str().and_then(ipv4);
            if *stored.key.namespace == *resource.namespace && *stored.key.name == *name {
                taken.current_ip = ip;
                continue;
            }
            taken.ips.extend(ip);
            let ports = other["spec"]["ports"].as_array().cloned().unwrap_or_default();
            taken.ports.extend(ports.iter().filter_map(|p| p["nodePort"].as_i64()));
            taken.ports.extend(other["spec"]["healthCheckNodePort"].as_i64());
        }
        // Addresses of IPAddress objects of other owners are taken, too.
        ip_addresses::add_used_by_others(store, &resource.namespace, name, &mut taken.ips);
        taken
    }
}

/// Lock of the allocation, held until the addresses are stored.
pub(crate) type Turn<'a> = tokio::sync::MutexGuard<'a, ()>;

/// Allocates the addresses of a Service, and returns the lock; `None` for other kinds.
pub(crate) async fn take<'a>(
    store: &Store,
    lock: &'a tokio::sync::Mutex<()>,
    resource: &RequestScope,
    service: &mut Value,
) -> Result<Option<Turn<'a>>, ApiError> {
    if resource.kind.info().kind != "Service" {
        return Ok(None);
    }
    let turn = lock.lock().await;
    allocate(store, resource, service)?;
    Ok(Some(turn))
}

/// Allocates the requested or free addresses and ports of a Service. The caller holds the lock.
fn allocate(store: &Store, resource: &RequestScope, service: &mut Value) -> Result<(), ApiError> {
    if service["spec"]["type"] == "ExternalName" {
        return Ok(());
    }
    let name = service["metadata"]["name"].as_str().unwrap_or("").to_owned();
    let taken = Taken::look(store, resource, &name);
    // The UID randomizes where the search begins.
    let uid = service["metadata"]["uid"].as_str().and_then(|u| uuid::Uuid::parse_str(u).ok()).unwrap_or_default();
    let start = uid.as_u64_pair().1;
    let info = resource.kind.info();
    address(service, &Ranges::of(store), &taken, start, info, &name)?;
    node_ports(service, &taken, start, info, &name)
}

fn address(
    service: &mut Value,
    ranges: &Ranges,
    taken: &Taken,
    start: u64,
    info: &KindInfo,
    name: &str,
) -> Result<(), ApiError> {
    let spec = &mut service["spec"];
    families(spec);
    let explicit = spec["clusterIP"].as_str().filter(|ip| !ip.is_empty()).map(str::to_owned);
    let ip = match explicit {
        Some(ip) if ip == "None" => ip,
        Some(ip) => {
            let message = match ipv4(&ip) {
                Some(ip) if taken.current_ip == Some(ip) => None,
                Some(ip) if taken.ips.contains(&ip) && ranges.refusal(ip).is_none() => {
                    Some("provided IP is already allocated".to_owned())
                }
                Some(ip) => ranges.refusal(ip),
                None => Some("the provided network does not match the current range".to_owned()),
            };
            if let Some(message) = message {
                let mut errors = FieldErrors::default();
                let path = FieldPath::new("spec").child("clusterIPs");
                errors.invalid(&path, &json!([ip]), &format!("failed to allocate IP {ip}: {message}"));
                return Err(ApiError::invalid(info, name, &errors));
            }
            ip
        }
        None => {
            let free = ranges.free(&taken.ips, start);
            free.ok_or_else(|| ApiError::internal("failed to allocate a serviceIP: range is full"))?.to_string()
        }
    };
    spec["clusterIPs"] = json!([ip]);
    spec["clusterIP"] = json!(ip);
    Ok(())
}

/// Upstream's `initIPFamilyFields`: a headless Service without selector defaults to dual stack.
fn families(spec: &mut Value) {
    let is_free = is_headless_without_selector(spec);
    if spec["ipFamilyPolicy"].is_null() {
        spec["ipFamilyPolicy"] = json!(if is_free { "RequireDualStack" } else { "SingleStack" });
    }
    if spec["ipFamilies"].as_array().is_none_or(Vec::is_empty) {
        spec["ipFamilies"] = json!(["IPv4"]);
    }
    let is_dual = is_free && spec["ipFamilyPolicy"] != "SingleStack";
    if let Some(families) = spec["ipFamilies"].as_array_mut().filter(|families| is_dual && families.len() == 1) {
        let other = if families[0] == "IPv4" { "IPv6" } else { "IPv4" };
        families.push(json!(other));
    }
}

fn node_ports(service: &mut Value, taken: &Taken, start: u64, info: &KindInfo, name: &str) -> Result<(), ApiError> {
    let has_some = matches!(service["spec"]["type"].as_str(), Some("NodePort" | "LoadBalancer"));
    let all = needs_node_ports(&service["spec"]);
    let refused = |path: &FieldPath, explicit: &Value, message: &str| {
        let mut errors = FieldErrors::default();
        errors.invalid(path, explicit, message);
        ApiError::invalid(info, name, &errors)
    };
    let (spec, mut allocated) = (FieldPath::new("spec"), BTreeSet::new());
    let (requested, mut shared) = (requested(&service["spec"]), BTreeMap::new());
    // A port that a later port requests is not allocated to an earlier one.
    let requested_ports: BTreeSet<i64> = requested.values().copied().collect();
    for (i, port) in service.pointer_mut("/spec/ports").and_then(Value::as_array_mut).into_iter().flatten().enumerate()
    {
        let Some(fields) = port.as_object_mut() else { continue };
        let explicit = fields.get("nodePort").and_then(Value::as_i64).filter(|p| *p != 0);
        if !has_some || !all && explicit.is_none() {
            fields.remove("nodePort");
            continue;
        }
        let path = spec.child("ports").index(i).child("nodePort");
        // Ports that differ only by protocol share a node port.
        let number = fields.get("port").and_then(Value::as_i64).unwrap_or(0);
        if let Some(same) =
            shared.get(&number).copied().filter(|same| explicit.is_none_or(|explicit| explicit == *same))
        {
            fields.insert("nodePort".to_owned(), json!(same));
            continue;
        }
        let explicit = explicit.or_else(|| requested.get(&number).copied().filter(|_| !shared.contains_key(&number)));
        let port = node_port(explicit, taken, [&allocated, &requested_ports], start)?
            .map_err(|error| refused(&path, &json!(explicit), error))?;
        fields.insert("nodePort".to_owned(), json!(port));
        shared.entry(number).or_insert(port);
        allocated.insert(port);
    }
    if needs_health_check(&service["spec"]) {
        let explicit = service["spec"]["healthCheckNodePort"].as_i64().filter(|p| *p != 0);
        let path = spec.child("healthCheckNodePort");
        let port = node_port(explicit, taken, [&allocated, &requested_ports], start)?
            .map_err(|error| refused(&path, &json!(explicit), error))?;
        service["spec"]["healthCheckNodePort"] = json!(port);
    }
    Ok(())
}

/// Returns the requested node ports by Service port; the first of several.
fn requested(spec: &Value) -> BTreeMap<i64, i64> {
    let mut all = BTreeMap::new();
    for port in spec["ports"].as_array().into_iter().flatten() {
        if let (Some(number), Some(explicit)) = (port["port"].as_i64(), port["nodePort"].as_i64().filter(|p| *p != 0)) {
            all.entry(number).or_insert(explicit);
        }
    }
    all
}

/// Returns the requested node port or a free one, or why it cannot be allocated.
fn node_port(
    explicit: Option<i64>,
    taken: &Taken,
    [allocated, requested]: [&BTreeSet<i64>; 2],
    start: u64,
) -> Result<Result<i64, &'static str>, ApiError> {
    let busy = |p: &i64| taken.ports.contains(p) || allocated.contains(p);
    match explicit {
        Some(p) if !NODE_PORTS.contains(&p) => {
            Ok(Err("provided port is not in the valid range. The range of valid ports is 30000-32767"))
        }
        Some(p) if busy(&p) => Ok(Err("provided port is already allocated")),
        Some(p) => Ok(Ok(p)),
        None => {
            let places = NODE_PORTS.end() - NODE_PORTS.start() + 1;
            let from = i64::try_from(start % places.unsigned_abs()).unwrap_or(0);
            let mut all = (0..places).map(|n| NODE_PORTS.start() + (from + n) % places);
            let free = all.find(|p| !busy(p) && !requested.contains(p));
            free.map(Ok).ok_or_else(|| ApiError::internal("failed to allocate a nodePort: range is full"))
        }
    }
}
