//! Lower bound of a Pod's start: the same container, made by the OCI runtime alone.
//!
//! The OCI configuration is that of a Pod of the engine. Only what every implementation must do is timed: a network namespace
//! with a veth pair, the mount of the root file system, and `runc create` and `runc start`, until the first output.

use crate::{
    client::Api,
    podium::{BootOptions, ContainerRuntime, Podium},
    pods::{is_ready, pod, wait},
    report::percentile,
};
use anyhow::{Context, Result, bail};
use http::Method;
use nix::{
    mount::{MntFlags, MsFlags, mount, umount2},
    sched::{CloneFlags, unshare},
    sys::{prctl::set_child_subreaper, wait::waitpid},
    unistd::Pid,
};
use serde_json::{Value, json};
use std::{
    fs::{self, File},
    io::{self, Read, Write},
    os::fd::AsRawFd,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

const ROUNDS: usize = 10;
const NAME: &str = "floor";

/// Measures the lower bound with a Podium of its own.
pub(crate) async fn of_new_podium() -> Result<Duration> {
    let podium = Podium::boot_with(BootOptions::of(ContainerRuntime::Engine))?;
    let api = Api::connect(&podium.kubeconfig(), "floors").await?;
    api.create_namespace().await?;
    measure(&podium, &api).await
}

/// Measures the p50 lower bound of a Pod's start. Podium must have the engine.
pub(crate) async fn measure(podium: &Podium, api: &Api) -> Result<Duration> {
    let mut events = api.watch("pods").await?;
    api.call(Method::POST, &api.path("pods"), Some(&pod(NAME))).await?;
    wait(&mut events, NAME, |e| is_ready(&e["object"])).await?;
    let config: Value = serde_json::from_slice(&fs::read(config_of_pod(podium)?)?)?;
    // The runtime's processes end with the runtime, and would remain as zombies.
    set_child_subreaper(true)?;
    let times = (0..ROUNDS).map(|round| one(podium, &config, round)).collect::<Result<Vec<_>>>();
    set_child_subreaper(false)?;
    api.call(Method::DELETE, &format!("{}/{NAME}", api.path("pods")), None).await?;
    wait(&mut events, NAME, |e| e["type"] == "DELETED").await?;
    Ok(percentile(&mut times?, 0.5))
}

fn only_entry(dir: &Path) -> Result<PathBuf> {
    let mut entries = fs::read_dir(dir)?;
    let entry = entries.next().with_context(|| format!("{} is empty", dir.display()))??;
    if entries.next().is_some() {
        bail!("{} has several entries", dir.display());
    }
    Ok(entry.path())
}

fn config_of_pod(podium: &Podium) -> Result<PathBuf> {
    let sandbox = only_entry(&podium.data_dir().join("engine/pods"))?;
    Ok(only_entry(&sandbox.join("containers"))?.join("config.json"))
}

/// Makes and removes one container, and returns the time to its first output.
fn one(podium: &Podium, config: &Value, round: usize) -> Result<Duration> {
    let dir = tempfile::Builder::new().prefix("podium-bench-floor-").tempdir()?;
    let layer = only_entry(&podium.image_store().join("layers"))?.join("fs");
    for name in ["rootfs", "upper", "work"] {
        fs::create_dir(dir.path().join(name))?;
    }
    let mut config = config.clone();
    config["process"]["args"] = json!(["sh", "-c", "echo ready; sleep 100000"]);
    config["root"]["path"] = json!(dir.path().join("rootfs"));
    config["linux"]["cgroupsPath"] = json!(format!("{}/{NAME}-{round}", podium.group.root()));
    let (mut output, writer) = io::pipe()?;
    let start = Instant::now();
    let network = network_namespace(round)?;
    let rootfs = mount_root(dir.path(), &layer)?;
    for namespace in config["linux"]["namespaces"].as_array_mut().into_iter().flatten() {
        if namespace["type"] == "network" {
            namespace["path"] = json!(format!("/proc/{}/fd/{}", std::process::id(), network.as_raw_fd()));
        }
    }
    fs::write(dir.path().join("config.json"), config.to_string())?;
    let (bundle, pid_file) = (dir.path().display().to_string(), dir.path().join("pid"));
    let mut create = runc(dir.path(), &["create", "--bundle", &bundle, "--pid-file"]);
    succeed(create.arg(&pid_file).arg(NAME).stdout(writer).stderr(Stdio::null()))?;
    // The other end of the pipe is the container's only then.
    drop(create);
    succeed(&mut runc(dir.path(), &["start", NAME]))?;
    output.read_exact(&mut [0])?;
    let time = start.elapsed();
    let process = Pid::from_raw(fs::read_to_string(&pid_file)?.trim().parse()?);
    nix::sys::signal::kill(process, nix::sys::signal::Signal::SIGKILL)?;
    waitpid(process, None)?;
    succeed(&mut runc(dir.path(), &["delete", "--force", NAME]))?;
    umount2(&rootfs, MntFlags::MNT_DETACH)?;
    Ok(time)
}

fn runc(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new("runc");
    command.arg("--root").arg(dir.join("state")).args(args).stdin(Stdio::null());
    command
}

fn succeed(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("{command:?}"))?;
    if status.success() { Ok(()) } else { bail!("{command:?}: {status}") }
}

fn mount_root(dir: &Path, layer: &Path) -> Result<PathBuf> {
    let rootfs = dir.join("rootfs");
    let [layer, upper, work] = [layer, &dir.join("upper"), &dir.join("work")].map(|dir| dir.display().to_string());
    let options = format!("lowerdir={layer},upperdir={upper},workdir={work},volatile");
    mount(Some("overlay"), &rootfs, Some("overlay"), MsFlags::empty(), Some(options.as_str()))?;
    Ok(rootfs)
}

/// Creates a network namespace with a veth pair. One end stays on the machine until the namespace ends.
fn network_namespace(round: usize) -> Result<File> {
    let create = move || -> Result<File> {
        unshare(CloneFlags::CLONE_NEWNET)?;
        let namespace = File::open("/proc/thread-self/ns/net")?;
        let host = format!("/proc/{}/ns/net", std::process::id());
        let commands = format!(
            "link add eth0 type veth peer name vethfloor{round} netns {host}\nlink set lo up\nlink set eth0 up\n\
             addr add 169.254.77.2/30 dev eth0\n"
        );
        // The program is in the namespace of this thread.
        let mut ip = Command::new("ip").args(["-batch", "-"]).stdin(Stdio::piped()).spawn().context("ip")?;
        ip.stdin.take().context("stdin is piped")?.write_all(commands.as_bytes())?;
        let status = ip.wait()?;
        if status.success() { Ok(namespace) } else { bail!("ip -batch: {status}") }
    };
    std::thread::spawn(create).join().map_err(|_| anyhow::anyhow!("the thread panicked"))?
}
