//! WATCH (upstream's `WatchServer`): each watcher pulls events from the store's window. An event is encoded once for all
//! watchers.

use crate::{
    objects::{
        call::Call,
        conversion,
        list_options::ListOptions,
        object::{self, IncludeObjectPolicy, Representation},
        request_scope::RequestScope,
        selectors::Selection,
    },
    proxy::webhook::WebhookClient,
    rest::{generic_registry::GenericRegistry, read},
};
use bytes::{BufMut, Bytes, BytesMut};
use errors::ApiError;
use futures::stream;
use kinds::KindRef;
use response::HandlerResult;
use serde_json::{Value, json};
use std::{collections::VecDeque, pin::Pin, sync::Arc, time::Duration};
use store::{Event, EventKind, Object, Revision, Watch};
use tokio::time::{Instant, Sleep};
use wire::json_order;

/// Interval of bookmarks.
const BOOKMARK_INTERVAL: Duration = Duration::from_secs(60);
/// Time between the final bookmark and the end of a watch, as upstream.
const FINAL_BOOKMARK_LEAD: Duration = Duration::from_secs(2);
/// Duration of a watch without `timeoutSeconds`; upstream's is random between 30 and 60 min.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30 * 60);
/// Maximum of `timeoutSeconds`.
const MAX_TIMEOUT_SECONDS: u64 = 7 * 24 * 3600;
/// Maximum events of one frame.
const MAX_BATCH: usize = 256;
/// Approximate bytes of one frame of initial events.
const INITIAL_FRAME_BYTES: usize = 256 << 10;

struct Watcher {
    kind: KindRef,
    webhooks: Arc<WebhookClient>,
    selection: Selection,
    /// Whether all objects in the scope of the watch are selected.
    all: bool,
    representation: Representation,
    include: IncludeObjectPolicy,
    watch: Watch,
    /// The initial objects that are not sent yet; they are encoded when they are sent.
    initial: VecDeque<Object>,
    /// Revision of the bookmark that ends the initial events.
    initial_end: Option<Revision>,
    allow_bookmarks: bool,
    next_bookmark: Instant,
    end: Instant,
    /// Reused for all events: creating a timer costs as much as an event.
    timer: Pin<Box<Sleep>>,
    is_done: bool,
    header_sent: bool,
}

pub(crate) fn watch(registry: &GenericRegistry, resource: &RequestScope, call: &Call) -> HandlerResult {
    let selection = Selection::parse(&resource.kind, &call.query)?;
    let options = ListOptions::parse(&call.query, true)?;
    let representation = object::negotiate_watch(&call.accept, options.send_initial_events == Some(true))?;
    let include = IncludeObjectPolicy::parse(&call.query)?;
    let scope = read::scope(resource, &selection);
    // Without `resourceVersion`, and with 0, a watch starts with the current objects.
    let sends_initial = options.send_initial_events.unwrap_or(options.revision.unwrap_or(0) == 0);
    // Clients expect the error as an event of a watch that has begun.
    let rejected = |error: &ApiError| Ok(response::stream(stream::iter([frame("ERROR", &error.to_json())])));
    if sends_initial && let Err(error) = read::require_reached_revision(registry, options.revision) {
        return rejected(&error);
    }
    let (mut initial, mut initial_end) = (VecDeque::new(), None);
    let from = if sends_initial {
        let listing = registry.store.list(&scope, None, None);
        initial.extend(listing.objects);
        if options.send_initial_events == Some(true) && options.allow_bookmarks {
            initial_end = Some(listing.revision);
        }
        listing.revision
    } else {
        options.revision.filter(|r| *r > 0).unwrap_or_else(|| registry.store.revision())
    };
    let expired =
        |e: store::Expired| ApiError::expired(format!("too old resource version: {} ({})", e.requested, e.oldest));
    let events = match registry.store.watch(scope, from) {
        Ok(events) => events,
        Err(e) => return rejected(&expired(e)),
    };
    let limit = options.timeout.map_or(DEFAULT_TIMEOUT, |t| Duration::from_secs(t.min(MAX_TIMEOUT_SECONDS)));
    let now = Instant::now();
    let watcher = Watcher {
        kind: resource.kind.clone(),
        all: selection.is_all() || selection.is_name(),
        webhooks: Arc::clone(&registry.webhooks),
        selection,
        representation,
        include,
        watch: events,
        initial,
        initial_end,
        allow_bookmarks: options.allow_bookmarks,
        next_bookmark: next_bookmark(now, now + limit),
        end: now + limit,
        timer: Box::pin(tokio::time::sleep_until(now + limit)),
        is_done: false,
        header_sent: false,
    };
    Ok(response::stream(stream::unfold(watcher, |mut w| async move { w.next().await.map(|bytes| (bytes, w)) })))
}

fn next_bookmark(now: Instant, end: Instant) -> Instant {
    let (next, final_one) = (now + BOOKMARK_INTERVAL, end.checked_sub(FINAL_BOOKMARK_LEAD).unwrap_or(end));
    if final_one > now { next.min(final_one) } else { next }
}

/// Annotations of the bookmark that ends the initial events.
fn initial_events_end_annotations() -> Value {
    json!({"k8s.io/initial-events-end": "true"})
}

impl Watcher {
    async fn next(&mut self) -> Option<Bytes> {
        match self.next_initial_frame().await {
            Ok(Some(bytes)) => return Some(bytes),
            Ok(None) => {}
            Err(error) => return Some(self.fail(&error)),
        }
        while !self.is_done {
            let mut events = Vec::new();
            let wake = if self.allow_bookmarks { self.next_bookmark.min(self.end) } else { self.end };
            if self.timer.deadline() != wake {
                self.timer.as_mut().reset(wake);
            }
            let kind = self.kind.clone();
            let gone = async {
                match kind.cancellation_token() {
                    Some(gone) => gone.cancelled().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                // Events before the removal of the kind are sent first.
                biased;
                got = self.watch.next_batch(&mut events, MAX_BATCH) => {
                    if got.is_err() {
                        self.is_done = true;
                        let error = ApiError::expired("too old resource version: the watch fell out of the window of events");
                        return Some(frame("ERROR", &error.to_json()));
                    }
                }
                () = gone => return None,
                () = self.timer.as_mut() => {
                    let now = Instant::now();
                    if now >= self.end {
                        return None;
                    }
                    self.next_bookmark = next_bookmark(now, self.end);
                    let revision = self.watch.progress();
                    return Some(self.bookmark(revision, &Value::Null));
                }
            }
            let frames = match self.encode_all(&events).await {
                Ok(frames) => frames,
                Err(error) => return Some(self.fail(&error)),
            };
            match frames.len() {
                0 => {}
                1 => return frames.into_iter().next(),
                _ => {
                    let mut all = BytesMut::with_capacity(frames.iter().map(Bytes::len).sum());
                    frames.iter().for_each(|f| all.put_slice(f));
                    return Some(all.freeze());
                }
            }
        }
        None
    }

    /// Ends the watch with an error event.
    fn fail(&mut self, error: &ApiError) -> Bytes {
        self.is_done = true;
        self.initial.clear();
        self.initial_end = None;
        frame("ERROR", &error.to_json())
    }

    /// Returns the next frame of initial events.
    async fn next_initial_frame(&mut self) -> Result<Option<Bytes>, ApiError> {
        let mut all = BytesMut::new();
        while all.is_empty() && !self.initial.is_empty() {
            let (mut some, mut size) = (Vec::new(), 0);
            while size < INITIAL_FRAME_BYTES
                && let Some(object) = self.initial.pop_front()
            {
                size += object.data.len();
                some.push(object);
            }
            let others: Vec<Object> = some.iter().filter(|object| !self.sends_stored_bytes(object)).cloned().collect();
            let mut values = conversion::decode_all(&self.webhooks, &*self.kind, &others).await?.into_iter();
            for object in &some {
                if self.sends_stored_bytes(object) {
                    if self.selects(object) {
                        all.put_slice(&self.stored_frame("ADDED", object));
                    }
                } else if let Some(value) = values.next().filter(|value| self.selection.matches(value)) {
                    all.put_slice(&self.frame_of("ADDED", value));
                }
            }
        }
        if all.is_empty() {
            let end = self.initial_end.take();
            return Ok(end.map(|revision| self.bookmark(revision, &initial_events_end_annotations())));
        }
        Ok(Some(all.freeze()))
    }

    /// Whether this watcher is sent an object's stored bytes, or a part of them.
    fn sends_stored_bytes(&self, object: &Object) -> bool {
        self.representation != Representation::Table && self.kind.is_stored_form(object.revision)
    }

    /// As [`Self::sends_stored_bytes`] for an event, of which the previous object may be needed, too.
    fn sends_stored_event(&self, event: &Event) -> bool {
        let is_stored_form = |o: &Object| self.kind.conversion().is_none() || self.kind.is_stored_form(o.revision);
        self.sends_stored_bytes(&event.object) && (self.all || event.previous.as_ref().is_none_or(is_stored_form))
    }

    fn selects(&self, object: &Object) -> bool {
        self.all || self.selection.matches_stored(object)
    }

    fn stored_frame(&self, kind: &str, object: &Object) -> Bytes {
        match self.representation {
            Representation::Metadata => raw_frame(kind, &object::metadata_bytes(&*self.kind, object)),
            Representation::Object | Representation::Table => raw_frame(kind, &object.data),
        }
    }

    /// Encodes the events that this watcher selects.
    async fn encode_all(&mut self, events: &[Arc<Event>]) -> Result<Vec<Bytes>, ApiError> {
        if events.iter().all(|event| self.sends_stored_event(event)) {
            return Ok(events.iter().filter_map(|event| self.encode_stored(event)).collect());
        }
        let others = events.iter().filter(|event| !self.sends_stored_event(event));
        let objects = others.flat_map(|event| std::iter::once(&event.object).chain(&event.previous));
        let objects: Vec<Object> = objects.cloned().collect();
        let mut values = conversion::decode_all(&self.webhooks, &*self.kind, &objects).await?.into_iter();
        let mut frames = Vec::with_capacity(events.len());
        for event in events {
            if self.sends_stored_event(event) {
                frames.extend(self.encode_stored(event));
            } else if let Some(value) = values.next() {
                let previous = event.previous.as_ref().and_then(|_| values.next());
                frames.extend(self.encode(event.kind, value, previous));
            }
        }
        Ok(frames)
    }

    /// Encodes an event whose object is sent as it is stored.
    fn encode_stored(&mut self, event: &Event) -> Option<Bytes> {
        let selected = event.kind == EventKind::Put && self.selects(&event.object);
        let kind = match event.previous.as_ref().filter(|previous| self.selects(previous)) {
            _ if self.all => event_type(event),
            None if selected => "ADDED",
            None => return None,
            Some(_) if selected => "MODIFIED",
            Some(_) if event.kind == EventKind::Delete => "DELETED",
            Some(last) => {
                let mut last = object::decode(&*self.kind, last);
                last["metadata"]["resourceVersion"] = event.object.revision.to_string().into();
                return Some(self.frame_of("DELETED", last));
            }
        };
        Some(match self.representation {
            // The frame is shared by all watchers that send it.
            Representation::Object if kind == event_type(event) => {
                event.frame.get_or_init(|| raw_frame(kind, &event.object.data)).clone()
            }
            _ => self.stored_frame(kind, &event.object),
        })
    }

    fn encode(&mut self, event: EventKind, value: Value, previous: Option<Value>) -> Option<Bytes> {
        let selected = event == EventKind::Put && self.selection.matches(&value);
        let old_value = previous.filter(|p| self.selection.matches(p));
        let (kind, value) = match (old_value, selected) {
            (None, false) => return None,
            (None, true) => ("ADDED", value),
            (Some(_), true) => ("MODIFIED", value),
            (Some(_), false) if event == EventKind::Delete => ("DELETED", value),
            // An object that no longer matches is sent in its last matching state, at the revision of the change.
            (Some(mut last), false) => {
                last["metadata"]["resourceVersion"] = value["metadata"]["resourceVersion"].clone();
                ("DELETED", last)
            }
        };
        Some(self.frame_of(kind, value))
    }

    fn frame_of(&mut self, kind: &str, value: Value) -> Bytes {
        let header = !std::mem::replace(&mut self.header_sent, true);
        let shown = match self.representation {
            Representation::Object => value,
            Representation::Metadata => object::metadata_only(&value),
            Representation::Table => {
                let metadata = json!({"resourceVersion": value["metadata"]["resourceVersion"]});
                object::table(&*self.kind, &[value], &metadata, header, self.include)
            }
        };
        frame(kind, &shown)
    }

    /// Returns a bookmark: an object with nothing but a `resourceVersion`, in the watch's representation.
    fn bookmark(&mut self, revision: Revision, annotations: &Value) -> Bytes {
        let info = self.kind.info();
        let mut metadata = json!({"resourceVersion": revision.to_string()});
        if !annotations.is_null() {
            metadata["annotations"] = annotations.clone();
        }
        let object = json!({"kind": info.kind, "apiVersion": info.api_version(), "metadata": metadata});
        self.frame_of("BOOKMARK", object)
    }
}

/// Returns the event type for a watcher without selectors.
fn event_type(event: &Event) -> &'static str {
    match (event.kind, &event.previous) {
        (EventKind::Delete, _) => "DELETED",
        (EventKind::Put, None) => "ADDED",
        (EventKind::Put, Some(_)) => "MODIFIED",
    }
}

fn frame(kind: &str, object: &Value) -> Bytes {
    raw_frame(kind, &json_order::encode_document(object))
}

fn raw_frame(kind: &str, object: &[u8]) -> Bytes {
    let mut all = BytesMut::with_capacity(object.len() + 40);
    all.put_slice(b"{\"type\":\"");
    all.put_slice(kind.as_bytes());
    all.put_slice(b"\",\"object\":");
    all.put_slice(json_order::without_newline(object));
    all.put_slice(b"}\n");
    all.freeze()
}
