//! docs/rules.schema.json matches the parser: the same fields, the same limits.

mod fields;
mod limits;
mod wrong;

use std::path::{Path, PathBuf};
use std::{fs, io};

use jsonschema::Validator;
use serde_json::{Value, json};
use weir_cli::document::{Document, Form};
use weir_tests::examples::blocks;

/// Every field of the rule language at least once.
const FULL: &str = include_str!("full.yaml");
/// Fewer good rule sets than this in all pages, and they are not found any more.
const GOOD_MIN: usize = 20;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn schema() -> Value {
    let path = root().join("docs/rules.schema.json");
    let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn validator() -> Validator {
    jsonschema::draft202012::new(&schema()).unwrap_or_else(|e| panic!("the schema does not compile: {e}"))
}

/// The schema's errors for a document.
fn schema_errors(validator: &Validator, document: &Value) -> Vec<String> {
    validator.iter_errors(document).map(|error| format!("{}: {error}", error.instance_path())).collect()
}

/// The parser's errors for it.
fn parser_errors(document: &Value) -> Vec<String> {
    let read = Document::read(document.to_string().as_bytes(), Form::Json);
    read.err().unwrap_or_default().iter().map(ToString::to_string).collect()
}

fn full() -> Value {
    serde_saphyr::from_str(FULL).unwrap_or_else(|e| panic!("full.yaml: {e}"))
}

#[test]
fn the_schema_is_valid_json_schema_2020_12() {
    let schema = schema();
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    if let Err(error) = jsonschema::draft202012::meta::validate(&schema) {
        panic!("{}: {error}", error.instance_path());
    }
}

#[test]
fn both_accept_every_good_document() {
    let mut documents = vec![("full.yaml".to_owned(), full())];
    for folder in ["docs", "envoy"] {
        collect(&root().join(folder), &mut documents).unwrap_or_else(|e| panic!("{folder}: {e}"));
    }
    read_file(&root().join("README.md"), &mut documents).unwrap_or_else(|e| panic!("README.md: {e}"));
    let (validator, mut good) = (validator(), 0);
    for (name, document) in documents {
        let parser = parser_errors(&document);
        // A page may show what is wrong, too.
        if parser.is_empty() || Path::new(&name).extension().is_none_or(|extension| extension != "md") {
            assert_eq!(parser, [""; 0], "{name}: {document}");
            assert_eq!(schema_errors(&validator, &document), [""; 0], "{name}: {document}");
            good += 1;
        }
    }
    assert!(good >= GOOD_MIN, "found {good} rule sets only");
}

/// The rule sets in the pages and the configurations below `folder`.
fn collect(folder: &Path, documents: &mut Vec<(String, Value)>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, documents)?;
        } else {
            read_file(&path, documents)?;
        }
    }
    Ok(())
}

fn read_file(path: &Path, documents: &mut Vec<(String, Value)>) -> io::Result<()> {
    let ends_in = |ending: &str| path.extension().is_some_and(|extension| extension == ending);
    let name = path.display().to_string();
    if ends_in("yaml") {
        let text = fs::read_to_string(path)?;
        if let Ok(value) = serde_saphyr::from_str::<Value>(&text) {
            rule_sets_within(&value, &name, documents);
        }
    } else if ends_in("md") {
        let page = fs::read_to_string(path)?;
        for (_, _, text) in blocks(&page).into_iter().filter(|(_, language, _)| *language == "yaml") {
            if let Ok(value) = serde_saphyr::from_str::<Value>(&text) {
                // A list is one of rules.
                let value = if value.is_array() { json!({"rules": value}) } else { value };
                rule_sets_within(&value, &name, documents);
            }
        }
    }
    Ok(())
}

/// Adds every object within `value` that has `rules`, of which the first has a key; of plugin configurations, what
/// is a rule set.
fn rule_sets_within(value: &Value, name: &str, documents: &mut Vec<(String, Value)>) {
    match value {
        Value::Object(object) if value["rules"][0].get("key").is_some() => {
            let of_rule_set =
                object.iter().filter(|(field, _)| !["table", "sync", "filter_state"].contains(&field.as_str()));
            let rule_set = of_rule_set.map(|(field, value)| (field.clone(), value.clone()));
            documents.push((name.to_owned(), Value::Object(rule_set.collect())));
        }
        Value::Object(object) => object.values().for_each(|value| rule_sets_within(value, name, documents)),
        Value::Array(items) => items.iter().for_each(|value| rule_sets_within(value, name, documents)),
        _ => {}
    }
}
