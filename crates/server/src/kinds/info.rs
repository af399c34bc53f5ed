//! What a kind is called, and what can be done with its objects.

use api::feature_gates::{FeatureGates, Gate};

/// What discovery says about a kind, and where its objects live.
#[derive(Debug)]
pub struct KindInfo {
    /// API group; empty for the core group.
    pub group: &'static str,
    /// API version, for example `v1`.
    pub version: &'static str,
    /// For example `Pod`.
    pub kind: &'static str,
    /// Resource name, for example `pods`.
    pub plural: &'static str,
    /// For example `pod`.
    pub singular: &'static str,
    /// For example `["po"]`.
    pub short_names: &'static [&'static str],
    /// For example `["all"]`.
    pub categories: &'static [&'static str],
    /// Whether its objects live in a namespace.
    pub namespaced: bool,
    /// Whether it has a `status` subresource.
    pub status: bool,
    /// Fields of its metadata that a write of the status leaves as they are. Of most kinds it may change all.
    pub kept_by_status: &'static [&'static str],
    /// Whether `metadata.generation` counts changes of its spec.
    pub generation: bool,
    /// Whether `metadata.generation` counts changes of its annotations, too.
    pub generation_of_annotations: bool,
    /// Further subresources that discovery lists: (name, kind of the body with group/version if not the kind itself, verbs).
    pub subresources: &'static [Subresource],
    /// The resource under which its objects are stored; two versions or groups of one kind name the same
    /// (`events` and `events.events.k8s.io`).
    pub storage: &'static str,
    /// Whether its objects are stored in the form of another version or group.
    pub converted: bool,
    /// Whether dependents stay when a deletion does not say what becomes of them.
    pub orphans: bool,
    /// What is told to who deletes one without saying what becomes of them.
    pub orphan_warning: Option<&'static str>,
    /// Whether an update makes an object that is not there (`AllowCreateOnUpdate`).
    pub created_by_update: bool,
    /// Whether an update must say which version it is of (`AllowUnconditionalUpdate` is false).
    pub needs_version: bool,
    /// What every client of it is told, if it should not be used any more.
    pub deprecation: Option<&'static str>,
    /// Whether its objects are made when somebody asks for them: they can be read, and are stored nowhere.
    pub computed: bool,
    /// Whether it is served here only as long as no other server does: as long as its APIService names no Service.
    pub stand_in: bool,
    /// The feature without which it is not served.
    pub gate: Option<Gate>,
    /// Whether it is a question, which can be asked (created) and nothing else, and is stored nowhere.
    pub question: bool,
}

/// What `ResetObjectMetaForStatus` takes back, of what a client can change.
pub(super) const METADATA: &[&str] = &["annotations", "finalizers", "labels", "ownerReferences"];

impl KindInfo {
    /// A namespaced kind of the core group's `v1` without anything particular.
    #[must_use]
    pub const fn core(kind: &'static str, plural: &'static str, singular: &'static str) -> Self {
        Self::of("", kind, plural, singular)
    }

    /// A namespaced kind of a group's `v1` without anything particular.
    #[must_use]
    pub const fn of(group: &'static str, kind: &'static str, plural: &'static str, singular: &'static str) -> Self {
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
            kept_by_status: &[],
            generation: false,
            generation_of_annotations: false,
            subresources: &[],
            storage: plural,
            converted: false,
            orphans: false,
            orphan_warning: None,
            created_by_update: false,
            needs_version: false,
            deprecation: None,
            computed: false,
            stand_in: false,
            gate: None,
            question: false,
        }
    }

    /// The same kind, in no namespace.
    #[must_use]
    pub const fn of_cluster(
        group: &'static str,
        kind: &'static str,
        plural: &'static str,
        singular: &'static str,
    ) -> Self {
        Self { namespaced: false, ..Self::of(group, kind, plural, singular) }
    }

    /// The subresource of this name.
    #[must_use]
    pub fn subresource(&self, name: &str) -> Option<&'static Subresource> {
        self.subresources.iter().find(|s| s.name == name)
    }

    /// `group/version`, or the version alone for the core group.
    #[must_use]
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.to_owned() } else { format!("{}/{}", self.group, self.version) }
    }

    /// Whether a deletion answers with the object even when it is gone (`ReturnDeletedObject` of its storage). Of all other
    /// kinds it answers with a Status then.
    pub(crate) fn returns_deleted_object(&self) -> bool {
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

    /// Whether it is served with these features.
    pub(crate) fn is_served(&self, gates: &FeatureGates) -> bool {
        self.gate.is_none_or(|gate| gates.enabled(gate))
    }

    /// `plural.group`, or the plural alone for the core group: the name in error messages.
    #[must_use]
    pub fn group_resource(&self) -> String {
        if self.group.is_empty() { self.plural.to_owned() } else { format!("{}.{}", self.plural, self.group) }
    }
}

/// A subresource, as discovery lists it.
#[derive(Debug)]
pub struct Subresource {
    /// For example `binding`.
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
    /// What is passed on, with every method.
    pub(super) const fn proxy(kind: &'static str) -> Self {
        Self { name: "proxy", group: "", version: "v1", kind, verbs: &["create", "delete", "get", "patch", "update"] }
    }
}
