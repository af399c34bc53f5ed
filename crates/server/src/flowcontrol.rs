//! Priority and fairness: whose requests are carried out when there are more than the server does at a time
//! (`k8s.io/apiserver/pkg/util/flowcontrol`).
//!
//! FlowSchemas say of which priority level and of which flow a request is; each level has a share of what is done at a time,
//! and serves its flows in turn. What they say is read again with every write of one.

mod counts;
pub(crate) mod defaults;
mod level;
mod schema;
mod settle;

use crate::{UserInfo, authorization::Attributes, deadline, response::Body, service::ApiServer, status::ApiError};
use counts::Counts;
use http::{HeaderName, HeaderValue, Response};
use level::{Level, Seat, Spec};
use parking_lot::RwLock;
use schema::Schema;
use serde_json::Value;
use std::{
    collections::BTreeMap,
    hash::{BuildHasher, RandomState},
    sync::{Arc, atomic::AtomicBool},
};
use store::Scope;

const SCHEMAS: &str = "flowschemas";
const LEVELS: &str = "prioritylevelconfigurations";
const SCHEMA_UID: HeaderName = HeaderName::from_static("x-kubernetes-pf-flowschema-uid");
const LEVEL_UID: HeaderName = HeaderName::from_static("x-kubernetes-pf-prioritylevel-uid");
/// Upstream's `--max-requests-inflight` and `--max-mutating-requests-inflight`.
const AT_A_TIME: usize = 400 + 200;

pub(crate) struct FlowControl {
    /// How many requests at a time all levels share.
    total: usize,
    config: RwLock<Arc<Config>>,
    /// So that nobody can choose which flows share queues.
    hasher: RandomState,
    /// Held by whoever brings the objects up to date.
    settling: tokio::sync::Mutex<()>,
    /// Whether somebody is about to.
    pending: AtomicBool,
    /// Whether writes do not hold yet. Levels without the schemas that lead to them would leave all who are no masters the few
    /// seats of `catch-all`, where nobody may wait.
    held: AtomicBool,
}

#[derive(Default)]
struct Config {
    /// In the order in which they are asked.
    schemas: Vec<Known>,
    levels: BTreeMap<String, Arc<Level>>,
    /// What members of system:masters are told, whom nothing holds up.
    exempt: Option<(Told, Arc<Counts>)>,
    /// How many requests each level has room for.
    seats: BTreeMap<String, usize>,
}

struct Known {
    name: String,
    spec: Schema,
    level: Arc<Level>,
    told: Told,
    counts: Arc<Counts>,
}

/// By which schema and level a request is, as its client is told.
#[derive(Clone)]
struct Told {
    schema: HeaderValue,
    level: HeaderValue,
}

/// A request that may be carried out; another one may when it is dropped.
pub(crate) struct Ticket {
    _seat: Option<Seat>,
    _executing: Option<counts::Executing>,
    told: Option<Told>,
}

impl Ticket {
    /// Tells the client by what its request was classified.
    pub(crate) fn tell(&self, response: &mut Response<Body>) {
        if let Some(told) = self.told.as_ref().filter(|told| !told.schema.is_empty()) {
            response.headers_mut().insert(SCHEMA_UID, told.schema.clone());
            response.headers_mut().insert(LEVEL_UID, told.level.clone());
        }
    }
}

impl Default for FlowControl {
    fn default() -> Self {
        Self::new(AT_A_TIME)
    }
}

impl FlowControl {
    pub(crate) fn new(total: usize) -> Self {
        Self {
            total,
            config: RwLock::default(),
            hasher: RandomState::new(),
            settling: tokio::sync::Mutex::default(),
            pending: AtomicBool::default(),
            held: AtomicBool::default(),
        }
    }

    fn config(&self) -> Arc<Config> {
        Arc::clone(&self.config.read())
    }

    /// Waits until a request may be carried out; of masters, what they want need not be known. The ticket is there for a
    /// refusal, too.
    pub(crate) async fn enter(&self, user: &UserInfo, wanted: Option<&Attributes>) -> (Ticket, Result<(), ApiError>) {
        let config = self.config();
        let Some(wanted) = wanted.filter(|_| !user.is_master()) else {
            // The schema `exempt` is always there, comes first, and can be no other.
            let (told, counts) = config.exempt.clone().unzip();
            return (Ticket { _seat: None, _executing: counts.map(counts::Executing::begin), told }, Ok(()));
        };
        // What lasts has no end that one could wait for; of a watch the beginning counts.
        if deadline::is_long_running(wanted) && wanted.verb != "watch" {
            return (Ticket { _seat: None, _executing: None, told: None }, Ok(()));
        }
        let found = config.schemas.iter().find(|s| s.spec.matches(user, wanted));
        let last = || config.schemas.iter().find(|s| s.name == defaults::CATCH_ALL);
        let Some(known) = found.or_else(last) else {
            return (Ticket { _seat: None, _executing: None, told: None }, Ok(()));
        };
        let told = Some(known.told.clone());
        let flow = self.hasher.hash_one((&known.name, known.spec.flow(user, wanted)));
        let waiting = counts::Waiting::begin(&known.counts);
        let seat = known.level.enter(flow).await;
        drop(waiting);
        match seat {
            Ok(seat) => {
                let executing = Some(counts::Executing::begin(Arc::clone(&known.counts)));
                (Ticket { _seat: Some(seat), _executing: executing, told }, Ok(()))
            }
            Err(level::Full) => {
                known.counts.reject();
                (Ticket { _seat: None, _executing: None, told }, Err(too_many()))
            }
        }
    }

    /// Reads what the objects in the store say; what must be there is, whether it is stored or not.
    pub(crate) fn load(&self, server: &ApiServer) {
        // Held while the store is read: whoever reads later has what is newer.
        let mut config = self.config.write();
        let stored = |resource: &'static str, mandatory: Vec<Value>| {
            let listing = server.store.list(&Scope::resource(resource), None, None);
            let objects = listing.objects.iter().filter_map(|o| serde_json::from_slice::<Value>(&o.data).ok());
            let mut all: BTreeMap<String, Value> = mandatory.into_iter().map(|o| (name(&o), o)).collect();
            all.extend(objects.map(|o| (name(&o), o)));
            all
        };
        let (schemas, levels) = defaults::mandatory();
        let (schemas, levels) = (stored(SCHEMAS, schemas), stored(LEVELS, levels));
        *config = Arc::new(self.read(&config, &schemas, &levels));
    }

    fn read(&self, before: &Config, schemas: &BTreeMap<String, Value>, levels: &BTreeMap<String, Value>) -> Config {
        let spec = |object: &Value| serde_json::from_value::<Spec>(object["spec"].clone()).unwrap_or_default();
        let specs: BTreeMap<&String, Spec> = levels.iter().map(|(name, object)| (name, spec(object))).collect();
        let sum = specs.values().map(Spec::shares).sum::<usize>().max(1);
        let mut config = Config::default();
        for (name, spec) in specs {
            // Who waits in a level, or is carried out, stays.
            let level = before.levels.get(name).cloned().unwrap_or_default();
            let seats = self.total.saturating_mul(spec.shares()).div_ceil(sum);
            level.configure(&spec, seats);
            config.seats.insert(name.clone(), seats);
            config.levels.insert(name.clone(), level);
        }
        for (name, object) in schemas {
            let Ok(spec) = serde_json::from_value::<Schema>(object["spec"].clone()) else { continue };
            let level_name = &spec.priority_level_configuration.name;
            // A schema whose level is not there matches nothing.
            let Some(level) = config.levels.get(level_name).cloned() else { continue };
            let told =
                Told { schema: uid(object), level: levels.get(level_name).map_or_else(|| uid(&Value::Null), uid) };
            let known = before.schemas.iter().find(|s| s.name == *name);
            let counts = known.map_or_else(Arc::default, |s| Arc::clone(&s.counts));
            config.schemas.push(Known { name: name.clone(), spec, level, told, counts });
        }
        config
            .schemas
            .sort_by(|a, b| (a.spec.matching_precedence, &a.name).cmp(&(b.spec.matching_precedence, &b.name)));
        config.exempt =
            config.schemas.iter().find(|s| s.name == defaults::EXEMPT).map(|s| (s.told.clone(), Arc::clone(&s.counts)));
        config
    }
}

fn name(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}

fn uid(object: &Value) -> HeaderValue {
    let uid = object["metadata"]["uid"].as_str().unwrap_or_default();
    HeaderValue::from_str(uid).unwrap_or(HeaderValue::from_static(""))
}

fn too_many() -> ApiError {
    ApiError::new(429, "TooManyRequests", "Too many requests, please try again later.").with_retry_after(1)
}
