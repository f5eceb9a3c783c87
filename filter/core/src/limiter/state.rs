//! The limiter of one worker, and what it knows of the current request.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::afterwards::Afterwards;
use super::exchange::Exchange;
use super::in_hand::{Ended, InHand};
use super::judged::Judged;
use super::keys::{KeyId, Keys};
use super::reporter::{Reporter, TableIdentity};
use super::terms::Terms;
use crate::counters::Counters;
use crate::deny_cache::DenyCache;
use crate::key::Secret;
use crate::rule_index::RuleIndex;
use crate::slot::{Slot, Tag};
use crate::table::Loaded;
use crate::watch::WatchList;
use weir_rules::fleet_secret::FleetSecret;
use weir_rules::matching::Bits;
use weir_rules::request::Values;
use weir_rules::{Rule, RuleSet};

/// The limiter of one worker.
pub struct Limiter {
    pub(super) rules: RuleSet,
    /// What decisions need of each rule.
    pub(super) terms: Vec<Terms>,
    /// Counts the rule sets that were in force; a rule's index is valid in one of them only.
    pub(super) generation: u32,
    pub(super) secret: Secret,
    pub(super) keys: Keys,
    /// What hides the parts of keys that leave the POP.
    pub(super) fleet_secret: FleetSecret,
    pub(super) deny_cache: DenyCache,
    pub(super) watch: WatchList,
    /// The budget loop; none if the POP is on its own.
    pub(super) exchange: Option<Exchange>,
    /// Whether the POP is in touch with weir-sync, as far as the current request goes.
    pub(super) touch: Touch,
    /// What the last draw brought for its own request.
    pub(super) in_hand: Vec<InHand>,
    /// Epochs drawn for one request that are over, but not reported as over yet.
    pub(super) ended: Vec<Ended>,
    pub(super) counters: Counters,
    pub(super) afterwards: Vec<Afterwards>,
    /// From the last decision; none before the first one, during one, and after the rules were replaced.
    pub(super) scratch: Option<Box<Scratch>>,
}

/// Whether weir-sync was asked to debit a strict rule's budget for the current request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    NotYet,
    Answered,
    /// It did not answer, or has no store.
    InVain,
}

/// Whether the POP is in touch with weir-sync: looked up once in each decision that reads the table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Touch {
    /// Bounded rules apply their `when_unsynced`.
    pub(super) is_lost: bool,
    /// Strict rules do.
    pub(super) is_lost_for_strict: bool,
    pub(super) asked: Asked,
}

/// Buffers that every request uses again.
#[derive(Default)]
pub(super) struct Scratch {
    pub(super) values: Values,
    /// Conditions that the request may meet.
    pub(super) conditions: Bits,
    /// Rules that the request meets.
    pub(super) met: Vec<u16>,
    /// Those of them that are tiers without a limit.
    pub(super) unlimited: Vec<RuleIndex>,
    pub(super) hits: Vec<Hit>,
    /// Hits of rules that are not enforced for their keys.
    pub(super) shadow: Vec<Hit>,
    pub(super) loaded: Vec<Loaded>,
    /// Slots to read into.
    pub(super) rooms: Vec<Slot>,
}

/// A rule that counts the request, and the bucket it names.
pub(super) struct Hit {
    pub(super) rule: RuleIndex,
    pub(super) key: KeyId,
    pub(super) tag: Tag,
    pub(super) slot: u32,
    /// Tokens that the request takes.
    pub(super) cost: u32,
    /// Whether the rule is in shadow for this key.
    pub(super) is_shadow: bool,
    /// Whether the watch list has counted this request already.
    pub(super) watched: bool,
    /// Whether the key's admit ratio was already applied to this request.
    pub(super) thinned: bool,
    pub(super) judged: Judged,
}

impl Limiter {
    /// A limiter for `rules`. Without a `reporter` nothing is ever reported, and keys are hidden with this process's
    /// secret; with one, they are hashed without a secret until [`Limiter::hide_keys_with`] gives one.
    pub fn new(rules: RuleSet, identity: TableIdentity, reporter: Option<Reporter>) -> Self {
        let (keys, terms) = Terms::of(&rules, &identity.secret, reporter.is_some());
        Self {
            counters: Counters::new(rules.rules().len()),
            terms,
            rules,
            generation: 0,
            secret: identity.secret,
            keys,
            fleet_secret: if reporter.is_some() {
                FleetSecret::UNKEYED
            } else {
                identity.secret.on_its_own()
            },
            deny_cache: DenyCache::new(),
            watch: WatchList::default(),
            exchange: reporter.map(|reporter| Exchange::new(reporter, identity.table_id)),
            touch: Touch { is_lost: true, is_lost_for_strict: true, asked: Asked::NotYet },
            in_hand: Vec::new(),
            ended: Vec::new(),
            afterwards: Vec::new(),
            scratch: None,
        }
    }

    /// Hashes the parts of keys with `secret`, which is the same at every POP. Call it before any decision.
    pub fn hide_keys_with(&mut self, secret: FleetSecret) {
        self.fleet_secret = secret;
        self.keys.forget();
    }

    /// The rules in force.
    pub fn rules(&self) -> &RuleSet {
        &self.rules
    }

    /// What was counted since the counts were last taken.
    pub fn counters(&mut self) -> &mut Counters {
        &mut self.counters
    }

    pub(super) fn rule(&self, rule: RuleIndex) -> Option<&Rule> {
        self.rules.rules().get(usize::from(rule))
    }
}

/// Spreads hashes evenly over slots, without a division (Lemire, "Fast random integer generation in
/// an interval", 2019, section 3).
pub(super) fn slot_of(place: u64, count: u32) -> u32 {
    let spread = (u128::from(place) * u128::from(count)) >> 64;
    u32::try_from(spread).unwrap_or(0)
}
