//! Merge strategies of fields for server-side apply and strategic merge patches, from the message table.

use super::message_table::{Cardinality, Field, Message, TABLE, ValueType};
use std::sync::LazyLock;

/// Merge strategies of a message.
#[derive(Debug)]
pub struct MessageStrategies {
    /// Whether it is atomic for server-side apply.
    pub atomic: bool,
    /// The fields with markers.
    pub fields: Vec<FieldStrategy>,
}

/// Merge strategies of a field.
#[derive(Debug, PartialEq, Eq)]
pub struct FieldStrategy {
    /// Name in JSON.
    pub name: &'static str,
    /// `atomic`, `set` or `map`, with the keys of a `map`.
    pub apply: Option<(&'static str, Vec<&'static str>)>,
    /// The strategy, for example `merge` or `merge,retainKeys`, and the merge key of a list of objects.
    pub patch: Option<(&'static str, Option<&'static str>)>,
}

/// Parses the message table, which is otherwise parsed on first use.
pub fn parse_table() {
    LazyLock::force(&TABLE);
}

/// Returns the merge strategies of a schema such as `io.k8s.api.core.v1.PodSpec`.
pub fn of_schema(schema: &str) -> Option<MessageStrategies> {
    let mut parts = schema.rsplit('.');
    let (name, version, package) = (parts.next()?, parts.next()?, parts.next()?);
    let name = format!("{package}/{version}.{name}");
    let message = TABLE.messages.iter().find(|m| m.name == name)?;
    let mut fields = Vec::new();
    collect(message, &mut fields);
    Some(MessageStrategies { atomic: message.atomic, fields })
}

fn collect(message: &'static Message, into: &mut Vec<FieldStrategy>) {
    for field in &message.fields {
        match (field.cardinality, field.value_type) {
            (Cardinality::Inline, ValueType::Message(index)) => collect(&TABLE.messages[index], into),
            _ if field.merge_markers().is_empty() => {}
            _ => into.push(FieldStrategy { name: field.name, apply: apply(field), patch: patch(field) }),
        }
    }
}

/// Returns the list or map type of a field for server-side apply: `atomic`, `set` or `map`, with the keys of a `map`.
pub fn apply(field: &'static Field) -> Option<(&'static str, Vec<&'static str>)> {
    split_keys(markers(field).0.trim_start_matches('~'))
}

/// Splits `~map:name&merge:name`.
fn markers(field: &'static Field) -> (&'static str, &'static str) {
    field.merge_markers().split_once('&').unwrap_or((field.merge_markers(), ""))
}

/// Splits a marker from its keys.
fn split_keys(text: &'static str) -> Option<(&'static str, Vec<&'static str>)> {
    let mut parts = text.split(':');
    parts.next().filter(|marker| !marker.is_empty()).map(|marker| (marker, parts.collect::<Vec<_>>()))
}

/// Returns the patch strategy of a field, and the merge key of a list of objects.
pub fn patch(field: &'static Field) -> Option<(&'static str, Option<&'static str>)> {
    split_keys(markers(field).1).map(|(strategy, keys)| (strategy, keys.first().copied()))
}
