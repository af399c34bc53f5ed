//! APF controller: maintains the mandatory and suggested objects, and the condition `Dangling` of FlowSchemas
//! (`apf_controller.go`).

use crate::{api_server::ApiServer, http::clock::now};
use flowcontrol::{FLOW_SCHEMAS, PRIORITY_LEVELS};
use futures::{FutureExt, future::join_all};
use http::Method;
use kinds::{conditions::set_condition, flow_control::bootstrap};
use serde_json::Value;
use store::{Key, Scope};

const GROUP: &str = "/apis/flowcontrol.apiserver.k8s.io/v1";
/// Annotation of an object. With `true`, the server maintains its spec.
const AUTO_UPDATE: &str = "apf.kubernetes.io/autoupdate-spec";

impl ApiServer {
    /// Creates missing mandatory and suggested objects, and updates those whose spec the server maintains.
    pub async fn bootstrap_flow_control(self) {
        self.flow_control.suspend_reload();
        let (schemas, levels) = bootstrap::all();
        let all =
            levels.into_iter().map(|o| (PRIORITY_LEVELS, o)).chain(schemas.into_iter().map(|o| (FLOW_SCHEMAS, o)));
        join_all(all.map(|(resource, object)| ensure(self.clone(), resource, object).boxed())).await;
        self.flow_control.resume_reload(&self.registry.store);
        self.sync_flow_control().await;
    }

    /// Reloads the configuration after a write of a FlowSchema or a PriorityLevelConfiguration, and schedules a sync.
    pub(crate) fn on_flow_control_write(&self, storage: &str) {
        if self.flow_control.reload_after_write(&self.registry.store, storage) {
            let server = self.clone();
            tokio::spawn(async move { server.sync_flow_control().await }.boxed());
        }
    }

    /// Restores mandatory and suggested objects, and updates the conditions of FlowSchemas. (Upstream does the former
    /// once a minute.)
    async fn sync_flow_control(&self) {
        let _guard = self.flow_control.begin_sync().await;
        let (schemas, levels) = bootstrap::all();
        for (resource, object) in
            levels.into_iter().map(|o| (PRIORITY_LEVELS, o)).chain(schemas.into_iter().map(|o| (FLOW_SCHEMAS, o)))
        {
            ensure(self.clone(), resource, object).await;
        }
        for _ in 0..MAX_STATUS_ROUNDS {
            let outdated = self.flow_schemas_with_outdated_status();
            if outdated.is_empty() {
                return;
            }
            let write = |object: Value| {
                let path = format!(
                    "{GROUP}/{FLOW_SCHEMAS}/{}/status",
                    object["metadata"]["name"].as_str().unwrap_or_default()
                );
                let server = self.clone();
                async move { server.loopback().request(Method::PUT, &path, &object).await }.boxed()
            };
            join_all(outdated.into_iter().map(write)).await;
        }
    }

    /// Returns the FlowSchemas whose condition `Dangling` is outdated, with the new status.
    fn flow_schemas_with_outdated_status(&self) -> Vec<Value> {
        let listing = self.registry.store.list(&Scope::resource(FLOW_SCHEMAS), None, None);
        let schemas = listing.objects.iter().filter_map(|stored| {
            let mut object: Value = serde_json::from_slice(&stored.data).ok()?;
            let level = object["spec"]["priorityLevelConfiguration"]["name"].as_str().unwrap_or_default().to_owned();
            let exists = self.registry.store.get(&Key::new(PRIORITY_LEVELS, "", level.as_str())).is_some();
            let (status, reason, rest) = if exists {
                ("False", "Found", "and it exists")
            } else {
                ("True", "NotFound", "but there is no such object")
            };
            let message =
                format!("This FlowSchema references the PriorityLevelConfiguration object named {level:?} {rest}");
            let old_status = object["status"].clone();
            set_condition(&mut object["status"], "Dangling", status, reason, &message, now());
            object["metadata"]["resourceVersion"] = stored.revision.to_string().into();
            (object["status"] != old_status).then_some(object)
        });
        schemas.collect()
    }
}

/// Maximum number of status updates after one write.
const MAX_STATUS_ROUNDS: usize = 5;

/// Creates an object, or updates its spec if the server maintains it.
async fn ensure(server: ApiServer, resource: &'static str, desired: Value) {
    let name = desired["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let Some(stored) = server.registry.store.get(&Key::new(resource, "", name.as_str())) else {
        return server.loopback().ensure_created(&format!("{GROUP}/{resource}"), &desired).await;
    };
    let mut existing: Value = serde_json::from_slice(&stored.data).unwrap_or_default();
    let is_maintained = existing["metadata"]["annotations"][AUTO_UPDATE] == "true";
    if is_maintained && existing["spec"] != desired["spec"] {
        existing["spec"] = desired["spec"].clone();
        existing["metadata"]["resourceVersion"] = stored.revision.to_string().into();
        server.loopback().request(Method::PUT, &format!("{GROUP}/{resource}/{name}"), &existing).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_server;
    use std::sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    };

    #[tokio::test]
    async fn bootstrap_configuration_is_applied_atomically() {
        let server = test_server::server().await;
        let (flow_control, done) = (server.flow_control.clone(), Arc::new(AtomicBool::default()));
        let observer_done = done.clone();
        // Observes the configuration from another thread while the objects are created.
        let observer = std::thread::spawn(move || {
            let mut seen = Vec::new();
            while !observer_done.load(Ordering::Acquire) {
                seen.push(flow_control.config_size());
                seen.dedup();
            }
            seen
        });
        server.clone().bootstrap_flow_control().await;
        done.store(true, Ordering::Release);
        let seen = observer.join().unwrap();
        let count = |(schemas, levels): (Vec<Value>, Vec<Value>)| (schemas.len(), levels.len());
        let (before, after) = (count(bootstrap::mandatory()), count(bootstrap::all()));
        // A partial configuration would leave only the few seats of `catch-all` to most users.
        assert!(seen.iter().all(|config| [before, after].contains(config)), "{seen:?}");
    }
}
