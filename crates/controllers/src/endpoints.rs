//! Endpoints: which Pods are behind a Service, as EndpointSlices and as Endpoints (`pkg/controller/endpointslice`,
//! `pkg/controller/endpoint`). What somebody says is behind a Service that selects none is mirrored into slices.

mod address;
mod mirror;
mod slices;
mod subsets;
#[cfg(test)]
mod tests;

use crate::cache::{Cache, Seen, key};
use crate::clients::Clients;
use crate::members::Member;
use crate::pod_control::{is_ending, said};
use crate::recorder::Recorder;
use crate::worker::{self, Controller, is_code, unless_gone};
use crate::written::{Revision, Written};
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
    Service(Seen<Service>),
    Pod(Seen<Member>),
    Slice(Seen<EndpointSlice>),
    Endpoints(Seen<Endpoints>),
}

/// Upstream has a controller for each.
struct Accounts {
    endpoints: Client,
    slices: Client,
    mirrors: Client,
}

struct EndpointsOfServices {
    own: Accounts,
    recorder: Recorder,
    services: Cache<Service>,
    pods: Cache<Member>,
    slices: Cache<EndpointSlice>,
    endpoints: Cache<Endpoints>,
    written: Written,
}

impl Controller for EndpointsOfServices {
    type Event = Event;
    const NAME: &'static str = "endpoints";

    fn observe(&mut self, event: Event, _now: Instant) -> Vec<String> {
        match event {
            Event::Service(seen @ Seen::One { .. }) => {
                seen.both().last().map(|s| key(s.as_ref())).into_iter().collect()
            }
            Event::Pod(seen @ Seen::One { .. }) => {
                let services = seen.both().next().map(|pod| self.services.in_namespace(&pod.namespace));
                let all = services.into_iter().flatten();
                all.filter(|s| concerns(s, &seen)).map(|service| key(service.as_ref())).collect()
            }
            Event::Slice(seen @ Seen::One { .. }) => seen.both().filter_map(|slice| service_of(slice)).collect(),
            // Those that are gone are made anew; what somebody writes there is his, and mirrored.
            Event::Endpoints(seen @ Seen::One { after: None, .. }) => seen.both().map(|e| key(e.as_ref())).collect(),
            Event::Endpoints(seen @ Seen::One { .. }) => {
                let mut keys: Vec<String> = seen.both().last().map(|e| key(e.as_ref())).into_iter().collect();
                keys.retain(|key| self.services.at(key).is_some_and(|service| !selects_pods(&service)));
                keys
            }
            Event::Service(Seen::All)
            | Event::Pod(Seen::All)
            | Event::Slice(Seen::All)
            | Event::Endpoints(Seen::All) => self.services.keys().into_iter().chain(self.leftovers()).collect(),
        }
    }

    async fn reconcile(&mut self, key: &str, now: Instant) -> Result<Option<Duration>, kube::Error> {
        let listed = [self.services.listed(), self.pods.listed(), self.slices.listed(), self.endpoints.listed()];
        if !listed.into_iter().all(|listed| listed) {
            return Ok(None);
        }
        if let Some(left) = self.written.outstanding(key, self.slices.revision(), now) {
            return Ok(Some(left));
        }
        let Some(service) = self.services.at(key) else {
            self.written.forget(key);
            return self.forget(key).await.map(|()| None);
        };
        let Some(spec) = service.spec.as_ref().filter(|spec| has_endpoints(spec)) else {
            return self.mirror(key, &service, now).await.map(|()| None);
        };
        let mut pods = self.pods.in_namespace(service.metadata.namespace.as_deref().unwrap_or_default());
        pods.retain(|pod| selects(spec, pod));
        let mut written = Revision::default();
        let sliced = self.slice(key, &service, spec, &pods, &mut written).await;
        self.written.note(key, written, now);
        match sliced {
            Err(e) if is_ending(&e) => return Ok(None),
            other => other?,
        }
        let is = self.endpoints.at(key);
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
fn concerns(service: &Service, seen: &Seen<Member>) -> bool {
    service.spec.as_ref().is_some_and(|spec| seen.both().any(|pod| selects(spec, pod)))
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
        all.filter(|key| self.services.at(key).is_none()).collect()
    }

    /// The Service is gone: its slices go as what it owned, its Endpoints are removed here.
    async fn forget(&self, key: &str) -> Result<(), kube::Error> {
        let Some(endpoints) = self.endpoints.at(key) else { return Ok(()) };
        let namespace = endpoints.metadata.namespace.as_deref().unwrap_or_default();
        let api: Api<Endpoints> = Api::namespaced(self.own.endpoints.clone(), namespace);
        let name = endpoints.metadata.name.as_deref().unwrap_or_default();
        unless_gone(api.delete(name, &DeleteParams::default()).await)
    }

    async fn slice(
        &self,
        key: &str,
        service: &Service,
        spec: &ServiceSpec,
        pods: &[Arc<Member>],
        written: &mut Revision,
    ) -> Result<(), kube::Error> {
        let (existing, mirrored) = self.slices_of(key, service);
        let mut changes = slices::slices(service, spec, pods, &existing);
        changes.remove.extend(mirrored);
        self.carry_out(&self.own.slices, service, &changes, written).await
    }

    /// Slices as somebody's Endpoints, for a Service that selects no Pods.
    async fn mirror(&mut self, key: &str, service: &Service, now: Instant) -> Result<(), kube::Error> {
        // What selects everything has no endpoints, but nobody's either.
        let has_own = service.spec.as_ref().is_some_and(|spec| spec.selector.is_none());
        let endpoints = self.endpoints.at(key).filter(|_| has_own);
        let changes = mirror::mirror(endpoints.as_deref(), &self.slices_of(key, service).1);
        let mut written = Revision::default();
        let done = self.carry_out(&self.own.mirrors, service, &changes, &mut written).await;
        self.written.note(key, written, now);
        match done {
            Err(e) if is_ending(&e) => Ok(()),
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
        written: &mut Revision,
    ) -> Result<(), kube::Error> {
        let namespace = service.metadata.namespace.as_deref().unwrap_or_default();
        let api: Api<EndpointSlice> = Api::namespaced(client.clone(), namespace);
        let params = PostParams::default();
        // A Service that goes takes its slices along.
        for slice in changes.make.iter().filter(|_| service.metadata.deletion_timestamp.is_none()) {
            written.saw(&api.create(&params, slice).await?.metadata);
        }
        for slice in &changes.update {
            match api.replace(slice.metadata.name.as_deref().unwrap_or_default(), &params, slice).await {
                Ok(slice) => written.saw(&slice.metadata),
                // It has changed, or gone, meanwhile: the watch says so.
                Err(e) if is_code(&e, 404) || is_code(&e, 409) => {}
                Err(e) => return Err(e),
            }
        }
        for slice in &changes.remove {
            let name = slice.metadata.name.as_deref().unwrap_or_default();
            unless_gone(api.delete(name, &DeleteParams::default()).await)?;
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
            Err(e) if is_ending(&e) || is_code(&e, 404) => Ok(()),
            Err(e) => {
                let message = format!("Failed to {what}: {}", said(&e));
                self.recorder.tell(&shall.object_ref(&()), true, reason, &message).await;
                Err(e)
            }
        }
    }
}

/// It hears of changes from now on, not only once it runs.
pub(crate) fn run(
    clients: Clients,
    services: Cache<Service>,
    pods: Cache<Member>,
    stop: CancellationToken,
) -> impl Future<Output = ()> + Send {
    let (slices, endpoints) = (Cache::<EndpointSlice>::new(), Cache::<Endpoints>::new());
    let of_services = stream::select(services.changes().map(Event::Service), pods.changes().map(Event::Pod));
    let of_endpoints = stream::select(slices.changes().map(Event::Slice), endpoints.changes().map(Event::Endpoints));
    let events = stream::select(of_services, of_endpoints).boxed();
    let managers = format!("{} in ({}, {})", slices::MANAGED_BY, slices::MANAGER, mirror::MANAGER);
    let own = Config::default().labels(&managers);
    let watched = futures::future::join(
        slices.clone().follow_some(Api::all(clients.shared()), own, |slice| slice, stop.clone()),
        endpoints.clone().follow(Api::all(clients.shared()), |endpoints| endpoints, stop.clone()),
    );
    let own = Accounts {
        endpoints: clients.of("endpoint-controller"),
        slices: clients.of("endpointslice-controller"),
        mirrors: clients.of("endpointslicemirroring-controller"),
    };
    let recorder = Recorder::new(own.endpoints.clone(), "endpoint-controller");
    let controller =
        EndpointsOfServices { own, recorder, services, pods, slices, endpoints, written: Written::default() };
    let works = worker::run(controller, events, stop);
    // What they do at once is large: it lies on the heap.
    Box::pin(async move {
        futures::join!(watched, works);
    })
}
