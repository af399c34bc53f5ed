//! ComponentStatus: health of the control plane's components, checked by each request (`pkg/registry/core/componentstatus`).

use crate::objects::{
    call::Call,
    object::{self, IncludeObjectPolicy, Representation},
    request_scope::RequestScope,
    selectors::Selection,
    write,
};
use errors::ApiError;
use parking_lot::RwLock;
use response::HandlerResult;
use serde_json::{Value, json};
use std::{collections::BTreeMap, error::Error, fmt};

/// Error of an unhealthy component.
type BoxError = Box<dyn Error + Send + Sync>;

/// Returns an error when a component is unhealthy.
type HealthCheck = Box<dyn Fn() -> Result<(), BoxError> + Send + Sync>;

/// Health checks of components, by name.
#[derive(Default)]
pub(crate) struct Components(RwLock<BTreeMap<String, HealthCheck>>);

impl fmt::Debug for Components {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.read().keys()).finish()
    }
}

impl Components {
    /// Registers a component; the check returns an error when it is unhealthy.
    pub(crate) fn register(&self, name: &str, check: impl Fn() -> Result<(), BoxError> + Send + Sync + 'static) {
        self.0.write().insert(name.to_owned(), Box::new(check));
    }

    fn statuses(&self) -> Vec<Value> {
        self.0.read().iter().map(|(name, check)| component_status(name, &check())).collect()
    }
}

fn component_status(name: &str, healthy: &Result<(), BoxError>) -> Value {
    let condition = match healthy {
        Ok(()) => json!({"type": "Healthy", "status": "True", "message": "ok"}),
        Err(error) => {
            let message = error.to_string();
            json!({"type": "Healthy", "status": "False", "message": message, "error": message})
        }
    };
    json!({"apiVersion": "v1", "kind": "ComponentStatus", "metadata": {"name": name}, "conditions": [condition]})
}

/// Handles GET and LIST.
pub(crate) fn answer(components: &Components, resource: &RequestScope, call: &Call) -> HandlerResult {
    if call.method != http::Method::GET || (call.query.flag("watch") && resource.name.is_none()) {
        return Err(ApiError::method_not_allowed());
    }
    let (kind, all) = (&*resource.kind, components.statuses());
    if let Some(name) = &resource.name {
        let found = all.into_iter().find(|status| status["metadata"]["name"] == **name);
        let found = found.ok_or_else(|| ApiError::not_found(kind.info(), name))?;
        return write::respond_with_value(kind, 200, found, call);
    }
    let selection = Selection::parse(&resource.kind, &call.query)?;
    let items: Vec<Value> = all.into_iter().filter(|status| selection.matches(status)).collect();
    Ok(response::json(
        200,
        &match object::negotiate_list(&call.accept, kind.info())? {
            Representation::Object => {
                json!({"kind": "ComponentStatusList", "apiVersion": "v1", "metadata": {}, "items": items})
            }
            Representation::Metadata => object::metadata_list(&items, &json!({})),
            Representation::Table => {
                object::table(kind, &items, &json!({}), true, IncludeObjectPolicy::parse(&call.query)?)
            }
        },
    ))
}
