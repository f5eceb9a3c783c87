//! A warning, and where it belongs.

use std::fmt;

use serde::Serialize;

/// What is allowed, but cannot be intended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Warning {
    /// Where: `rules[0].match`.
    pub place: String,
    /// The name of the rule that it is in, if it is in one.
    pub rule: Option<String>,
    /// What is not as it was meant.
    pub problem: String,
}

impl Warning {
    pub(super) fn at(place: String, problem: impl Into<String>) -> Self {
        Self { place, rule: None, problem: problem.into() }
    }

    /// The same, of this rule.
    pub(super) fn of_rule(self, name: &str) -> Self {
        Self { rule: Some(name.to_owned()), ..self }
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { place, rule, problem } = self;
        match rule {
            Some(rule) => write!(f, "{place} ({rule}): {problem}"),
            None => write!(f, "{place}: {problem}"),
        }
    }
}
