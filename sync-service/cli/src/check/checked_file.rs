//! Result of checking a file.

use serde::Serialize;

use super::embedded::{self, Embedded};
use super::page::ExplainParameters;
use super::place::{FilePart, Finding};
use super::warn;
use crate::document::source::{self, FILE_BYTES_MAX};
use crate::document::{Document, Form, Whole};

/// A file, and its result.
pub(crate) struct CheckedFile<'a> {
    file: &'a str,
    outcome: FileResult,
}

enum FileResult {
    /// It cannot be read.
    Unread(Vec<Finding>),
    /// It has these errors.
    Bad(Vec<Finding>),
    /// It is valid, with these warnings.
    Good(Box<Whole>, Vec<Finding>),
}

/// Result as JSON.
#[derive(Serialize)]
pub(super) struct FileReport<'a> {
    file: &'a str,
    is_good: bool,
    findings: &'a [Finding],
}

impl<'a> CheckedFile<'a> {
    /// Checks the file at this path, which may contain several configurations; `-` is the standard input.
    pub(super) fn all(file: &'a str) -> Vec<Self> {
        let bytes = match Self::read(file) {
            Ok(bytes) => bytes,
            Err(unread) => return vec![unread],
        };
        match embedded::of(&bytes) {
            None => vec![Self::of(file, Self::check(file, &bytes), &bytes, FilePart::default())],
            Some(Err(problem)) => {
                vec![Self { file, outcome: FileResult::Bad(vec![Finding::of_file(problem)]) }]
            }
            Some(Ok(found)) => found.iter().map(|one| Self::of_embedded(file, one, &bytes)).collect(),
        }
    }

    fn of_embedded(file: &'a str, Embedded { document, place, value }: &Embedded, bytes: &[u8]) -> Self {
        let part = FilePart { document: *document, place };
        let whole = Whole::of_plugin(value.as_object().cloned().unwrap_or_default());
        let checked =
            whole.map_err(|fault| Self { file, outcome: FileResult::Bad(Finding::errors(fault, bytes, part)) });
        Self::of(file, checked, bytes, part)
    }

    fn of(file: &'a str, checked: Result<Whole, Self>, bytes: &[u8], part: FilePart<'_>) -> Self {
        checked.map_or_else(
            |bad| bad,
            |whole| {
                let mut warnings = warn::warnings(whole.document.rules());
                warnings.extend(whole.plugin.as_ref().and_then(warn::of_plugin));
                Self { file, outcome: FileResult::Good(Box::new(whole), Finding::warnings(warnings, bytes, part)) }
            },
        )
    }

    /// The first document in a valid file; otherwise an error with a line per problem.
    pub(crate) fn document(file: &'a str) -> Result<Document, String> {
        let first = Self::all(file).into_iter().next();
        match first.map(|first| (first.errors(), first.outcome)) {
            Some((_, FileResult::Good(whole, _))) => Ok(whole.document),
            other => Err(other.map(|(errors, _)| errors).unwrap_or_default()),
        }
    }

    fn read(file: &'a str) -> Result<Vec<u8>, Self> {
        source::read_file(file, FILE_BYTES_MAX).map_err(|error| {
            let problem = format!("cannot be read: {error}");
            Self { file, outcome: FileResult::Unread(vec![Finding::of_file(problem)]) }
        })
    }

    fn check(file: &'a str, bytes: &[u8]) -> Result<Whole, Self> {
        Whole::read(bytes, Form::Either).map_err(|fault| Self {
            file,
            outcome: FileResult::Bad(Finding::errors(fault, bytes, FilePart::default())),
        })
    }

    /// Checks the content of a file; returns a line per problem, or none if it is valid.
    pub(crate) fn errors_in(file: &'a str, bytes: &[u8]) -> Option<String> {
        Self::check(file, bytes).err().map(|bad| bad.errors())
    }

    /// True if it could be read at all.
    pub(super) fn is_read(&self) -> bool {
        !matches!(self.outcome, FileResult::Unread(_))
    }

    pub(super) fn is_good(&self) -> bool {
        matches!(self.outcome, FileResult::Good(..))
    }

    /// Its errors or warnings.
    pub(super) fn findings(&self) -> &[Finding] {
        match &self.outcome {
            FileResult::Unread(findings) | FileResult::Bad(findings) | FileResult::Good(_, findings) => findings,
        }
    }

    /// Explanation and warnings of a valid file; none if it has errors.
    pub(super) fn page(&self, parameters: &ExplainParameters) -> Option<String> {
        let FileResult::Good(whole, warnings) = &self.outcome else { return None };
        let page = parameters.page(self.file, whole);
        let gap = if warnings.is_empty() { "" } else { "\n" };
        let warnings: String = warnings.iter().map(|warning| warning.line(self.file) + "\n").collect();
        Some(page + gap + &warnings)
    }

    /// A line per error.
    pub(super) fn errors(&self) -> String {
        let findings = if self.is_good() { &[] } else { self.findings() };
        findings.iter().map(|finding| finding.line(self.file)).collect::<Vec<_>>().join("\n")
    }

    /// Result as JSON.
    pub(super) fn report(&self) -> FileReport<'_> {
        FileReport { file: self.file, is_good: self.is_good(), findings: self.findings() }
    }
}
