//! The objects of priority and fairness: those that must be there and those that upstream suggests, and of each FlowSchema
//! whether its level is there.

use super::{LEVELS, SCHEMAS, defaults};
use crate::{custom_resource_definitions::set_condition, service::ApiServer};
use futures::{FutureExt, future::join_all};
use http::Method;
use serde_json::Value;
use std::sync::atomic::Ordering;
use store::{Key, Scope};

const GROUP: &str = "/apis/flowcontrol.apiserver.k8s.io/v1";
/// While this says `true`, the server keeps the spec as it wants it.
const AUTO_UPDATE: &str = "apf.kubernetes.io/autoupdate-spec";

impl ApiServer {
    /// Makes upstream's FlowSchemas and PriorityLevelConfigurations, where they are not there yet, and brings those up to
    /// date that nobody has made their own.
    pub async fn bootstrap_flows(self) {
        self.flow_control.held.store(true, Ordering::Release);
        let (schemas, levels) = defaults::all();
        let all = levels.into_iter().map(|o| (LEVELS, o)).chain(schemas.into_iter().map(|o| (SCHEMAS, o)));
        join_all(all.map(|(resource, object)| ensure(self.clone(), resource, object).boxed())).await;
        self.flow_control.held.store(false, Ordering::Release);
        self.flow_control.load(&self);
        self.settle_flows().await;
    }

    /// Something was written of this resource: from now on it holds.
    pub(crate) fn note_flows(&self, storage: &str) {
        if matches!(storage, SCHEMAS | LEVELS) && !self.flow_control.held.load(Ordering::Acquire) {
            self.flow_control.load(self);
            if self.flow_control.pending.swap(true, Ordering::AcqRel) {
                return;
            }
            let server = self.clone();
            tokio::spawn(async move { server.settle_flows().await }.boxed());
        }
    }

    /// Says of each FlowSchema whether its level is there, and makes again what is to be there (upstream looks after those
    /// that it suggests each minute).
    async fn settle_flows(&self) {
        let _settling = self.flow_control.settling.lock().await;
        // From here on, a write asks for another round.
        self.flow_control.pending.store(false, Ordering::Release);
        let (schemas, levels) = defaults::all();
        for (resource, object) in
            levels.into_iter().map(|o| (LEVELS, o)).chain(schemas.into_iter().map(|o| (SCHEMAS, o)))
        {
            ensure(self.clone(), resource, object).await;
        }
        for _ in 0..ROUNDS {
            let wrong = self.dangling();
            if wrong.is_empty() {
                return;
            }
            let write = |object: Value| {
                let path =
                    format!("{GROUP}/{SCHEMAS}/{}/status", object["metadata"]["name"].as_str().unwrap_or_default());
                let server = self.clone();
                async move { server.request_as_apiserver(Method::PUT, &path, &object).await }.boxed()
            };
            join_all(wrong.into_iter().map(write)).await;
        }
    }

    /// FlowSchemas whose condition should be another, with that.
    fn dangling(&self) -> Vec<Value> {
        let listing = self.store.list(&Scope::resource(SCHEMAS), None, None);
        let schemas = listing.objects.iter().filter_map(|stored| {
            let mut object: Value = serde_json::from_slice(&stored.data).ok()?;
            let level = object["spec"]["priorityLevelConfiguration"]["name"].as_str().unwrap_or_default().to_owned();
            let is_there = self.store.get(&Key::new(LEVELS, "", level.as_str())).is_some();
            let (status, reason, rest) = if is_there {
                ("False", "Found", "and it exists")
            } else {
                ("True", "NotFound", "but there is no such object")
            };
            let message =
                format!("This FlowSchema references the PriorityLevelConfiguration object named {level:?} {rest}");
            let before = object["status"].clone();
            set_condition(&mut object["status"], "Dangling", status, reason, &message);
            object["metadata"]["resourceVersion"] = stored.revision.to_string().into();
            (object["status"] != before).then_some(object)
        });
        schemas.collect()
    }
}

/// How often conditions are written at most, for one write.
const ROUNDS: usize = 5;

async fn ensure(server: ApiServer, resource: &'static str, wanted: Value) {
    let name = super::name(&wanted);
    let Some(stored) = server.store.get(&Key::new(resource, "", name.as_str())) else {
        return server.ensure_created(&format!("{GROUP}/{resource}"), &wanted).await;
    };
    let mut there: Value = serde_json::from_slice(&stored.data).unwrap_or_default();
    let is_ours = there["metadata"]["annotations"][AUTO_UPDATE] == "true";
    if is_ours && there["spec"] != wanted["spec"] {
        there["spec"] = wanted["spec"].clone();
        there["metadata"]["resourceVersion"] = stored.revision.to_string().into();
        server.request_as_apiserver(Method::PUT, &format!("{GROUP}/{resource}/{name}"), &there).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_server;
    use std::sync::{Arc, atomic::AtomicBool};

    #[tokio::test]
    async fn what_upstream_suggests_holds_as_a_whole_or_not_at_all() {
        let server = test_server::server().await;
        let (flows, over) = (server.flow_control.clone(), Arc::new(AtomicBool::default()));
        let ended = over.clone();
        // Whoever asks while the objects are made is on another thread.
        let looking = std::thread::spawn(move || {
            let mut seen = Vec::new();
            while !ended.load(Ordering::Acquire) {
                let config = flows.config();
                seen.push((config.schemas.len(), config.levels.len()));
                seen.dedup();
            }
            seen
        });
        server.clone().bootstrap_flows().await;
        over.store(true, Ordering::Release);
        let seen = looking.join().unwrap();
        let count = |(schemas, levels): (Vec<Value>, Vec<Value>)| (schemas.len(), levels.len());
        let (before, after) = (count(defaults::mandatory()), count(defaults::all()));
        // In between, all that were not of masters shared the few seats of `catch-all`, where nobody may wait.
        assert!(seen.iter().all(|config| [before, after].contains(config)), "{seen:?}");
    }
}
