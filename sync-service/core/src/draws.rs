//! The strict keys of one report: what they draw, and the answers in the report's order.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use weir_limiter::calendar::Window;
use weir_limiter::wire::Allowance;
use weir_limiter::wire::Rule;

use crate::budget::BudgetId;
use crate::escrow::{Claim, Draw, Drawn, NO_LEASE};

/// A draw per strict budget that a report speaks of.
#[derive(Clone, Debug, Default)]
pub struct Draws {
    list: Vec<Draw>,
    known: BTreeMap<BudgetId, usize>,
    /// For each strict key, in order, where its answer goes.
    places: Vec<Place>,
}

/// Where the answer to a claim goes.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// The key's index in the report.
    key: usize,
    /// Its draw.
    draw: usize,
    /// Its claim in the draw.
    claim: usize,
}

impl Draws {
    /// Adds the claim of the report's key number `key`; keys are added in their order.
    pub fn add(&mut self, key: usize, id: BudgetId, rule: &Rule, lease_us: u64, claim: Claim) {
        let list = &mut self.list;
        let draw = *self.known.entry(id).or_insert_with_key(|id| {
            let window = rule.sharing.calendar.map(Window::unknown);
            list.push(Draw { id: id.clone(), quota: rule.quota, lease_us, window, claims: Vec::new() });
            list.len() - 1
        });
        let Some(at) = self.list.get_mut(draw) else { return };
        self.places.push(Place { key, draw, claim: at.claims.len() });
        at.claims.push(claim);
    }

    /// Looks up the windows of calendars' quotas at `unix_us` microseconds since 1970. Until then they are
    /// in none, and nothing is drawn on them.
    pub fn date(&mut self, unix_us: u64) {
        for window in self.list.iter_mut().filter_map(|draw| draw.window.as_mut()) {
            *window = window.calendar.window(unix_us);
        }
    }

    /// The draws.
    pub fn list(&self) -> &[Draw] {
        &self.list
    }

    /// How many keys they are of.
    pub fn keys_len(&self) -> usize {
        self.places.len()
    }

    /// The answers among the allowances of the other keys, in the report's order. Where nothing was
    /// drawn, because the store is out of reach, nothing is leased.
    pub fn among(&self, others: Vec<Allowance>, drawn: &[Drawn]) -> Vec<Allowance> {
        let mut all = Vec::with_capacity(others.len() + self.places.len());
        let mut others = others.into_iter();
        for place in &self.places {
            all.extend(others.by_ref().take(place.key.saturating_sub(all.len())));
            let lease = drawn.get(place.draw).and_then(|drawn| drawn.leases.get(place.claim));
            all.push(Allowance::Leased(*lease.unwrap_or(&NO_LEASE)));
        }
        all.extend(others);
        all
    }
}
