use crate::document::{Document, Form};

/// Rules with their warnings; it explains its form.
const CASES: &str = include_str!("cases.txt");

/// The document of a line.
fn document(line: &str) -> String {
    let line = line.replace("RULE", "key: [client_address], rate: 5/s");
    if line.starts_with('{') {
        return line;
    }
    let rules: Vec<_> = line.split(" & ").enumerate().map(|(i, rule)| format!("{{name: r{i}, {rule}}}")).collect();
    format!("{{rules: [{}]}}", rules.join(", "))
}

#[test]
fn rules_that_cannot_be_intended_are_warned_of() {
    let mut lines = CASES.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).peekable();
    while let Some(line) = lines.next() {
        let expected: Vec<_> = std::iter::from_fn(|| lines.next_if(|line| line.starts_with(' '))).collect();
        let document =
            Document::read(document(line).as_bytes(), Form::Yaml).unwrap_or_else(|e| panic!("{line}: {e:?}"));
        let found: Vec<_> = super::warnings(document.rules()).iter().map(ToString::to_string).collect();
        let are_alike = found.iter().zip(&expected).all(|(found, expected)| found.starts_with(expected.trim_start()));
        assert!(are_alike && found.len() == expected.len(), "{line}: {found:#?}");
    }
}
