//! What a command says, and how it ends.

use std::process::ExitCode;

use serde_json::Value;

use super::table::shown;

/// What to add to the help of each command.
pub(super) const EXIT_CODES: &str = "It ends with 0 if it is done, 1 if weir-sync refuses it (or, where that is asked, things differ), 2 if the command \
    line, a file or the answer cannot be used, 3 if weir-sync or its store is out of reach. --url, --token-file and --ca-file can \
    stand in the environment; WEIR_TOKEN may hold the token itself.";

/// How a command ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is done.
    Done,
    /// weir-sync refuses it, or what was compared differs.
    Refused,
    /// The command line, a file, or what was answered cannot be used.
    Unusable,
    /// weir-sync, or its store, is out of reach.
    OutOfReach,
}

impl From<Verdict> for ExitCode {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Done => Self::SUCCESS,
            Verdict::Refused => Self::from(1),
            // As where the command line is wrong.
            Verdict::Unusable => Self::from(2),
            Verdict::OutOfReach => Self::from(3),
        }
    }
}

/// What a command says that could do what it was to do.
#[derive(Clone, Debug)]
pub(super) struct Said {
    /// How it ends.
    pub(super) verdict: Verdict,
    /// For the standard output.
    pub(super) page: String,
    /// For the standard error output.
    pub(super) notes: String,
}

impl Said {
    /// It is done, and says this.
    pub(super) fn done(page: impl Into<String>) -> Self {
        Self { verdict: Verdict::Done, page: page.into(), notes: String::new() }
    }

    /// It is done, and says this to programs: one JSON document.
    pub(super) fn json(value: &Value) -> Self {
        // A value can always be written.
        Self::done(serde_json::to_string_pretty(value).unwrap_or_default() + "\n")
    }

    /// The same, but it ends with 1 if `is_refused`.
    #[must_use]
    pub(super) fn refused_if(mut self, is_refused: bool) -> Self {
        if is_refused {
            self.verdict = Verdict::Refused;
        }
        self
    }

    /// The same with a note for people, which is no part of the answer.
    #[must_use]
    pub(super) fn with_note(mut self, note: impl Into<String>) -> Self {
        self.notes = note.into();
        self
    }
}

/// Why a command could not do what it was to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    /// How it ends.
    pub(super) verdict: Verdict,
    /// What is wrong, and what to do about it.
    pub(super) sentence: String,
}

impl Failure {
    /// weir-sync refuses it.
    pub(super) fn refused(sentence: impl Into<String>) -> Self {
        Self { verdict: Verdict::Refused, sentence: sentence.into() }
    }

    /// What was given, or answered, cannot be used.
    pub(super) fn unusable(sentence: impl Into<String>) -> Self {
        Self { verdict: Verdict::Unusable, sentence: sentence.into() }
    }

    /// weir-sync, or its store, is out of reach.
    pub(super) fn out_of_reach(sentence: impl Into<String>) -> Self {
        Self { verdict: Verdict::OutOfReach, sentence: sentence.into() }
    }
}

/// What a command says, or why it cannot.
pub(super) type Answered = Result<Said, Failure>;

/// What an operator should know of a change that was made, as its `answer` says; empty if there is nothing.
pub(super) fn note(answer: &Value) -> String {
    answer["note"].as_str().map(|note| format!("warning: {}", shown(note))).unwrap_or_default()
}

/// Notes, a line each.
pub(super) fn lines(notes: impl IntoIterator<Item = String>) -> String {
    let notes: Vec<_> = notes.into_iter().filter(|note| !note.is_empty()).collect();
    notes.join("\n")
}
