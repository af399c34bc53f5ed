//! Endpoints and EndpointSlices of Services (`pkg/controller/endpointslice`, `pkg/controller/endpoint`). Endpoints
//! that a user writes for a Service without a selector are mirrored to EndpointSlices.

mod endpoint_slices;
mod legacy;
mod mirroring;
mod service;
#[cfg(test)]
mod tests;

use crate::{
    clients::Clients,
    event_recorder::EventRecorder,
    expectations::{Expectations, ExpectedVersion},
    names,
    pod_control::{error_message, is_namespace_terminating},
    pod_summary::PodSummary,
    worker::{self, Controller, ignore_not_found_or_conflict, is_code},
};
use futures::stream::{self, StreamExt};
use informer::{CacheEvent, SharedInformer, key};
use k8s_openapi::api::{
    core::v1::{Endpoints, Service, ServiceSpec},
    discovery::v1::EndpointSlice,
};
use kube::{
    Api, Client, Resource,
    api::{DeleteParams, PostParams},
    runtime::watcher::Config,
};
use service::{has_selector, selects};
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

enum Event {
    Service(CacheEvent<Service>),
    Pod(CacheEvent<PodSummary>),
    Slice(CacheEvent<EndpointSlice>),
    Endpoints(CacheEvent<Endpoints>),
}

/// Clients of the three upstream controllers that this one combines.
struct ControllerClients {
    endpoints: Client,
    slices: Client,
    mirrors: Client,
}

struct EndpointsController {
    clients: ControllerClients,
    recorder: EventRecorder,
    services: SharedInformer<Service>,
    pods: SharedInformer<PodSummary>,
    slices: SharedInformer<EndpointSlice>,
    endpoints: SharedInformer<Endpoints>,
    expectations: Expectations,
}

impl Controller for EndpointsController {
    type Event = Event;
    const NAME: &'static str = names::ENDPOINT_SLICE;

    fn observe(&self, event: Event, _now: Instant) -> Vec<String> {
        match event {
            Event::Service(seen @ CacheEvent::Changed { .. }) => {
                seen.objects().last().map(|s| key(s.as_ref())).into_iter().collect()
            }
            Event::Pod(seen @ CacheEvent::Changed { .. }) => {
                let services = seen.objects().next().map(|pod| self.services.in_namespace(&pod.namespace));
                let all = services.into_iter().flatten();
                all.filter(|s| selects_any(s, &seen)).map(|service| key(service.as_ref())).collect()
            }
            Event::Slice(seen @ CacheEvent::Changed { .. }) => {
                seen.objects().filter_map(|slice| service_of(slice)).collect()
            }
            // Deleted Endpoints are recreated. Endpoints of a Service without a selector are mirrored.
            Event::Endpoints(seen @ CacheEvent::Changed { after: None, .. }) => {
                seen.objects().map(|e| key(e.as_ref())).collect()
            }
            Event::Endpoints(seen @ CacheEvent::Changed { .. }) => {
                let mut keys: Vec<String> = seen.objects().last().map(|e| key(e.as_ref())).into_iter().collect();
                keys.retain(|key| self.services.get_by_key(key).is_some_and(|service| !selects_pods(&service)));
                keys
            }
            Event::Service(CacheEvent::Resync)
            | Event::Pod(CacheEvent::Resync)
            | Event::Slice(CacheEvent::Resync)
            | Event::Endpoints(CacheEvent::Resync) => {
                self.services.keys().into_iter().chain(self.orphaned_endpoints()).collect()
            }
        }
    }

    /// Syncs the Endpoints and EndpointSlices of a Service (`syncService`).
    async fn reconcile(&self, key: &str, now: Instant) -> Result<Option<Duration>, kube::Error> {
        let listed =
            [self.services.has_synced(), self.pods.has_synced(), self.slices.has_synced(), self.endpoints.has_synced()];
        if !listed.into_iter().all(|listed| listed) {
            return Ok(None);
        }
        if let Some(left) = self.expectations.remaining_wait(key, self.slices.resource_version(), now) {
            return Ok(Some(left));
        }
        let Some(service) = self.services.get_by_key(key) else {
            self.expectations.delete(key);
            return self.delete_endpoints(key).await.map(|()| None);
        };
        let Some(spec) = service.spec.as_ref().filter(|spec| has_selector(spec)) else {
            return self.mirror_endpoints(key, &service).await.map(|()| None);
        };
        let mut pods = self.pods.in_namespace(service.metadata.namespace.as_deref().unwrap_or_default());
        pods.retain(|pod| selects(spec, pod));
        let mut expected = ExpectedVersion::default();
        let sliced = self.sync_endpoint_slices(key, &service, spec, &pods, &mut expected).await;
        self.expectations.set(key, expected);
        match sliced {
            Err(e) if is_namespace_terminating(&e) => return Ok(None),
            other => other?,
        }
        let existing = self.endpoints.get_by_key(key);
        if let Some(desired) = legacy::endpoints(&service, spec, &pods, existing.as_deref()) {
            self.write_endpoints(&service, &desired, existing.is_none()).await?;
        }
        Ok(None)
    }
}

/// Returns whether the Service selects Pods.
fn selects_pods(service: &Service) -> bool {
    service.spec.as_ref().is_some_and(has_selector)
}

/// Returns whether the Service selects the Pod before or after the change.
fn selects_any(service: &Service, seen: &CacheEvent<PodSummary>) -> bool {
    service.spec.as_ref().is_some_and(|spec| seen.objects().any(|pod| selects(spec, pod)))
}

/// Returns the key of a slice's Service.
fn service_of(slice: &EndpointSlice) -> Option<String> {
    let name = slice.metadata.labels.as_ref()?.get(endpoint_slices::LABEL_SERVICE_NAME)?;
    Some(format!("{}/{name}", slice.metadata.namespace.as_deref()?))
}

impl EndpointsController {
    /// Returns the keys of Endpoints whose Services are gone.
    fn orphaned_endpoints(&self) -> Vec<String> {
        let is_own = |e: &Endpoints| e.metadata.labels.as_ref().is_some_and(|l| l.contains_key(legacy::MANAGED_BY));
        let all = self.endpoints.all().into_iter().filter(|e| is_own(e)).map(|e| key(e.as_ref()));
        all.filter(|key| self.services.get_by_key(key).is_none()).collect()
    }

    /// Deletes the Endpoints of a deleted Service. The garbage collector deletes its slices.
    async fn delete_endpoints(&self, key: &str) -> Result<(), kube::Error> {
        let Some(endpoints) = self.endpoints.get_by_key(key) else { return Ok(()) };
        let namespace = endpoints.metadata.namespace.as_deref().unwrap_or_default();
        let api: Api<Endpoints> = Api::namespaced(self.clients.endpoints.clone(), namespace);
        let name = endpoints.metadata.name.as_deref().unwrap_or_default();
        ignore_not_found_or_conflict(api.delete(name, &DeleteParams::default()).await)
    }

    async fn sync_endpoint_slices(
        &self,
        key: &str,
        service: &Service,
        spec: &ServiceSpec,
        pods: &[Arc<PodSummary>],
        expected: &mut ExpectedVersion,
    ) -> Result<(), kube::Error> {
        let (existing, mirrored) = self.slices_of(key, service);
        let mut changes = endpoint_slices::reconcile_slices(service, spec, pods, &existing);
        changes.delete.extend(mirrored);
        self.apply_slice_changes(&self.clients.slices, service, &changes, expected).await
    }

    /// Mirrors a user's Endpoints to EndpointSlices, for a Service without a selector.
    async fn mirror_endpoints(&self, key: &str, service: &Service) -> Result<(), kube::Error> {
        // A Service with an empty selector has no endpoints of its own, and none to mirror.
        let has_own = service.spec.as_ref().is_some_and(|spec| spec.selector.is_none());
        let endpoints = self.endpoints.get_by_key(key).filter(|_| has_own);
        let changes = mirroring::reconcile_mirrored_slices(endpoints.as_deref(), &self.slices_of(key, service).1);
        let mut expected = ExpectedVersion::default();
        let done = self.apply_slice_changes(&self.clients.mirrors, service, &changes, &mut expected).await;
        self.expectations.set(key, expected);
        match done {
            Err(e) if is_namespace_terminating(&e) => Ok(()),
            other => other,
        }
    }

    /// Returns the slices of the Service's Pods, and the mirrored ones.
    fn slices_of(&self, key: &str, service: &Service) -> (Vec<Arc<EndpointSlice>>, Vec<Arc<EndpointSlice>>) {
        let mut existing = self.slices.in_namespace(service.metadata.namespace.as_deref().unwrap_or_default());
        existing.retain(|slice| service_of(slice).as_deref() == Some(key));
        let manager = |slice: &EndpointSlice| slice.metadata.labels.as_ref()?.get(endpoint_slices::MANAGED_BY).cloned();
        existing.into_iter().partition(|slice| manager(slice).as_deref() == Some(endpoint_slices::MANAGER))
    }

    async fn apply_slice_changes(
        &self,
        client: &Client,
        service: &Service,
        changes: &endpoint_slices::SliceChanges,
        expected: &mut ExpectedVersion,
    ) -> Result<(), kube::Error> {
        let namespace = service.metadata.namespace.as_deref().unwrap_or_default();
        let api: Api<EndpointSlice> = Api::namespaced(client.clone(), namespace);
        let params = PostParams::default();
        // The garbage collector deletes the slices of a Service that is being deleted.
        for slice in changes.create.iter().filter(|_| service.metadata.deletion_timestamp.is_none()) {
            expected.observe(&api.create(&params, slice).await?.metadata);
        }
        for slice in &changes.update {
            match api.replace(slice.metadata.name.as_deref().unwrap_or_default(), &params, slice).await {
                Ok(slice) => expected.observe(&slice.metadata),
                // If the object has changed or is gone, the watch enqueues it again.
                Err(e) if is_code(&e, 404) || is_code(&e, 409) => {}
                Err(e) => return Err(e),
            }
        }
        for slice in &changes.delete {
            let name = slice.metadata.name.as_deref().unwrap_or_default();
            ignore_not_found_or_conflict(api.delete(name, &DeleteParams::default()).await)?;
        }
        Ok(())
    }

    async fn write_endpoints(&self, service: &Service, desired: &Endpoints, new: bool) -> Result<(), kube::Error> {
        let namespace = service.metadata.namespace.as_deref().unwrap_or_default();
        let name = service.metadata.name.as_deref().unwrap_or_default();
        let api: Api<Endpoints> = Api::namespaced(self.clients.endpoints.clone(), namespace);
        let (written, reason, operation) = if new {
            let written = api.create(&PostParams::default(), desired).await;
            (written, "FailedToCreateEndpoint", format!("create endpoint for service {namespace}/{name}"))
        } else {
            let written = api.replace(name, &PostParams::default(), desired).await;
            (written, "FailedToUpdateEndpoint", format!("update endpoint {namespace}/{name}"))
        };
        match written {
            Ok(_) => Ok(()),
            // Another client was faster: retry with a back-off.
            Err(e) if is_code(&e, 409) => Err(e),
            Err(e) if is_namespace_terminating(&e) || is_code(&e, 404) => Ok(()),
            Err(e) => {
                let message = format!("Failed to {operation}: {}", error_message(&e));
                self.recorder.record(&desired.object_ref(&()), true, reason, &message).await;
                Err(e)
            }
        }
    }
}

/// Subscribes to the informers when called, not when first polled.
pub(crate) fn run(
    clients: Clients,
    services: SharedInformer<Service>,
    pods: SharedInformer<PodSummary>,
    stop: CancellationToken,
) -> impl Future<Output = ()> + Send {
    let (slices, endpoints) = (SharedInformer::<EndpointSlice>::new(), SharedInformer::<Endpoints>::new());
    let of_services = stream::select(services.subscribe().map(Event::Service), pods.subscribe().map(Event::Pod));
    let of_endpoints =
        stream::select(slices.subscribe().map(Event::Slice), endpoints.subscribe().map(Event::Endpoints));
    let events = stream::select(of_services, of_endpoints).boxed();
    let managers = format!("{} in ({}, {})", endpoint_slices::MANAGED_BY, endpoint_slices::MANAGER, mirroring::MANAGER);
    let labels = Config::default().labels(&managers);
    let watched = futures::future::join(
        slices.clone().run_filtered(Api::all(clients.shared()), labels, |slice| slice, stop.clone()),
        endpoints.clone().run(Api::all(clients.shared()), |endpoints| endpoints, stop.clone()),
    );
    let controller_clients = ControllerClients {
        endpoints: clients.for_service_account("endpoint-controller"),
        slices: clients.for_service_account("endpointslice-controller"),
        mirrors: clients.for_service_account("endpointslicemirroring-controller"),
    };
    let recorder = EventRecorder::new(controller_clients.endpoints.clone(), "endpoint-controller");
    let controller = EndpointsController {
        clients: controller_clients,
        recorder,
        services,
        pods,
        slices,
        endpoints,
        expectations: Expectations::default(),
    };
    let works = worker::run(controller, events, stop);
    // The future is large, so it is boxed.
    Box::pin(async move {
        futures::join!(watched, works);
    })
}
