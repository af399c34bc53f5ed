//! Hash of serializable values without an intermediate text, because the model checker computes millions of them.

use serde::{
    Serialize, Serializer,
    ser::{
        SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple, SerializeTupleStruct,
        SerializeTupleVariant,
    },
};
use std::{
    fmt::{self, Write},
    hash::{DefaultHasher, Hash, Hasher},
};

/// Hasher that skips the fields of these names.
pub(crate) struct Fingerprint {
    hasher: DefaultHasher,
    without: &'static [&'static str],
}

impl Fingerprint {
    pub(crate) fn without(without: &'static [&'static str]) -> Self {
        Self { hasher: DefaultHasher::new(), without }
    }

    pub(crate) fn add(&mut self, value: &impl Serialize) {
        value.serialize(&mut *self).unwrap();
    }

    pub(crate) fn add_debug(&mut self, value: &impl fmt::Debug) {
        write!(self, "{value:?}").unwrap();
    }

    pub(crate) fn add_hash(&mut self, value: impl Hash) {
        value.hash(&mut self.hasher);
    }

    pub(crate) fn finish(&self) -> u64 {
        self.hasher.finish()
    }

    fn tag(&mut self, tag: u8) -> &mut Self {
        self.hasher.write_u8(tag);
        self
    }
}

impl Write for Fingerprint {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        self.hasher.write(s.as_bytes());
        Ok(())
    }
}

macro_rules! primitives {
    ($($name:ident($kind:ty)),*) => {$(
        fn $name(self, value: $kind) -> Result<(), fmt::Error> {
            value.hash(&mut self.hasher);
            Ok(())
        }
    )*};
}

impl Serializer for &mut Fingerprint {
    type Ok = ();
    type Error = fmt::Error;
    type SerializeSeq = Self;
    type SerializeTuple = Self;
    type SerializeTupleStruct = Self;
    type SerializeTupleVariant = Self;
    type SerializeMap = Self;
    type SerializeStruct = Self;
    type SerializeStructVariant = Self;

    primitives!(
        serialize_bool(bool),
        serialize_i8(i8),
        serialize_i16(i16),
        serialize_i32(i32),
        serialize_i64(i64),
        serialize_u8(u8),
        serialize_u16(u16),
        serialize_u32(u32),
        serialize_u64(u64),
        serialize_char(char),
        serialize_str(&str),
        serialize_bytes(&[u8])
    );

    fn serialize_f32(self, value: f32) -> Result<(), fmt::Error> {
        self.serialize_u32(value.to_bits())
    }

    fn serialize_f64(self, value: f64) -> Result<(), fmt::Error> {
        self.serialize_u64(value.to_bits())
    }

    fn collect_str<T: fmt::Display + ?Sized>(self, value: &T) -> Result<(), fmt::Error> {
        write!(self, "{value}")?;
        self.serialize_unit()
    }

    fn serialize_none(self) -> Result<(), fmt::Error> {
        self.serialize_unit()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), fmt::Error> {
        value.serialize(self.tag(1))
    }

    fn serialize_unit(self) -> Result<(), fmt::Error> {
        self.tag(0);
        Ok(())
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<(), fmt::Error> {
        self.serialize_unit()
    }

    fn serialize_unit_variant(self, _: &'static str, index: u32, _: &'static str) -> Result<(), fmt::Error> {
        self.serialize_u32(index)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Result<(), fmt::Error> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        index: u32,
        _: &'static str,
        value: &T,
    ) -> Result<(), fmt::Error> {
        self.hasher.write_u32(index);
        value.serialize(self)
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Self, fmt::Error> {
        Ok(self.tag(2))
    }

    fn serialize_tuple(self, _: usize) -> Result<Self, fmt::Error> {
        Ok(self)
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Self, fmt::Error> {
        Ok(self)
    }

    fn serialize_tuple_variant(self, _: &str, index: u32, _: &str, _: usize) -> Result<Self, fmt::Error> {
        self.hasher.write_u32(index);
        Ok(self)
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Self, fmt::Error> {
        Ok(self.tag(3))
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Self, fmt::Error> {
        Ok(self)
    }

    fn serialize_struct_variant(self, _: &str, index: u32, _: &str, _: usize) -> Result<Self, fmt::Error> {
        self.hasher.write_u32(index);
        Ok(self)
    }
}

/// Serializers of lists and maps: each element, and an end marker.
macro_rules! list {
    ($kind:ident, $add:ident) => {
        impl $kind for &mut Fingerprint {
            type Ok = ();
            type Error = fmt::Error;

            fn $add<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), fmt::Error> {
                value.serialize(self.tag(1))
            }

            fn end(self) -> Result<(), fmt::Error> {
                self.serialize_unit()
            }
        }
    };
}

list!(SerializeSeq, serialize_element);
list!(SerializeTuple, serialize_element);
list!(SerializeTupleStruct, serialize_field);
list!(SerializeTupleVariant, serialize_field);

impl SerializeMap for &mut Fingerprint {
    type Ok = ();
    type Error = fmt::Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), fmt::Error> {
        key.serialize(self.tag(1))
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), fmt::Error> {
        value.serialize(&mut **self)
    }

    fn end(self) -> Result<(), fmt::Error> {
        self.serialize_unit()
    }
}

/// Serializers of struct fields; names are omitted, because only fingerprints of the same type are compared.
macro_rules! fields {
    ($kind:ident) => {
        impl $kind for &mut Fingerprint {
            type Ok = ();
            type Error = fmt::Error;

            fn serialize_field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> fmt::Result {
                if self.without.contains(&name) { Ok(()) } else { value.serialize(&mut **self) }
            }

            /// A skipped field differs from an empty one.
            fn skip_field(&mut self, _: &'static str) -> fmt::Result {
                self.serialize_unit()
            }

            fn end(self) -> Result<(), fmt::Error> {
                Ok(())
            }
        }
    };
}

fields!(SerializeStruct);
fields!(SerializeStructVariant);
