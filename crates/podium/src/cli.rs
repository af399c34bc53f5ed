//! The command line: what a person may type.

use crate::load_balancers::LoadBalancerCidr;
use api::feature_gates::FeatureGates;
use clap::{ArgAction, Args, Parser, Subcommand};
use runtime::containerd::OciRuntime;
use server::{AdmissionPlugin, TokenLifetime};
use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

/// Where Podium keeps a cluster when nothing else is said.
pub(crate) const DEFAULT_DATA_DIR: &str = "/var/lib/podium";

/// Runs Kubernetes Pods: one binary, the real API.
#[derive(Debug, Parser)]
#[command(name = "podium", version, about, max_term_width = 110)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What Podium can do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start a one-node cluster and serve it until SIGTERM or Ctrl-C. Containers go on without Podium; the next `up` takes them over.
    Up(UpArgs),
    /// Remove everything that ran in a data directory: Pods, mounts, network, and the directory's contents, the data of
    /// volumes that were made in it included.
    Down(DataDirArgs),
    /// Run manifests in a throwaway cluster and show what happens. Exit code: 0 all their Pods and Jobs succeeded, 1 one failed, 124 timeout.
    /// The cluster is kept in a new directory in TMPDIR, if only root can write there, else in /var/lib/podium-run.
    Run(RunArgs),
    /// Work with the images of a data directory's container runtime.
    #[command(subcommand)]
    Image(ImageCommand),
    /// Say why a Pod is in the state it is in, what it waits for, and when that ends.
    Explain(ExplainArgs),
}

/// `podium up`.
#[derive(Debug, Args)]
pub(crate) struct UpArgs {
    #[command(flatten)]
    pub(crate) data_dir: DataDirArgs,
    /// Address and port of the API server; port 0 takes a free one.
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:6443")]
    pub(crate) bind: SocketAddr,
    #[command(flatten)]
    pub(crate) api: ApiArgs,
    /// Where to write the administrator's kubeconfig, while the API serves [default: DIR/admin.kubeconfig]. What others wrote
    /// there stays, and Podium does not start.
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Who is let in by a token of their own: lines of token,user,uid,"group1,group2".
    #[arg(long, value_name = "FILE")]
    pub(crate) token_auth_file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) token: TokenArgs,
    #[command(flatten)]
    pub(crate) audit: AuditArgs,
    /// How many requests that only read are carried out at a time; together with the next, what priority levels share.
    #[arg(long, value_name = "N", default_value_t = 400)]
    pub(crate) max_requests_inflight: usize,
    /// How many requests that change something are carried out at a time.
    #[arg(long, value_name = "N", default_value_t = 200)]
    pub(crate) max_mutating_requests_inflight: usize,
    #[command(flatten)]
    pub(crate) node: NodeArgs,
}

/// How clients reach the API.
#[derive(Debug, Clone, Args)]
pub(crate) struct ApiArgs {
    /// Address at which clients reach the API, for the kubeconfig and the certificate [default: that of --bind, or the
    /// machine's where that is 0.0.0.0].
    #[arg(long, value_name = "IP", value_parser = advertised)]
    pub(crate) advertise_address: Option<IpAddr>,
    /// More names and addresses of the API for its certificate; the host's name and the addresses of --bind are in it.
    #[arg(long, value_name = "NAME|IP", value_delimiter = ',', value_parser = subject_alternative_name)]
    pub(crate) tls_san: Vec<String>,
}

fn advertised(text: &str) -> Result<IpAddr, String> {
    let ip: IpAddr = text.parse().map_err(|_| "it must be an IP address".to_owned())?;
    if ip.is_unspecified() { Err("no client reaches this address".to_owned()) } else { Ok(ip) }
}

/// A name in DNS, perhaps with a wildcard, or an address.
fn subject_alternative_name(text: &str) -> Result<String, String> {
    let errors = api::names::dns1123_subdomain(text.strip_prefix("*.").unwrap_or(text));
    match errors.first().filter(|_| text.parse::<IpAddr>().is_err()) {
        Some(error) => Err(error.to_string()),
        None => Ok(text.to_owned()),
    }
}

/// Tokens that are requested for service accounts.
#[derive(Debug, Clone, Args)]
pub(crate) struct TokenArgs {
    /// How long requested tokens of service accounts are valid at most, for example 24h; 0 for no maximum.
    #[arg(long, value_name = "DUR", value_parser = token_expiration, default_value = "8760h")]
    pub(crate) service_account_max_token_expiration: Duration,
    /// Whether tokens that are mounted into Pods by default are valid for a year, whatever the maximum is.
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
    /// The lifetime of requested tokens.
    ///
    /// # Errors
    /// When the maximum is out of bounds.
    pub(crate) fn lifetime(&self) -> Result<TokenLifetime, String> {
        TokenLifetime::new(self.service_account_max_token_expiration, self.service_account_extend_token_expiration)
    }
}

fn token_expiration(text: &str) -> Result<Duration, String> {
    let max = if text == "0" { Duration::ZERO } else { humantime::parse_duration(text).map_err(|e| e.to_string())? };
    TokenLifetime::new(max, true).map(|_| max)
}

/// The audit log, with upstream's names and defaults.
#[derive(Debug, Clone, Args)]
pub(crate) struct AuditArgs {
    /// A Policy (audit.k8s.io/v1): what is noted of which requests.
    #[arg(long, value_name = "FILE", requires = "audit_log_path")]
    pub(crate) audit_policy_file: Option<PathBuf>,
    /// Where it is noted, a line of JSON for each event; `-` is standard output.
    #[arg(long, value_name = "FILE", requires = "audit_policy_file")]
    pub(crate) audit_log_path: Option<PathBuf>,
    /// Size of a file of the audit log, in megabytes, before a new one is begun; 0 for no limit.
    #[arg(long, value_name = "MB", default_value_t = 100)]
    pub(crate) audit_log_maxsize: u64,
    /// How many old files of the audit log are kept; 0 for all.
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub(crate) audit_log_maxbackup: usize,
    /// For how many days old files of the audit log are kept; 0 for ever.
    #[arg(long, value_name = "DAYS", default_value_t = 366)]
    pub(crate) audit_log_maxage: u32,
}

/// What concerns the cluster and its node, in `up` and `run`.
#[derive(Debug, Clone, Args)]
pub(crate) struct NodeArgs {
    /// Name of the node [default: the host's name].
    #[arg(long, value_name = "NAME")]
    pub(crate) node_name: Option<String>,
    /// Addresses for Pods, IPv4 [default: a free /24 of 10.244.0.0/16].
    #[arg(long, value_name = "CIDR")]
    pub(crate) pod_cidr: Option<String>,
    /// Addresses for Services of type LoadBalancer, IPv4, or `none`: somebody else gives them [default: 10.97.N.0/24 where
    /// Pods have 10.244.N.0/24, else one of 10.98.0.0/16].
    #[arg(long, value_name = "CIDR", value_parser = LoadBalancerCidr::parse, conflicts_with = "runtime_endpoint")]
    pub(crate) load_balancer_cidr: Option<LoadBalancerCidr>,
    /// A CRI v1 runtime to use as it is; without it Podium runs its own containerd.
    #[arg(long, value_name = "unix://SOCK")]
    pub(crate) runtime_endpoint: Option<String>,
    /// The OCI runtime of Pods that name no RuntimeClass, in Podium's own containerd: runc, or crun, which is faster.
    #[arg(
        long,
        value_name = "NAME",
        env = "PODIUM_DEFAULT_RUNTIME",
        default_value = "runc",
        conflicts_with = "runtime_endpoint"
    )]
    pub(crate) default_runtime: OciRuntime,
    /// A KubeletConfiguration (kubelet.config.k8s.io/v1beta1).
    #[arg(long, value_name = "FILE")]
    pub(crate) kubelet_config: Option<PathBuf>,
    /// A CredentialProviderConfig (kubelet.config.k8s.io/v1), or a directory of such files: programs that know credentials for images.
    #[arg(long, value_name = "FILE", requires = "image_credential_provider_bin_dir")]
    pub(crate) image_credential_provider_config: Option<PathBuf>,
    /// Directory of these programs.
    #[arg(long, value_name = "DIR", requires = "image_credential_provider_config")]
    pub(crate) image_credential_provider_bin_dir: Option<PathBuf>,
    /// Admission plugins to turn on that are off by default: AlwaysPullImages.
    #[arg(long, value_name = "PLUGIN", value_delimiter = ',', value_parser = AdmissionPlugin::parse_enabled)]
    pub(crate) enable_admission_plugins: Vec<AdmissionPlugin>,
    /// Admission plugins to turn off that are on by default: DenyServiceExternalIPs.
    #[arg(long, value_name = "PLUGIN", value_delimiter = ',', value_parser = AdmissionPlugin::parse_disabled)]
    pub(crate) disable_admission_plugins: Vec<AdmissionPlugin>,
    /// Bytes that all objects of the API may take, as of etcd; 0 for a quarter of the memory, 2 GiB at most.
    #[arg(long, value_name = "BYTES", default_value_t = 0, hide_default_value = true)]
    pub(crate) quota_backend_bytes: u64,
    #[command(flatten)]
    pub(crate) encryption: EncryptionArgs,
    /// Feature gates.
    #[arg(long, value_name = "A=true,B=false", value_parser = FeatureGates::parse, default_value = "", hide_default_value = true)]
    pub(crate) feature_gates: FeatureGates,
}

/// Encryption at rest, with upstream's names.
#[derive(Debug, Clone, Args)]
pub(crate) struct EncryptionArgs {
    /// An EncryptionConfiguration (apiserver.config.k8s.io/v1): which objects are encrypted on the disk, with which keys.
    #[arg(long, value_name = "FILE")]
    pub(crate) encryption_provider_config: Option<PathBuf>,
    /// Not supported: restart Podium when the encryption configuration has changed.
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

/// Which cluster.
#[derive(Debug, Clone, Args)]
pub(crate) struct DataDirArgs {
    /// Directory that holds the cluster. It and its parents must be such that nobody but root can replace or change them.
    #[arg(long, value_name = "DIR", env = "PODIUM_DATA_DIR", default_value = DEFAULT_DATA_DIR)]
    pub(crate) data_dir: PathBuf,
}

/// `podium run`.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Manifests, YAML or JSON; `-` reads standard input.
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Give up after this long, for example 90s or 5m.
    #[arg(long, value_name = "DUR", value_parser = humantime::parse_duration)]
    pub(crate) timeout: Option<Duration>,
    /// Image archives to import first (docker-archive or OCI archive, gzipped or not).
    #[arg(long = "image", value_name = "TAR")]
    pub(crate) images: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) node: NodeArgs,
}

/// `podium image`.
#[derive(Debug, Subcommand)]
pub(crate) enum ImageCommand {
    /// Import image archives (docker-archive or OCI archive, gzipped or not).
    Import {
        /// Archives; `-` reads standard input.
        #[arg(required = true, value_name = "TAR")]
        files: Vec<PathBuf>,
        #[command(flatten)]
        runtime: RuntimeArgs,
    },
    /// List images.
    Ls {
        #[command(flatten)]
        runtime: RuntimeArgs,
    },
}

/// Which container runtime.
#[derive(Debug, Clone, Args)]
pub(crate) struct RuntimeArgs {
    #[command(flatten)]
    pub(crate) data_dir: DataDirArgs,
    /// A CRI v1 runtime instead of the data directory's own.
    #[arg(long, value_name = "unix://SOCK")]
    pub(crate) runtime_endpoint: Option<String>,
}

/// `podium explain`.
#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// The Pod, as `pod/NAME` or `NAME`.
    #[arg(value_name = "pod/NAME")]
    pub(crate) pod: String,
    /// Its namespace.
    #[arg(short, long, default_value = "default")]
    pub(crate) namespace: String,
    /// Print what happened to it lately instead, as lines of JSON: all that its state follows from, for a bug report.
    #[arg(long)]
    pub(crate) history: bool,
    #[command(flatten)]
    pub(crate) data_dir: DataDirArgs,
    /// The kubeconfig to use [default: DIR/admin.kubeconfig].
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn admission_plugins_are_lists_and_can_be_repeated() {
        let parse = |flags: &[&str]| Cli::try_parse_from([&["podium", "up"], flags].concat());
        let flags = ["--enable-admission-plugins", "NodeRestriction,PodSecurity", "--enable-admission-plugins"];
        let parsed = parse(&[&flags[..], &["AlwaysPullImages"]].concat()).unwrap();
        let Command::Up(up) = parsed.command else { panic!("not `up`") };
        assert_eq!(up.node.enable_admission_plugins.len(), 3);
        let error = parse(&["--disable-admission-plugins", "DenyServiceExternalIPs,PodSecurity"]).unwrap_err();
        assert!(error.to_string().contains("plugin \"PodSecurity\" cannot be turned off"), "{error}");
    }

    #[test]
    fn token_expiration_is_bounded_by_default() {
        let parse = |flags: &[&str]| {
            let parsed = Cli::try_parse_from([&["podium", "up"], flags].concat()).map_err(|e| e.to_string())?;
            let Command::Up(up) = parsed.command else { panic!("not `up`") };
            up.token.lifetime()
        };
        assert_eq!(parse(&[]), Ok(TokenLifetime::default()));
        let lifetime = |seconds: u64, extend: bool| TokenLifetime::new(Duration::from_secs(seconds), extend);
        let max = "--service-account-max-token-expiration";
        assert_eq!(parse(&[max, "0"]), lifetime(0, true));
        let flags = [max, "24h0m0s", "--service-account-extend-token-expiration=false"];
        assert_eq!(parse(&flags), lifetime(24 * 3600, false));
        assert_eq!(parse(&["--service-account-extend-token-expiration"]), Ok(TokenLifetime::default()));
        assert!(parse(&[max, "59m"]).unwrap_err().contains("must be between 1 hour and 2^32 seconds"));
    }

    #[test]
    fn an_unknown_feature_gate_is_refused_at_once() {
        let error = Cli::try_parse_from(["podium", "up", "--feature-gates", "Nope=true"]).unwrap_err();
        assert!(error.to_string().contains("unrecognized feature gate: Nope"), "{error}");
    }
}
