//! Tables for people.

/// Replacement for a control character.
const HIDDEN: char = '\u{fffd}';

/// Renders a table. Columns are as wide as their widest cell, and numbers are right-aligned. Each row must have
/// a cell per column.
pub(super) fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let rows: Vec<Vec<String>> =
        rows.iter().map(|row| row.iter().map(|cell| shown(cell)).collect()).collect();
    let head: Vec<String> = head.iter().map(|title| (*title).to_owned()).collect();
    let column = |place: usize| {
        let cells = || rows.iter().filter_map(|row| row.get(place));
        let width = cells().chain(head.get(place)).map(|cell| cell.chars().count()).max();
        let is_number = cells().all(|cell| matches!(cell.as_str(), "" | "-") || cell.parse::<f64>().is_ok());
        (width.unwrap_or_default(), is_number)
    };
    let columns: Vec<(usize, bool)> = (0..head.len()).map(column).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&columns).map(|(cell, &(width, is_number))| {
            if is_number { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    [&head].into_iter().chain(&rows).map(line).collect()
}

/// Makes foreign text safe for a terminal: control and bidirectional formatting characters become visible.
pub(super) fn shown(text: &str) -> String {
    let turns =
        |c: char| matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    text.chars().map(|c| if c.is_control() || turns(c) { HIDDEN } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_numbers_stand_at_the_right() {
        let rows = [["fra1", "7", "ok"], ["a", "1200", ""]].map(|row| row.map(str::to_owned).to_vec());
        let expected = "POP   VERSION  STATE\nfra1        7  ok\na        1200\n";
        assert_eq!(table(&["POP", "VERSION", "STATE"], &rows), expected);
        assert_eq!(table(&["POP"], &[]), "POP\n");
    }

    #[test]
    fn a_name_cannot_rewrite_the_terminal() {
        let rows = [vec!["a\u{1b}[2J\u{202e}b\nc".to_owned()]];
        assert_eq!(table(&["A"], &rows), "A\na\u{fffd}[2J\u{fffd}b\u{fffd}c\n");
    }
}
