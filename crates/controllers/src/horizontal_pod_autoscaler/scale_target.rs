//! Access to the `scale` subresource of any kind, whose resource is discovered as by a RESTMapper.

use crate::worker::is_code;
use k8s_openapi::{
    api::autoscaling::{v1::Scale, v2::CrossVersionObjectReference},
    apimachinery::pkg::apis::meta::v1::{APIGroup, APIResourceList},
};
use kube::{
    Api, Client,
    api::{DynamicObject, PostParams},
    discovery::ApiResource,
};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use std::collections::HashMap;

/// Error for an invalid `apiVersion`, with upstream's message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unexpected GroupVersion string: {0}")]
pub(super) struct GroupVersionError(String);

/// A request failed, with the message of client-go.
#[derive(Debug, thiserror::Error)]
#[error("{}", error_text(source, request))]
pub(super) struct RequestError {
    source: kube::Error,
    /// The request as client-go describes it.
    request: String,
}

impl RequestError {
    pub(super) fn new(source: kube::Error, request: impl Into<String>) -> Self {
        Self { source, request: request.into() }
    }
}

/// Error of an access to a scale.
#[derive(Debug, thiserror::Error)]
pub(super) enum ScaleError {
    #[error(transparent)]
    GroupVersion(#[from] GroupVersionError),
    #[error("no matches for kind {kind:?} in group {group:?}")]
    NoMatch { kind: String, group: String },
    #[error(transparent)]
    Request(#[from] RequestError),
}

/// Reads and updates scales.
pub(super) struct ScaleClient {
    client: Client,
    /// Discovered resources by group and kind. A missing one is discovered again.
    known: Mutex<HashMap<(String, String), ApiResource>>,
}

impl ScaleClient {
    pub(super) fn new(client: Client) -> Self {
        Self { client, known: Mutex::default() }
    }

    /// Returns the scale of an object, and its resource.
    pub(super) async fn scale(
        &self,
        namespace: &str,
        target: &CrossVersionObjectReference,
    ) -> Result<(ApiResource, Scale), ScaleError> {
        let group = group_of(target.api_version.as_deref().unwrap_or_default())?;
        let resource = self.resource(&group, &target.kind).await?;
        let api = Api::<DynamicObject>::namespaced_with(self.client.clone(), namespace, &resource);
        match api.get_scale(&target.name).await {
            Ok(scale) => Ok((resource, scale)),
            Err(e) => {
                // The resource may be served in another version by now.
                self.known.lock().remove(&(group, target.kind.clone()));
                Err(RequestError::new(e, format!("get {}.{} {}", resource.plural, resource.group, target.name)).into())
            }
        }
    }

    /// Updates the scale.
    pub(super) async fn update(
        &self,
        namespace: &str,
        resource: &ApiResource,
        scale: &Scale,
    ) -> Result<(), RequestError> {
        let api = Api::<DynamicObject>::namespaced_with(self.client.clone(), namespace, resource);
        let name = scale.metadata.name.as_deref().unwrap_or_default();
        let written = api.replace_scale(name, &PostParams::default(), scale).await;
        written
            .map(drop)
            .map_err(|e| RequestError::new(e, format!("put {}.{} {name}", resource.plural, resource.group)))
    }

    /// Returns the resource of a kind, in the preferred version of its group or another one that serves it.
    pub(super) async fn resource(&self, group: &str, kind: &str) -> Result<ApiResource, ScaleError> {
        let place = (group.to_owned(), kind.to_owned());
        if let Some(known) = self.known.lock().get(&place) {
            return Ok(known.clone());
        }
        for (version, path) in self.versions(group).await? {
            // A version that does not answer must not hide others.
            let Ok(list) = get::<APIResourceList>(&self.client, &path).await else { continue };
            let named = |name: &str| name == kind || name.to_lowercase() == kind;
            let found = list.resources.iter().find(|r| named(&r.kind) && !r.name.contains('/'));
            if let Some(found) = found {
                let resource = ApiResource {
                    group: group.to_owned(),
                    api_version: list.group_version.clone(),
                    version,
                    kind: found.kind.clone(),
                    plural: found.name.clone(),
                };
                self.known.lock().insert(place, resource.clone());
                return Ok(resource);
            }
        }
        Err(ScaleError::NoMatch { kind: kind.to_owned(), group: group.to_owned() })
    }

    /// Returns the versions of a group with their paths, the preferred one first; none if the group is not served.
    async fn versions(&self, group: &str) -> Result<Vec<(String, String)>, RequestError> {
        if group.is_empty() {
            return Ok(vec![("v1".to_owned(), "/api/v1".to_owned())]);
        }
        let found: APIGroup = match get(&self.client, &format!("/apis/{group}")).await {
            Ok(found) => found,
            Err(e) if is_code(&e, 404) => return Ok(vec![]),
            Err(e) => return Err(RequestError::new(e, format!("get {group}"))),
        };
        let preferred = found.preferred_version.map(|version| version.version);
        let others = found.versions.into_iter().map(|version| version.version);
        let all = preferred.iter().cloned().chain(others.filter(|version| preferred.as_ref() != Some(version)));
        Ok(all.map(|version| (version.clone(), format!("/apis/{group}/{version}"))).collect())
    }
}

pub(super) async fn get<T: DeserializeOwned>(client: &Client, path: &str) -> Result<T, kube::Error> {
    let request = http::Request::get(path).body(Vec::new()).map_err(kube::Error::HttpError)?;
    client.request(request).await
}

/// Returns the group of an `apiVersion` (`schema.ParseGroupVersion`).
pub(super) fn group_of(api_version: &str) -> Result<String, GroupVersionError> {
    match api_version.split('/').collect::<Vec<_>>().as_slice() {
        [_] => Ok(String::new()),
        [group, _] => Ok((*group).to_owned()),
        _ => Err(GroupVersionError(api_version.to_owned())),
    }
}

/// Returns the error text of client-go: the Status message, or a generic one (`NewGenericServerResponse`).
fn error_text(error: &kube::Error, operation: &str) -> String {
    let kube::Error::Api(status) = error else { return error.to_string() };
    // Messages that upstream's server sends as plain text and Podium as a Status: client-go appends the request to
    // them.
    const GENERIC_MESSAGES: [&str; 2] =
        ["the server could not find the requested resource", "the server is currently unable to handle the request"];
    let operation = operation.trim_end_matches('.').replace(". ", " ");
    match status.code {
        404 | 503 if GENERIC_MESSAGES.contains(&status.message.as_str()) => format!("{} ({operation})", status.message),
        _ if status.reason != "Failed to parse error data" => status.message.clone(),
        404 => format!("the server could not find the requested resource ({operation})"),
        503 => format!("the server is currently unable to handle the request ({operation})"),
        _ => status.message.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::Status;

    #[track_caller]
    fn check(code: u16, reason: &str, message: &str, expected: &str) {
        let status = Status { code, reason: reason.to_owned(), message: message.to_owned(), ..Status::default() };
        assert_eq!(error_text(&kube::Error::Api(Box::new(status)), "get pods.metrics.k8s.io"), expected);
    }

    #[test]
    fn missing_api_error_names_the_request() {
        let (nothing, unable) = (
            "the server could not find the requested resource",
            "the server is currently unable to handle the request",
        );
        let no_status = "Failed to parse error data";
        check(404, "NotFound", nothing, &format!("{nothing} (get pods.metrics.k8s.io)"));
        check(404, no_status, "404 page not found", &format!("{nothing} (get pods.metrics.k8s.io)"));
        check(503, "ServiceUnavailable", unable, &format!("{unable} (get pods.metrics.k8s.io)"));
        check(503, no_status, "service unavailable", &format!("{unable} (get pods.metrics.k8s.io)"));
        check(404, "NotFound", "widgets \"web\" not found", "widgets \"web\" not found");
    }
}
