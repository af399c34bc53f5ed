//! `--kubelet-config`: what the administrator has set for the node.

use crate::cli::NodeArgs;
use anyhow::{Context, Result};
use api::feature_gates::FeatureGates;
use kubelet::{CredentialProviders, KubeletConfiguration};
use lifecycle::NodePolicy;
use std::path::Path;

/// Reads the file; without one there are upstream's defaults. What has no effect in Podium is named in the log.
pub(crate) fn load(file: Option<&Path>) -> Result<KubeletConfiguration> {
    let Some(file) = file else { return Ok(KubeletConfiguration::default()) };
    let what = || format!("--kubelet-config {}", file.display());
    let text = std::fs::read_to_string(file).with_context(what)?;
    let config = KubeletConfiguration::parse(&text).with_context(what)?;
    for field in config.unused() {
        tracing::warn!(field, file = %file.display(), "this field of the KubeletConfiguration has no effect in Podium yet");
    }
    Ok(config)
}

/// What follows for Pods. Gates of the command line win over those of the file, as upstream has it.
pub(crate) fn policy(config: &KubeletConfiguration, flags: &FeatureGates) -> Result<NodePolicy> {
    let gates = config.gates()?.overridden_by(flags);
    gates.check_dependencies()?;
    for warning in gates.warnings() {
        tracing::warn!("{warning}");
    }
    let max = config.max_restart_period(&gates)?;
    config.shutdown_policy(&gates)?;
    Ok(NodePolicy::default().with_crash_loop_backoff(gates, max))
}

/// `--image-credential-provider-config` and `--image-credential-provider-bin-dir`.
pub(crate) fn credential_providers(args: &NodeArgs) -> Result<CredentialProviders> {
    match (&args.image_credential_provider_config, &args.image_credential_provider_bin_dir) {
        (Some(config), Some(bin_dir)) => {
            CredentialProviders::load(config, bin_dir).context("--image-credential-provider-config")
        }
        _ => Ok(CredentialProviders::default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_files_back_off_and_gates_count_and_flags_win() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kubelet.yaml");
        let text = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\ncrashLoopBackOff: {maxContainerRestartPeriod: 2s}\nfeatureGates: {ReduceDefaultCrashLoopBackOffDecay: true}\n";
        std::fs::write(&path, text).unwrap();
        let config = load(Some(&path)).unwrap();
        let backoff = |flags: &str| {
            let policy = policy(&config, &FeatureGates::parse(flags).unwrap()).unwrap();
            (policy.container_backoff.initial, policy.container_backoff.max)
        };
        let seconds = Duration::from_secs;
        assert_eq!(backoff(""), (seconds(1), seconds(2)));
        assert_eq!(backoff("ReduceDefaultCrashLoopBackOffDecay=false"), (seconds(2), seconds(2)));
        let off = policy(&config, &FeatureGates::parse("KubeletCrashLoopBackOffMax=false").unwrap());
        assert!(off.unwrap_err().to_string().contains("must not be set"));
    }

    #[test]
    fn a_file_with_a_mistake_is_named_with_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kubelet.yaml");
        std::fs::write(&path, "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPod: 1\n")
            .unwrap();
        let error = format!("{:#}", load(Some(&path)).unwrap_err());
        assert!(error.contains("kubelet.yaml") && error.contains("unknown fields: maxPod"), "{error}");
    }
}
