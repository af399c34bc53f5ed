//! Certificate rotation at run time: renews the administrator's client certificate, and reports CAs that expire soon.
//!
//! Serving certificates are renewed by the API server (`auth/src/pki/ca.rs`).

use crate::node_event;
use auth::pki::Pki;
use k8s_openapi::api::core::v1::Event;
use kube::Client;
use std::{path::PathBuf, time::Duration};

/// Interval of the checks. Certificates are renewed months before they expire.
const CHECK_INTERVAL: Duration = Duration::from_secs(24 * 3600);

/// Renews the kubeconfig and reports CAs that expire soon, at start and then daily. Never returns.
pub(crate) async fn monitor(pki: Pki, kubeconfig: PathBuf, url: String, client: Client, node: String) {
    let mut days = tokio::time::interval(CHECK_INTERVAL);
    // After a suspend, one check is enough.
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
        for event in expiration_events(&pki, &node) {
            let advice = event.message.as_deref().unwrap_or_default();
            tracing::warn!(advice, "certificate authority expires soon");
            node_event::create(&client, &event).await;
        }
    }
}

/// Returns the Events for CAs that expire soon. Their reason is the one that k3s uses.
fn expiration_events(pki: &Pki, node: &str) -> Vec<Event> {
    let warning = |(path, expires): (PathBuf, jiff::Timestamp)| {
        let message = format!(
            "The certificate authority in {} expires at {expires}: stop Podium, remove this file and start Podium, which renews the \
             certificate with the same key; then distribute the new kubeconfig to clients",
            path.display()
        );
        node_event::event(node, "Warning", "CertificateExpirationWarning", &message)
    };
    pki.expiring_cas().into_iter().map(warning).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use auth::pki::Clock;
    use jiff::Timestamp;

    #[test]
    fn ca_that_expires_soon_creates_an_event_with_the_remedy() {
        let dir = tempfile::tempdir().unwrap();
        let load = |now: &'static str| {
            let clock = Clock::new(move || now.parse::<Timestamp>().unwrap());
            Pki::load_or_create_at(dir.path(), &[], &[], clock).unwrap()
        };
        assert!(expiration_events(&load("2026-01-01T00:00:00Z"), "n").is_empty());
        let events = expiration_events(&load("2035-06-01T00:00:00Z"), "n");
        let messages: Vec<&str> = events.iter().filter_map(|event| event.message.as_deref()).collect();
        assert_eq!(messages.len(), 2);
        let expected = format!("{}/ca.crt expires at 2035-12-30T00:00:00Z: stop Podium", dir.path().display());
        assert!(messages[0].contains(&expected), "{messages:?}");
        assert!(messages[1].contains("front-proxy-ca.crt"), "{messages:?}");
        let (kind, reason) = (events[0].type_.as_deref(), events[0].reason.as_deref());
        assert_eq!((kind, reason), (Some("Warning"), Some("CertificateExpirationWarning")));
    }
}
