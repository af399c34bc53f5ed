//! Request paths.

use crate::Key;

/// A parsed request path.
pub(crate) struct Target {
    pub(crate) resource: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) subresource: String,
}

impl Target {
    pub(crate) fn of(path: &str) -> Self {
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        let root = if parts[0] == "api" { 2 } else { 3 };
        let group = parts[..root.min(parts.len())].join("/");
        let rest = &parts[root.min(parts.len())..];
        let namespaced = rest.len() > 2 && rest[0] == "namespaces" && !matches!(rest[2], "finalize" | "status");
        let (namespace, rest) = if namespaced { (rest[1], &rest[2..]) } else { ("", rest) };
        let part = |i: usize| rest.get(i).copied().unwrap_or_default().to_owned();
        Self {
            resource: format!("{group}/{}", part(0)),
            namespace: namespace.to_owned(),
            name: part(1),
            subresource: part(2),
        }
    }

    pub(crate) fn key(&self) -> Key {
        (self.resource.clone(), self.namespace.clone(), self.name.clone())
    }
}
