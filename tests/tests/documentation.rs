//! What the pages show is true: every rule set in them is one that the filter accepts.

use std::path::{Path, PathBuf};

use serde_json::Value;
use weir_limiter::config::Config;

/// The pages that show rule sets to copy.
const PAGES: [&str; 2] = ["README.md", "docs/budgets.md"];

fn page(name: &str) -> String {
    let path: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The YAML examples of a page that are rule sets.
fn rule_sets(page: &str) -> Vec<String> {
    let blocks = page.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next());
    blocks.filter(|block| block.starts_with("rules:")).map(str::to_owned).collect()
}

#[test]
fn every_rule_set_in_the_pages_is_accepted() {
    let mut seen = 0;
    for name in PAGES {
        for yaml in rule_sets(&page(name)) {
            let value: Value =
                serde_saphyr::from_str(&yaml).unwrap_or_else(|e| panic!("{name}: {e}\n{yaml}"));
            let config = Config::parse(value.to_string().as_bytes());
            let errors = config.err().unwrap_or_default();
            assert!(errors.is_empty(), "{name}: {errors:?}\n{yaml}");
            seen += 1;
        }
    }
    assert!(seen >= 2, "expected rule sets in {PAGES:?}, found {seen}");
}
