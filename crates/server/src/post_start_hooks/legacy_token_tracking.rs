//! Tracking of the use of legacy service account tokens (`legacytokentracking`).

use crate::api_server::ApiServer;
use auth::tokens::legacy::DATE_FORMAT;
use futures::FutureExt;
use http::Method;
use jiff::{Timestamp, civil::Date};
use serde_json::{Value, json};
use store::Key;

/// ConfigMap with the date since which the use of legacy tokens is tracked.
pub(crate) const TRACKING_CONFIG_MAP: &str = "kube-apiserver-legacy-service-account-token-tracking";

impl ApiServer {
    /// Records the date since which the use of legacy tokens is tracked.
    pub async fn bootstrap_token_tracking(&self) {
        let (namespace, name) = ("kube-system", TRACKING_CONFIG_MAP);
        let all = format!("/api/v1/namespaces/{namespace}/configmaps");
        let data = json!({"since": Timestamp::now().strftime(DATE_FORMAT).to_string()});
        let Some(existing) = self.registry.store.get(&Key::new("configmaps", namespace, name)) else {
            let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data});
            return self.loopback().ensure_created(&all, &object).await;
        };
        let existing: Value = serde_json::from_slice(&existing.data).unwrap_or_default();
        if existing["data"]["since"].as_str().is_none_or(|since| Date::strptime(DATE_FORMAT, since).is_err()) {
            self.loopback().request(Method::PATCH, &format!("{all}/{name}"), &json!({"data": data})).await;
        }
    }

    /// Records the uses of legacy tokens in their Secrets, in the background.
    pub(crate) fn record_legacy_token_uses(&self) {
        for used in self.authentication.legacy_uses.take() {
            let (server, path) =
                (self.clone(), format!("/api/v1/namespaces/{}/secrets/{}", used.namespace, used.secret));
            let record = async move { server.loopback().request(Method::PATCH, &path, &used.patch).await };
            tokio::spawn(record.boxed());
        }
    }
}
