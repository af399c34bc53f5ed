//! TTL controller: deletes finished Jobs after `ttlSecondsAfterFinished` (`pkg/controller/ttlafterfinished`).

use crate::{
    clients::Clients,
    names,
    worker::{self, Controller, ignore_not_found_or_conflict},
};
use futures::stream::StreamExt;
use informer::{CacheEvent, SharedInformer, key};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::Job;
use kube::{
    Api, Client,
    api::{DeleteParams, Preconditions},
};
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

struct TtlAfterFinished {
    client: Client,
    jobs: SharedInformer<Job>,
}

/// Returns the time until a finished Job is deleted, `None` if it is kept (`timeLeft`).
fn left(job: &Job, now: Timestamp) -> Option<Duration> {
    let seconds = job.spec.as_ref()?.ttl_seconds_after_finished?;
    if job.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let mut conditions = job.status.as_ref()?.conditions.iter().flatten();
    let ended = conditions.find(|c| matches!(c.type_.as_str(), "Complete" | "Failed") && c.status == "True")?;
    let at = ended.last_transition_time.as_ref()?.0.checked_add(SignedDuration::from_secs(i64::from(seconds))).ok()?;
    Some(Duration::try_from(at.duration_since(now)).unwrap_or_default())
}

impl Controller for TtlAfterFinished {
    type Event = CacheEvent<Job>;
    const NAME: &'static str = names::TTL_AFTER_FINISHED;

    fn observe(&self, event: CacheEvent<Job>, _now: Instant) -> Vec<String> {
        match event {
            CacheEvent::Changed { after, .. } => {
                after.iter().filter(|job| left(job, Timestamp::now()).is_some()).map(|job| key(job.as_ref())).collect()
            }
            CacheEvent::Resync => self.jobs.keys(),
        }
    }

    async fn reconcile(&self, key: &str, _now: Instant) -> Result<Option<Duration>, kube::Error> {
        let Some(job) = self.jobs.get_by_key(key) else { return Ok(None) };
        match left(&job, Timestamp::now()) {
            None => Ok(None),
            Some(left) if !left.is_zero() => Ok(Some(left)),
            Some(_) => {
                let namespace = job.metadata.namespace.as_deref().unwrap_or_default();
                let api: Api<Job> = Api::namespaced(self.client.clone(), namespace);
                // The TTL may have been extended: the precondition on the resource version prevents the deletion.
                let preconditions = Preconditions {
                    uid: job.metadata.uid.clone(),
                    resource_version: job.metadata.resource_version.clone(),
                };
                let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::foreground() };
                ignore_not_found_or_conflict(
                    api.delete(job.metadata.name.as_deref().unwrap_or_default(), &params).await,
                )?;
                Ok(None)
            }
        }
    }
}

/// Subscribes to the informer when called, not when first polled.
pub(crate) fn run(
    clients: Clients,
    jobs: SharedInformer<Job>,
    stop: CancellationToken,
) -> impl Future<Output = ()> + Send {
    let events = jobs.subscribe().boxed();
    let client = clients.for_service_account("ttl-after-finished-controller");
    worker::run(TtlAfterFinished { client, jobs }, events, stop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[track_caller]
    fn check(ttl: Value, condition: Value, expected: Option<u64>) {
        let status = json!({"conditions": [condition]});
        let spec = json!({"ttlSecondsAfterFinished": ttl, "template": {}});
        let job = serde_json::from_value(json!({"metadata": {}, "spec": spec, "status": status})).unwrap();
        let now = "2026-01-01T00:00:10Z".parse().unwrap();
        assert_eq!(left(&job, now), expected.map(Duration::from_secs));
    }

    #[test]
    fn finished_job_is_kept_for_its_ttl() {
        let ended = |kind: &str, status: &str| json!({"type": kind, "status": status, "lastTransitionTime": "2026-01-01T00:00:00Z"});
        check(json!(15), ended("Complete", "True"), Some(5));
        check(json!(10), ended("Failed", "True"), Some(0));
        check(json!(0), ended("Failed", "True"), Some(0));
        check(Value::Null, ended("Complete", "True"), None);
        check(json!(5), ended("Complete", "False"), None);
        check(json!(5), ended("Suspended", "True"), None);
    }
}
