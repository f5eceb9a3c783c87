//! The limiter of one worker, and what it knows of the request at hand.

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
    /// Counts the rule sets that were in force; a rule's index means something in one of them.
    pub(super) generation: u32,
    pub(super) secret: Secret,
    pub(super) keys: Keys,
    /// What hides the parts of keys that leave the POP.
    pub(super) fleet_secret: FleetSecret,
    pub(super) deny_cache: DenyCache,
    pub(super) watch: WatchList,
    /// The budget loop; none where the POP is on its own.
    pub(super) exchange: Option<Exchange>,
    /// How the request at hand stands with weir-sync.
    pub(super) touch: Touch,
    /// What the last of them brought for its request alone.
    pub(super) in_hand: Vec<InHand>,
    /// What of that is over and not said to be.
    pub(super) ended: Vec<Ended>,
    pub(super) counters: Counters,
    pub(super) afterwards: Vec<Afterwards>,
    /// Of the request decided last; none before the first, while one is decided, and since the rules were replaced.
    pub(super) scratch: Option<Box<Scratch>>,
}

/// Whether weir-sync was asked to debit a strict rule's budget for the request at hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    NotYet,
    Answered,
    /// It did not answer, or has no store.
    InVain,
}

/// In touch with weir-sync, or not: looked up once for each decision that looks at the table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Touch {
    /// Bounded rules go by their `when_unsynced`.
    pub(super) is_lost: bool,
    /// Strict rules do.
    pub(super) is_lost_for_strict: bool,
    pub(super) asked: Asked,
}

/// Room that is used again for every request.
#[derive(Default)]
pub(super) struct Scratch {
    pub(super) values: Values,
    /// Conditions that the request may meet.
    pub(super) conditions: Bits,
    /// Rules that it does.
    pub(super) met: Vec<u16>,
    /// Those of them that are tiers without a limit.
    pub(super) unlimited: Vec<u16>,
    pub(super) hits: Vec<Hit>,
    /// Hits of rules that are not enforced for their keys.
    pub(super) shadow: Vec<Hit>,
    pub(super) loaded: Vec<Loaded>,
    /// Slots to read into.
    pub(super) rooms: Vec<Slot>,
}

/// A rule that counts the request, and the bucket it names.
pub(super) struct Hit {
    pub(super) rule: u16,
    pub(super) key: KeyId,
    pub(super) tag: Tag,
    pub(super) slot: u32,
    /// Tokens that the request takes.
    pub(super) cost: u32,
    /// Whether the rule's word does not count for this key.
    pub(super) is_shadow: bool,
    /// Whether the watch list has counted this request.
    pub(super) watched: bool,
    /// Whether the key's admit ratio has spoken on this request.
    pub(super) thinned: bool,
    pub(super) judged: Judged,
}

impl Limiter {
    /// A limiter for `rules`. Without a `reporter` nothing is ever reported, and keys are hidden by this process's
    /// secret; with one, until [`Limiter::hide_keys_with`] says otherwise, by none.
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

    /// Hashes the parts of keys with `secret`, which is the same at every POP. To be called before any decision.
    pub fn hide_keys_with(&mut self, secret: FleetSecret) {
        self.fleet_secret = secret;
        self.keys.forget();
    }

    /// The rules in force.
    pub fn rules(&self) -> &RuleSet {
        &self.rules
    }

    /// What was counted since it was last taken.
    pub fn counters(&mut self) -> &mut Counters {
        &mut self.counters
    }

    pub(super) fn rule(&self, rule: u16) -> Option<&Rule> {
        self.rules.rules().get(usize::from(rule))
    }
}

/// Spreads hashes evenly over slots, without a division (Lemire, "Fast random integer generation in
/// an interval", 2019, section 3).
pub(super) fn slot_of(place: u64, count: u32) -> u32 {
    let spread = (u128::from(place) * u128::from(count)) >> 64;
    u32::try_from(spread).unwrap_or(0)
}
