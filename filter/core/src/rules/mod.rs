//! Rules: what an operator writes (match, key, quota, behaviour), checked and made ready.
//!
//! [`parse`] reads configuration into a [`RuleSet`]; [`matching`] holds what a rule matches. A rule
//! set is made once, when configuration arrives; nothing on the request path parses or formats.

pub mod after;
pub mod algorithm;
pub mod matching;
pub mod mode;
mod parse;
pub mod penalty;

use alloc::string::String;
use alloc::vec::Vec;

use crate::address::Prefixes;
use crate::algorithm::Algorithm;
use crate::key::Secret;
use crate::quota::Quota;
use crate::reading::Errors;
use crate::request::Attributes;
use crate::sharing::{Sharing, WhenUnsynced};
use crate::wire::RULES_MAX;
use after::After;
use matching::Match;
use mode::Enforcement;
use penalty::Penalty;

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Its name, unique in the set: in headers, logs, metrics and the budget's name.
    pub name: String,
    /// Which requests it counts.
    pub matches: Match,
    /// What it counts by: the client's address, cut to these prefixes.
    pub key: Prefixes,
    /// How it counts.
    pub algorithm: Algorithm,
    /// How much it allows; of other algorithms than the token bucket, as near as a rate and a burst say it.
    pub quota: Quota,
    /// What a request costs, where only its response tells.
    pub after: Option<After>,
    /// Whether its word counts.
    pub enforcement: Enforcement,
    /// When a key is refused for longer than its quota asks.
    pub penalty: Option<Penalty>,
    /// How POPs share it.
    pub sharing: Sharing,
    /// What a POP does with it that has not heard of weir-sync for too long.
    pub when_unsynced: WhenUnsynced,
    /// What it answers.
    pub response: Response,
}

/// What a rule answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Response {
    /// The status of a limited request, 400 to 599.
    pub status: u16,
    /// Which families of headers it carries.
    pub headers: HeaderFamilies,
    /// Whether allowed responses carry the quota headers too.
    pub on_allowed: bool,
    /// How X-RateLimit-Reset counts.
    pub reset: Reset,
}

impl Default for Response {
    fn default() -> Self {
        let headers = HeaderFamilies { retry_after: true, ratelimit: true, x_ratelimit: true };
        Self { status: 429, headers, on_allowed: false, reset: Reset::Delta }
    }
}

/// Which families of headers a response carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeaderFamilies {
    /// `Retry-After` (RFC 9110, 10.2.3), on limited responses only.
    pub retry_after: bool,
    /// `RateLimit` and `RateLimit-Policy` (draft-ietf-httpapi-ratelimit-headers-10).
    pub ratelimit: bool,
    /// `X-RateLimit-Limit`, `-Remaining` and `-Reset`.
    pub x_ratelimit: bool,
}

/// How X-RateLimit-Reset counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reset {
    /// Seconds from now.
    Delta,
    /// Seconds since 1970.
    Epoch,
}

/// The rules of one configuration, in the order they were written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleSet {
    rules: Vec<Rule>,
    attributes: Attributes,
}

impl RuleSet {
    /// Reads the list at `place`; notes every error.
    pub fn parse(value: &serde_json::Value, place: &str, errors: &mut Errors) -> Option<Self> {
        let attributes = Attributes::default();
        parse::rules(value, place, errors).map(|rules| Self { rules, attributes })
    }

    /// The rules, in the order they were written.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// What the rules ask of a request.
    pub fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    /// A tag per rule that keeps the buckets of one key under several rules apart.
    ///
    /// It is made of what a bucket's content means (name, key, quota), so a rule that did not change
    /// keeps its buckets when others do, and one whose quota changed starts afresh.
    pub(crate) fn salts(&self, secret: &Secret) -> Vec<u64> {
        self.rules.iter().map(|rule| secret.hash(&rule.identity()).tag).collect()
    }
}

impl Rule {
    fn identity(&self) -> Vec<u8> {
        let mut bytes = self.name.as_bytes().to_vec();
        bytes.extend([0, self.key.ipv4, self.key.ipv6]);
        bytes.extend(self.quota.token_ns().to_le_bytes());
        bytes.extend(self.quota.burst().to_le_bytes());
        if !matches!(self.algorithm, Algorithm::TokenBucket(_)) {
            bytes.push(self.algorithm.number());
        }
        bytes
    }
}

// A report refers to a rule by a 16-bit index.
const _: () = assert!(RULES_MAX <= u16::MAX as usize);
