//! Replaces short forms in a document with their full forms.

use serde_json::Value;
use weir_rules::reading::ShortForm;

/// Replaces each short form with its full form. `forms` are in reading order: outer ones first.
pub(super) fn write_out(document: &mut Value, forms: &[ShortForm]) {
    for ShortForm { written, place, full } in forms {
        if written != place {
            remove(document, written);
        }
        let (parent, field) = split(place);
        let Some(parent) = steps(parent).try_fold(&mut *document, |at, step| within(at, step)) else {
            continue;
        };
        match within(parent, field) {
            // A form that belongs to the only item of a list written without brackets.
            Some(Value::Array(items)) if !full.is_array() && !items.is_empty() => items[0] = full.clone(),
            Some(value) => *value = full.clone(),
            None => {
                if let Some(fields) = object(parent) {
                    fields.insert(field.to_owned(), full.clone());
                }
            }
        }
    }
}

fn remove(document: &mut Value, place: &str) {
    let (parent, field) = split(place);
    let parent = steps(parent).try_fold(document, |at, step| within(at, step));
    if let Some(fields) = parent.and_then(object) {
        fields.remove(field);
    }
}

/// Value that `step`, a field or the index of an item, leads to.
fn within<'a>(value: &'a mut Value, step: &str) -> Option<&'a mut Value> {
    match step.parse::<usize>() {
        Ok(place) if value.is_array() => value.get_mut(place),
        _ => object(value)?.get_mut(step),
    }
}

/// The value as an object; for a list, its only item.
fn object(value: &mut Value) -> Option<&mut serde_json::Map<String, Value>> {
    match value {
        Value::Array(items) => items.first_mut()?.as_object_mut(),
        value => value.as_object_mut(),
    }
}

/// Splits a place into its parent and its last step.
fn split(place: &str) -> (&str, &str) {
    let at = place.rfind(['.', '[']).unwrap_or(0);
    let (parent, last) = place.split_at(at);
    (parent, last.trim_start_matches(['.', '[']).trim_end_matches(']'))
}

/// Steps of a place such as `rules[0].rate`.
pub(crate) fn steps(place: &str) -> impl Iterator<Item = &str> {
    place.split(['.', '[']).map(|step| step.trim_end_matches(']')).filter(|step| !step.is_empty())
}
