//! Results of plugins: completion of the version, and the addresses of the Pod.

use crate::{Error, INTERFACE, PluginError};
use serde_json::{Map, Value};
use std::net::IpAddr;

/// Maximum number of addresses of a Pod.
const MAX_ADDRESSES: usize = 64;

/// Parses the output of a plugin. A missing version is that of the configuration (libcni's `fixupResultVersion`).
///
/// # Errors
/// When it is not a JSON object.
pub(crate) fn parse(output: &[u8], version: &str) -> Result<Value, PluginError> {
    let failed = |reason: String| PluginError::new(format!("failed to unmarshal raw result: {reason}"));
    let result: Option<Map<String, Value>> =
        serde_json::from_slice(output).map_err(|error| failed(error.to_string()))?;
    let mut result = result.unwrap_or_default();
    if result.get("cniVersion").and_then(Value::as_str).is_none_or(str::is_empty) {
        result.insert("cniVersion".to_owned(), version.into());
    }
    Ok(result.into())
}

/// Returns the addresses of the Pod's interface, the first IPv4 address first. An address without interface is one of it.
///
/// # Errors
/// When an address or its interface is invalid.
pub(crate) fn addresses(result: &Value) -> Result<Vec<IpAddr>, Error> {
    let list = |name| result.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let (interfaces, ips) = (list("interfaces"), list("ips"));
    if ips.len() > MAX_ADDRESSES {
        return Err(Error::InvalidResult(format!("more than {MAX_ADDRESSES} addresses")));
    }
    let mut found: Vec<IpAddr> = Vec::new();
    for ip in ips {
        if let Some(index) = ip.get("interface").filter(|index| !index.is_null()) {
            let interface = index.as_u64().and_then(|index| interfaces.get(usize::try_from(index).ok()?));
            let Some(interface) = interface else {
                let count = interfaces.len();
                return Err(Error::InvalidResult(format!("invalid interface config: {index} of {count} interfaces")));
            };
            if interface["name"] != INTERFACE {
                continue;
            }
        }
        let text = ip.get("address").and_then(Value::as_str).unwrap_or_default();
        let address = text.split_once('/').map_or(text, |(address, _)| address).parse();
        found.push(address.map_err(|_| Error::InvalidResult(format!("invalid CIDR address: {text}")))?);
    }
    if let Some(first) = found.iter().position(IpAddr::is_ipv4) {
        found[..=first].rotate_right(1);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn missing_version_is_that_of_the_configuration() {
        for (output, expected) in [
            ("{}", json!({"cniVersion": "1.0.0"})),
            ("null", json!({"cniVersion": "1.0.0"})),
            (r#"{"cniVersion": ""}"#, json!({"cniVersion": "1.0.0"})),
            (r#"{"cniVersion": "0.4.0", "a": 1}"#, json!({"cniVersion": "0.4.0", "a": 1})),
        ] {
            assert_eq!(parse(output.as_bytes(), "1.0.0").unwrap(), expected, "{output}");
        }
        for output in ["", "[]", "no JSON", "{} {}"] {
            assert!(parse(output.as_bytes(), "1.0.0").is_err(), "{output}");
        }
    }

    #[test]
    fn addresses_are_those_of_the_interface_with_ipv4_first() {
        let interfaces = json!([{"name": "veth1"}, {"name": "eth0", "sandbox": "/n"}]);
        let check = |ips: Value, expected: Result<&[&str], &str>| {
            let found = addresses(&json!({"interfaces": interfaces, "ips": ips}));
            match expected {
                Ok(expected) => {
                    let expected: Vec<IpAddr> = expected.iter().map(|ip| ip.parse().unwrap()).collect();
                    assert_eq!(found.unwrap(), expected);
                }
                Err(text) => assert!(found.unwrap_err().to_string().contains(text)),
            }
        };
        let ip = |address: &str, interface| json!({"version": "4", "address": address, "interface": interface});
        check(json!([ip("10.1.0.2/24", json!(1))]), Ok(&["10.1.0.2"]));
        check(json!([ip("10.1.0.1/24", json!(0)), {"address": "10.1.0.2/24"}]), Ok(&["10.1.0.2"]));
        let dual = json!([ip("fd00::2/64", json!(1)), ip("fd00::3/64", json!(1)), ip("10.1.0.2/24", Value::Null)]);
        check(dual, Ok(&["10.1.0.2", "fd00::2", "fd00::3"]));
        check(json!([]), Ok(&[]));
        check(json!([ip("10.1.0.2/24", json!(2))]), Err("invalid interface config: 2 of 2 interfaces: invalid result"));
        check(json!([ip("10.1.0.2/24", json!(-1))]), Err("invalid interface config"));
        check(json!([ip("10.1.0/24", json!(1))]), Err("invalid CIDR address: 10.1.0/24"));
        check(vec![ip("10.1.0.2/24", json!(1)); 65].into(), Err("more than 64 addresses"));
    }
}
