//! `weir-sync explain FILE`: the rules that count a request, and the others with the reason.

use weir_cli::explain::{command, described, run};
use weir_gateway::json;

use crate::running::file;

/// Rules, requests, and lines of their pages; it explains its form.
const CASES: &str = include_str!("explain/cases.txt");

/// The page about a request with these options.
fn explained(document: &str, options: &str) -> String {
    let (_file, path) = file(document);
    let options = options.split("--").filter_map(|option| option.trim().split_once(' '));
    let options = options.flat_map(|(name, value)| [format!("--{name}"), value.to_owned()]);
    let matches = command().try_get_matches_from(["explain".to_owned(), path].into_iter().chain(options));
    run(&matches.unwrap_or_else(|e| panic!("{e}")), json::request).unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn each_request_has_its_page() {
    let (mut document, mut page) = (String::new(), String::new());
    for line in CASES.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(fields) = line.strip_prefix("rule: ") {
            document = format!("rules: [{{name: r, rate: 10/s, {fields}}}]");
        } else if let Some(options) = line.strip_prefix('>') {
            page = explained(&document, options);
        } else if let Some(stated) = line.strip_prefix("    ") {
            let is_stated = |line: &str| match stated.split_once("...") {
                Some((begin, end)) => line.starts_with(begin) && line.ends_with(end),
                None => line == stated,
            };
            assert!(page.lines().any(is_stated), "{document}: no `{stated}` in\n{page}");
        } else {
            line.clone_into(&mut document);
        }
    }
}

#[test]
fn a_claim_is_given_once() {
    for again in ["p.plan=gold", "p=gold", "p.plan.of=gold"] {
        let line = ["explain", "-", "--claim", "p.plan=free", "--claim", again];
        let wrong = described(&command().get_matches_from(line), json::request).unwrap_err();
        let path = again.split('=').next().unwrap();
        assert_eq!(wrong, format!("--claim: expected each claim once, found {path} again"));
    }
}
