//! What CustomResourceDefinitions say, made true: names are accepted, kinds are served, and those that go take their
//! objects along (upstream's naming, establishing and finalizing controllers).
//!
//! Every write of a definition brings all of them up to date before it is answered, one after the other. Nothing runs in
//! between.

mod conditions;
mod finish;

pub(crate) use conditions::set as set_condition;

use crate::{
    UserInfo,
    audit::Trail,
    existing_object::Live,
    kinds::{CUSTOM_RESOURCE_DEFINITION, Custom, custom::Family},
    managed_fields::Asked,
    registry::Registry,
    request::{Query, Resource},
    response::Reply,
    service::{ApiServer, Call},
    status::ApiError,
    update::{self, Made, Ownership},
};
use bytes::Bytes;
use http::{HeaderMap, Method};
use serde_json::Value;
use std::{collections::HashMap, sync::Arc};
use store::{Object, Revision, Scope};

/// Under what definitions are stored.
const STORAGE: &str = "customresourcedefinitions";
/// Keeps a definition until its objects are gone.
pub(crate) const FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";
/// How often statuses are written before it is given up until the next write.
const ROUNDS: usize = 20;

/// A definition, as it was when it was last looked at.
pub(crate) struct Definition {
    pub(crate) object: Object,
    value: Value,
    /// The versions that are served.
    pub(crate) kinds: Vec<Arc<Custom>>,
    since: Revision,
}

impl Definition {
    /// What this object says; kinds stay as they are when nothing that matters to them has changed.
    fn read(object: Object, before: Option<&Self>) -> Self {
        let value: Value = serde_json::from_slice(&object.data).unwrap_or_default();
        let matters = |v: &Value| [&v["spec"], &v["status"]["acceptedNames"], &v["metadata"]["uid"]].map(Clone::clone);
        let is_established = conditions::is(&value, "Established");
        if let Some(before) = before.filter(|b| matters(&b.value) == matters(&value))
            && conditions::is(&before.value, "Established") == is_established
        {
            return Self { object, value, kinds: before.kinds.clone(), since: before.since }.noted();
        }
        // A schema that stays as it is has been that of all objects that were stored since.
        let since = match before {
            Some(before) if before.value["spec"] == value["spec"] => before.since,
            _ => object.revision,
        };
        let family = Family::new(&value, since);
        let versions = value["spec"]["versions"].as_array().into_iter().flatten();
        let served = versions.filter(|v| is_established && v["served"] == true);
        let kinds = served.filter_map(|v| Custom::read(&family, v)).map(Arc::new).collect();
        Self { object, value, kinds, since }.noted()
    }

    /// Tells the kinds of a definition that goes.
    fn noted(self) -> Self {
        if self.is_ending() {
            self.kinds.iter().for_each(|kind| kind.terminate());
        }
        self
    }

    fn name(&self) -> &str {
        &self.object.key.name
    }

    fn is_ending(&self) -> bool {
        !self.value["metadata"]["deletionTimestamp"].is_null()
    }
}

impl Registry {
    /// What the definitions in a store say, as far as they were accepted before.
    pub(crate) fn load(server: &ApiServer) {
        let mut known = HashMap::new();
        look(server, &mut known);
        server.registry.serve(known.values());
        if let Ok(mut definitions) = server.registry.definitions.try_lock() {
            *definitions = known;
        }
    }
}

/// Whether an answer to a request for this resource waits until everything is up to date.
pub(crate) fn concern(resource: &Resource, method: &Method) -> bool {
    let writes = !matches!(*method, Method::GET | Method::HEAD);
    writes && (resource.kind.info().storage == STORAGE || resource.kind.is_terminating())
}

/// Brings everything up to date. It goes on when the caller goes away.
pub(crate) async fn settle(server: &ApiServer) {
    let server = server.clone();
    let work = tokio::spawn(async move {
        let mut known = server.registry.definitions.lock().await;
        for _ in 0..ROUNDS {
            look(&server, &mut known);
            if !write_one(&server, &known).await {
                break;
            }
        }
        server.registry.serve(known.values());
        for definition in known.values().filter(|d| d.is_ending()) {
            finish::spawn(&server, definition);
        }
    });
    if work.await.is_err() {
        tracing::error!("what CustomResourceDefinitions say could not be made true");
    }
}

/// Reads what has changed.
fn look(server: &ApiServer, known: &mut HashMap<Arc<str>, Definition>) {
    let objects = server.store.list(&Scope::resource(STORAGE), None, None).objects;
    let mut before = std::mem::take(known);
    for object in objects {
        let name = Arc::clone(&object.key.name);
        let definition = match before.remove(&name) {
            Some(same) if same.object.revision == object.revision => same,
            other => Definition::read(object, other.as_ref()),
        };
        known.insert(name, definition);
    }
}

/// Writes the status of the first definition whose status is not what it should be; says whether there was one.
async fn write_one(server: &ApiServer, known: &HashMap<Arc<str>, Definition>) -> bool {
    let mut all: Vec<&Definition> = known.values().collect();
    // Whoever came first has the names.
    all.sort_by_key(|d| d.object.create_revision);
    for definition in &all {
        let group = &definition.value["spec"]["group"];
        let others = all.iter().filter(|d| d.name() != definition.name() && d.value["spec"]["group"] == *group);
        let others: Vec<&Value> = others.map(|d| &d.value).collect();
        let Some(status) = conditions::status(&definition.value, &others) else { continue };
        let revision = definition.value["metadata"]["resourceVersion"].clone();
        let written = change(server, definition.name(), Some("status"), |value| {
            value["metadata"]["resourceVersion"] = revision.clone();
            value["status"] = status.clone();
        });
        // Who wrote meanwhile brings everything up to date after us.
        match written.await {
            Ok(_) => return true,
            Err(error) if error.code == 409 || error.code == 404 => {}
            Err(error) => {
                tracing::warn!(name = definition.name(), %error, "the status of a definition is not written");
            }
        }
    }
    false
}

/// Changes a definition, or a part of it, as the server itself.
async fn change(server: &ApiServer, name: &str, part: Option<&str>, how: impl Fn(&mut Value)) -> Result<(), ApiError> {
    let resource = Resource::named(CUSTOM_RESOURCE_DEFINITION, name, part);
    let make = |old: &Live| {
        let mut object = old.object.clone();
        how(&mut object);
        Ok(Made { object, warnings: Vec::new(), ownership: Ownership::Update(Asked::Nothing) })
    };
    update::write(server, &resource, &call(), false, make).await.map(drop)
}

/// A request that nobody sent.
fn call() -> Call {
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
        ends: None,
        trail: Trail::default(),
        told: parking_lot::Mutex::default(),
    }
}

/// What a client that defines a kind is answered once that is true.
pub(crate) async fn settled(server: &ApiServer, answer: Reply) -> Reply {
    if answer.is_ok() {
        settle(server).await;
    }
    answer
}
