//! What a node may do: what concerns it and its Pods (`plugin/pkg/auth/authorizer/node`).

mod relations;
mod restriction;
mod tokens;

pub(crate) use relations::is_related;
pub(crate) use restriction::{End, Operation, restrict, restrict_end};
pub(crate) use tokens::restrict_token;

use super::{About, Attributes, ResourceAbout, Rule};
use crate::{UserInfo, user::NODES};

const LEASES: &str = "kube-node-lease";

/// The node that a user is, if it is one's; it may have no name.
pub(crate) fn name(user: &UserInfo) -> Option<&str> {
    user.name.strip_prefix("system:node:").filter(|_| user.is_in(NODES))
}

/// Whether a node may do this: by its rules, or because it has to do with the object (resource, namespace, name).
///
/// # Errors
/// Why it may not, which may be nothing.
pub(super) fn decide(
    node: &str,
    wanted: &Attributes,
    rules: &[Rule],
    related: &dyn Fn(&str, &str, &str) -> bool,
) -> Result<(), String> {
    let by_rules = || if rules.iter().any(|rule| rule.allows(wanted)) { Ok(()) } else { Err(String::new()) };
    let About::Resource(about) = &wanted.about else { return by_rules() };
    let asked = Asked { node, verb: &wanted.verb, about, related };
    match (about.group.as_str(), about.resource.as_str()) {
        ("", "secrets" | "configmaps") => asked.read(),
        ("", "persistentvolumeclaims") if about.subresource == "status" => asked.update_status(),
        ("", "persistentvolumeclaims" | "persistentvolumes")
        | ("resource.k8s.io", "resourceclaims")
        | ("storage.k8s.io", "volumeattachments") => asked.get(),
        ("", "serviceaccounts") => asked.account(),
        ("coordination.k8s.io", "leases") => asked.lease(),
        ("storage.k8s.io", "csinodes") => asked.csi_node(),
        ("resource.k8s.io", "resourceslices") => asked.slice(),
        ("", "nodes") => asked.own_node(),
        ("", "pods") => asked.pod(),
        _ => by_rules(),
    }
}

struct Asked<'a> {
    node: &'a str,
    verb: &'a str,
    about: &'a ResourceAbout,
    related: &'a dyn Fn(&str, &str, &str) -> bool,
}

fn no(why: &str) -> Result<(), String> {
    Err(why.to_owned())
}

impl Asked<'_> {
    fn has_to_do_with_it(&self) -> Result<(), String> {
        let about = self.about;
        if about.name.is_empty() {
            return no("No Object name found");
        }
        if (self.related)(&about.resource, &about.namespace, &about.name) {
            return Ok(());
        }
        Err(format!("no relationship found between node '{}' and this object", self.node))
    }

    fn has_part(&self) -> bool {
        !self.about.subresource.is_empty()
    }

    fn get(&self) -> Result<(), String> {
        match self.verb {
            "get" if self.has_part() => no("cannot get subresource"),
            "get" => self.has_to_do_with_it(),
            _ => no("can only get individual resources of this type"),
        }
    }

    fn read(&self) -> Result<(), String> {
        match self.verb {
            "get" | "list" | "watch" if self.has_part() => no("cannot read subresource"),
            "get" | "list" | "watch" if self.about.namespace.is_empty() => {
                no("can only read namespaced object of this type")
            }
            "get" | "list" | "watch" => self.has_to_do_with_it(),
            _ => no("can only read resources of this type"),
        }
    }

    fn update_status(&self) -> Result<(), String> {
        match self.verb {
            "update" | "patch" => self.has_to_do_with_it(),
            _ => no("can only get/update/patch this type"),
        }
    }

    fn account(&self) -> Result<(), String> {
        match (self.verb, self.about.subresource.as_str()) {
            ("get", "") | ("create", "token") if !self.about.name.is_empty() => self.has_to_do_with_it(),
            ("create", _) if !self.about.name.is_empty() => no("can only create token subresource of serviceaccount"),
            _ => no("can only create tokens for individual service accounts"),
        }
    }

    /// Whether it is the object of the node's own name; of a new one the name is not known yet.
    fn is_own(&self) -> bool {
        self.verb == "create" || self.about.name == self.node
    }

    fn lease(&self) -> Result<(), String> {
        match self.verb {
            "get" | "create" | "update" | "patch" | "delete" if self.about.namespace != LEASES => {
                Err(format!("can only access leases in the {LEASES:?} system namespace"))
            }
            "get" | "create" | "update" | "patch" | "delete" if self.is_own() => Ok(()),
            "get" | "update" | "patch" | "delete" => {
                no("can only access node lease with the same name as the requesting node")
            }
            _ => no("can only get, create, update, patch, or delete a node lease"),
        }
    }

    fn csi_node(&self) -> Result<(), String> {
        match self.verb {
            "get" | "create" | "update" | "patch" | "delete" if self.has_part() => {
                no("cannot authorize CSINode subresources")
            }
            "get" | "create" | "update" | "patch" | "delete" if self.is_own() => Ok(()),
            "get" | "update" | "patch" | "delete" => {
                no("can only access CSINode with the same name as the requesting node")
            }
            _ => no("can only get, create, update, patch, or delete a CSINode"),
        }
    }

    fn slice(&self) -> Result<(), String> {
        match self.verb {
            _ if self.has_part() => no("cannot authorize ResourceSlice subresources"),
            "create" => Ok(()),
            "get" | "update" | "patch" | "delete" => self.has_to_do_with_it(),
            "watch" | "list" | "deletecollection" if self.about.selects("spec.nodeName", self.node) => Ok(()),
            "watch" | "list" | "deletecollection" => {
                no("can only list/watch/deletecollection resourceslices with nodeName field selector")
            }
            _ => no(
                "only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, delete, deletecollection",
            ),
        }
    }

    fn own_node(&self) -> Result<(), String> {
        let (node, name) = (self.node, self.about.name.as_str());
        match (self.about.subresource.as_str(), self.verb) {
            ("", "create" | "update" | "patch") | ("status", "update" | "patch") => Ok(()),
            ("", "get" | "list" | "watch") if name == node => Ok(()),
            ("", "get" | "list" | "watch") if name.is_empty() => {
                Err(format!("node '{node}' cannot read all nodes, only its own Node object"))
            }
            ("", "get" | "list" | "watch") => {
                Err(format!("node '{node}' cannot read '{name}', only its own Node object"))
            }
            _ => no(""),
        }
    }

    fn pod(&self) -> Result<(), String> {
        match (self.about.subresource.as_str(), self.verb) {
            ("", "get") => self.has_to_do_with_it(),
            ("", "list" | "watch") if self.about.selects("spec.nodeName", self.node) => Ok(()),
            ("", "list" | "watch") => no("can only list/watch pods with spec.nodeName field selector"),
            ("", "create" | "delete") | ("status", "update" | "patch") | ("eviction", "create") => Ok(()),
            _ => no(""),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authorization::defaults;

    #[track_caller]
    fn check(verb: &str, group: &str, resource: &str, place: &str, expected: Result<(), &str>) {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let (namespace, name) = place.split_once('/').unwrap_or((place, ""));
        let (namespace, selected) = namespace.split_once('?').unwrap_or((namespace, ""));
        let selects = selected.split_once('=').map(|(field, value)| (field.to_owned(), value.to_owned()));
        let [group, resource, subresource, namespace, name] =
            [group, resource, subresource, namespace, name].map(str::to_owned);
        let about =
            ResourceAbout { group, resource, subresource, namespace, name, selects: selects.into_iter().collect() };
        let related = |_: &str, _: &str, name: &str| name == "mine";
        let got = decide("n", &Attributes::to(verb, about), defaults::of_nodes(), &related);
        assert_eq!(got, expected.map_err(str::to_owned), "{verb} {place}");
    }

    const UNRELATED: Result<(), &str> = Err("no relationship found between node 'n' and this object");

    #[test]
    fn a_node_reads_what_its_pods_need() {
        for resource in ["secrets", "configmaps"] {
            check("get", "", resource, "a/mine", Ok(()));
            check("watch", "", resource, "a/mine", Ok(()));
            check("get", "", resource, "a/other", UNRELATED);
            check("list", "", resource, "a", Err("No Object name found"));
            check("list", "", resource, "", Err("can only read namespaced object of this type"));
            check("update", "", resource, "a/mine", Err("can only read resources of this type"));
        }
        check("get", "", "persistentvolumeclaims", "a/mine", Ok(()));
        check("patch", "", "persistentvolumeclaims/status", "a/mine", Ok(()));
        check("list", "", "persistentvolumes", "", Err("can only get individual resources of this type"));
        check("get", "resource.k8s.io", "resourceclaims", "a/other", UNRELATED);
        check("create", "", "serviceaccounts/token", "a/mine", Ok(()));
        check("create", "", "serviceaccounts/token", "a/other", UNRELATED);
        check("delete", "", "serviceaccounts", "a/mine", Err("can only create tokens for individual service accounts"));
    }

    #[test]
    fn a_node_keeps_to_itself() {
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
        check("get", "", "pods", "a/other", UNRELATED);
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
    fn the_rest_is_for_all_nodes() {
        check("list", "", "services", "", Ok(()));
        check("create", "events.k8s.io", "events", "a", Ok(()));
        check("create", "authentication.k8s.io", "tokenreviews", "", Ok(()));
        check("list", "apps", "deployments", "", Err(""));
        let path = Attributes { verb: "get".into(), about: About::Path("/metrics".into()) };
        assert_eq!(decide("n", &path, defaults::of_nodes(), &|_, _, _| true), Err(String::new()));
    }
}
