//! Large requests: body and changed object have 64 KiB or more together.
//!
//! Decoding, patching, defaulting and validating such an object takes up to a second. Large requests run on threads of
//! their own, of which at most half as many as there are processors compute at a time, so that a runtime worker stays free
//! for small requests. Small requests stay on the worker: moving them to a thread would cost more than it saves.

use crate::{
    objects::{call::Call, object, request_scope::RequestScope},
    rest::{generic_registry::GenericRegistry, update::MAX_ATTEMPTS},
};
use errors::ApiError;
use futures::FutureExt;
use http::Method;
use parking_lot::{Condvar, Mutex};
use response::HandlerResult;
use std::{
    future::Future,
    panic::{AssertUnwindSafe, resume_unwind},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};
use tokio::{
    runtime::Handle,
    sync::{Semaphore, oneshot},
};

/// Threshold of large requests, in bytes.
const THRESHOLD: usize = 64 << 10;
/// Maximum threads of large requests. Further requests wait for a thread until their deadline.
const MAX_THREADS: usize = 16;
/// Attempts of a large request without a precondition when other writes come first (upstream's
/// `MaxRetryWhenPatchConflicts`).
const MAX_ATTEMPTS_WHEN_LARGE: usize = 5;

/// Whether a request is large.
pub(crate) fn is_large(registry: &GenericRegistry, resource: &RequestScope, call: &Call) -> bool {
    exceeds_threshold(registry, resource, &call.method, call.body.len())
}

fn exceeds_threshold(registry: &GenericRegistry, resource: &RequestScope, method: &Method, body: usize) -> bool {
    if matches!(*method, Method::GET | Method::HEAD) {
        return false;
    }
    let stored_length = || {
        let changes = matches!(*method, Method::PUT | Method::PATCH);
        let name = resource.name.as_deref().filter(|_| changes)?;
        let found = registry.store.get(&object::key(&*resource.kind, &resource.namespace, name))?;
        Some(found.data.bytes().len())
    };
    let threshold = registry.large_requests.threshold;
    body >= threshold || stored_length().is_some_and(|length| body + length >= threshold)
}

/// Returns the maximum attempts of a write.
pub(crate) fn max_attempts(registry: &GenericRegistry, resource: &RequestScope, call: &Call) -> usize {
    max_attempts_of(registry, resource, &call.method, call.body.len())
}

fn max_attempts_of(registry: &GenericRegistry, resource: &RequestScope, method: &Method, body: usize) -> usize {
    if exceeds_threshold(registry, resource, method, body) { MAX_ATTEMPTS_WHEN_LARGE } else { MAX_ATTEMPTS }
}

/// The threads of large requests.
pub(crate) struct LargeRequests {
    /// Size from which a request is large, in bytes.
    pub(crate) threshold: usize,
    threads: Arc<Semaphore>,
    slots: Arc<ComputeSlots>,
}

impl Default for LargeRequests {
    fn default() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let slots = ComputeSlots { state: Mutex::default(), freed: Condvar::new(), total: (processors / 2).max(1) };
        Self { threshold: THRESHOLD, threads: Arc::new(Semaphore::new(MAX_THREADS)), slots: Arc::new(slots) }
    }
}

impl LargeRequests {
    /// Runs a large request on a thread. When this future is dropped, the request ends at its next await point.
    pub(crate) async fn run(&self, work: impl Future<Output = HandlerResult> + Send + 'static) -> HandlerResult {
        let lost = || ApiError::internal("the request could not be handled");
        let thread = Arc::clone(&self.threads).acquire_owned().await.map_err(|_| lost())?;
        let (mut sender, receiver) = oneshot::channel();
        let work = LimitedFuture { slots: Arc::clone(&self.slots), work: Box::pin(work), is_new: true };
        let runtime = Handle::current();
        tokio::task::spawn_blocking(move || {
            let _thread = thread;
            let result = runtime.block_on(async {
                tokio::select! {
                    biased;
                    () = sender.closed() => None,
                    result = AssertUnwindSafe(work).catch_unwind() => Some(result),
                }
            });
            if let Some(result) = result {
                let _ = sender.send(result);
            }
        });
        match receiver.await {
            Ok(Ok(result)) => result,
            Ok(Err(panic)) => resume_unwind(panic),
            Err(_) => Err(lost()),
        }
    }
}

/// Limits how many threads compute at a time.
struct ComputeSlots {
    state: Mutex<State>,
    freed: Condvar,
    total: usize,
}

#[derive(Default)]
struct State {
    running: usize,
    /// Requests that resume after an await. They precede new ones, since they may hold locks that small requests wait for.
    resuming: usize,
}

/// The slot of one thread; dropping it frees the slot.
struct ComputeSlot<'a>(&'a ComputeSlots);

impl ComputeSlots {
    /// Blocks the thread until a slot is free.
    fn acquire(&self, is_new: bool) -> ComputeSlot<'_> {
        let mut state = self.state.lock();
        state.resuming += usize::from(!is_new);
        while state.running >= self.total || (is_new && state.resuming > 0) {
            self.freed.wait(&mut state);
        }
        state.resuming -= usize::from(!is_new);
        state.running += 1;
        ComputeSlot(self)
    }
}

impl Drop for ComputeSlot<'_> {
    fn drop(&mut self) {
        self.0.state.lock().running -= 1;
        self.0.freed.notify_all();
    }
}

/// A future that is polled only with a slot, on a thread that may block.
struct LimitedFuture<F> {
    slots: Arc<ComputeSlots>,
    work: Pin<Box<F>>,
    is_new: bool,
}

impl<F: Future> Future for LimitedFuture<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let is_new = std::mem::take(&mut self.is_new);
        let slots = Arc::clone(&self.slots);
        let _slot = slots.acquire(is_new);
        self.work.as_mut().poll(context)
    }
}

#[cfg(test)]
mod tests;
