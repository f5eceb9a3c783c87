//! Tables of figures, and putting them into a page: what stands between two markers is replaced.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use super::summary::{self, Reached, Target};

/// The markers around the table of what must be reached.
pub const SUMMARY: &str = "bench-summary";
/// The markers of each part.
pub const PARTS: [&str; 4] = [ENVOY, NATIVE, SYNC, GATEWAY];
/// The part of `make bench-envoy`.
pub const ENVOY: &str = "bench-envoy";
/// The part of `make bench-native`.
pub const NATIVE: &str = "bench-native";
/// The part of `make bench-sync`.
pub const SYNC: &str = "bench-sync";
/// The part of `make bench-gateway`.
pub const GATEWAY: &str = "bench-gateway";

/// The results of a part of the benchmarks.
#[derive(Clone, Debug)]
pub struct Part {
    /// Its rows of the table of what must be reached.
    pub reached: Vec<Reached>,
    /// Everything that it found.
    pub figures: String,
}

impl Part {
    /// Begins a part with these sentences, and a table whose rows are a figure, its must, its aim, and these columns.
    pub fn begin(text: &str, columns: &[&str]) -> Self {
        let mut part = Self { reached: vec![], figures: format!("{text}\n") };
        part.table(&[&["figure", "must", "aim"], columns].concat());
        part
    }

    /// Begins a table.
    pub fn table(&mut self, columns: &[&str]) {
        let _ = writeln!(self.figures, "\n| {} |\n{}|", columns.join(" | "), "|---".repeat(columns.len()));
    }

    /// A row of the table of figures; `cells` are what was reached, of which a target compares the number.
    pub fn figure(&mut self, figure: &str, target: Option<(Target, f64)>, cells: &[String]) {
        let (must, aim) = target.map_or(("", ""), |(target, _)| (target.must, target.aim));
        self.row(&[&[figure.to_owned(), must.into(), aim.into()], cells].concat());
        if let (Some((target, value)), Some(text)) = (target, cells.first()) {
            self.reached.push(target.reached(value, text.clone()));
        }
    }

    /// A row of the table that was begun last.
    pub fn row(&mut self, cells: &[String]) {
        let _ = writeln!(self.figures, "| {} |", cells.join(" | "));
    }
}

/// Replaces what stands in `file` between `<!-- NAME: begin -->` and `<!-- NAME: end -->`, and the part's rows between
/// the markers of [`SUMMARY`].
pub fn rewrite(file: &Path, name: &str, part: &Part) -> Result<(), String> {
    let described = |e: &dyn std::fmt::Display| format!("{}: {e}", file.display());
    let page = fs::read_to_string(file).map_err(|e| described(&e))?;
    let page = with_part(&page, name, part).map_err(|e| described(&e))?;
    fs::write(file, page).map_err(|e| described(&e))
}

fn with_part(page: &str, name: &str, part: &Part) -> Result<String, String> {
    let no_markers = |name| format!("expected the markers of {name} once");
    let page = replaced(page, name, &part.figures).ok_or_else(|| no_markers(name))?;
    let table = held(&page, SUMMARY).ok_or_else(|| no_markers(SUMMARY))?;
    let table = summary::filled(table, &part.reached).ok_or("a row of the summary is missing")?;
    replaced(&page, SUMMARY, &table).ok_or_else(|| no_markers(SUMMARY))
}

/// The text in `page` between the markers of `name`; none if they are not there once, in order.
pub fn held<'a>(page: &'a str, name: &str) -> Option<&'a str> {
    let [begin, end] = markers(name);
    let (before, rest) = page.split_once(&begin)?;
    let (held, after) = rest.split_once(&end)?;
    let is_once = ![before, held, after].iter().any(|part| part.contains(&begin) || part.contains(&end));
    is_once.then_some(held)
}

fn replaced(page: &str, name: &str, figures: &str) -> Option<String> {
    held(page, name)?;
    let [begin, end] = markers(name);
    let (before, rest) = page.split_once(&begin)?;
    let (_, after) = rest.split_once(&end)?;
    Some(format!("{before}{begin}\n\n{}\n\n{end}{after}", figures.trim()))
}

fn markers(name: &str) -> [String; 2] {
    ["begin", "end"].map(|which| format!("<!-- {name}: {which} -->"))
}
