//! Putting figures into a page: what stands between two markers is replaced.

use std::fs;
use std::path::Path;

use crate::bench::summary::{self, Reached};

/// The markers around the table of what must be reached.
pub const SUMMARY: &str = "bench-summary";
/// The markers of each part.
pub const PARTS: [&str; 4] = [ENVOY, NATIVE, SYNC, GATEWAY];
/// What `make bench-envoy` found.
pub const ENVOY: &str = "bench-envoy";
/// What `make bench-native` found.
pub const NATIVE: &str = "bench-native";
/// What `make bench-sync` found.
pub const SYNC: &str = "bench-sync";
/// What `make bench-gateway` found.
pub const GATEWAY: &str = "bench-gateway";

/// What a part of the benchmarks found.
#[derive(Clone, Debug)]
pub struct Part {
    /// Its rows of the table of what must be reached.
    pub reached: Vec<Reached>,
    /// Everything that it found.
    pub figures: String,
}

/// Replaces what stands in `file` between `<!-- NAME: begin -->` and `<!-- NAME: end -->`, and the part's rows between
/// the markers of [`SUMMARY`].
pub fn rewrite(file: &Path, name: &str, part: &Part) -> Result<(), String> {
    let told = |e: &dyn std::fmt::Display| format!("{}: {e}", file.display());
    let page = fs::read_to_string(file).map_err(|e| told(&e))?;
    let page = with_part(&page, name, part).map_err(|e| told(&e))?;
    fs::write(file, page).map_err(|e| told(&e))
}

fn with_part(page: &str, name: &str, part: &Part) -> Result<String, String> {
    let no_markers = |name| format!("expected the markers of {name} once");
    let page = replaced(page, name, &part.figures).ok_or_else(|| no_markers(name))?;
    let table = held(&page, SUMMARY).ok_or_else(|| no_markers(SUMMARY))?;
    let table = summary::filled(table, &part.reached).ok_or("a row of the summary is missing")?;
    replaced(&page, SUMMARY, &table).ok_or_else(|| no_markers(SUMMARY))
}

/// What stands in `page` between the markers of `name`; none where they do not stand there once, in order.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::summary::{ADDRESS, WASM_BYTES};

    #[test]
    fn only_what_is_between_the_markers_changes() {
        let page = "a\n<!-- x: begin -->\nold\n<!-- x: end -->\nb <!-- y: begin -->";
        let new = "a\n<!-- x: begin -->\n\nnew\n\n<!-- x: end -->\nb <!-- y: begin -->";
        assert_eq!(replaced(page, "x", "new\n").as_deref(), Some(new));
        assert_eq!(replaced(new, "x", "new").as_deref(), Some(new));
    }

    #[test]
    fn a_page_without_markers_or_with_two_pairs_is_left_alone() {
        assert_eq!(replaced("a <!-- x: begin -->", "x", "new"), None);
        let pair = "<!-- x: begin --> <!-- x: end -->";
        assert_eq!(held(pair, "x"), Some(" "));
        assert_eq!(held(&pair.repeat(2), "x"), None);
    }

    #[test]
    fn a_part_is_written_with_its_rows_of_the_summary() {
        let page = |module: &str, figures: &str| {
            let rows = [
                format!("{} {module} |", WASM_BYTES.cells()),
                format!("{} 32 B | the aim |", ADDRESS.cells()),
            ];
            format!(
                "<!-- bench-summary: begin -->\n\n{}\n\n<!-- bench-summary: end -->\n<!-- x: begin -->\n\n{figures}\n\n\
                 <!-- x: end -->",
                rows.join("\n")
            )
        };
        let part = Part { reached: vec![WASM_BYTES.reached(1e6, "1000 KB")], figures: "new".into() };
        let written = with_part(&page("|", "old"), "x", &part);
        assert_eq!(written, Ok(page("1000 KB | falls short", "new")));
        let gone = page("|", "old").replace("wasm module", "module");
        assert_eq!(with_part(&gone, "x", &part), Err("a row of the summary is missing".into()));
    }
}
