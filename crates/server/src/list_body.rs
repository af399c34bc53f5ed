//! The body of a LIST: the list's frame around bytes that are there already.
//!
//! It is put together as it is sent, so that a long list needs little memory beside that of its objects.

use crate::{
    kinds::{Kind, KindRef},
    object,
    reply::{self, Body, BoxError},
};
use bytes::{BufMut, Bytes, BytesMut};
use http::Response;
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;
use serde_json::Value;
use std::{
    pin::Pin,
    task::{Context, Poll},
    vec,
};
use store::Object;

/// Bytes that are put together at a time, about.
const PIECE: usize = 256 << 10;
const END: &[u8] = b"]}";

/// A list of whole objects.
pub(crate) fn whole(kind: &KindRef, metadata: &Value, objects: Vec<Object>) -> Response<Body> {
    let head = head(&kind.list_kind(), &kind.info().api_version(), metadata);
    let named = named(&**kind);
    let is_at_hand = |o: &Object| kind.is_stored_form(o.revision) && o.data.starts_with(&named);
    if !objects.iter().all(is_at_hand) {
        return collected(head, objects.iter().map(|o| item(&**kind, o)));
    }
    let cut = named.len().saturating_sub(1);
    let items = objects.iter().map(|o| o.data.len() - cut).sum::<usize>() + objects.len().saturating_sub(1);
    let left = head.len() + items + END.len();
    let pieces = Pieces { head, objects: objects.into_iter(), is_first: true, left, cut };
    if left <= PIECE {
        return reply::bytes(200, pieces.whole());
    }
    reply::sized(200, "application/json", pieces.boxed_unsync())
}

/// With what the objects of a kind begin that say of what kind they are: lists do not repeat it, but for custom kinds.
fn named(kind: &dyn Kind) -> Vec<u8> {
    let info = kind.info();
    let text = if kind.is_custom() {
        String::new()
    } else {
        format!(r#"{{"apiVersion":"{}","kind":"{}","#, info.api_version(), info.kind)
    };
    text.into_bytes()
}

/// An item that is not stored as it is listed: of another form, or by an older Podium, with its type in another place.
fn item(kind: &dyn Kind, object: &Object) -> Bytes {
    let mut value = object::decode(kind, object);
    match value.as_object_mut().filter(|_| !kind.is_custom()) {
        None => object::bytes(kind, object),
        Some(fields) => {
            fields.retain(|key, _| !matches!(key.as_str(), "apiVersion" | "kind"));
            value.to_string().into()
        }
    }
}

/// A list of objects that were converted for it.
pub(crate) fn converted(kind: &dyn Kind, metadata: &Value, objects: Vec<Bytes>) -> Response<Body> {
    collected(head(&kind.list_kind(), &kind.info().api_version(), metadata), objects.into_iter())
}

/// A list of metadata.
pub(crate) fn metadata_only(kind: &dyn Kind, metadata: &Value, objects: &[Object]) -> Response<Body> {
    let head = head("PartialObjectMetadataList", "meta.k8s.io/v1", metadata);
    collected(head, objects.iter().map(|o| object::metadata_bytes(kind, o)))
}

fn head(kind: &str, api_version: &str, metadata: &Value) -> BytesMut {
    let head = format!(r#"{{"kind":"{kind}","apiVersion":"{api_version}","metadata":{metadata},"items":["#);
    BytesMut::from(head.as_bytes())
}

fn collected(mut all: BytesMut, items: impl Iterator<Item = Bytes>) -> Response<Body> {
    for (i, item) in items.enumerate() {
        put(&mut all, i == 0, 0, &item);
    }
    all.put_slice(END);
    reply::bytes(200, all.freeze())
}

/// Adds an item, without what stands in it behind its first byte for so many bytes.
fn put(all: &mut BytesMut, is_first: bool, cut: usize, item: &[u8]) {
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
    /// The beginning, until it is sent.
    head: BytesMut,
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
        let mut all = std::mem::take(&mut self.head);
        all.reserve(self.left);
        for (i, object) in self.objects.enumerate() {
            put(&mut all, i == 0, self.cut, &object.data);
        }
        all.put_slice(END);
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
        let mut piece = std::mem::take(&mut self.head);
        piece.reserve(self.left.min(PIECE + PIECE / 4));
        while piece.len() < PIECE {
            let Some(object) = self.objects.next() else {
                piece.put_slice(END);
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
            let item = format!("\"{}{}\"", "y".repeat(cut), "x".repeat(size));
            let objects: Vec<Object> = (0..count).map(|i| stored(i, &item)).collect();
            let head = head("List", "v1", &serde_json::json!({"resourceVersion": "1"}));
            let left = head.len() + count * (item.len() - cut + 1) - usize::from(count > 0) + END.len();
            let pieces =
                || Pieces { head: head.clone(), objects: objects.clone().into_iter(), is_first: true, left, cut };
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
        let new = r#"{"apiVersion":"v1","kind":"ConfigMap","data":{"kind":"a"},"metadata":{"name":"o"}}"#;
        let old = r#"{"apiVersion":"v1","data":{"kind":"a"},"kind":"ConfigMap","metadata":{"name":"o"}}"#;
        for objects in [vec![new], vec![old], vec![new, old]] {
            let objects: Vec<Object> = objects.iter().enumerate().map(|(i, data)| stored(i, data)).collect();
            let count = objects.len();
            let body =
                whole(&KindRef::BuiltIn(*kind), &Value::Null, objects).into_body().collect().await.expect("a body");
            let list: Value = serde_json::from_slice(&body.to_bytes()).expect("JSON");
            let item = serde_json::json!({"data": {"kind": "a"}, "metadata": {"name": "o"}});
            assert_eq!(list["items"], Value::from(vec![item; count]));
        }
    }
}
