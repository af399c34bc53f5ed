//! Kubernetes protobuf encoding (`application/vnd.kubernetes.protobuf`), which typed Go clients send and prefer.
//!
//! An object is four magic bytes and a `runtime.Unknown`, which contains the kind and the object's message. The server works on
//! JSON: request bodies are converted to JSON, and responses to protobuf, with one table of messages
//! (`protobuf/messages.txt`) for all kinds of the stable groups.

pub mod decode;
pub mod encode;
mod json_schema_props;
pub mod merge_strategies;
pub mod message_table;
#[cfg(any(test, feature = "samples"))]
pub mod sample;
#[cfg(test)]
mod tests;
pub mod wire;

use decode::Depth;
use message_table::{Message, TABLE};
use serde_json::{Map, Value};
use wire::{Fields, Wire, put_bytes};

/// Media type.
pub const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";
/// Prefix of every object.
const MAGIC: [u8; 4] = *b"k8s\0";

/// Error of decoding.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// The prefix of the media type is absent.
    #[error("provided data does not appear to be a protobuf message, expected prefix {MAGIC:?}")]
    Magic,
    /// No built-in kind has this version and name.
    #[error("no kind {kind:?} is registered for version {api_version:?}")]
    Kind {
        /// `apiVersion` of the object.
        api_version: String,
        /// `kind` of the object.
        kind: String,
    },
    /// The input ends within a field.
    #[error("unexpected EOF")]
    Truncated,
    /// A number has more than ten bytes.
    #[error("a number is longer than 64 bits")]
    Varint,
    /// A field has number 0, or one that is too large.
    #[error("illegal field number")]
    FieldNumber,
    /// A field has another wire type than its message's.
    #[error("wrong wire type")]
    WireType,
    /// A string is not UTF-8.
    #[error("a string is not UTF-8")]
    Utf8,
    /// A time is outside of the years 0 to 9999.
    #[error("a time is out of range")]
    Time,
    /// A field that embeds JSON has none.
    #[error("embedded JSON: {0}")]
    Json(serde_json::Error),
    /// Messages are nested too deeply.
    #[error("messages stand too deep in each other")]
    TooDeep,
    /// The value of a field is invalid.
    #[error("{field}: {source}")]
    Field {
        /// Message and field.
        field: String,
        /// Error of the value.
        source: Box<DecodeError>,
    },
}

impl DecodeError {
    /// Adds the field, unless it has an inner one.
    fn in_field(self, message: &Message, field: &message_table::Field) -> Self {
        match self {
            Self::Field { .. } => self,
            error => Self::Field { field: format!("{}.{}", message.name, field.name), source: Box::new(error) },
        }
    }
}

/// Decodes an object to JSON with `apiVersion` and `kind`.
pub fn decode(bytes: &[u8]) -> Result<Value, DecodeError> {
    envelope(bytes, Depth::START)
}

fn envelope(bytes: &[u8], depth: Depth) -> Result<Value, DecodeError> {
    let unknown = bytes.strip_prefix(&MAGIC).ok_or(DecodeError::Magic)?;
    let (mut api_version, mut kind, mut raw): (_, _, &[u8]) = (String::new(), String::new(), &[]);
    let mut fields = Fields::new(unknown);
    while let Some((number, wire)) = fields.next()? {
        match (number, wire) {
            (1, Wire::Bytes(bytes)) => {
                let mut type_meta = Fields::new(bytes);
                while let Some((number, wire)) = type_meta.next()? {
                    match (number, wire) {
                        (1, Wire::Bytes(text)) => api_version = decode::text(text)?,
                        (2, Wire::Bytes(text)) => kind = decode::text(text)?,
                        (1 | 2, _) => return Err(DecodeError::WireType),
                        _ => {}
                    }
                }
            }
            (2, Wire::Bytes(bytes)) => raw = bytes,
            (1 | 2, _) => return Err(DecodeError::WireType),
            _ => {}
        }
    }
    let Some(message) = TABLE.kind(&api_version, &kind) else { return Err(DecodeError::Kind { api_version, kind }) };
    let mut object = Map::new();
    object.insert("apiVersion".to_owned(), Value::String(api_version));
    object.insert("kind".to_owned(), Value::String(kind));
    decode::message(message, raw, &mut object, depth)?;
    Ok(Value::Object(object))
}

/// Encodes an object; `None` if its kind has no message, or the object does not match it.
pub fn encode(object: &Value) -> Option<Vec<u8>> {
    let text = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or("");
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let raw = encode::message(TABLE.kind(api_version, kind)?, object.as_object()?)?;
    let mut type_meta = Vec::new();
    put_bytes(&mut type_meta, 1, api_version.as_bytes());
    put_bytes(&mut type_meta, 2, kind.as_bytes());
    let mut out = MAGIC.to_vec();
    put_bytes(&mut out, 1, &type_meta);
    put_bytes(&mut out, 2, &raw);
    // Upstream writes content encoding and type although they are empty.
    put_bytes(&mut out, 3, b"");
    put_bytes(&mut out, 4, b"");
    Some(out)
}

/// Encodes the JSON of a watch event as a frame: four bytes of length, then a `WatchEvent` with the encoded object.
pub fn encode_event(frame: &Value) -> Option<Vec<u8>> {
    let mut raw = Vec::new();
    put_bytes(&mut raw, 1, &encode(frame.get("object")?)?);
    let mut event = Vec::new();
    put_bytes(&mut event, 1, frame.get("type")?.as_str()?.as_bytes());
    put_bytes(&mut event, 2, &raw);
    let mut out = u32::try_from(event.len()).ok()?.to_be_bytes().to_vec();
    out.extend_from_slice(&event);
    Some(out)
}
