//! Output and exit codes of commands.

use std::process::ExitCode;

use serde_json::Value;

use super::table::shown;

/// Help on exit codes, which every command appends.
pub(super) const EXIT_CODES: &str = "It ends with 0 if it is done, 1 if weir-sync refuses it (or, where that is asked, things differ), 2 if the command \
    line, a file or the answer cannot be used, 3 if weir-sync or its store is out of reach. --url, --token-file and --ca-file can \
    stand in the environment; WEIR_TOKEN may hold the token itself.";

/// Kind of a command's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CommandEnd {
    /// Success.
    Done,
    /// weir-sync refused the request, or a comparison found differences.
    Refused,
    /// The command line, a file or the answer is unusable.
    Unusable,
    /// weir-sync or its store is out of reach.
    OutOfReach,
}

impl From<CommandEnd> for ExitCode {
    fn from(verdict: CommandEnd) -> Self {
        match verdict {
            CommandEnd::Done => Self::SUCCESS,
            CommandEnd::Refused => Self::from(1),
            // Same code as for an invalid command line.
            CommandEnd::Unusable => Self::from(2),
            CommandEnd::OutOfReach => Self::from(3),
        }
    }
}

/// Output of a command that ran.
#[derive(Clone, Debug)]
pub(super) struct CommandOutput {
    /// Kind of its end.
    pub(super) verdict: CommandEnd,
    /// Text for the standard output.
    pub(super) page: String,
    /// Text for the standard error output.
    pub(super) notes: String,
}

impl CommandOutput {
    /// Success with this output.
    pub(super) fn done(page: impl Into<String>) -> Self {
        Self { verdict: CommandEnd::Done, page: page.into(), notes: String::new() }
    }

    /// Success with JSON for programs.
    pub(super) fn json(value: &Value) -> Self {
        // A value always serializes.
        Self::done(serde_json::to_string_pretty(value).unwrap_or_default() + "\n")
    }

    /// Changes the end to a refusal if `is_refused`.
    #[must_use]
    pub(super) fn refused_if(mut self, is_refused: bool) -> Self {
        if is_refused {
            self.verdict = CommandEnd::Refused;
        }
        self
    }

    /// Adds a note for people that is not part of the output.
    #[must_use]
    pub(super) fn with_note(mut self, note: impl Into<String>) -> Self {
        self.notes = note.into();
        self
    }
}

/// Failure of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    /// Kind of its end.
    pub(super) verdict: CommandEnd,
    /// Message that says what is wrong and what to do.
    pub(super) sentence: String,
}

impl Failure {
    /// weir-sync refused the request.
    pub(super) fn refused(sentence: impl Into<String>) -> Self {
        Self { verdict: CommandEnd::Refused, sentence: sentence.into() }
    }

    /// The input or the answer is unusable.
    pub(super) fn unusable(sentence: impl Into<String>) -> Self {
        Self { verdict: CommandEnd::Unusable, sentence: sentence.into() }
    }

    /// weir-sync or its store is out of reach.
    pub(super) fn out_of_reach(sentence: impl Into<String>) -> Self {
        Self { verdict: CommandEnd::OutOfReach, sentence: sentence.into() }
    }
}

/// Result of a command.
pub(super) type CommandResult = Result<CommandOutput, Failure>;

/// Warning in the `answer` to a change; empty if there is none.
pub(super) fn note(answer: &Value) -> String {
    answer["note"].as_str().map(|note| format!("warning: {}", shown(note))).unwrap_or_default()
}

/// Joins notes, one per line.
pub(super) fn lines(notes: impl IntoIterator<Item = String>) -> String {
    let notes: Vec<_> = notes.into_iter().filter(|note| !note.is_empty()).collect();
    notes.join("\n")
}
