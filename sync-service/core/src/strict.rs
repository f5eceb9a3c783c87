//! What a strict rule's budget is: an escrow that refills, or a calendar's tally.

use crate::budget::BudgetId;
use crate::escrow::{Draw, Drawn, Escrow};
use crate::tally::Tally;
use weir_limiter::calendar::Calendar;

/// Names a strict budget in a store. A rule that becomes a quota of another calendar has another.
pub type StrictId = (Option<Calendar>, BudgetId);

/// The budget of one strict rule and key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Strict {
    /// A token bucket's.
    Escrow(Escrow),
    /// That of a calendar's quota.
    Tally(Tally),
}

impl Strict {
    /// The new budget that `draw` is for.
    pub fn of(draw: &Draw) -> Self {
        if draw.window.is_some() { Self::Tally(Tally::default()) } else { Self::Escrow(Escrow::default()) }
    }

    /// What `draw` is on.
    pub fn id(draw: &Draw) -> StrictId {
        (draw.window.map(|window| window.calendar), draw.id.clone())
    }

    /// Answers a draw that is for this kind of budget; one for the other finds a new one.
    pub fn draw(&mut self, now_us: u64, pop: &str, draw: &Draw) -> Drawn {
        match (&mut *self, &draw.window) {
            (Self::Escrow(escrow), None) => escrow.draw(now_us, pop, draw),
            (Self::Tally(tally), Some(_)) => tally.draw(now_us, pop, draw),
            _ => {
                *self = Self::of(draw);
                self.draw(now_us, pop, draw)
            }
        }
    }

    /// When it may be forgotten for another, on the store's clock in microseconds: a new one would be the same.
    pub fn full_us(&self) -> u64 {
        match self {
            Self::Escrow(escrow) => escrow.full_us(),
            Self::Tally(tally) => tally.expires_us(),
        }
    }

    /// When it is worth nothing any more, on the store's clock in microseconds.
    pub fn expires_us(&self) -> u64 {
        match self {
            Self::Escrow(escrow) => escrow.expires_us(),
            Self::Tally(tally) => tally.expires_us(),
        }
    }
}
