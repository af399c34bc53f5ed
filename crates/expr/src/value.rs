//! CEL values.

use crate::{AuthorizationDecision, AuthorizerBuilder, EvalError};
use api::quantity::Amount;
use jiff::{SignedDuration, Timestamp};
use std::{cmp::Ordering, collections::BTreeMap, net::IpAddr, sync::Arc};

/// A value. Cheap to clone.
#[derive(Debug, Clone)]
pub enum Value {
    /// Null.
    Null,
    /// A boolean.
    Bool(bool),
    /// A signed integer.
    Int(i64),
    /// An unsigned integer, for example `1u`.
    Uint(u64),
    /// A floating-point number.
    Double(f64),
    /// A string.
    String(Arc<str>),
    /// Bytes.
    Bytes(Arc<[u8]>),
    /// A list.
    List(Arc<Vec<Value>>),
    /// A map, or an object.
    Map(Arc<BTreeMap<Key, Value>>),
    /// A duration.
    Duration(SignedDuration),
    /// A timestamp.
    Time(Timestamp),
    /// The type of a value.
    Type(Arc<str>),
    /// An optional value.
    Optional(Option<Arc<Value>>),
    /// A quantity.
    Quantity(Amount),
    /// An IP address.
    Ip(IpAddr),
    /// A CIDR block: address and prefix length.
    Cidr(IpAddr, u8),
    /// A URL with its original spelling.
    Url(Arc<str>),
    /// A named string format.
    Format(&'static str),
    /// A semantic version.
    Semver(Arc<Semver>),
    /// An authorizer or a check that is being built.
    Authorizer(Arc<AuthorizerBuilder>),
    /// The decision of an authorizer.
    Verdict(Arc<AuthorizationDecision>),
}

/// The key of a map.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// A boolean.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A string.
    String(Arc<str>),
}

/// A semantic version without build metadata.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Semver {
    pub(crate) numbers: [u64; 3],
    pub(crate) prerelease: Vec<String>,
}

impl Value {
    /// Creates a string.
    #[must_use]
    pub fn string(text: &str) -> Self {
        Self::String(text.into())
    }

    pub(crate) fn list(items: Vec<Self>) -> Self {
        Self::List(Arc::new(items))
    }

    pub(crate) fn some(value: Self) -> Self {
        Self::Optional(Some(Arc::new(value)))
    }

    pub(crate) fn key(&self) -> Result<Key, EvalError> {
        Ok(match self {
            Self::Bool(b) => Key::Bool(*b),
            Self::Int(i) => Key::Int(*i),
            Self::Uint(u) => Key::Int(i64::try_from(*u).map_err(|_| EvalError::overload())?),
            #[expect(clippy::cast_possible_truncation, reason = "only what is whole is cast")]
            Self::Double(d) if d.fract() == 0.0 && d.abs() < 9e15 => Key::Int(*d as i64),
            Self::String(s) => Key::String(Arc::clone(s)),
            _ => return Err(EvalError::new("unsupported key type")),
        })
    }

    /// Returns the name of the value's type.
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Self::Null => "null_type",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Uint(_) => "uint",
            Self::Double(_) => "double",
            Self::String(_) => "string",
            Self::Bytes(_) => "bytes",
            Self::List(_) => "list",
            Self::Map(_) => "map",
            Self::Duration(_) => "google.protobuf.Duration",
            Self::Time(_) => "google.protobuf.Timestamp",
            Self::Type(_) => "type",
            Self::Optional(_) => "optional_type",
            Self::Quantity(_) => "kubernetes.Quantity",
            Self::Ip(_) => "net.IP",
            Self::Cidr(..) => "net.CIDR",
            Self::Url(_) => "kubernetes.URL",
            Self::Format(_) => "kubernetes.NamedFormat",
            Self::Semver(_) => "kubernetes.Semver",
            Self::Authorizer(_) => "kubernetes.authorization.Authorizer",
            Self::Verdict(_) => "kubernetes.authorization.Decision",
        }
    }

    /// Returns whether two values are equal; numbers of different types are compared by value.
    pub(crate) fn equals(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Null, Self::Null) => true,
            (Self::Bool(l), Self::Bool(r)) => l == r,
            (Self::String(l), Self::String(r)) | (Self::Type(l), Self::Type(r)) | (Self::Url(l), Self::Url(r)) => {
                l == r
            }
            (Self::Bytes(l), Self::Bytes(r)) => l == r,
            (Self::List(l), Self::List(r)) => l.len() == r.len() && l.iter().zip(r.iter()).all(|(l, r)| l.equals(r)),
            (Self::Map(l), Self::Map(r)) => {
                l.len() == r.len() && l.iter().all(|(k, v)| r.get(k).is_some_and(|other| v.equals(other)))
            }
            (Self::Optional(l), Self::Optional(r)) => match (l, r) {
                (Some(l), Some(r)) => l.equals(r),
                (None, None) => true,
                _ => false,
            },
            (Self::Ip(l), Self::Ip(r)) => l == r,
            (Self::Cidr(l, n), Self::Cidr(r, m)) => l == r && n == m,
            (Self::Format(l), Self::Format(r)) => l == r,
            (l, r) => l.compare(r) == Some(Ordering::Equal),
        }
    }

    /// Compares two values; `None` if they are not comparable.
    pub(crate) fn compare(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Bool(l), Self::Bool(r)) => Some(l.cmp(r)),
            (Self::Int(l), Self::Int(r)) => Some(l.cmp(r)),
            (Self::Uint(l), Self::Uint(r)) => Some(l.cmp(r)),
            (Self::Int(l), Self::Uint(r)) => Some(i128::from(*l).cmp(&i128::from(*r))),
            (Self::Uint(l), Self::Int(r)) => Some(i128::from(*l).cmp(&i128::from(*r))),
            (l, r) if l.number().is_some() && r.number().is_some() => l.number().partial_cmp(&r.number()),
            (Self::String(l), Self::String(r)) => Some(l.cmp(r)),
            (Self::Bytes(l), Self::Bytes(r)) => Some(l.cmp(r)),
            (Self::Duration(l), Self::Duration(r)) => Some(l.cmp(r)),
            (Self::Time(l), Self::Time(r)) => Some(l.cmp(r)),
            (Self::Quantity(l), Self::Quantity(r)) => Some(l.cmp(r)),
            (Self::Semver(l), Self::Semver(r)) => Some(l.compare(r)),
            _ => None,
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "numbers are compared as numbers with a point")]
    fn number(&self) -> Option<f64> {
        match self {
            Self::Int(i) => Some(*i as f64),
            Self::Uint(u) => Some(*u as f64),
            Self::Double(d) => Some(*d),
            _ => None,
        }
    }

    /// Returns the cost of traversing the value.
    pub(crate) fn cost(&self) -> u64 {
        let length = match self {
            Self::String(s) | Self::Url(s) => s.len() / 10,
            Self::Bytes(b) => b.len() / 10,
            Self::List(l) => l.len(),
            Self::Map(m) => m.len(),
            _ => 0,
        };
        u64::try_from(length).unwrap_or(u64::MAX)
    }
}

impl Semver {
    fn compare(&self, other: &Self) -> Ordering {
        let compare_prerelease = || match (self.prerelease.is_empty(), other.prerelease.is_empty()) {
            (true, true) => Ordering::Equal,
            (true, false) => Ordering::Greater,
            (false, true) => Ordering::Less,
            (false, false) => {
                let parts = self.prerelease.iter().zip(&other.prerelease).map(|(l, r)| {
                    match (l.parse::<u64>(), r.parse::<u64>()) {
                        (Ok(l), Ok(r)) => l.cmp(&r),
                        (Ok(_), Err(_)) => Ordering::Less,
                        (Err(_), Ok(_)) => Ordering::Greater,
                        (Err(_), Err(_)) => l.cmp(r),
                    }
                });
                let mut different = parts.filter(|o| o.is_ne());
                different.next().unwrap_or_else(|| self.prerelease.len().cmp(&other.prerelease.len()))
            }
        };
        self.numbers.cmp(&other.numbers).then_with(compare_prerelease)
    }
}
