//! The `explain` subcommand: the explanation of a Pod's state by the kubelet's state machine.

use crate::{cli::ExplainArgs, data_dir::DataDir, print::print_line};
use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api, Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use lifecycle::Explanation;

pub(crate) async fn run(args: ExplainArgs) -> Result<()> {
    let path = match args.kubeconfig {
        Some(path) => path,
        None => DataDir::new(&args.data_dir.data_dir)?.kubeconfig(),
    };
    let kubeconfig =
        Kubeconfig::read_from(&path).with_context(|| format!("is Podium up? failed to read {}", path.display()))?;
    let client = Client::try_from(Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?)?;
    let name = match args.pod.split_once('/') {
        None => args.pod.as_str(),
        Some(("pod" | "pods" | "po", name)) => name,
        Some((kind, _)) => bail!("only Pods can be explained, not {kind:?}: use pod/NAME"),
    };
    // The name becomes a part of the request path.
    if let Some(error) = api::names::dns1123_subdomain(name).first() {
        bail!("invalid Pod name {name:?}: {error}");
    }
    let pod = Api::<Pod>::namespaced(client.clone(), &args.namespace).get(name).await?;
    let Some(node) = api::pod::node_name(&pod) else {
        print_unscheduled(name, &pod);
        return Ok(());
    };
    if Api::<Node>::all(client.clone()).get_opt(node).await?.is_none() {
        print_missing_node(name, &pod, node);
        return Ok(());
    }
    let request = |endpoint| {
        let path = format!("/api/v1/nodes/{node}/proxy/{endpoint}/{}/{name}", args.namespace);
        http::Request::get(path).body(Vec::new())
    };
    if args.history {
        print_line!("{}", client.request_text(request("history")?).await?.trim_end());
        return Ok(());
    }
    let explanation: Explanation = client.request(request("explain")?).await?;
    print_line!("pod/{name} is {}", explanation.state);
    explanation.because.iter().for_each(|line| print_line!("  because {line}"));
    explanation.next.iter().for_each(|line| print_line!("  next: {line}"));
    if let Some(until) = explanation.until {
        print_line!("  next check at {until}");
    }
    Ok(())
}

fn print_unscheduled(name: &str, pod: &Pod) {
    let conditions = pod.status.iter().flat_map(|s| s.conditions.iter().flatten());
    let Some(condition) = conditions.into_iter().find(|c| c.type_ == "PodScheduled") else {
        let scheduler = pod.spec.as_ref().and_then(|s| s.scheduler_name.as_deref()).unwrap_or_default();
        print_line!("pod/{name} is {}, not scheduled", api::pod::phase(pod));
        print_line!("  because no scheduler has processed it yet; its schedulerName is {scheduler:?}");
        return;
    };
    print_line!("pod/{name} is {}, not scheduled", api::pod::phase(pod));
    print_line!(
        "  because {}: {}",
        condition.reason.as_deref().unwrap_or(""),
        condition.message.as_deref().unwrap_or("")
    );
}

/// Prints the state of a Pod whose node has no Node object.
fn print_missing_node(name: &str, pod: &Pod, node: &str) {
    print_line!("pod/{name} is {}, assigned to node {node:?}, which does not exist", api::pod::phase(pod));
    print_line!("  next: the Pod garbage collector deletes it, unless the node registers");
}
