//! Compares container runtimes: `cargo xtask bench pods --runtime engine,containerd [--rounds N] [--no-probes]`.
//!
//! All of them are measured in turns, in one run on one machine, because the speed of machines changes by half between hours.

use crate::{
    client::Api,
    exec,
    machine_group::proportional_set_size,
    oci_floor,
    podium::{BootOptions, ContainerRuntime, Podium},
    pods::{self, is_ready, pod, wait},
    probes, run_command,
};
use anyhow::{Context, Result, bail};
use http::Method;
use std::{collections::BTreeMap, time::Duration};

/// Time for the work of a start, before the idle memory is measured. Its threads end after 10 s, and return their memory.
const SETTLE: Duration = Duration::from_secs(30);
const POD: &str = "compared";

/// Unit of a value.
#[derive(Debug, Clone, Copy)]
enum Unit {
    Milliseconds,
    Seconds,
    Megabytes,
    PerSecond,
}

impl Unit {
    fn format(self, value: f64) -> String {
        match self {
            Self::Milliseconds => format!("{value:.1} ms"),
            Self::Seconds => format!("{value:.2} s"),
            Self::Megabytes => format!("{value:.2} MB"),
            Self::PerSecond => format!("{value:.0} per s"),
        }
    }
}

/// Rows: the work, the engine's goal in relation to containerd or absolute, and the unit.
const ROWS: [(&str, &str, Unit); 11] = [
    ("the container by `runc` alone, create to first output, p50", "the floor", Unit::Milliseconds),
    ("one Pod, POST to Ready in a watch, p50", "a third; twice the floor", Unit::Milliseconds),
    ("one Pod, DELETE to gone (exits on SIGTERM), p50", "a third", Unit::Milliseconds),
    ("30 Pods at once, last one Ready", "a third", Unit::Seconds),
    ("CPU of a Pod, started and stopped", "a quarter", Unit::Milliseconds),
    ("memory of an idle Pod's helper processes", "0.5 to 1.5 MB", Unit::Megabytes),
    ("memory of Podium and all that it started, without Pods", "50 MB", Unit::Megabytes),
    ("exec of `true` through the API, p50", "a quarter", Unit::Milliseconds),
    ("100 Pods with an exec probe each second: probes", "100 per s", Unit::PerSecond),
    ("100 Pods with an exec probe each second: CPU of a probe", "a quarter", Unit::Milliseconds),
    ("`podium run`, start to the exit of `true`, p50", "150 ms", Unit::Milliseconds),
];

/// Values by row.
type Values = BTreeMap<usize, Vec<f64>>;

pub(crate) async fn run(args: &[String]) -> Result<()> {
    let (mut runtimes, mut rounds, mut has_probes) = (vec![ContainerRuntime::Engine], 3, true);
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut value = || args.next().with_context(|| format!("{arg} needs a value"));
        match arg.as_str() {
            "--runtime" => runtimes = value()?.split(',').map(ContainerRuntime::parse).collect::<Result<_>>()?,
            "--rounds" => rounds = value()?.parse()?,
            "--no-probes" => has_probes = false,
            _ => bail!("pods takes --runtime NAMES, --rounds N and --no-probes, not {arg:?}"),
        }
    }
    let mut all: Vec<Values> = vec![Values::new(); runtimes.len()];
    for round in 1..=rounds {
        for (runtime, values) in runtimes.iter().zip(&mut all) {
            eprintln!("round {round} of {rounds}: {}", runtime.name());
            measure(*runtime, has_probes, values).await?;
        }
    }
    println!("{}", table(&runtimes, &mut all));
    Ok(())
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

async fn measure(runtime: ContainerRuntime, has_probes: bool, values: &mut Values) -> Result<()> {
    let podium = Podium::boot_with(BootOptions::of(runtime))?;
    let mut add = |row: usize, value: f64| {
        if let Some((work, _, unit)) = ROWS.get(row) {
            eprintln!("{}: {work}: {}", runtime.name(), unit.format(value));
        }
        values.entry(row).or_default().push(value);
    };
    tokio::time::sleep(SETTLE).await;
    add(6, megabytes(proportional_set_size(&podium.group.own_processes())));
    let api = Api::connect(&podium.kubeconfig(), "bench").await?;
    api.create_namespace().await?;
    let mut events = api.watch("pods").await?;
    api.call(Method::POST, &api.path("pods"), Some(&pod(POD))).await?;
    wait(&mut events, POD, |event| is_ready(&event["object"])).await?;
    add(7, milliseconds(exec::latency(&api, POD).await?));
    api.call(Method::DELETE, &format!("{}/{POD}", api.path("pods")), None).await?;
    wait(&mut events, POD, |event| event["type"] == "DELETED").await?;
    let single = pods::one_by_one(&podium, &api).await?;
    add(1, milliseconds(single.start));
    add(2, milliseconds(single.stop));
    add(4, milliseconds(single.cpu));
    if runtime == ContainerRuntime::Engine {
        add(0, milliseconds(oci_floor::measure(&podium, &api).await?));
    }
    let burst = pods::burst(&podium, &api).await?;
    add(3, burst.last.as_secs_f64());
    add(5, megabytes(burst.memory));
    add(10, milliseconds(run_command::latency(&podium)?));
    if has_probes {
        let probes = probes::exec(&podium, &api).await?;
        add(8, probes.rate);
        add(9, milliseconds(probes.cpu()));
    }
    Ok(())
}

/// Formats the medians, the ranges, and the ratio of the first two runtimes.
fn table(runtimes: &[ContainerRuntime], all: &mut [Values]) -> String {
    let names: Vec<&str> = runtimes.iter().map(|runtime| runtime.name()).collect();
    let mut text = format!(
        "| work | goal | {} | ratio |\n| --- | --- |{} --- |\n",
        names.join(" | "),
        " --- |".repeat(names.len())
    );
    for (row, (work, goal, unit)) in ROWS.iter().enumerate() {
        let medians: Vec<Option<f64>> = all.iter_mut().map(|values| values.get_mut(&row).map(|v| median(v))).collect();
        if medians.iter().all(Option::is_none) {
            continue;
        }
        let cells = all.iter().map(|values| values.get(&row).map_or(String::new(), |values| cell(*unit, values)));
        let ratio = match medians.as_slice() {
            [Some(first), Some(second), ..] if *second > 0.0 => format!("{:.2}", first / second),
            _ => String::new(),
        };
        text += &format!("| {work} | {goal} | {} | {ratio} |\n", cells.collect::<Vec<_>>().join(" | "));
    }
    text
}

/// Sorts values, and returns the middle one.
fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

/// Formats sorted values: the median, and the range of several.
fn cell(unit: Unit, sorted: &[f64]) -> String {
    let median = unit.format(sorted.get(sorted.len() / 2).copied().unwrap_or_default());
    match sorted {
        [first, .., last] => format!("{median} ({} to {})", unit.format(*first), unit.format(*last)),
        _ => median,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_has_medians_ranges_and_ratios() {
        let mut all = [Values::from([(0, vec![20.0]), (1, vec![50.0, 40.0, 90.0])]), Values::from([(1, vec![100.0])])];
        let text = table(&[ContainerRuntime::Engine, ContainerRuntime::Containerd], &mut all);
        let lines: Vec<&str> = text.lines().skip(2).collect();
        assert_eq!(lines.len(), 2, "{text}");
        assert!(lines[0].ends_with("| the floor | 20.0 ms |  |  |"), "{text}");
        assert!(lines[1].ends_with("| 50.0 ms (40.0 ms to 90.0 ms) | 100.0 ms | 0.50 |"), "{text}");
    }
}
