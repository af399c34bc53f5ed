//! Attributes of a request for authorization (upstream's `authorizer.Attributes`).

use api::selector::FieldSelector;
use std::borrow::Cow;

/// The attributes of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Attributes {
    /// For example `list`. The lower-case method for a non-resource path.
    pub verb: String,
    /// Resource or path of the request.
    pub target: RequestTarget,
}

/// The resource or the path of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestTarget {
    /// A resource.
    Resource(ResourceAttributes),
    /// A path that is not a resource's, such as `/healthz`.
    NonResource(String),
}

impl Default for RequestTarget {
    fn default() -> Self {
        Self::Resource(ResourceAttributes::default())
    }
}

/// The resource of a request. Unset fields are empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResourceAttributes {
    /// API group; empty for the core group.
    pub group: String,
    /// For example `pods`.
    pub resource: String,
    /// For example `log`.
    pub subresource: String,
    /// Namespace.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
    /// Fields and the one value to which the field selector restricts each.
    pub field_requirements: Vec<(String, String)>,
}

impl ResourceAttributes {
    /// Whether the field selector requires this value of a field.
    #[must_use]
    pub fn has_field_requirement(&self, field: &str, value: &str) -> bool {
        self.field_requirements.iter().any(|(f, v)| f == field && v == value)
    }

    /// Returns the resource with its subresource, such as `pods/log`.
    #[must_use]
    pub fn combined_resource(&self) -> Cow<'_, str> {
        if self.subresource.is_empty() {
            Cow::Borrowed(&self.resource)
        } else {
            Cow::Owned(format!("{}/{}", self.resource, self.subresource))
        }
    }
}

impl Attributes {
    /// Returns the attributes of a request for a resource.
    #[must_use]
    pub fn for_resource(verb: &str, resource: ResourceAttributes) -> Self {
        Self { verb: verb.to_owned(), target: RequestTarget::Resource(resource) }
    }

    /// The namespace of the resource; empty for cluster scope.
    #[must_use]
    pub fn namespace(&self) -> &str {
        match &self.target {
            RequestTarget::Resource(resource) => &resource.namespace,
            RequestTarget::NonResource(_) => "",
        }
    }
}

/// Returns the fields for which a field selector requires one value. An invalid selector has none.
#[must_use]
pub fn field_requirements(selector: &str) -> Vec<(String, String)> {
    let selector = FieldSelector::parse(selector).unwrap_or_default();
    selector.terms.into_iter().filter(|(.., equal)| *equal).map(|(field, value, _)| (field, value)).collect()
}

/// Subresources whose requests are long-running.
const LONG_RUNNING_SUBRESOURCES: [&str; 5] = ["attach", "exec", "log", "portforward", "proxy"];

/// Whether a request has no timeout (`BasicLongRunningRequestCheck`).
#[must_use]
pub fn is_long_running(attributes: &Attributes) -> bool {
    let RequestTarget::Resource(about) = &attributes.target else { return false };
    attributes.verb == "watch" || LONG_RUNNING_SUBRESOURCES.contains(&about.subresource.as_str())
}
