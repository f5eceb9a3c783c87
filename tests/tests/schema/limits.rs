//! Every place of the full document, with values at and beyond limits: what the schema refuses the parser refuses,
//! and the schema refuses what the parser says no one value there may be.

use serde_json::{Value, json};

use crate::bad::places_within;
use crate::{full, told_by_parser, told_by_schema, validator};

/// Numbers around every limit there is.
const NUMBERS: [i64; 35] = [
    -1,
    0,
    1,
    4,
    16,
    17,
    32,
    33,
    99,
    100,
    101,
    128,
    129,
    399,
    400,
    599,
    600,
    1_000,
    1_001,
    3_600,
    3_601,
    86_400,
    86_401,
    999_999,
    1_000_000,
    1_000_001,
    1_073_741_824,
    1_073_741_825,
    2,
    3,
    5,
    8,
    9,
    20,
    21,
];
/// Lengths around every limit there is, of texts.
const LENGTHS: [usize; 17] =
    [0, 1, 32, 33, 64, 65, 128, 129, 253, 254, 255, 256, 257, 1_024, 1_025, 8_192, 8_193];
/// Lengths of lists.
const COUNTS: [usize; 14] = [0, 1, 4, 5, 8, 9, 20, 21, 50, 51, 100, 101, 10_000, 10_001];
/// What the parser says of a value that is wrong by itself.
const WRONG_BY_ITSELF: [&str; 6] =
    ["whole number from", "text of 1 to", "a list of 1 to", "unknown field", "missing: ", "empty: "];
/// The parser knows the rule's burst, which is this one's limit.
const RELATIVE: [&str; 1] = ["local_burst"];

fn probes(place: &str, value: &Value) -> Vec<Value> {
    match value {
        Value::Number(_) => NUMBERS.iter().map(|n| json!(n)).collect(),
        Value::String(text) => {
            // What it begins with, so that it keeps its form.
            let first = text.chars().next().unwrap_or('x');
            LENGTHS
                .iter()
                .map(|n| {
                    std::iter::once(first).chain(std::iter::repeat('x')).take(*n).collect::<String>().into()
                })
                .collect()
        }
        // Many rules take long, and their limit has a test of its own.
        Value::Array(items) if place != "/rules" => {
            let is_long = ["/in", "/addresses", "/keys"].iter().any(|list| place.ends_with(list));
            COUNTS
                .iter()
                .filter(|n| is_long || **n < 10_000)
                .map(|n| items.iter().cycle().take(*n).cloned().collect::<Vec<_>>().into())
                .collect()
        }
        Value::Object(object) => object
            .keys()
            .map(|name| {
                let mut object = object.clone();
                object.remove(name);
                object.into()
            })
            .collect(),
        _ => vec![json!(null)],
    }
}

#[test]
fn the_limits_are_the_parsers() {
    let (validator, full) = (validator(), full());
    let mut places = Vec::new();
    places_within(&full, "", &mut places);
    for place in places {
        let Some(value) = full.pointer(&place) else { continue };
        for probe in probes(&place, value) {
            let mut document = full.clone();
            let Some(value) = document.pointer_mut(&place) else { continue };
            let shown: String = probe.to_string().chars().take(80).collect();
            *value = probe;
            let (parser, schema) = (told_by_parser(&document), told_by_schema(&validator, &document));
            assert!(
                schema.is_empty() || !parser.is_empty(),
                "{place}: {shown}: the schema alone refuses: {schema:?}"
            );
            let is_by_itself = |error: &&String| {
                WRONG_BY_ITSELF.iter().any(|wrong| error.contains(wrong))
                    && !RELATIVE.iter().any(|of| error.contains(of))
            };
            let refused = parser.iter().find(is_by_itself);
            assert!(
                refused.is_none() || !schema.is_empty(),
                "{place}: {shown}: the parser alone refuses: {refused:?}"
            );
        }
    }
}
