//! Any bytes, and mutated rule sets: the parser accepts them or lists what is wrong, within its bounds.

use arbitrary::Arbitrary;
use weir_limiter::limiter::Limiter;
use weir_limiter::table::{HashSecret, TableIdentity};
use weir_rules::RuleSet;
use weir_rules::config::PluginConfig;
use weir_rules::document;
use weir_rules::reading::{ConfigError, ERRORS_MAX};

use crate::mutate::Mutated;

/// The longest that an error may be, in bytes.
const ERROR_BYTES_MAX: usize = 4_096;

/// A document to parse.
#[derive(Arbitrary, Debug)]
pub enum Input {
    /// Anything.
    Bytes(Vec<u8>),
    /// A good document with changes.
    Mutated(Mutated),
}

/// Parses the document as a plugin configuration and as a rule set. Panics if the parser breaks a promise.
pub fn run(input: &Input) {
    let bytes = match input {
        Input::Bytes(bytes) => bytes.clone(),
        Input::Mutated(mutated) => mutated.document().to_string().into_bytes(),
    };
    match PluginConfig::parse(&bytes) {
        Ok(config) => use_it(&config.rules),
        Err(errors) => look_at(&errors),
    }
    match document::parse(&bytes) {
        Ok(rules) => use_it(&rules),
        Err(errors) => look_at(&errors),
    }
}

fn look_at(errors: &[ConfigError]) {
    assert!((1..=ERRORS_MAX).contains(&errors.len()), "{} errors", errors.len());
    for error in errors {
        assert!(error.problem.len() <= ERROR_BYTES_MAX, "{} bytes: {error}", error.problem.len());
    }
}

/// Puts an accepted rule set to use.
fn use_it(rules: &RuleSet) {
    for rule in rules.rules() {
        assert!(rule.sharing.fits(rule.quota), "{}", rule.name);
        assert!(rule.cost.most() <= rule.quota.burst(), "{} can never admit", rule.name);
    }
    let identity = TableIdentity { secret: HashSecret::new([1; 16]), table_id: 1 };
    drop(Limiter::new(rules.clone(), identity, None));
}
