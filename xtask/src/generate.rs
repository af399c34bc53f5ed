//! Generates the tables of type facts, each in the crate that reads it, from the sources of one Kubernetes release.
//!
//! The sources are the repositories that are published from `staging/src/k8s.io` of `kubernetes/kubernetes`: Go types,
//! `generated.proto` files, and `register.go` files with the groups.

use crate::{enum_table, openapi_tables, protobuf_table};
use anyhow::{Context, ensure};
use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

/// A Go package of which the tables have types.
pub(crate) struct Package {
    /// Name in the tables.
    pub(crate) name: &'static str,
    /// Directory in `staging/src/k8s.io`.
    directory: &'static str,
    /// The messages to include, with those that they contain. Empty for all.
    pub(crate) roots: &'static [&'static str],
}

impl Package {
    const fn of(name: &'static str, directory: &'static str) -> Self {
        Self { name, directory, roots: &[] }
    }

    const fn with_roots(name: &'static str, directory: &'static str, roots: &'static [&'static str]) -> Self {
        Self { name, directory, roots }
    }

    pub(crate) fn path(&self, staging: &Path) -> PathBuf {
        staging.join(self.directory)
    }

    /// Whether its objects are served in JSON and not in protobuf.
    pub(crate) fn is_json_only(&self) -> bool {
        self.name.starts_with("json/")
    }
}

/// Kinds that are served in versions of which not all kinds are.
const SERVED_IN_PREVIEWS: &[&str] = &["MutatingAdmissionPolicyList", "MutatingAdmissionPolicyBindingList"];

/// Packages with a stable version or with a served kind. Table is without protobuf, see `json_types.rs`.
pub(crate) const PACKAGES: [Package; 27] = [
    Package::of("meta/v1", "apimachinery/pkg/apis/meta/v1"),
    Package::of("core/v1", "api/core/v1"),
    Package::of("admissionregistration/v1", "api/admissionregistration/v1"),
    Package::with_roots("admissionregistration/v1alpha1", "api/admissionregistration/v1alpha1", SERVED_IN_PREVIEWS),
    Package::with_roots("admissionregistration/v1beta1", "api/admissionregistration/v1beta1", SERVED_IN_PREVIEWS),
    Package::of("apps/v1", "api/apps/v1"),
    Package::of("authentication/v1", "api/authentication/v1"),
    Package::of("authorization/v1", "api/authorization/v1"),
    Package::of("autoscaling/v1", "api/autoscaling/v1"),
    Package::of("autoscaling/v2", "api/autoscaling/v2"),
    Package::of("batch/v1", "api/batch/v1"),
    Package::of("certificates/v1", "api/certificates/v1"),
    Package::of("coordination/v1", "api/coordination/v1"),
    Package::of("discovery/v1", "api/discovery/v1"),
    Package::of("events/v1", "api/events/v1"),
    Package::of("flowcontrol/v1", "api/flowcontrol/v1"),
    Package::of("networking/v1", "api/networking/v1"),
    Package::of("node/v1", "api/node/v1"),
    Package::of("policy/v1", "api/policy/v1"),
    Package::of("rbac/v1", "api/rbac/v1"),
    Package::of("resource/v1", "api/resource/v1"),
    Package::of("scheduling/v1", "api/scheduling/v1"),
    Package::of("storage/v1", "api/storage/v1"),
    // `ConversionReview` is sent to webhooks, in JSON.
    Package::with_roots(
        "apiextensions/v1",
        "apiextensions-apiserver/pkg/apis/apiextensions/v1",
        &["CustomResourceDefinitionList"],
    ),
    Package::of("apiregistration/v1", "kube-aggregator/pkg/apis/apiregistration/v1"),
    Package::of("metrics/v1beta1", "metrics/pkg/apis/metrics/v1beta1"),
    Package::of("json/discovery", "api/apidiscovery/v2"),
];

/// Directories of the groups of upstream's scheme.
const SCHEME: [&str; 3] = ["api", "apiextensions-apiserver/pkg/apis", "kube-aggregator/pkg/apis"];

/// Groups that no kind of upstream's scheme has: discovery is no API of kinds.
const NOT_IN_SCHEME: [&str; 1] = ["apidiscovery.k8s.io"];

/// Writes the tables.
pub(crate) fn run(staging: &Path, document: Option<&Path>) -> anyhow::Result<()> {
    let openapi = Path::new("crates/server/src/documents/openapi");
    write(Path::new("crates/wire/src/protobuf/messages.txt"), &protobuf_table::table(staging)?)?;
    write(Path::new("crates/wire/src/enums.txt"), &enum_table::table(staging)?)?;
    write(&openapi.join("group_versions.txt"), &group_versions(staging)?)?;
    document.map_or(Ok(()), |document| openapi_tables::run(document, openapi))
}

pub(crate) fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(path, text).with_context(|| format!("writing {}", path.display()))
}

/// Reads the Go files of a package except for tests and generated files.
pub(crate) fn sources(directory: &Path) -> anyhow::Result<String> {
    let entries = fs::read_dir(directory).with_context(|| format!("reading {}", directory.display()))?;
    let mut files = entries.map(|entry| Ok(entry?.path())).collect::<anyhow::Result<Vec<_>>>()?;
    files.sort_unstable();
    let mut all = String::new();
    for path in files {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.ends_with(".go") && !name.ends_with("_test.go") && !name.contains("generated") {
            all += &fs::read_to_string(&path)?;
        }
    }
    Ok(all)
}

/// Returns the API version of a package's directory, for example `apps/v1`.
pub(crate) fn api_version(directory: &Path) -> anyhow::Result<String> {
    let version = directory.file_name().unwrap_or_default().to_string_lossy();
    let group = group(directory)?;
    Ok(if group.is_empty() { version.into_owned() } else { format!("{group}/{version}") })
}

/// Reads the API group of a package from its `register.go`.
fn group(directory: &Path) -> anyhow::Result<String> {
    let file = directory.join("register.go");
    let text = fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
    // The kinds of meta/v1 belong to all groups.
    if directory.ends_with("meta/v1") {
        return Ok(String::new());
    }
    let line = text.lines().find(|l| l.trim().starts_with("const GroupName") || l.trim().starts_with("GroupName "));
    let group = line.and_then(|l| l.split('"').nth(1));
    Ok(group.with_context(|| format!("{} has no GroupName", file.display()))?.to_owned())
}

/// Generates the groups and versions of upstream's scheme, also of those that are not served.
fn group_versions(staging: &Path) -> anyhow::Result<String> {
    let mut all = Vec::new();
    for group_directory in SCHEME.iter().map(|path| directories(&staging.join(path))).collect::<Result<Vec<_>, _>>()? {
        for directory in group_directory.iter().map(|path| directories(path)).collect::<Result<Vec<_>, _>>()?.concat() {
            let version = directory.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let is_version =
                version.strip_prefix('v').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
            if is_version && directory.join("register.go").is_file() {
                let group = group(&directory)?;
                all.extend((!NOT_IN_SCHEME.contains(&group.as_str())).then(|| format!("{group}/{version}")));
            }
        }
    }
    all.sort_unstable();
    ensure!(!all.is_empty(), "{} has no groups", staging.display());
    let mut out = String::from(
        "# Groups and versions of upstream's scheme; crates/server/src/documents/openapi/extensions.rs reads it.\n\
         # Generated from the register.go files of Kubernetes v1.35 with `cargo xtask generate`. Do not edit.\n",
    );
    all.iter().try_for_each(|group_version| writeln!(out, "{group_version}"))?;
    Ok(out)
}

fn directories(parent: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(parent).with_context(|| format!("reading {}", parent.display()))?;
    let paths = entries.map(|entry| Ok(entry?.path())).collect::<anyhow::Result<Vec<_>>>()?;
    Ok(paths.into_iter().filter(|path| path.is_dir()).collect())
}
