//! The facts of `messages.txt`, parsed on first use: about 600 messages in 100 KB.

use std::{collections::HashMap, sync::LazyLock};

/// What a field holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    String,
    Bool,
    Int32,
    Int64,
    /// Base64 in JSON.
    Bytes,
    /// `metav1.Time`: RFC 3339 to the second.
    Time,
    /// `metav1.MicroTime`: RFC 3339 to the microsecond.
    MicroTime,
    /// `metav1.Duration`: as Go writes them, `1m30s`.
    Duration,
    /// `resource.Quantity`: a string.
    Quantity,
    /// `intstr.IntOrString`: a number or a string.
    IntOrString,
    /// `runtime.RawExtension`: any object.
    Raw,
    /// `metav1.FieldsV1`: JSON.
    Json,
    /// A message that is a list of strings in JSON, like `metav1.Verbs`.
    Strings,
    /// A number with a point.
    Double,
    /// A message by its place, or true or false.
    BoolOr(usize),
    /// A message by its place, or a list of them.
    ListOr(usize),
    /// A message, by its place in the table.
    Message(usize),
}

/// How often a field's value is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// A plain value: the wire may carry its zero, which JSON leaves out.
    Plain,
    /// A pointer in Go: what the wire carries was meant.
    Pointer,
    List,
    Map,
    /// A message on the wire whose fields stand in the parent's JSON.
    Inline,
}

#[derive(Debug)]
pub(crate) struct Field {
    /// Its name in JSON.
    pub(crate) name: &'static str,
    pub(crate) number: u32,
    /// Its place in Go's struct, and so in the JSON.
    pub(crate) place: u16,
    pub(crate) shape: Shape,
    pub(crate) kind: Kind,
    /// Whether it stands in the JSON even when it is zero: no `omitempty` in Go.
    pub(crate) always: bool,
    /// How apply and patches take it; [`super::merging`] reads that.
    pub(crate) merging: &'static str,
}

#[derive(Debug, Default)]
pub(crate) struct Message {
    /// Package and name, for example `core/v1.Pod`.
    pub(crate) name: String,
    /// Whether server-side apply takes it as a whole.
    pub(crate) atomic: bool,
    /// In the order of their numbers.
    pub(crate) fields: Vec<Field>,
}

impl Message {
    pub(crate) fn field(&self, number: u32) -> Option<&Field> {
        self.fields.binary_search_by_key(&number, |f| f.number).ok().and_then(|i| self.fields.get(i))
    }

    /// The field of this name, also where it stands in a message whose fields are the parent's.
    pub(crate) fn named(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find_map(|field| match (field.shape, field.kind) {
            (Shape::Inline, Kind::Message(place)) => TABLE.messages[place].named(name),
            _ => (field.name == name).then_some(field),
        })
    }
}

/// All messages.
#[derive(Debug, Default)]
pub(crate) struct Table {
    pub(crate) messages: Vec<Message>,
    /// By API version and kind.
    kinds: HashMap<(&'static str, &'static str), usize>,
}

/// Ends the name of a message that apply takes as a whole.
const ATOMIC: &str = "~atomic";

/// Begins the packages of messages that have no binary form here.
const JSON_ONLY: &str = "json/";

/// Those of custom kinds are written by hand, for their schemas have shapes of their own, and so are those of documents of
/// which only the JSON is served.
const FACTS: &str = concat!(
    include_str!("messages.txt"),
    include_str!("apiextensions.txt"),
    include_str!("apiregistration.txt"),
    include_str!("metrics.txt"),
    include_str!("json_only.txt"),
);

pub(crate) static TABLE: LazyLock<Table> = LazyLock::new(|| Table::parse(FACTS).unwrap_or_default());

impl Table {
    /// The message of a kind. Kinds of meta/v1, such as `DeleteOptions`, belong to every API version.
    pub(crate) fn kind(&self, api_version: &str, kind: &str) -> Option<&Message> {
        let found = self.kinds.get(&(api_version, kind)).or_else(|| self.kinds.get(&("", kind)));
        found.and_then(|i| self.messages.get(*i)).filter(|message| !message.name.starts_with(JSON_ONLY))
    }

    /// The place of the message that an object names as its type. A custom kind may be called as one of meta/v1 is.
    pub(crate) fn place_of_type(&self, api_version: &str, kind: &str) -> Option<usize> {
        let found = || self.kinds.get(&(api_version, kind));
        found().or_else(|| api_version.starts_with("meta.k8s.io/").then(|| self.kinds.get(&("", kind)))?).copied()
    }

    /// The message of this name.
    pub(crate) fn message(&self, name: &str) -> Option<&Message> {
        self.messages.iter().find(|m| m.name == name)
    }

    /// `None` when the text is not in the form that its head describes; a test reads it.
    pub(crate) fn parse(text: &'static str) -> Option<Self> {
        let mut lines: Vec<(&str, &str, &str, &str)> = Vec::new();
        let mut section = ("", "");
        for line in text.lines().filter(|l| !l.starts_with('#')) {
            match line.strip_prefix('[') {
                Some(head) => section = head.strip_suffix(']')?.split_once(' ')?,
                None => {
                    let (name, fields) = line.split_once(' ').unwrap_or((line, ""));
                    lines.push((section.0, section.1, name, fields));
                }
            }
        }
        let strings = |fields: &str| fields == "[]string";
        let mut places = HashMap::new();
        let mut table = Self::default();
        for (place, (package, api_version, name, fields)) in lines.iter().enumerate() {
            let kind = if strings(fields) { Kind::Strings } else { Kind::Message(place) };
            let name = name.strip_suffix(ATOMIC).unwrap_or(name);
            places.insert((*package, name), kind);
            table.kinds.insert((api_version, name), place);
            if *package == "meta/v1" {
                table.kinds.insert(("", name), place);
            }
        }
        for (package, _, name, fields) in &lines {
            let bare = name.strip_suffix(ATOMIC).unwrap_or(name);
            let mut message = Message { name: format!("{package}.{bare}"), atomic: bare != *name, fields: Vec::new() };
            if !strings(fields) {
                for (place, token) in (0..).zip(fields.split(' ').filter(|t| !t.is_empty())) {
                    message.fields.push(field(token, place, package, &places)?);
                }
                message.fields.sort_unstable_by_key(|field| field.number);
            }
            table.messages.push(message);
        }
        Some(table)
    }
}

fn field(token: &'static str, place: u16, package: &str, places: &HashMap<(&str, &str), Kind>) -> Option<Field> {
    let (left, kind) = token.split_once('=')?;
    let (name, number) = left.split_once(':')?;
    let (kind, merging) = kind.split_at(kind.find(['~', '&']).unwrap_or(kind.len()));
    let always = kind.ends_with('!');
    let kind = kind.strip_suffix('!').unwrap_or(kind);
    let prefixes = [("*", Shape::Pointer), ("[]", Shape::List), ("{}", Shape::Map)];
    let prefixed = prefixes.iter().find_map(|(p, shape)| kind.strip_prefix(p).map(|k| (*shape, k)));
    let (shape, kind) = prefixed.unwrap_or((if name == "." { Shape::Inline } else { Shape::Plain }, kind));
    let kind = match kind {
        "string" => Kind::String,
        "bool" => Kind::Bool,
        "int32" => Kind::Int32,
        "int64" => Kind::Int64,
        "bytes" => Kind::Bytes,
        "time" => Kind::Time,
        "microtime" => Kind::MicroTime,
        "duration" => Kind::Duration,
        "quantity" => Kind::Quantity,
        "intorstring" => Kind::IntOrString,
        "raw" => Kind::Raw,
        "json" => Kind::Json,
        "double" => Kind::Double,
        message => match (message.split_once('|'), package) {
            (Some((or, message)), package) => {
                let Kind::Message(place) = *places.get(&(package, message))? else { return None };
                if or == "bool" { Kind::BoolOr(place) } else { Kind::ListOr(place) }
            }
            (None, package) => *places.get(&message.split_once('.').unwrap_or((package, message)))?,
        },
    };
    Some(Field { name, number: number.parse().ok()?, place, shape, kind, always, merging })
}
