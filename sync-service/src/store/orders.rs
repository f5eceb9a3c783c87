//! Orders in a store: texts under names, each until a time. The store knows no more of them.
//!
//! They are apart from the rule sets, so that a new rule set keeps them. Whatever changes them, the end of one included, gives them
//! a new number: the one before it plus 1, or plus 2 while a canary runs (see [`Current::canary_edition`]). The first is the number of
//! milliseconds since 1970, as with rule sets, so that a store that has lost its data uses no number twice.

/// The most orders that are kept.
pub const ORDERS_MAX: usize = 1_000;

/// What is current at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Current {
    /// The version of the rule set; none if one was never put.
    pub version: Option<u64>,
    /// The number of the orders; 0 if there never was one.
    pub orders: u64,
    /// The number of the canary that runs; 0 if there is none.
    pub canary: u64,
}

impl Current {
    /// The number of the edition that they make; 0 without a rule set. A new version adds one to it, and so does each change of
    /// the orders: as both only grow, and are read at one moment, no two editions have the same. Without orders it is the
    /// version's.
    pub fn edition(self) -> u64 {
        self.version.map_or(0, |version| version.saturating_add(self.orders))
    }

    /// The number of the edition that the canary makes, if one runs: the next one. It stays free for that: while a canary runs,
    /// orders count by two, and so they do when it is taken back. If it is promoted, the version has the same content and number.
    pub fn canary_edition(self) -> Option<u64> {
        (self.canary > 0 && self.version.is_some()).then(|| self.edition().saturating_add(1))
    }
}

/// Until when an order is in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// For so many milliseconds from now, by the store's clock.
    In(u64),
    /// So many milliseconds since 1970.
    At(u64),
}

impl Until {
    /// When that is, in milliseconds since 1970, by a clock that says `now_ms`.
    pub fn by(self, now_ms: u64) -> u64 {
        match self {
            Self::In(ms) => now_ms.saturating_add(ms),
            Self::At(ms) => ms,
        }
    }
}

/// A change of the orders.
#[derive(Clone, Copy, Debug)]
pub enum Change<'a> {
    /// Puts one, in place of the one of that name if there is one.
    Put {
        /// Its name.
        name: &'a str,
        /// What it says.
        text: &'a str,
        /// When it ends.
        until: Until,
    },
    /// Drops the one of that name.
    Drop(&'a str),
}

/// What became of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is done. So is no change at all.
    Done,
    /// There are [`ORDERS_MAX`] others: nothing was put.
    Full,
    /// There is none of that name to drop.
    Missing,
}

/// An order that is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Its name.
    pub name: String,
    /// The number that the orders got when it was put.
    pub id: u64,
    /// When it was put, in milliseconds since 1970, by the store's clock.
    pub at_ms: u64,
    /// When it ends.
    pub until_ms: u64,
    /// What it says.
    pub text: String,
}

/// The orders, and the rule set, of one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Orders {
    /// Which they are.
    pub current: Current,
    /// When that was, in milliseconds since 1970, by the store's clock.
    pub now_ms: u64,
    /// What became of the change.
    pub outcome: Outcome,
    /// All that have not ended, the oldest first.
    pub kept: Vec<Kept>,
}
