//! Every kind that is served: the built-in ones, which never change, and those that clients have defined.
//!
//! A request takes one [`Served`] and keeps it to its end; a change of what is served makes a new one.

use crate::{
    custom_resource_definitions::Definition,
    kinds::{ALL, Custom, Kind, KindInfo, KindRef},
    openapi::Documents,
};
use admission::policy::Known;
use api::{feature_gates::FeatureGates, version::priority};
use parking_lot::RwLock;
use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
    sync::{Arc, LazyLock},
};
use store::Object;

/// What is served at one moment.
#[derive(Default)]
pub(crate) struct Served {
    /// By group, version and plural.
    custom: BTreeMap<(&'static str, &'static str, &'static str), Arc<Custom>>,
    /// The definitions of those, by group and version; documents are made of them.
    definitions: BTreeMap<(&'static str, &'static str), Vec<Object>>,
    groups: Vec<Group>,
    /// Which features are on.
    gates: Arc<FeatureGates>,
}

/// A group, and its versions.
#[derive(Debug, Clone)]
pub(crate) struct Group {
    pub(crate) name: &'static str,
    /// The one that is preferred first.
    pub(crate) versions: Vec<&'static str>,
}

/// The built-in groups with the features that are on by default.
static BUILT_IN: LazyLock<Vec<Group>> = LazyLock::new(|| groups(&FeatureGates::default()));

/// The built-in groups in the order of [`ALL`]: the core group first, and of several versions the preferred one.
fn groups(gates: &FeatureGates) -> Vec<Group> {
    let mut groups = Vec::new();
    let served = ALL.iter().map(|k| k.info()).filter(|info| info.is_served(gates));
    served.for_each(|info| note(&mut groups, info.group, info.version));
    groups
}

fn note(groups: &mut Vec<Group>, name: &'static str, version: &'static str) {
    match groups.iter_mut().find(|g| g.name == name) {
        None => groups.push(Group { name, versions: vec![version] }),
        Some(group) if group.versions.contains(&version) => {}
        Some(group) => group.versions.push(version),
    }
}

/// Group and version of everything that is built in, whether the features are on that it needs or not.
pub(crate) fn built_in_versions() -> impl Iterator<Item = (&'static str, &'static str)> {
    let mut all = Vec::new();
    ALL.iter().for_each(|k| note(&mut all, k.info().group, k.info().version));
    all.into_iter().flat_map(|g| g.versions.into_iter().map(move |v| (g.name, v)))
}

/// The built-in kinds of a version of a group, whether the features are on that they need or not.
pub(crate) fn built_in<'a>(group: &'a str, version: &'a str) -> impl Iterator<Item = &'static dyn Kind> + use<'a> {
    ALL.iter().copied().filter(move |k| (k.info().group, k.info().version) == (group, version))
}

/// Built-in kinds by one of their names, whether the features are on that they need or not; each request asks for them.
fn by(name: impl Fn(&'static dyn Kind) -> &'static str) -> HashMap<&'static str, Vec<&'static dyn Kind>> {
    let mut all: HashMap<_, Vec<_>> = HashMap::new();
    ALL.iter().for_each(|kind| all.entry(name(*kind)).or_default().push(*kind));
    all
}

static BY_PLURAL: LazyLock<HashMap<&str, Vec<&dyn Kind>>> = LazyLock::new(|| by(|kind| kind.info().plural));
static BY_STORAGE: LazyLock<HashMap<&str, Vec<&dyn Kind>>> = LazyLock::new(|| by(|kind| kind.info().storage));

impl Served {
    fn of<'a>(definitions: impl Iterator<Item = &'a Definition>, gates: Arc<FeatureGates>) -> Self {
        let mut served = Self { groups: groups(&gates), gates, ..Self::default() };
        let mut own: Vec<Group> = Vec::new();
        for definition in definitions {
            for kind in &definition.kinds {
                let info = kind.info();
                served.custom.insert((info.group, info.version, info.plural), Arc::clone(kind));
                served.definitions.entry((info.group, info.version)).or_default().push(definition.object.clone());
                let built_in = served.groups.iter().any(|g| g.name == info.group);
                note(if built_in { &mut served.groups } else { &mut own }, info.group, info.version);
            }
        }
        own.iter_mut().for_each(|group| group.versions.sort_by_key(|version| Reverse(priority(version))));
        own.sort_by_key(|group| group.name);
        served.groups.extend(own);
        served
    }

    /// The kind behind a path.
    pub(crate) fn find(&self, group: &str, version: &str, plural: &str) -> Option<KindRef> {
        let built_in = BY_PLURAL.get(plural).into_iter().flatten().find(|k| {
            let info = k.info();
            info.group == group && info.version == version && info.is_served(&self.gates)
        });
        match built_in {
            Some(kind) => Some(KindRef::BuiltIn(*kind)),
            None => {
                // Seen as one of names that last no longer than these.
                let custom: &BTreeMap<(&str, &str, &str), Arc<Custom>> = &self.custom;
                custom.get(&(group, version, plural)).map(|kind| KindRef::Custom(Arc::clone(kind)))
            }
        }
    }

    /// Every form of the objects that are stored under this name.
    pub(crate) fn forms(&self, storage: &str) -> Vec<KindRef> {
        let served = BY_STORAGE.get(storage).into_iter().flatten().filter(|k| k.info().is_served(&self.gates));
        let built_in = served.map(|k| KindRef::BuiltIn(*k));
        let custom = self.custom.values().filter(|k| k.info().storage == storage);
        built_in.chain(custom.map(|k| KindRef::Custom(Arc::clone(k)))).collect()
    }

    /// All groups.
    pub(crate) fn groups(&self) -> &[Group] {
        if self.groups.is_empty() { &BUILT_IN } else { &self.groups }
    }

    /// Whether a version of a group is served.
    pub(crate) fn has(&self, group: &str, version: &str) -> bool {
        self.groups().iter().any(|g| g.name == group && g.versions.contains(&version))
    }

    /// The kinds of a version of a group.
    pub(crate) fn kinds<'a>(
        &'a self,
        group: &'a str,
        version: &'a str,
    ) -> impl Iterator<Item = &'a dyn Kind> + use<'a> {
        let custom = self.custom.values().filter(move |k| (k.info().group, k.info().version) == (group, version));
        let built_in = built_in(group, version).filter(|k| k.info().is_served(&self.gates));
        built_in.map(|k| k as &dyn Kind).chain(custom.map(|k| k.as_ref() as &dyn Kind))
    }

    /// The kind of objects that have this `apiVersion` and `kind`; what is only asked about is none.
    pub(crate) fn of_objects<'a>(&'a self, api_version: &'a str, kind: &str) -> Option<&'a dyn Kind> {
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
        self.kinds(group, version).find(|known| known.info().kind == kind && !known.info().question)
    }

    /// What expressions know of a kind that a client has defined, by its group, version, and plural or kind.
    pub(crate) fn known(&self, group: &str, version: &str, name: &str) -> Option<Known> {
        let is_it = |info: &KindInfo| {
            (info.group, info.version) == (group, version) && (info.plural == name || info.kind == name)
        };
        self.custom.values().find(|kind| is_it(kind.info())).map(|kind| kind.known())
    }

    /// Groups and versions that only clients have defined, with their definitions.
    pub(crate) fn defined(&self) -> impl Iterator<Item = (&'static str, &'static str, &[Object])> {
        let own = |(group, version): &(&str, &str)| built_in(group, version).next().is_none();
        self.definitions.iter().filter(move |(key, _)| own(key)).map(|((g, v), all)| (*g, *v, all.as_slice()))
    }
}

/// What is served, now and from now on.
#[derive(Default)]
pub(crate) struct Registry {
    served: RwLock<Arc<Served>>,
    /// Which features are on.
    gates: RwLock<Arc<FeatureGates>>,
    /// What is known of each definition; held by whoever brings that up to date.
    pub(crate) definitions: tokio::sync::Mutex<HashMap<Arc<str>, Definition>>,
    pub(crate) documents: Documents,
}

impl Registry {
    /// What is served now.
    pub(crate) fn served(&self) -> Arc<Served> {
        Arc::clone(&self.served.read())
    }

    /// From the next time on that it is said what is served, these features are on.
    pub(crate) fn set_gates(&self, gates: &Arc<FeatureGates>) {
        *self.gates.write() = Arc::clone(gates);
    }

    /// From now on, this is served. Watches of what is no longer, or is otherwise, end.
    pub(crate) fn serve<'a>(&self, definitions: impl Iterator<Item = &'a Definition>) {
        let gates = Arc::clone(&self.gates.read());
        let served = Arc::new(Served::of(definitions, gates));
        let before = std::mem::replace(&mut *self.served.write(), Arc::clone(&served));
        for (key, kind) in &before.custom {
            if served.custom.get(key).is_none_or(|now| !Arc::ptr_eq(now, kind)) {
                kind.end();
            }
        }
    }
}
