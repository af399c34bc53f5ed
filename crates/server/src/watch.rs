//! WATCH: each watcher pulls from the store's window; an event is encoded once for all of them.

use crate::{
    conversion, json_order,
    kinds::KindRef,
    list_options::ListOptions,
    object::{self, Include, View},
    read,
    request::Resource,
    response::{self, Reply},
    selectors::Selection,
    service::{ApiServer, Call},
    status::ApiError,
    webhook::Webhooks,
};
use bytes::{BufMut, Bytes, BytesMut};
use futures::stream;
use serde_json::{Value, json};
use std::{collections::VecDeque, pin::Pin, sync::Arc, time::Duration};
use store::{Event, EventKind, Object, Revision, Watch};
use tokio::time::{Instant, Sleep};

/// How often a watcher that wants bookmarks gets one.
const BOOKMARK: Duration = Duration::from_secs(60);
/// How long before its end a watch gets a last bookmark, as upstream.
const LAST_BOOKMARK: Duration = Duration::from_secs(2);
/// Upstream ends a watch without `timeoutSeconds` after 30 to 60 min.
const LONGEST: Duration = Duration::from_secs(30 * 60);
/// A watch that is asked to last longer than this ends here.
const MAX_TIMEOUT: u64 = 7 * 24 * 3600;
/// Events that leave in one frame at most.
const BATCH: usize = 256;
/// Bytes of what there is already that leave in one frame, about.
const FIRST_BYTES: usize = 256 << 10;

struct Watcher {
    kind: KindRef,
    webhooks: Arc<Webhooks>,
    selection: Selection,
    /// Whether everything in the scope of the watch is selected.
    all: bool,
    view: View,
    include: Include,
    watch: Watch,
    /// What there was when the watch began, not sent yet; encoded as it is sent.
    first: VecDeque<Object>,
    /// What ends it: a bookmark of this revision that says so.
    first_ends: Option<Revision>,
    bookmarks: bool,
    next_bookmark: Instant,
    end: Instant,
    /// Kept from one event to the next: to set another each time would cost as much as the event.
    alarm: Pin<Box<Sleep>>,
    over: bool,
    header_sent: bool,
}

pub(crate) fn watch(server: &ApiServer, resource: &Resource, call: &Call) -> Reply {
    let selection = Selection::parse(&resource.kind, &call.query)?;
    let options = ListOptions::parse(&call.query, true)?;
    let view = object::stream_view(&call.accept, options.send_initial_events == Some(true))?;
    let include = Include::parse(&call.query)?;
    let scope = read::scope(resource, &selection);
    // Without a revision, and with 0, a watch starts with what there is now.
    let state_first = options.send_initial_events.unwrap_or(options.revision.unwrap_or(0) == 0);
    // Clients expect the error as an event of a watch that began.
    let refused = |error: &ApiError| Ok(response::stream(stream::iter([frame("ERROR", &error.to_json())])));
    if state_first && let Err(error) = read::not_older_than(server, options.revision) {
        return refused(&error);
    }
    let (mut first, mut first_ends) = (VecDeque::new(), None);
    let from = if state_first {
        let listing = server.store.list(&scope, None, None);
        first.extend(listing.objects);
        if options.send_initial_events == Some(true) && options.bookmarks {
            first_ends = Some(listing.revision);
        }
        listing.revision
    } else {
        options.revision.filter(|r| *r > 0).unwrap_or_else(|| server.store.revision())
    };
    let gone =
        |e: store::Expired| ApiError::expired(format!("too old resource version: {} ({})", e.requested, e.oldest));
    let events = match server.store.watch(scope, from) {
        Ok(events) => events,
        Err(e) => return refused(&gone(e)),
    };
    let limit = options.timeout.map_or(LONGEST, |t| Duration::from_secs(t.min(MAX_TIMEOUT)));
    let now = Instant::now();
    let watcher = Watcher {
        kind: resource.kind.clone(),
        all: selection.is_all() || selection.is_name(),
        webhooks: Arc::clone(&server.webhooks),
        selection,
        view,
        include,
        watch: events,
        first,
        first_ends,
        bookmarks: options.bookmarks,
        next_bookmark: next_bookmark(now, now + limit),
        end: now + limit,
        alarm: Box::pin(tokio::time::sleep_until(now + limit)),
        over: false,
        header_sent: false,
    };
    Ok(response::stream(stream::unfold(watcher, |mut w| async move { w.next().await.map(|bytes| (bytes, w)) })))
}

fn next_bookmark(now: Instant, end: Instant) -> Instant {
    let (next, last) = (now + BOOKMARK, end.checked_sub(LAST_BOOKMARK).unwrap_or(end));
    if last > now { next.min(last) } else { next }
}

/// The annotations of the bookmark behind the initial events.
fn initial_events_end() -> Value {
    json!({"k8s.io/initial-events-end": "true"})
}

impl Watcher {
    async fn next(&mut self) -> Option<Bytes> {
        match self.next_first().await {
            Ok(Some(bytes)) => return Some(bytes),
            Ok(None) => {}
            Err(error) => return Some(self.fail(&error)),
        }
        while !self.over {
            let mut events = Vec::new();
            let wake = if self.bookmarks { self.next_bookmark.min(self.end) } else { self.end };
            if self.alarm.deadline() != wake {
                self.alarm.as_mut().reset(wake);
            }
            let kind = self.kind.clone();
            let gone = async {
                match kind.gone() {
                    Some(gone) => gone.cancelled().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                // What happened before the kind went is told first.
                biased;
                got = self.watch.next_batch(&mut events, BATCH) => {
                    if got.is_err() {
                        self.over = true;
                        let error = ApiError::expired("too old resource version: the watch fell out of the window of events");
                        return Some(frame("ERROR", &error.to_json()));
                    }
                }
                () = gone => return None,
                () = self.alarm.as_mut() => {
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

    /// What cannot be told ends the watch.
    fn fail(&mut self, error: &ApiError) -> Bytes {
        self.over = true;
        self.first.clear();
        self.first_ends = None;
        frame("ERROR", &error.to_json())
    }

    /// The next of what there was already, as much as fits into a frame.
    async fn next_first(&mut self) -> Result<Option<Bytes>, ApiError> {
        let mut all = BytesMut::new();
        while all.is_empty() && !self.first.is_empty() {
            let (mut some, mut size) = (Vec::new(), 0);
            while size < FIRST_BYTES
                && let Some(object) = self.first.pop_front()
            {
                size += object.data.len();
                some.push(object);
            }
            let others: Vec<Object> = some.iter().filter(|object| !self.is_as_stored(object)).cloned().collect();
            let mut values = conversion::decode_all(&self.webhooks, &*self.kind, &others).await?.into_iter();
            for object in &some {
                if self.is_as_stored(object) {
                    if self.selects(object) {
                        all.put_slice(&self.stored_frame("ADDED", object));
                    }
                } else if let Some(value) = values.next().filter(|value| self.selection.matches(value)) {
                    all.put_slice(&self.frame_of("ADDED", value));
                }
            }
        }
        if all.is_empty() {
            let ends = self.first_ends.take();
            return Ok(ends.map(|revision| self.bookmark(revision, &initial_events_end())));
        }
        Ok(Some(all.freeze()))
    }

    /// Whether what this watcher is shown of an object is what is stored, or a part of it.
    fn is_as_stored(&self, object: &Object) -> bool {
        self.view != View::Table && self.kind.is_stored_form(object.revision)
    }

    /// The same of an event, for which it may matter what there was before.
    fn is_told_as_stored(&self, event: &Event) -> bool {
        let is_at_hand = |o: &Object| self.kind.conversion().is_none() || self.kind.is_stored_form(o.revision);
        self.is_as_stored(&event.object) && (self.all || event.previous.as_ref().is_none_or(is_at_hand))
    }

    fn selects(&self, object: &Object) -> bool {
        self.all || self.selection.matches_stored(object)
    }

    fn stored_frame(&self, kind: &str, object: &Object) -> Bytes {
        match self.view {
            View::Metadata => raw_frame(kind, &object::metadata_bytes(&*self.kind, object)),
            View::Whole | View::Table => raw_frame(kind, &object.data),
        }
    }

    /// Frames for those of the events that this watcher gets.
    async fn encode_all(&mut self, events: &[Arc<Event>]) -> Result<Vec<Bytes>, ApiError> {
        if events.iter().all(|event| self.is_told_as_stored(event)) {
            return Ok(events.iter().filter_map(|event| self.encode_stored(event)).collect());
        }
        let others = events.iter().filter(|event| !self.is_told_as_stored(event));
        let objects = others.flat_map(|event| std::iter::once(&event.object).chain(&event.previous));
        let objects: Vec<Object> = objects.cloned().collect();
        let mut values = conversion::decode_all(&self.webhooks, &*self.kind, &objects).await?.into_iter();
        let mut frames = Vec::with_capacity(events.len());
        for event in events {
            if self.is_told_as_stored(event) {
                frames.extend(self.encode_stored(event));
            } else if let Some(value) = values.next() {
                let previous = event.previous.as_ref().and_then(|_| values.next());
                frames.extend(self.encode(event.kind, value, previous));
            }
        }
        Ok(frames)
    }

    /// The same for an object that is shown as it is stored.
    fn encode_stored(&mut self, event: &Event) -> Option<Bytes> {
        let selected = event.kind == EventKind::Put && self.selects(&event.object);
        let kind = match event.previous.as_ref().filter(|previous| self.selects(previous)) {
            _ if self.all => told(event),
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
        Some(match self.view {
            // Made once for all who see it so.
            View::Whole if kind == told(event) => {
                event.frame.get_or_init(|| raw_frame(kind, &event.object.data)).clone()
            }
            _ => self.stored_frame(kind, &event.object),
        })
    }

    fn encode(&mut self, what: EventKind, value: Value, previous: Option<Value>) -> Option<Bytes> {
        let selected = what == EventKind::Put && self.selection.matches(&value);
        let before = previous.filter(|p| self.selection.matches(p));
        let (kind, value) = match (before, selected) {
            (None, false) => return None,
            (None, true) => ("ADDED", value),
            (Some(_), true) => ("MODIFIED", value),
            (Some(_), false) if what == EventKind::Delete => ("DELETED", value),
            // What leaves the selection is shown as it last was in it, at the revision at which it left.
            (Some(mut last), false) => {
                last["metadata"]["resourceVersion"] = value["metadata"]["resourceVersion"].clone();
                ("DELETED", last)
            }
        };
        Some(self.frame_of(kind, value))
    }

    fn frame_of(&mut self, kind: &str, value: Value) -> Bytes {
        let header = !std::mem::replace(&mut self.header_sent, true);
        let shown = match self.view {
            View::Whole => value,
            View::Metadata => object::metadata_only(&value),
            View::Table => {
                let metadata = json!({"resourceVersion": value["metadata"]["resourceVersion"]});
                object::table(&*self.kind, &[value], &metadata, header, self.include)
            }
        };
        frame(kind, &shown)
    }

    /// An object that has nothing but a revision, shown as any other.
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

/// What happened, for a watcher that gets everything.
fn told(event: &Event) -> &'static str {
    match (event.kind, &event.previous) {
        (EventKind::Delete, _) => "DELETED",
        (EventKind::Put, None) => "ADDED",
        (EventKind::Put, Some(_)) => "MODIFIED",
    }
}

fn frame(kind: &str, object: &Value) -> Bytes {
    raw_frame(kind, &json_order::document(object))
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
