//! `/livez`, `/readyz` and `/healthz`: one word, or every check with `?verbose`, and each check at a path of its own.

use crate::{
    ApiServer,
    request::Query,
    response::{self, Reply},
    status::ApiError,
};
use http::{HeaderValue, header};
use std::{collections::BTreeSet, fmt::Write};
use store::Key;

/// Checks of all endpoints, in the order in which upstream's API server adds them. A server that answers at all passes most
/// of them: it does not serve before its store is open, and what upstream starts after it listens is a part of this one.
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
/// Whether the namespaces of the system are there.
const NAMESPACES: &str = "poststarthook/start-system-namespaces-controller";
/// Whether the default roles and bindings are there.
const ROLES: &str = "poststarthook/rbac/bootstrap-roles";
/// Those of `/readyz` alone that come behind the store's.
static READYZ: [&str; 2] = ["etcd-readiness", "informer-sync"];
/// Those that come last there.
static READYZ_LAST: [&str; 2] = [STORE_QUOTA, "shutdown"];
/// Whether the store takes writes of clients: Podium's own check.
const STORE_QUOTA: &str = "store-quota";

/// The checks of an endpoint. A full store is no reason to restart a server.
fn checks(endpoint: &str) -> Vec<&'static str> {
    if endpoint != "readyz" {
        return CHECKS.to_vec();
    }
    let (first, others) = CHECKS.split_at(3);
    [first, &READYZ, others, &READYZ_LAST].concat()
}

/// What is wrong, if something is.
fn failure(server: &ApiServer, check: &str) -> Option<String> {
    match check {
        NAMESPACES if server.store.get(&Key::new("namespaces", "", "kube-system")).is_none() => {
            Some(NOT_FINISHED.into())
        }
        ROLES if !server.follower.is_settled() => Some(NOT_FINISHED.into()),
        STORE_QUOTA if *server.quota_alarm().borrow() => {
            let usage = server.store.usage();
            Some(format!("{} of {} bytes are used", usage.bytes, usage.quota))
        }
        _ => None,
    }
}

/// Upstream's text for a hook that has not ended (`errHookNotFinished`).
const NOT_FINISHED: &str = "not finished";

fn endpoint(path: &str) -> Option<(&str, Option<&str>)> {
    let mut parts = path.trim_matches('/').splitn(2, '/');
    let name = parts.next().filter(|n| matches!(*n, "livez" | "readyz" | "healthz"))?;
    Some((name, parts.next()))
}

/// Whether a path is that of a health endpoint or of one of its checks.
pub(crate) fn is_check(path: &str) -> bool {
    endpoint(path).is_some()
}

/// Upstream's text for a health endpoint or one of its checks.
pub(crate) fn answer(server: &ApiServer, path: &str, query: &str) -> Reply {
    let mut answer = checked(server, path, query)?;
    answer.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    Ok(answer)
}

fn checked(server: &ApiServer, path: &str, query: &str) -> Reply {
    let (name, check) = endpoint(path).ok_or_else(ApiError::no_such_path)?;
    if let Some(check) = check {
        if !checks(name).contains(&check) {
            return Err(ApiError::no_such_path());
        }
        return Ok(match failure(server, check) {
            None => response::text(200, "ok"),
            Some(why) => response::text(500, &format!("internal server error: {why}\n")),
        });
    }
    // Present is enough, as upstream has it; `exclude` may come more than once, so it is read from the whole text.
    let is_verbose = query.split('&').any(|p| p == "verbose" || p.starts_with("verbose="));
    let excluded: Vec<Query> = query.split('&').map(Query::parse).collect();
    let mut excluded: BTreeSet<&str> = excluded.iter().filter_map(|q| q.get("exclude")).collect();
    let (mut text, mut has_failed) = (String::new(), false);
    for check in checks(name) {
        let _ = if excluded.remove(check) {
            writeln!(text, "[+]{check} excluded: ok")
        } else if failure(server, check).is_some() {
            has_failed = true;
            // Anybody may ask.
            writeln!(text, "[-]{check} failed: reason withheld")
        } else {
            writeln!(text, "[+]{check} ok")
        };
    }
    if !excluded.is_empty() {
        let unknown: Vec<String> = excluded.iter().map(|name| format!("{name:?}")).collect();
        let what = "some health checks cannot be excluded";
        let _ = writeln!(text, "warn: {what}: no matches for {}", unknown.join(","));
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
    async fn health_is_told_in_upstreams_words() {
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
    async fn each_check_has_a_path_of_its_own() {
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
    async fn roles_that_are_to_come_fail_their_check() {
        let server = server().await;
        let settling = server.follower.settle();
        let failed = send(&server, "GET", "/readyz/poststarthook/rbac/bootstrap-roles", &[], &[]).await;
        assert_eq!((failed.code, &failed.body[..]), (500, &b"internal server error: not finished\n"[..]));
        drop(settling);
        assert_eq!(send(&server, "GET", "/readyz", &[], &[]).await.code, 200);
    }
}
