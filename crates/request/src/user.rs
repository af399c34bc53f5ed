//! The user of a request.

use std::collections::BTreeMap;

/// The group that is exempt from authorization.
const MASTERS: &str = "system:masters";
/// The group of nodes (kubelets).
pub const NODES: &str = "system:nodes";
/// The group of all users except the anonymous one.
pub const AUTHENTICATED: &str = "system:authenticated";
/// The group of the anonymous user.
pub const UNAUTHENTICATED: &str = "system:unauthenticated";
/// Name of the anonymous user.
pub const ANONYMOUS: &str = "system:anonymous";
/// Key of the credential in a user's `extra`.
pub const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// The caller's identity (upstream's `user.Info`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UserInfo {
    /// For example `kubernetes-admin`.
    pub name: String,
    /// Distinguishes users who had the same name at different times; may be empty.
    pub uid: String,
    /// For example `system:masters`.
    pub groups: Vec<String>,
    /// Additional attributes, for example the ID of the credential.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl UserInfo {
    /// Returns a member of `system:masters`, such as the server itself.
    #[must_use]
    pub fn component(name: &str) -> Self {
        Self { name: name.to_owned(), groups: vec![MASTERS.to_owned()], ..Self::default() }
    }

    /// Returns a user without groups, such as `system:kube-scheduler`, who is authorized by roles and bindings.
    #[must_use]
    pub fn named(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// Returns the user of a node's kubelet.
    #[must_use]
    pub fn node(name: &str) -> Self {
        Self { name: format!("system:node:{name}"), groups: vec![NODES.to_owned()], ..Self::default() }
    }

    /// Returns the user of a service account.
    #[must_use]
    pub fn service_account(namespace: &str, name: &str) -> Self {
        service_account(namespace, name)
    }

    /// Returns the anonymous user.
    pub fn anonymous() -> Self {
        Self { name: ANONYMOUS.to_owned(), groups: vec![UNAUTHENTICATED.to_owned()], ..Self::default() }
    }

    /// Whether the user is in a group.
    #[must_use]
    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|g| g == group)
    }

    /// Whether the user is exempt from authorization.
    pub fn is_master(&self) -> bool {
        self.is_in(MASTERS)
    }

    /// Adds the user to `system:authenticated`, unless it is anonymous.
    pub fn authenticated(mut self) -> Self {
        if !self.is_in(AUTHENTICATED) && !self.is_in(UNAUTHENTICATED) && self.name != ANONYMOUS {
            self.groups.push(AUTHENTICATED.to_owned());
        }
        self
    }
}

/// Returns the `UserInfo` of `authentication.k8s.io/v1`.
pub fn to_json(user: &UserInfo) -> serde_json::Value {
    let mut json = serde_json::json!({"username": user.name, "groups": user.groups});
    if !user.uid.is_empty() {
        json["uid"] = user.uid.as_str().into();
    }
    if !user.extra.is_empty() {
        json["extra"] = serde_json::json!(user.extra);
    }
    json
}

/// Returns the user of a service account.
pub fn service_account(namespace: &str, name: &str) -> UserInfo {
    let groups = service_account_groups(namespace);
    UserInfo { name: service_account_user_name(namespace, name), groups, ..UserInfo::default() }.authenticated()
}

/// Returns the user name of a service account.
pub fn service_account_user_name(namespace: &str, name: &str) -> String {
    format!("system:serviceaccount:{namespace}:{name}")
}

/// Returns the groups of the service accounts of a namespace.
pub fn service_account_groups(namespace: &str) -> Vec<String> {
    vec!["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")]
}

/// Returns namespace and name of the service account of a user name.
pub fn parse_service_account(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix("system:serviceaccount:")?.split_once(':')?;
    let valid = api::names::dns1123_label(namespace).is_empty() && api::names::dns1123_subdomain(name).is_empty();
    valid.then_some((namespace, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masters_are_identified_by_group_not_by_name() {
        let server = UserInfo::component("system:apiserver").authenticated();
        assert_eq!((server.is_master(), server.is_in(AUTHENTICATED)), (true, true));
        for user in [
            UserInfo::named("system:masters"),
            UserInfo::node("n"),
            UserInfo::service_account("kube-system", "job-controller"),
        ] {
            assert!(!user.authenticated().is_master());
        }
    }

    #[test]
    fn service_account_user_needs_valid_namespace_and_name() {
        assert_eq!(parse_service_account("system:serviceaccount:n:a.b"), Some(("n", "a.b")));
        for other in [
            "system:serviceaccount:n",
            "system:serviceaccount:n:a:b",
            "system:serviceaccount::a",
            "n:a",
            "system:serviceaccount:N:a",
        ] {
            assert_eq!(parse_service_account(other), None, "{other}");
        }
    }
}
