//! Texts in conditions that no request can have.

use weir_rules::matching::{Clause, Condition, PathMatch, Test, Written};
use weir_rules::request::Attributes;

use super::contradiction;
use super::warning::Warning;

/// Warns of texts in a condition and in its nested conditions that no request can have. `at` returns the place
/// of a field, which begins with a dot.
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
    let never = |found: &str, reason: &str| format!("{found:?} never matches: {reason}");
    for test in clause.tests() {
        match test {
            Test::Methods(methods) | Test::OverriddenMethods(methods, _) => {
                let is_sent = |byte: u8| byte.is_ascii_uppercase() || matches!(byte, b'-' | b'_');
                for method in methods.iter().filter(|method| !method.bytes().all(is_sent)) {
                    let reason = "methods are compared to the letter, and clients send them in capitals";
                    warnings.push(Warning::at(at(".methods"), never(method, reason)));
                }
            }
            Test::Paths(paths) => {
                for (i, written) in paths.iter().map(PathMatch::written).enumerate() {
                    let path = written.text();
                    let place = if paths.len() == 1 { ".path".to_owned() } else { format!(".paths[{i}]") };
                    let reason = if path.contains('?') {
                        Some("the query is no part of the path")
                    } else if path.contains('#') {
                        Some("clients do not send what follows a #")
                    } else if !path.bytes().all(|byte| byte.is_ascii_graphic()) {
                        Some("clients send such characters percent-encoded")
                    } else {
                        None
                    };
                    let problem = reason.map(|reason| never(path, reason)).or_else(|| of_pattern(written));
                    warnings.extend(problem.map(|problem| Warning::at(at(&place), problem)));
                }
            }
            _ => {}
        }
    }
    warnings
}

/// Warns of a path that looks like a pattern, but is compared literally.
fn of_pattern(written: &Written) -> Option<String> {
    let (Written::Exact(path) | Written::Prefix(path)) = written else { return None };
    let found = path.chars().find(|letter| "(|^$".contains(*letter));
    if let Some(found) = found {
        return Some(format!(
            "{path:?} is compared to the letter, and has a {found}: a path is no regular expression. Use paths or \
             {{glob: ...}}, in which a {found} is only itself"
        ));
    }
    path.contains('*').then(|| format!("{path:?} is compared to the letter: did you mean {{glob: {path}}}?"))
}
