//! Any bytes, and changed rule sets: the parser accepts them or says what is wrong, within its bounds.
#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use weir_fuzz::mutate::Mutated;
use weir_rules::config::Config;
use weir_rules::document;
use weir_limiter::key::Secret;
use weir_limiter::limiter::{Limiter, TableIdentity};
use weir_rules::reading::{ConfigError, ERRORS_MAX};
use weir_rules::RuleSet;

/// The longest that an error may be, in bytes.
const ERROR_BYTES_MAX: usize = 4_096;

#[derive(Arbitrary, Debug)]
enum Input {
    Bytes(Vec<u8>),
    Mutated(Mutated),
}

fuzz_target!(|input: Input| {
    let bytes = match &input {
        Input::Bytes(bytes) => bytes.clone(),
        Input::Mutated(mutated) => mutated.document().to_string().into_bytes(),
    };
    match Config::parse(&bytes) {
        Ok(config) => use_it(config.rules),
        Err(errors) => look_at(&errors),
    }
    match document::parse(&bytes) {
        Ok(rules) => use_it(rules),
        Err(errors) => look_at(&errors),
    }
});

fn look_at(errors: &[ConfigError]) {
    assert!((1..=ERRORS_MAX).contains(&errors.len()), "{} errors", errors.len());
    for error in errors {
        assert!(error.problem.len() <= ERROR_BYTES_MAX, "{} bytes: {error}", error.problem.len());
    }
}

/// What was accepted can be put to use.
fn use_it(rules: RuleSet) {
    for rule in rules.rules() {
        assert!(rule.sharing.fits(rule.quota), "{}", rule.name);
        assert!(rule.cost.most() <= rule.quota.burst(), "{} can never admit", rule.name);
    }
    let identity = TableIdentity { secret: Secret::new([1; 16]), table_id: 1 };
    drop(Limiter::new(rules, identity, None));
}
