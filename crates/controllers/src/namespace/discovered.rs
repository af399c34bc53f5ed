//! What there can be in a namespace. It is asked for at every look, for clients define new kinds at any time, and read
//! only when it has changed.

use http::header::{ACCEPT, ETAG, IF_NONE_MATCH};
use kube::client::Body;
use kube::discovery::{ApiGroup, ApiResource, Discovery, Scope};
use kube::{Client, Error};
use parking_lot::Mutex;
use std::sync::Arc;

/// The form of discovery whose entity tag tells of changes.
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// Kinds in namespaces that can be listed and deleted.
pub(super) type Kinds = Arc<Vec<ApiResource>>;

/// The kinds that there are, as of the last look.
pub(super) struct Discovered {
    client: Client,
    known: Mutex<Option<(String, Kinds)>>,
}

impl Discovered {
    pub(super) fn new(client: Client) -> Self {
        Self { client, known: Mutex::default() }
    }

    /// The kinds that there are now.
    pub(super) async fn kinds(&self) -> Result<Kinds, Error> {
        let known = self.known.lock().clone();
        // First the tag, then what it stands for: a change between the two is seen at the next look.
        let tag = self.tag(known.as_ref().map(|(tag, _)| tag.as_str())).await?;
        if let Some((_, kinds)) = known.filter(|(known, _)| tag.as_ref() == Some(known)) {
            return Ok(kinds);
        }
        let discovery = Discovery::new(self.client.clone()).run_aggregated().await?;
        let all = discovery.groups().flat_map(ApiGroup::recommended_resources);
        let deletable = all.filter(|(_, capabilities)| {
            capabilities.scope == Scope::Namespaced
                && ["list", "deletecollection"].iter().all(|verb| capabilities.supports_operation(verb))
        });
        let kinds: Kinds = Arc::new(deletable.map(|(resource, _)| resource).collect());
        *self.known.lock() = tag.map(|tag| (tag, Arc::clone(&kinds)));
        Ok(kinds)
    }

    /// The tag of what is served now; a server that gives none is asked for everything each time.
    async fn tag(&self, known: Option<&str>) -> Result<Option<String>, Error> {
        let request = http::Request::get("/apis").header(ACCEPT, AGGREGATED);
        let request = known.into_iter().fold(request, |request, tag| request.header(IF_NONE_MATCH, tag));
        let answer = self.client.send(request.body(Body::empty()).map_err(Error::HttpError)?).await?;
        Ok(answer.headers().get(ETAG).and_then(|tag| tag.to_str().ok()).map(str::to_owned))
    }
}
