//! Desired replicas of each metric, and their maximum (`computeReplicasForMetrics`).

use super::{
    calculator::{Calculator, CalculatorError, Samples},
    conditions::Conditions,
    metrics::{MetricsError, Reading, milli, selector_text},
};
use crate::selector_format::format_selector;
use api::{resources::Amount, selector::UnknownOperatorError};
use k8s_openapi::api::autoscaling::v2::{
    ContainerResourceMetricStatus, ExternalMetricSource, ExternalMetricStatus, MetricSpec, MetricStatus, MetricTarget,
    MetricValueStatus, ObjectMetricSource, ObjectMetricStatus, PodsMetricSource, PodsMetricStatus,
    ResourceMetricStatus,
};

/// Replicas that a metric proposes.
#[derive(Debug, Clone, PartialEq)]
struct Proposal {
    replicas: i32,
    /// Name of the metric in messages.
    name: String,
    status: MetricStatus,
}

/// Why the replicas of a metric cannot be computed, with upstream's message.
#[derive(Debug, thiserror::Error)]
enum ProposalError {
    #[error("unable to get metrics for resource {resource}: {source}")]
    ReadResource { resource: String, source: Box<MetricsError> },
    #[error("unable to get metric {metric}: {source}")]
    ReadPods { metric: String, source: Box<MetricsError> },
    /// Upstream passes these arguments in an order that does not fit its format string.
    #[error("unable to get metric {metric}: {kind} on {namespace} {name}/{source}")]
    ReadObject { metric: String, kind: String, namespace: String, name: String, source: Box<MetricsError> },
    #[error("unable to get external metric {namespace}/{metric}/{selector}: {source}")]
    ReadExternal { namespace: String, metric: String, selector: String, source: Box<MetricsError> },
    #[error("no metrics")]
    NoMetrics,
    #[error(transparent)]
    Selector(#[from] UnknownOperatorError),
    #[error(transparent)]
    Calculator(#[from] CalculatorError),
    #[error("failed to get {resource} {value}: {source}")]
    Resource { resource: String, value: &'static str, source: Box<ProposalError> },
    #[error(
        "invalid resource metric source: neither an average utilization target nor an average value (usage) target was set"
    )]
    NoResourceTarget,
    #[error("invalid {0} metric source: neither a value target nor an average value target was set")]
    NoTarget(&'static str),
}

/// Why a metric proposes nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Failure {
    reason: &'static str,
    /// Message of the Event and the condition.
    message: String,
    /// The same within upstream's error of the autoscaler.
    error: String,
}

/// Result of all metrics.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct MetricsResult {
    /// Desired replicas and the metric that requires them; `None` if too many metrics failed.
    pub(super) desired: Option<(i32, String)>,
    pub(super) statuses: Vec<MetricStatus>,
    /// Reasons and messages of warnings.
    pub(super) warnings: Vec<(&'static str, String)>,
    pub(super) error: Option<String>,
}

/// Returns the maximum of the metrics' proposals. If a metric failed, nothing is scaled down.
pub(super) fn compute(
    specs: &[MetricSpec],
    readings: Vec<Result<Reading, MetricsError>>,
    calculator: &Calculator<'_>,
    namespace: &str,
    conditions: &mut Conditions,
) -> MetricsResult {
    let (mut best, mut statuses, mut failures) = (None::<(i32, String)>, Vec::new(), Vec::new());
    for (spec, reading) in specs.iter().zip(readings) {
        match propose(spec, reading, calculator, namespace) {
            Ok(proposal) => {
                if best.as_ref().is_none_or(|(highest, _)| *highest == 0 || proposal.replicas > *highest) {
                    best = Some((proposal.replicas, proposal.name));
                }
                statuses.push(proposal.status);
            }
            Err(failure) => {
                failures.push(failure);
                statuses.push(MetricStatus::default());
            }
        }
    }
    let error = failures.first().map(|first| {
        let (invalid, all) = (failures.len(), specs.len());
        format!("invalid metrics ({invalid} invalid out of {all}), first error is: {}", first.error)
    });
    let desired = best.filter(|(desired, _)| failures.is_empty() || *desired >= calculator.replicas);
    match (&desired, failures.first()) {
        (Some((_, metric)), _) => {
            let message = format!("the HPA was able to successfully calculate a replica count from {metric}");
            conditions.set_scaling_active(true, ("ValidMetricFound", &message));
        }
        (None, Some(first)) => {
            let message = format!("the HPA was unable to compute the replica count: {}", first.message);
            conditions.set_scaling_active(false, (first.reason, &message));
        }
        (None, None) => {}
    }
    MetricsResult { desired, statuses, warnings: failures.into_iter().map(|f| (f.reason, f.message)).collect(), error }
}

fn propose(
    spec: &MetricSpec,
    reading: Result<Reading, MetricsError>,
    calculator: &Calculator<'_>,
    namespace: &str,
) -> Result<Proposal, Failure> {
    match (spec.type_.as_str(), &spec.resource, &spec.container_resource, &spec.pods, &spec.object, &spec.external) {
        ("Resource", Some(source), ..) => {
            let counted = resource(&source.target, &source.name, None, reading, calculator);
            let (replicas, name, current) = counted.map_err(|error| Failure {
                reason: "FailedGetResourceMetric",
                message: error.to_string(),
                error: format!("failed to get {} resource metric value: {error}", source.name),
            })?;
            let status = ResourceMetricStatus { name: source.name.clone(), current };
            Ok(Proposal { replicas, name, status: MetricStatus { resource: Some(status), ..metric_status(spec) } })
        }
        ("ContainerResource", _, Some(source), ..) => {
            let counted = resource(&source.target, &source.name, Some(&source.container), reading, calculator);
            let (replicas, name, current) = counted.map_err(|error| Failure {
                reason: "FailedGetContainerResourceMetric",
                message: error.to_string(),
                error: format!("failed to get {} container metric value: {error}", source.container),
            })?;
            let (container, metric) = (source.container.clone(), source.name.clone());
            let status = ContainerResourceMetricStatus { container, name: metric, current };
            Ok(Proposal {
                replicas,
                name,
                status: MetricStatus { container_resource: Some(status), ..metric_status(spec) },
            })
        }
        ("Pods", _, _, Some(source), ..) => pods(spec, source, reading, calculator),
        ("Object", _, _, _, Some(source), _) => object(spec, source, reading, calculator, namespace),
        ("External", .., Some(source)) => external(spec, source, reading, calculator, namespace),
        // Validation rejects other types.
        (other, ..) => {
            let message = MetricsError::UnknownType(other.to_owned()).to_string();
            Err(Failure { reason: "InvalidMetricSourceType", error: message.clone(), message })
        }
    }
}

fn metric_status(spec: &MetricSpec) -> MetricStatus {
    MetricStatus { type_: spec.type_.clone(), ..MetricStatus::default() }
}

/// `computeStatusForResourceMetricGeneric`.
fn resource(
    target: &MetricTarget,
    resource: &str,
    container: Option<&str>,
    reading: Result<Reading, MetricsError>,
    calculator: &Calculator<'_>,
) -> Result<(i32, String, MetricValueStatus), ProposalError> {
    let name = || resource.to_owned();
    let samples = reading
        .map(samples)
        .map_err(|source| ProposalError::ReadResource { resource: name(), source: Box::new(source) });
    let failed = |value: &'static str| {
        move |source| ProposalError::Resource { resource: name(), value, source: Box::new(source) }
    };
    if let Some(target_average) = &target.average_value {
        let is_cpu = resource == "cpu";
        let counted = samples.and_then(|samples| Ok(calculator.by_average(&samples, milli(target_average), is_cpu)?));
        let (replicas, average) = counted.map_err(failed("usage"))?;
        return Ok((replicas, format!("{resource} resource"), average_value(average)));
    }
    let Some(average_utilization) = target.average_utilization else { return Err(ProposalError::NoResourceTarget) };
    let counted = samples
        .and_then(|samples| Ok(calculator.by_utilization(&samples, average_utilization, resource, container)?));
    let (replicas, used) = counted.map_err(failed("utilization"))?;
    let source = if container.is_some() { "container resource" } else { "resource" };
    let current = MetricValueStatus { average_utilization: Some(used.percent), ..average_value(used.average) };
    Ok((replicas, format!("{resource} {source} utilization (percentage of request)"), current))
}

/// `computeStatusForPodsMetric`.
fn pods(
    spec: &MetricSpec,
    source: &PodsMetricSource,
    reading: Result<Reading, MetricsError>,
    calculator: &Calculator<'_>,
) -> Result<Proposal, Failure> {
    let (metric, target_average) = (&source.metric, source.target.average_value.as_ref().map_or(0, milli));
    let counted = selector_text(metric.selector.as_ref()).map_err(ProposalError::from).and_then(|_| {
        let failed = |source| ProposalError::ReadPods { metric: metric.name.clone(), source: Box::new(source) };
        Ok(calculator.by_average(&reading.map(samples).map_err(failed)?, target_average, false)?)
    });
    let (replicas, average) = counted.map_err(|error| Failure {
        reason: "FailedGetPodsMetric",
        message: error.to_string(),
        error: format!("failed to get pods metric value: {error}"),
    })?;
    let status = PodsMetricStatus { metric: metric.clone(), current: average_value(average) };
    let name = format!("pods metric {}", metric.name);
    Ok(Proposal { replicas, name, status: MetricStatus { pods: Some(status), ..metric_status(spec) } })
}

/// `computeStatusForObjectMetric`.
fn object(
    spec: &MetricSpec,
    source: &ObjectMetricSource,
    reading: Result<Reading, MetricsError>,
    calculator: &Calculator<'_>,
    namespace: &str,
) -> Result<Proposal, Failure> {
    let (metric, object, target) = (&source.metric, &source.described_object, &source.target);
    let failure = |error: ProposalError, context: &str| Failure {
        reason: "FailedGetObjectMetric",
        message: error.to_string(),
        error: format!("failed to get object metric value: {context}{error}"),
    };
    selector_text(metric.selector.as_ref()).map_err(|e| failure(e.into(), ""))?;
    let usage = match reading {
        Ok(Reading::Object(usage)) => Ok(usage),
        Ok(_) => Err(ProposalError::NoMetrics),
        Err(source) => Err(ProposalError::ReadObject {
            metric: metric.name.clone(),
            kind: object.kind.clone(),
            namespace: namespace.to_owned(),
            name: object.name.clone(),
            source: Box::new(source),
        }),
    };
    let (replicas, name, current) = match (target.type_.as_str(), &target.value, &target.average_value) {
        ("Value", Some(target_value), _) => {
            let counted = usage.and_then(|usage| Ok((calculator.by_value(usage, milli(target_value))?, usage)));
            let (replicas, usage) = counted.map_err(|e| failure(e, ""))?;
            (replicas, format!("{} metric {}", object.kind, metric.name), value(usage))
        }
        ("AverageValue", _, Some(target_average)) => {
            let context = format!("failed to get {} object metric: ", metric.name);
            let usage = usage.map_err(|e| failure(e, &context))?;
            let (replicas, share) = calculator.by_value_per_pod(usage, milli(target_average));
            let selector = format_selector(metric.selector.as_ref());
            (replicas, format!("external metric {}({selector})", metric.name), average_value(share))
        }
        _ => return Err(failure(ProposalError::NoTarget("object"), "")),
    };
    let status = ObjectMetricStatus { described_object: object.clone(), metric: metric.clone(), current };
    Ok(Proposal { replicas, name, status: MetricStatus { object: Some(status), ..metric_status(spec) } })
}

/// `computeStatusForExternalMetric`.
fn external(
    spec: &MetricSpec,
    source: &ExternalMetricSource,
    reading: Result<Reading, MetricsError>,
    calculator: &Calculator<'_>,
    namespace: &str,
) -> Result<Proposal, Failure> {
    let (metric, target) = (&source.metric, &source.target);
    let failure = |error: ProposalError, context: &str| Failure {
        reason: "FailedGetExternalMetric",
        message: error.to_string(),
        error: format!("failed to get {} external metric value: {context}{error}", metric.name),
    };
    let selector = format_selector(metric.selector.as_ref());
    let usage = selector_text(metric.selector.as_ref()).map_err(ProposalError::from).and_then(|_| match reading {
        Ok(Reading::External(values)) => Ok(values.into_iter().fold(0, i64::saturating_add)),
        Ok(_) => Err(ProposalError::NoMetrics),
        Err(source) => Err(ProposalError::ReadExternal {
            namespace: namespace.to_owned(),
            metric: metric.name.clone(),
            selector: selector.clone(),
            source: Box::new(source),
        }),
    });
    let (replicas, current) = if let Some(target_average) = &target.average_value {
        let context = format!("failed to get {} external metric: ", metric.name);
        let usage = usage.map_err(|e| failure(e, &context))?;
        let (replicas, share) = calculator.by_value_per_pod(usage, milli(target_average));
        (replicas, average_value(share))
    } else if let Some(target_value) = &target.value {
        let context = format!("failed to get external metric {}: ", metric.name);
        let counted = usage.and_then(|usage| Ok((calculator.by_value(usage, milli(target_value))?, usage)));
        let (replicas, usage) = counted.map_err(|e| failure(e, &context))?;
        (replicas, value(usage))
    } else {
        return Err(failure(ProposalError::NoTarget("external"), ""));
    };
    let status = ExternalMetricStatus { metric: metric.clone(), current };
    let name = format!("external metric {}({selector})", metric.name);
    Ok(Proposal { replicas, name, status: MetricStatus { external: Some(status), ..metric_status(spec) } })
}

fn samples(reading: Reading) -> Samples {
    match reading {
        Reading::Pods(samples) => samples,
        Reading::Object(_) | Reading::External(_) => Samples::new(),
    }
}

fn value(usage: i64) -> MetricValueStatus {
    MetricValueStatus { value: Some(Amount::milli_units(usage).to_quantity()), ..MetricValueStatus::default() }
}

fn average_value(usage: i64) -> MetricValueStatus {
    MetricValueStatus { average_value: Some(Amount::milli_units(usage).to_quantity()), ..MetricValueStatus::default() }
}
