//! Putting figures into a page: what stands between two markers is replaced.

use std::fs;
use std::path::Path;

/// Replaces what stands in `file` between `<!-- NAME: begin -->` and `<!-- NAME: end -->`.
pub fn rewrite(file: &Path, name: &str, figures: &str) -> Result<(), String> {
    let told = |e: &dyn std::fmt::Display| format!("{}: {e}", file.display());
    let page = fs::read_to_string(file).map_err(|e| told(&e))?;
    let page = replaced(&page, name, figures).ok_or_else(|| told(&format!("no markers of {name}")))?;
    fs::write(file, page).map_err(|e| told(&e))
}

fn replaced(page: &str, name: &str, figures: &str) -> Option<String> {
    let (begin, end) = (format!("<!-- {name}: begin -->"), format!("<!-- {name}: end -->"));
    let (before, rest) = page.split_once(&begin)?;
    let (_, after) = rest.split_once(&end)?;
    Some(format!("{before}{begin}\n\n{}\n\n{end}{after}", figures.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_between_the_markers_changes() {
        let page = "a\n<!-- x: begin -->\nold\n<!-- x: end -->\nb <!-- y: begin -->";
        let new = "a\n<!-- x: begin -->\n\nnew\n\n<!-- x: end -->\nb <!-- y: begin -->";
        assert_eq!(replaced(page, "x", "new\n").as_deref(), Some(new));
        assert_eq!(replaced(new, "x", "new").as_deref(), Some(new));
    }

    #[test]
    fn a_page_without_markers_is_left_alone() {
        assert_eq!(replaced("a <!-- x: begin -->", "x", "new"), None);
    }
}
