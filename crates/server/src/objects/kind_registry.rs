//! Registry of the served kinds: built-in kinds and custom resources.
//!
//! A request uses one [`ServedKinds`] snapshot until it ends; a changed CustomResourceDefinition creates a new one.

use ::admission::policy::ResourceType;
use api::{feature_gates::FeatureGates, version::version_priority};
use kinds::{ALL, Custom, Kind, KindInfo, KindRef};
use parking_lot::RwLock;
use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
    sync::{Arc, LazyLock},
};
use store::Object;

/// A CustomResourceDefinition and the kinds of its served versions.
type ServedDefinition<'a> = (&'a Object, &'a [Arc<Custom>]);

/// Snapshot of the served kinds.
#[derive(Default)]
pub(crate) struct ServedKinds {
    /// Custom resources by group, version and plural.
    custom: BTreeMap<(&'static str, &'static str, &'static str), Arc<Custom>>,
    /// CustomResourceDefinitions by group and version, from which OpenAPI documents are built.
    definitions: BTreeMap<(&'static str, &'static str), Vec<Object>>,
    groups: Vec<Group>,
    gates: Arc<FeatureGates>,
}

/// An API group and its versions.
#[derive(Debug, Clone)]
pub(crate) struct Group {
    pub(crate) name: &'static str,
    /// The preferred version first.
    pub(crate) versions: Vec<&'static str>,
}

/// The built-in groups with the default feature gates.
static BUILT_IN: LazyLock<Vec<Group>> = LazyLock::new(|| groups(&FeatureGates::default()));

/// Returns the built-in groups in the order of [`ALL`]: the core group first, and the preferred version of a group first.
fn groups(gates: &FeatureGates) -> Vec<Group> {
    let mut groups = Vec::new();
    let served = ALL.iter().map(|k| k.info()).filter(|info| info.is_served(gates));
    served.for_each(|info| add_version(&mut groups, info.group, info.version));
    groups
}

fn add_version(groups: &mut Vec<Group>, name: &'static str, version: &'static str) {
    match groups.iter_mut().find(|g| g.name == name) {
        None => groups.push(Group { name, versions: vec![version] }),
        Some(group) if group.versions.contains(&version) => {}
        Some(group) => group.versions.push(version),
    }
}

/// Returns the built-in groups and versions, regardless of feature gates.
pub(crate) fn built_in_versions() -> impl Iterator<Item = (&'static str, &'static str)> {
    let mut all = Vec::new();
    ALL.iter().for_each(|k| add_version(&mut all, k.info().group, k.info().version));
    all.into_iter().flat_map(|g| g.versions.into_iter().map(move |v| (g.name, v)))
}

/// Returns the built-in kinds of a group and version, regardless of feature gates.
pub(crate) fn built_in_kinds<'a>(
    group: &'a str,
    version: &'a str,
) -> impl Iterator<Item = &'static dyn Kind> + use<'a> {
    ALL.iter().copied().filter(move |k| (k.info().group, k.info().version) == (group, version))
}

/// Indexes the built-in kinds, regardless of feature gates: each request looks up a kind.
fn index_by(name: impl Fn(&'static dyn Kind) -> &'static str) -> HashMap<&'static str, Vec<&'static dyn Kind>> {
    let mut all: HashMap<_, Vec<_>> = HashMap::new();
    ALL.iter().for_each(|kind| all.entry(name(*kind)).or_default().push(*kind));
    all
}

static BY_PLURAL: LazyLock<HashMap<&str, Vec<&dyn Kind>>> = LazyLock::new(|| index_by(|kind| kind.info().plural));
static BY_STORAGE: LazyLock<HashMap<&str, Vec<&dyn Kind>>> = LazyLock::new(|| index_by(|kind| kind.info().storage));

impl ServedKinds {
    fn new<'a>(definitions: impl Iterator<Item = ServedDefinition<'a>>, gates: Arc<FeatureGates>) -> Self {
        let mut served = Self { groups: groups(&gates), gates, ..Self::default() };
        let mut custom: Vec<Group> = Vec::new();
        for (object, kinds) in definitions {
            for kind in kinds {
                let info = kind.info();
                served.custom.insert((info.group, info.version, info.plural), Arc::clone(kind));
                served.definitions.entry((info.group, info.version)).or_default().push(object.clone());
                let built_in = served.groups.iter().any(|g| g.name == info.group);
                add_version(if built_in { &mut served.groups } else { &mut custom }, info.group, info.version);
            }
        }
        custom.iter_mut().for_each(|group| group.versions.sort_by_key(|version| Reverse(version_priority(version))));
        custom.sort_by_key(|group| group.name);
        served.groups.extend(custom);
        served
    }

    /// Finds the kind of a path.
    pub(crate) fn find(&self, group: &str, version: &str, plural: &str) -> Option<KindRef> {
        let built_in = BY_PLURAL.get(plural).into_iter().flatten().find(|k| {
            let info = k.info();
            info.group == group && info.version == version && info.is_served(&self.gates)
        });
        match built_in {
            Some(kind) => Some(KindRef::BuiltIn(*kind)),
            None => {
                // Shortens the lifetime of the keys, so that borrowed names can be looked up.
                let custom: &BTreeMap<(&str, &str, &str), Arc<Custom>> = &self.custom;
                custom.get(&(group, version, plural)).map(|kind| KindRef::Custom(Arc::clone(kind)))
            }
        }
    }

    /// Returns the kinds (group versions) that share a storage name.
    pub(crate) fn kinds_of_storage(&self, storage: &str) -> Vec<KindRef> {
        let served = BY_STORAGE.get(storage).into_iter().flatten().filter(|k| k.info().is_served(&self.gates));
        let built_in = served.map(|k| KindRef::BuiltIn(*k));
        let custom = self.custom.values().filter(|k| k.info().storage == storage);
        built_in.chain(custom.map(|k| KindRef::Custom(Arc::clone(k)))).collect()
    }

    /// Returns all groups.
    pub(crate) fn groups(&self) -> &[Group] {
        if self.groups.is_empty() { &BUILT_IN } else { &self.groups }
    }

    /// Whether a version of a group is served.
    pub(crate) fn has_version(&self, group: &str, version: &str) -> bool {
        self.groups().iter().any(|g| g.name == group && g.versions.contains(&version))
    }

    /// Returns the kinds of a group and version.
    pub(crate) fn kinds<'a>(
        &'a self,
        group: &'a str,
        version: &'a str,
    ) -> impl Iterator<Item = &'a dyn Kind> + use<'a> {
        let custom = self.custom.values().filter(move |k| (k.info().group, k.info().version) == (group, version));
        let built_in = built_in_kinds(group, version).filter(|k| k.info().is_served(&self.gates));
        built_in.map(|k| k as &dyn Kind).chain(custom.map(|k| k.as_ref() as &dyn Kind))
    }

    /// Finds the kind of objects with an `apiVersion` and `kind`. Virtual kinds, such as SubjectAccessReview, have no objects.
    pub(crate) fn find_object_kind<'a>(&'a self, api_version: &'a str, kind: &str) -> Option<&'a dyn Kind> {
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
        self.kinds(group, version).find(|known| known.info().kind == kind && !known.info().create_only)
    }

    /// Returns the CEL type of a custom resource, by its group, version, and plural or kind.
    pub(crate) fn custom_type(&self, group: &str, version: &str, name: &str) -> Option<ResourceType> {
        let matches = |info: &KindInfo| {
            (info.group, info.version) == (group, version) && (info.plural == name || info.kind == name)
        };
        self.custom.values().find(|kind| matches(kind.info())).map(|kind| kind.expression_kind())
    }

    /// Returns the groups and versions that have no built-in kinds, with their CustomResourceDefinitions.
    pub(crate) fn custom_versions(&self) -> impl Iterator<Item = (&'static str, &'static str, &[Object])> {
        let is_custom = |(group, version): &(&str, &str)| built_in_kinds(group, version).next().is_none();
        self.definitions.iter().filter(move |(key, _)| is_custom(key)).map(|((g, v), all)| (*g, *v, all.as_slice()))
    }
}

/// The current [`ServedKinds`], and the state from which the next one is built.
#[derive(Default)]
pub(crate) struct KindRegistry {
    served: RwLock<Arc<ServedKinds>>,
    gates: RwLock<Arc<FeatureGates>>,
}

impl KindRegistry {
    /// Returns the current snapshot.
    pub(crate) fn served(&self) -> Arc<ServedKinds> {
        Arc::clone(&self.served.read())
    }

    /// Sets the feature gates, which apply from the next snapshot on.
    pub(crate) fn set_gates(&self, gates: &Arc<FeatureGates>) {
        *self.gates.write() = Arc::clone(gates);
    }

    /// Replaces the snapshot. Watches of removed or changed custom resources end.
    pub(crate) fn replace_served<'a>(&self, definitions: impl Iterator<Item = ServedDefinition<'a>>) {
        let gates = Arc::clone(&self.gates.read());
        let served = Arc::new(ServedKinds::new(definitions, gates));
        let old_kinds = std::mem::replace(&mut *self.served.write(), Arc::clone(&served));
        for (key, kind) in &old_kinds.custom {
            if served.custom.get(key).is_none_or(|now| !Arc::ptr_eq(now, kind)) {
                kind.cancel();
            }
        }
    }
}
