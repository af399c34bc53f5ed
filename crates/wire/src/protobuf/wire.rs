//! Wire format of protocol buffers. Groups are skipped.

use super::DecodeError;

/// Wire type and content of a field.
#[derive(Debug, Clone, Copy)]
pub enum Wire<'a> {
    /// A variable-length number.
    Varint(u64),
    /// A string, bytes, a message, or packed numbers.
    Bytes(&'a [u8]),
    /// 64 bits: a `double`.
    Fixed(u64),
    /// Other fixed-width numbers and groups, which no Kubernetes message has.
    Other,
}

/// Reads the fields of one message.
pub struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    /// Reads the fields of a message.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The next field's number and content; `None` at the end.
    ///
    /// # Errors
    /// If the message is malformed.
    #[expect(
        clippy::should_implement_trait,
        reason = "an iterator of results could not be used with `?` in `while let`"
    )]
    pub fn next(&mut self) -> Result<Option<(u32, Wire<'a>)>, DecodeError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let (number, wire_type) = self.key()?;
        let wire = match wire_type {
            0 => Wire::Varint(self.varint()?),
            1 => Wire::Fixed(u64::from_le_bytes(self.take(8)?.try_into().map_err(|_| DecodeError::Truncated)?)),
            2 => Wire::Bytes(self.bytes()?),
            other => {
                self.skip(other)?;
                Wire::Other
            }
        };
        Ok(Some((number, wire)))
    }

    fn key(&mut self) -> Result<(u32, u8), DecodeError> {
        let key = self.varint()?;
        let number = u32::try_from(key >> 3).ok().filter(|n| *n > 0).ok_or(DecodeError::FieldNumber)?;
        Ok((number, u8::try_from(key & 7).unwrap_or(7)))
    }

    pub(super) fn varint(&mut self) -> Result<u64, DecodeError> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.rest.split_first().ok_or(DecodeError::Truncated)?;
            self.rest = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(DecodeError::Varint)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    fn bytes(&mut self) -> Result<&'a [u8], DecodeError> {
        let length = usize::try_from(self.varint()?).map_err(|_| DecodeError::Truncated)?;
        self.take(length)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(DecodeError::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }

    /// Skips a fixed-width number or a whole group, however deep, without recursion.
    fn skip(&mut self, wire_type: u8) -> Result<(), DecodeError> {
        let mut groups = 0_usize;
        let mut wire_type = wire_type;
        loop {
            match wire_type {
                0 => drop(self.varint()?),
                1 => drop(self.take(8)?),
                2 => drop(self.bytes()?),
                3 => groups += 1,
                4 => groups = groups.checked_sub(1).ok_or(DecodeError::WireType)?,
                5 => drop(self.take(4)?),
                _ => return Err(DecodeError::WireType),
            }
            if groups == 0 {
                return Ok(());
            }
            wire_type = self.key()?.1;
        }
    }
}

/// Appends a number.
pub(super) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(u8::try_from(value & 0x7f).unwrap_or(0) | 0x80);
        value >>= 7;
    }
    out.push(u8::try_from(value).unwrap_or(0));
}

/// Appends a field that holds a number.
pub fn put_number(out: &mut Vec<u8>, number: u32, value: i64) {
    put_varint(out, u64::from(number) << 3);
    put_varint(out, value.cast_unsigned());
}

/// Appends a field that holds eight bytes.
pub fn put_fixed(out: &mut Vec<u8>, number: u32, value: f64) {
    put_varint(out, u64::from(number) << 3 | 1);
    out.extend_from_slice(&value.to_le_bytes());
}

/// Appends a field that holds bytes.
pub fn put_bytes(out: &mut Vec<u8>, number: u32, bytes: &[u8]) {
    put_varint(out, u64::from(number) << 3 | 2);
    put_varint(out, u64::try_from(bytes.len()).unwrap_or(u64::MAX));
    out.extend_from_slice(bytes);
}
