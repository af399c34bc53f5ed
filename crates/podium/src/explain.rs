//! `podium explain`: what the node's state machine knows about a Pod.

use crate::{cli::ExplainArgs, data_dir::DataDir, print::say};
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
        Kubeconfig::read_from(&path).with_context(|| format!("is Podium up? cannot read {}", path.display()))?;
    let client = Client::try_from(Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?)?;
    let name = match args.pod.split_once('/') {
        None => args.pod.as_str(),
        Some(("pod" | "pods" | "po", name)) => name,
        Some((kind, _)) => bail!("only Pods can be explained, and {kind:?} is none: say pod/NAME"),
    };
    // It becomes a part of a path.
    if let Some(why) = api::names::dns1123_subdomain(name).first() {
        bail!("{name:?} is no name of a Pod: {why}");
    }
    let pod = Api::<Pod>::namespaced(client.clone(), &args.namespace).get(name).await?;
    let Some(node) = api::pod::node_name(&pod) else {
        unscheduled(name, &pod);
        return Ok(());
    };
    if Api::<Node>::all(client.clone()).get_opt(node).await?.is_none() {
        without_node(name, &pod, node);
        return Ok(());
    }
    let ask = |what| {
        let path = format!("/api/v1/nodes/{node}/proxy/{what}/{}/{name}", args.namespace);
        http::Request::get(path).body(Vec::new())
    };
    if args.history {
        say!("{}", client.request_text(ask("history")?).await?.trim_end());
        return Ok(());
    }
    let explanation: Explanation = client.request(ask("explain")?).await?;
    say!("pod/{name} is {}", explanation.state);
    explanation.because.iter().for_each(|line| say!("  because {line}"));
    explanation.next.iter().for_each(|line| say!("  next: {line}"));
    if let Some(until) = explanation.until {
        say!("  looks again at {until}");
    }
    Ok(())
}

fn unscheduled(name: &str, pod: &Pod) {
    let conditions = pod.status.iter().flat_map(|s| s.conditions.iter().flatten());
    let Some(condition) = conditions.into_iter().find(|c| c.type_ == "PodScheduled") else {
        let scheduler = pod.spec.as_ref().and_then(|s| s.scheduler_name.as_deref()).unwrap_or_default();
        say!("pod/{name} is {}, not scheduled", api::pod::phase(pod));
        say!("  because no scheduler has looked at it yet; it asks for the one called {scheduler:?}");
        return;
    };
    say!("pod/{name} is {}, not scheduled", api::pod::phase(pod));
    say!("  because {}: {}", condition.reason.as_deref().unwrap_or(""), condition.message.as_deref().unwrap_or(""));
}

/// What is assigned to a node that nobody has registered.
fn without_node(name: &str, pod: &Pod, node: &str) {
    say!("pod/{name} is {}, assigned to node {node:?}, which is not there", api::pod::phase(pod));
    say!("  next: it is deleted by the Pod garbage collector, unless the node comes");
}
