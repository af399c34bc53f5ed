//! Health endpoints `/livez`, `/readyz` and `/healthz`, with `?verbose`, `?exclude` and a path for each check.

use crate::ApiServer;
use errors::ApiError;
use http::{HeaderValue, header};
use request::Query;
use response::HandlerResult;
use std::{collections::BTreeSet, fmt::Write};
use store::Key;

/// Checks of all endpoints, in upstream's order. Most of them always pass: this server does not listen before its store
/// is open, and it has no separate components that upstream's post-start hooks start.
static CHECKS: [&str; 32] = [
    "ping",
    "log",
    "etcd",
    "poststarthook/start-apiserver-admission-initializer",
    "poststarthook/generic-apiserver-start-informers",
    "poststarthook/priority-and-fairness-config-consumer",
    "poststarthook/priority-and-fairness-filter",
    "poststarthook/storage-object-count-tracker-hook",
    "poststarthook/start-apiextensions-informers",
    "poststarthook/start-apiextensions-controllers",
    "poststarthook/crd-informer-synced",
    NAMESPACES,
    "poststarthook/start-cluster-authentication-info-controller",
    "poststarthook/start-kube-apiserver-identity-lease-controller",
    "poststarthook/start-kube-apiserver-identity-lease-garbage-collector",
    "poststarthook/start-legacy-token-tracking-controller",
    "poststarthook/start-service-ip-repair-controllers",
    ROLES,
    "poststarthook/scheduling/bootstrap-system-priority-classes",
    "poststarthook/priority-and-fairness-config-producer",
    "poststarthook/bootstrap-controller",
    "poststarthook/start-kubernetes-service-cidr-controller",
    "poststarthook/aggregator-reload-proxy-client-cert",
    "poststarthook/start-kube-aggregator-informers",
    "poststarthook/apiservice-status-local-available-controller",
    "poststarthook/apiservice-status-remote-available-controller",
    "poststarthook/apiservice-registration-controller",
    "poststarthook/apiservice-discovery-controller",
    "poststarthook/kube-apiserver-autoregistration",
    "autoregister-completion",
    "poststarthook/apiservice-openapi-controller",
    "poststarthook/apiservice-openapiv3-controller",
];
/// Passes when the system namespaces exist.
const NAMESPACES: &str = "poststarthook/start-system-namespaces-controller";
/// Passes when the default roles and bindings are reconciled.
const ROLES: &str = "poststarthook/rbac/bootstrap-roles";
/// Checks of `/readyz` only, after that of etcd.
static READYZ: [&str; 2] = ["etcd-readiness", "informer-sync"];
/// Last checks of `/readyz`.
static READYZ_LAST: [&str; 2] = [STORE_QUOTA, "shutdown"];
/// Podium's own check: passes when the store is below its quota.
const STORE_QUOTA: &str = "store-quota";

/// Returns the checks of an endpoint. A full store must not fail `/livez`, which would restart the server.
fn checks(endpoint: &str) -> Vec<&'static str> {
    if endpoint != "readyz" {
        return CHECKS.to_vec();
    }
    let (first, others) = CHECKS.split_at(3);
    [first, &READYZ, others, &READYZ_LAST].concat()
}

/// Runs a check; returns the error.
fn run_check(server: &ApiServer, check: &str) -> Option<String> {
    match check {
        NAMESPACES if server.registry.store.get(&Key::new("namespaces", "", "kube-system")).is_none() => {
            Some(NOT_FINISHED.into())
        }
        ROLES if !server.registry.authorizer.rbac().is_bootstrapped() => Some(NOT_FINISHED.into()),
        STORE_QUOTA if *server.quota_alarm().borrow() => {
            let usage = server.registry.store.usage();
            Some(format!("{} of {} bytes are used", usage.bytes, usage.quota))
        }
        _ => None,
    }
}

/// Upstream's error of an unfinished hook (`errHookNotFinished`).
const NOT_FINISHED: &str = "not finished";

fn parse_path(path: &str) -> Option<(&str, Option<&str>)> {
    let mut parts = path.trim_matches('/').splitn(2, '/');
    let name = parts.next().filter(|n| matches!(*n, "livez" | "readyz" | "healthz"))?;
    Some((name, parts.next()))
}

/// Whether a path is a health endpoint or one of its checks.
pub(crate) fn is_check(path: &str) -> bool {
    parse_path(path).is_some()
}

/// Responds to a health endpoint or one of its checks, in upstream's format.
pub(crate) fn respond(server: &ApiServer, path: &str, query: &str) -> HandlerResult {
    let mut response = run_checks(server, path, query)?;
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    Ok(response)
}

fn run_checks(server: &ApiServer, path: &str, query: &str) -> HandlerResult {
    let (name, check) = parse_path(path).ok_or_else(ApiError::no_such_path)?;
    if let Some(check) = check {
        if !checks(name).contains(&check) {
            return Err(ApiError::no_such_path());
        }
        return Ok(match run_check(server, check) {
            None => response::text(200, "ok"),
            Some(error) => response::text(500, &format!("internal server error: {error}\n")),
        });
    }
    // As upstream: `verbose` needs no value, and `exclude` may be repeated.
    let is_verbose = query.split('&').any(|p| p == "verbose" || p.starts_with("verbose="));
    let excluded: Vec<Query> = query.split('&').map(Query::parse).collect();
    let mut excluded: BTreeSet<&str> = excluded.iter().filter_map(|q| q.get("exclude")).collect();
    let (mut text, mut has_failed) = (String::new(), false);
    for check in checks(name) {
        let _ = if excluded.remove(check) {
            writeln!(text, "[+]{check} excluded: ok")
        } else if run_check(server, check).is_some() {
            has_failed = true;
            // Health endpoints are public.
            writeln!(text, "[-]{check} failed: reason withheld")
        } else {
            writeln!(text, "[+]{check} ok")
        };
    }
    if !excluded.is_empty() {
        let unknown: Vec<String> = excluded.iter().map(|name| format!("{name:?}")).collect();
        let message = "some health checks cannot be excluded";
        let _ = writeln!(text, "warn: {message}: no matches for {}", unknown.join(","));
    }
    if has_failed {
        return Ok(response::text(500, &format!("{text}{name} check failed\n")));
    }
    if !is_verbose {
        return Ok(response::text(200, "ok"));
    }
    Ok(response::text(200, &format!("{text}{name} check passed\n")))
}

#[cfg(test)]
mod tests {
    use crate::test_server::{send, server};

    async fn get(server: &crate::ApiServer, path: &str) -> (u16, String) {
        let answer = send(server, "GET", path, &[], &[]).await;
        (answer.code, String::from_utf8(answer.body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn health_endpoints_return_upstream_texts() {
        let server = server().await;
        for path in ["/livez", "/readyz", "/healthz", "/livez?exclude=etcd", "/readyz?exclude=none"] {
            assert_eq!(get(&server, path).await, (200, "ok".to_owned()), "{path}");
        }
        let (_, livez) = get(&server, "/livez?verbose").await;
        let start = "[+]ping ok\n[+]log ok\n[+]etcd ok\n[+]poststarthook/start-apiserver-admission-initializer ok\n";
        let end = "[+]autoregister-completion ok\n[+]poststarthook/apiservice-openapi-controller ok\n\
                   [+]poststarthook/apiservice-openapiv3-controller ok\nlivez check passed\n";
        assert!(livez.starts_with(start) && livez.ends_with(end), "{livez}");
        let (_, readyz) = get(&server, "/readyz?verbose=1&exclude=etcd&exclude=x&exclude=a").await;
        let start = "[+]ping ok\n[+]log ok\n[+]etcd excluded: ok\n[+]etcd-readiness ok\n[+]informer-sync ok\n";
        let end = "[+]store-quota ok\n[+]shutdown ok\n\
                   warn: some health checks cannot be excluded: no matches for \"a\",\"x\"\nreadyz check passed\n";
        assert!(readyz.starts_with(start) && readyz.ends_with(end), "{readyz}");
        assert_eq!(get(&server, "/healthz?verbose").await.1, livez.replace("livez", "healthz"));
    }

    #[tokio::test]
    async fn health_check_has_its_own_path() {
        let server = server().await;
        for endpoint in ["livez", "readyz", "healthz"] {
            for check in super::checks(endpoint) {
                let path = format!("/{endpoint}/{check}");
                assert_eq!(get(&server, &path).await, (200, "ok".to_owned()), "{path}");
            }
        }
        for path in ["/livez/nothing", "/livez/shutdown", "/healthz/etcd-readiness", "/livez/poststarthook"] {
            assert_eq!(get(&server, path).await.0, 404, "{path}");
        }
    }

    #[tokio::test]
    async fn unreconciled_roles_fail_their_health_check() {
        let server = server().await;
        let bootstrap = server.registry.authorizer.rbac().begin_bootstrap();
        let failed = send(&server, "GET", "/readyz/poststarthook/rbac/bootstrap-roles", &[], &[]).await;
        assert_eq!((failed.code, &failed.body[..]), (500, &b"internal server error: not finished\n"[..]));
        drop(bootstrap);
        assert_eq!(send(&server, "GET", "/readyz", &[], &[]).await.code, 200);
    }
}
