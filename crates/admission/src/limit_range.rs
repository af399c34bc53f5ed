//! LimitRanger: defaults and limits of the Pods and PersistentVolumeClaims of a namespace.

use crate::Aggregate;
use api::{
    quantity::Amount,
    resources::{self, Amounts, ResourceField},
};
use k8s_openapi::{
    api::core::v1::{Container, LimitRange, LimitRangeItem, PersistentVolumeClaim, Pod},
    apimachinery::pkg::api::resource::Quantity,
};
use std::collections::BTreeMap;

/// Violated limit, with upstream's message.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum LimitError {
    /// The limited value is not specified.
    #[error("{limit}.  No {field} is specified")]
    Unspecified {
        /// The limit, for example `minimum cpu usage per Container is 200m`.
        limit: String,
        /// `request` or `limit`.
        field: &'static str,
    },
    /// The value is out of the limit.
    #[error("{limit}, but {field} is {value}")]
    Violated {
        /// The limit.
        limit: String,
        /// `request` or `limit`.
        field: &'static str,
        /// The value.
        value: String,
    },
    /// The ratio of limit to request is undefined.
    #[error("{limit}, but no {field} is specified or {field} is 0")]
    UndefinedRatio {
        /// The limit.
        limit: String,
        /// `request` or `limit`.
        field: &'static str,
    },
    /// The ratio of limit to request is too large.
    #[error("{limit}, but provided ratio is {ratio:.6}")]
    Ratio {
        /// The limit.
        limit: String,
        /// The ratio.
        ratio: f64,
    },
}

/// Annotation that lists the applied defaults.
const ANNOTATION: &str = "kubernetes.io/limit-ranger";

type List = BTreeMap<String, Quantity>;

/// Sets the default requests and limits of containers (`mergePodResourceRequirements`).
pub fn set_defaults(range: &LimitRange, pod: &mut Pod) {
    let (requests, limits) = (defaults(range, |i| i.default_request.as_ref()), defaults(range, |i| i.default.as_ref()));
    let Some(spec) = pod.spec.as_mut() else { return };
    let mut applied = Vec::new();
    for (container_kind, containers) in
        [("container", &mut spec.containers), ("init container", spec.init_containers.get_or_insert_default())]
    {
        for container in containers {
            let resources = container.resources.get_or_insert_default();
            for (word, defaults, list) in
                [("request", &requests, &mut resources.requests), ("limit", &limits, &mut resources.limits)]
            {
                let new = add_missing(list, defaults);
                if !new.is_empty() {
                    applied.push(format!("{} {word} for {container_kind} {}", new.join(", "), container.name));
                }
            }
        }
    }
    spec.init_containers.take_if(|list| list.is_empty());
    if !applied.is_empty() {
        let text = format!("LimitRanger plugin set: {}", applied.join("; "));
        pod.metadata.annotations.get_or_insert_default().insert(ANNOTATION.to_owned(), text);
    }
}

fn defaults(range: &LimitRange, amounts: impl Fn(&LimitRangeItem) -> Option<&List>) -> List {
    items(range, "Container").filter_map(amounts).flatten().map(|(k, v)| (k.clone(), v.clone())).collect()
}

fn items<'a>(range: &'a LimitRange, kind: &'a str) -> impl Iterator<Item = &'a LimitRangeItem> {
    range.spec.iter().flat_map(|s| &s.limits).filter(move |item| item.type_ == kind)
}

/// Returns the names of the resources that were set to defaults.
fn add_missing(list: &mut Option<List>, defaults: &List) -> Vec<String> {
    let mut new = Vec::new();
    for (name, quantity) in defaults {
        let list = list.get_or_insert_default();
        if !list.contains_key(name) {
            list.insert(name.clone(), quantity.clone());
            new.push(name.clone());
        }
    }
    new
}

/// Checks a Pod against the limits (`PodValidateLimitFunc`).
///
/// # Errors
/// If a limit is violated.
pub fn check_pod(range: &LimitRange, pod: &Pod) -> Result<(), Aggregate<LimitError>> {
    let Some(spec) = &pod.spec else { return Ok(()) };
    let mut errors = Vec::new();
    for item in range.spec.iter().flat_map(|s| &s.limits) {
        match item.type_.as_str() {
            "Container" => {
                let all = spec.containers.iter().chain(spec.init_containers.iter().flatten());
                all.for_each(|c| check_limits(item, &ComputeResources::of_container(c), &mut errors));
            }
            "Pod" => {
                let mut sums = ComputeResources {
                    requests: resources::aggregate_container_resources(spec, ResourceField::Requests),
                    limits: resources::aggregate_container_resources(spec, ResourceField::Limits),
                };
                if let Some(whole) = &spec.resources {
                    sums.requests.extend(resources::amounts(whole.requests.as_ref()));
                    sums.limits.extend(resources::amounts(whole.limits.as_ref()));
                }
                check_limits(item, &sums, &mut errors);
            }
            _ => {}
        }
    }
    Aggregate::check(errors)
}

/// Checks a PersistentVolumeClaim against the limits (`PersistentVolumeClaimValidateLimitFunc`).
///
/// # Errors
/// If a limit is violated.
pub fn check_claim(range: &LimitRange, claim: &PersistentVolumeClaim) -> Result<(), Aggregate<LimitError>> {
    let requests = claim.spec.as_ref().and_then(|s| s.resources.as_ref()?.requests.as_ref());
    let requests = resources::amounts(requests);
    let mut errors = Vec::new();
    for item in items(range, "PersistentVolumeClaim") {
        let kind = &item.type_;
        for (list, word, beyond) in
            [(&item.min, "minimum", std::cmp::Ordering::Less), (&item.max, "maximum", std::cmp::Ordering::Greater)]
        {
            for (name, bound) in list.iter().flatten() {
                let Ok(amount) = Amount::try_from(bound) else { continue };
                let limit = format!("{word} {name} usage per {kind} is {}", bound.0);
                let field = "request";
                match requests.get(name) {
                    None => errors.push(LimitError::Unspecified { limit, field }),
                    Some(request) if request.cmp(&amount) == beyond => {
                        let value = resources::format_amount(name, *request).0;
                        errors.push(LimitError::Violated { limit, field, value });
                    }
                    Some(_) => {}
                }
            }
        }
    }
    Aggregate::check(errors)
}

/// Requests and limits of a container or a Pod.
struct ComputeResources {
    requests: Amounts,
    limits: Amounts,
}

impl ComputeResources {
    fn of_container(c: &Container) -> Self {
        Self {
            requests: resources::container_resources(c, ResourceField::Requests),
            limits: resources::container_resources(c, ResourceField::Limits),
        }
    }
}

/// Checks a Pod or a container against the limits of its type.
fn check_limits(item: &LimitRangeItem, compute: &ComputeResources, errors: &mut Vec<LimitError>) {
    let violated = |limit: String, field: &'static str, name: &String, amount: &Amount| {
        let value = resources::format_amount(name, *amount).0;
        LimitError::Violated { limit, field, value }
    };
    let bounds = |list: &Option<List>| -> Vec<(String, Quantity, Amount)> {
        let all = list.iter().flatten();
        all.filter_map(|(name, bound)| Some((name.clone(), bound.clone(), Amount::try_from(bound).ok()?))).collect()
    };
    for (name, bound, amount) in bounds(&item.min) {
        let limit = format!("minimum {name} usage per {} is {}", item.type_, bound.0);
        match (compute.requests.get(&name), compute.limits.get(&name)) {
            (None, _) => errors.push(LimitError::Unspecified { limit, field: "request" }),
            (Some(r), _) if *r < amount => errors.push(violated(limit, "request", &name, r)),
            (_, Some(l)) if *l < amount => errors.push(violated(limit, "limit", &name, l)),
            _ => {}
        }
    }
    for (name, bound, amount) in bounds(&item.max) {
        let limit = format!("maximum {name} usage per {} is {}", item.type_, bound.0);
        match (compute.limits.get(&name), compute.requests.get(&name)) {
            (None, _) => errors.push(LimitError::Unspecified { limit, field: "limit" }),
            (Some(l), _) if *l > amount => errors.push(violated(limit, "limit", &name, l)),
            (_, Some(r)) if *r > amount => errors.push(violated(limit, "request", &name, r)),
            _ => {}
        }
    }
    for (name, bound, amount) in bounds(&item.max_limit_request_ratio) {
        let limit = format!("{name} max limit to request ratio per {} is {}", item.type_, bound.0);
        let non_zero = |amounts: &Amounts| amounts.get(&name).copied().filter(|a| !a.is_zero());
        match (non_zero(&compute.requests), non_zero(&compute.limits)) {
            (None, _) => errors.push(LimitError::UndefinedRatio { limit, field: "request" }),
            (_, None) => errors.push(LimitError::UndefinedRatio { limit, field: "limit" }),
            (Some(requested), Some(limited)) => {
                errors.extend(excess(requested, limited, amount).map(|ratio| LimitError::Ratio { limit, ratio }));
            }
        }
    }
}

/// Returns the limit-to-request ratio if it exceeds the maximum.
#[expect(clippy::cast_precision_loss, reason = "upstream compares such ratios as floats, too")]
fn excess(request: Amount, limit: Amount, maximum: Amount) -> Option<f64> {
    let ratio = limit.milli() as f64 / request.milli() as f64;
    (ratio * 1000.0 > maximum.milli() as f64).then_some(ratio)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn range(items: &Value) -> LimitRange {
        serde_json::from_value(json!({"metadata": {"name": "l"}, "spec": {"limits": items}})).unwrap()
    }

    fn pod(resources: &Value) -> Pod {
        let containers = json!([{"name": "c", "resources": resources}]);
        serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": {"containers": containers}})).unwrap()
    }

    #[track_caller]
    fn check(items: &Value, resources: &Value, expected: &str) {
        let message =
            check_pod(&range(items), &pod(resources)).err().map(|error| error.to_string()).unwrap_or_default();
        assert_eq!(message, expected, "{items} {resources}");
    }

    #[test]
    fn missing_requests_and_limits_are_defaulted() {
        let range = range(&json!([{"type": "Container", "default": {"cpu": "1", "memory": "1Gi"},
            "defaultRequest": {"cpu": "100m"}}, {"type": "Pod", "max": {"cpu": "2"}}]));
        let mut pod = pod(&json!({"limits": {"memory": "2Gi"}}));
        pod.spec.as_mut().unwrap().init_containers =
            Some(vec![Container { name: "i".to_owned(), ..Container::default() }]);
        set_defaults(&range, &mut pod);
        let spec = serde_json::to_value(pod.spec.as_ref().unwrap()).unwrap();
        let resources = json!({"requests": {"cpu": "100m"}, "limits": {"cpu": "1", "memory": "2Gi"}});
        assert_eq!(spec["containers"][0]["resources"], resources);
        let resources = json!({"requests": {"cpu": "100m"}, "limits": {"cpu": "1", "memory": "1Gi"}});
        assert_eq!(spec["initContainers"][0]["resources"], resources);
        let message = "LimitRanger plugin set: cpu request for container c; cpu limit for container c; \
                    cpu request for init container i; cpu, memory limit for init container i";
        assert_eq!(pod.metadata.annotations.unwrap()[ANNOTATION], message);
    }

    #[test]
    fn pod_with_all_resources_is_unchanged() {
        let range = range(&json!([{"type": "Container", "default": {"cpu": "1"}}]));
        let mut given = pod(&json!({"limits": {"cpu": "2"}}));
        let original = given.clone();
        set_defaults(&range, &mut given);
        assert_eq!(given, original);
    }

    #[test]
    fn violated_limits_are_reported_with_upstream_messages() {
        let bounds = |name: &str, value: &str| json!([{"type": "Container", name: {"cpu": value}}]);
        let min = bounds("min", "200m");
        check(&min, &json!({}), "minimum cpu usage per Container is 200m.  No request is specified");
        let message = "minimum cpu usage per Container is 200m, but request is 100m";
        check(&min, &json!({"requests": {"cpu": "100m"}}), message);
        check(&min, &json!({"requests": {"cpu": "200m"}}), "");
        let max = bounds("max", "1");
        check(&max, &json!({}), "maximum cpu usage per Container is 1.  No limit is specified");
        check(&max, &json!({"limits": {"cpu": "1500m"}}), "maximum cpu usage per Container is 1, but limit is 1500m");
        check(&max, &json!({"limits": {"cpu": "1"}}), "");
        let ratio = bounds("maxLimitRequestRatio", "2");
        let message = "cpu max limit to request ratio per Container is 2, but no request is specified or request is 0";
        check(&ratio, &json!({"limits": {"cpu": "1"}}), message);
        let message = "cpu max limit to request ratio per Container is 2, but provided ratio is 4.000000";
        check(&ratio, &json!({"requests": {"cpu": "250m"}, "limits": {"cpu": "1"}}), message);
        check(&ratio, &json!({"requests": {"cpu": "500m"}, "limits": {"cpu": "1"}}), "");
        let two = json!([{"type": "Container", "max": {"cpu": "1", "memory": "1Gi"}}]);
        let message = "[maximum cpu usage per Container is 1, but limit is 2, \
                    maximum memory usage per Container is 1Gi, but limit is 2Gi]";
        check(&two, &json!({"limits": {"cpu": "2", "memory": "2Gi"}}), message);
    }

    #[test]
    fn pod_limits_apply_to_the_sum_of_its_containers() {
        let range = range(&json!([{"type": "Pod", "max": {"memory": "1Gi"}}]));
        let container = |name: &str| json!({"name": name, "resources": {"limits": {"memory": "600Mi"}}});
        let spec = json!({"containers": [container("a"), container("b")], "initContainers": [container("i")]});
        let mut pod: Pod = serde_json::from_value(json!({"metadata": {}, "spec": spec})).unwrap();
        let message = "maximum memory usage per Pod is 1Gi, but limit is 1200Mi";
        assert_eq!(check_pod(&range, &pod).unwrap_err().to_string(), message);
        let whole = json!({"limits": {"memory": "1Gi"}});
        pod.spec.as_mut().unwrap().resources = serde_json::from_value(whole).unwrap();
        assert_eq!(check_pod(&range, &pod), Ok(()));
    }

    #[test]
    fn claims_are_checked_against_claim_limits() {
        let range =
            range(&json!([{"type": "PersistentVolumeClaim", "min": {"storage": "1Gi"}, "max": {"storage": "2Gi"}}]));
        let check = |storage: &str, expected: Result<(), String>| {
            let spec = json!({"resources": {"requests": {"storage": storage}}});
            let claim = serde_json::from_value(json!({"metadata": {}, "spec": spec})).unwrap();
            assert_eq!(check_claim(&range, &claim).map_err(|error| error.to_string()), expected);
        };
        check("2Gi", Ok(()));
        let usage = |word: &str, bound: &str| format!("{word} storage usage per PersistentVolumeClaim is {bound}");
        check("3Gi", Err(format!("{}, but request is 3Gi", usage("maximum", "2Gi"))));
        check("512Mi", Err(format!("{}, but request is 512Mi", usage("minimum", "1Gi"))));
    }
}
