//! The limiter of one worker, and what it knows of the current request.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::identity::{Reporter, TableIdentity};
use crate::RuleIndex;
use crate::counters::Counters;
#[cfg(feature = "own_memory")]
use crate::decide::Plain;
use crate::decide::{Afterwards, Keys, RuleTerms, Scratch};
#[cfg(feature = "takes")]
use crate::fleet::Takes;
use crate::fleet::{Exchange, InHand, Own};
use crate::key::Secret;
use crate::local::{DenyCache, WatchList};
use crate::table::slot::{Slot, Tag};
use weir_rules::fleet_secret::FleetSecret;
use weir_rules::{Rule, RuleSet};

/// The limiter of one worker.
#[allow(clippy::struct_excessive_bools, reason = "each is a question that a decision asks")]
pub struct Limiter {
    /// Every limiter of a process may have the same.
    pub(crate) rules: Arc<RuleSet>,
    /// What decisions need of each rule.
    pub(crate) terms: Vec<RuleTerms>,
    /// Whether a rule tells clients that are let through their status.
    pub(crate) is_told: bool,
    /// Counts the rule sets that were in force; a rule's index is valid in one of them only.
    pub(crate) generation: u32,
    pub(crate) secret: Secret,
    pub(crate) keys: Keys,
    /// What hides the parts of keys that leave the POP.
    pub(crate) fleet_secret: FleetSecret,
    pub(crate) deny_cache: DenyCache,
    pub(crate) watch: WatchList,
    /// The budget loop; none if the POP is on its own.
    pub(crate) exchange: Option<Exchange>,
    /// Whether the POP is in touch with weir-sync, as far as the current request goes.
    pub(crate) touch: Touch,
    /// What the last draw brought for its own request.
    pub(crate) in_hand: Vec<InHand>,
    /// Keys that the store did not answer for in the last draw: for its own request, they are decided as unanswered.
    pub(crate) in_vain: Vec<Tag>,
    /// Whether a request can be held until its turn.
    pub(crate) may_hold: bool,
    /// Whether requests only ask, for now: their refusals are not held against them, and rules in shadow do not see them.
    pub(crate) only_asks: bool,
    /// Whether requests, for now, only say what has happened: their refusals are not held against them.
    pub(crate) is_booking: bool,
    /// Whether requests, for now, reserve what they take: their hosts say later what they cost.
    pub(crate) is_reserving: bool,
    /// Whether any request may: then what is refused may be there again at any time.
    pub(crate) may_reserve: bool,
    /// Epochs that one request drew for itself: it holds them, or they are not known to weir-sync as over.
    pub(crate) own: Vec<Own>,
    /// What requests take beside the store, if they may.
    #[cfg(feature = "takes")]
    pub(crate) takes: Option<Box<Takes>>,
    /// Where the jitter of the last refusal was dealt.
    pub(crate) dealt: u64,
    pub(crate) counters: Counters,
    pub(crate) afterwards: Vec<Afterwards>,
    /// Rules in shadow that would refuse the current request.
    pub(crate) would_refuse: Vec<RuleIndex>,
    /// From the last decision; none before the first one, during one, and after the rules were replaced.
    pub(crate) scratch: Option<Box<Scratch>>,
    /// A slot to read into, used again.
    pub(crate) room: Option<Slot>,
    /// What the quick path needs, if the rules are plain.
    #[cfg(feature = "own_memory")]
    pub(crate) plain: Option<Box<Plain>>,
}

/// Whether weir-sync was asked to debit a strict rule's budget for the current request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Drawn {
    NotYet,
    /// The answer was over when it came: the request draws again.
    Over,
    Answered,
    /// It did not answer, or has no store.
    InVain,
}

/// Whether the POP is in touch with weir-sync: looked up once in each decision that reads the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Touch {
    /// Bounded rules apply their `when_unsynced`.
    pub(crate) is_lost: bool,
    /// Strict rules do.
    pub(crate) is_lost_for_strict: bool,
    pub(crate) drawn: Drawn,
}

impl Touch {
    /// Whether the current request may draw on a budget.
    pub(crate) fn may_draw(self) -> bool {
        matches!(self.drawn, Drawn::NotYet | Drawn::Over)
    }
}

impl Limiter {
    /// A limiter for `rules`. Without a `reporter` nothing is ever reported, and keys are hidden with this process's
    /// secret; with one, they are hashed without a secret until [`Limiter::hide_keys_with`] gives one.
    pub fn new(rules: impl Into<Arc<RuleSet>>, identity: TableIdentity, reporter: Option<Reporter>) -> Self {
        let rules = rules.into();
        let (keys, terms) = RuleTerms::of(&rules, &identity.secret, reporter.is_some());
        Self {
            #[cfg(feature = "own_memory")]
            plain: Plain::of(&rules, &terms),
            counters: Counters::new(rules.rules().len()),
            is_told: terms.iter().any(|terms| terms.is_told),
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
            touch: Touch { is_lost: true, is_lost_for_strict: true, drawn: Drawn::NotYet },
            in_hand: Vec::new(),
            in_vain: Vec::new(),
            may_hold: true,
            only_asks: false,
            is_booking: false,
            is_reserving: false,
            may_reserve: false,
            own: Vec::new(),
            #[cfg(feature = "takes")]
            takes: None,
            dealt: 0,
            afterwards: Vec::new(),
            would_refuse: Vec::new(),
            scratch: None,
            room: None,
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

    pub(crate) fn rule(&self, rule: RuleIndex) -> Option<&Rule> {
        self.rules.rules().get(usize::from(rule))
    }
}
