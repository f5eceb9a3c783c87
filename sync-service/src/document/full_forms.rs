//! Full forms in place of the short ones that a document was written with.

use serde_json::Value;
use weir_rules::reading::ShortForm;

/// Puts each full form where its short one is. `forms` are in the order in which they were read: outer ones first.
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
            // What is about the only item of a list that was written without brackets.
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

/// What `step`, a field or the place of an item, leads to.
fn within<'a>(value: &'a mut Value, step: &str) -> Option<&'a mut Value> {
    match step.parse::<usize>() {
        Ok(place) if value.is_array() => value.get_mut(place),
        _ => object(value)?.get_mut(step),
    }
}

/// It as an object; if it is a list, its only item.
fn object(value: &mut Value) -> Option<&mut serde_json::Map<String, Value>> {
    match value {
        Value::Array(items) => items.first_mut()?.as_object_mut(),
        value => value.as_object_mut(),
    }
}

/// The place of what has this one, and its last step.
fn split(place: &str) -> (&str, &str) {
    let at = place.rfind(['.', '[']).unwrap_or(0);
    let (parent, last) = place.split_at(at);
    (parent, last.trim_start_matches(['.', '[']).trim_end_matches(']'))
}

/// `rules[0].rate`, step by step.
pub(crate) fn steps(place: &str) -> impl Iterator<Item = &str> {
    place.split(['.', '[']).map(|step| step.trim_end_matches(']')).filter(|step| !step.is_empty())
}
