//! WATCH: each watcher pulls from the store's window; an event is encoded once for all of them.

use crate::{
    kinds::Kind,
    object::{self, View},
    read,
    reply::{self, Reply},
    request::Resource,
    select::Selection,
    service::{ApiServer, Call},
    status::ApiError,
};
use bytes::{BufMut, Bytes, BytesMut};
use futures::stream;
use serde_json::{Value, json};
use std::{collections::VecDeque, sync::Arc, time::Duration};
use store::{Event, EventKind, Revision, Watch};
use tokio::time::Instant;

/// How often a watcher that wants bookmarks gets one.
const BOOKMARK: Duration = Duration::from_secs(60);
/// Upstream ends a watch without `timeoutSeconds` after 30 to 60 min.
const LONGEST: Duration = Duration::from_secs(30 * 60);
/// Events that leave in one frame at most.
const BATCH: usize = 256;

struct Watcher {
    kind: &'static dyn Kind,
    selection: Selection,
    view: View,
    watch: Watch,
    first: VecDeque<Bytes>,
    bookmarks: bool,
    next_bookmark: Instant,
    end: Instant,
    over: bool,
    header_sent: bool,
}

pub(crate) fn watch(server: &ApiServer, resource: &Resource, call: &Call) -> Reply {
    let kind = resource.kind;
    let selection = Selection::parse(kind, &call.query)?;
    let view = object::view(&call.accept)?;
    let bookmarks = call.query.flag("allowWatchBookmarks")?;
    let initial = call.query.flag("sendInitialEvents")?;
    let revision: Option<Revision> = call.query.number("resourceVersion")?;
    if initial && call.query.get("resourceVersionMatch") != Some("NotOlderThan") {
        let text =
            "sendInitialEvents: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
        return Err(ApiError::bad_request(text));
    }
    let mut scope = read::scope(resource);
    if let Some(name) = &resource.name {
        scope = scope.named(name.as_str());
    }
    // Without a revision, and with 0, a watch starts with what there is now.
    let from_now = initial || revision.is_none_or(|r| r == 0);
    let mut first = VecDeque::new();
    let from = if from_now {
        let listing = server.store.list(&scope, None, None);
        for value in listing.objects.iter().map(|o| object::decode(kind, o)).filter(|v| selection.matches(v)) {
            first.push_back(frame("ADDED", &shown(kind, view, value, first.is_empty())));
        }
        if initial && bookmarks {
            let annotations = json!({"k8s.io/initial-events-end": "true"});
            first.push_back(bookmark(kind, view, listing.revision, &annotations));
        }
        listing.revision
    } else {
        revision.unwrap_or(0)
    };
    let gone =
        |e: store::Expired| ApiError::expired(format!("too old resource version: {} ({})", e.requested, e.oldest));
    let events = match server.store.watch(scope, from) {
        Ok(events) => events,
        // Clients expect the error as an event of a watch that began.
        Err(e) => return Ok(reply::stream(stream::iter([frame("ERROR", &gone(e).to_json())]))),
    };
    let limit = call.query.number("timeoutSeconds")?.map_or(LONGEST, Duration::from_secs);
    let now = Instant::now();
    let header_sent = !first.is_empty();
    let watcher = Watcher {
        kind,
        selection,
        view,
        watch: events,
        first,
        bookmarks,
        next_bookmark: now + BOOKMARK,
        end: now + limit,
        over: false,
        header_sent,
    };
    Ok(reply::stream(stream::unfold(watcher, |mut w| async move { w.next().await.map(|bytes| (bytes, w)) })))
}

impl Watcher {
    async fn next(&mut self) -> Option<Bytes> {
        if let Some(bytes) = self.first.pop_front() {
            return Some(bytes);
        }
        while !self.over {
            let mut events = Vec::new();
            let wake = if self.bookmarks { self.next_bookmark.min(self.end) } else { self.end };
            tokio::select! {
                got = self.watch.next_batch(&mut events, BATCH) => {
                    if got.is_err() {
                        self.over = true;
                        let error = ApiError::expired("too old resource version: the watch fell out of the window of events");
                        return Some(frame("ERROR", &error.to_json()));
                    }
                }
                () = tokio::time::sleep_until(wake) => {
                    if Instant::now() >= self.end {
                        return None;
                    }
                    self.next_bookmark = Instant::now() + BOOKMARK;
                    let revision = self.watch.progress();
                    return Some(bookmark(self.kind, self.view, revision, &Value::Null));
                }
            }
            let frames: Vec<Bytes> = events.iter().filter_map(|e| self.encode(e)).collect();
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

    fn encode(&mut self, event: &Arc<Event>) -> Option<Bytes> {
        if self.selection.is_all() && self.view == View::Whole && object::stored_as_served(self.kind) {
            let kind = match (event.kind, &event.previous) {
                (EventKind::Delete, _) => "DELETED",
                (EventKind::Put, None) => "ADDED",
                (EventKind::Put, Some(_)) => "MODIFIED",
            };
            return Some(event.frame.get_or_init(|| raw_frame(kind, &event.object.data)).clone());
        }
        let value = object::decode(self.kind, &event.object);
        let selected = event.kind == EventKind::Put && self.selection.matches(&value);
        let before = event.previous.as_ref().is_some_and(|p| self.selection.matches(&object::decode(self.kind, p)));
        let kind = match (before, selected) {
            (false, false) => return None,
            (false, true) => "ADDED",
            (true, true) => "MODIFIED",
            (true, false) => "DELETED",
        };
        let header = !std::mem::replace(&mut self.header_sent, true);
        Some(frame(kind, &shown(self.kind, self.view, value, header)))
    }
}

fn shown(kind: &dyn Kind, view: View, value: Value, header: bool) -> Value {
    match view {
        View::Whole => value,
        View::Metadata => object::metadata_only(&value),
        View::Table => {
            let metadata = json!({"resourceVersion": value["metadata"]["resourceVersion"]});
            object::table(kind, &[value], &metadata, header)
        }
    }
}

fn frame(kind: &str, object: &Value) -> Bytes {
    format!("{}\n", json!({"type": kind, "object": object})).into()
}

fn raw_frame(kind: &str, object: &[u8]) -> Bytes {
    let mut all = BytesMut::with_capacity(object.len() + 40);
    all.put_slice(b"{\"type\":\"");
    all.put_slice(kind.as_bytes());
    all.put_slice(b"\",\"object\":");
    all.put_slice(object);
    all.put_slice(b"}\n");
    all.freeze()
}

fn bookmark(kind: &dyn Kind, view: View, revision: Revision, annotations: &Value) -> Bytes {
    let info = kind.info();
    let mut metadata = json!({"resourceVersion": revision.to_string()});
    if !annotations.is_null() {
        metadata["annotations"] = annotations.clone();
    }
    let object = match view {
        View::Table => {
            json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "columnDefinitions": null, "rows": []})
        }
        View::Metadata => {
            json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata})
        }
        View::Whole => json!({"kind": info.kind, "apiVersion": info.api_version(), "metadata": metadata}),
    };
    frame("BOOKMARK", &object)
}
