//! Security contexts of containers (upstream's `pkg/kubelet/kuberuntime/security_context.go`).

use super::sandbox;
use crate::{Shared, pods, user_namespaces::UserNamespaceError};
use k8s_openapi::api::core::v1::{
    AppArmorProfile, Container as Spec, PodSecurityContext, SeccompProfile, SecurityContext as ContainerSecurityContext,
};
use lifecycle::Pod;
use runtime::{ContainerId, Image, NamespaceMode, RuntimeError, SecurityContext, SupplementalGroupsPolicy};
use std::path::{Path, PathBuf};

/// A container has no valid security context, with upstream's message.
#[derive(Debug, thiserror::Error)]
pub(super) enum SecurityContextError {
    #[error("{source} ({container})")]
    NonRoot { container: String, source: NonRootError },
    #[error(transparent)]
    Image(#[from] RuntimeError),
    #[error(transparent)]
    UserNamespace(#[from] UserNamespaceError),
    #[error("localhostProfile must be set if seccompProfile type is Localhost.")]
    NoLocalhostProfile,
    #[error("unable to find target container {0}")]
    NoTargetContainer(String),
}

/// Violation of `runAsNonRoot` (`verifyRunAsNonRoot`).
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NonRootError {
    #[error("container's runAsUser breaks non-root policy")]
    RunAsUser,
    #[error("container has runAsNonRoot and image will run as root")]
    RootImage,
    #[error("container has runAsNonRoot and image has non-numeric user ({0}), cannot verify user is non-root")]
    NonNumericUser(String),
}

/// Returns the effective security context of a container: its own fields, else those of its Pod.
pub(super) async fn effective_security_context(
    shared: &Shared,
    pod: &Pod,
    spec: &Spec,
) -> Result<SecurityContext, SecurityContextError> {
    let all = pods::spec(pod).security_context.clone().unwrap_or_default();
    let container_context = spec.security_context.clone().unwrap_or_default();
    let mut user = container_context.run_as_user.or(all.run_as_user);
    let group = container_context.run_as_group.or(all.run_as_group);
    let non_root = container_context.run_as_non_root.or(all.run_as_non_root) == Some(true);
    let mut username = String::new();
    // The image's user is needed only here: without a user the runtime uses it by default.
    if non_root || (group.is_some() && user.is_none()) {
        let image = match user {
            Some(_) => None,
            None => image(shared, spec).await?,
        };
        if non_root {
            check_non_root(user, image.as_ref()).map_err(|source| {
                let container = container_location(pod, &spec.name);
                SecurityContextError::NonRoot { container, source }
            })?;
        }
        if user.is_none() {
            // An image without a user runs as root; the CRI requires a user with a group.
            (user, username) = image.map(|i| image_user(&i)).unwrap_or((Some(0), String::new()));
        }
    }
    let mut security = convert(&container_context, &all);
    security.run_as_user = user;
    security.run_as_group = group;
    security.username = username;
    security.namespaces = sandbox::namespaces(shared, pod)?;
    let profile = container_context.seccomp_profile.as_ref().or(all.seccomp_profile.as_ref());
    security.seccomp = seccomp(profile, &shared.paths.seccomp(), shared.options.config.seccomp_default)?;
    security.apparmor = lifecycle::apparmor_profile(pods::spec(pod), spec).map(apparmor);
    security.target_container =
        target_container(pod, spec)?.filter(|_| security.namespaces.pid == NamespaceMode::Container);
    Ok(security)
}

/// Converts the fields that depend on the spec only.
fn convert(container: &ContainerSecurityContext, all: &PodSecurityContext) -> SecurityContext {
    let capabilities = container.capabilities.clone().unwrap_or_default();
    let unmasked = container.proc_mount.as_deref() == Some("Unmasked");
    SecurityContext {
        supplemental_groups: all
            .fs_group
            .into_iter()
            .chain(all.supplemental_groups.iter().flatten().copied())
            .collect(),
        supplemental_groups_policy: match all.supplemental_groups_policy.as_deref() {
            Some("Strict") => SupplementalGroupsPolicy::Strict,
            _ => SupplementalGroupsPolicy::Merge,
        },
        privileged: container.privileged == Some(true),
        readonly_rootfs: container.read_only_root_filesystem == Some(true),
        no_new_privs: container.allow_privilege_escalation == Some(false),
        add_capabilities: capabilities.add.unwrap_or_default(),
        drop_capabilities: capabilities.drop.unwrap_or_default(),
        masked_paths: unmasked.then(Vec::new),
        readonly_paths: unmasked.then(Vec::new),
        ..SecurityContext::default()
    }
}

fn container_location(pod: &Pod, container: &str) -> String {
    format!("pod: \"{}_{}({})\", container: {container}", pod.name(), pod.namespace(), pod.uid())
}

async fn image(shared: &Shared, spec: &Spec) -> Result<Option<Image>, RuntimeError> {
    shared.runtime.image(spec.image.as_deref().unwrap_or_default().into()).await
}

/// Returns the numeric user of an image, or its name; root by default (`getImageUser`).
fn image_user(image: &Image) -> (Option<i64>, String) {
    match (image.uid, image.username.as_str()) {
        (Some(uid), _) => (Some(uid), String::new()),
        (None, "") => (Some(0), String::new()),
        (None, name) => (None, name.to_owned()),
    }
}

/// Checks `runAsNonRoot` (`verifyRunAsNonRoot`).
fn check_non_root(user: Option<i64>, image: Option<&Image>) -> Result<(), NonRootError> {
    match user {
        Some(0) => return Err(NonRootError::RunAsUser),
        Some(_) => return Ok(()),
        None => {}
    }
    match image.map_or((Some(0), String::new()), image_user) {
        (Some(0), _) => Err(NonRootError::RootImage),
        (None, name) if !name.is_empty() => Err(NonRootError::NonNumericUser(name)),
        _ => Ok(()),
    }
}

/// Returns the seccomp profile. Localhost profiles are in `seccomp` of the kubelet's root directory.
fn seccomp(
    profile: Option<&SeccompProfile>,
    root: &Path,
    by_default: bool,
) -> Result<runtime::SeccompProfile, SecurityContextError> {
    Ok(match profile.map(|p| (p.type_.as_str(), p.localhost_profile.as_deref().unwrap_or_default())) {
        Some(("RuntimeDefault", _)) => runtime::SeccompProfile::RuntimeDefault,
        Some(("Localhost", "")) => return Err(SecurityContextError::NoLocalhostProfile),
        Some(("Localhost", name)) => runtime::SeccompProfile::Localhost(root.join(PathBuf::from(name))),
        None if by_default => runtime::SeccompProfile::RuntimeDefault,
        _ => runtime::SeccompProfile::Unconfined,
    })
}

fn apparmor(profile: &AppArmorProfile) -> runtime::AppArmorProfile {
    match profile.type_.as_str() {
        "RuntimeDefault" => runtime::AppArmorProfile::RuntimeDefault,
        "Localhost" => runtime::AppArmorProfile::Localhost(profile.localhost_profile.clone().unwrap_or_default()),
        _ => runtime::AppArmorProfile::Unconfined,
    }
}

/// Returns the container whose PID namespace an ephemeral container joins.
fn target_container(pod: &Pod, spec: &Spec) -> Result<Option<ContainerId>, SecurityContextError> {
    let list = pods::spec(pod).ephemeral_containers.iter().flatten();
    let target_name = list.filter(|e| e.name == spec.name).find_map(|e| e.target_container_name.clone());
    let Some(name) = target_name.filter(|name| !name.is_empty()) else { return Ok(None) };
    match pod.container_id(&name, false) {
        Some((id, _)) => Ok(Some(ContainerId(id))),
        None => Err(SecurityContextError::NoTargetContainer(name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn image(uid: Option<i64>, username: &str) -> Image {
        let (tags, digests, username) = (Vec::new(), Vec::new(), username.to_owned());
        Image { id: "i".to_owned(), tags, digests, size: 0, uid, username, pinned: false }
    }

    #[track_caller]
    fn check_user(user: Option<i64>, image: Option<Image>, expected: Result<(), &str>) {
        let found = check_non_root(user, image.as_ref()).map_err(|e| e.to_string());
        assert_eq!(found, expected.map_err(str::to_owned));
    }

    #[test]
    fn run_as_non_root_rejects_root() {
        check_user(Some(1000), None, Ok(()));
        check_user(Some(0), Some(image(Some(7), "")), Err("container's runAsUser breaks non-root policy"));
        check_user(None, Some(image(Some(7), "")), Ok(()));
        let root = "container has runAsNonRoot and image will run as root";
        check_user(None, Some(image(Some(0), "")), Err(root));
        check_user(None, Some(image(None, "")), Err(root));
        let by_name = "container has runAsNonRoot and image has non-numeric user (app), cannot verify user is non-root";
        check_user(None, Some(image(None, "app")), Err(by_name));
    }

    #[track_caller]
    fn check_profile(profile: Value, by_default: bool, expected: Result<runtime::SeccompProfile, &str>) {
        let profile: Option<SeccompProfile> = serde_json::from_value(profile).unwrap();
        let found = seccomp(profile.as_ref(), Path::new("/k/seccomp"), by_default).map_err(|e| e.to_string());
        assert_eq!(found, expected.map_err(str::to_owned));
    }

    #[test]
    fn seccomp_profile_is_the_specs_or_the_nodes_default() {
        use runtime::SeccompProfile::{Localhost, RuntimeDefault, Unconfined};
        check_profile(Value::Null, false, Ok(Unconfined));
        check_profile(Value::Null, true, Ok(RuntimeDefault));
        check_profile(json!({"type": "Unconfined"}), true, Ok(Unconfined));
        check_profile(json!({"type": "RuntimeDefault"}), false, Ok(RuntimeDefault));
        let local = json!({"type": "Localhost", "localhostProfile": "p/x.json"});
        check_profile(local, false, Ok(Localhost("/k/seccomp/p/x.json".into())));
        let nothing = "localhostProfile must be set if seccompProfile type is Localhost.";
        check_profile(json!({"type": "Localhost"}), false, Err(nothing));
    }

    #[test]
    fn security_context_is_converted_from_the_spec() {
        let container_context = json!({"capabilities": {"add": ["NET_ADMIN"], "drop": ["ALL"]}, "allowPrivilegeEscalation": false,
            "readOnlyRootFilesystem": true, "procMount": "Unmasked"});
        let all = json!({"fsGroup": 5, "supplementalGroups": [6, 7], "supplementalGroupsPolicy": "Strict"});
        let found = convert(&serde_json::from_value(container_context).unwrap(), &serde_json::from_value(all).unwrap());
        assert_eq!(found.supplemental_groups, [5, 6, 7]);
        assert_eq!(found.supplemental_groups_policy, SupplementalGroupsPolicy::Strict);
        assert_eq!((found.add_capabilities, found.drop_capabilities), (vec!["NET_ADMIN".into()], vec!["ALL".into()]));
        assert_eq!((found.no_new_privs, found.readonly_rootfs, found.privileged), (true, true, false));
        assert_eq!((found.masked_paths, found.readonly_paths), (Some(Vec::new()), Some(Vec::new())));
        let nothing = convert(&ContainerSecurityContext::default(), &PodSecurityContext::default());
        assert_eq!((nothing.masked_paths, nothing.no_new_privs), (None, false));
    }
}
