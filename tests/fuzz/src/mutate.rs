//! Mutations of JSON documents: some value of a document is replaced, dropped, repeated or moved.

use arbitrary::Arbitrary;
use serde_json::{Map, Value, json};

/// Documents to begin with: every field of a rule set is in one of them.
const SEEDS: [&str; 2] = [include_str!("../seeds/conditions.json"), include_str!("../seeds/algorithms.json")];
/// Below it, one rule of the seed is left: small documents are mutated more densely, and parsed faster.
const ONE_RULE: u8 = 224;
/// The most values that a mutated document grows to.
const VALUES_MAX: usize = 4_000;

/// A seed, and what is changed in it.
#[derive(Arbitrary, Debug)]
pub struct Mutated {
    seed: u8,
    /// The rule that is left; many values: all.
    rule: u8,
    changes: Vec<Change>,
}

/// One change.
#[derive(Arbitrary, Debug)]
struct Change {
    /// The value, counted depth first.
    at: u16,
    to: To,
}

#[derive(Arbitrary, Debug)]
enum To {
    Null,
    Boolean(bool),
    Small(u8),
    Whole(i64),
    Number(f64),
    Text(String),
    /// A text that means something somewhere.
    Word(u8),
    List(u8),
    Object,
    /// So many of it, in a list.
    Repeated(u8),
    /// A copy of another value.
    Copy(u16),
    /// A field of another object, added or replaced.
    Field(u8, u16),
    /// It, within itself this many times.
    Nested(u8),
}

const WORDS: [&str; 24] = [
    "1/s",
    "1000000/d",
    "5/15m",
    "10/month",
    "1/day",
    "0/s",
    "quota",
    "sliding_log",
    "leaky_bucket",
    "concurrency",
    "client_address",
    "all",
    "*.a.b",
    "/**/a*",
    "^(a+)+$",
    "{{rule}}",
    "{{x}}",
    "{{",
    "10.0.0.0/8",
    "::/0",
    "7d",
    "400d",
    "*",
    "a-name",
];

const FIELDS: [&str; 28] = [
    "rules",
    "name",
    "match",
    "key",
    "missing",
    "algorithm",
    "rate",
    "burst",
    "queue",
    "limit",
    "cost",
    "also_by_prefix",
    "tiers",
    "when",
    "keys",
    "cookies",
    "claims",
    "penalty",
    "strict",
    "local_burst",
    "min_share",
    "response",
    "any",
    "not",
    "allow",
    "sync",
    "after",
    "body",
];

impl Mutated {
    /// The document.
    pub fn document(&self) -> Value {
        let seed = SEEDS[usize::from(self.seed) % SEEDS.len()];
        let mut document: Value = serde_json::from_str(seed).expect("seeds are JSON");
        if let Some(rules) = document["rules"].as_array_mut().filter(|_| self.rule < ONE_RULE) {
            let place = usize::from(self.rule) % rules.len();
            *rules = vec![rules.swap_remove(place)];
        }
        for change in self.changes.iter().take(64) {
            let count = count(&document);
            if count > VALUES_MAX {
                break;
            }
            let other = |at: u16| nth(&document, &mut (usize::from(at) % count)).cloned().unwrap_or(Value::Null);
            let place = usize::from(change.at) % count;
            let value = change.to.made(&other(change.at), other);
            if let Some(known) = nth_mut(&mut document, &mut { place }) {
                *known = value;
            }
        }
        document
    }
}

impl To {
    fn made(&self, known: &Value, other: impl Fn(u16) -> Value) -> Value {
        match self {
            Self::Null => Value::Null,
            Self::Boolean(value) => json!(value),
            Self::Small(value) => json!(value),
            Self::Whole(value) => json!(value),
            Self::Number(value) => json!(value),
            Self::Text(value) => json!(value),
            Self::Word(word) => json!(WORDS[usize::from(*word) % WORDS.len()]),
            Self::List(len) => json!(vec![Value::from(1); usize::from(*len)]),
            Self::Object => Value::Object(Map::new()),
            Self::Repeated(times) => json!(vec![known.clone(); usize::from(*times) % 32]),
            Self::Copy(at) => other(*at),
            Self::Field(field, at) => {
                let mut object = known.as_object().cloned().unwrap_or_default();
                object.insert(FIELDS[usize::from(*field) % FIELDS.len()].to_owned(), other(*at));
                Value::Object(object)
            }
            Self::Nested(times) => (0..*times % 8).fold(known.clone(), |inner, i| {
                if i % 2 == 0 { json!({"any": [inner]}) } else { json!({"not": inner}) }
            }),
        }
    }
}

fn count(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(count).sum(),
        Value::Object(object) => object.values().map(count).sum::<usize>(),
        _ => 0,
    }
}

fn nth<'a>(value: &'a Value, n: &mut usize) -> Option<&'a Value> {
    if *n == 0 {
        return Some(value);
    }
    *n -= 1;
    match value {
        Value::Array(items) => items.iter().find_map(|item| nth(item, n)),
        Value::Object(object) => object.values().find_map(|item| nth(item, n)),
        _ => None,
    }
}

fn nth_mut<'a>(value: &'a mut Value, n: &mut usize) -> Option<&'a mut Value> {
    if *n == 0 {
        return Some(value);
    }
    *n -= 1;
    match value {
        Value::Array(items) => items.iter_mut().find_map(|item| nth_mut(item, n)),
        Value::Object(object) => object.values_mut().find_map(|item| nth_mut(item, n)),
        _ => None,
    }
}
