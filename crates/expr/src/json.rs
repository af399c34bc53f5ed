//! Conversion between CEL values and untyped JSON.

use crate::{EvalError, Key, Value};
use serde_json::Value as Json;
use std::sync::Arc;

impl Value {
    /// Converts the value to JSON.
    ///
    /// # Errors
    /// When the value or a nested value has no JSON representation.
    pub fn to_json(&self) -> Result<Json, EvalError> {
        let none = || EvalError::new(format!("no JSON form for a value of type '{}'", self.type_name()));
        Ok(match self {
            Self::Null => Json::Null,
            Self::Bool(flag) => (*flag).into(),
            Self::Int(whole) => (*whole).into(),
            Self::Uint(whole) => (*whole).into(),
            Self::Double(number) => serde_json::Number::from_f64(*number).ok_or_else(none)?.into(),
            Self::String(text) | Self::Url(text) => Json::String(text.to_string()),
            Self::Time(moment) => Json::String(moment.to_string()),
            Self::List(items) => Json::Array(items.iter().map(Self::to_json).collect::<Result<_, _>>()?),
            Self::Map(fields) => {
                let mut object = serde_json::Map::new();
                for (key, value) in fields.iter() {
                    let Key::String(key) = key else { return Err(EvalError::new("unsupported key type")) };
                    object.insert(key.to_string(), value.to_json()?);
                }
                Json::Object(object)
            }
            Self::Bytes(_)
            | Self::Duration(_)
            | Self::Type(_)
            | Self::Optional(_)
            | Self::Quantity(_)
            | Self::Ip(_)
            | Self::Cidr(..)
            | Self::Format(_)
            | Self::Semver(_)
            | Self::Authorizer(_)
            | Self::Verdict(_) => return Err(none()),
        })
    }
}

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
            Json::String(text) => Self::string(text),
            Json::Array(items) => Self::List(Arc::new(items.iter().map(Self::from).collect())),
            Json::Object(fields) => {
                let entries = fields.iter().map(|(name, field)| (Key::String(name.as_str().into()), Self::from(field)));
                Self::Map(Arc::new(entries.collect()))
            }
        }
    }
}
