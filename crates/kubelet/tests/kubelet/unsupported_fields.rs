//! Fields that are accepted without an effect (docs/deviations/kubelet.md, docs/deviations/pod-lifecycle.md).

use super::Node;
use serde_json::json;

#[tokio::test(start_paused = true)]
async fn selinux_options_are_not_passed_to_the_runtime() {
    let node = Node::started("");
    let labels = json!({"seLinuxOptions": {"level": "s0:c123,c456", "type": "spc_t"}});
    node.pod("p", &json!({"securityContext": labels, "container": {"securityContext": labels}}));
    node.pod("q", &json!({}));
    node.until_running("p").await;
    node.until_running("q").await;
    let made = ["p", "q"].map(|name| node.runtime.made(name).remove(0).security);
    assert_eq!(made[0], made[1]);
}
