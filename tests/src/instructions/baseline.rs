//! The counts that are kept with the code.

use std::collections::BTreeMap;
use std::env::consts::ARCH;
use std::fmt::Write as _;
use std::path::PathBuf;

/// The most that a count may rise, or fall without a hint, in hundredths.
pub const CHANGE_PERCENT_MAX: u64 = 5;

/// Instructions of one operation, by the title of the case.
pub type Counts = BTreeMap<String, u64>;

/// The file that keeps the counts of this architecture, seen from the project's folder.
pub fn name() -> String {
    format!("tests/benches/instructions.{ARCH}.baseline")
}

/// The path of that file.
pub fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..").join(name())
}

/// The counts in `text`: a line `title = count` each, and lines that begin with `#`.
pub fn parse(text: &str) -> Result<Counts, String> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.starts_with('#') && !line.is_empty());
    let read = lines.map(|(i, line)| {
        let entry = line.split_once(" = ").and_then(|(title, count)| Some((title.into(), count.parse().ok()?)));
        entry.ok_or_else(|| format!("line {}: expected `title = count`, found {line:?}", i + 1))
    });
    read.collect()
}

/// The counts as [`parse`] reads them.
pub fn render(counts: &Counts) -> String {
    let mut text = format!(
        "# Instructions of one operation on {ARCH}, counted by callgrind. Made by `make instructions-baseline`;\n\
         # `make instructions` fails where one is more than {CHANGE_PERCENT_MAX} % higher.\n"
    );
    for (title, count) in counts {
        let _ = writeln!(text, "{title} = {count}");
    }
    text
}

/// The verdict on a case that has `old` instructions in the baseline and `new` ones now; nothing if it is about as it
/// was. True if that is a failure.
pub fn change(old: Option<u64>, new: Option<u64>) -> Option<(&'static str, bool)> {
    match (old, new) {
        (None, _) => Some(("not in the baseline", true)),
        (_, None) => Some(("no case any more", true)),
        (Some(old), Some(new)) if new * 100 > old * (100 + CHANGE_PERCENT_MAX) => Some(("dearer", true)),
        (Some(old), Some(new)) if new * 100 < old * (100 - CHANGE_PERCENT_MAX) => Some(("cheaper", false)),
        _ => None,
    }
}
