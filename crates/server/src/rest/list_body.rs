//! Body of a LIST: an envelope around the stored bytes of the objects.
//!
//! A long list is assembled chunk by chunk while it is sent, so that it needs little memory beside that of its objects.

use crate::objects::object;
use bytes::{BufMut, Bytes, BytesMut};
use http::Response;
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;
use kinds::{Kind, KindRef};
use response::{Body, BoxError};
use serde_json::{Value, json};
use std::{
    pin::Pin,
    task::{Context, Poll},
    vec,
};
use store::Object;
use wire::json_order::{self, Type};

/// Approximate size of a chunk, in bytes.
const CHUNK_SIZE: usize = 256 << 10;

/// The JSON before and after the items of a list.
struct Envelope {
    head: BytesMut,
    end: Bytes,
}

impl Envelope {
    /// Returns the envelope of a typed list.
    fn of_typed(kind: &str, api_version: &str, metadata: &Value) -> Self {
        let empty = json!({"kind": kind, "apiVersion": api_version, "metadata": metadata});
        let text = json_order::encode_value(&empty, Type::of(&empty));
        let mut head = BytesMut::from(text.strip_suffix(b"}").unwrap_or(&text));
        head.put_slice(b",\"items\":[");
        Self { head, end: Bytes::from_static(b"]}\n") }
    }

    /// Returns the envelope of a kind's list. The keys of a custom resource's list are sorted, so `items` precedes `kind`.
    fn of(kind: &dyn Kind, metadata: &Value) -> Self {
        let (list, api_version) = (kind.list_kind(), kind.info().api_version());
        if !kind.is_custom() {
            return Self::of_typed(&list, &api_version, metadata);
        }
        let head = format!(r#"{{"apiVersion":"{api_version}","items":["#);
        let end = format!(r#"],"kind":"{list}","metadata":{metadata}}}"#) + "\n";
        Self { head: BytesMut::from(head.as_bytes()), end: end.into() }
    }
}

/// Responds with a list of whole objects.
pub(crate) fn objects(kind: &KindRef, metadata: &Value, objects: Vec<Object>) -> Response<Body> {
    let envelope = Envelope::of(&**kind, metadata);
    let prefix = type_meta_prefix(&**kind);
    let can_be_copied =
        |o: &Object| kind.is_stored_form(o.revision) && o.data.starts_with(&prefix) && o.data.ends_with(b"\n");
    if !objects.iter().all(can_be_copied) {
        return buffered(envelope, objects.iter().map(|o| encode_item(&**kind, o)));
    }
    let skipped = prefix.len().saturating_sub(1);
    let items = objects.iter().map(|o| o.data.len() - skipped - 1).sum::<usize>() + objects.len().saturating_sub(1);
    let remaining = envelope.head.len() + items + envelope.end.len();
    let body = ChunkedList { envelope, objects: objects.into_iter(), is_first: true, remaining, skipped };
    if remaining <= CHUNK_SIZE {
        return response::bytes(200, body.into_bytes());
    }
    response::sized(200, "application/json", body.boxed_unsync())
}

/// Returns the `kind` and `apiVersion` with which stored objects begin. Items of a list omit them, except custom resources.
fn type_meta_prefix(kind: &dyn Kind) -> Vec<u8> {
    let info = kind.info();
    let text = if kind.is_custom() {
        String::new()
    } else {
        format!(r#"{{"kind":"{}","apiVersion":"{}","#, info.kind, info.api_version())
    };
    text.into_bytes()
}

/// Encodes an item whose stored bytes cannot be copied: the stored form differs, or an older Podium stored it.
fn encode_item(kind: &dyn Kind, object: &Object) -> Bytes {
    let mut value = object::decode(kind, object);
    let value_type = Type::of(&value);
    if let Some(fields) = value.as_object_mut().filter(|_| !kind.is_custom()) {
        fields.retain(|key, _| !matches!(key.as_str(), "apiVersion" | "kind"));
    }
    json_order::encode_value(&value, value_type).into()
}

/// Responds with a list of converted objects.
pub(crate) fn converted(kind: &dyn Kind, metadata: &Value, objects: Vec<Bytes>) -> Response<Body> {
    buffered(Envelope::of(kind, metadata), objects.into_iter())
}

/// Responds with a PartialObjectMetadataList.
pub(crate) fn metadata_only(kind: &dyn Kind, metadata: &Value, objects: &[Object]) -> Response<Body> {
    let envelope = Envelope::of_typed("PartialObjectMetadataList", "meta.k8s.io/v1", metadata);
    buffered(envelope, objects.iter().map(|o| object::metadata_bytes(kind, o)))
}

fn buffered(envelope: Envelope, items: impl Iterator<Item = Bytes>) -> Response<Body> {
    let mut all = envelope.head;
    for (i, item) in items.enumerate() {
        append_item(&mut all, i == 0, 0, &item);
    }
    all.put_slice(&envelope.end);
    response::bytes(200, all.freeze())
}

/// Appends an item without its newline, and without `skipped` bytes behind its first byte.
fn append_item(all: &mut BytesMut, is_first: bool, skipped: usize, item: &[u8]) {
    let item = json_order::without_newline(item);
    if !is_first {
        all.put_u8(b',');
    }
    match item.split_first().filter(|_| skipped > 0) {
        Some((first, rest)) => {
            all.put_u8(*first);
            all.put_slice(rest.get(skipped..).unwrap_or_default());
        }
        None => all.put_slice(item),
    }
}

/// Body of a list that is assembled in chunks.
struct ChunkedList {
    /// The head is empty once it is sent.
    envelope: Envelope,
    objects: vec::IntoIter<Object>,
    is_first: bool,
    /// Bytes that are not sent yet.
    remaining: usize,
    /// Bytes that are skipped behind the first byte of each object.
    skipped: usize,
}

impl ChunkedList {
    /// Returns the whole body.
    fn into_bytes(mut self) -> Bytes {
        let mut all = std::mem::take(&mut self.envelope.head);
        all.reserve(self.remaining);
        for (i, object) in self.objects.enumerate() {
            append_item(&mut all, i == 0, self.skipped, &object.data);
        }
        all.put_slice(&self.envelope.end);
        all.freeze()
    }
}

impl http_body::Body for ChunkedList {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.remaining == 0 {
            return Poll::Ready(None);
        }
        let mut chunk = std::mem::take(&mut self.envelope.head);
        chunk.reserve(self.remaining.min(CHUNK_SIZE + CHUNK_SIZE / 4));
        while chunk.len() < CHUNK_SIZE {
            let Some(object) = self.objects.next() else {
                chunk.put_slice(&self.envelope.end);
                break;
            };
            let (is_first, skipped) = (std::mem::take(&mut self.is_first), self.skipped);
            append_item(&mut chunk, is_first, skipped, &object.data);
        }
        self.remaining = self.remaining.saturating_sub(chunk.len());
        Poll::Ready(Some(Ok(Frame::data(chunk.freeze()))))
    }

    fn is_end_stream(&self) -> bool {
        self.remaining == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.remaining as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kinds::ALL;
    use store::{Key, Record};

    fn stored(i: usize, data: &str) -> Object {
        let key = Key::new("configmaps", "n", format!("o{i}"));
        Object::from(Record::new(key, 1, 1, &data.into()))
    }

    #[tokio::test]
    async fn chunked_list_equals_buffered_list() {
        for (count, size, skipped) in [(0, 0, 0), (1, 10, 0), (3, CHUNK_SIZE, 5), (1000, 1000, 0), (263, 1000, 17)] {
            let item = format!("\"{}{}\"\n", "y".repeat(skipped), "x".repeat(size));
            let objects: Vec<Object> = (0..count).map(|i| stored(i, &item)).collect();
            let envelope = || Envelope::of_typed("List", "v1", &json!({"resourceVersion": "1"}));
            let remaining =
                envelope().head.len() + count * (item.len() - skipped) - usize::from(count > 0) + envelope().end.len();
            let body = || ChunkedList {
                envelope: envelope(),
                objects: objects.clone().into_iter(),
                is_first: true,
                remaining,
                skipped,
            };
            let all = body().collect().await.expect("a body").to_bytes();
            assert_eq!(all.len(), remaining);
            assert_eq!(body().into_bytes(), all);
            let list: Value = serde_json::from_slice(&all).expect("JSON");
            assert_eq!(list["items"].as_array().map(Vec::len), Some(count));
            assert!(list["items"].as_array().into_iter().flatten().all(|i| i == "x".repeat(size).as_str()));
        }
    }

    #[tokio::test]
    async fn list_items_omit_kind_and_api_version() {
        let kind = ALL.iter().find(|k| k.info().kind == "ConfigMap").expect("a kind");
        let new =
            "{\"kind\":\"ConfigMap\",\"apiVersion\":\"v1\",\"metadata\":{\"name\":\"o\"},\"data\":{\"kind\":\"a\"}}\n";
        let old = r#"{"apiVersion":"v1","data":{"kind":"a"},"kind":"ConfigMap","metadata":{"name":"o"}}"#;
        for objects in [vec![new], vec![old], vec![new, old]] {
            let objects: Vec<Object> = objects.iter().enumerate().map(|(i, data)| stored(i, data)).collect();
            let count = objects.len();
            let body = super::objects(&KindRef::BuiltIn(*kind), &json!({}), objects)
                .into_body()
                .collect()
                .await
                .expect("a body");
            let item = r#"{"metadata":{"name":"o"},"data":{"kind":"a"}}"#;
            let head = r#"{"kind":"ConfigMapList","apiVersion":"v1","metadata":{},"items":["#;
            let expected = format!("{head}{}]}}\n", vec![item; count].join(","));
            assert_eq!(std::str::from_utf8(&body.to_bytes()), Ok(&*expected));
        }
    }
}
