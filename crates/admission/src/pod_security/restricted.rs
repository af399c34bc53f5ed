//! Checks of the `restricted` level in addition to `baseline`.

use super::{
    Check, Violation,
    baseline::{added_capabilities, any_proc_mount, forbidden_seccomp, is_filter},
    subject::{Subject, named, plural, quoted, setters, violation},
};
use k8s_openapi::api::core::v1::{Container, Volume};
use std::collections::BTreeSet;

/// Returns the violations for the version of the standards.
pub(super) fn checks(subject: &Subject<'_>) -> Vec<Check> {
    let minor = subject.minor;
    // API validation forbids these fields for Windows Pods.
    let is_linux = !(minor >= 25 && subject.is_windows());
    let checks_user = !(minor >= 35 && subject.has_user_namespace());
    let all: [(Check, bool); 7] = [
        (privilege_escalation, minor >= 8 && is_linux),
        (capabilities, minor >= 22 && is_linux),
        (any_proc_mount, minor >= 35),
        (volumes, true),
        (run_as_non_root, checks_user),
        (run_as_user, minor >= 23 && checks_user),
        (seccomp, minor >= 19 && is_linux),
    ];
    all.into_iter().filter(|(_, holds)| *holds).map(|(check, _)| check).collect()
}

fn privilege_escalation(subject: &Subject<'_>) -> Option<Violation> {
    let containers = subject
        .container_names(|c| c.security_context.as_ref().and_then(|s| s.allow_privilege_escalation).unwrap_or(true));
    if containers.is_empty() {
        return None;
    }
    let detail = format!("{} must set securityContext.allowPrivilegeEscalation=false", named(&containers));
    violation("allowPrivilegeEscalation != false", detail)
}

fn capabilities(subject: &Subject<'_>) -> Option<Violation> {
    let drops_all = |c: &Container| {
        let capabilities = c.security_context.as_ref().and_then(|s| s.capabilities.as_ref());
        capabilities.is_some_and(|c| c.drop.iter().flatten().any(|name| name == "ALL"))
    };
    let keeping = subject.container_names(|c| !drops_all(c));
    let kept = (!keeping.is_empty())
        .then(|| format!("{} must set securityContext.capabilities.drop=[\"ALL\"]", named(&keeping)));
    let details: Vec<String> = kept.into_iter().chain(added_capabilities(subject, &["NET_BIND_SERVICE"])).collect();
    if details.is_empty() { None } else { violation("unrestricted capabilities", details.join("; ")) }
}

fn volumes(subject: &Subject<'_>) -> Option<Violation> {
    let all = || subject.spec.volumes.iter().flatten().filter_map(|v| Some((v.name.as_str(), restricted(v)?)));
    let names: Vec<&str> = all().map(|(name, _)| name).collect();
    let kinds: BTreeSet<&str> = all().map(|(_, kind)| kind).collect();
    if names.is_empty() {
        return None;
    }
    let (volumes, uses) = (plural(names.len(), "volume", "volumes"), plural(names.len(), "uses", "use"));
    let noun = plural(kinds.len(), "restricted volume type", "restricted volume types");
    violation("restricted volume types", format!("{volumes} {} {uses} {noun} {}", quoted(names), quoted(kinds)))
}

/// Returns the type of a volume that the level forbids.
fn restricted(v: &Volume) -> Option<&'static str> {
    let allowed = v.config_map.is_some()
        || v.csi.is_some()
        || v.downward_api.is_some()
        || v.empty_dir.is_some()
        || v.ephemeral.is_some()
        || v.image.is_some()
        || v.persistent_volume_claim.is_some()
        || v.projected.is_some()
        || v.secret.is_some();
    let all = [
        (v.host_path.is_some(), "hostPath"),
        (v.gce_persistent_disk.is_some(), "gcePersistentDisk"),
        (v.aws_elastic_block_store.is_some(), "awsElasticBlockStore"),
        (v.git_repo.is_some(), "gitRepo"),
        (v.nfs.is_some(), "nfs"),
        (v.iscsi.is_some(), "iscsi"),
        (v.glusterfs.is_some(), "glusterfs"),
        (v.rbd.is_some(), "rbd"),
        (v.flex_volume.is_some(), "flexVolume"),
        (v.cinder.is_some(), "cinder"),
        (v.cephfs.is_some(), "cephfs"),
        (v.flocker.is_some(), "flocker"),
        (v.fc.is_some(), "fc"),
        (v.azure_file.is_some(), "azureFile"),
        (v.vsphere_volume.is_some(), "vsphereVolume"),
        (v.quobyte.is_some(), "quobyte"),
        (v.azure_disk.is_some(), "azureDisk"),
        (v.photon_persistent_disk.is_some(), "photonPersistentDisk"),
        (v.portworx_volume.is_some(), "portworxVolume"),
        (v.scale_io.is_some(), "scaleIO"),
        (v.storageos.is_some(), "storageos"),
    ];
    (!allowed).then(|| all.iter().find(|(is, _)| *is).map_or("unknown", |(_, name)| name))
}

fn run_as_non_root(subject: &Subject<'_>) -> Option<Violation> {
    const REASON: &str = "runAsNonRoot != true";
    let pod = subject.pod().and_then(|c| c.run_as_non_root);
    let explicit = subject.with_security_context(|c| c.run_as_non_root == Some(false));
    if let Some(who) = setters(pod == Some(false), &explicit) {
        return violation(REASON, format!("{who} must not set securityContext.runAsNonRoot=false"));
    }
    let is_set = |c: &Container| c.security_context.as_ref().is_some_and(|s| s.run_as_non_root.is_some());
    let unset = subject.container_names(|c| pod != Some(true) && !is_set(c));
    if unset.is_empty() {
        return None;
    }
    violation(REASON, format!("pod or {} must set securityContext.runAsNonRoot=true", named(&unset)))
}

fn run_as_user(subject: &Subject<'_>) -> Option<Violation> {
    let pod = subject.pod().and_then(|c| c.run_as_user) == Some(0);
    let who = setters(pod, &subject.with_security_context(|c| c.run_as_user == Some(0)))?;
    violation("runAsUser=0", format!("{who} must not set runAsUser=0"))
}

fn seccomp(subject: &Subject<'_>) -> Option<Violation> {
    if let Some(found) = forbidden_seccomp(subject) {
        return Some(found);
    }
    let pod = subject.pod().and_then(|c| c.seccomp_profile.as_ref()).is_some_and(|p| is_filter(&p.type_));
    let is_set = |c: &Container| c.security_context.as_ref().is_some_and(|s| s.seccomp_profile.is_some());
    let unset = subject.container_names(|c| !pod && !is_set(c));
    if unset.is_empty() {
        return None;
    }
    let detail = format!(
        "pod or {} must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\"",
        named(&unset)
    );
    violation("seccompProfile", detail)
}
