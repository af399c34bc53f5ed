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
    if !objects.iter().all(|o| kind.is_stored_form(o.revision)) {
        return collected(head, objects.iter().map(|o| object::bytes(&**kind, o)));
    }
    let items = objects.iter().map(|o| o.data.len()).sum::<usize>() + objects.len().saturating_sub(1);
    let left = head.len() + items + END.len();
    if left <= PIECE {
        return collected(head, objects.iter().map(|o| o.data.clone()));
    }
    let pieces = Pieces { head, objects: objects.into_iter(), is_first: true, left };
    reply::sized(200, "application/json", pieces.boxed_unsync())
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
        put(&mut all, i == 0, &item);
    }
    all.put_slice(END);
    reply::bytes(200, all.freeze())
}

fn put(all: &mut BytesMut, is_first: bool, item: &[u8]) {
    if !is_first {
        all.put_u8(b',');
    }
    all.put_slice(item);
}

/// What is left of a list to be sent.
struct Pieces {
    /// The beginning, until it is sent.
    head: BytesMut,
    objects: vec::IntoIter<Object>,
    is_first: bool,
    /// Bytes.
    left: usize,
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
            put(&mut piece, std::mem::take(&mut self.is_first), &object.data);
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
    use store::{Key, Record};

    #[tokio::test]
    async fn a_list_in_pieces_is_the_whole_list() {
        for (count, size) in [(0, 0), (1, 10), (3, PIECE), (1000, 1000), (263, 1000)] {
            let item = format!("\"{}\"", "x".repeat(size));
            let object = |i: usize| {
                let key = Key::new("configmaps", "n", format!("o{i}"));
                Object::from(Record { key, revision: 1, create_revision: 1, data: item.clone().into() })
            };
            let objects: Vec<Object> = (0..count).map(object).collect();
            let head = head("List", "v1", &serde_json::json!({"resourceVersion": "1"}));
            let left = head.len() + count * (item.len() + 1) - usize::from(count > 0) + END.len();
            let pieces = Pieces { head, objects: objects.into_iter(), is_first: true, left };
            let all = pieces.collect().await.expect("a body").to_bytes();
            assert_eq!(all.len(), left);
            let list: Value = serde_json::from_slice(&all).expect("JSON");
            assert_eq!(list["items"].as_array().map(Vec::len), Some(count));
        }
    }
}
