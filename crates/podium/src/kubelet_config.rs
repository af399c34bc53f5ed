//! Loading of `--kubelet-config` and the credential provider flags.

use crate::cli::NodeArgs;
use anyhow::{Context, Result};
use api::feature_gates::FeatureGates;
use kubelet::{CredentialProviders, KubeletConfiguration};
use lifecycle::NodePolicy;
use std::path::Path;

/// Loads the KubeletConfiguration; without a file, upstream's defaults. Fields without effect in Podium are logged.
pub(crate) fn load(file: Option<&Path>) -> Result<KubeletConfiguration> {
    let Some(file) = file else { return Ok(KubeletConfiguration::default()) };
    let context = || format!("--kubelet-config {}", file.display());
    let text = std::fs::read_to_string(file).with_context(context)?;
    let config = KubeletConfiguration::parse(&text).with_context(context)?;
    for field in config.unused() {
        tracing::warn!(field, file = %file.display(), "the KubeletConfiguration field has no effect in Podium");
    }
    Ok(config)
}

/// Returns the node policy of the configuration. As upstream, feature gates of the command line override those of the file.
pub(crate) fn node_policy(config: &KubeletConfiguration, flags: &FeatureGates) -> Result<NodePolicy> {
    let gates = config.gates()?.overridden_by(flags);
    gates.check_dependencies()?;
    for warning in gates.warnings() {
        tracing::warn!("{warning}");
    }
    let max = config.max_restart_period(&gates)?;
    config.shutdown_policy(&gates)?;
    Ok(NodePolicy::default().with_crash_loop_backoff(gates, max))
}

/// Loads the plugins of `--image-credential-provider-config` and `--image-credential-provider-bin-dir`.
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
    fn feature_gate_flags_override_the_kubelet_config() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kubelet.yaml");
        let text = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\ncrashLoopBackOff: {maxContainerRestartPeriod: 2s}\nfeatureGates: {ReduceDefaultCrashLoopBackOffDecay: true}\n";
        std::fs::write(&path, text).unwrap();
        let config = load(Some(&path)).unwrap();
        let backoff = |flags: &str| {
            let policy = node_policy(&config, &FeatureGates::parse(flags).unwrap()).unwrap();
            (policy.container_backoff.initial, policy.container_backoff.max)
        };
        let seconds = Duration::from_secs;
        assert_eq!(backoff(""), (seconds(1), seconds(2)));
        assert_eq!(backoff("ReduceDefaultCrashLoopBackOffDecay=false"), (seconds(2), seconds(2)));
        let off = node_policy(&config, &FeatureGates::parse("KubeletCrashLoopBackOffMax=false").unwrap());
        assert!(off.unwrap_err().to_string().contains("must not be set"));
    }

    #[test]
    fn kubelet_config_errors_name_file_and_unknown_field() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kubelet.yaml");
        std::fs::write(&path, "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPod: 1\n")
            .unwrap();
        let error = format!("{:#}", load(Some(&path)).unwrap_err());
        assert!(error.contains("kubelet.yaml") && error.contains("unknown fields: maxPod"), "{error}");
    }
}
