//! Namespaced kinds, discovered anew at each poll because custom kinds may be added, but only read if their entity
//! tag has changed.

use http::header::{ACCEPT, ETAG, IF_NONE_MATCH};
use kube::{
    Client, Error,
    client::Body,
    discovery::{ApiGroup, ApiResource, Discovery, Scope},
};
use parking_lot::Mutex;
use serde_json::Value;
use std::sync::Arc;

/// Media type of aggregated discovery, whose entity tag changes with the served kinds.
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// The namespaced kinds.
#[derive(Clone, Default)]
pub(super) struct NamespacedKinds {
    /// Kinds that can be listed and deleted.
    pub(super) kinds: Arc<[ApiResource]>,
    /// `group/version` of aggregated servers whose discovery failed.
    pub(super) unknown: Arc<[String]>,
}

/// The last discovered kinds and their entity tag.
pub(super) struct DiscoveryCache {
    client: Client,
    known: Mutex<Option<(String, NamespacedKinds)>>,
}

impl DiscoveryCache {
    pub(super) fn new(client: Client) -> Self {
        Self { client, known: Mutex::default() }
    }

    /// Returns the kinds that are currently served.
    pub(super) async fn kinds(&self) -> Result<NamespacedKinds, Error> {
        let known = self.known.lock().clone();
        // Read the tag before the kinds: a change in between is found at the next poll.
        let (tag, groups) = self.groups(known.as_ref().map(|(tag, _)| tag.as_str())).await?;
        if let Some((_, content)) = known.filter(|(known, _)| tag.as_ref() == Some(known)) {
            return Ok(content);
        }
        let discovery = Discovery::new(self.client.clone()).run_aggregated().await?;
        let all = discovery.groups().flat_map(ApiGroup::recommended_resources);
        let deletable = all.filter(|(_, capabilities)| {
            capabilities.scope == Scope::Namespaced
                && ["list", "deletecollection"].iter().all(|verb| capabilities.supports_operation(verb))
        });
        let content = NamespacedKinds {
            kinds: deletable.map(|(resource, _)| resource).collect(),
            unknown: stale(&groups).collect(),
        };
        *self.known.lock() = tag.map(|tag| (tag, content.clone()));
        Ok(content)
    }

    /// Returns the current entity tag, and the groups unless `known` is current. Without a tag, discovery is repeated
    /// each time.
    async fn groups(&self, known: Option<&str>) -> Result<(Option<String>, Value), Error> {
        let request = http::Request::get("/apis").header(ACCEPT, AGGREGATED);
        let request = known.into_iter().fold(request, |request, tag| request.header(IF_NONE_MATCH, tag));
        let answer = self.client.send(request.body(Body::empty()).map_err(Error::HttpError)?).await?;
        let tag = answer.headers().get(ETAG).and_then(|tag| tag.to_str().ok()).map(str::to_owned);
        let body = answer.into_body().collect_bytes().await?;
        Ok((tag, serde_json::from_slice(&body).unwrap_or_default()))
    }
}

/// Returns the API versions with stale discovery.
fn stale(groups: &Value) -> impl Iterator<Item = String> {
    fn list<'a>(document: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
        document[name].as_array().into_iter().flatten()
    }
    list(groups, "items").flat_map(|group| {
        let name = group["metadata"]["name"].as_str().unwrap_or_default();
        let stale = list(group, "versions").filter(|version| version["freshness"] == "Stale");
        stale.map(move |version| format!("{name}/{}", version["version"].as_str().unwrap_or_default()))
    })
}

#[cfg(test)]
mod tests {
    use super::stale;
    use serde_json::json;

    #[test]
    fn stale_discovery_versions_are_returned() {
        let version = |name: &str, freshness: &str| json!({"version": name, "freshness": freshness});
        let group = json!({"metadata": {"name": "g"}, "versions": [version("v2", "Current"), version("v1", "Stale")]});
        assert_eq!(stale(&json!({"items": [group]})).collect::<Vec<_>>(), ["g/v1"]);
    }
}
