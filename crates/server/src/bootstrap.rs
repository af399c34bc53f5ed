//! What must be there before anyone asks: the namespaces of the system.

use crate::{ApiServer, UserInfo};
use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use serde_json::json;

const NAMESPACES: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];

impl ApiServer {
    /// Makes the namespaces of the system, where they are not there yet.
    pub async fn bootstrap(&self) {
        for name in NAMESPACES {
            let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}).to_string();
            let mut request = Request::new(Full::<Bytes>::from(body));
            *request.method_mut() = http::Method::POST;
            *request.uri_mut() = http::Uri::from_static("/api/v1/namespaces");
            let response = self.handle(Some(UserInfo::component("system:apiserver")), request).await;
            // A conflict says that it is there.
            if !response.status().is_success() && response.status() != 409 {
                tracing::error!(name, status = %response.status(), "a system namespace cannot be made");
            }
        }
    }
}
