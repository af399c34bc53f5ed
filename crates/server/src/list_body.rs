//! The body of a LIST: the beginning and end of the list around bytes that are there already.
//!
//! It is put together as it is sent, so that a long list needs little memory beside that of its objects.

use crate::{
    json_order::{self, Type},
    kinds::{Kind, KindRef},
    object,
    response::{self, Body, BoxError},
};
use bytes::{BufMut, Bytes, BytesMut};
use http::Response;
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use std::{
    pin::Pin,
    task::{Context, Poll},
    vec,
};
use store::Object;

/// Bytes that are put together at a time, about.
const PIECE: usize = 256 << 10;

/// What stands around the items of a list.
struct Envelope {
    head: BytesMut,
    end: Bytes,
}

impl Envelope {
    /// The list of a type that has a struct.
    fn of_struct(kind: &str, api_version: &str, metadata: &Value) -> Self {
        let empty = json!({"kind": kind, "apiVersion": api_version, "metadata": metadata});
        let text = json_order::part(&empty, Type::of(&empty));
        let mut head = BytesMut::from(text.strip_suffix(b"}").unwrap_or(&text));
        head.put_slice(b",\"items\":[");
        Self { head, end: Bytes::from_static(b"]}\n") }
    }

    /// The list of a kind. That of a custom kind is sorted, so its items come before most of what it says of itself.
    fn of(kind: &dyn Kind, metadata: &Value) -> Self {
        let (list, api_version) = (kind.list_kind(), kind.info().api_version());
        if !kind.is_custom() {
            return Self::of_struct(&list, &api_version, metadata);
        }
        let head = format!(r#"{{"apiVersion":"{api_version}","items":["#);
        let end = format!(r#"],"kind":"{list}","metadata":{metadata}}}"#) + "\n";
        Self { head: BytesMut::from(head.as_bytes()), end: end.into() }
    }
}

/// A list of whole objects.
pub(crate) fn whole(kind: &KindRef, metadata: &Value, objects: Vec<Object>) -> Response<Body> {
    let envelope = Envelope::of(&**kind, metadata);
    let named = named(&**kind);
    let is_at_hand =
        |o: &Object| kind.is_stored_form(o.revision) && o.data.starts_with(&named) && o.data.ends_with(b"\n");
    if !objects.iter().all(is_at_hand) {
        return collected(envelope, objects.iter().map(|o| item(&**kind, o)));
    }
    let cut = named.len().saturating_sub(1);
    let items = objects.iter().map(|o| o.data.len() - cut - 1).sum::<usize>() + objects.len().saturating_sub(1);
    let left = envelope.head.len() + items + envelope.end.len();
    let pieces = Pieces { envelope, objects: objects.into_iter(), is_first: true, left, cut };
    if left <= PIECE {
        return response::bytes(200, pieces.whole());
    }
    response::sized(200, "application/json", pieces.boxed_unsync())
}

/// With what the objects of a kind begin that say of what kind they are: lists do not repeat it, but for custom kinds.
fn named(kind: &dyn Kind) -> Vec<u8> {
    let info = kind.info();
    let text = if kind.is_custom() {
        String::new()
    } else {
        format!(r#"{{"kind":"{}","apiVersion":"{}","#, info.kind, info.api_version())
    };
    text.into_bytes()
}

/// An item that is not stored as it is listed: of another form, or by an older Podium, in another order.
fn item(kind: &dyn Kind, object: &Object) -> Bytes {
    let mut value = object::decode(kind, object);
    let of = Type::of(&value);
    if let Some(fields) = value.as_object_mut().filter(|_| !kind.is_custom()) {
        fields.retain(|key, _| !matches!(key.as_str(), "apiVersion" | "kind"));
    }
    json_order::part(&value, of).into()
}

/// A list of objects that were converted for it.
pub(crate) fn converted(kind: &dyn Kind, metadata: &Value, objects: Vec<Bytes>) -> Response<Body> {
    collected(Envelope::of(kind, metadata), objects.into_iter())
}

/// A list of metadata.
pub(crate) fn metadata_only(kind: &dyn Kind, metadata: &Value, objects: &[Object]) -> Response<Body> {
    let envelope = Envelope::of_struct("PartialObjectMetadataList", "meta.k8s.io/v1", metadata);
    collected(envelope, objects.iter().map(|o| object::metadata_bytes(kind, o)))
}

fn collected(envelope: Envelope, items: impl Iterator<Item = Bytes>) -> Response<Body> {
    let mut all = envelope.head;
    for (i, item) in items.enumerate() {
        put(&mut all, i == 0, 0, &item);
    }
    all.put_slice(&envelope.end);
    response::bytes(200, all.freeze())
}

/// Adds an item, without its newline and without what stands in it behind its first byte for so many bytes.
fn put(all: &mut BytesMut, is_first: bool, cut: usize, item: &[u8]) {
    let item = json_order::without_newline(item);
    if !is_first {
        all.put_u8(b',');
    }
    match item.split_first().filter(|_| cut > 0) {
        Some((first, rest)) => {
            all.put_u8(*first);
            all.put_slice(rest.get(cut..).unwrap_or_default());
        }
        None => all.put_slice(item),
    }
}

/// What is left of a list to be sent.
struct Pieces {
    /// The beginning, until it is sent, and the end.
    envelope: Envelope,
    objects: vec::IntoIter<Object>,
    is_first: bool,
    /// Bytes.
    left: usize,
    /// How many bytes behind the first of each object are left out.
    cut: usize,
}

impl Pieces {
    /// All of it at once.
    fn whole(mut self) -> Bytes {
        let mut all = std::mem::take(&mut self.envelope.head);
        all.reserve(self.left);
        for (i, object) in self.objects.enumerate() {
            put(&mut all, i == 0, self.cut, &object.data);
        }
        all.put_slice(&self.envelope.end);
        all.freeze()
    }
}

impl http_body::Body for Pieces {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        let mut piece = std::mem::take(&mut self.envelope.head);
        piece.reserve(self.left.min(PIECE + PIECE / 4));
        while piece.len() < PIECE {
            let Some(object) = self.objects.next() else {
                piece.put_slice(&self.envelope.end);
                break;
            };
            let (is_first, cut) = (std::mem::take(&mut self.is_first), self.cut);
            put(&mut piece, is_first, cut, &object.data);
        }
        self.left = self.left.saturating_sub(piece.len());
        Poll::Ready(Some(Ok(Frame::data(piece.freeze()))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::ALL;
    use store::{Key, Record};

    fn stored(i: usize, data: &str) -> Object {
        let key = Key::new("configmaps", "n", format!("o{i}"));
        Object::from(Record::new(key, 1, 1, &data.into()))
    }

    #[tokio::test]
    async fn a_list_in_pieces_is_the_whole_list() {
        for (count, size, cut) in [(0, 0, 0), (1, 10, 0), (3, PIECE, 5), (1000, 1000, 0), (263, 1000, 17)] {
            let item = format!("\"{}{}\"\n", "y".repeat(cut), "x".repeat(size));
            let objects: Vec<Object> = (0..count).map(|i| stored(i, &item)).collect();
            let envelope = || Envelope::of_struct("List", "v1", &json!({"resourceVersion": "1"}));
            let left =
                envelope().head.len() + count * (item.len() - cut) - usize::from(count > 0) + envelope().end.len();
            let pieces =
                || Pieces { envelope: envelope(), objects: objects.clone().into_iter(), is_first: true, left, cut };
            let all = pieces().collect().await.expect("a body").to_bytes();
            assert_eq!(all.len(), left);
            assert_eq!(pieces().whole(), all);
            let list: Value = serde_json::from_slice(&all).expect("JSON");
            assert_eq!(list["items"].as_array().map(Vec::len), Some(count));
            assert!(list["items"].as_array().into_iter().flatten().all(|i| i == "x".repeat(size).as_str()));
        }
    }

    #[tokio::test]
    async fn items_do_not_repeat_their_type_wherever_it_stands() {
        let kind = ALL.iter().find(|k| k.info().kind == "ConfigMap").expect("a kind");
        let new =
            "{\"kind\":\"ConfigMap\",\"apiVersion\":\"v1\",\"metadata\":{\"name\":\"o\"},\"data\":{\"kind\":\"a\"}}\n";
        let old = r#"{"apiVersion":"v1","data":{"kind":"a"},"kind":"ConfigMap","metadata":{"name":"o"}}"#;
        for objects in [vec![new], vec![old], vec![new, old]] {
            let objects: Vec<Object> = objects.iter().enumerate().map(|(i, data)| stored(i, data)).collect();
            let count = objects.len();
            let body =
                whole(&KindRef::BuiltIn(*kind), &json!({}), objects).into_body().collect().await.expect("a body");
            let item = r#"{"metadata":{"name":"o"},"data":{"kind":"a"}}"#;
            let head = r#"{"kind":"ConfigMapList","apiVersion":"v1","metadata":{},"items":["#;
            let expected = format!("{head}{}]}}\n", vec![item; count].join(","));
            assert_eq!(std::str::from_utf8(&body.to_bytes()), Ok(&*expected));
        }
    }
}
