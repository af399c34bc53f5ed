//! Node authorizer: a node may read what its Pods reference, and write its own objects
//! (`plugin/pkg/auth/authorizer/node`).

mod graph;

pub(crate) use graph::has_path_from;

use super::PolicyRule;
use request::{Attributes, Decision, RequestTarget, ResourceAttributes, UserInfo, user::NODES};

/// Namespace of the Leases of nodes.
pub const LEASES: &str = "kube-node-lease";

/// Returns the node name of a user that is a node; it may be empty (`NodeIdentity`).
pub fn node_identity(user: &UserInfo) -> Option<&str> {
    user.name.strip_prefix("system:node:").filter(|_| user.is_in(NODES))
}

/// Authorizes a request of a node. `has_path` tells whether the graph has a path from an object (resource, namespace,
/// name) to the node.
pub(super) fn authorize(
    node: &str,
    attributes: &Attributes,
    rules: &[PolicyRule],
    has_path: &dyn Fn(&str, &str, &str) -> bool,
) -> Decision {
    let authorize_by_rules = || if rules.iter().any(|rule| rule.allows(attributes)) { allowed() } else { denied("") };
    let RequestTarget::Resource(resource) = &attributes.target else { return authorize_by_rules() };
    let request = NodeRequest { node, verb: &attributes.verb, resource, has_path };
    match (resource.group.as_str(), resource.resource.as_str()) {
        ("", "secrets" | "configmaps") => request.authorize_read_namespaced_object(),
        ("", "persistentvolumeclaims") if resource.subresource == "status" => request.authorize_status_update(),
        ("", "persistentvolumeclaims" | "persistentvolumes")
        | ("resource.k8s.io", "resourceclaims")
        | ("storage.k8s.io", "volumeattachments") => request.authorize_get(),
        ("", "serviceaccounts") => request.authorize_service_account(),
        ("coordination.k8s.io", "leases") => request.authorize_lease(),
        ("storage.k8s.io", "csinodes") => request.authorize_csi_node(),
        ("resource.k8s.io", "resourceslices") => request.authorize_resource_slice(),
        ("", "nodes") => request.authorize_node(),
        ("", "pods") => request.authorize_pod(),
        _ => authorize_by_rules(),
    }
}

/// A resource request of a node.
struct NodeRequest<'a> {
    node: &'a str,
    verb: &'a str,
    resource: &'a ResourceAttributes,
    has_path: &'a dyn Fn(&str, &str, &str) -> bool,
}

fn allowed() -> Decision {
    Decision::Allowed(String::new())
}

fn denied(message: &str) -> Decision {
    Decision::NoOpinion(message.to_owned())
}

impl NodeRequest<'_> {
    fn require_path(&self) -> Decision {
        let resource = self.resource;
        if resource.name.is_empty() {
            return denied("No Object name found");
        }
        if (self.has_path)(&resource.resource, &resource.namespace, &resource.name) {
            return allowed();
        }
        Decision::NoOpinion(format!("no relationship found between node '{}' and this object", self.node))
    }

    fn has_subresource(&self) -> bool {
        !self.resource.subresource.is_empty()
    }

    fn authorize_get(&self) -> Decision {
        match self.verb {
            "get" if self.has_subresource() => denied("cannot get subresource"),
            "get" => self.require_path(),
            _ => denied("can only get individual resources of this type"),
        }
    }

    fn authorize_read_namespaced_object(&self) -> Decision {
        match self.verb {
            "get" | "list" | "watch" if self.has_subresource() => denied("cannot read subresource"),
            "get" | "list" | "watch" if self.resource.namespace.is_empty() => {
                denied("can only read namespaced object of this type")
            }
            "get" | "list" | "watch" => self.require_path(),
            _ => denied("can only read resources of this type"),
        }
    }

    fn authorize_status_update(&self) -> Decision {
        match self.verb {
            "update" | "patch" => self.require_path(),
            _ => denied("can only get/update/patch this type"),
        }
    }

    fn authorize_service_account(&self) -> Decision {
        match (self.verb, self.resource.subresource.as_str()) {
            ("get", "") | ("create", "token") if !self.resource.name.is_empty() => self.require_path(),
            ("create", _) if !self.resource.name.is_empty() => {
                denied("can only create token subresource of serviceaccount")
            }
            _ => denied("can only create tokens for individual service accounts"),
        }
    }

    /// Whether the object has the node's name. A create request does not have the name yet.
    fn is_own(&self) -> bool {
        self.verb == "create" || self.resource.name == self.node
    }

    fn authorize_lease(&self) -> Decision {
        match self.verb {
            "get" | "create" | "update" | "patch" | "delete" if self.resource.namespace != LEASES => {
                Decision::NoOpinion(format!("can only access leases in the {LEASES:?} system namespace"))
            }
            "get" | "create" | "update" | "patch" | "delete" if self.is_own() => allowed(),
            "get" | "update" | "patch" | "delete" => {
                denied("can only access node lease with the same name as the requesting node")
            }
            _ => denied("can only get, create, update, patch, or delete a node lease"),
        }
    }

    fn authorize_csi_node(&self) -> Decision {
        match self.verb {
            "get" | "create" | "update" | "patch" | "delete" if self.has_subresource() => {
                denied("cannot authorize CSINode subresources")
            }
            "get" | "create" | "update" | "patch" | "delete" if self.is_own() => allowed(),
            "get" | "update" | "patch" | "delete" => {
                denied("can only access CSINode with the same name as the requesting node")
            }
            _ => denied("can only get, create, update, patch, or delete a CSINode"),
        }
    }

    fn authorize_resource_slice(&self) -> Decision {
        match self.verb {
            _ if self.has_subresource() => denied("cannot authorize ResourceSlice subresources"),
            "create" => allowed(),
            "get" | "update" | "patch" | "delete" => self.require_path(),
            "watch" | "list" | "deletecollection"
                if self.resource.has_field_requirement("spec.nodeName", self.node) =>
            {
                allowed()
            }
            "watch" | "list" | "deletecollection" => {
                denied("can only list/watch/deletecollection resourceslices with nodeName field selector")
            }
            _ => denied(
                "only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, delete, deletecollection",
            ),
        }
    }

    fn authorize_node(&self) -> Decision {
        let (node, name) = (self.node, self.resource.name.as_str());
        match (self.resource.subresource.as_str(), self.verb) {
            ("", "create" | "update" | "patch") | ("status", "update" | "patch") => allowed(),
            ("", "get" | "list" | "watch") if name == node => allowed(),
            ("", "get" | "list" | "watch") if name.is_empty() => {
                Decision::NoOpinion(format!("node '{node}' cannot read all nodes, only its own Node object"))
            }
            ("", "get" | "list" | "watch") => {
                Decision::NoOpinion(format!("node '{node}' cannot read '{name}', only its own Node object"))
            }
            _ => denied(""),
        }
    }

    fn authorize_pod(&self) -> Decision {
        match (self.resource.subresource.as_str(), self.verb) {
            ("", "get") => self.require_path(),
            ("", "list" | "watch") if self.resource.has_field_requirement("spec.nodeName", self.node) => allowed(),
            ("", "list" | "watch") => denied("can only list/watch pods with spec.nodeName field selector"),
            ("", "create" | "delete") | ("status", "update" | "patch") | ("eviction", "create") => allowed(),
            _ => denied(""),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authorization::bootstrap_policy;

    #[track_caller]
    fn check(verb: &str, group: &str, resource: &str, place: &str, expected: Result<(), &str>) {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let (namespace, name) = place.split_once('/').unwrap_or((place, ""));
        let (namespace, selector) = namespace.split_once('?').unwrap_or((namespace, ""));
        let requirement = selector.split_once('=').map(|(field, value)| (field.to_owned(), value.to_owned()));
        let field_requirements = requirement.into_iter().collect();
        let [group, resource, subresource, namespace, name] =
            [group, resource, subresource, namespace, name].map(str::to_owned);
        let resource = ResourceAttributes { group, resource, subresource, namespace, name, field_requirements };
        let has_path = |_: &str, _: &str, name: &str| name == "mine";
        let got = authorize("n", &Attributes::for_resource(verb, resource), bootstrap_policy::node_rules(), &has_path);
        let expected = expected.map_or_else(denied, |()| allowed());
        assert_eq!(got, expected, "{verb} {place}");
    }

    const NO_PATH: Result<(), &str> = Err("no relationship found between node 'n' and this object");

    #[test]
    fn node_reads_what_its_pods_reference() {
        for resource in ["secrets", "configmaps"] {
            check("get", "", resource, "a/mine", Ok(()));
            check("watch", "", resource, "a/mine", Ok(()));
            check("get", "", resource, "a/other", NO_PATH);
            check("list", "", resource, "a", Err("No Object name found"));
            check("list", "", resource, "", Err("can only read namespaced object of this type"));
            check("update", "", resource, "a/mine", Err("can only read resources of this type"));
        }
        check("get", "", "persistentvolumeclaims", "a/mine", Ok(()));
        check("patch", "", "persistentvolumeclaims/status", "a/mine", Ok(()));
        check("list", "", "persistentvolumes", "", Err("can only get individual resources of this type"));
        check("get", "resource.k8s.io", "resourceclaims", "a/other", NO_PATH);
        check("create", "", "serviceaccounts/token", "a/mine", Ok(()));
        check("create", "", "serviceaccounts/token", "a/other", NO_PATH);
        check("delete", "", "serviceaccounts", "a/mine", Err("can only create tokens for individual service accounts"));
    }

    #[test]
    fn node_has_no_access_to_other_nodes_objects() {
        check("get", "", "nodes", "/n", Ok(()));
        check("get", "", "nodes", "/m", Err("node 'n' cannot read 'm', only its own Node object"));
        check("watch", "", "nodes", "", Err("node 'n' cannot read all nodes, only its own Node object"));
        check("patch", "", "nodes/status", "/n", Ok(()));
        check("delete", "", "nodes", "/n", Err(""));
        check("list", "", "pods", "?spec.nodeName=n", Ok(()));
        check(
            "list",
            "",
            "pods",
            "?spec.nodeName=m",
            Err("can only list/watch pods with spec.nodeName field selector"),
        );
        check("list", "", "pods", "a", Err("can only list/watch pods with spec.nodeName field selector"));
        check("get", "", "pods", "a/mine", Ok(()));
        check("get", "", "pods", "a/other", NO_PATH);
        check("update", "", "pods", "a/mine", Err(""));
        check("create", "", "pods/exec", "a/mine", Err(""));
        check("update", "coordination.k8s.io", "leases", "kube-node-lease/n", Ok(()));
        check("create", "coordination.k8s.io", "leases", "kube-node-lease", Ok(()));
        let other = Err("can only access node lease with the same name as the requesting node");
        check("update", "coordination.k8s.io", "leases", "kube-node-lease/m", other);
        let elsewhere = Err("can only access leases in the \"kube-node-lease\" system namespace");
        check("get", "coordination.k8s.io", "leases", "default/n", elsewhere);
        check("list", "resource.k8s.io", "resourceslices", "?spec.nodeName=n", Ok(()));
        check("get", "storage.k8s.io", "csinodes", "/n", Ok(()));
    }

    #[test]
    fn other_requests_are_authorized_by_node_rules() {
        check("list", "", "services", "", Ok(()));
        check("create", "events.k8s.io", "events", "a", Ok(()));
        check("create", "authentication.k8s.io", "tokenreviews", "", Ok(()));
        check("list", "apps", "deployments", "", Err(""));
        let path = Attributes { verb: "get".into(), target: RequestTarget::NonResource("/metrics".into()) };
        assert_eq!(authorize("n", &path, bootstrap_policy::node_rules(), &|_, _, _| true), denied(""));
    }
}
