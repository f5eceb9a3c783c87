//! Decoder of a `google.protobuf.Struct` to a JSON value, and whole numbers in all forms that hosts write.
//!
//! Envoy passes a plugin the configuration's bytes unchanged: the text of a `StringValue`, but a `Struct` in protobuf's
//! wire format (Envoy 1.40, although its documentation says JSON).

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;

use serde_json::{Map, Number, Value};

const DEPTH_MAX: u8 = 50;

/// Wire types (protobuf's encoding, "Message Structure").
const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const BYTES: u64 = 2;
const FIXED32: u64 = 5;

pub(crate) fn decode(bytes: &[u8]) -> Option<Value> {
    object(bytes, DEPTH_MAX).map(Value::Object)
}

/// `Struct`: field 1 is a map, encoded as one entry per field. An entry's field 1 is the key, 2 the value.
fn object(bytes: &[u8], depth: u8) -> Option<Map<String, Value>> {
    let mut object = Map::new();
    let depth = depth.checked_sub(1)?;
    each_field(bytes, &mut |field| {
        let (1, Field::Bytes(entry)) = field else { return Some(()) };
        let (mut name, mut found) = (String::new(), Value::Null);
        each_field(entry, &mut |field| {
            match field {
                (1, Field::Bytes(text)) => name = text_of(text)?,
                (2, Field::Bytes(bytes)) => found = value(bytes, depth)?,
                _ => {}
            }
            Some(())
        })?;
        object.insert(name, found);
        Some(())
    })?;
    Some(object)
}

/// `Value`: one of fields 1 to 6; the last of several counts.
fn value(bytes: &[u8], depth: u8) -> Option<Value> {
    let mut found = Value::Null;
    each_field(bytes, &mut |field| {
        found = match field {
            (1, Field::Number(_)) => Value::Null,
            (2, Field::Number(bits)) => Number::from_f64(f64::from_bits(bits)).map_or(Value::Null, Value::Number),
            (3, Field::Bytes(text)) => Value::String(text_of(text)?),
            (4, Field::Number(truth)) => Value::Bool(truth != 0),
            (5, Field::Bytes(fields)) => Value::Object(object(fields, depth)?),
            (6, Field::Bytes(items)) => Value::Array(list(items, depth)?),
            _ => return Some(()),
        };
        Some(())
    })?;
    Some(found)
}

/// `ListValue`: field 1, once per item.
fn list(bytes: &[u8], depth: u8) -> Option<Vec<Value>> {
    let mut items = Vec::new();
    let depth = depth.checked_sub(1)?;
    each_field(bytes, &mut |field| {
        if let (1, Field::Bytes(item)) = field {
            items.push(value(item, depth)?);
        }
        Some(())
    })?;
    Some(items)
}

fn text_of(bytes: &[u8]) -> Option<String> {
    core::str::from_utf8(bytes).ok().map(ToOwned::to_owned)
}

enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// Passes each field, with its number, to `read`; `None` if the bytes are not fields, or if `read` returns `None`.
fn each_field<'a>(bytes: &'a [u8], read: &mut dyn FnMut((u64, Field<'a>)) -> Option<()>) -> Option<()> {
    let mut rest = Rest(bytes);
    while !rest.0.is_empty() {
        let tag = rest.varint()?;
        let field = match tag & 7 {
            VARINT => Field::Number(rest.varint()?),
            FIXED64 => Field::Number(u64::from_le_bytes(rest.take(8)?.try_into().ok()?)),
            FIXED32 => Field::Number(u32::from_le_bytes(rest.take(4)?.try_into().ok()?).into()),
            BYTES => {
                let len = rest.varint()?;
                Field::Bytes(rest.take(usize::try_from(len).ok()?)?)
            }
            _ => return None,
        };
        read((tag >> 3, field))?;
    }
    Some(())
}

/// Remaining bytes of a message.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    /// A varint: groups of seven bits, the lowest first.
    fn varint(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let byte = *self.take(1)?.first()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }
}

/// Value of a whole JSON number in any notation: `100`, `100.0`, `1e2`, or the text `"100"` of a template.
pub(super) fn whole_number(value: &Value) -> Option<u64> {
    if let Some(digits) = value.as_str() {
        return digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok())?;
    }
    if let Some(n) = value.as_u64() {
        return Some(n);
    }
    let n = value.as_f64()?;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "compared right after")]
    let whole = n as u64;
    #[allow(clippy::float_cmp, clippy::cast_precision_loss, reason = "whole exactly when the cast changed nothing")]
    let is_whole = whole as f64 == n && whole < 1 << 53;
    is_whole.then_some(whole)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use prost::Message;
    use prost_types::value::Kind;
    use prost_types::{ListValue, Struct, Value as ProtoValue};
    use serde_json::json;

    fn proto(value: &Value) -> ProtoValue {
        let kind = match value {
            Value::Null => Kind::NullValue(0),
            Value::Bool(truth) => Kind::BoolValue(*truth),
            Value::Number(number) => Kind::NumberValue(number.as_f64().unwrap()),
            Value::String(text) => Kind::StringValue(text.clone()),
            Value::Array(items) => Kind::ListValue(ListValue { values: items.iter().map(proto).collect() }),
            Value::Object(_) => Kind::StructValue(proto_struct(value)),
        };
        ProtoValue { kind: Some(kind) }
    }

    fn proto_struct(value: &Value) -> Struct {
        let fields = value.as_object().unwrap().iter().map(|(name, field)| (name.clone(), proto(field)));
        Struct { fields: fields.collect() }
    }

    #[test]
    fn a_struct_nested_too_deeply_is_refused() {
        let nested = |depth: u8| (0..depth).fold(json!({}), |inner, _| json!({"a": [inner]}));
        let read = |depth| decode(&proto_struct(&nested(depth)).encode_to_vec());
        assert_eq!(read(20), Some(nested(20)));
        assert_eq!(read(40), None);
    }

    /// Any JSON value, including kinds that configurations do not have.
    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::Bool),
            any::<f64>().prop_map(|number| json!(number)),
            any::<String>().prop_map(Value::String),
        ];
        leaf.prop_recursive(4, 40, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::Array),
                prop::collection::btree_map(any::<String>(), inner, 0..6)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn every_struct_is_read_as_it_was_written(written in any_value()) {
            let written = json!({"it": written});
            prop_assert_eq!(decode(&proto_struct(&written).encode_to_vec()), Some(written));
        }

        /// Decoding ends, whichever bytes were changed.
        #[test]
        fn changed_bytes_end_in_a_value_or_in_none(
            written in any_value(),
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        ) {
            let mut bytes = proto_struct(&json!({"it": written})).encode_to_vec();
            for (at, byte) in changes {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            prop_assert!(decode(&bytes).is_none_or(|value| value.is_object()));
        }
    }
}
