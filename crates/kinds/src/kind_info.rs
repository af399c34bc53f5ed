//! Names, scope and properties of a kind ([`KindInfo`]).

use api::feature_gates::{FeatureGates, Gate};
use errors::{GroupKind, GroupResource};

/// Names, scope and properties of a kind, as discovery, storage and the generic handlers use them.
#[derive(Debug)]
pub struct KindInfo {
    /// API group; empty for the core group.
    pub group: &'static str,
    /// API version, for example `v1`.
    pub version: &'static str,
    /// Kind, for example `Pod`.
    pub kind: &'static str,
    /// Resource name, for example `pods`.
    pub plural: &'static str,
    /// Singular resource name, for example `pod`.
    pub singular: &'static str,
    /// Short names, for example `["po"]`.
    pub short_names: &'static [&'static str],
    /// Categories, for example `["all"]`.
    pub categories: &'static [&'static str],
    /// Whether it is namespaced.
    pub namespaced: bool,
    /// Whether it has a `status` subresource.
    pub status: bool,
    /// Metadata fields that an update of the status does not change (`GetResetFields`). Empty for most kinds.
    pub reset_by_status_update: &'static [&'static str],
    /// Whether changes of the spec increment `metadata.generation`.
    pub generation: bool,
    /// Whether changes of the annotations also increment `metadata.generation`.
    pub annotations_bump_generation: bool,
    /// Further subresources that discovery lists.
    pub subresources: &'static [Subresource],
    /// Resource under which its objects are stored. Versions or groups of one kind share it (`events` and
    /// `events.events.k8s.io`).
    pub storage: &'static str,
    /// Whether its objects are stored in another version or group, and converted when they are read and written.
    pub converted: bool,
    /// Whether a deletion without a propagation policy orphans dependents.
    pub orphans_by_default: bool,
    /// Warning for a deletion without a propagation policy.
    pub orphan_warning: Option<&'static str>,
    /// Whether an update creates an object that does not exist (`AllowCreateOnUpdate`).
    pub allow_create_on_update: bool,
    /// Whether an update must have a `resourceVersion` (`AllowUnconditionalUpdate` is false).
    pub requires_resource_version: bool,
    /// Deprecation warning for every request, if the version is deprecated.
    pub deprecation: Option<&'static str>,
    /// Whether its objects are computed for each read and not stored.
    pub computed: bool,
    /// Whether it is served locally only while its APIService has no Service.
    pub aggregation_fallback: bool,
    /// Feature gate that enables it.
    pub gate: Option<Gate>,
    /// Whether its objects can only be created and are not stored, such as `SubjectAccessReview` and `Binding`.
    pub create_only: bool,
}

/// Metadata fields that `ResetObjectMetaForStatus` resets and a client can change.
pub(super) const METADATA_RESET_FOR_STATUS: &[&str] = &["annotations", "finalizers", "labels", "ownerReferences"];

impl KindInfo {
    /// Returns a namespaced kind of the core group's `v1` with default properties.
    #[must_use]
    pub const fn core(kind: &'static str, plural: &'static str, singular: &'static str) -> Self {
        Self::namespaced("", kind, plural, singular)
    }

    /// Returns a namespaced kind of the group's `v1` with default properties.
    #[must_use]
    pub const fn namespaced(
        group: &'static str,
        kind: &'static str,
        plural: &'static str,
        singular: &'static str,
    ) -> Self {
        Self {
            group,
            version: "v1",
            kind,
            plural,
            singular,
            short_names: &[],
            categories: &[],
            namespaced: true,
            status: false,
            reset_by_status_update: &[],
            generation: false,
            annotations_bump_generation: false,
            subresources: &[],
            storage: plural,
            converted: false,
            orphans_by_default: false,
            orphan_warning: None,
            allow_create_on_update: false,
            requires_resource_version: false,
            deprecation: None,
            computed: false,
            aggregation_fallback: false,
            gate: None,
            create_only: false,
        }
    }

    /// Returns a cluster-scoped kind of the group's `v1` with default properties.
    #[must_use]
    pub const fn cluster_scoped(
        group: &'static str,
        kind: &'static str,
        plural: &'static str,
        singular: &'static str,
    ) -> Self {
        Self { namespaced: false, ..Self::namespaced(group, kind, plural, singular) }
    }

    /// Finds a subresource by its name.
    #[must_use]
    pub fn subresource(&self, name: &str) -> Option<&'static Subresource> {
        self.subresources.iter().find(|s| s.name == name)
    }

    /// Returns `group/version`, or the version alone for the core group.
    #[must_use]
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.to_owned() } else { format!("{}/{}", self.group, self.version) }
    }

    /// Whether a deletion that removes the object returns it (`ReturnDeletedObject` of its storage). For all other kinds, the
    /// response is a Status.
    pub fn returns_deleted_object(&self) -> bool {
        match self.group {
            "" => matches!(
                self.kind,
                "Namespace"
                    | "PersistentVolume"
                    | "PersistentVolumeClaim"
                    | "Pod"
                    | "PodTemplate"
                    | "ResourceQuota"
                    | "Service"
                    | "ServiceAccount"
            ),
            "resource.k8s.io" => true,
            "storage.k8s.io" => self.kind != "CSIStorageCapacity",
            _ => false,
        }
    }

    /// Whether it is served with these feature gates.
    pub fn is_served(&self, gates: &FeatureGates) -> bool {
        self.gate.is_none_or(|gate| gates.enabled(gate))
    }

    /// Returns `plural.group`, or the plural alone for the core group, as error messages have it.
    #[must_use]
    pub fn group_resource(&self) -> String {
        GroupResource::from(self).to_string()
    }
}

/// A subresource, as discovery lists it.
#[derive(Debug)]
pub struct Subresource {
    /// Name, for example `binding`.
    pub name: &'static str,
    /// Group of the body; empty for the core group.
    pub group: &'static str,
    /// Version of the body.
    pub version: &'static str,
    /// Kind of the body, for example `Binding`.
    pub kind: &'static str,
    /// Verbs.
    pub verbs: &'static [&'static str],
}

impl Subresource {
    /// The `proxy` subresource, with every verb.
    pub(super) const fn proxy(kind: &'static str) -> Self {
        Self { name: "proxy", group: "", version: "v1", kind, verbs: &["create", "delete", "get", "patch", "update"] }
    }
}

impl<'a> From<&'a KindInfo> for GroupResource<'a> {
    fn from(info: &'a KindInfo) -> Self {
        Self::new(info.group, info.plural)
    }
}

impl<'a> From<&'a KindInfo> for GroupKind<'a> {
    fn from(info: &'a KindInfo) -> Self {
        // Upstream's errors of both Event versions name the core group.
        let group = if info.group == "events.k8s.io" { "" } else { info.group };
        Self::new(group, info.kind)
    }
}
