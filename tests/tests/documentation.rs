//! Checks of the pages: the filter accepts every rule set in them, every link leads somewhere, every invariant
//! has a test, and the benchmarks' page has a row for each figure that must be reached.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::{fs, io};

use serde_json::Value;
use weir_rules::config::PluginConfig;
use weir_tests::bench::page::{PARTS, SUMMARY, held};
use weir_tests::bench::summary::{TARGETS, Word};
use weir_tests::examples::blocks;
use weir_tests::simulation::scenarios::SCENARIOS;

/// The pages that show rule sets to copy.
/// (Those of docs/rules.md are tried in tests/rules.rs.)
const PAGES: [&str; 3] = ["README.md", "docs/budgets.md", "docs/operating.md"];
/// Folders with pages, and whether those below them have pages too.
const FOLDERS: [(&str, bool); 3] = [(".", false), ("docs", true), ("envoy", true)];
/// There are more links between pages than this, or they are not found any more.
const LINKS_MIN: usize = 60;
/// The page whose tags tests carry.
const INVARIANTS: &str = "docs/invariants.md";
/// The page that `make bench` writes its figures into.
const FIGURES: &str = "docs/reference/benchmarks.md";
/// The page that explains the main ones.
const BENCHMARKS: &str = "docs/benchmarks.md";
/// The folder of the tests.
const SOURCES: [&str; 3] = ["filter", "sync-service", "tests"];
/// Failures when a mechanism of the budget loop is taken out.
const ABLATIONS: &str = "tests/src/simulation/ablations.tsv";
/// It has more lines than this, or they are not found any more.
const ABLATIONS_MIN: usize = 50;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn page(name: &str) -> String {
    let path = root().join(name);
    fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The YAML examples of a page that begin so, read.
fn examples(page: &str, first: &str) -> Vec<Value> {
    let blocks = blocks(page).into_iter().filter(|(_, language, text)| *language == "yaml" && text.starts_with(first));
    blocks.map(|(_, _, text)| serde_saphyr::from_str(&text).unwrap_or_else(|e| panic!("{text}: {e}"))).collect()
}

/// The tags of invariants (`I5`) in the comments above the tests of a source.
fn tags(source: &str) -> BTreeSet<String> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let (mut tags, mut above) = (BTreeSet::new(), Vec::new());
    for line in source.lines().map(str::trim) {
        if line.starts_with("//") {
            above.extend(line.split(|c| !is_word(c)).map(str::to_owned));
        } else if ["#[test", "#[tokio::test"].iter().any(|attribute| line.starts_with(attribute)) {
            tags.extend(above.drain(..));
        } else if !line.starts_with("#[") {
            above.clear();
        }
    }
    tags
}

/// Adds the files in `folder` with this extension, with their texts, and those below it if `deep`.
fn read_files(folder: &Path, extension: &str, deep: bool, files: &mut Vec<(PathBuf, String)>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() && deep {
            read_files(&path, extension, deep, files)?;
        } else if path.is_file() && path.extension().is_some_and(|of_path| of_path == extension) {
            let text = fs::read_to_string(&path)?;
            files.push((path, text));
        }
    }
    Ok(())
}

#[test]
fn every_rule_set_in_the_pages_is_accepted() {
    let mut seen = 0;
    for name in PAGES {
        for rules in ["rules:", "enforce:"].iter().flat_map(|first| examples(&page(name), first)) {
            let errors = PluginConfig::parse(rules.to_string().as_bytes()).err().unwrap_or_default();
            assert!(errors.is_empty(), "{name}: {errors:?}\n{rules}");
            seen += 1;
        }
    }
    assert!(seen >= 2, "expected rule sets in {PAGES:?}, found {seen}");
}

/// The text of a page without its blocks of code.
fn prose(page: &str) -> String {
    let outside = page.split("\n```").step_by(2);
    // What is left of a block is the rest of the line that ends it.
    outside.collect::<Vec<_>>().join("\n")
}

/// The targets of a page's links and images.
fn links(page: &str) -> Vec<String> {
    let prose = prose(page);
    let parts = prose.split("](").skip(1);
    parts.filter_map(|rest| rest.split(')').next()).map(str::to_owned).collect()
}

/// The anchors of a page's headings, as GitHub makes them.
fn anchors(page: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    for heading in prose(page).lines().filter_map(|line| line.strip_prefix('#')) {
        let text = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = text.chars().filter(|c| c.is_alphanumeric() || ['-', '_', ' '].contains(c));
        let anchor: String = kept.map(|c| if c == ' ' { '-' } else { c }).collect();
        assert!(anchors.insert(anchor.clone()), "two headings have the anchor {anchor}");
    }
    anchors
}

/// The problem of a link of the page at `from`, if any.
fn dead(from: &Path, link: &str) -> Option<String> {
    let (file, anchor) = link.split_once('#').map_or((link, None), |(file, anchor)| (file, Some(anchor)));
    let to = if file.is_empty() { from.to_owned() } else { from.parent()?.join(file) };
    let Some(anchor) = anchor else { return (!to.exists()).then(|| "no such file".to_owned()) };
    match fs::read_to_string(&to) {
        Err(error) => Some(error.to_string()),
        Ok(text) => (!anchors(&text).contains(anchor)).then(|| "no such heading".to_owned()),
    }
}

#[test]
fn every_link_between_pages_resolves() {
    let mut pages = Vec::new();
    for (folder, deep) in FOLDERS {
        read_files(&root().join(folder), "md", deep, &mut pages).unwrap_or_else(|e| panic!("{folder}: {e}"));
    }
    let (mut followed, mut wrong) = (0, Vec::new());
    for (from, text) in pages {
        for link in links(&text).into_iter().filter(|link| !link.contains("://")) {
            followed += 1;
            wrong.extend(dead(&from, &link).map(|why| format!("{}: {link}: {why}", from.display())));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(followed > LINKS_MIN, "expected links between pages, found {followed}");
}

/// All sources, with their paths.
fn sources() -> Vec<(PathBuf, String)> {
    let mut sources = Vec::new();
    for folder in SOURCES {
        read_files(&root().join(folder), "rs", true, &mut sources).unwrap_or_else(|e| panic!("{folder}: {e}"));
    }
    sources
}

#[test]
fn every_invariant_is_on_its_page_and_has_a_test() {
    let page = page(INVARIANTS);
    let rows = page.lines().filter_map(|line| line.strip_prefix("| I")?.split_once(' '));
    let named: Vec<_> = rows.map(|(number, _)| format!("I{number}")).collect();
    assert_eq!(named, (1..=9).map(|number| format!("I{number}")).collect::<Vec<_>>());
    let tested: BTreeSet<_> = sources().iter().flat_map(|(_, text)| tags(text)).collect();
    let missing: Vec<_> = named.iter().filter(|tag| !tested.contains(*tag)).collect();
    assert!(missing.is_empty(), "expected a test with each tag in its comment, found none with {missing:?}");
}

#[test]
fn every_ablation_names_an_existing_test() {
    let labels: BTreeSet<_> =
        SCENARIOS.iter().flat_map(|scenario| scenario.fleets.iter().map(|size| scenario.label(*size))).collect();
    let sources = sources();
    let is_test = |name: &str| sources.iter().any(|(_, text)| text.contains(&format!("fn {name}(")));
    let text = page(ABLATIONS);
    let lines: Vec<Vec<_>> =
        text.lines().filter(|line| !line.starts_with('#')).map(|line| line.split('\t').collect()).collect();
    assert!(lines.len() > ABLATIONS_MIN, "expected lines in {ABLATIONS}, found {}", lines.len());
    for line in lines {
        let exists = match line[..] {
            ["row", _, row, _] => labels.contains(row),
            ["test", _, name, _] => is_test(name),
            ["worlds", _, _, _] => true,
            _ => false,
        };
        assert!(exists, "{ABLATIONS}: expected a row, a test or worlds that exist, found {line:?}");
    }
}

#[test]
fn the_benchmarks_page_has_each_part_once() {
    let page = page(FIGURES);
    for name in PARTS.into_iter().chain([SUMMARY]) {
        assert!(held(&page, name).is_some(), "{FIGURES}: expected the markers of {name} once");
    }
}

#[test]
fn the_benchmarks_summary_explains_each_missed_target() {
    let (page, figures) = (page(BENCHMARKS), page(FIGURES));
    let summary = held(&figures, SUMMARY).expect("a summary");
    let rows: Vec<_> = summary.lines().filter(|line| line.starts_with('|')).skip(2).collect();
    assert_eq!(rows.len(), TARGETS.len(), "{rows:#?}");
    for (row, target) in rows.into_iter().zip(TARGETS) {
        let rest = row.strip_prefix(&target.cells());
        let rest = rest.unwrap_or_else(|| panic!("expected {}, found {row}", target.cells()));
        let cells: Vec<_> = rest.split('|').map(str::trim).collect();
        let [reached, word, ""] = cells[..] else { panic!("expected two more cells, found {row}") };
        // Both, or none before the first run.
        let is_word = Word::ALL.iter().any(|known| known.to_string() == word);
        assert!(is_word && !reached.is_empty() || word.is_empty() && reached.is_empty(), "{row}");
        let why = page.split_once(&format!("- **{}**:", target.figure)).map_or("", |(_, why)| why);
        let is_explained = why.lines().next().is_some_and(|line| !line.trim().is_empty());
        assert!(word != Word::Short.to_string() || is_explained, "{BENCHMARKS} expected a reason: {row}");
    }
    let copied: Vec<_> = page.lines().filter(|line| line.starts_with('|') && line.contains(" : ")).collect();
    assert!(copied.len() >= 5, "{copied:#?}");
    for row in copied {
        assert!(summary.lines().any(|line| line == row), "{BENCHMARKS}: not as in {FIGURES}: {row}");
    }
}

/// Every bootstrap of `envoy/` that has the filter, by its name.
fn bootstraps_with_the_filter() -> Vec<(String, Value)> {
    let folders = fs::read_dir(root().join("envoy")).unwrap();
    let names = folders.map(|folder| format!("envoy/{}/envoy.yaml", folder.unwrap().file_name().display()));
    let read = |name: String| {
        let text = fs::read_to_string(root().join(&name)).ok()?;
        let bootstrap = serde_saphyr::from_str(&text).unwrap_or_else(|e| panic!("{name}: {e}"));
        text.contains("envoy.extensions.filters.http.wasm.v3.Wasm").then_some((name, bootstrap))
    };
    names.filter_map(read).collect()
}

/// All bootstraps, and the page about Envoy, have the same cluster of weir-sync and the same stats.
#[test]
fn the_page_about_envoy_and_the_bootstraps_agree() {
    let text = page("docs/envoy.md");
    let (clusters, stats) = (examples(&text, "- name: weir-sync"), examples(&text, "stats_config:"));
    let of = |bootstrap: &Value| {
        let clusters = bootstrap["static_resources"]["clusters"].as_array().cloned().unwrap_or_default();
        let mut cluster = clusters.into_iter().find(|cluster| cluster["name"] == "weir-sync").unwrap_or_default();
        cluster["load_assignment"] = Value::Null;
        cluster
    };
    let mut shown = clusters[0][0].clone();
    shown["load_assignment"] = Value::Null;
    assert!(shown["health_checks"].is_array() && shown["outlier_detection"].is_object());
    let bootstraps = bootstraps_with_the_filter();
    assert!(bootstraps.len() >= 3, "{bootstraps:?}");
    for (name, bootstrap) in bootstraps {
        // Without one, Weir limits in that Envoy alone.
        assert!(of(&bootstrap) == shown || of(&bootstrap)["name"].is_null(), "{name}: {}", of(&bootstrap));
        assert_eq!(bootstrap["stats_config"], stats[0]["stats_config"], "{name}");
    }
    let filter = &examples(&page("docs/quickstart.md"), "- name: weir")[0][0]["typed_config"]["config"];
    PluginConfig::parse(filter["configuration"]["value"].to_string().as_bytes()).unwrap_or_else(|e| panic!("{e:?}"));
    let configuration = &examples(&text, "configuration:")[0]["configuration"];
    assert_eq!(configuration["@type"], "type.googleapis.com/google.protobuf.StringValue");
    let value = configuration["value"].as_str().unwrap_or_default();
    PluginConfig::parse(value.as_bytes()).unwrap_or_else(|e| panic!("{e:?}"));
}
