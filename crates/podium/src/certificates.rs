//! Certificates while Podium runs: the administrator's is renewed, and authorities that end soon are reported.
//!
//! Serving certificates renew themselves (`server/src/pki/ca.rs`).

use crate::node_event;
use k8s_openapi::api::core::v1::Event;
use kube::Client;
use server::Pki;
use std::{path::PathBuf, time::Duration};

/// Certificates are renewed months before they end: it does not matter when in a day.
const INTERVAL: Duration = Duration::from_secs(24 * 3600);

/// Renews the kubeconfig and reports authorities that end soon, at once and then every day. Never ends.
pub(crate) async fn monitor(pki: Pki, kubeconfig: PathBuf, url: String, client: Client, node: String) {
    let mut days = tokio::time::interval(INTERVAL);
    // A machine that slept has missed nothing but time.
    days.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        days.tick().await;
        let (renewing, path, server) = (pki.clone(), kubeconfig.clone(), url.clone());
        let renewed = tokio::task::spawn_blocking(move || renewing.renew_admin_kubeconfig(&path, &server)).await;
        match renewed {
            Ok(Ok(true)) => tracing::info!(path = %kubeconfig.display(), "renewed the administrator's kubeconfig"),
            Ok(Ok(false)) => {}
            Ok(Err(error)) => tracing::warn!(%error, "failed to renew the administrator's kubeconfig"),
            Err(error) => tracing::warn!(%error, "failed to renew the administrator's kubeconfig"),
        }
        for event in warnings(&pki, &node) {
            let advice = event.message.as_deref().unwrap_or_default();
            tracing::warn!(advice, "a certificate authority ends soon");
            node_event::create(&client, &event).await;
        }
    }
}

/// k3s has the same reason for an Event.
fn warnings(pki: &Pki, node: &str) -> Vec<Event> {
    let warning = |(path, ends): (PathBuf, jiff::Timestamp)| {
        let message = format!(
            "The certificate authority in {} ends at {ends}: stop Podium, remove this file and start Podium, which signs the \
             authority anew with its key; then give clients the new kubeconfig",
            path.display()
        );
        node_event::event(node, "Warning", "CertificateExpirationWarning", &message)
    };
    pki.ending_authorities().into_iter().map(warning).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;
    use server::Clock;

    #[test]
    fn authority_that_ends_soon_gives_an_event_that_says_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        let load = |now: &'static str| {
            let clock = Clock::new(move || now.parse::<Timestamp>().unwrap());
            Pki::load_or_create_at(dir.path(), &[], &[], clock).unwrap()
        };
        assert!(warnings(&load("2026-01-01T00:00:00Z"), "n").is_empty());
        let events = warnings(&load("2035-06-01T00:00:00Z"), "n");
        let messages: Vec<&str> = events.iter().filter_map(|event| event.message.as_deref()).collect();
        assert_eq!(messages.len(), 2);
        let expected = format!("{}/ca.crt ends at 2035-12-30T00:00:00Z: stop Podium", dir.path().display());
        assert!(messages[0].contains(&expected), "{messages:?}");
        assert!(messages[1].contains("front-proxy-ca.crt"), "{messages:?}");
        let (kind, reason) = (events[0].type_.as_deref(), events[0].reason.as_deref());
        assert_eq!((kind, reason), (Some("Warning"), Some("CertificateExpirationWarning")));
    }
}
