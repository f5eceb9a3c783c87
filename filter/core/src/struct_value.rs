//! A `google.protobuf.Struct` as a JSON value.
//!
//! Envoy hands a plugin the configuration's bytes as they are: a `StringValue`'s text, but a
//! `Struct` in protobuf's wire format (`envoy 1.40`, whatever its documentation says of JSON).

use prost::Message;
use prost_types::value::Kind;
use prost_types::{ListValue, Struct, Value as ProtoValue};
use serde_json::{Map, Number, Value};

/// The Struct in `bytes`; `None` if they are none.
pub(crate) fn decode(bytes: &[u8]) -> Option<Value> {
    Struct::decode(bytes).ok().map(object)
}

fn object(fields: Struct) -> Value {
    Value::Object(fields.fields.into_iter().map(|(name, field)| (name, value(field))).collect::<Map<_, _>>())
}

// The depth is bounded: prost refuses messages nested deeper than 100.
fn value(proto: ProtoValue) -> Value {
    match proto.kind {
        None | Some(Kind::NullValue(_)) => Value::Null,
        Some(Kind::NumberValue(number)) => Number::from_f64(number).map_or(Value::Null, Value::Number),
        Some(Kind::StringValue(text)) => Value::String(text),
        Some(Kind::BoolValue(truth)) => Value::Bool(truth),
        Some(Kind::StructValue(fields)) => object(fields),
        Some(Kind::ListValue(ListValue { values })) => Value::Array(values.into_iter().map(value).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::vec;

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
    fn a_struct_becomes_the_json_it_was_written_as() {
        let written = json!({"rules": [{"name": "a", "on": true, "none": null, "burst": 2.0}], "x": {}});
        assert_eq!(decode(&proto_struct(&written).encode_to_vec()), Some(written));
    }

    #[test]
    fn what_is_no_struct_is_refused() {
        for bytes in [vec![0xff; 9], b"\n\x80".to_vec(), vec![10, 200, 1, 1]] {
            assert_eq!(decode(&bytes), None, "{bytes:?}");
        }
    }
}
