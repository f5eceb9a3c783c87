//! The counts that are kept with the code, and how others compare with them.

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

/// The change of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// About as it was.
    Same,
    /// It takes too much more.
    Rose,
    /// It takes less, by enough that the baseline would hide a rise.
    Fell,
    /// It has no count to compare with.
    New,
    /// It has a count, and is no case any more.
    Gone,
}

/// One case, before and now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compared {
    /// The case's title.
    pub title: String,
    /// Its count in the baseline.
    pub old: Option<u64>,
    /// Its count now.
    pub new: Option<u64>,
}

impl Compared {
    /// Its change.
    pub fn change(&self) -> Change {
        match (self.old, self.new) {
            (None, _) => Change::New,
            (_, None) => Change::Gone,
            (Some(old), Some(new)) if new * 100 > old * (100 + CHANGE_PERCENT_MAX) => Change::Rose,
            (Some(old), Some(new)) if new * 100 < old * (100 - CHANGE_PERCENT_MAX) => Change::Fell,
            _ => Change::Same,
        }
    }

    /// The case, both counts, and by how much they differ, in one line.
    pub fn line(&self) -> String {
        let text = |count: Option<u64>| count.map_or("-".into(), |count| count.to_string());
        let percent = match (self.old, self.new) {
            (Some(old @ 1..), Some(new)) => {
                let tenths = (i128::from(new) - i128::from(old)) * 1_000 / i128::from(old);
                let sign = if tenths < 0 { '-' } else { '+' };
                format!("{sign}{}.{} %", tenths.abs() / 10, tenths.abs() % 10)
            }
            _ => String::new(),
        };
        format!("{:<44} {:>9} -> {:>9} {percent:>9}", self.title, text(self.old), text(self.new))
    }
}

/// Every case of either, in the order of their titles.
pub fn compare(old: &Counts, new: &Counts) -> Vec<Compared> {
    let mut titles: Vec<_> = old.keys().chain(new.keys()).collect();
    titles.sort();
    titles.dedup();
    let counts = |title: &String| (old.get(title).copied(), new.get(title).copied());
    let compared = titles.into_iter().map(|title| (title, counts(title)));
    compared.map(|(title, (old, new))| Compared { title: title.clone(), old, new }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(old: Option<u64>, new: Option<u64>) -> Change {
        Compared { title: "a: b".into(), old, new }.change()
    }

    #[test]
    fn a_rise_above_five_percent_is_reported() {
        assert_eq!(change(Some(1_000), Some(1_050)), Change::Same);
        assert_eq!(change(Some(1_000), Some(1_051)), Change::Rose);
        assert_eq!(change(Some(1_000), Some(950)), Change::Same);
        assert_eq!(change(Some(1_000), Some(949)), Change::Fell);
        assert_eq!(change(Some(0), Some(1)), Change::Rose);
    }

    #[test]
    fn a_baseline_reads_back_as_written() {
        let counts = Counts::from([("decide: allowed, 1 rule".into(), 4_475), ("wire: x".into(), 0)]);
        assert_eq!(parse(&render(&counts)), Ok(counts));
    }
}
