use crate::document::{Document, Form};

/// Rules with sentences about them; it explains its form.
const CASES: &str = include_str!("cases.txt");

#[test]
fn every_part_of_a_rule_has_its_words() {
    let mut lines = CASES.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).peekable();
    while let Some(line) = lines.next() {
        let document = Document::read(format!("rules: [{line}]").as_bytes(), Form::Yaml);
        let document = document.unwrap_or_else(|errors| panic!("{line}: {errors:?}"));
        let rules = document.rules();
        let found: Vec<_> = rules.rules().iter().flat_map(|rule| super::sentences(rule, rules)).collect();
        for expected in std::iter::from_fn(|| lines.next_if(|line| line.starts_with(' '))).map(str::trim) {
            let is_there = match expected.strip_prefix("! ") {
                Some(begin) => !found.iter().any(|sentence| sentence.starts_with(begin)),
                None => found.iter().any(|sentence| sentence == expected),
            };
            assert!(is_there, "{line}: {expected}: {found:#?}");
        }
    }
}
