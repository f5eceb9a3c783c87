//! A file, judged.

use serde_json::{Value, json};

use super::finding::Finding;
use super::page::Judge;
use super::warn;
use crate::document::{Document, Form};
use crate::input::{self, FILE_BYTES_MAX};

/// A file, and what became of it.
pub(super) struct Judged<'a> {
    file: &'a str,
    outcome: Outcome,
}

enum Outcome {
    /// It cannot be read.
    Unread(Finding),
    /// It has these errors.
    Bad(Vec<Finding>),
    /// It is good, but for these warnings.
    Good(Box<Document>, Vec<Finding>),
}

impl<'a> Judged<'a> {
    /// The file at this path; `-` is the standard input.
    pub(super) fn of(file: &'a str) -> Self {
        let bytes = match input::read(file, FILE_BYTES_MAX) {
            Ok(bytes) => bytes,
            Err(error) => {
                let problem = format!("cannot be read: {error}");
                return Self { file, outcome: Outcome::Unread(Finding::of_file(problem)) };
            }
        };
        let outcome = match Document::read_either(&bytes, Form::Either) {
            Ok(document) => {
                let warnings = Finding::warnings(warn::warnings(document.rules()), &bytes);
                Outcome::Good(Box::new(document), warnings)
            }
            Err(fault) => Outcome::Bad(Finding::errors(fault, &bytes)),
        };
        Self { file, outcome }
    }

    /// The document, if it is good; else a line for each thing that is wrong.
    pub(super) fn document(self) -> Result<Document, String> {
        let errors = self.errors();
        match self.outcome {
            Outcome::Good(document, _) => Ok(*document),
            _ => Err(errors),
        }
    }

    /// Whether it could be read at all.
    pub(super) fn is_read(&self) -> bool {
        !matches!(self.outcome, Outcome::Unread(_))
    }

    pub(super) fn is_good(&self) -> bool {
        matches!(self.outcome, Outcome::Good(..))
    }

    /// What is wrong with it, or should be changed.
    pub(super) fn findings(&self) -> &[Finding] {
        match &self.outcome {
            Outcome::Unread(error) => std::slice::from_ref(error),
            Outcome::Bad(findings) | Outcome::Good(_, findings) => findings,
        }
    }

    /// A good file, explained, and its warnings; none of one with errors.
    pub(super) fn page(&self, judge: &Judge) -> Option<String> {
        let Outcome::Good(document, warnings) = &self.outcome else { return None };
        let page = judge.page(self.file, document);
        let gap = if warnings.is_empty() { "" } else { "\n" };
        let warnings: String = warnings.iter().map(|warning| warning.told(self.file) + "\n").collect();
        Some(page + gap + &warnings)
    }

    /// A line for each thing that is wrong.
    pub(super) fn errors(&self) -> String {
        let findings = if self.is_good() { &[] } else { self.findings() };
        findings.iter().map(|finding| finding.told(self.file)).collect::<Vec<_>>().join("\n")
    }

    /// For programs.
    pub(super) fn json(&self) -> Value {
        json!({"file": self.file, "is_good": self.is_good(), "findings": self.findings()})
    }
}
