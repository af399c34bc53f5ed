//! How server-side apply and strategic merge patches take each field of a message: facts of the same table.

use super::table::{Field as Fact, Kind, Message as Facts, Shape, TABLE};
use std::sync::LazyLock;

/// A message, as merging sees it.
#[derive(Debug)]
pub(crate) struct Message {
    /// Whether apply takes it as a whole.
    pub(crate) atomic: bool,
    /// The fields about which there is something to know.
    pub(crate) fields: Vec<Field>,
}

/// A field, as merging sees it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Field {
    /// Its name in JSON.
    pub(crate) name: &'static str,
    /// `atomic`, `set` or `map`, with the keys of a `map`.
    pub(crate) apply: Option<(&'static str, Vec<&'static str>)>,
    /// The strategy, for example `merge` or `merge,retainKeys`, and the merge key of a list of objects.
    pub(crate) patch: Option<(&'static str, Option<&'static str>)>,
}

/// Reads the table now, where it would otherwise be read on first use.
pub(crate) fn prepare() {
    LazyLock::force(&TABLE);
}

/// The message of a schema such as `io.k8s.api.core.v1.PodSpec`.
pub(crate) fn of(schema: &str) -> Option<Message> {
    let mut parts = schema.rsplit('.');
    let (name, version, package) = (parts.next()?, parts.next()?, parts.next()?);
    let name = format!("{package}/{version}.{name}");
    let facts = TABLE.messages.iter().find(|m| m.name == name)?;
    let mut fields = Vec::new();
    collect(facts, &mut fields);
    Some(Message { atomic: facts.atomic, fields })
}

fn collect(message: &'static Facts, into: &mut Vec<Field>) {
    for field in &message.fields {
        match (field.shape, field.kind) {
            (Shape::Inline, Kind::Message(place)) => collect(&TABLE.messages[place], into),
            _ if field.merging.is_empty() => {}
            _ => into.push(read(field)),
        }
    }
}

/// How apply takes a field: `atomic`, `set` or `map`, with the keys of a `map`.
pub(crate) fn apply(field: &'static Fact) -> Option<(&'static str, Vec<&'static str>)> {
    words(parts(field).0.trim_start_matches('~'))
}

/// The two parts of `~map:name&merge:name`.
fn parts(field: &'static Fact) -> (&'static str, &'static str) {
    field.merging.split_once('&').unwrap_or((field.merging, ""))
}

/// A word, and those that it is followed by.
fn words(text: &'static str) -> Option<(&'static str, Vec<&'static str>)> {
    let mut words = text.split(':');
    words.next().filter(|w| !w.is_empty()).map(|first| (first, words.collect::<Vec<_>>()))
}

/// How a strategic merge patch takes a field: its strategy, and the merge key of a list of objects.
pub(crate) fn patch(field: &'static Fact) -> Option<(&'static str, Option<&'static str>)> {
    words(parts(field).1).map(|(strategy, keys)| (strategy, keys.first().copied()))
}

fn read(field: &'static Fact) -> Field {
    Field { name: field.name, apply: apply(field), patch: patch(field) }
}
