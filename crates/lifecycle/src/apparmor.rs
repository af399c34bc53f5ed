//! AppArmor profiles of containers (KEP-24, `pkg/security/apparmor`).

use api::pod;
use k8s_openapi::api::core::v1::{AppArmorProfile, Container, PodSpec};

/// Returns the AppArmor profile of a container: its own, else its Pod's.
#[must_use]
pub fn profile<'a>(spec: &'a PodSpec, container: &'a Container) -> Option<&'a AppArmorProfile> {
    let container_profile = container.security_context.as_ref().and_then(|s| s.app_armor_profile.as_ref());
    container_profile.or_else(|| spec.security_context.as_ref()?.app_armor_profile.as_ref())
}

/// Returns the rejection of a Pod whose profile the node cannot enforce.
pub(crate) fn rejection(spec: &PodSpec, enabled: bool) -> Option<(String, String)> {
    let mut profiles = pod::containers(spec).filter_map(|(_, c)| profile(spec, c));
    let confined = profiles.any(|p| p.type_ != "Unconfined");
    let message = "Cannot enforce AppArmor: AppArmor is not enabled on the host";
    (confined && !enabled).then(|| ("AppArmor".to_owned(), message.to_owned()))
}
