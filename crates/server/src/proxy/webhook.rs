//! Client of webhooks: HTTPS to a URL or a Service, with a timeout and a limit on the response
//! (upstream's `apiserver/pkg/util/webhook`). The callers build the reviews and evaluate the responses.

mod connector;
mod response;
mod target;

pub(crate) use target::{WebhookTarget, WebhookTargetError};

use crate::proxy::backend_tls::TlsConfigError;
use bytes::Bytes;
use connector::Connector;
use http::{Request, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::{
    client::legacy::Client,
    rt::{TokioExecutor, TokioTimer},
};
use parking_lot::Mutex;
use serde_json::Value;
use std::{collections::HashMap, error::Error, time::Duration};
use store::Store;

/// Maximum size of a response in bytes: a list of converted objects may be long.
const MAX_RESPONSE: usize = 64 << 20;
/// Idle timeout of connections, as in Go.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);
/// Maximum cached clients: each changed configuration creates a new one.
const MAX_CLIENTS: usize = 256;

type HttpClient = Client<Connector, Full<Bytes>>;

/// Error of a call.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WebhookError {
    #[error(transparent)]
    Tls(#[from] TlsConfigError),
    #[error("Post {url:?}: {cause}")]
    Post { url: String, cause: String },
    #[error(transparent)]
    Response(#[from] response::ResponseError),
}

/// Client of webhooks, with pooled connections.
pub(crate) struct WebhookClient {
    store: Store,
    clients: Mutex<HashMap<target::Peer, HttpClient>>,
}

impl WebhookClient {
    /// Creates a client that resolves Services in a store.
    pub(crate) fn new(store: Store) -> Self {
        Self { store, clients: Mutex::default() }
    }

    /// Sends a review and returns the response.
    ///
    /// # Errors
    /// The errors have the texts of Go's client.
    pub(crate) async fn call(
        &self,
        target: &WebhookTarget,
        timeout: Duration,
        review: &Value,
    ) -> Result<Value, WebhookError> {
        // Rounded up to whole seconds, at least 1.
        let seconds = timeout.as_millis().div_ceil(1000).max(1);
        let url = format!("{}?timeout={seconds}s", target.url());
        let failed = |cause: String| WebhookError::Post { url: url.clone(), cause };
        let client = self.client(target.peer())?;
        let request = Request::post(&url)
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json, */*")
            .header(header::USER_AGENT, "kube-apiserver-admission")
            .body(Full::new(Bytes::from(review.to_string())))
            .map_err(|e| failed(e.to_string()))?;
        let work = async {
            let response = client.request(request).await.map_err(|e| failed(cause(&e)))?;
            let status = response.status().as_u16();
            let body = Limited::new(response.into_body(), MAX_RESPONSE).collect().await;
            let body = body.map_err(|e| failed(cause(&*e)))?.to_bytes();
            Ok(response::parse(status, &body)?)
        };
        tokio::time::timeout(timeout, work)
            .await
            .unwrap_or_else(|_| Err(failed("context deadline exceeded".to_owned())))
    }

    fn client(&self, peer: &target::Peer) -> Result<HttpClient, TlsConfigError> {
        let mut clients = self.clients.lock();
        if let Some(existing) = clients.get(peer) {
            return Ok(existing.clone());
        }
        let connector = Connector::new(self.store.clone(), peer)?;
        let client = Client::builder(TokioExecutor::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .pool_timer(TokioTimer::new())
            .build(connector);
        if clients.len() >= MAX_CLIENTS {
            clients.clear();
        }
        clients.insert(peer.clone(), client.clone());
        Ok(client)
    }
}

/// Returns the innermost cause.
fn cause(error: &(dyn Error + 'static)) -> String {
    let mut last = error;
    while let Some(inner) = last.source() {
        last = inner;
    }
    last.to_string()
}
