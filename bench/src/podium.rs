//! The measured Podium: a release build with a temporary data directory.

use crate::machine_group::MachineGroup;
use anyhow::{Context, Result, bail};
use serde_json::json;
use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};
use test_containerd::Containerd;

/// Maximum number of Pods, the default of the kubelet.
const MAX_PODS: usize = 110;

/// What runs the containers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ContainerRuntime {
    /// A containerd at `--runtime-endpoint`.
    Containerd,
    /// Podium's engine.
    Engine,
}

impl ContainerRuntime {
    /// Parses the value of `--runtime`.
    pub(crate) fn parse(name: &str) -> Result<Self> {
        match name {
            "containerd" => Ok(Self::Containerd),
            "engine" => Ok(Self::Engine),
            _ => bail!("unknown runtime {name:?}: containerd or engine"),
        }
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Containerd => "containerd",
            Self::Engine => "engine",
        }
    }
}

/// Options of a measured Podium.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BootOptions<'a> {
    pub(crate) runtime: ContainerRuntime,
    pub(crate) max_pods: usize,
    /// Further arguments.
    pub(crate) args: &'a [&'a str],
}

impl BootOptions<'_> {
    pub(crate) const fn of(runtime: ContainerRuntime) -> Self {
        Self { runtime, max_pods: MAX_PODS, args: &[] }
    }
}

/// A running `podium up`.
pub(crate) struct Podium {
    child: Child,
    /// The external runtime, which ends before its group is removed.
    containerd: Option<Containerd>,
    /// Everything that Podium starts, and the external runtime.
    pub(crate) group: MachineGroup,
    dir: tempfile::TempDir,
    args: Vec<String>,
    /// Time from the start of the process to the kubeconfig, which is written when the API serves.
    pub(crate) api_ready: Duration,
    /// Time from the start of the process to a Ready node.
    pub(crate) node_ready: Duration,
}

impl Podium {
    /// Starts Podium and waits for its node.
    pub(crate) fn boot() -> Result<Self> {
        Self::boot_with(BootOptions::of(ContainerRuntime::Engine))
    }

    /// Starts Podium with options.
    pub(crate) fn boot_with(options: BootOptions<'_>) -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("podium-bench-").tempdir()?;
        let group = MachineGroup::create()?;
        let config = dir.path().join("kubelet.json");
        let kubelet = json!({"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
                             "maxPods": options.max_pods, "cgroupRoot": group.root()});
        std::fs::write(&config, kubelet.to_string())?;
        let containerd = match options.runtime {
            ContainerRuntime::Containerd => Some(Containerd::start()?),
            ContainerRuntime::Engine => None,
        };
        if let Some(containerd) = &containerd {
            group.add(containerd.id())?;
        }
        let mut args = runtime_args(containerd.as_ref(), dir.path());
        args.extend(["--kubelet-config".to_owned(), config.display().to_string()]);
        args.extend(options.args.iter().map(|arg| (*arg).to_owned()));
        let (child, api_ready, node_ready) = start(&group, dir.path(), &args)?;
        let podium = Self { child, containerd, group, dir, args, api_ready, node_ready };
        podium.import_busybox()?;
        Ok(podium)
    }

    /// Kills Podium, starts it on the same data, and returns the time until the API serves.
    pub(crate) fn restart(&mut self) -> Result<Duration> {
        self.child.kill()?;
        self.child.wait()?;
        (self.child, self.api_ready, self.node_ready) = start(&self.group, self.dir.path(), &self.args)?;
        Ok(self.api_ready)
    }

    fn import_busybox(&self) -> Result<()> {
        let tar = self.dir.path().join("busybox.tar");
        test_images::busybox(&tar, &[test_images::BUSYBOX], &test_images::ImageConfig::default())?;
        let status = Command::new(binary()?)
            .args(["image", "import"])
            .arg(&tar)
            .env("PODIUM_DATA_DIR", self.data_dir())
            .env("PODIUM_IMAGE_STORE", self.image_store())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()?;
        if !status.success() {
            bail!("podium image import: {status}");
        }
        Ok(())
    }

    /// Returns the image store of the engine, which has only this image.
    pub(crate) fn image_store(&self) -> PathBuf {
        image_store(self.dir.path())
    }

    /// Returns the external runtime.
    pub(crate) const fn containerd(&self) -> Option<&Containerd> {
        self.containerd.as_ref()
    }

    /// Returns the arguments of another `podium` that uses the same runtime and images.
    pub(crate) fn runtime_args(&self) -> Vec<String> {
        runtime_args(self.containerd.as_ref(), self.dir.path())
    }

    /// Returns the path of the admin kubeconfig.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.dir.path().join("data/admin.kubeconfig")
    }

    /// Returns the process ID.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the data directory.
    pub(crate) fn data_dir(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// Returns the resident memory in bytes.
    pub(crate) fn resident(&self) -> Result<u64> {
        self.memory("VmRSS:")
    }

    /// Returns the peak resident memory since [`Podium::reset_peak`], in bytes.
    pub(crate) fn peak(&self) -> Result<u64> {
        self.memory("VmHWM:")
    }

    /// Resets the peak resident memory (`clear_refs` of proc(5)).
    pub(crate) fn reset_peak(&self) -> Result<()> {
        Ok(std::fs::write(format!("/proc/{}/clear_refs", self.child.id()), "5")?)
    }

    fn memory(&self, field: &str) -> Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|l| l.strip_prefix(field)).context("no such field")?;
        Ok(line.split_whitespace().next().context("no size")?.parse::<u64>()? * 1024)
    }

    /// Returns the CPU time used so far.
    pub(crate) fn cpu(&self) -> Result<Duration> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        let fields: Vec<&str> = stat.rsplit_once(')').context("no comm")?.1.split_whitespace().collect();
        let ticks = |i: usize| -> Result<u64> { Ok(fields.get(i).context("short stat")?.parse()?) };
        // Fields 14 and 15 of proc(5), counted from the state, which is field 3; a tick is 10 ms.
        Ok(Duration::from_millis((ticks(11)? + ticks(12)?) * 10))
    }
}

impl Drop for Podium {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Ok(binary) = binary() {
            let _ = Command::new(binary)
                .args(["down", "--data-dir"])
                .arg(self.dir.path().join("data"))
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status();
        }
    }
}

fn image_store(dir: &Path) -> PathBuf {
    dir.join("images")
}

fn runtime_args(containerd: Option<&Containerd>, dir: &Path) -> Vec<String> {
    match containerd {
        Some(containerd) => vec!["--runtime-endpoint".to_owned(), containerd.endpoint()],
        None => vec!["--image-store".to_owned(), image_store(dir).display().to_string()],
    }
}

/// Starts Podium on a directory, and returns the times until the API serves and the node is Ready.
fn start(group: &MachineGroup, dir: &Path, args: &[String]) -> Result<(Child, Duration, Duration)> {
    let start = Instant::now();
    let mut command = group.command(&binary()?);
    command.args(["up", "--bind", "127.0.0.1:0", "--data-dir"]).arg(dir.join("data"));
    command.args(args);
    let mut child =
        command.stdout(Stdio::piped()).stderr(std::fs::File::create(dir.join("log"))?).spawn().context("podium")?;
    let stdout = child.stdout.take().context("stdout is piped")?;
    let (mut api_ready, mut node_ready) = (None, None);
    let mut lines = BufReader::new(stdout).lines();
    while node_ready.is_none() {
        let Some(line) = lines.next() else {
            bail!("podium ended: {}", std::fs::read_to_string(dir.join("log"))?);
        };
        let line = line?;
        if line.contains("API") {
            api_ready = Some(start.elapsed());
        }
        if line.contains("is Ready") {
            node_ready = Some(start.elapsed());
        }
    }
    // Further output must be read, or the pipe fills.
    std::thread::spawn(move || lines.for_each(drop));
    Ok((child, api_ready.unwrap_or_default(), node_ready.unwrap_or_default()))
}

/// Returns the program, which is beside this one.
pub(crate) fn binary() -> Result<PathBuf> {
    let binary = std::env::current_exe()?.with_file_name("podium");
    if binary.is_file() { Ok(binary) } else { bail!("{} is not built", binary.display()) }
}
