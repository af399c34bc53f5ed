//! Endpoints: which Pods are behind a Service, as EndpointSlices and as Endpoints (`pkg/controller/endpointslice`,
//! `pkg/controller/endpoint`). What somebody says is behind a Service that selects none is mirrored into slices.

mod address;
mod mirror;
mod slices;
mod subsets;
#[cfg(test)]
mod tests;

use crate::clients::Clients;
use crate::event_recorder::EventRecorder;
use crate::expectations::{Expectations, ExpectedVersion};
use crate::informer::{CacheEvent, SharedInformer, key};
use crate::pod_control::{error_message, is_namespace_terminating};
use crate::pod_summary::PodSummary;
use crate::worker::{self, Controller, ignore_not_found_or_conflict, is_code};
use address::{has_endpoints, selects};
use futures::stream::{self, StreamExt};
use k8s_openapi::api::core::v1::{Endpoints, Service, ServiceSpec};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{DeleteParams, PostParams};
use kube::runtime::watcher::Config;
use kube::{Api, Client, Resource};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

enum Event {
    Service(CacheEvent<Service>),
    Pod(CacheEvent<PodSummary>),
    Slice(CacheEvent<EndpointSlice>),
    Endpoints(CacheEvent<Endpoints>),
}

/// Upstream has a controller for each.
struct Accounts {
    endpoints: Client,
    slices: Client,
    mirrors: Client,
}

struct EndpointsOfServices {
    own: Accounts,
    recorder: EventRecorder,
    services: SharedInformer<Service>,
    pods: SharedInformer<PodSummary>,
    slices: SharedInformer<EndpointSlice>,
    endpoints: SharedInformer<Endpoints>,
    expectations: Expectations,
}

impl Controller for EndpointsOfServices {
    type Event = Event;
    const NAME: &'static str = "endpoints";

    fn observe(&mut self, event: Event, _now: Instant) -> Vec<String> {
        match event {
            Event::Service(seen @ CacheEvent::Changed { .. }) => {
                seen.objects().last().map(|s| key(s.as_ref())).into_iter().collect()
            }
            Event::Pod(seen @ CacheEvent::Changed { .. }) => {
                let services = seen.objects().next().map(|pod| self.services.in_namespace(&pod.namespace));
                let all = services.into_iter().flatten();
                all.filter(|s| concerns(s, &seen)).map(|service| key(service.as_ref())).collect()
            }
            Event::Slice(seen @ CacheEvent::Changed { .. }) => {
                seen.objects().filter_map(|slice| service_of(slice)).collect()
            }
            // Those that are gone are made anew; what somebody writes there is his, and mirrored.
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
                self.services.keys().into_iter().chain(self.leftovers()).collect()
            }
        }
    }

    async fn reconcile(&mut self, key: &str, now: Instant) -> Result<Option<Duration>, kube::Error> {
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
            return self.forget(key).await.map(|()| None);
        };
        let Some(spec) = service.spec.as_ref().filter(|spec| has_endpoints(spec)) else {
            return self.mirror(key, &service, now).await.map(|()| None);
        };
        let mut pods = self.pods.in_namespace(service.metadata.namespace.as_deref().unwrap_or_default());
        pods.retain(|pod| selects(spec, pod));
        let mut expected = ExpectedVersion::default();
        let sliced = self.slice(key, &service, spec, &pods, &mut expected).await;
        self.expectations.set(key, expected, now);
        match sliced {
            Err(e) if is_namespace_terminating(&e) => return Ok(None),
            other => other?,
        }
        let is = self.endpoints.get_by_key(key);
        if let Some(shall) = subsets::endpoints(&service, spec, &pods, is.as_deref()) {
            self.write(&service, &shall, is.is_none()).await?;
        }
        Ok(None)
    }
}

/// Whether it is Pods that are behind a Service.
fn selects_pods(service: &Service) -> bool {
    service.spec.as_ref().is_some_and(has_endpoints)
}

/// Whether a Pod is, or was, behind a Service.
fn concerns(service: &Service, seen: &CacheEvent<PodSummary>) -> bool {
    service.spec.as_ref().is_some_and(|spec| seen.objects().any(|pod| selects(spec, pod)))
}

/// The key of the Service that a slice is for.
fn service_of(slice: &EndpointSlice) -> Option<String> {
    let name = slice.metadata.labels.as_ref()?.get(slices::SERVICE)?;
    Some(format!("{}/{name}", slice.metadata.namespace.as_deref()?))
}

impl EndpointsOfServices {
    /// The keys of Endpoints that were made for Services that are gone.
    fn leftovers(&self) -> Vec<String> {
        let is_own = |e: &Endpoints| e.metadata.labels.as_ref().is_some_and(|l| l.contains_key(subsets::MANAGED_BY));
        let all = self.endpoints.all().into_iter().filter(|e| is_own(e)).map(|e| key(e.as_ref()));
        all.filter(|key| self.services.get_by_key(key).is_none()).collect()
    }

    /// The Service is gone: its slices go as what it owned, its Endpoints are removed here.
    async fn forget(&self, key: &str) -> Result<(), kube::Error> {
        let Some(endpoints) = self.endpoints.get_by_key(key) else { return Ok(()) };
        let namespace = endpoints.metadata.namespace.as_deref().unwrap_or_default();
        let api: Api<Endpoints> = Api::namespaced(self.own.endpoints.clone(), namespace);
        let name = endpoints.metadata.name.as_deref().unwrap_or_default();
        ignore_not_found_or_conflict(api.delete(name, &DeleteParams::default()).await)
    }

    async fn slice(
        &self,
        key: &str,
        service: &Service,
        spec: &ServiceSpec,
        pods: &[Arc<PodSummary>],
        expected: &mut ExpectedVersion,
    ) -> Result<(), kube::Error> {
        let (existing, mirrored) = self.slices_of(key, service);
        let mut changes = slices::slices(service, spec, pods, &existing);
        changes.remove.extend(mirrored);
        self.carry_out(&self.own.slices, service, &changes, expected).await
    }

    /// Slices as somebody's Endpoints, for a Service that selects no Pods.
    async fn mirror(&mut self, key: &str, service: &Service, now: Instant) -> Result<(), kube::Error> {
        // What selects everything has no endpoints, but nobody's either.
        let has_own = service.spec.as_ref().is_some_and(|spec| spec.selector.is_none());
        let endpoints = self.endpoints.get_by_key(key).filter(|_| has_own);
        let changes = mirror::mirror(endpoints.as_deref(), &self.slices_of(key, service).1);
        let mut expected = ExpectedVersion::default();
        let done = self.carry_out(&self.own.mirrors, service, &changes, &mut expected).await;
        self.expectations.set(key, expected, now);
        match done {
            Err(e) if is_namespace_terminating(&e) => Ok(()),
            other => other,
        }
    }

    /// The slices that were made for the Service's Pods, and those that mirror its Endpoints.
    fn slices_of(&self, key: &str, service: &Service) -> (Vec<Arc<EndpointSlice>>, Vec<Arc<EndpointSlice>>) {
        let mut existing = self.slices.in_namespace(service.metadata.namespace.as_deref().unwrap_or_default());
        existing.retain(|slice| service_of(slice).as_deref() == Some(key));
        let manager = |slice: &EndpointSlice| slice.metadata.labels.as_ref()?.get(slices::MANAGED_BY).cloned();
        existing.into_iter().partition(|slice| manager(slice).as_deref() == Some(slices::MANAGER))
    }

    async fn carry_out(
        &self,
        client: &Client,
        service: &Service,
        changes: &slices::Changes,
        expected: &mut ExpectedVersion,
    ) -> Result<(), kube::Error> {
        let namespace = service.metadata.namespace.as_deref().unwrap_or_default();
        let api: Api<EndpointSlice> = Api::namespaced(client.clone(), namespace);
        let params = PostParams::default();
        // A Service that goes takes its slices along.
        for slice in changes.make.iter().filter(|_| service.metadata.deletion_timestamp.is_none()) {
            expected.observe(&api.create(&params, slice).await?.metadata);
        }
        for slice in &changes.update {
            match api.replace(slice.metadata.name.as_deref().unwrap_or_default(), &params, slice).await {
                Ok(slice) => expected.observe(&slice.metadata),
                // It has changed, or gone, meanwhile: the watch says so.
                Err(e) if is_code(&e, 404) || is_code(&e, 409) => {}
                Err(e) => return Err(e),
            }
        }
        for slice in &changes.remove {
            let name = slice.metadata.name.as_deref().unwrap_or_default();
            ignore_not_found_or_conflict(api.delete(name, &DeleteParams::default()).await)?;
        }
        Ok(())
    }

    async fn write(&self, service: &Service, shall: &Endpoints, new: bool) -> Result<(), kube::Error> {
        let namespace = service.metadata.namespace.as_deref().unwrap_or_default();
        let name = service.metadata.name.as_deref().unwrap_or_default();
        let api: Api<Endpoints> = Api::namespaced(self.own.endpoints.clone(), namespace);
        let (written, reason, what) = if new {
            let written = api.create(&PostParams::default(), shall).await;
            (written, "FailedToCreateEndpoint", format!("create endpoint for service {namespace}/{name}"))
        } else {
            let written = api.replace(name, &PostParams::default(), shall).await;
            (written, "FailedToUpdateEndpoint", format!("update endpoint {namespace}/{name}"))
        };
        match written {
            Ok(_) => Ok(()),
            // Somebody was faster: it is looked at again in a moment.
            Err(e) if is_code(&e, 409) => Err(e),
            Err(e) if is_namespace_terminating(&e) || is_code(&e, 404) => Ok(()),
            Err(e) => {
                let message = format!("Failed to {what}: {}", error_message(&e));
                self.recorder.record(&shall.object_ref(&()), true, reason, &message).await;
                Err(e)
            }
        }
    }
}

/// It hears of changes from now on, not only once it runs.
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
    let managers = format!("{} in ({}, {})", slices::MANAGED_BY, slices::MANAGER, mirror::MANAGER);
    let own = Config::default().labels(&managers);
    let watched = futures::future::join(
        slices.clone().run_filtered(Api::all(clients.shared()), own, |slice| slice, stop.clone()),
        endpoints.clone().run(Api::all(clients.shared()), |endpoints| endpoints, stop.clone()),
    );
    let own = Accounts {
        endpoints: clients.for_service_account("endpoint-controller"),
        slices: clients.for_service_account("endpointslice-controller"),
        mirrors: clients.for_service_account("endpointslicemirroring-controller"),
    };
    let recorder = EventRecorder::new(own.endpoints.clone(), "endpoint-controller");
    let controller =
        EndpointsOfServices { own, recorder, services, pods, slices, endpoints, expectations: Expectations::default() };
    let works = worker::run(controller, events, stop);
    // What they do at once is large: it lies on the heap.
    Box::pin(async move {
        futures::join!(watched, works);
    })
}
