//! What there can be in a namespace. It is asked for at every look, for clients define new kinds at any time, and read
//! only when it has changed.

use http::header::{ACCEPT, ETAG, IF_NONE_MATCH};
use kube::client::Body;
use kube::discovery::{ApiGroup, ApiResource, Discovery, Scope};
use kube::{Client, Error};
use parking_lot::Mutex;
use serde_json::Value;
use std::sync::Arc;

/// The form of discovery whose entity tag tells of changes.
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// What there can be in a namespace.
#[derive(Clone, Default)]
pub(super) struct NamespacedKinds {
    /// Kinds that can be listed and deleted.
    pub(super) kinds: Arc<[ApiResource]>,
    /// `group/version` of those whose server does not say what it serves.
    pub(super) unknown: Arc<[String]>,
}

/// What there was at the last look, and the entity tag by which it is known.
pub(super) struct DiscoveryCache {
    client: Client,
    known: Mutex<Option<(String, NamespacedKinds)>>,
}

impl DiscoveryCache {
    pub(super) fn new(client: Client) -> Self {
        Self { client, known: Mutex::default() }
    }

    /// What there is now.
    pub(super) async fn kinds(&self) -> Result<NamespacedKinds, Error> {
        let known = self.known.lock().clone();
        // First the tag, then what it stands for: a change between the two is seen at the next look.
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

    /// The tag of what is served now, and all groups unless that is known; a server that gives no tag is asked for
    /// everything each time.
    async fn groups(&self, known: Option<&str>) -> Result<(Option<String>, Value), Error> {
        let request = http::Request::get("/apis").header(ACCEPT, AGGREGATED);
        let request = known.into_iter().fold(request, |request, tag| request.header(IF_NONE_MATCH, tag));
        let answer = self.client.send(request.body(Body::empty()).map_err(Error::HttpError)?).await?;
        let tag = answer.headers().get(ETAG).and_then(|tag| tag.to_str().ok()).map(str::to_owned);
        let body = answer.into_body().collect_bytes().await?;
        Ok((tag, serde_json::from_slice(&body).unwrap_or_default()))
    }
}

/// The versions that are out of date.
fn stale(groups: &Value) -> impl Iterator<Item = String> {
    fn list<'a>(of: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
        of[name].as_array().into_iter().flatten()
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
    fn versions_that_are_out_of_date_are_named() {
        let version = |name: &str, freshness: &str| json!({"version": name, "freshness": freshness});
        let group = json!({"metadata": {"name": "g"}, "versions": [version("v2", "Current"), version("v1", "Stale")]});
        assert_eq!(stale(&json!({"items": [group]})).collect::<Vec<_>>(), ["g/v1"]);
    }
}
