//! Controllers of CustomResourceDefinitions: naming, establishing and finalizing (`apiextensions-apiserver/pkg/controller`).
//!
//! Every write of a definition reconciles all of them before its response, one write after the other. Nothing runs
//! between writes.

mod conditions;
mod finalizer;

use crate::{
    objects::{
        call::Call, kind_registry::KindRegistry, managed_fields::RequestedManagedFields, managed_object::ManagedObject,
        request_scope::RequestScope,
    },
    rest::{
        generic_registry::GenericRegistry,
        update::{self, FieldOwnership, UpdatedObject},
    },
};
use audit::AuditContext;
use bytes::Bytes;
use errors::ApiError;
use http::{HeaderMap, Method};
use kinds::{CUSTOM_RESOURCE_DEFINITION, Custom, custom::DefinitionContext};
use request::{Query, UserInfo};
use response::HandlerResult;
use serde_json::Value;
use std::{collections::HashMap, sync::Arc};
use store::{Object, Revision, Scope};

/// Storage name of definitions.
const STORAGE: &str = "customresourcedefinitions";
/// Maximal number of status writes of one reconciliation.
const MAX_STATUS_WRITES: usize = 20;

/// A definition at its last reconciliation.
pub(crate) struct Definition {
    pub(crate) object: Object,
    value: Value,
    /// The versions that are served.
    pub(crate) kinds: Vec<Arc<Custom>>,
    /// The revision since which the schema is unchanged.
    since: Revision,
}

impl Definition {
    /// Reads a definition; its kinds are kept when no field that they depend on has changed.
    fn read(object: Object, old: Option<&Self>) -> Self {
        let value: Value = serde_json::from_slice(&object.data).unwrap_or_default();
        let relevant = |v: &Value| [&v["spec"], &v["status"]["acceptedNames"], &v["metadata"]["uid"]].map(Clone::clone);
        let is_established = conditions::is_true(&value, "Established");
        if let Some(old) = old.filter(|b| relevant(&b.value) == relevant(&value))
            && conditions::is_true(&old.value, "Established") == is_established
        {
            return Self { object, value, kinds: old.kinds.clone(), since: old.since }.mark_terminating();
        }
        // Objects that are stored since an unchanged schema's revision have its defaults.
        let since = match old {
            Some(old) if old.value["spec"] == value["spec"] => old.since,
            _ => object.revision,
        };
        let family = DefinitionContext::new(&value, since);
        let versions = value["spec"]["versions"].as_array().into_iter().flatten();
        let served = versions.filter(|v| is_established && v["served"] == true);
        let kinds = served.filter_map(|v| Custom::from_version(&family, v)).map(Arc::new).collect();
        Self { object, value, kinds, since }.mark_terminating()
    }

    /// Marks the kinds of a terminating definition.
    fn mark_terminating(self) -> Self {
        if self.is_terminating() {
            self.kinds.iter().for_each(|kind| kind.mark_terminating());
        }
        self
    }

    /// Returns the definition, and the kinds of its served versions.
    fn served(&self) -> (&Object, &[Arc<Custom>]) {
        (&self.object, &self.kinds)
    }

    fn name(&self) -> &str {
        &self.object.key.name
    }

    fn is_terminating(&self) -> bool {
        !self.value["metadata"]["deletionTimestamp"].is_null()
    }
}

/// What the controllers of definitions need of the API server. Cheap to clone.
#[derive(Clone)]
pub(crate) struct CustomResources {
    pub(crate) registry: GenericRegistry,
    /// The kinds that are served.
    pub(crate) kinds: Arc<KindRegistry>,
    pub(crate) definitions: Arc<Definitions>,
}

/// State of each CustomResourceDefinition by name; locked while the definitions are reconciled.
pub(crate) type Definitions = tokio::sync::Mutex<HashMap<Arc<str>, Definition>>;

/// Serves the kinds of the stored definitions that are established already.
pub(crate) fn load(crds: &CustomResources) {
    let mut known = HashMap::new();
    refresh(crds, &mut known);
    crds.kinds.replace_served(known.values().map(Definition::served));
    if let Ok(mut definitions) = crds.definitions.try_lock() {
        *definitions = known;
    }
}

/// Whether a request for this resource must reconcile definitions before its response.
pub(crate) fn requires_reconcile(resource: &RequestScope, method: &Method) -> bool {
    let writes = !matches!(*method, Method::GET | Method::HEAD);
    writes && (resource.kind.info().storage == STORAGE || resource.kind.is_terminating())
}

/// Reconciles all definitions, in a task that continues when the caller is dropped.
pub(crate) async fn reconcile(crds: &CustomResources) {
    let crds = crds.clone();
    let work = tokio::spawn(async move {
        let mut known = crds.definitions.lock().await;
        for _ in 0..MAX_STATUS_WRITES {
            refresh(&crds, &mut known);
            if !write_one_status(&crds, &known).await {
                break;
            }
        }
        crds.kinds.replace_served(known.values().map(Definition::served));
        for definition in known.values().filter(|d| d.is_terminating()) {
            finalizer::spawn(&crds, definition);
        }
    });
    if work.await.is_err() {
        tracing::error!("failed to reconcile CustomResourceDefinitions");
    }
}

/// Reads the definitions that have changed.
fn refresh(crds: &CustomResources, known: &mut HashMap<Arc<str>, Definition>) {
    let objects = crds.registry.store.list(&Scope::resource(STORAGE), None, None).objects;
    let mut old_definitions = std::mem::take(known);
    for object in objects {
        let name = Arc::clone(&object.key.name);
        let definition = match old_definitions.remove(&name) {
            Some(same) if same.object.revision == object.revision => same,
            other => Definition::read(object, other.as_ref()),
        };
        known.insert(name, definition);
    }
}

/// Writes the first status that is not as desired; returns whether there was one.
async fn write_one_status(crds: &CustomResources, known: &HashMap<Arc<str>, Definition>) -> bool {
    let mut all: Vec<&Definition> = known.values().collect();
    // The oldest definition has the names.
    all.sort_by_key(|d| d.object.create_revision);
    for definition in &all {
        let group = &definition.value["spec"]["group"];
        let others = all.iter().filter(|d| d.name() != definition.name() && d.value["spec"]["group"] == *group);
        let others: Vec<&Value> = others.map(|d| &d.value).collect();
        let Some(status) = conditions::desired_status(&definition.value, &others) else { continue };
        let revision = definition.value["metadata"]["resourceVersion"].clone();
        let written = update_definition(crds, definition.name(), Some("status"), |value| {
            value["metadata"]["resourceVersion"] = revision.clone();
            value["status"] = status.clone();
        });
        // A concurrent writer reconciles after its write.
        match written.await {
            Ok(_) => return true,
            Err(error) if error.code == 409 || error.code == 404 => {}
            Err(error) => {
                tracing::warn!(name = definition.name(), %error, "failed to write the status of a definition");
            }
        }
    }
    false
}

/// Updates a definition, or a subresource of it, as `system:apiserver`.
async fn update_definition(
    crds: &CustomResources,
    name: &str,
    subresource: Option<&str>,
    mutate: impl Fn(&mut Value),
) -> Result<(), ApiError> {
    let resource = RequestScope::of_cluster_object(CUSTOM_RESOURCE_DEFINITION, name, subresource);
    let make = |old: &ManagedObject| {
        let mut object = old.object.clone();
        mutate(&mut object);
        Ok(UpdatedObject {
            object,
            warnings: Vec::new(),
            ownership: FieldOwnership::Updated(RequestedManagedFields::Absent),
        })
    };
    update::update_object(&crds.registry, &resource, &internal_call(), false, make).await.map(drop)
}

/// Builds the call of an internal update.
fn internal_call() -> Call {
    Call {
        method: Method::PUT,
        query: Query::parse("fieldManager=kube-apiserver"),
        raw_query: String::new(),
        accept: String::new(),
        content_type: String::new(),
        body: Bytes::new(),
        headers: HeaderMap::new(),
        user: UserInfo::component("system:apiserver"),
        upgrade: None,
        deadline: None,
        audit: AuditContext::default(),
        warnings: parking_lot::Mutex::default(),
    }
}

/// Reconciles before a successful response is sent.
pub(crate) async fn reconcile_after(crds: &CustomResources, result: HandlerResult) -> HandlerResult {
    if result.is_ok() {
        reconcile(crds).await;
    }
    result
}
