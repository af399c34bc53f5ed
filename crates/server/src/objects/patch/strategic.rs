//! Strategic merge patch (`StrategicMergePatch` of upstream's `k8s.io/apimachinery/pkg/util/strategicpatch`). Patch strategies and merge keys are in
//! the table of types.

use serde_json::{Map, Value};
use std::collections::{HashMap, HashSet};
use wire::protobuf::{
    merge_strategies,
    message_table::{Cardinality, Message, TABLE, ValueType},
};

/// Invalid strategic merge patch, with upstream's message.
#[derive(Debug, thiserror::Error)]
pub(super) enum StrategicMergeError {
    #[error("invalid patch format of retainKeys")]
    RetainKeys,
    #[error("invalid patch format of setElementOrder list")]
    SetElementOrder,
    #[error("invalid patch format of primitive list")]
    PrimitiveList,
    #[error("unknown patch type: {directive} in map: {map}")]
    PatchType { directive: String, map: Value },
    #[error("The order in patch list:\n{patch}\n doesn't match $setElementOrder list:\n{order}\n")]
    OrderMismatch { patch: Value, order: Value },
    #[error("expected a map, but received {item} in the list {field}")]
    NotAMap { item: Value, field: String },
    #[error("map: {map} does not contain declared merge key: {key}")]
    NoMergeKey { map: Value, key: &'static str },
}

/// Patch strategy of a list.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Strategy {
    Replace,
    /// Primitive values are merged as a set.
    Values,
    /// Objects are merged by this key.
    Key(&'static str),
}

/// The message type of an object; `None` if it is unknown.
type MessageType = Option<&'static Message>;

/// Returns the patch strategy of a list field.
fn strategy(message_type: MessageType, field: &str) -> Strategy {
    match message_type.and_then(|message| message.field_named(field)).and_then(merge_strategies::patch) {
        Some((strategies, key)) if strategies.split(',').any(|strategy| strategy == "merge") => {
            key.map_or(Strategy::Values, Strategy::Key)
        }
        _ => Strategy::Replace,
    }
}

/// Returns the message type of a field's value.
fn field_message_type(message_type: MessageType, field: &str) -> MessageType {
    let field = message_type?.field_named(field)?;
    match (field.cardinality, field.value_type) {
        (Cardinality::Plain | Cardinality::Pointer | Cardinality::List, ValueType::Message(index)) => {
            TABLE.messages.get(index)
        }
        _ => None,
    }
}

/// Merges a patch into an object.
///
/// # Errors
/// If the patch is invalid.
pub(super) fn apply(object: Value, patch: &Map<String, Value>) -> Result<Value, StrategicMergeError> {
    let text = |field: &str| object[field].as_str().unwrap_or("");
    let message_type = TABLE.kind(text("apiVersion"), text("kind"));
    let fields = match object {
        Value::Object(fields) => fields,
        _ => Map::new(),
    };
    merge_map(fields, patch, message_type).map(Value::Object)
}

fn is_directive(key: &str) -> bool {
    matches!(key, "$patch" | "$retainKeys")
        || key.starts_with("$setElementOrder/")
        || key.starts_with("$deleteFromPrimitiveList/")
}

/// Removes directives and nulls from a new value; `None` when it is only a directive.
fn without_directives(value: &Value) -> Option<Value> {
    Some(match value {
        Value::Object(map) if map.contains_key("$patch") => return None,
        Value::Object(map) => Value::Object(fields_without_directives(map)),
        Value::Array(items) => Value::Array(items.iter().filter_map(without_directives).collect()),
        other => other.clone(),
    })
}

fn fields_without_directives(map: &Map<String, Value>) -> Map<String, Value> {
    map.iter()
        .filter(|(k, v)| !is_directive(k) && !v.is_null())
        .filter_map(|(k, v)| Some((k.clone(), without_directives(v)?)))
        .collect()
}

fn merge_map(
    mut target: Map<String, Value>,
    patch: &Map<String, Value>,
    message_type: MessageType,
) -> Result<Map<String, Value>, StrategicMergeError> {
    match patch.get("$patch") {
        None => {}
        Some(Value::String(s)) if s == "replace" => return Ok(fields_without_directives(patch)),
        Some(Value::String(s)) if s == "delete" => return Ok(Map::new()),
        Some(other) => {
            let map = Value::Object(patch.clone());
            return Err(StrategicMergeError::PatchType { directive: other.to_string(), map });
        }
    }
    retain_keys(&mut target, patch)?;
    for (key, order) in patch {
        if let Some(field) = key.strip_prefix("$setElementOrder/") {
            let order = order.as_array().ok_or(StrategicMergeError::SetElementOrder)?;
            set_order(&mut target, patch.get(field), message_type, field, order)?;
        }
    }
    let ordered = |key: &str| patch.contains_key(&format!("$setElementOrder/{key}"));
    for (key, value) in patch.iter().filter(|(k, _)| !is_directive(k)) {
        if !(value.is_array() && ordered(key)) {
            merge_field(&mut target, key, value, message_type)?;
        }
    }
    for (key, deleted) in patch {
        if let Some(field) = key.strip_prefix("$deleteFromPrimitiveList/") {
            let deleted = deleted.as_array().ok_or(StrategicMergeError::PrimitiveList)?;
            if let Some(Value::Array(list)) = target.get_mut(field) {
                let deleted: HashSet<&Value> = deleted.iter().collect();
                list.retain(|v| !deleted.contains(v));
            }
        }
    }
    Ok(target)
}

fn merge_field(
    target: &mut Map<String, Value>,
    key: &str,
    value: &Value,
    message_type: MessageType,
) -> Result<(), StrategicMergeError> {
    let (strategy, field_type) = (strategy(message_type, key), field_message_type(message_type, key));
    let merged = match (target.remove(key), value) {
        (_, Value::Null) => return Ok(()),
        (Some(Value::Object(old)), Value::Object(patch)) => Some(Value::Object(merge_map(old, patch, field_type)?)),
        (Some(Value::Array(old)), Value::Array(patch)) if strategy != Strategy::Replace => {
            Some(Value::Array(merge_list(old, patch, strategy, key, field_type)?))
        }
        (_, other) => without_directives(other),
    };
    if let Some(merged) = merged {
        target.insert(key.to_owned(), merged);
    }
    Ok(())
}

/// Applies `$retainKeys`: removes all other fields. The patch must not set other fields.
fn retain_keys(target: &mut Map<String, Value>, patch: &Map<String, Value>) -> Result<(), StrategicMergeError> {
    let Some(retain_keys) = patch.get("$retainKeys") else { return Ok(()) };
    let retain_keys = retain_keys.as_array().ok_or(StrategicMergeError::RetainKeys)?;
    let retain_keys: HashSet<&str> = retain_keys.iter().filter_map(Value::as_str).collect();
    let is_kept = |key: &str| retain_keys.contains(key);
    if patch.iter().any(|(k, v)| !v.is_null() && !is_directive(k) && !is_kept(k)) {
        return Err(StrategicMergeError::RetainKeys);
    }
    target.retain(|key, _| is_kept(key));
    Ok(())
}

fn set_order(
    target: &mut Map<String, Value>,
    patch: Option<&Value>,
    message_type: MessageType,
    field: &str,
    order: &[Value],
) -> Result<(), StrategicMergeError> {
    let strategy = strategy(message_type, field);
    let patch = match patch {
        None | Some(Value::Null) => None,
        Some(Value::Array(items)) => Some(items),
        Some(_) => return Err(StrategicMergeError::SetElementOrder),
    };
    let original = match target.get(field) {
        None | Some(Value::Null) => None,
        Some(Value::Array(items)) => Some(items.clone()),
        Some(_) => return Err(StrategicMergeError::SetElementOrder),
    };
    check_order(patch.map(Vec::as_slice).unwrap_or_default(), order, strategy)?;
    let merged = match (&original, patch) {
        (None, None) => return Ok(()),
        (Some(old), None) => old.clone(),
        (None, Some(new)) => new.iter().filter_map(without_directives).collect(),
        (Some(_), Some(new)) if strategy == Strategy::Replace => new.clone(),
        (Some(old), Some(new)) => {
            merge_list(old.clone(), new, strategy, field, field_message_type(message_type, field))?
        }
    };
    let ordered = sort_elements(merged, order, &original.unwrap_or_default(), strategy);
    target.insert(field.to_owned(), Value::Array(ordered));
    Ok(())
}

/// Checks that the elements of the patch have the order of `$setElementOrder`.
fn check_order(patch: &[Value], order: &[Value], strategy: Strategy) -> Result<(), StrategicMergeError> {
    if patch.is_empty() || order.is_empty() {
        return Ok(());
    }
    let mut rest = order.iter().map(|o| element_id(o, strategy));
    for item in patch.iter().filter(|i| i.get("$patch").is_none()) {
        let item_id = element_id(item, strategy);
        if !rest.any(|id| id == item_id) {
            return Err(StrategicMergeError::OrderMismatch {
                patch: Value::Array(patch.to_vec()),
                order: Value::Array(order.to_vec()),
            });
        }
    }
    Ok(())
}

/// Returns the identity of an element.
fn element_id(item: &Value, strategy: Strategy) -> String {
    match strategy {
        Strategy::Key(key) => item[key].to_string(),
        Strategy::Values | Strategy::Replace => item.to_string(),
    }
}

fn merge_list(
    mut original: Vec<Value>,
    patch: &[Value],
    strategy: Strategy,
    field: &str,
    message_type: MessageType,
) -> Result<Vec<Value>, StrategicMergeError> {
    let Strategy::Key(key) = strategy else {
        if patch.iter().any(|v| v.is_object() || v.is_array()) {
            return Err(StrategicMergeError::PrimitiveList);
        }
        let mut seen = HashSet::new();
        let all = original.iter().chain(patch);
        let merged = all.filter(|v| seen.insert(v.to_string())).cloned().collect();
        return Ok(sort_elements(merged, patch, &original, strategy));
    };
    let (mut fresh, mut deleted) = (Vec::new(), HashSet::new());
    let mut replace = false;
    for item in patch {
        let Value::Object(item) = item else {
            return Err(StrategicMergeError::NotAMap { item: item.clone(), field: field.to_owned() });
        };
        match item.get("$patch").map(|d| d.as_str().unwrap_or("")) {
            None => fresh.push(item),
            Some("replace") => replace = true,
            Some("delete") => {
                deleted.insert(item.get(key).ok_or_else(|| missing_merge_key(item, key))?);
            }
            Some(other) => {
                let map = Value::Object(item.clone());
                return Err(StrategicMergeError::PatchType { directive: other.to_owned(), map });
            }
        }
    }
    if replace {
        return Ok(fresh.into_iter().map(|f| Value::Object(fields_without_directives(f))).collect());
    }
    original.retain(|o| !deleted.contains(&o[key]));
    let mut merged = original.clone();
    let mut indexes: HashMap<String, usize> = HashMap::new();
    for (i, item) in merged.iter().enumerate() {
        indexes.entry(element_id(item, strategy)).or_insert(i);
    }
    for item in &fresh {
        let value = item.get(key).ok_or_else(|| missing_merge_key(item, key))?.to_string();
        match indexes.get(&value) {
            Some(i) => {
                // A patch may contain an element many times, so the original is moved, not copied.
                let old = match merged[*i].take() {
                    Value::Object(old) => old,
                    _ => Map::new(),
                };
                merged[*i] = Value::Object(merge_map(old, item, message_type)?);
            }
            None => {
                indexes.insert(value, merged.len());
                merged.push(Value::Object(fields_without_directives(item)));
            }
        }
    }
    let order: Vec<Value> = fresh.into_iter().map(|f| Value::Object(f.clone())).collect();
    Ok(sort_elements(merged, &order, &original, strategy))
}

fn missing_merge_key(item: &Map<String, Value>, key: &'static str) -> StrategicMergeError {
    StrategicMergeError::NoMergeKey { map: Value::Object(item.clone()), key }
}

/// Sorts merged elements: those of `order` have its order, the others stay before those that they preceded, and new ones
/// come first (upstream's `normalizeElementOrder` and `mergeSortedSlice`).
fn sort_elements(merged: Vec<Value>, order: &[Value], original: &[Value], strategy: Strategy) -> Vec<Value> {
    let indexes = |list: &[Value]| {
        let mut indexes: HashMap<String, usize> = HashMap::new();
        for (i, item) in list.iter().enumerate() {
            indexes.entry(element_id(item, strategy)).or_insert(i);
        }
        indexes
    };
    let (patch_order, server_order) = (indexes(order), indexes(original));
    let (mut named, mut others): (Vec<Value>, Vec<Value>) =
        merged.into_iter().partition(|m| patch_order.contains_key(&element_id(m, strategy)));
    let rank = |indexes: &HashMap<String, usize>, v: &Value| indexes.get(&element_id(v, strategy)).copied();
    named.sort_by_cached_key(|v| rank(&patch_order, v).unwrap_or(usize::MAX));
    others.sort_by_cached_key(|v| rank(&server_order, v).unwrap_or(usize::MAX));
    let (mut named, mut others) = (named.into_iter().peekable(), others.into_iter().peekable());
    std::iter::from_fn(move || match (others.peek(), named.peek()) {
        (Some(left), Some(right)) => match (rank(&server_order, left), rank(&server_order, right)) {
            (Some(l), Some(r)) if l < r => others.next(),
            _ => named.next(),
        },
        (Some(_), None) => others.next(),
        (None, _) => named.next(),
    })
    .collect()
}

#[cfg(test)]
mod tests;
