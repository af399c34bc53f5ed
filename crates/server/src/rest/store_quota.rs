//! Storage limits: the size of one object, and the quota of the store.
//!
//! Upstream, both are limits of etcd: `--max-request-bytes` (1.5 MiB) and `--quota-backend-bytes`. At the quota, clients
//! cannot create or enlarge objects. A reserve keeps the cluster running: statuses and Leases of nodes, and updates by the
//! control plane. The control plane cannot create objects with the reserve, since clients determine how many it creates.

use crate::rest::generic_registry::GenericRegistry;
use kinds::Kind;
use request::{UserInfo, user};
use store::{Object, QuotaAllowance, Template, Write, WriteError, WriteOperation};

/// Maximum size of an object in bytes (etcd's `DefaultMaxRequestBytes`).
const MAX_OBJECT: usize = 3 << 19;
/// Components of the control plane, which may update objects beyond the quota.
const COMPONENTS: [&str; 3] = ["system:apiserver", "system:kube-scheduler", "system:kube-controller-manager"];

/// Why an object is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Create,
    Update,
}

impl GenericRegistry {
    /// Writes an object for a user, within the limits of what is stored.
    ///
    /// # Errors
    /// As [`store::Store::write`].
    pub(crate) async fn store_object(
        &self,
        user: &UserInfo,
        kind: &dyn Kind,
        purpose: Purpose,
        write: Write,
    ) -> Result<Object, WriteError> {
        if let WriteOperation::Put(template) = &write.operation {
            let size = stored_size(kind, template);
            if size > MAX_OBJECT {
                return Err(WriteError::TooLarge { field: "data", size, limit: MAX_OBJECT });
            }
        }
        self.store.write(write.with_allowance(allowance(user, purpose))).await
    }
}

fn allowance(user: &UserInfo, purpose: Purpose) -> QuotaAllowance {
    let is_component = || {
        COMPONENTS.contains(&&*user.name) || matches!(user::parse_service_account(&user.name), Some(("kube-system", _)))
    };
    match purpose {
        _ if user.is_in(user::NODES) => QuotaAllowance::Reserve,
        Purpose::Update if is_component() => QuotaAllowance::Reserve,
        _ => QuotaAllowance::Quota,
    }
}

/// Returns the approximate size of an object in etcd. Upstream stores built-in kinds as protobuf, which does not escape
/// characters of strings; a string of quotation marks is twice as long in JSON.
fn stored_size(kind: &dyn Kind, template: &Template) -> usize {
    let text = template.bytes();
    if text.len() <= MAX_OBJECT || kind.is_custom() {
        return text.len();
    }
    let (mut size, mut bytes) = (0, text.iter());
    while let Some(byte) = bytes.next() {
        size += 1;
        // The letter behind it, and four digits if that is `u`.
        if *byte == b'\\' && bytes.next() == Some(&b'u') {
            bytes.nth(3);
        }
    }
    size
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_server::{self, send, send_as};
    use kinds::CORE_EVENT;
    use serde_json::{Value, json};
    use store::{MemoryEngine, Options, Store};

    const MAPS: &str = "/api/v1/namespaces/default/configmaps";
    const NO_SPACE: &str = "etcdserver: mvcc: database space exceeded";

    fn map(name: &str, size: usize) -> Vec<u8> {
        json!({"metadata": {"name": name}, "data": {"k": "x".repeat(size)}}).to_string().into_bytes()
    }

    /// Returns a server whose quota leaves `space` bytes for objects of the test.
    async fn server_with_space(space: u64) -> crate::ApiServer {
        let engine = MemoryEngine::new();
        let needed = {
            let store = Store::open(engine.clone(), Options::default()).unwrap();
            test_server::server_of(store.clone()).await;
            store.usage().bytes
        };
        let options = Options { quota_bytes: needed + space, ..Options::default() };
        test_server::server_of(Store::open(engine, options).unwrap()).await
    }

    /// Creates ConfigMaps until one is refused; returns their number and the error.
    async fn fill(server: &crate::ApiServer, size: usize) -> (usize, test_server::Answer) {
        for number in 0..1000 {
            let answer = send(server, "POST", MAPS, &[], &map(&format!("m{number}"), size)).await;
            if answer.code != 201 {
                return (number, answer);
            }
        }
        unreachable!("the store has no end");
    }

    #[tokio::test]
    async fn creates_beyond_quota_are_refused_until_objects_are_deleted() {
        let server = server_with_space(100_000).await;
        let (count, refused) = fill(&server, 10_000).await;
        assert!((7..=9).contains(&count), "{count} ConfigMaps of 10 kB");
        let status = refused.json();
        assert_eq!((refused.code, status["message"].as_str()), (500, Some(NO_SPACE)));
        let used = server.registry.store.usage();
        assert!(used.bytes <= used.quota);
        let one = format!("{MAPS}/m0");
        assert_eq!(send(&server, "GET", &one, &[], b"").await.code, 200);
        let grown = send(&server, "PUT", &one, &[], &map("m0", 20_000)).await;
        assert_eq!((grown.code, grown.json()["message"].as_str()), (500, Some(NO_SPACE)));
        assert_eq!(send(&server, "PUT", &one, &[], &map("m0", 5000)).await.code, 200);
        assert_eq!(send(&server, "DELETE", &format!("{MAPS}/m1"), &[], b"").await.code, 200);
        assert_eq!(send(&server, "POST", MAPS, &[], &map("after", 5000)).await.code, 201);
    }

    #[tokio::test]
    async fn full_store_is_reported_by_readyz_and_not_by_livez() {
        let server = server_with_space(20_000).await;
        let get = async |path: &str| {
            let answer = send(&server, "GET", path, &[], b"").await;
            (answer.code, String::from_utf8(answer.body.to_vec()).unwrap())
        };
        assert_eq!(get("/readyz/store-quota").await, (200, "ok".to_owned()));
        let (count, _) = fill(&server, 100).await;
        let failed = "[-]store-quota failed: reason withheld\n[+]shutdown ok\nreadyz check failed\n";
        let (code, text) = get("/readyz").await;
        assert_eq!((code, text.ends_with(failed)), (500, true), "{text}");
        assert_eq!(get("/livez").await, (200, "ok".to_owned()));
        assert_eq!(get("/readyz?exclude=store-quota").await, (200, "ok".to_owned()));
        let (code, text) = get("/readyz/store-quota").await;
        assert_eq!((code, text.starts_with("internal server error: ")), (500, true), "{text}");
        let (_, metrics) = get("/metrics").await;
        let size = format!(
            "apiserver_storage_size_bytes{{storage_cluster_id=\"podium\"}} {}",
            server.registry.store.usage().bytes
        );
        assert!(metrics.contains(&size), "{size}");
        for number in 0..count / 2 {
            send(&server, "DELETE", &format!("{MAPS}/m{number}"), &[], b"").await;
        }
        assert_eq!(get("/readyz").await, (200, "ok".to_owned()));
    }

    #[tokio::test]
    async fn nodes_and_control_plane_can_write_when_store_is_full() {
        let server = server_with_space(40_000).await;
        let pod =
            json!({"metadata": {"name": "p"}, "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]}});
        let pods = "/api/v1/namespaces/default/pods";
        assert_eq!(send(&server, "POST", pods, &[], pod.to_string().as_bytes()).await.code, 201);
        fill(&server, 100).await;
        let node = UserInfo::node("n");
        let create = async |user: &UserInfo, path: &str, object: Value| {
            send_as(&server, user.clone(), "POST", path, &[], object.to_string().as_bytes()).await.code
        };
        let lease = |name: &str| json!({"metadata": {"name": name}, "spec": {"holderIdentity": name}});
        let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
        assert_eq!(create(&node, leases, lease("n")).await, 201);
        let master = UserInfo::component("kubernetes-admin");
        assert_eq!(create(&master, leases, lease(&"x".repeat(250))).await, 500);
        let status = json!({"metadata": {"name": "p"}, "status": {"phase": "Running", "message": "m".repeat(1000)}});
        let patch = [("content-type", "application/merge-patch+json")];
        let (path, body) = (format!("{pods}/p/status"), status.to_string());
        assert_eq!(send(&server, "PATCH", &path, &patch, body.as_bytes()).await.code, 500);
        assert_eq!(send_as(&server, node, "PATCH", &path, &patch, body.as_bytes()).await.code, 200);
        // The mark of a graceful deletion makes the Pod larger.
        let deleted = send(&server, "DELETE", &format!("{pods}/p"), &[], b"").await;
        assert_eq!(deleted.code, 200);
        assert!(deleted.json()["metadata"]["deletionTimestamp"].is_string());
    }

    #[tokio::test]
    async fn object_beyond_etcd_request_limit_is_refused() {
        let server = test_server::server().await;
        let body = json!({"metadata": {"name": "m"}, "data": {"k": "\"".repeat(1 << 20)}}).to_string();
        let created = send(&server, "POST", MAPS, &[], body.as_bytes()).await;
        assert_eq!(created.code, 201, "escaped characters count once");
        let names: Value =
            (0..60_000).map(|n| (format!("key-{n:010}"), json!(""))).collect::<serde_json::Map<_, _>>().into();
        let body = json!({"metadata": {"name": "keys"}, "data": names}).to_string();
        let refused = send(&server, "POST", MAPS, &[], body.as_bytes()).await;
        assert_eq!(refused.code, 500, "with their owners, the keys are too large");
        assert_eq!(refused.json()["message"], "etcdserver: request is too large");
    }

    #[test]
    fn only_nodes_create_beyond_the_quota() {
        use QuotaAllowance::{Quota, Reserve};
        let account = |namespace: &str| UserInfo::service_account(namespace, "replicaset-controller");
        for (user, expected) in [
            (UserInfo::component("kubernetes-admin"), [Quota, Quota]),
            (UserInfo::named("alice"), [Quota, Quota]),
            (account("default"), [Quota, Quota]),
            (account("kube-system"), [Quota, Reserve]),
            (UserInfo::named("system:kube-scheduler"), [Quota, Reserve]),
            (UserInfo::node("n"), [Reserve, Reserve]),
        ] {
            let actual = [Purpose::Create, Purpose::Update].map(|purpose| allowance(&user, purpose));
            assert_eq!(actual, expected, "{user:?}");
        }
    }

    #[test]
    fn escaped_characters_count_once_in_built_in_kinds() {
        let quotes = format!("{{\"a\":\"{}\"}}", "\\\"\\u0001".repeat(MAX_OBJECT / 4));
        let size = stored_size(&CORE_EVENT, &Template::from(quotes));
        assert_eq!(size, MAX_OBJECT / 2 + 8);
    }
}
