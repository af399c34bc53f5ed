//! ComponentStatus: whether the parts of the control plane are there, asked when somebody asks
//! (`pkg/registry/core/componentstatus`).

use crate::{
    object::{self, Include, View},
    request::Resource,
    response::{self, Reply},
    selectors::Selection,
    service::{ApiServer, Call},
    status::ApiError,
    write,
};
use parking_lot::RwLock;
use serde_json::{Value, json};
use std::{collections::BTreeMap, fmt};

/// Says whether a component is there, else why not.
type Check = Box<dyn Fn() -> Result<(), String> + Send + Sync>;

/// The components that are known.
#[derive(Default)]
pub(crate) struct Components(RwLock<BTreeMap<String, Check>>);

impl fmt::Debug for Components {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.read().keys()).finish()
    }
}

impl ApiServer {
    /// Makes a component known, such as `scheduler`; the check says whether it is there, else why not.
    pub fn note_component(&self, name: &str, check: impl Fn() -> Result<(), String> + Send + Sync + 'static) {
        self.components.0.write().insert(name.to_owned(), Box::new(check));
    }
}

impl Components {
    fn all(&self) -> Vec<Value> {
        self.0.read().iter().map(|(name, check)| status(name, &check())).collect()
    }
}

fn status(name: &str, healthy: &Result<(), String>) -> Value {
    let condition = match healthy {
        Ok(()) => json!({"type": "Healthy", "status": "True", "message": "ok"}),
        Err(why) => json!({"type": "Healthy", "status": "False", "message": why, "error": why}),
    };
    json!({"apiVersion": "v1", "kind": "ComponentStatus", "metadata": {"name": name}, "conditions": [condition]})
}

/// Answers a request for one or all of them.
pub(crate) fn answer(server: &ApiServer, resource: &Resource, call: &Call) -> Reply {
    if call.method != http::Method::GET || (call.query.flag("watch") && resource.name.is_none()) {
        return Err(ApiError::method_not_allowed());
    }
    let (kind, all) = (&*resource.kind, server.components.all());
    if let Some(name) = &resource.name {
        let found = all.into_iter().find(|status| status["metadata"]["name"] == **name);
        let found = found.ok_or_else(|| ApiError::not_found(kind.info(), name))?;
        return write::show_value(kind, 200, found, call);
    }
    let selection = Selection::parse(&resource.kind, &call.query)?;
    let items: Vec<Value> = all.into_iter().filter(|status| selection.matches(status)).collect();
    Ok(response::json(
        200,
        &match object::list_view(&call.accept, kind.info())? {
            View::Whole => json!({"kind": "ComponentStatusList", "apiVersion": "v1", "metadata": {}, "items": items}),
            View::Metadata => object::metadata_list(&items, &json!({})),
            View::Table => object::table(kind, &items, &json!({}), true, Include::parse(&call.query)?),
        },
    ))
}
