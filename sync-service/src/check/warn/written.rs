//! What no request has, in a condition as it is written.

use weir_rules::matching::{Clause, Condition, Test};
use weir_rules::request::Attributes;

use super::contradiction;
use super::warning::Warning;

/// What no request has, in a condition and in those within it; `at` names one of its fields, with a dot before.
pub(super) fn of_condition(
    condition: &Condition,
    attributes: &Attributes,
    at: &dyn Fn(&str) -> String,
) -> Vec<Warning> {
    let mut warnings = of_clause(&condition.all, at);
    for (i, clause) in condition.any.iter().enumerate() {
        let place = |field: &str| at(&format!(".any[{i}]{field}"));
        warnings.extend(of_clause(clause, &place));
        let never = |reason| Warning::at(place(""), format!("never holds: {reason}"));
        warnings.extend(contradiction::of_clause(clause, attributes).map(never));
    }
    if let Some(not) = &condition.not {
        warnings.extend(of_clause(not, &|field| at(&format!(".not{field}"))));
        let never = |reason| Warning::at(at(".not"), format!("excludes nothing: {reason}"));
        warnings.extend(contradiction::of_clause(not, attributes).map(never));
    }
    let never = |reason| Warning::at(at(""), format!("never matches: {reason}"));
    warnings.extend(contradiction::of(condition, None, attributes).map(never));
    warnings
}

fn of_clause(clause: &Clause, at: &dyn Fn(&str) -> String) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let mut warn = |field: &str, found: &str, reason: &str| {
        warnings.push(Warning::at(at(field), format!("{found:?} never matches: {reason}")));
    };
    for test in clause.tests() {
        match test {
            Test::Methods(methods) => {
                let is_sent = |byte: u8| byte.is_ascii_uppercase() || matches!(byte, b'-' | b'_');
                for method in methods.iter().filter(|method| !method.bytes().all(is_sent)) {
                    let reason = "methods are compared to the letter, and clients send them in capitals";
                    warn(".methods", method, reason);
                }
            }
            Test::Paths(paths) => {
                for (i, path) in paths.iter().map(|path| path.written().text()).enumerate() {
                    let place = if paths.len() == 1 { ".path".to_owned() } else { format!(".paths[{i}]") };
                    if path.contains('?') {
                        warn(&place, path, "the query is no part of the path");
                    } else if path.contains('#') {
                        warn(&place, path, "clients do not send what follows a #");
                    } else if !path.bytes().all(|byte| byte.is_ascii_graphic()) {
                        warn(&place, path, "clients send such characters percent-encoded");
                    }
                }
            }
            _ => {}
        }
    }
    warnings
}
