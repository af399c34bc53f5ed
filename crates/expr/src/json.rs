//! Values of JSON of which nothing is declared.

use crate::{Key, Value};
use serde_json::Value as Json;
use std::sync::Arc;

impl From<&Json> for Value {
    fn from(json: &Json) -> Self {
        match json {
            Json::Null => Self::Null,
            Json::Bool(flag) => Self::Bool(*flag),
            Json::Number(number) => match (number.as_i64(), number.as_f64()) {
                (Some(whole), _) => Self::Int(whole),
                #[expect(clippy::cast_possible_truncation, reason = "only what is whole and small is cast")]
                (None, Some(whole)) if whole.fract() == 0.0 && whole.abs() < 9e15 => Self::Int(whole as i64),
                (None, number) => Self::Double(number.unwrap_or_default()),
            },
            Json::String(text) => Self::text(text),
            Json::Array(items) => Self::List(Arc::new(items.iter().map(Self::from).collect())),
            Json::Object(fields) => {
                let held = fields.iter().map(|(name, held)| (Key::String(name.as_str().into()), Self::from(held)));
                Self::Map(Arc::new(held.collect()))
            }
        }
    }
}
