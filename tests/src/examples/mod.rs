//! The examples of docs/rules.md: each rule set, and what it does with requests or what is wrong with it.
//!
//! On the page a block of `yaml`, a rule set document or a list of rules, is followed by a block of `requests`
//! ([`script`]), which [`edge`] plays to a real edge in simulated time, or by one of `errors`, the errors
//! that the document has, one a line.

mod budgets;
pub mod edge;
pub mod script;

/// A block of `yaml` and the block that follows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Example {
    /// The line of the page that the first block begins in.
    pub line: usize,
    /// The rule set, as it is written.
    pub yaml: String,
    /// The expected result.
    pub then: Then,
}

/// The expected result of a rule set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Then {
    /// It decides these requests so.
    Requests(String),
    /// It is refused, with these errors.
    Errors(String),
}

/// The examples of a page; an error names a block of `yaml` that nothing follows.
pub fn of(page: &str) -> Result<Vec<Example>, String> {
    let mut examples = Vec::new();
    let mut rule_set: Option<(usize, String)> = None;
    for (line, language, text) in blocks(page) {
        let then = match language {
            "requests" => Then::Requests(text),
            "errors" => Then::Errors(text),
            "yaml" => {
                if let Some((line, _)) = rule_set.replace((line, text)) {
                    return Err(format!("line {line}: expected an example of what this rule set does"));
                }
                continue;
            }
            _ => continue,
        };
        let Some((line, yaml)) = rule_set.take() else {
            return Err(format!("line {line}: {language} without a rule set before them"));
        };
        examples.push(Example { line, yaml, then });
    }
    match rule_set {
        Some((line, _)) => Err(format!("line {line}: expected an example of what this rule set does")),
        None => Ok(examples),
    }
}

/// The fenced blocks of a page: the line each begins in, its language, its text.
pub fn blocks(page: &str) -> Vec<(usize, &str, String)> {
    let mut blocks = Vec::new();
    let mut open: Option<(usize, &str, String)> = None;
    for (number, line) in (1..).zip(page.lines()) {
        match (line.strip_prefix("```"), open.as_mut()) {
            (Some(language), None) => open = Some((number, language, String::new())),
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (None, Some((.., text))) => {
                text.push_str(line);
                text.push('\n');
            }
            (None, None) => {}
        }
    }
    blocks
}
