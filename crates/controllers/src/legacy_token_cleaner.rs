//! Legacy token cleaner: marks auto-generated token Secrets as invalid after a year without use, and deletes them
//! after another year (`pkg/controller/serviceaccount/legacy_serviceaccount_token_cleaner.go`).

use crate::{
    clients::Clients,
    clock::Clock,
    names,
    worker::{self, Controller, ignore_not_found_or_conflict},
};
use futures::stream::{self, StreamExt};
use jiff::{SignedDuration, Timestamp, civil::Date, tz::TimeZone};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, ServiceAccount};
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, Patch, PatchParams, Preconditions},
};
use serde_json::{Value, json};
use std::{collections::HashMap, time::Duration};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// ConfigMap with the date since which the use of tokens is tracked.
const TRACKING_CONFIG_MAP: &str = "kube-apiserver-legacy-service-account-token-tracking";
const LAST_USED: &str = "kubernetes.io/legacy-token-last-used";
const INVALID_SINCE: &str = "kubernetes.io/legacy-token-invalid-since";
const SERVICE_ACCOUNT_TOKEN: &str = "kubernetes.io/service-account-token";
/// Time without use (`--legacy-service-account-token-clean-up-period`).
const CLEAN_UP_PERIOD: SignedDuration = SignedDuration::from_hours(365 * 24);
/// Interval of clean-ups.
const CLEAN_UP_INTERVAL: Duration = Duration::from_secs(24 * 60 * 60);
const DAY: &str = "%Y-%m-%d";

/// Action on a Secret, if its service account references it and no Pod does.
#[derive(Debug, Clone, PartialEq, Eq)]
enum CleanUp {
    Keep,
    /// Mark its token as invalid since this day.
    MarkInvalid(String),
    Delete,
}

fn clean_up(secret: &Secret, now: Timestamp) -> CleanUp {
    let (meta, past) = (&secret.metadata, now.saturating_sub(CLEAN_UP_PERIOD).unwrap_or(now));
    let is_old = meta.creation_timestamp.as_ref().is_some_and(|made| made.0 < past);
    if secret.type_.as_deref() != Some(SERVICE_ACCOUNT_TOKEN) || !is_old || meta.deletion_timestamp.is_some() {
        return CleanUp::Keep;
    }
    let label = |name: &str| meta.labels.as_ref().and_then(|labels| labels.get(name)).map(String::as_str);
    let past = past.strftime(DAY).to_string();
    // Days are compared as text, as upstream.
    if label(LAST_USED).is_some_and(|day| day >= past.as_str()) {
        return CleanUp::Keep;
    }
    match label(INVALID_SINCE).filter(|day| Date::strptime(DAY, day).is_ok()) {
        None => CleanUp::MarkInvalid(now.strftime(DAY).to_string()),
        Some(day) if day >= past.as_str() => CleanUp::Keep,
        Some(_) => CleanUp::Delete,
    }
}

/// Returns whether the use of tokens has been tracked for the clean-up period, counted from the day after `since`.
fn is_tracked_long_enough(since: &str, now: Timestamp) -> bool {
    let day = Date::strptime(DAY, since).ok().and_then(|day| day.tomorrow().ok());
    let began = day.and_then(|day| day.to_zoned(TimeZone::UTC).ok());
    began.is_some_and(|began| now.duration_since(began.timestamp()) >= CLEAN_UP_PERIOD)
}

struct LegacyTokenCleaner {
    /// Client for lists.
    shared: Client,
    client: Client,
    clock: Clock,
}

impl LegacyTokenCleaner {
    /// Returns whether the Secret was auto-generated: the service account references it.
    async fn is_automatic(&self, namespace: &str, secret: &Secret) -> Result<bool, kube::Error> {
        let annotation = |name: &str| {
            let annotations = secret.metadata.annotations.as_ref();
            annotations.and_then(|all| all.get(name)).map_or("", String::as_str)
        };
        let name = annotation("kubernetes.io/service-account.name");
        if name.is_empty() {
            return Ok(false);
        }
        let Some(account) = Api::<ServiceAccount>::namespaced(self.shared.clone(), namespace).get_opt(name).await?
        else {
            return Ok(false);
        };
        let uid = annotation("kubernetes.io/service-account.uid");
        let fits = uid.is_empty() || account.metadata.uid.as_deref() == Some(uid);
        Ok(fits && account.secrets.iter().flatten().any(|named| named.name == secret.metadata.name))
    }

    /// Returns the specs of a namespace's Pods.
    async fn specs(&self, namespace: &str) -> Result<Vec<Value>, kube::Error> {
        let pods = Api::<Pod>::namespaced(self.shared.clone(), namespace).list(&ListParams::default()).await?;
        Ok(pods.items.into_iter().map(|pod| json!(pod.spec)).collect())
    }

    async fn apply(&self, namespace: &str, secret: &Secret, clean_up: CleanUp) -> Result<(), kube::Error> {
        let (meta, api) = (&secret.metadata, Api::<Secret>::namespaced(self.client.clone(), namespace));
        let name = meta.name.as_deref().unwrap_or_default();
        match clean_up {
            CleanUp::Keep => Ok(()),
            CleanUp::MarkInvalid(day) => {
                let patch = json!({"metadata": {"uid": meta.uid, "labels": {INVALID_SINCE: day}}});
                ignore_not_found_or_conflict(api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await)
            }
            CleanUp::Delete => {
                let preconditions = Preconditions { uid: None, resource_version: meta.resource_version.clone() };
                let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
                ignore_not_found_or_conflict(api.delete(name, &params).await)
            }
        }
    }
}

impl Controller for LegacyTokenCleaner {
    type Event = ();

    const NAME: &'static str = names::LEGACY_SERVICE_ACCOUNT_TOKEN_CLEANER;

    fn observe(&self, (): (), _: Instant) -> Vec<String> {
        vec![String::new()]
    }

    async fn reconcile(&self, _: &str, _: Instant) -> Result<Option<Duration>, kube::Error> {
        let (again, now) = (Some(CLEAN_UP_INTERVAL), self.clock.now());
        let tracking =
            Api::<ConfigMap>::namespaced(self.client.clone(), "kube-system").get_opt(TRACKING_CONFIG_MAP).await?;
        let since = tracking.and_then(|map| map.data).and_then(|mut data| data.remove("since")).unwrap_or_default();
        if !is_tracked_long_enough(&since, now) {
            return Ok(again);
        }
        let of_type = ListParams::default().fields(&format!("type={SERVICE_ACCOUNT_TOKEN}"));
        let mut specs: HashMap<String, Vec<Value>> = HashMap::new();
        for secret in Api::<Secret>::all(self.shared.clone()).list(&of_type).await?.items {
            let clean_up = clean_up(&secret, now);
            let (namespace, name) = (secret.metadata.namespace.as_deref(), secret.metadata.name.as_deref());
            let (Some(namespace), Some(name)) = (namespace, name) else { continue };
            if clean_up == CleanUp::Keep || !self.is_automatic(namespace, &secret).await? {
                continue;
            }
            if !specs.contains_key(namespace) {
                specs.insert(namespace.to_owned(), self.specs(namespace).await?);
            }
            let is_named = specs
                .get(namespace)
                .into_iter()
                .flatten()
                .any(|spec| api::pod_references::references_secret(spec, name));
            if !is_named {
                self.apply(namespace, &secret, clean_up).await?;
            }
        }
        Ok(again)
    }
}

pub(crate) async fn run(clients: Clients, clock: Clock, stop: CancellationToken) {
    let client = clients.for_service_account("legacy-service-account-token-cleaner");
    let first = stream::once(async {}).chain(stream::pending()).boxed();
    worker::run(LegacyTokenCleaner { shared: clients.shared(), client, clock }, first, stop).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(made: &str, labels: Value, expected: CleanUp) {
        let now = "2026-06-15T12:00:00Z".parse().unwrap();
        let metadata = json!({"name": "s", "creationTimestamp": made, "labels": labels});
        let secret = json!({"metadata": metadata, "type": SERVICE_ACCOUNT_TOKEN});
        assert_eq!(clean_up(&serde_json::from_value(secret).unwrap(), now), expected);
    }

    #[test]
    fn unused_token_is_invalidated_then_deleted() {
        let (old, ends) = ("2025-06-15T11:59:59Z", || CleanUp::MarkInvalid("2026-06-15".to_owned()));
        check(old, json!({}), ends());
        check("2025-06-15T12:00:00Z", json!({}), CleanUp::Keep);
        check(old, json!({LAST_USED: "2025-06-15"}), CleanUp::Keep);
        check(old, json!({LAST_USED: "2025-06-14"}), ends());
        check(old, json!({INVALID_SINCE: "2026-06-14"}), CleanUp::Keep);
        check(old, json!({INVALID_SINCE: "2025-06-15"}), CleanUp::Keep);
        check(old, json!({INVALID_SINCE: "2025-06-14"}), CleanUp::Delete);
        check(old, json!({INVALID_SINCE: "once"}), ends());
        // The token was used after it was marked.
        check(old, json!({INVALID_SINCE: "2024-01-01", LAST_USED: "2026-06-01"}), CleanUp::Keep);
    }

    #[test]
    fn secrets_without_old_tokens_are_kept() {
        let now = "2026-06-15T12:00:00Z".parse().unwrap();
        let made = "2020-01-01T00:00:00Z";
        for secret in [
            json!({"metadata": {"creationTimestamp": made}, "type": "Opaque"}),
            json!({"metadata": {"creationTimestamp": made, "deletionTimestamp": made}, "type": SERVICE_ACCOUNT_TOKEN}),
            json!({"metadata": {}, "type": SERVICE_ACCOUNT_TOKEN}),
        ] {
            assert_eq!(clean_up(&serde_json::from_value(secret).unwrap(), now), CleanUp::Keep);
        }
    }

    #[test]
    fn token_use_must_be_tracked_for_a_year() {
        for (since, now, expected) in [
            ("2025-06-15", "2026-06-15T23:59:59Z", false),
            ("2025-06-15", "2026-06-16T00:00:00Z", true),
            ("", "2026-06-16T00:00:00Z", false),
            ("2025-06", "2026-06-16T00:00:00Z", false),
        ] {
            assert_eq!(is_tracked_long_enough(since, now.parse().unwrap()), expected, "{since} {now}");
        }
    }
}
