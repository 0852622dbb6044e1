//! Just enough of the protobuf wire format to write and read Perfetto traces: varints, nested
//! messages, packed arrays. Groups (wire types 3 and 4) are refused; Perfetto has none.

/// A message under construction.
#[derive(Clone, Default, Debug)]
pub(crate) struct Message(pub(crate) Vec<u8>);

impl Message {
    /// An integer field; negative numbers are passed as their 64-bit pattern.
    pub(crate) fn int(&mut self, field: u32, value: u64) -> &mut Message {
        varint(&mut self.0, u64::from(field) << 3);
        varint(&mut self.0, value);
        self
    }

    /// A signed field of type int32 or int64.
    pub(crate) fn signed(&mut self, field: u32, value: i64) -> &mut Message {
        self.int(field, value as u64)
    }

    /// Text, bytes or a nested message.
    pub(crate) fn bytes(&mut self, field: u32, value: &[u8]) -> &mut Message {
        varint(&mut self.0, u64::from(field) << 3 | 2);
        varint(&mut self.0, value.len() as u64);
        self.0.extend_from_slice(value);
        self
    }

    /// A nested message.
    pub(crate) fn message(&mut self, field: u32, value: &Message) -> &mut Message {
        self.bytes(field, &value.0)
    }
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// One field of a message that is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Value<'a> {
    Int(u64),
    Bytes(&'a [u8]),
}

/// Reads the fields of a message, one after the other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl<'a> Fields<'a> {
    /// The next field and its value; `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<(u32, Value<'a>)>, String> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let key = self.varint()?;
        let field = u32::try_from(key >> 3).map_err(|_| format!("field number {}", key >> 3))?;
        let value = match key & 7 {
            0 => Value::Int(self.varint()?),
            1 => Value::Int(u64::from_le_bytes(self.take(8)?.try_into().expect("8 bytes"))),
            5 => Value::Int(u32::from_le_bytes(self.take(4)?.try_into().expect("4 bytes")).into()),
            2 => {
                let length = self.varint()?;
                let length =
                    usize::try_from(length).map_err(|_| format!("a field of {length} bytes"))?;
                Value::Bytes(self.take(length)?)
            }
            other => return Err(format!("wire type {other}, which Perfetto does not use")),
        };
        Ok(Some((field, value)))
    }

    /// Calls `each` for every field.
    pub(crate) fn each(
        mut self,
        mut each: impl FnMut(u32, Value<'a>) -> Result<(), String>,
    ) -> Result<(), String> {
        while let Some((field, value)) = self.next()? {
            each(field, value)?;
        }
        Ok(())
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], String> {
        if count > self.0.len() {
            return Err(format!("a field of {count} bytes where {} are left", self.0.len()));
        }
        let (taken, rest) = self.0.split_at(count);
        self.0 = rest;
        Ok(taken)
    }

    fn varint(&mut self) -> Result<u64, String> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = *self.0.first().ok_or("a number is cut off")?;
            self.0 = &self.0[1..];
            value |= u64::from(byte & 0x7f).wrapping_shl(shift);
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err("a number of more than 10 bytes".to_owned())
    }
}

impl<'a> Value<'a> {
    pub(crate) fn int(self) -> Result<u64, String> {
        match self {
            Value::Int(value) => Ok(value),
            Value::Bytes(_) => Err("bytes where a number belongs".to_owned()),
        }
    }

    pub(crate) fn bytes(self) -> Result<&'a [u8], String> {
        match self {
            Value::Bytes(bytes) => Ok(bytes),
            Value::Int(_) => Err("a number where bytes belong".to_owned()),
        }
    }

    /// The numbers of a repeated field, packed or one at a time.
    pub(crate) fn numbers(self, into: &mut Vec<u64>) -> Result<(), String> {
        match self {
            Value::Int(value) => into.push(value),
            Value::Bytes(bytes) => {
                let mut fields = Fields(bytes);
                while !fields.0.is_empty() {
                    into.push(fields.varint()?);
                }
            }
        }
        Ok(())
    }
}
