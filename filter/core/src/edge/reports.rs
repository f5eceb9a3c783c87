//! Reports and their replies, and the worker's connectivity.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::effect::{Answered, Call, Effect, Level, Turn, Unread};
use super::shared::{Heard, SharedValue};
use super::site::{Site, turns_of};
use super::state::Edge;
use crate::fleet::Purpose;
use crate::fleet::ladder::{Ladder, Step};
use crate::limiter::Limiter;
use weir_wire::messages::{MESSAGE_BYTES_MAX, Message, REPORT_PATH, Status};
use weir_wire::time::Time;

/// Shortest interval of a POP's status reports, in milliseconds.
const STATUS_MS: u32 = 1_000;

impl Edge {
    /// Sends a report, if there is anything to report.
    pub(super) fn report(&mut self, turn: &mut Turn<'_>) {
        let Some(sync) = &self.sync else { return };
        let (site, now) = (&mut *turn.site, turn.now);
        note_heard(&mut self.limiter, site);
        if let Some(parted) = site.take_parted() {
            self.limiter.inherit(&parted, site, now);
        }
        let (interval_ms, timeout_ms) = (sync.interval_ms, sync.timeout_ms);
        let greeted = site.turn_to_greet(u64::from(interval_ms) * 1_000_000, now);
        let Some(mut report) = self.limiter.report(site, greeted.is_some(), now) else { return };
        report.status = greeted.and_then(|before| self.status(before, interval_ms, turn));
        turn.call(call(report.sequence, report.encode(), timeout_ms));
    }

    /// The POP's status, for the first greeting of each second; `before` is the time of the last greeting of
    /// any worker.
    fn status(&self, before: Time, interval_ms: u32, turn: &mut Turn<'_>) -> Option<Status> {
        let (site, now) = (&mut *turn.site, turn.now);
        let every_ms = interval_ms.max(STATUS_MS);
        let turn_at = |at: Time| at.as_nanos() / (u64::from(every_ms) * 1_000_000);
        if turn_at(before) == turn_at(now) {
            return None;
        }
        let (rules, of) = site.counted(turn_at(now));
        Some(Status {
            step: self.ladder(now).unwrap_or(Step::Fallback) as u8,
            unix_ms: site.unix_ns() / 1_000_000,
            module: env!("CARGO_PKG_VERSION").into(),
            blocked: site.blocked(),
            refusal: site.refusal(self.pushed.running.refused).unwrap_or_default(),
            every_ms: every_ms.saturating_mul(u32::try_from(turns_of(of)).unwrap_or(1)),
            rules,
        })
    }

    /// Handles the reply to call `number`, or its failure. Ignored if the call is not under way.
    #[inline(never)]
    pub fn answer(&mut self, number: u64, answer: Answered, site: &mut dyn Site, now: Time) -> Vec<Effect> {
        let now = self.clock.time(site, now);
        let mut turn = Turn::new(site, now);
        match self.limiter.purpose(number) {
            None => {}
            Some(Purpose::Report) => self.reported(number, answer, &mut turn),
            Some(Purpose::Rules(version)) => self.fetched(number, version, answer, &mut turn),
            // Replies to such calls go to `answer_request`. Here there is no request to decide.
            Some(Purpose::Draw) => self.limiter.draw_failed(number, turn.site, now),
        }
        self.keep_pace(&mut turn);
        turn.effects
    }

    fn reported(&mut self, sequence: u64, answer: Answered, turn: &mut Turn<'_>) {
        let taken_in = reply(answer).and_then(|body| {
            let applied = self.limiter.apply(sequence, &body, turn.site, turn.now);
            applied.map_err(|error| format!("weir-sync's answer is unreadable: {error}"))
        });
        if taken_in.is_ok() {
            self.share_what_was_heard(turn.site);
            // If the reply names a newer rule set, it is fetched now, not at the next tick.
            self.follow_rules(turn);
        } else if self.limiter.report_failed(sequence, turn.now) {
            turn.site.set_time(SharedValue::Missed, turn.now);
        }
        // Only a change is logged, not every failure.
        let trouble = taken_in.err();
        if self.trouble != trouble {
            match &trouble {
                Some(trouble) => {
                    turn.log(Level::Warn, format!("{trouble}; requests are decided locally until it works"));
                }
                None => turn.log(Level::Info, "weir-sync answers again"),
            }
            self.trouble = trouble;
        }
    }

    pub(super) fn share_what_was_heard(&self, site: &mut dyn Site) {
        let ladder = self.limiter.ladder();
        let heard_at = ladder.and_then(|ladder| Some((ladder.is_guessing(), ladder.heard_at()?)));
        if let Some((pops, (is_guess, at))) = self.limiter.pops().zip(heard_at) {
            site.set_heard(&Heard { pops, is_guess, at });
        }
    }

    /// The worker's connectivity at a [time](Edge::time) of the POP; none without weir-sync.
    pub fn ladder(&self, now: Time) -> Option<Step> {
        self.limiter.ladder().map(|ladder| ladder.step(now))
    }

    /// Logs the worker's connectivity, if that has changed.
    pub(super) fn log_step(&mut self, turn: &mut Turn<'_>) {
        let Some(step) = self.ladder(turn.now) else { return };
        if self.step.replace(step).is_none_or(|before| before == step) {
            return;
        }
        let is_guessing = self.limiter.ladder().is_some_and(Ladder::is_guessing);
        let (level, text) = match step {
            Step::Fresh => (Level::Info, "in touch with weir-sync"),
            Step::Stale if is_guessing => {
                (Level::Warn, "weir-sync does not know how many POPs there are: it divides the whole quota")
            }
            Step::Stale => (Level::Info, "weir-sync does not answer: grants hold until their leases end"),
            Step::Fallback => (Level::Warn, "weir-sync does not answer: each rule's when_unsynced decides"),
        };
        turn.log(level, text);
    }
}

/// The call that sends an encoded report.
pub(super) fn call(number: u64, body: Vec<u8>, timeout_ms: u32) -> Call {
    Call { number, path: REPORT_PATH.into(), body, timeout_ms }
}

/// Applies the last reply, or failure, of any other worker.
pub(super) fn note_heard(limiter: &mut Limiter, site: &mut dyn Site) {
    if let Some(Heard { pops, is_guess, at }) = site.heard() {
        limiter.note_heard(pops, is_guess, at);
    }
    limiter.note_missed(site.time(SharedValue::Missed).0);
}

/// The body of a reply to a report, or the reason why there is none.
pub(super) fn reply(answer: Answered) -> Result<Vec<u8>, String> {
    let size = match answer {
        Ok(body) if body.len() <= MESSAGE_BYTES_MAX => return Ok(body),
        Ok(body) => body.len(),
        Err(Unread::TooLarge(size)) => size,
        Err(Unread::Failed(trouble) | Unread::NotMade(trouble)) => return Err(trouble),
    };
    Err(too_large(size, MESSAGE_BYTES_MAX))
}

pub(super) fn too_large(size: usize, most: usize) -> String {
    format!("weir-sync's answer has {size} bytes, expected at most {most}")
}
