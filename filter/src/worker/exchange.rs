//! The worker's part of the budget loop: reports, draws, and what was heard of weir-sync.

use weir_limiter::config::SyncConfig;
use weir_limiter::ladder::{Ladder, Step};
use weir_limiter::limiter::{Draw, Limiter, Reporter};
use weir_limiter::wire::{POP_NAME_MAX, WireError};

use super::Worker;
use crate::host;
use crate::nginx;
use crate::shared::{self, Heard};

impl Worker {
    /// After a decision to wait: asks weir-sync, in the name of the request's context. The call's
    /// number, and what was asked; none where it cannot be asked.
    pub(crate) fn send_draw(&mut self) -> Option<(u32, Draw)> {
        let now = self.clock.now();
        let caller = self.caller.as_ref()?;
        let (report, draw) = self.limiter.draw(&mut self.table, now)?;
        match caller.send(&report) {
            Ok(call) => Some((call, draw)),
            Err(trouble) => {
                log::debug!("{trouble}");
                self.limiter.draw_failed(draw);
                None
            }
        }
    }

    /// Takes in the answer to a draw; whether the budgets were asked.
    pub(crate) fn drawn(&mut self, draw: Draw, body: &[u8]) -> bool {
        let now = self.clock.now();
        let drawn = self.limiter.drawn(draw, body, &mut self.table, now);
        self.share_what_was_heard();
        drawn.unwrap_or(false)
    }

    pub(crate) fn draw_failed(&mut self, draw: Draw) {
        self.limiter.draw_failed(draw);
    }

    pub(crate) fn draw_abandoned(&mut self, draw: Draw) {
        self.limiter.draw_abandoned(draw);
    }

    /// Sends what there is to report, if anything; the numbers of the call and of the report.
    pub(crate) fn send_report(&mut self, interval_ns: u64) -> Option<Result<(u32, u64), String>> {
        let now = self.clock.now();
        let caller = self.caller.as_ref()?;
        note_heard(&mut self.limiter);
        if let Some(parted) = shared::take_parted() {
            self.limiter.inherit(&parted, &self.table, now);
        }
        let greet = shared::is_my_turn_to_greet(now, interval_ns);
        let report = self.limiter.report(&mut self.table, greet, now)?;
        let sent = caller.send(&report);
        if sent.is_err() {
            self.limiter.report_failed(report.sequence);
        }
        Some(sent.map(|call| (call, report.sequence)))
    }

    /// Hands over what was counted, and leaves to the other workers what no report has said: this one ends. On nginx
    /// nothing is left, as workers end with their process.
    pub(crate) fn part(&mut self) {
        self.flush_metrics();
        if !nginx::IS_HOST {
            shared::leave(|left| self.limiter.leave(left));
        }
    }

    pub(crate) fn report_failed(&mut self, sequence: u64) {
        self.limiter.report_failed(sequence);
    }

    pub(crate) fn apply(&mut self, sequence: u64, reply: &[u8]) -> Result<(), WireError> {
        let now = self.clock.now();
        self.limiter.apply(sequence, reply, &mut self.table, now)?;
        self.share_what_was_heard();
        Ok(())
    }

    pub(super) fn share_what_was_heard(&self) {
        let ladder =
            self.limiter.ladder().and_then(|ladder| Some((ladder.is_guessing(), ladder.heard_at()?)));
        if let (Some(pops), Some((is_guess, at))) = (self.limiter.pops(), ladder) {
            shared::set_heard(&Heard { pops, is_guess, at });
        }
    }

    /// Shows, and where it changed logs, how well this worker is in touch with weir-sync.
    pub(super) fn show_step(&mut self) {
        let now = self.clock.now();
        let Some(step) = self.limiter.ladder().map(|ladder| ladder.step(now)) else { return };
        self.metrics.show(step);
        if self.step.replace(step).is_some_and(|before| before != step) {
            match step {
                Step::Fresh => log::info!("in touch with weir-sync"),
                Step::Stale if self.limiter.ladder().is_some_and(Ladder::is_guessing) => {
                    log::warn!(
                        "weir-sync does not know how many POPs the fleet has: it divides the whole quota"
                    );
                }
                Step::Stale => {
                    log::info!("weir-sync is silent: allowances hold while leases last");
                }
                Step::Fallback => log::warn!("weir-sync is silent: each rule's when_unsynced decides now"),
            }
        }
    }
}

/// What another worker has heard of weir-sync, if any has.
pub(super) fn note_heard(limiter: &mut Limiter) {
    match shared::heard() {
        Some(Heard { pops, is_guess: true, at }) => limiter.note_guessed(pops, at),
        Some(Heard { pops, is_guess: false, at }) => limiter.note_heard(pops, at),
        None => {}
    }
}

pub(super) fn reporter(sync: &SyncConfig) -> Result<Reporter, String> {
    let pop = sync.pop.clone().or_else(node_id).ok_or_else(|| {
        format!(
            "sync.pop: missing: expected this POP's name, because the host has no node id of 1 to \
             {POP_NAME_MAX} bytes to take instead"
        )
    })?;
    let worker = host::random().map_or_else(host::unix_ns, u64::from_le_bytes);
    Ok(Reporter { pop, worker })
}

/// The proxy's own name: Envoy's `node.id`, by its name of today or an older one.
fn node_id() -> Option<String> {
    let bytes = host::property("xds\0node\0id").or_else(|_| host::property("node\0id")).ok()?;
    String::from_utf8(bytes).ok().filter(|id| (1..=POP_NAME_MAX).contains(&id.len()))
}
