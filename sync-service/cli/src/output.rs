//! Output of commands: exit codes, tables and durations.

use serde::Serialize;
use serde_json::Value;

/// Help on exit codes, appended to that of every command that uses the API.
pub(super) const EXIT_CODES: &str = "It ends with 0 if it is done, 1 if weir-sync refuses it (or, where that is asked, \
    things differ), 2 if the command line, a file or the answer cannot be used, 3 if weir-sync or its store is out of \
    reach. --url, --token-file and --ca-file can stand in the environment; WEIR_TOKEN may hold the token itself.";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommandEnd {
    Done = 0,
    /// weir-sync refused the request, or a comparison found differences.
    Refused = 1,
    /// The command line, a file or the answer is unusable. Same exit code as clap's for an invalid command line.
    Unusable = 2,
    OutOfReach = 3,
}

#[derive(Clone, Debug)]
pub(crate) struct CommandOutput {
    pub(crate) end: CommandEnd,
    pub(crate) page: String,
    pub(crate) json: Option<Value>,
    pub(crate) notes: String,
}

impl CommandOutput {
    pub(crate) fn done(page: impl Into<String>) -> Self {
        Self { end: CommandEnd::Done, page: page.into(), json: None, notes: String::new() }
    }

    /// Success with a text for people, and the `answer` for programs.
    pub(super) fn new(answer: Value, page: impl Into<String>) -> Self {
        Self { json: Some(answer), ..Self::done(page) }
    }

    #[must_use]
    pub(super) fn refused_if(mut self, is_refused: bool) -> Self {
        if is_refused {
            self.end = CommandEnd::Refused;
        }
        self
    }

    /// Sets a note for people, which is printed to standard error.
    #[must_use]
    pub(super) fn with_note(mut self, note: impl Into<String>) -> Self {
        self.notes = note.into();
        self
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(super) end: CommandEnd,
    /// The error, with advice.
    pub(super) sentence: String,
}

impl Failure {
    pub(super) fn refused(sentence: impl Into<String>) -> Self {
        Self { end: CommandEnd::Refused, sentence: sentence.into() }
    }

    pub(crate) fn unusable(sentence: impl Into<String>) -> Self {
        Self { end: CommandEnd::Unusable, sentence: sentence.into() }
    }

    pub(super) fn out_of_reach(sentence: impl Into<String>) -> Self {
        Self { end: CommandEnd::OutOfReach, sentence: sentence.into() }
    }
}

pub(crate) type CommandResult = Result<CommandOutput, Failure>;

/// Warning in the `answer` to a change; empty if there is none.
pub(super) fn note(answer: &Value) -> String {
    answer["note"].as_str().map(|note| format!("warning: {}", shown(note))).unwrap_or_default()
}

/// A text in an answer, safe for a terminal; empty for any other value.
pub(super) fn text(value: &Value) -> String {
    value.as_str().map(shown).unwrap_or_default()
}

/// The items of a list in an answer; empty for any other value.
pub(super) fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

pub(super) fn lines(notes: impl IntoIterator<Item = String>) -> String {
    let notes: Vec<_> = notes.into_iter().filter(|note| !note.is_empty()).collect();
    notes.join("\n")
}

const HIDDEN: char = '\u{fffd}';

pub(crate) fn pretty(value: &impl Serialize) -> String {
    // Values, texts and numbers always serialize.
    serde_json::to_string_pretty(value).unwrap_or_default() + "\n"
}

/// Renders a table, with numbers right-aligned. Each row must have a cell per column.
pub(super) fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let rows: Vec<Vec<String>> = rows.iter().map(|row| row.iter().map(|cell| shown(cell)).collect()).collect();
    let head: Vec<String> = head.iter().map(|title| (*title).to_owned()).collect();
    let column = |place: usize| {
        let cells = || rows.iter().filter_map(|row| row.get(place));
        let width = cells().chain(head.get(place)).map(|cell| cell.chars().count()).max();
        let is_number = cells().all(|cell| matches!(cell.as_str(), "" | "-") || cell.parse::<f64>().is_ok());
        (width.unwrap_or_default(), is_number)
    };
    let columns: Vec<(usize, bool)> = (0..head.len()).map(column).collect();
    let line =
        |row: &Vec<String>| {
            let cells = row.iter().zip(&columns).map(|(cell, &(width, is_number))| {
                if is_number { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
            });
            cells.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
        };
    [&head].into_iter().chain(&rows).map(line).collect()
}

/// Makes foreign text safe for a terminal: replaces control and bidirectional formatting characters.
pub(super) fn shown(text: &str) -> String {
    let turns = |c: char| matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    text.chars().map(|c| if c.is_control() || turns(c) { HIDDEN } else { c }).collect()
}

/// Formats a duration in the largest unit of which there are at least two, as in `0.4 s` or `3 h`.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "for people")]
pub(super) fn span(seconds: f64) -> String {
    let whole = seconds.max(0.0) as u64;
    match whole {
        0..10 => format!("{:.1} s", seconds.max(0.0)),
        10..120 => format!("{whole} s"),
        120..7_200 => format!("{} min", whole / 60),
        7_200..172_800 => format!("{} h", whole / 3_600),
        _ => format!("{} days", whole / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_rewrite_the_terminal() {
        let rows = [vec!["a\u{1b}[2J\u{202e}b\nc".to_owned()]];
        assert_eq!(table(&["A"], &rows), "A\na\u{fffd}[2J\u{fffd}b\u{fffd}c\n");
    }
}
