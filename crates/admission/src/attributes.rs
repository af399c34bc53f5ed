//! Attributes of a request for webhooks and policies (`admission.Attributes`).

use serde_json::{Value, json};

/// Operation of a request (`admission.Operation`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Creates an object.
    Create,
    /// Updates an object.
    Update,
    /// Deletes an object.
    Delete,
    /// Connects to an object, for example `pods/exec`.
    Connect,
}

impl Operation {
    /// Returns the name in rules and reviews.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }
}

/// Resource in a version, and the kind of its objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EquivalentResource {
    /// Group, version and name of the resource: `apps`, `v1`, `deployments`.
    pub resource: [String; 3],
    /// Group, version and name of the kind: `apps`, `v1`, `Deployment`.
    pub kind: [String; 3],
}

impl EquivalentResource {
    fn kind(&self) -> Value {
        let [group, version, kind] = &self.kind;
        json!({"group": group, "version": version, "kind": kind})
    }

    fn resource(&self) -> Value {
        let [group, version, resource] = &self.resource;
        json!({"group": group, "version": version, "resource": resource})
    }
}

/// Attributes of a request (`admission.Attributes`).
#[derive(Debug, Clone)]
pub struct Attributes {
    /// Operation.
    pub operation: Operation,
    /// Resource and kind of the request, then the equivalent ones that serve the same objects (`EquivalentResourceRegistry`).
    pub equivalent_resources: Vec<EquivalentResource>,
    /// Subresource; empty for the object itself.
    pub subresource: String,
    /// Namespace; empty for cluster-scoped objects. That of a Namespace is its own name.
    pub namespace: String,
    /// Name; empty if it is generated.
    pub name: String,
    /// `authentication.k8s.io/v1`'s `UserInfo`.
    pub user: Value,
    /// Options of the operation, for example `CreateOptions`.
    pub options: Value,
    /// Whether the request is a dry run.
    pub dry: bool,
}

impl Attributes {
    /// Returns the name of the resource.
    #[must_use]
    pub fn resource(&self) -> &str {
        self.equivalent_resources.first().map_or("", |resource| &resource.resource[2])
    }

    /// Whether the object is a Namespace, or a subresource of one.
    #[must_use]
    pub fn is_namespace(&self) -> bool {
        self.equivalent_resources
            .first()
            .is_some_and(|resource| resource.resource[0].is_empty() && resource.resource[2] == "namespaces")
    }

    /// Returns the AdmissionRequest for one of the equivalent resources, by index, without UID and objects.
    #[must_use]
    pub fn admission_request(&self, equivalent: usize) -> Value {
        let (Some(used), Some(requested)) =
            (self.equivalent_resources.get(equivalent), self.equivalent_resources.first())
        else {
            return json!({});
        };
        let mut request = json!({
            "kind": used.kind(), "resource": used.resource(),
            "requestKind": requested.kind(), "requestResource": requested.resource(),
            "operation": self.operation.name(), "userInfo": self.user, "dryRun": self.dry, "options": self.options,
        });
        let texts = [
            ("subResource", &self.subresource),
            ("requestSubResource", &self.subresource),
            ("name", &self.name),
            ("namespace", &self.namespace),
        ];
        for (field, text) in texts.into_iter().filter(|(_, text)| !text.is_empty()) {
            request[field] = json!(text);
        }
        request
    }
}
