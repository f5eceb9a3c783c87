//! A warning about a rule set, with its place.

use std::fmt;

use serde::Serialize;

/// Part of a valid rule set that cannot be intended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Warning {
    /// Its place, such as `rules[0].match`.
    pub place: String,
    /// Name of the rule that contains it; none outside of rules.
    pub rule: Option<String>,
    /// Description of the problem.
    pub problem: String,
}

impl Warning {
    pub(super) fn at(place: String, problem: impl Into<String>) -> Self {
        Self { place, rule: None, problem: problem.into() }
    }

    /// The same warning, in this rule.
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
