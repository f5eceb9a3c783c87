//! What no request has, in a condition as it is written.

use serde_json::Value;

use super::contradiction;

/// What no request has, in a condition and in those within it; `at` names one of its fields, with a dot before.
pub(super) fn of_condition(condition: &Value, at: &dyn Fn(&str) -> String) -> Vec<String> {
    let mut warnings = of_clause(condition, at);
    for (i, clause) in condition["any"].as_array().into_iter().flatten().enumerate() {
        let place = |field: &str| at(&format!(".any[{i}]{field}"));
        warnings.extend(of_clause(clause, &place));
        let never = |reason| format!("{}: never holds: {reason}", place(""));
        warnings.extend(contradiction::of(clause, None).map(never));
    }
    if let Some(not) = condition.get("not") {
        warnings.extend(of_clause(not, &|field| at(&format!(".not{field}"))));
        let never = |reason| format!("{}: excludes nothing: {reason}", at(".not"));
        warnings.extend(contradiction::of(not, None).map(never));
    }
    let never = |reason| format!("{}: never matches: {reason}", at(""));
    warnings.extend(contradiction::of(condition, None).map(never));
    warnings
}

fn of_clause(clause: &Value, at: &dyn Fn(&str) -> String) -> Vec<String> {
    let mut warnings = Vec::new();
    let mut warn = |field: &str, found: &str, reason: &str| {
        warnings.push(format!("{}: {found:?} never matches: {reason}", at(field)));
    };
    for method in clause["methods"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if !method.bytes().all(|byte| byte.is_ascii_uppercase() || matches!(byte, b'-' | b'_')) {
            warn(".methods", method, "methods are compared to the letter, and clients send them in capitals");
        }
    }
    let paths = clause["paths"].as_array().into_iter().flatten().chain([&clause["path"]]);
    for path in paths.flat_map(|path| ["exact", "prefix", "glob"].map(|kind| path[kind].as_str())).flatten() {
        if path.contains('?') {
            warn(".path", path, "the query is no part of the path");
        } else if path.contains('#') {
            warn(".path", path, "clients do not send what follows a #");
        } else if !path.bytes().all(|byte| byte.is_ascii_graphic()) {
            warn(".path", path, "clients send such characters percent-encoded");
        }
    }
    warnings
}
