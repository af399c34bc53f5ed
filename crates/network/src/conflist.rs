//! The CNI configuration list that the container runtime reads.

use crate::names::Names;
use ipnet::Ipv4Net;
use serde_json::{Value, json};
use std::net::Ipv4Addr;

/// CNI version 0.4.0 is supported by every CNI plugin since 2019 and every containerd.
const CNI_VERSION: &str = "0.4.0";

/// Parameters of the list beside the names.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BridgeParameters {
    pub(crate) cidr: Ipv4Net,
    pub(crate) gateway: Ipv4Addr,
    /// MTU of the default route's interface, if there is one.
    pub(crate) mtu: Option<u32>,
    /// Whether `portmap` is available.
    pub(crate) portmap: bool,
}

/// Returns the list with the plugins `bridge` and, if available, `portmap`.
pub(crate) fn conflist(names: &Names, parameters: BridgeParameters) -> Value {
    let mut bridge = json!({
        "type": "bridge",
        "bridge": names.bridge,
        "isGateway": true,
        // One masquerading rule covers the whole CIDR; see the crate's documentation.
        "ipMasq": false,
        // A Pod reaches itself through a Service or a host port (hairpin).
        "hairpinMode": true,
        "promiscMode": false,
        "ipam": {
            "type": "host-local",
            "dataDir": names.ipam_dir(),
            "ranges": [[{ "subnet": parameters.cidr, "gateway": parameters.gateway }]],
            "routes": [{ "dst": "0.0.0.0/0" }],
        },
    });
    if let Some(mtu) = parameters.mtu {
        bridge["mtu"] = mtu.into();
    }
    let mut plugins = vec![bridge];
    if parameters.portmap {
        plugins.push(json!({
            "type": "portmap",
            "capabilities": { "portMappings": true },
            "snat": true,
        }));
    }
    json!({ "cniVersion": CNI_VERSION, "name": names.bridge, "plugins": plugins })
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};
    use std::path::Path;

    #[track_caller]
    fn check(mtu: Option<u32>, portmap: bool, expected: &Expect) {
        let names = Names::of(Path::new("/var/lib/podium"));
        let cidr: Ipv4Net = "10.244.1.0/24".parse().expect("a CIDR");
        let parameters = BridgeParameters { cidr, gateway: crate::pod_cidr::gateway(cidr), mtu, portmap };
        let text = serde_json::to_string_pretty(&conflist(&names, parameters)).expect("JSON");
        expected.assert_eq(&text);
    }

    #[test]
    fn conflist_has_bridge_and_portmap() {
        check(
            Some(1400),
            true,
            &expect![[r#"
            {
              "cniVersion": "0.4.0",
              "name": "podium",
              "plugins": [
                {
                  "bridge": "podium",
                  "hairpinMode": true,
                  "ipMasq": false,
                  "ipam": {
                    "dataDir": "/var/lib/podium/network/ipam",
                    "ranges": [
                      [
                        {
                          "gateway": "10.244.1.1",
                          "subnet": "10.244.1.0/24"
                        }
                      ]
                    ],
                    "routes": [
                      {
                        "dst": "0.0.0.0/0"
                      }
                    ],
                    "type": "host-local"
                  },
                  "isGateway": true,
                  "mtu": 1400,
                  "promiscMode": false,
                  "type": "bridge"
                },
                {
                  "capabilities": {
                    "portMappings": true
                  },
                  "snat": true,
                  "type": "portmap"
                }
              ]
            }"#]],
        );
    }

    #[test]
    fn conflist_without_uplink_and_portmap_has_only_bridge() {
        check(
            None,
            false,
            &expect![[r#"
            {
              "cniVersion": "0.4.0",
              "name": "podium",
              "plugins": [
                {
                  "bridge": "podium",
                  "hairpinMode": true,
                  "ipMasq": false,
                  "ipam": {
                    "dataDir": "/var/lib/podium/network/ipam",
                    "ranges": [
                      [
                        {
                          "gateway": "10.244.1.1",
                          "subnet": "10.244.1.0/24"
                        }
                      ]
                    ],
                    "routes": [
                      {
                        "dst": "0.0.0.0/0"
                      }
                    ],
                    "type": "host-local"
                  },
                  "isGateway": true,
                  "promiscMode": false,
                  "type": "bridge"
                }
              ]
            }"#]],
        );
    }
}
