//! The cgroup driver of kubelet and container runtime.

use crate::data_dir::DataDir;
use anyhow::{Context, Result, bail};
use kubelet::KubeletConfiguration;
use runtime::{CgroupDriver, Runtime, RuntimeError};
use std::time::Duration;

const SYSTEMD: &str = "systemd";
const CGROUPFS: &str = "cgroupfs";
/// Number of requests to the runtime, and the delay between them (upstream's `getCgroupDriverFromCRI`).
const TRIES: u32 = 3;
const DELAY: Duration = Duration::from_secs(2);

/// Sets the driver that the runtime reports. A runtime that does not report one has that of the configuration.
///
/// # Errors
/// When the runtime does not answer, or Pods of the engine have another driver.
pub(crate) async fn resolve(dir: &DataDir, runtime: &dyn Runtime, config: &mut KubeletConfiguration) -> Result<()> {
    if let Some(driver) = reported(runtime).await.context("failed to get the cgroup driver of the container runtime")? {
        let name = if driver == CgroupDriver::Systemd { SYSTEMD } else { CGROUPFS };
        if config.cgroup_driver != name {
            tracing::warn!(driver = name, "using the cgroup driver of the container runtime, not cgroupDriver");
        }
        name.clone_into(&mut config.cgroup_driver);
    }
    let (driver, other) = used(config);
    if engine::has_other_cgroup_driver(dir.root(), driver == SYSTEMD) {
        let root = dir.root().display();
        bail!(
            "the Pods of {root} have the cgroup driver {other}, not {driver}: delete them first, completed ones too, with \
             Podium running with cgroupDriver {other}, or remove the cluster with podium down"
        );
    }
    Ok(())
}

/// Returns the driver of new Pods, and the other one. Without `cgroupsPerQOS` containers are in cgroups of `cgroupfs`.
fn used(config: &KubeletConfiguration) -> (&'static str, &'static str) {
    let is_systemd = config.cgroups_per_qos && config.cgroup_driver == SYSTEMD;
    if is_systemd { (SYSTEMD, CGROUPFS) } else { (CGROUPFS, SYSTEMD) }
}

/// Returns the driver that the runtime reports. A runtime may have just started: the query is repeated.
async fn reported(runtime: &dyn Runtime) -> Result<Option<CgroupDriver>, RuntimeError> {
    let mut tries = 1;
    loop {
        match runtime.cgroup_driver().await {
            Err(RuntimeError::Unimplemented(_)) => return Ok(None),
            Err(error) if tries < TRIES => {
                tracing::debug!(%error, "failed to get the cgroup driver of the container runtime, retrying");
                tries += 1;
                tokio::time::sleep(DELAY).await;
            }
            reported => return reported,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_without_qos_cgroups_have_the_driver_cgroupfs() {
        let mut config = KubeletConfiguration::default();
        SYSTEMD.clone_into(&mut config.cgroup_driver);
        assert_eq!(used(&config).0, SYSTEMD);
        config.cgroups_per_qos = false;
        assert_eq!(used(&config).0, CGROUPFS);
    }
}
