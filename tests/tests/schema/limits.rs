//! Every place of the full document, with values at and beyond limits: what the schema refuses the parser refuses,
//! and the schema refuses every value that the parser refuses by itself.

use serde_json::{Value, json};

use crate::wrong::places_within;
use crate::{full, parser_errors, schema_errors, validator};

/// The last numbers within limits or before them; the next one is tried, too.
const NUMBERS: [i64; 17] = [-1, 1, 3, 8, 16, 20, 32, 99, 100, 128, 399, 599, 1_000, 3_600, 86_400, 1_000_000, 1 << 30];
/// The same of lengths of texts.
const LENGTHS: [usize; 9] = [0, 32, 64, 128, 253, 255, 256, 1_024, 8_192];
/// The same of lengths of lists.
const COUNTS: [usize; 7] = [0, 4, 8, 20, 50, 100, 10_000];
/// The parser's error for a value that is wrong by itself.
const WRONG_BY_ITSELF: [&str; 6] =
    ["whole number from", "text of 1 to", "a list of 1 to", "unknown field", "missing: ", "empty: "];
/// The limit of this one is the rule's burst, which the schema does not know.
const RELATIVE: &str = "local_burst";

fn probes(place: &str, value: &Value) -> Vec<Value> {
    match value {
        Value::Number(_) => NUMBERS.iter().flat_map(|n| [*n, n + 1]).map(Value::from).collect(),
        Value::String(text) => {
            // It begins as before, so that it keeps its form.
            let first = &text[..text.chars().next().map_or(0, char::len_utf8)];
            let of_length = |n: usize| if n == 0 { String::new() } else { format!("{first}{}", "x".repeat(n - 1)) };
            LENGTHS.iter().flat_map(|n| [*n, n + 1]).map(|n| of_length(n).into()).collect()
        }
        // Many rules take long, and their limit has a test of its own.
        Value::Array(items) if place != "/rules" => {
            let is_long = ["/in", "/addresses", "/keys"].iter().any(|list| place.ends_with(list));
            let counts = COUNTS.iter().filter(|n| is_long || **n < 10_000).flat_map(|n| [*n, n + 1]);
            counts.map(|n| items.iter().cycle().take(n).cloned().collect::<Vec<_>>().into()).collect()
        }
        Value::Object(object) => {
            let without = |name: &String| {
                let mut object = object.clone();
                object.remove(name);
                object.into()
            };
            object.keys().map(without).collect()
        }
        _ => vec![json!(null)],
    }
}

#[test]
fn the_limits_equal_the_parsers() {
    let (validator, full) = (validator(), full());
    for place in places_within(&full) {
        let Some(value) = full.pointer(&place) else { continue };
        for probe in probes(&place, value) {
            let mut document = full.clone();
            let Some(value) = document.pointer_mut(&place) else { continue };
            let shown: String = probe.to_string().chars().take(80).collect();
            *value = probe;
            let (parser, schema) = (parser_errors(&document), schema_errors(&validator, &document));
            assert!(schema.is_empty() || !parser.is_empty(), "{place}: {shown}: the schema alone refuses: {schema:?}");
            let is_by_itself = |error: &&String| {
                WRONG_BY_ITSELF.iter().any(|wrong| error.contains(wrong)) && !error.contains(RELATIVE)
            };
            let refused = parser.iter().find(is_by_itself);
            assert!(refused.is_none() || !schema.is_empty(), "{place}: {shown}: the parser alone refuses: {refused:?}");
        }
    }
}
