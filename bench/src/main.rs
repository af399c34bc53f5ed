//! Measures Podium as a client on the same machine, and prints the table of docs/performance.md.
//!
//! `cargo xtask bench [NAME...]` builds everything for release and runs this; `cargo xtask bench leak` measures leaks.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command-line program talks to people")]

mod api_load;
mod baselines;
mod client;
mod compare;
mod exec;
mod idle_pods;
mod latency;
mod leak;
mod machine_group;
mod oci_floor;
mod podium;
mod pods;
mod probes;
mod report;
mod run_command;
mod scale;

use anyhow::Result;
use client::Api;
use nix::sys::signal::Signal;
use podium::Podium;
use report::{Row, ms, percentile, table};
use std::time::Duration;

/// Duration of the idle measurement.
const IDLE: Duration = Duration::from_secs(30);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let names: Vec<String> = std::env::args().skip(1).collect();
    if let Some((_, args)) = names.split_first().filter(|(name, _)| *name == "leak") {
        return leak::run(args).await;
    }
    if let Some((_, args)) = names.split_first().filter(|(name, args)| *name == "pods" && !args.is_empty()) {
        return compare::run(args).await;
    }
    let is_selected = |name: &str| names.is_empty() || names.iter().any(|n| n == name);
    let mut rows = Vec::new();
    if is_selected("boot") {
        rows.push(row("boot", "start to API ready / node Ready", "2.2 s / 3.1 s", "0.15 s / 0.8 s", boot()?));
    }
    let mut podium = Podium::boot()?;
    if is_selected("idle") {
        let (memory, cpu) = idle(&podium).await?;
        rows.push(row("idle", "resident memory, idle", "573 MB", "60 MB", memory));
        rows.push(row("idle", "CPU, idle", "3.1 % of a core", "0.3 %", cpu));
    }
    let api = Api::connect(&podium.kubeconfig(), "bench").await?;
    api.create_namespace().await?;
    if is_selected("create") {
        rows.push(row(
            "create",
            "ConfigMap (1 KiB) create, one client, p50",
            "1.3 ms",
            "0.4 ms",
            api_load::one_client(&api).await?,
        ));
    }
    if is_selected("floors") {
        rows.push(row("floors", "a record appended to a file and synced, p50", "", "", baselines::sync()?));
        rows.push(row(
            "floors",
            "a request that reads and writes nothing, p50",
            "",
            "",
            baselines::round_trip(&api).await?,
        ));
        let work = "one thread, 300 records to 200 TLS connections: p50 / p99 delivery; its CPU";
        rows.push(row("floors", work, "", "", baselines::fan_out().await?));
        let work = "a Pod's container by runc alone, with network namespace and veth, create to first output, p50";
        rows.push(row("floors", work, "", "", ms(oci_floor::of_new_podium().await?)));
    }
    if is_selected("crud") {
        let goal = "10,000 / 20,000 / 10,000 per s";
        rows.push(row(
            "crud",
            "create / get / update, 32 clients",
            "2,300 / 5,100 / 1,800 per s",
            goal,
            api_load::crud(&api).await?,
        ));
    }
    if is_selected("list") {
        rows.push(row(
            "list",
            "LIST 3,000 Pods / pages of 500",
            "129 / 165 ms",
            "15 / 20 ms",
            api_load::list(&api).await?,
        ));
    }
    if is_selected("watch") {
        let work = "200 watchers, 300 updates: p50 / p99 delivery; server CPU";
        rows.push(row("watch", work, "4.5 / 9.1 ms; 1.3 s", "1 / 3 ms; 0.3 s", api_load::watch(&podium, &api).await?));
    }
    if is_selected("apply") {
        let work = "server-side applies of a Pod with 50 containers, for each second of the server's CPU";
        rows.push(row("apply", work, "", "1,000", scale::applies(&podium, &api).await?));
    }
    if is_selected("watchers") {
        let work = "5,000 watchers, 100 updates per second: server CPU";
        rows.push(row("watchers", work, "", "1 core", scale::watchers(&podium, &api).await?));
    }
    if is_selected("pods") {
        let pods::SinglePods { start, stop, cpu } = pods::one_by_one(&podium, &api).await?;
        rows.push(row("pods", "one Pod, POST to Ready observed by a watch, p50", "1.00 s", "0.45 s", ms(start)));
        rows.push(row("pods", "one Pod, DELETE to gone (exits on SIGTERM), p50", "1.71 s", "0.30 s", ms(stop)));
        rows.push(row("pods", "CPU of one Pod, started and stopped, with the runtime", "", "", ms(cpu)));
        let pods::Burst { last, half, memory } = pods::burst(&podium, &api).await?;
        let burst = format!("{:.2} s (half of them after {:.2} s)", last.as_secs_f64(), half.as_secs_f64());
        rows.push(row("pods", "30 Pods at once, last one Ready", "3.5 s", "2.0 s", burst));
        rows.push(row("pods", "memory of an idle Pod's helper processes", "", "", format!("{} kB", memory / 1000)));
    }
    if is_selected("reactions") {
        let exit = latency::exit_to_status(&podium, &api, Signal::SIGTERM).await?;
        let killed = latency::exit_to_status(&podium, &api, Signal::SIGKILL).await?;
        let ready = latency::success_to_ready(&api).await?;
        let kill = latency::failure_to_kill(&podium, &api).await?;
        let work = "a container's exit to the status seen by a watch, p50";
        rows.push(row("reactions", work, "up to 1 s", "20 ms", exit));
        let work = "the same after SIGKILL, whose reason the runtime reports, p50";
        rows.push(row("reactions", work, "up to 1 s", "", killed));
        rows.push(row("reactions", "readiness success to Ready seen by a watch, p50", "up to 1 s", "10 ms", ready));
        let work = "liveness failure to the end of a container that exits on SIGTERM, p50";
        rows.push(row("reactions", work, "up to 1 s", "10 ms", kill));
    }
    if is_selected("probes") {
        let work = "100 Pods with an exec probe each second";
        rows.push(row("probes", work, "", "", probes::exec(&podium, &api).await?.to_string()));
    }
    if is_selected("long-list") {
        let work = "LIST of 30,000 Pods; memory on top";
        rows.push(row("long-list", work, "", "150 ms; 100 MB", scale::long_list(&podium, &api).await?));
    }
    if is_selected("idle-pods") {
        let work = "memory of a Pod of 2.3 KB of JSON that no node runs";
        rows.push(row("idle-pods", work, "58 KB", "10 KB", idle_pods::run().await?));
    }
    if is_selected("objects") {
        let (memory, load) = scale::objects(&mut podium).await?;
        rows.push(row("objects", "memory of a stored object of 2 KiB", "", "3 KiB", memory));
        rows.push(row("objects", "start to API ready with 100,000 objects", "", "1 s", load));
    }
    println!("{}", table(&rows));
    Ok(())
}

fn row(name: &'static str, work: &'static str, upstream: &'static str, goal: &'static str, measured: String) -> Row {
    eprintln!("{name}: {work}: {measured}");
    Row { work, upstream, goal, measured }
}

fn boot() -> Result<String> {
    let (mut api, mut node) = (Vec::new(), Vec::new());
    for _ in 0..5 {
        let podium = Podium::boot()?;
        api.push(podium.api_ready);
        node.push(podium.node_ready);
    }
    Ok(format!("{} / {}", ms(percentile(&mut api, 0.5)), ms(percentile(&mut node, 0.5))))
}

async fn idle(podium: &Podium) -> Result<(String, String)> {
    // The work of the start must be over first.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let before = podium.cpu()?;
    tokio::time::sleep(IDLE).await;
    let share = (podium.cpu()? - before).as_secs_f64() / IDLE.as_secs_f64() * 100.0;
    #[expect(clippy::cast_precision_loss, reason = "megabytes for people")]
    let memory = podium.resident()? as f64 / 1e6;
    Ok((format!("{memory:.0} MB"), format!("{share:.2} %")))
}
