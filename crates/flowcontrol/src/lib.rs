//! API priority and fairness: limits concurrent requests by priority level (`k8s.io/apiserver/pkg/util/flowcontrol`).
//!
//! FlowSchemas classify a request into a priority level and a flow. Each level has a share of the server's concurrency
//! limit, and serves its flows in round-robin order. A write of a FlowSchema or a PriorityLevelConfiguration reloads
//! the configuration.
#![forbid(unsafe_code)]

mod flow_schema;
mod metrics;
mod priority_level;

use errors::ApiError;
use flow_schema::FlowSchemaSpec;
use http::{HeaderName, HeaderValue, Response};
use kinds::flow_control::bootstrap;
use metrics::{ExecutingGuard, RequestCounts, WaitingGuard};
pub use metrics::{FlowControlMetrics, FlowSchemaMetrics};
use parking_lot::RwLock;
use priority_level::{PriorityLevel, PriorityLevelSpec, Seat};
use request::{Attributes, UserInfo, is_long_running};
use response::Body;
use serde_json::Value;
use std::{
    collections::BTreeMap,
    hash::{BuildHasher, RandomState},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};
use store::{Scope, Store};

/// Storage name of FlowSchemas.
pub const FLOW_SCHEMAS: &str = "flowschemas";
/// Storage name of PriorityLevelConfigurations.
pub const PRIORITY_LEVELS: &str = "prioritylevelconfigurations";
const MATCHED_FLOW_SCHEMA_UID: HeaderName = HeaderName::from_static("x-kubernetes-pf-flowschema-uid");
const MATCHED_PRIORITY_LEVEL_UID: HeaderName = HeaderName::from_static("x-kubernetes-pf-prioritylevel-uid");
/// Upstream's `--max-requests-inflight` and `--max-mutating-requests-inflight`.
const MAX_REQUESTS_IN_FLIGHT: usize = 400 + 200;

/// The filter that admits requests.
pub struct FlowControl {
    /// Seats of all priority levels together.
    server_concurrency_limit: usize,
    config: RwLock<Arc<Config>>,
    /// Randomly keyed, so that clients cannot choose flows that share queues.
    hasher: RandomState,
    /// Held while the objects are reconciled.
    sync_lock: tokio::sync::Mutex<()>,
    /// Whether a reconciliation is scheduled.
    sync_pending: AtomicBool,
    /// Whether writes do not reload the configuration, during bootstrap. Priority levels without their FlowSchemas
    /// would leave the few seats of `catch-all`, which has no queue, to all users outside `system:masters`.
    reload_suspended: AtomicBool,
}

/// The configuration that FlowSchemas and PriorityLevelConfigurations define.
#[derive(Default)]
struct Config {
    /// By matching precedence.
    flow_schemas: Vec<FlowSchema>,
    priority_levels: BTreeMap<String, Arc<PriorityLevel>>,
    /// The FlowSchema `exempt`, which matches members of `system:masters`.
    exempt: Option<(Classification, Arc<RequestCounts>)>,
    /// Seats of each priority level.
    seats: BTreeMap<String, usize>,
}

/// A FlowSchema with its priority level.
struct FlowSchema {
    name: String,
    spec: FlowSchemaSpec,
    priority_level: Arc<PriorityLevel>,
    classification: Classification,
    counts: Arc<RequestCounts>,
}

/// UIDs of the FlowSchema and the priority level of a request, for the response headers.
#[derive(Clone)]
struct Classification {
    flow_schema_uid: HeaderValue,
    priority_level_uid: HeaderValue,
}

/// A classified request. Its seat is free again when this is dropped.
pub struct ClassifiedRequest {
    _seat: Option<Seat>,
    _executing: Option<ExecutingGuard>,
    classification: Option<Classification>,
}

impl ClassifiedRequest {
    /// Returns a request that is not subject to flow control.
    fn unclassified() -> Self {
        Self { _seat: None, _executing: None, classification: None }
    }

    /// Sets the headers with the matched FlowSchema and priority level.
    pub fn set_response_headers(&self, response: &mut Response<Body>) {
        if let Some(classification) = self.classification.as_ref().filter(|c| !c.flow_schema_uid.is_empty()) {
            let headers = response.headers_mut();
            headers.insert(MATCHED_FLOW_SCHEMA_UID, classification.flow_schema_uid.clone());
            headers.insert(MATCHED_PRIORITY_LEVEL_UID, classification.priority_level_uid.clone());
        }
    }
}

impl Default for FlowControl {
    fn default() -> Self {
        Self::new(MAX_REQUESTS_IN_FLIGHT)
    }
}

impl FlowControl {
    /// Creates the filter with a concurrency limit: the sum of upstream's `--max-requests-inflight` and
    /// `--max-mutating-requests-inflight`.
    #[must_use]
    pub fn new(server_concurrency_limit: usize) -> Self {
        Self {
            server_concurrency_limit,
            config: RwLock::default(),
            hasher: RandomState::new(),
            sync_lock: tokio::sync::Mutex::default(),
            sync_pending: AtomicBool::default(),
            reload_suspended: AtomicBool::default(),
        }
    }

    /// Stops reloading after writes, while the objects are created.
    pub fn suspend_reload(&self) {
        self.reload_suspended.store(true, Ordering::Release);
    }

    /// Ends [`Self::suspend_reload`], and reloads.
    pub fn resume_reload(&self, store: &Store) {
        self.reload_suspended.store(false, Ordering::Release);
        self.reload(store);
    }

    /// Reloads the configuration after a write of a FlowSchema or a PriorityLevelConfiguration. Returns whether the
    /// caller must schedule a sync of the objects.
    pub fn reload_after_write(&self, store: &Store, storage: &str) -> bool {
        if !matches!(storage, FLOW_SCHEMAS | PRIORITY_LEVELS) || self.reload_suspended.load(Ordering::Acquire) {
            return false;
        }
        self.reload(store);
        !self.sync_pending.swap(true, Ordering::AcqRel)
    }

    /// Begins a sync of the objects, of which one runs at a time. A later write schedules another sync.
    pub async fn begin_sync(&self) -> tokio::sync::MutexGuard<'_, ()> {
        let guard = self.sync_lock.lock().await;
        self.sync_pending.store(false, Ordering::Release);
        guard
    }

    /// Returns the numbers of FlowSchemas and of priority levels in the configuration.
    #[must_use]
    pub fn config_size(&self) -> (usize, usize) {
        let config = self.config();
        (config.flow_schemas.len(), config.priority_levels.len())
    }

    fn config(&self) -> Arc<Config> {
        Arc::clone(&self.config.read())
    }

    /// Classifies a request, and waits for a seat. The classified request is returned also with an error, for the
    /// response headers.
    pub async fn admit(&self, user: &UserInfo, attributes: &Attributes) -> (ClassifiedRequest, Result<(), ApiError>) {
        let config = self.config();
        if user.is_master() {
            // `exempt` is mandatory, has the first precedence, and cannot be changed.
            let (classification, counts) = config.exempt.clone().unzip();
            let executing = counts.map(ExecutingGuard::begin);
            return (ClassifiedRequest { _seat: None, _executing: executing, classification }, Ok(()));
        }
        // Long-running requests would keep their seats; a watch keeps its seat during initialization only.
        if is_long_running(attributes) && attributes.verb != "watch" {
            return (ClassifiedRequest::unclassified(), Ok(()));
        }
        let matching = config.flow_schemas.iter().find(|s| s.spec.matches(user, attributes));
        let catch_all = || config.flow_schemas.iter().find(|s| s.name == bootstrap::CATCH_ALL);
        let Some(schema) = matching.or_else(catch_all) else {
            return (ClassifiedRequest::unclassified(), Ok(()));
        };
        let classification = Some(schema.classification.clone());
        let flow_hash = self.hasher.hash_one((&schema.name, schema.spec.flow_distinguisher(user, attributes)));
        let waiting = WaitingGuard::begin(&schema.counts);
        let seat = schema.priority_level.acquire_seat(flow_hash).await;
        drop(waiting);
        match seat {
            Ok(seat) => {
                let executing = Some(ExecutingGuard::begin(Arc::clone(&schema.counts)));
                (ClassifiedRequest { _seat: Some(seat), _executing: executing, classification }, Ok(()))
            }
            Err(priority_level::Rejected) => {
                schema.counts.reject();
                (ClassifiedRequest { _seat: None, _executing: None, classification }, Err(too_many_requests()))
            }
        }
    }

    /// Reloads the configuration from the store. Mandatory objects count also when they are not stored.
    pub fn reload(&self, store: &Store) {
        // Locked while the store is read, so that the newest state is the last one to be set.
        let mut config = self.config.write();
        let stored = |resource: &'static str, mandatory: Vec<Value>| {
            let listing = store.list(&Scope::resource(resource), None, None);
            let objects = listing.objects.iter().filter_map(|o| serde_json::from_slice::<Value>(&o.data).ok());
            let mut all: BTreeMap<String, Value> = mandatory.into_iter().map(|o| (name(&o), o)).collect();
            all.extend(objects.map(|o| (name(&o), o)));
            all
        };
        let (schemas, levels) = bootstrap::mandatory();
        let (schemas, levels) = (stored(FLOW_SCHEMAS, schemas), stored(PRIORITY_LEVELS, levels));
        *config = Arc::new(self.digest(&config, &schemas, &levels));
    }

    /// Builds the configuration of these objects (`digestConfigObjects`).
    fn digest(&self, old: &Config, schemas: &BTreeMap<String, Value>, levels: &BTreeMap<String, Value>) -> Config {
        let spec =
            |object: &Value| serde_json::from_value::<PriorityLevelSpec>(object["spec"].clone()).unwrap_or_default();
        let specs: BTreeMap<&String, PriorityLevelSpec> =
            levels.iter().map(|(name, object)| (name, spec(object))).collect();
        let share_sum = specs.values().map(PriorityLevelSpec::concurrency_shares).sum::<usize>().max(1);
        let mut config = Config::default();
        for (name, spec) in specs {
            // A changed priority level keeps its requests.
            let level = old.priority_levels.get(name).cloned().unwrap_or_default();
            let seats = self.server_concurrency_limit.saturating_mul(spec.concurrency_shares()).div_ceil(share_sum);
            level.configure(&spec, seats);
            config.seats.insert(name.clone(), seats);
            config.priority_levels.insert(name.clone(), level);
        }
        for (name, object) in schemas {
            let Ok(spec) = serde_json::from_value::<FlowSchemaSpec>(object["spec"].clone()) else { continue };
            let level_name = &spec.priority_level_configuration.name;
            // A dangling FlowSchema matches no request.
            let Some(priority_level) = config.priority_levels.get(level_name).cloned() else { continue };
            let classification = Classification {
                flow_schema_uid: uid(object),
                priority_level_uid: levels.get(level_name).map_or_else(|| uid(&Value::Null), uid),
            };
            let old_schema = old.flow_schemas.iter().find(|s| s.name == *name);
            let counts = old_schema.map_or_else(Arc::default, |s| Arc::clone(&s.counts));
            config.flow_schemas.push(FlowSchema { name: name.clone(), spec, priority_level, classification, counts });
        }
        config
            .flow_schemas
            .sort_by(|a, b| (a.spec.matching_precedence, &a.name).cmp(&(b.spec.matching_precedence, &b.name)));
        let exempt = config.flow_schemas.iter().find(|s| s.name == bootstrap::EXEMPT);
        config.exempt = exempt.map(|s| (s.classification.clone(), Arc::clone(&s.counts)));
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

fn too_many_requests() -> ApiError {
    ApiError::new(429, "TooManyRequests", "Too many requests, please try again later.").with_retry_after(1)
}
