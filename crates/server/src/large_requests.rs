//! Large requests: those whose body, or the object that they change, takes 64 KiB or more.
//!
//! Decoding, patching, defaulting and validating such an object takes up to a second. That happens on threads of its own,
//! at most half as many at a time as there are processors, so that a worker of the runtime is free for everybody else. Small
//! requests stay on the worker: handing them over would cost more than they do.

use crate::{
    object,
    request::Resource,
    response::Reply,
    service::{ApiServer, Call},
    status::ApiError,
    update::TRIES,
};
use futures::FutureExt;
use http::Method;
use parking_lot::{Condvar, Mutex};
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

/// From how many bytes a request is large.
const LARGE: usize = 64 << 10;
/// How many large requests have a thread. Others wait for theirs until their deadline.
const MAX_THREADS: usize = 16;
/// How often a large request without a precondition is tried again when another write came first (upstream's
/// `MaxRetryWhenPatchConflicts`).
const TRIES_IF_LARGE: usize = 5;

/// Whether a request is large.
pub(crate) fn is_large(server: &ApiServer, resource: &Resource, call: &Call) -> bool {
    takes_long(server, resource, &call.method, call.body.len())
}

fn takes_long(server: &ApiServer, resource: &Resource, method: &Method, body: usize) -> bool {
    if matches!(*method, Method::GET | Method::HEAD) {
        return false;
    }
    let stored = || {
        let changes = matches!(*method, Method::PUT | Method::PATCH);
        let name = resource.name.as_deref().filter(|_| changes)?;
        let found = server.store.get(&object::key(&*resource.kind, &resource.namespace, name))?;
        Some(found.data.bytes().len())
    };
    let from = server.large.from;
    body >= from || stored().is_some_and(|length| body + length >= from)
}

/// How often a write is tried.
pub(crate) fn tries(server: &ApiServer, resource: &Resource, call: &Call) -> usize {
    tries_of(server, resource, &call.method, call.body.len())
}

fn tries_of(server: &ApiServer, resource: &Resource, method: &Method, body: usize) -> usize {
    if takes_long(server, resource, method, body) { TRIES_IF_LARGE } else { TRIES }
}

/// The threads of large requests.
pub(crate) struct LargeRequests {
    /// From how many bytes a request is large.
    pub(crate) from: usize,
    threads: Arc<Semaphore>,
    turns: Arc<Turns>,
}

impl Default for LargeRequests {
    fn default() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let turns = Turns { state: Mutex::default(), freed: Condvar::new(), most: (processors / 2).max(1) };
        Self { from: LARGE, threads: Arc::new(Semaphore::new(MAX_THREADS)), turns: Arc::new(turns) }
    }
}

impl LargeRequests {
    /// Carries out a large request. Like any future it ends when it is dropped, at the next point where it waits.
    pub(crate) async fn run(&self, work: impl Future<Output = Reply> + Send + 'static) -> Reply {
        let lost = || ApiError::internal("the request could not be handled");
        let thread = Arc::clone(&self.threads).acquire_owned().await.map_err(|_| lost())?;
        let (mut answer, answered) = oneshot::channel();
        let work = InTurn { turns: Arc::clone(&self.turns), work: Box::pin(work), is_new: true };
        let runtime = Handle::current();
        tokio::task::spawn_blocking(move || {
            let _thread = thread;
            let reply = runtime.block_on(async {
                tokio::select! {
                    biased;
                    () = answer.closed() => None,
                    reply = AssertUnwindSafe(work).catch_unwind() => Some(reply),
                }
            });
            if let Some(reply) = reply {
                let _ = answer.send(reply);
            }
        });
        match answered.await {
            Ok(Ok(reply)) => reply,
            Ok(Err(panic)) => resume_unwind(panic),
            Err(_) => Err(lost()),
        }
    }
}

/// How many threads compute at a time.
struct Turns {
    state: Mutex<State>,
    freed: Condvar,
    most: usize,
}

#[derive(Default)]
struct State {
    running: usize,
    /// Requests that go on after a wait. They come before new ones, since they may hold what small requests wait for.
    resuming: usize,
}

/// One thread's turn; it ends when this is dropped.
struct Turn<'a>(&'a Turns);

impl Turns {
    /// Blocks the thread until it is its turn.
    fn take(&self, is_new: bool) -> Turn<'_> {
        let mut state = self.state.lock();
        state.resuming += usize::from(!is_new);
        while state.running >= self.most || (is_new && state.resuming > 0) {
            self.freed.wait(&mut state);
        }
        state.resuming -= usize::from(!is_new);
        state.running += 1;
        Turn(self)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.state.lock().running -= 1;
        self.0.freed.notify_all();
    }
}

/// A future that computes only in its turn. It is polled on a thread that may block.
struct InTurn<F> {
    turns: Arc<Turns>,
    work: Pin<Box<F>>,
    is_new: bool,
}

impl<F: Future> Future for InTurn<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let is_new = std::mem::take(&mut self.is_new);
        let turns = Arc::clone(&self.turns);
        let _turn = turns.take(is_new);
        self.work.as_mut().poll(context)
    }
}

#[cfg(test)]
mod tests;
