//! Named tokens and their scopes.

use std::collections::HashMap;
use std::fs;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

use subtle::ConstantTimeEq as _;

use crate::config::values::{self, Secret, TokenSource};

const TOKENS_MAX: usize = 20_000;
const NAME_BYTES_MAX: usize = 64;

/// Scope of a token, as stated by its line in a file.
pub(crate) trait Scope: Sized {
    /// Name of a token whose line contains only the token.
    const NAME: &'static str;
    /// Format of a line, for error messages.
    const LINE: &'static str;
    /// Scope of a token whose line contains only the token.
    fn whole() -> Self;
    /// Parses a line's second word. The error states what was expected.
    fn read(text: &str) -> Result<Self, String>;
}

/// POPs that a token may report for: a list of names, each of which may end in `*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PopPatterns(String);

impl PopPatterns {
    /// Exactly these names, or `None` if `names` is empty. A name may neither contain a comma nor end in `*`.
    pub(crate) fn of_names(names: &[&str]) -> Option<Self> {
        (!names.is_empty()).then(|| Self(names.join(",")))
    }

    pub(crate) fn covers(&self, pop: &str) -> bool {
        self.0.split(',').any(|pattern| match pattern.strip_suffix('*') {
            Some(start) => pop.starts_with(start),
            None => pop == pattern,
        })
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Scope for PopPatterns {
    const NAME: &'static str = "pops";
    const LINE: &'static str =
        "`TOKEN`, or `NAME POPS TOKEN` as in `fra-2026 fra1,fra2 TOKEN` or `emea fra*,ams* TOKEN`";

    fn whole() -> Self {
        Self("*".into())
    }

    fn read(text: &str) -> Result<Self, String> {
        let fits = |pattern: &str| !pattern.is_empty() && !pattern.strip_suffix('*').unwrap_or(pattern).contains('*');
        let fits = text.split(',').all(fits);
        let expected = "expected names of POPs, separated by commas, each of which may end in one `*`, found";
        fits.then(|| Self(text.into())).ok_or_else(|| format!("{expected} `{text}`"))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// May read the rule set, its versions and the state of the fleet.
    Read,
    /// May also change the rule set.
    Write,
}

impl Role {
    /// Name in files of tokens.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
        }
    }
}

impl Scope for Role {
    const NAME: &'static str = "admin";
    const LINE: &'static str = "`TOKEN`, or `NAME ROLE TOKEN` as in `alice write TOKEN` or `dashboard read TOKEN`";

    fn whole() -> Self {
        Self::Write
    }

    fn read(text: &str) -> Result<Self, String> {
        match text {
            "read" => Ok(Self::Read),
            "write" => Ok(Self::Write),
            _ => Err(format!("expected the role `read` or `write`, found `{text}`")),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GatewayApi {
    /// Checks against the fleet's rules.
    Check,
    /// Checks against limits that the caller names.
    Limit,
}

impl GatewayApi {
    /// Name in files of tokens.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Check => "check",
            Self::Limit => "limit",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GatewayApis(pub(super) &'static [GatewayApi]);

impl Scope for GatewayApis {
    const NAME: &'static str = "check";
    const LINE: &'static str = "`TOKEN`, or `NAME ROLE TOKEN` as in `orders check TOKEN`, `jobs limit TOKEN` or `api \
        check,limit TOKEN`";

    /// Checks by rule only. Permission to name limits must be given explicitly.
    fn whole() -> Self {
        Self(&[GatewayApi::Check])
    }

    fn read(text: &str) -> Result<Self, String> {
        match text {
            "check" => Ok(Self(&[GatewayApi::Check])),
            "limit" => Ok(Self(&[GatewayApi::Limit])),
            "check,limit" => Ok(Self(&[GatewayApi::Check, GatewayApi::Limit])),
            _ => Err(format!("expected the role `check`, `limit` or `check,limit`, found `{text}`")),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credential<S> {
    /// Name, for logs and for the list of rule set versions.
    pub name: String,
    pub scope: S,
}

/// Set of tokens. Several tokens may have the same scope.
#[derive(Debug)]
pub(crate) struct Credentials<S> {
    /// Randomly keyed, so no client can choose a token whose hash collides with another's.
    hasher: RandomState,
    by_hash: HashMap<u64, (Secret, Arc<Credential<S>>)>,
}

impl<S: Scope> Credentials<S> {
    /// Reads the tokens of `source`. An error names the file and the line.
    pub(crate) fn read(source: &TokenSource) -> Result<Self, String> {
        let mut tokens = Self { hasher: RandomState::new(), by_hash: HashMap::new() };
        match source {
            TokenSource::None => {}
            TokenSource::Given(secret) => {
                tokens.add(secret.clone(), Credential { name: S::NAME.into(), scope: S::whole() });
            }
            TokenSource::File(path) => {
                let text = fs::read_to_string(path).map_err(|error| format!("cannot read {path}: {error}"))?;
                for (index, line) in text.lines().map(str::trim).enumerate() {
                    let is_comment = line.is_empty() || line.starts_with('#');
                    let read = if is_comment { Ok(()) } else { tokens.read_line(line) };
                    read.map_err(|wrong| format!("{path}:{}: {wrong}", index + 1))?;
                }
                if tokens.len() == 0 {
                    return Err(format!("{path}: expected a token on each line, {}, found none", S::LINE));
                }
            }
        }
        Ok(tokens)
    }

    fn read_line(&mut self, line: &str) -> Result<(), String> {
        let words: Vec<_> = line.split_whitespace().collect();
        let (secret, credential) = match *words {
            [secret] => (secret, Credential { name: S::NAME.into(), scope: S::whole() }),
            [name, scope, secret] => (secret, Credential { name: read_name(name)?, scope: S::read(scope)? }),
            // The error does not quote the words: one of them is a secret.
            _ => return Err(format!("expected {}, found {} words", S::LINE, words.len())),
        };
        let secret = values::token(secret)?;
        if self.by_hash.len() == TOKENS_MAX {
            return Err(format!("expected at most {TOKENS_MAX} tokens"));
        }
        self.add(secret, credential).ok_or_else(|| "this token is in the file already".to_owned())
    }

    /// Adds a token. Returns `None` if it is already there.
    fn add(&mut self, secret: Secret, credential: Credential<S>) -> Option<()> {
        let hash = self.hasher.hash_one(secret.expose().as_bytes());
        self.by_hash.insert(hash, (secret, Arc::new(credential))).is_none().then_some(())
    }

    /// Credential of the token `given`, if the set contains it. Takes the same time whichever bytes differ.
    pub(crate) fn find(&self, given: &[u8]) -> Option<&Arc<Credential<S>>> {
        let (secret, credential) = self.by_hash.get(&self.hasher.hash_one(given))?;
        bool::from(secret.expose().as_bytes().ct_eq(given)).then_some(credential)
    }

    pub(crate) fn len(&self) -> usize {
        self.by_hash.len()
    }

    pub(crate) fn overlaps<T: Scope>(&self, others: &Credentials<T>) -> bool {
        self.by_hash.values().any(|(secret, _)| others.find(secret.expose().as_bytes()).is_some())
    }
}

fn read_name(text: &str) -> Result<String, String> {
    let fits = text.len() <= NAME_BYTES_MAX
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-' | b'@'));
    // The error does not quote the text: if the words are in the wrong order, it is the secret.
    let expected = format!("expected a name first, at most {NAME_BYTES_MAX} of a-z, A-Z, 0-9, `.`, `_`, `-` and `@`");
    fits.then(|| text.to_owned()).ok_or(expected)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_covers_the_names_that_match_it() {
        for (pops, covered, others) in [
            ("fra1", &["fra1"][..], &["fra", "fra11", "FRA1", ""][..]),
            ("fra*", &["fra", "fra1", "frankfurt 2"], &["fr", "afra", "iad1"]),
            ("fra*,iad1", &["fra1", "iad1"], &["iad12", "ams", "f"]),
            ("*", &["", "fra1"], &[]),
        ] {
            let pops = PopPatterns::read(pops).unwrap();
            assert!(covered.iter().all(|pop| pops.covers(pop)), "{pops:?}");
            assert!(!others.iter().any(|pop| pops.covers(pop)), "{pops:?}");
        }
        for wrong in ["", ",", "fra1,", "*fra", "f*a", "fra**"] {
            assert!(PopPatterns::read(wrong).is_err(), "{wrong}");
        }
    }
}
