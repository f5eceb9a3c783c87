//! Every example of docs/rules.md, and every rule set in `envoy/` that is there to be copied, decides as is written
//! beside it.

use std::collections::BTreeSet;
use std::path::Path;
use std::{env, fs};

use serde_json::{Value, json};
use weir_rules::document;
use weir_tests::examples::edge::play;
use weir_tests::examples::{Example, Then, of};

/// The page has more examples than this, or they are not found in it any more.
const EXAMPLES_MIN: usize = 30;

/// The rule sets to copy that decide alike at one POP; the others are tried in tests/e2e.
const TO_COPY: [&str; 3] = ["github-like", "stripe-like", "url-shortener"];

fn read(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(file);
    fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn examples() -> Vec<Example> {
    of(&read("docs/rules.md")).unwrap_or_else(|e| panic!("docs/rules.md: {e}"))
}

/// Adds the fields of every object in `schema` to `fields`.
fn add_fields(schema: &Value, fields: &mut BTreeSet<String>) {
    match schema {
        Value::Object(object) => {
            if schema["additionalProperties"] == false {
                fields.extend(schema["properties"].as_object().into_iter().flat_map(|fields| fields.keys().cloned()));
            }
            object.values().for_each(|value| add_fields(value, fields));
        }
        Value::Array(items) => items.iter().for_each(|item| add_fields(item, fields)),
        _ => {}
    }
}

/// The rule set document of an example, or what is wrong with it.
fn document_of(yaml: &str) -> Result<Value, String> {
    let value: Value = serde_saphyr::from_str(yaml).map_err(|e| format!("no YAML: {e}"))?;
    let document = if value.is_array() { json!({"rules": value}) } else { value };
    let errors = |errors: Vec<_>| errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
    document::parse(document.to_string().as_bytes()).map_err(errors).map(|_| document)
}

fn problem(example: &Example) -> Option<String> {
    match (document_of(&example.yaml), &example.then) {
        (Ok(document), Then::Requests(requests)) => play(&document, requests).err(),
        (Err(found), Then::Errors(expected)) => (found != expected.trim_end()).then_some(found),
        (Err(found), Then::Requests(_)) => Some(found),
        (Ok(_), Then::Errors(_)) => Some("it is accepted".to_owned()),
    }
}

#[test]
fn every_example_has_the_result_on_the_page() {
    let examples = examples();
    assert!(examples.len() > EXAMPLES_MIN, "expected more examples, found {}", examples.len());
    let wrong = |example: &Example| problem(example).map(|p| format!("docs/rules.md:{}: {p}", example.line));
    let problems: Vec<_> = examples.iter().filter_map(wrong).collect();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn example_rule_sets_decide_as_documented() {
    for folder in TO_COPY {
        let of = |file: &str| read(&format!("envoy/{folder}/{file}"));
        let played = document_of(&of("rules.yaml")).and_then(|document| play(&document, &of("requests.txt")));
        assert_eq!(played, Ok(()), "envoy/{folder}");
    }
}

#[test]
fn the_page_has_every_field_of_the_schema() {
    let mut fields = BTreeSet::new();
    add_fields(&serde_json::from_str(&read("docs/rules.schema.json")).expect("JSON"), &mut fields);
    assert!(fields.contains("retry_after_jitter_s"), "{fields:?}");
    let page = read("docs/rules.md");
    let words: BTreeSet<_> = page.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
    let missing: Vec<_> = fields.iter().filter(|field| !words.contains(field.as_str())).collect();
    assert!(missing.is_empty(), "docs/rules.md lacks {missing:?}");
}
