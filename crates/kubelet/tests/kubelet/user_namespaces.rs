//! `hostUsers: false` with runtimes that support user namespaces and that do not.

use super::{Node, path};
use serde_json::json;

/// Checks that each Pod has its own user namespace, shared by its containers.
async fn check(node: &Node, names: &[&str], expected: &[u32]) {
    for name in names {
        node.until_running(name).await;
    }
    let mut sandboxes = node.runtime.sandbox_configs();
    sandboxes.sort_by_key(|config| config.name.clone());
    let first = |namespaces: runtime::Namespaces| namespaces.users.map(|users| (users.host_id, users.length));
    let expected: Vec<_> = expected.iter().map(|id| Some((*id, 65_536))).collect();
    let given: Vec<_> = sandboxes.iter().map(|config| first(config.namespaces)).collect();
    assert_eq!(given, expected);
    let made = names.iter().flat_map(|name| node.runtime.made(name)).map(|c| first(c.security.namespaces));
    assert_eq!(made.collect::<Vec<_>>(), expected);
}

#[tokio::test(start_paused = true)]
async fn pods_have_separate_and_stable_user_namespaces() {
    let mut node = Node::started("");
    node.runtime.default_handler(true);
    for name in ["a", "b"] {
        node.pod(name, &json!({"hostUsers": false}));
        node.until_running(name).await;
    }
    check(&node, &["a", "b"], &[65_536, 131_072]).await;
    // The next kubelet assigns no used ranges, and a recreated container has the range of its Pod.
    node.stop().await;
    node.start();
    node.pod("c", &json!({"hostUsers": false}));
    check(&node, &["a", "b", "c"], &[65_536, 131_072, 196_608]).await;
    node.runtime.exit("a", 1, true);
    node.api.wait_until("it is started again", |_| node.runtime.made("a").len() == 2).await;
    let users = node.runtime.made("a").remove(1).security.namespaces.users;
    assert_eq!(users.map(|users| users.host_id), Some(65_536));
    node.api.delete(&path("a"));
    node.api.wait_until("it is gone", |api| api.get(&path("a")).is_none()).await;
    let directories = || std::fs::read_dir(node.dir.path().join("pods")).expect("a directory").count();
    node.api.wait_until("nothing of it is left", |_| directories() == 2).await;
    node.pod("d", &json!({"hostUsers": false}));
    check(&node, &["b", "c", "d"], &[131_072, 196_608, 65_536]).await;
}

#[tokio::test(start_paused = true)]
async fn runtime_without_user_namespaces_gets_no_sandbox() {
    let refused = "can't set `spec.hostUsers: false`, runtime does not support user namespaces";
    for (handler, message) in [(None, ": the handler \"\" is not known"), (Some(false), "")] {
        let node = Node::started("");
        if let Some(can) = handler {
            node.runtime.default_handler(can);
        }
        node.pod("p", &json!({"hostUsers": false}));
        node.pod("q", &json!({"hostUsers": true}));
        node.until_running("q").await;
        let words = format!("Failed to create pod sandbox: {refused}{message}");
        node.api
            .wait_until("it is told", |api| {
                let events = api.list("api/v1/namespaces/x/events");
                events.iter().any(|e| e["reason"] == "FailedCreatePodSandBox" && e["message"] == words)
            })
            .await;
        assert_eq!(node.status("p")["phase"], "Pending", "handler: {handler:?}");
        assert_eq!(node.runtime.sandbox_configs().len(), 1, "handler: {handler:?}");
        assert!(node.runtime.sandbox_configs()[0].namespaces.users.is_none(), "handler: {handler:?}");
        // The sandbox is retried when the runtime supports it.
        node.runtime.default_handler(true);
        node.until_running("p").await;
    }
}
