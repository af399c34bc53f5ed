//! Table of the Kubernetes messages in `messages.txt`, parsed on first use: about 600 messages in 100 KB.

use serde_json::Value;
use std::{collections::HashMap, sync::LazyLock};

/// Type of a field's value, or of the items of a list or map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueType {
    /// `string`.
    String,
    /// `bool`.
    Bool,
    /// `int32`.
    Int32,
    /// `int64`.
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
    /// `double`.
    Double,
    /// A message, by its index, or a boolean (`JSONSchemaPropsOrBool`).
    BoolOr(usize),
    /// A message, by its index, or a list of them (`JSONSchemaPropsOrArray`).
    ListOr(usize),
    /// A message, by its index in the table.
    Message(usize),
}

/// Cardinality of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cardinality {
    /// A plain value: its zero value can be on the wire, and JSON omits it.
    Plain,
    /// A pointer in Go: a zero value is set, not absent.
    Pointer,
    /// A list.
    List,
    /// A map with string keys.
    Map,
    /// A message on the wire whose fields are inlined in the JSON of the parent (`json:",inline"`).
    Inline,
}

/// A field of a message.
#[derive(Debug)]
pub struct Field {
    /// Name in JSON.
    pub name: &'static str,
    /// Number on the wire.
    pub number: u32,
    /// Index in Go's struct, which is the order in JSON.
    pub(crate) go_index: u16,
    /// Cardinality.
    pub cardinality: Cardinality,
    /// Type of the value, or of the items.
    pub value_type: ValueType,
    /// Whether JSON contains the zero value: no `omitempty` in Go.
    pub always_encoded: bool,
    /// Whether the published schema requires it.
    pub required: bool,
    /// Markers of apply and strategic merge patches, and the declared default.
    markers: &'static str,
}

/// A message: a Go struct of the API.
#[derive(Debug, Default)]
pub struct Message {
    /// Package and name, for example `core/v1.Pod`.
    pub name: String,
    /// Whether it is atomic for server-side apply.
    pub atomic: bool,
    /// Whether its JSON has `apiVersion` and `kind`, also within another object (`metav1.TypeMeta`).
    pub has_type_meta: bool,
    /// The field that says which other field of a union is set (`+unionDiscriminator`).
    pub union_discriminator: Option<&'static str>,
    /// Sorted by number.
    pub fields: Vec<Field>,
}

impl Field {
    /// Returns the markers of apply and strategic merge patches, which [`super::merge_strategies`] parses.
    pub(crate) fn merge_markers(&self) -> &'static str {
        self.markers.split('^').next().unwrap_or_default()
    }

    /// Returns the declared default (`+default`).
    #[must_use]
    pub fn declared_default(&self) -> Option<Value> {
        let (_, json) = self.markers.split_once('^')?;
        serde_json::from_str(json).ok()
    }
}

impl Message {
    /// Returns the field with a number.
    #[must_use]
    pub fn field(&self, number: u32) -> Option<&Field> {
        self.fields.binary_search_by_key(&number, |f| f.number).ok().and_then(|i| self.fields.get(i))
    }

    /// Returns the field with a JSON name, also of an inlined message.
    pub fn field_named(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find_map(|field| match (field.cardinality, field.value_type) {
            (Cardinality::Inline, ValueType::Message(index)) => TABLE.messages[index].field_named(name),
            _ => (field.name == name).then_some(field),
        })
    }
}

/// All messages.
#[derive(Debug, Default)]
pub struct Table {
    /// The messages; [`ValueType::Message`] is an index into them.
    pub messages: Vec<Message>,
    /// By API version and kind.
    kinds: HashMap<(&'static str, &'static str), usize>,
}

/// Prefix of the packages of messages that are only encoded as JSON.
const JSON_ONLY_PREFIX: &str = "json/";

/// The generated table.
const MESSAGES: &str = include_str!("messages.txt");

/// The table of all messages, parsed on first use.
pub static TABLE: LazyLock<Table> = LazyLock::new(|| Table::parse(MESSAGES).unwrap_or_default());

impl Table {
    /// Returns the message of a kind. Kinds of meta/v1, such as `DeleteOptions`, belong to every API version.
    pub fn kind(&self, api_version: &str, kind: &str) -> Option<&Message> {
        let found = self.kinds.get(&(api_version, kind)).or_else(|| self.kinds.get(&("", kind)));
        found.and_then(|i| self.messages.get(*i)).filter(|message| !message.name.starts_with(JSON_ONLY_PREFIX))
    }

    /// Returns the index of the message of an object's type. A custom kind may have the name of a kind of meta/v1.
    pub(crate) fn index_of_type(&self, api_version: &str, kind: &str) -> Option<usize> {
        let found = || self.kinds.get(&(api_version, kind));
        found().or_else(|| api_version.starts_with("meta.k8s.io/").then(|| self.kinds.get(&("", kind)))?).copied()
    }

    /// Returns the message with this name.
    pub fn message(&self, name: &str) -> Option<&Message> {
        self.messages.iter().find(|m| m.name == name)
    }

    /// Parses the format that `messages.txt` describes; `None` if the text is invalid, which a test excludes.
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
        let is_strings = |fields: &str| fields == "[]string";
        let mut types = HashMap::new();
        let mut table = Self::default();
        for (index, (package, api_version, head, fields)) in lines.iter().enumerate() {
            let value_type = if is_strings(fields) { ValueType::Strings } else { ValueType::Message(index) };
            let name = Head::parse(head).name;
            types.insert((*package, name), value_type);
            table.kinds.insert((api_version, name), index);
            if *package == "meta/v1" {
                table.kinds.insert(("", name), index);
            }
        }
        for (package, _, head, fields) in &lines {
            let Head { name, atomic, union_discriminator, has_type_meta } = Head::parse(head);
            let name = format!("{package}.{name}");
            let mut message = Message { name, atomic, has_type_meta, union_discriminator, fields: Vec::new() };
            if !is_strings(fields) {
                for (index, token) in (0..).zip(fields.split(' ').filter(|t| !t.is_empty())) {
                    message.fields.push(parse_field(token, index, package, &types)?);
                }
                message.fields.sort_unstable_by_key(|field| field.number);
            }
            table.messages.push(message);
        }
        Some(table)
    }
}

/// First word of a message's line.
struct Head {
    name: &'static str,
    atomic: bool,
    union_discriminator: Option<&'static str>,
    has_type_meta: bool,
}

impl Head {
    /// Parses `Name~atomic%discriminator@`; all but the name are optional.
    fn parse(text: &'static str) -> Self {
        let (text, has_type_meta) = text.strip_suffix('@').map_or((text, false), |text| (text, true));
        let (text, union_discriminator) = text.split_once('%').map_or((text, None), |(text, name)| (text, Some(name)));
        let (name, atomic) = text.strip_suffix("~atomic").map_or((text, false), |name| (name, true));
        Self { name, atomic, union_discriminator, has_type_meta }
    }
}

fn parse_field(
    token: &'static str,
    go_index: u16,
    package: &str,
    types: &HashMap<(&str, &str), ValueType>,
) -> Option<Field> {
    let (left, kind) = token.split_once('=')?;
    let (name, number) = left.split_once(':')?;
    let (kind, markers) = kind.split_at(kind.find(['~', '&', '^']).unwrap_or(kind.len()));
    let (kind, presence) = kind.split_at(kind.find(['!', '+']).unwrap_or(kind.len()));
    let (always_encoded, required) = (presence.starts_with('!'), matches!(presence, "!" | "+"));
    let prefixes = [("*", Cardinality::Pointer), ("[]", Cardinality::List), ("{}", Cardinality::Map)];
    let prefixed = prefixes.iter().find_map(|(p, cardinality)| kind.strip_prefix(p).map(|k| (*cardinality, k)));
    let (cardinality, kind) =
        prefixed.unwrap_or((if name == "." { Cardinality::Inline } else { Cardinality::Plain }, kind));
    let value_type = match kind {
        "string" => ValueType::String,
        "bool" => ValueType::Bool,
        "int32" => ValueType::Int32,
        "int64" => ValueType::Int64,
        "bytes" => ValueType::Bytes,
        "time" => ValueType::Time,
        "microtime" => ValueType::MicroTime,
        "duration" => ValueType::Duration,
        "quantity" => ValueType::Quantity,
        "intorstring" => ValueType::IntOrString,
        "raw" => ValueType::Raw,
        "json" => ValueType::Json,
        "double" => ValueType::Double,
        message => match (message.split_once('|'), package) {
            (Some((or, message)), package) => {
                let ValueType::Message(index) = *types.get(&(package, message))? else { return None };
                if or == "bool" { ValueType::BoolOr(index) } else { ValueType::ListOr(index) }
            }
            (None, package) => *types.get(&message.split_once('.').unwrap_or((package, message)))?,
        },
    };
    let number = number.parse().ok()?;
    Some(Field { name, number, go_index, cardinality, value_type, always_encoded, required, markers })
}
