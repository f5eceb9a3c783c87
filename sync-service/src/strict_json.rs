//! JSON reader that refuses duplicate fields: it would be unclear which of the two counts.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// Parses `bytes`. An error states the position, and the name of a duplicate field.
pub fn read(bytes: &[u8]) -> Result<Value, serde_json::Error> {
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let value = Once.deserialize(&mut json)?;
    json.end()?;
    Ok(value)
}

/// Deserializes a value and refuses duplicate fields.
struct Once;

impl<'de> DeserializeSeed<'de> for Once {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Value, D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Once {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = items.next_element_seed(Once)? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut values = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            if values.contains_key(&name) {
                return Err(A::Error::custom(format!("the field `{name}` is given twice")));
            }
            let value = fields.next_value_seed(Once)?;
            values.insert(name, value);
        }
        Ok(Value::Object(values))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_what_is_given_twice_and_where() {
        let said = |text: &str| read(text.as_bytes()).unwrap_err().to_string();
        assert_eq!(said("{\"a\": 1,\n \"a\": 1}"), "the field `a` is given twice at line 2 column 4");
        assert!(said(r#"{"b": [{"\u0061": 1, "a": null}]}"#).contains("`a` is given twice"));
        assert!(said("{} {}").contains("trailing"));
        assert!(said(&"[".repeat(10_000)).contains("recursion"));
    }

    proptest! {
        #[test]
        fn reads_all_else_as_it_is(text in r#"[\[\]{},:"a-c0-9.eu\\ -]{0,24}|true|null|-?[0-9]{1,20}(\.[0-9]{1,9})?"#) {
            let (strict, lax) = (read(text.as_bytes()), serde_json::from_slice::<Value>(text.as_bytes()));
            if strict.as_ref().is_err_and(|error| error.to_string().contains("twice")) {
                return Ok(());
            }
            prop_assert_eq!(strict.ok(), lax.ok());
        }
    }
}
