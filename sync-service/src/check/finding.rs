//! Errors and warnings of a file, with their positions.

use serde::Serialize;
use weir_rules::reading::ConfigError;

use super::place::{FilePart, Places};
use super::warn::Warning;
use crate::document::DocumentError;

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Severity {
    /// The file is refused.
    Error,
    /// The file is accepted, but has something that cannot be intended.
    Warning,
}

/// One error or warning.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    /// Its severity.
    pub(super) severity: Severity,
    /// Line of its place, from 1; none if it has no place.
    pub(super) line: Option<u64>,
    /// Column, in characters from 1.
    pub(super) column: Option<u64>,
    /// The field: `rules[0].rate`; empty if it is about the whole file.
    pub(super) place: String,
    /// Name of the rule that contains it; none outside of rules, or if the rule has no name.
    pub(super) rule: Option<String>,
    /// Description of the problem: expected and found values, or an unintended effect.
    pub(super) problem: String,
}

impl Finding {
    /// Error about a file that could not be read, or only in part.
    pub(super) fn of_file(problem: String) -> Self {
        Self {
            severity: Severity::Error,
            line: None,
            column: None,
            place: String::new(),
            rule: None,
            problem,
        }
    }

    /// Errors of a part of a file with this content.
    pub(super) fn errors(fault: DocumentError, bytes: &[u8], part: FilePart<'_>) -> Vec<Self> {
        match fault {
            DocumentError::Text(misread) => {
                let (line, column) = misread.at.unzip();
                vec![Self { line, column, ..Self::of_file(misread.problem) }]
            }
            DocumentError::Fields(errors) => {
                let places = Places::within(bytes, part);
                errors.into_iter().map(|error| Self::error(error, &places)).collect()
            }
        }
    }

    fn error(error: ConfigError, places: &Places<'_>) -> Self {
        let ConfigError { place, problem } = error;
        let (line, column) = places.position(&place).unzip();
        let rule = places.rule(&place).map(str::to_owned);
        Self { line, column, place, rule, ..Self::of_file(problem) }
    }

    /// Warnings about a part of a file with this content.
    pub(super) fn warnings(warnings: Vec<Warning>, bytes: &[u8], part: FilePart<'_>) -> Vec<Self> {
        if warnings.is_empty() {
            return Vec::new();
        }
        let places = Places::within(bytes, part);
        let finding = |Warning { place, rule, problem }| {
            let (line, column) = places.position(&place).unzip();
            Self { severity: Severity::Warning, line, column, place, rule, problem }
        };
        warnings.into_iter().map(finding).collect()
    }

    /// Formats the finding as a line about `file`, in the form that editors parse.
    pub(super) fn told(&self, file: &str) -> String {
        let Self { severity, line, column, place, rule, problem } = self;
        let at = [line, column].into_iter().flatten().map(|number| format!(":{number}"));
        let at = at.collect::<String>();
        let warning = if *severity == Severity::Warning { "warning: " } else { "" };
        let rule = rule.as_ref().map_or_else(String::new, |rule| format!(" ({rule})"));
        let place = if place.is_empty() { String::new() } else { format!("{place}{rule}: ") };
        format!("{file}{at}: {warning}{place}{problem}")
    }
}
