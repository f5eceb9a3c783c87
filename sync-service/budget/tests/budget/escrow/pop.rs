//! A POP's side of a strict key, as `weir_budget::escrow` asks for it.

use weir_budget::escrow::Claim;
use weir_protocol::messages::Leased;

/// A report on its way: what it claims, and when it was made by the POP's clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Report {
    pub(crate) claim: Claim,
    pub(crate) made_us: u64,
}

/// One key at one POP. Times are by the POP's own clock, in microseconds.
#[derive(Debug)]
pub(crate) struct Pop {
    pub(crate) epoch: u64,
    pub(crate) admitted: u64,
    charged: u64,
    /// Until when tokens may be spent; `None` before the first answer.
    pub(crate) until_us: Option<u64>,
}

impl Pop {
    pub(crate) fn new(epoch: u64) -> Self {
        Self { epoch, admitted: 0, charged: 0, until_us: None }
    }

    /// Tokens it may spend.
    pub(crate) fn tokens(&self, now_us: u64) -> u64 {
        if self.until_us.is_some_and(|until| now_us < until) { self.charged - self.admitted } else { 0 }
    }

    /// Tokens debited for its epoch, as far as it knows.
    pub(crate) fn acquired(&self) -> u32 {
        u32::try_from(self.charged).unwrap()
    }

    /// Spends up to `tokens`; returns the number spent.
    pub(crate) fn spend(&mut self, now_us: u64, tokens: u64) -> u64 {
        let spent = tokens.min(self.tokens(now_us));
        self.admitted += spent;
        spent
    }

    /// A report that wants more. If the lease has ended, it begins the epoch `new_epoch`.
    pub(crate) fn report(&mut self, now_us: u64, ahead: u32, new_epoch: u64) -> Report {
        if self.until_us.is_some_and(|until| until <= now_us) {
            *self = Self::new(new_epoch);
        }
        let claim = Claim::of(self.epoch, self.admitted, ahead);
        Report { claim, made_us: now_us }
    }

    /// Gives its epoch back, and with it all its tokens.
    pub(crate) fn give_back(&mut self, now_us: u64, new_epoch: u64) -> Report {
        let old = std::mem::replace(self, Self::new(new_epoch));
        let claim = Claim::of(old.epoch, old.admitted, 0);
        Report { claim, made_us: now_us }
    }

    /// Takes the answer to `report` at `now_us`.
    pub(crate) fn observe(&mut self, now_us: u64, report: &Report, lease: Leased, new_epoch: u64) {
        let is_over = self.until_us.is_some_and(|until| until <= now_us);
        if report.claim.epoch != self.epoch || is_over {
            return;
        }
        if lease.lease_ms == 0 {
            *self = Self::new(new_epoch);
            return;
        }
        let until_us = report.made_us + u64::from(lease.lease_ms) * 1_000;
        if until_us <= now_us {
            return;
        }
        self.charged = self.charged.max(lease.charged);
        self.until_us = self.until_us.max(Some(until_us));
    }
}
