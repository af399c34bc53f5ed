//! The `DenyServiceExternalIPs` admission plugin (`plugin/pkg/admission/network/denyserviceexternalips`): with `externalIPs`,
//! a user who may write Services could intercept the traffic to any address outside of the cluster (CVE-2020-8554).

use super::plugin::{AdmittedWrite, DefaultState, Plugin};
use errors::ApiError;
use serde_json::Value;

/// Denies new `externalIPs` of Services.
pub(super) struct DenyServiceExternalIps;

impl Plugin for DenyServiceExternalIps {
    fn name(&self) -> &'static str {
        "DenyServiceExternalIPs"
    }

    fn default_state(&self) -> DefaultState {
        DefaultState::On
    }

    fn validate(&self, write: &AdmittedWrite<'_>, object: &Value) -> Result<Vec<String>, ApiError> {
        if write.is_of("", "Service") && write.is_main() {
            validate(object, write.old).map_err(|error| write.forbidden(object, &error))?;
        }
        Ok(Vec::new())
    }
}

/// Denial of new external IPs.
#[derive(Debug, thiserror::Error)]
#[error("Use of external IPs is denied by admission control")]
pub(super) struct ExternalIpsDenied;

/// Denies new external IPs of a Service; `old` is `None` for a new Service.
pub(super) fn validate(service: &Value, old: Option<&Value>) -> Result<(), ExternalIpsDenied> {
    let old_ips = old.map(external_ips).unwrap_or_default();
    match external_ips(service).iter().all(|ip| old_ips.contains(ip)) {
        true => Ok(()),
        false => Err(ExternalIpsDenied),
    }
}

fn external_ips(service: &Value) -> &[Value] {
    service["spec"]["externalIPs"].as_array().map(Vec::as_slice).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn new_external_ips_are_denied_and_old_ones_kept() {
        let service = |ips: Value| json!({"spec": {"externalIPs": ips}});
        for (new, old, allowed) in [
            (Value::Null, None, true),
            (json!([]), None, true),
            (json!(["192.0.2.1"]), None, false),
            (json!(["192.0.2.1"]), Some(Value::Null), false),
            (json!(["192.0.2.1"]), Some(json!(["192.0.2.1", "192.0.2.2"])), true),
            (json!(["192.0.2.2", "192.0.2.1"]), Some(json!(["192.0.2.1", "192.0.2.2"])), true),
            (json!(["192.0.2.1", "192.0.2.3"]), Some(json!(["192.0.2.1"])), false),
            (Value::Null, Some(json!(["192.0.2.1"])), true),
        ] {
            let (new, old) = (service(new), old.map(service));
            assert_eq!(validate(&new, old.as_ref()).is_ok(), allowed, "{new} {old:?}");
        }
    }
}
