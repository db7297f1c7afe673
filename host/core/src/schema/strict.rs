//! JSON that two readers cannot read differently: a repeated member name is refused, because the one who judges might
//! see one value and the one who acts another. Depth is bounded, so that no reader's stack is.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use crate::limits;

/// Why a text is not JSON that can be judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonFault {
    message: String,
    syntax: bool,
}

impl JsonFault {
    /// True if the text is not JSON at all; false if it is, but has a repeated name or is too deep.
    pub fn is_syntax(&self) -> bool {
        self.syntax
    }
}

impl fmt::Display for JsonFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for JsonFault {}

/// Reads JSON without repeated member names, at most [`limits::JSON_DEPTH_MAX`] deep.
///
/// # Errors
/// Where it is not JSON, or what cannot be judged.
pub fn parse_strict(text: &str) -> Result<Value, JsonFault> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let value =
        Strict { left: limits::JSON_DEPTH_MAX }.deserialize(&mut reader).and_then(|value| reader.end().map(|()| value));
    value.map_err(|fault| {
        let is_json = serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok();
        JsonFault { message: fault.to_string(), syntax: !is_json }
    })
}

/// How deep a value is nested: 0 for a scalar.
pub(crate) fn depth(value: &Value) -> usize {
    let mut deepest = 0;
    let mut open: Vec<(usize, &Value)> = vec![(0, value)];
    while let Some((depth, value)) = open.pop() {
        deepest = deepest.max(depth);
        match value {
            Value::Array(items) => {
                deepest = deepest.max(depth + 1);
                open.extend(items.iter().map(|item| (depth + 1, item)));
            }
            Value::Object(members) => {
                deepest = deepest.max(depth + 1);
                open.extend(members.values().map(|member| (depth + 1, member)));
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    deepest
}

struct Strict {
    left: usize,
}

impl Strict {
    fn deeper<E: serde::de::Error>(&self) -> Result<Self, E> {
        match self.left.checked_sub(1) {
            Some(left) => Ok(Self { left }),
            None => Err(E::custom(format_args!("it is nested deeper than {} levels", limits::JSON_DEPTH_MAX))),
        }
    }
}

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, flag: bool) -> Result<Value, E> {
        Ok(Value::Bool(flag))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        Ok(Value::Number(number.into()))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        Ok(Value::Number(number.into()))
    }

    fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<Value, E> {
        Number::from_f64(number).map(Value::Number).ok_or_else(|| E::custom("a number is out of range"))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::String(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> Result<Value, E> {
        Ok(Value::String(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(self.deeper()?)? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(name) = members.next_key::<String>()? {
            if map.contains_key(&name) {
                return Err(A::Error::custom(format_args!("member {name:?} is there twice")));
            }
            let value = members.next_value_seed(self.deeper()?)?;
            map.insert(name, value);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn json_reads_as_it_is() {
        let text = r#"{"b": [1, -2, 1.5, true, null, "é\n"], "a": {}, "big": 18446744073709551615}"#;
        assert_eq!(parse_strict(text), Ok(serde_json::from_str::<Value>(text).expect("it is JSON")));
        assert_eq!(parse_strict("7"), Ok(json!(7)));
    }

    #[test]
    fn what_two_readers_may_read_differently_is_not_judged() {
        let fault = parse_strict(r#"{"a": {"dry_run": true, "dry_run": false}}"#).expect_err("it is ambiguous");
        assert!(!fault.is_syntax());
        assert!(fault.to_string().starts_with(r#"member "dry_run" is there twice"#), "{fault}");
        for broken in ["{", "", "{} {}", "nope"] {
            assert!(parse_strict(broken).expect_err(broken).is_syntax(), "{broken}");
        }
    }

    #[test]
    fn depth_is_bounded_at_the_limit_and_far_past_it() {
        let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        let at = parse_strict(&nested(limits::JSON_DEPTH_MAX)).expect("at the limit");
        assert_eq!(depth(&at), limits::JSON_DEPTH_MAX);
        for levels in [limits::JSON_DEPTH_MAX + 1, 100, 100_000] {
            assert!(parse_strict(&nested(levels)).is_err(), "{levels}");
        }
    }
}
