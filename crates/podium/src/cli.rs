//! Command-line arguments.

use crate::{load_balancer_pool::LoadBalancerCidr, logging::LogFormat};
use anyhow::{Result, anyhow, bail, ensure};
use api::feature_gates::FeatureGates;
use auth::tokens::TokenLifetime;
use clap::{ArgAction, Args, Parser, Subcommand};
use server::AdmissionPlugin;
use std::{
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    time::Duration,
};

/// Default of `--data-dir`.
pub(crate) const DEFAULT_DATA_DIR: &str = "/var/lib/podium";
/// Default image store of the machine.
pub(crate) const DEFAULT_IMAGE_STORE: &str = "/var/lib/podium-images";

/// Runs Kubernetes Pods: one binary, the real API.
#[derive(Debug, Parser)]
#[command(name = "podium", version, about, max_term_width = 110)]
pub(crate) struct Cli {
    /// Format of log lines on standard error; RUST_LOG sets their level, for example info or warn,kubelet=debug.
    #[arg(long, global = true, value_name = "FORMAT", value_enum, default_value_t = LogFormat::Text)]
    pub(crate) log_format: LogFormat,
    /// The subcommand.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Subcommands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start a single-node cluster and run it until SIGTERM or Ctrl-C. Containers keep running after Podium exits; the next `up` adopts them.
    Up(UpArgs),
    /// Delete the cluster of a data directory: its Pods, mounts and network, and the directory's contents, including the data
    /// of provisioned volumes.
    Down(DataDirArgs),
    /// Run manifests in a temporary cluster and print its progress. Exit code: 0 if all their Pods and Jobs succeeded, 1 if one failed, 124 on timeout.
    /// The data directory is created in TMPDIR if only root can write there, else in /var/lib/podium-run.
    Run(RunArgs),
    /// Manage the images of a data directory's container runtime.
    #[command(subcommand)]
    Image(ImageCommand),
    /// Explain a Pod's state: its cause, the next step, and when that step is due.
    Explain(ExplainArgs),
}

/// Arguments of `podium up`.
#[derive(Debug, Args)]
pub(crate) struct UpArgs {
    #[command(flatten)]
    pub(crate) data_dir: DataDirArgs,
    /// Address and port on which the API server listens; port 0 selects a free one.
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:6443")]
    pub(crate) bind: SocketAddr,
    #[command(flatten)]
    pub(crate) api: ApiArgs,
    /// File for the administrator's kubeconfig, removed on exit [default: DIR/admin.kubeconfig]. Podium refuses to start if
    /// the file exists and was not written by Podium.
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// File for token authentication: CSV lines of token,user,uid,"group1,group2".
    #[arg(long, value_name = "FILE")]
    pub(crate) token_auth_file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) token: TokenArgs,
    #[command(flatten)]
    pub(crate) audit: AuditArgs,
    /// Maximum number of non-mutating requests in flight; its sum with --max-mutating-requests-inflight is the total
    /// concurrency limit that priority levels share.
    #[arg(long, value_name = "N", default_value_t = 400)]
    pub(crate) max_requests_inflight: usize,
    /// Maximum number of mutating requests in flight.
    #[arg(long, value_name = "N", default_value_t = 200)]
    pub(crate) max_mutating_requests_inflight: usize,
    #[command(flatten)]
    pub(crate) node: NodeArgs,
}

/// Addresses and names of the API server.
#[derive(Debug, Clone, Args)]
pub(crate) struct ApiArgs {
    /// IP address advertised to clients in the kubeconfig and the serving certificate [default: that of --bind, or the
    /// node's address if that is 0.0.0.0].
    #[arg(long, value_name = "IP", value_parser = parse_advertise_address)]
    pub(crate) advertise_address: Option<IpAddr>,
    /// Additional subject alternative names of the serving certificate; it has the host name and the addresses of --bind.
    #[arg(long, value_name = "NAME|IP", value_delimiter = ',', value_parser = parse_subject_alternative_name)]
    pub(crate) tls_san: Vec<String>,
}

fn parse_advertise_address(text: &str) -> Result<IpAddr> {
    let ip: IpAddr = text.parse().map_err(|_| anyhow!("must be an IP address"))?;
    ensure!(!ip.is_unspecified(), "must not be the unspecified address");
    Ok(ip)
}

/// Parses a DNS name, which may start with a wildcard, or an IP address.
fn parse_subject_alternative_name(text: &str) -> Result<String> {
    let errors = api::names::dns1123_subdomain(text.strip_prefix("*.").unwrap_or(text));
    match errors.first().filter(|_| text.parse::<IpAddr>().is_err()) {
        Some(error) => bail!("{error}"),
        None => Ok(text.to_owned()),
    }
}

/// Lifetime of service account tokens, with the flags of kube-apiserver.
#[derive(Debug, Clone, Args)]
pub(crate) struct TokenArgs {
    /// Maximum validity of a token from a TokenRequest, for example 24h; 0 for no maximum.
    #[arg(long, value_name = "DUR", value_parser = parse_token_expiration, default_value = "8760h")]
    pub(crate) service_account_max_token_expiration: Duration,
    /// Extend tokens that the ServiceAccount admission plugin mounts into Pods to one year, regardless of the maximum.
    #[arg(
        long,
        value_name = "BOOL",
        action = ArgAction::Set,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        default_value_t = true
    )]
    pub(crate) service_account_extend_token_expiration: bool,
}

impl TokenArgs {
    /// Returns the lifetime of requested tokens.
    ///
    /// # Errors
    /// When the maximum is out of bounds.
    pub(crate) fn lifetime(&self) -> Result<TokenLifetime> {
        let (max, extend) = (self.service_account_max_token_expiration, self.service_account_extend_token_expiration);
        Ok(TokenLifetime::new(max, extend)?)
    }
}

fn parse_token_expiration(text: &str) -> Result<Duration> {
    let max = if text == "0" { Duration::ZERO } else { humantime::parse_duration(text)? };
    TokenLifetime::new(max, true)?;
    Ok(max)
}

/// Audit log, with the flags and defaults of kube-apiserver.
#[derive(Debug, Clone, Args)]
pub(crate) struct AuditArgs {
    /// File with the audit Policy (audit.k8s.io/v1).
    #[arg(long, value_name = "FILE", requires = "audit_log_path")]
    pub(crate) audit_policy_file: Option<PathBuf>,
    /// File for audit events, one JSON object per line; `-` is standard output.
    #[arg(long, value_name = "FILE", requires = "audit_policy_file")]
    pub(crate) audit_log_path: Option<PathBuf>,
    /// Maximum size of the audit log file in megabytes before it is rotated; 0 for no limit.
    #[arg(long, value_name = "MB", default_value_t = 100)]
    pub(crate) audit_log_maxsize: u64,
    /// Maximum number of old audit log files to retain; 0 for no limit.
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub(crate) audit_log_maxbackup: usize,
    /// Maximum number of days to retain old audit log files; 0 for no limit.
    #[arg(long, value_name = "DAYS", default_value_t = 366)]
    pub(crate) audit_log_maxage: u32,
}

/// Arguments of the cluster and its node, common to `up` and `run`.
#[derive(Debug, Clone, Args)]
pub(crate) struct NodeArgs {
    /// Name of the node [default: the host name].
    #[arg(long, value_name = "NAME")]
    pub(crate) node_name: Option<String>,
    /// IPv4 CIDR for Pod addresses [default: a free /24 of 10.244.0.0/16].
    #[arg(long, value_name = "CIDR")]
    pub(crate) pod_cidr: Option<String>,
    #[command(flatten)]
    pub(crate) cni: CniArgs,
    /// IPv4 CIDR for Services of type LoadBalancer, or `none` to leave them to another load balancer implementation
    /// [default: 10.97.N.0/24 if the Pod CIDR is 10.244.N.0/24, else a /24 of 10.98.0.0/16].
    #[arg(long, value_name = "CIDR", value_parser = LoadBalancerCidr::parse, conflicts_with = "runtime_endpoint")]
    pub(crate) load_balancer_cidr: Option<LoadBalancerCidr>,
    /// Endpoint of an existing CRI v1 runtime, for example containerd or CRI-O; without it Podium runs the containers itself.
    #[arg(long, value_name = "unix://SOCK")]
    pub(crate) runtime_endpoint: Option<String>,
    /// Handler of Pods without a RuntimeClass: an OCI runtime, runc or crun, or a name of DIR/runtimes.yaml.
    #[arg(
        long,
        value_name = "NAME",
        env = "PODIUM_DEFAULT_RUNTIME",
        default_value = "runc",
        conflicts_with = "runtime_endpoint"
    )]
    pub(crate) default_runtime: String,
    #[command(flatten)]
    pub(crate) image_store: ImageStoreArgs,
    /// File with a KubeletConfiguration (kubelet.config.k8s.io/v1beta1).
    #[arg(long, value_name = "FILE")]
    pub(crate) kubelet_config: Option<PathBuf>,
    /// File with a CredentialProviderConfig (kubelet.config.k8s.io/v1), or a directory of such files: credential provider
    /// plugins for image registries.
    #[arg(long, value_name = "FILE", requires = "image_credential_provider_bin_dir")]
    pub(crate) image_credential_provider_config: Option<PathBuf>,
    /// Directory of the credential provider plugin binaries.
    #[arg(long, value_name = "DIR", requires = "image_credential_provider_config")]
    pub(crate) image_credential_provider_bin_dir: Option<PathBuf>,
    /// Admission plugins to enable in addition to the default ones. The error of an unknown name lists all.
    #[arg(long, value_name = "PLUGIN", value_delimiter = ',', value_parser = AdmissionPlugin::parse_enabled)]
    pub(crate) enable_admission_plugins: Vec<AdmissionPlugin>,
    /// Default admission plugins to disable. The error of one that is always on lists those that can be disabled.
    #[arg(long, value_name = "PLUGIN", value_delimiter = ',', value_parser = AdmissionPlugin::parse_disabled)]
    pub(crate) disable_admission_plugins: Vec<AdmissionPlugin>,
    /// Storage quota of API objects in bytes, as of etcd; 0 for a quarter of the memory, at most 2 GiB.
    #[arg(long, value_name = "BYTES", default_value_t = 0, hide_default_value = true)]
    pub(crate) quota_backend_bytes: u64,
    #[command(flatten)]
    pub(crate) encryption: EncryptionArgs,
    /// Feature gates, as key=value pairs.
    #[arg(long, value_name = "A=true,B=false", value_parser = FeatureGates::parse, default_value = "", hide_default_value = true)]
    pub(crate) feature_gates: FeatureGates,
}

/// CNI plugins in place of Podium's own Pod network.
#[derive(Debug, Clone, Args)]
pub(crate) struct CniArgs {
    /// Directory of CNI configurations: the plugins of the first one connect the Pods, in place of Podium's own network.
    /// --pod-cidr must be the CIDR from which they allocate.
    #[arg(long, value_name = "DIR", requires = "pod_cidr", conflicts_with = "runtime_endpoint")]
    pub(crate) cni_conf_dir: Option<PathBuf>,
    /// Directory of CNI plugins; may be repeated [default: /opt/cni/bin, /usr/lib/cni, /usr/libexec/cni].
    #[arg(long, value_name = "DIR", requires = "cni_conf_dir")]
    pub(crate) cni_bin_dir: Vec<PathBuf>,
}

/// Encryption at rest, with the flags of kube-apiserver.
#[derive(Debug, Clone, Args)]
pub(crate) struct EncryptionArgs {
    /// File with an EncryptionConfiguration (apiserver.config.k8s.io/v1) for objects in the store.
    #[arg(long, value_name = "FILE")]
    pub(crate) encryption_provider_config: Option<PathBuf>,
    /// Not supported: Podium must be restarted after a change of the encryption configuration.
    #[arg(
        long,
        value_name = "BOOL",
        hide = true,
        requires = "encryption_provider_config",
        action = clap::ArgAction::Set,
        num_args = 0..=1,
        require_equals = true,
        default_value_t = false,
        default_missing_value = "true"
    )]
    pub(crate) encryption_provider_config_automatic_reload: bool,
}

/// Data directory of the cluster.
#[derive(Debug, Clone, Args)]
pub(crate) struct DataDirArgs {
    /// Data directory of the cluster. Only root may be able to write to it and to replace its parent directories.
    #[arg(long, value_name = "DIR", env = "PODIUM_DATA_DIR", default_value = DEFAULT_DATA_DIR)]
    pub(crate) data_dir: PathBuf,
}

/// Arguments of `podium run`.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Manifest files, YAML or JSON; `-` is standard input.
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Time limit of the run, for example 90s or 5m; the exit code is then 124.
    #[arg(long, value_name = "DUR", value_parser = humantime::parse_duration)]
    pub(crate) timeout: Option<Duration>,
    /// Image archives to import first (docker-archive or OCI archive, optionally gzipped).
    #[arg(long = "image", value_name = "TAR")]
    pub(crate) images: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) node: NodeArgs,
}

/// Image store of the machine.
#[derive(Debug, Clone, Args)]
pub(crate) struct ImageStoreArgs {
    /// Directory of the engine's images, which all clusters of the machine share [default: /var/lib/podium-images].
    #[arg(long, value_name = "DIR", env = "PODIUM_IMAGE_STORE")]
    pub(crate) image_store: Option<PathBuf>,
}

impl ImageStoreArgs {
    /// Returns the directory.
    pub(crate) fn path(&self) -> &Path {
        self.image_store.as_deref().unwrap_or(Path::new(DEFAULT_IMAGE_STORE))
    }
}

/// The images that a subcommand of `podium image` works on: those of a cluster's runtime.
#[derive(Debug, Clone, Args)]
pub(crate) struct ImageArgs {
    #[command(flatten)]
    pub(crate) runtime: RuntimeArgs,
    #[command(flatten)]
    pub(crate) image_store: ImageStoreArgs,
}

/// Subcommands of `podium image`.
#[derive(Debug, Subcommand)]
pub(crate) enum ImageCommand {
    /// Import image archives (docker-archive or OCI archive, optionally gzipped).
    Import {
        /// Archive files; `-` is standard input.
        #[arg(required = true, value_name = "TAR")]
        files: Vec<PathBuf>,
        #[command(flatten)]
        args: ImageArgs,
    },
    /// List images.
    Ls {
        #[command(flatten)]
        args: ImageArgs,
    },
    /// Pull images without credentials.
    Pull {
        /// Image references.
        #[arg(required = true, value_name = "IMAGE")]
        images: Vec<String>,
        #[command(flatten)]
        args: ImageArgs,
    },
    /// Remove images, with the engine for all clusters of the machine, unless a container uses them.
    Rm {
        /// Image references or IDs.
        #[arg(required = true, value_name = "IMAGE")]
        images: Vec<String>,
        #[command(flatten)]
        args: ImageArgs,
    },
    /// Remove content of the engine's image store that no image and no container uses.
    Prune {
        #[command(flatten)]
        args: ImageArgs,
    },
    /// Write images of the engine's image store to an archive (OCI layout, readable by Docker).
    Save {
        /// Image references or IDs.
        #[arg(required = true, value_name = "IMAGE")]
        images: Vec<String>,
        /// Archive file; `-` is standard output.
        #[arg(long, short, value_name = "TAR", default_value = "-")]
        output: PathBuf,
        #[command(flatten)]
        args: ImageArgs,
    },
}

/// Container runtime to connect to.
#[derive(Debug, Clone, Args)]
pub(crate) struct RuntimeArgs {
    #[command(flatten)]
    pub(crate) data_dir: DataDirArgs,
    /// Endpoint of a CRI v1 runtime, instead of the data directory's.
    #[arg(long, value_name = "unix://SOCK")]
    pub(crate) runtime_endpoint: Option<String>,
}

/// Arguments of `podium explain`.
#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// Name of the Pod, as `pod/NAME` or `NAME`.
    #[arg(value_name = "pod/NAME")]
    pub(crate) pod: String,
    /// Namespace of the Pod.
    #[arg(short, long, default_value = "default")]
    pub(crate) namespace: String,
    /// Print the recent inputs of the Pod's state machine instead, one JSON object per line, for a bug report.
    #[arg(long)]
    pub(crate) history: bool,
    #[command(flatten)]
    pub(crate) data_dir: DataDirArgs,
    /// Kubeconfig file [default: DIR/admin.kubeconfig].
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn command_line_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn admission_plugin_flags_accept_lists_and_repetition() {
        let parse = |flags: &[&str]| Cli::try_parse_from([&["podium", "up"], flags].concat());
        let flags = ["--enable-admission-plugins", "NodeRestriction,PodSecurity", "--enable-admission-plugins"];
        let parsed = parse(&[&flags[..], &["AlwaysPullImages"]].concat()).unwrap();
        let Command::Up(up) = parsed.command else { panic!("not `up`") };
        assert_eq!(up.node.enable_admission_plugins.len(), 3);
        let error = parse(&["--disable-admission-plugins", "DenyServiceExternalIPs,PodSecurity"]).unwrap_err();
        assert!(error.to_string().contains("plugin \"PodSecurity\" cannot be turned off"), "{error}");
    }

    #[test]
    fn token_expiration_out_of_bounds_is_rejected() {
        let parse = |flags: &[&str]| {
            let parsed = Cli::try_parse_from([&["podium", "up"], flags].concat()).map_err(|e| e.to_string())?;
            let Command::Up(up) = parsed.command else { panic!("not `up`") };
            up.token.lifetime().map_err(|error| error.to_string())
        };
        assert_eq!(parse(&[]), Ok(TokenLifetime::default()));
        let lifetime =
            |seconds: u64, extend: bool| Ok(TokenLifetime::new(Duration::from_secs(seconds), extend).unwrap());
        let max = "--service-account-max-token-expiration";
        assert_eq!(parse(&[max, "0"]), lifetime(0, true));
        let flags = [max, "24h0m0s", "--service-account-extend-token-expiration=false"];
        assert_eq!(parse(&flags), lifetime(24 * 3600, false));
        assert_eq!(parse(&["--service-account-extend-token-expiration"]), Ok(TokenLifetime::default()));
        assert!(parse(&[max, "59m"]).unwrap_err().contains("must be between 1 hour and 2^32 seconds"));
    }

    #[test]
    fn unknown_feature_gate_is_rejected_by_the_parser() {
        let error = Cli::try_parse_from(["podium", "up", "--feature-gates", "Nope=true"]).unwrap_err();
        assert!(error.to_string().contains("unrecognized feature gate: Nope"), "{error}");
    }
}
