//! What must be there before anyone asks: the namespaces and priority classes of the system, and the Service of the API.

use crate::{ApiServer, UserInfo, definitions, kinds::priority_class};
use bytes::Bytes;
use http::{HeaderValue, Request, header};
use http_body_util::Full;
use serde_json::{Value, json};

const NAMESPACES: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];

impl ApiServer {
    /// Makes the namespaces and priority classes of the system, where they are not there yet.
    pub async fn bootstrap(&self) {
        for name in NAMESPACES {
            let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            self.make("/api/v1/namespaces", &body).await;
        }
        // What was begun before Podium ended goes on.
        definitions::settle(self).await;
        for class in priority_class::OF_THE_SYSTEM.iter().filter_map(|(name, ..)| priority_class::of_the_system(name)) {
            self.make("/apis/scheduling.k8s.io/v1/priorityclasses", &class).await;
        }
    }

    /// Makes the Service of the API itself, where it is not there yet; `port` is where the API listens.
    pub async fn bootstrap_service(&self, port: u16) {
        let body = json!({"apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "kubernetes", "labels": {"component": "apiserver", "provider": "kubernetes"}},
            "spec": {"clusterIP": "10.96.0.1", "ports": [{"name": "https", "port": 443, "targetPort": port}]}});
        self.make("/api/v1/namespaces/default/services", &body).await;
    }

    async fn make(&self, path: &'static str, object: &Value) {
        let mut request = Request::new(Full::<Bytes>::from(object.to_string()));
        *request.method_mut() = http::Method::POST;
        *request.uri_mut() = http::Uri::from_static(path);
        request.headers_mut().insert(header::USER_AGENT, HeaderValue::from_static("kube-apiserver"));
        let response = self.handle(Some(UserInfo::component("system:apiserver")), request).await;
        // A conflict says that it is there.
        if !response.status().is_success() && response.status() != 409 {
            let name = &object["metadata"]["name"];
            tracing::error!(%name, path, status = %response.status(), "an object of the system cannot be made");
        }
    }
}
