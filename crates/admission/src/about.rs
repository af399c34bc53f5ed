//! What somebody wants to do, as webhooks and policies see it.

use serde_json::{Value, json};

/// What is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// An object, or a request for something, is new.
    Create,
    /// An object is changed.
    Update,
    /// An object goes.
    Delete,
    /// A connection to what an object stands for is opened.
    Connect,
}

impl Operation {
    /// As rules and reviews write it.
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

/// One form of what a request is about: a resource in a version, and the kind of its objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Form {
    /// Group, version and name of the resource: `apps`, `v1`, `deployments`.
    pub resource: [String; 3],
    /// Group, version and name of the kind: `apps`, `v1`, `Deployment`.
    pub kind: [String; 3],
}

impl Form {
    fn kind(&self) -> Value {
        let [group, version, kind] = &self.kind;
        json!({"group": group, "version": version, "kind": kind})
    }

    fn resource(&self) -> Value {
        let [group, version, resource] = &self.resource;
        json!({"group": group, "version": version, "resource": resource})
    }
}

/// What somebody wants to do.
#[derive(Debug, Clone)]
pub struct About {
    /// What is done.
    pub operation: Operation,
    /// That of the request first, and then every other one in which the same objects are served.
    pub forms: Vec<Form>,
    /// Empty for the object itself.
    pub subresource: String,
    /// Empty for what has none; a namespace is in itself.
    pub namespace: String,
    /// Empty for what has none yet.
    pub name: String,
    /// `authentication.k8s.io/v1`'s `UserInfo`.
    pub user: Value,
    /// `CreateOptions` and the like.
    pub options: Value,
    /// Whether nothing is stored.
    pub dry: bool,
}

impl About {
    /// The resource's name.
    #[must_use]
    pub fn resource(&self) -> &str {
        self.forms.first().map_or("", |form| &form.resource[2])
    }

    /// Whether it is a namespace, or a part of one.
    #[must_use]
    pub fn is_namespace(&self) -> bool {
        self.forms.first().is_some_and(|form| form.resource[0].is_empty() && form.resource[2] == "namespaces")
    }

    /// The request of an AdmissionReview in one of the forms, but for its uid and its objects.
    #[must_use]
    pub fn request(&self, form: usize) -> Value {
        let (Some(shown), Some(own)) = (self.forms.get(form), self.forms.first()) else { return json!({}) };
        let mut request = json!({
            "kind": shown.kind(), "resource": shown.resource(),
            "requestKind": own.kind(), "requestResource": own.resource(),
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
