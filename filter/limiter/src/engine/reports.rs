//! Reports and their replies, and the worker's connectivity.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::engine::effects::{CallResult, Effect, EngineCall, LogLevel, SyncCall, Unread};
use crate::engine::host::{Host, turns_of};
use crate::engine::shared::{SharedValue, SyncContact};
use crate::engine::state::Engine;
use crate::limiter::Limiter;
use crate::sync::connectivity::Connectivity;
use crate::sync::{CallPurpose, gather, inherit};
use crate::table::slot::Tag;
use weir_protocol::messages::{MESSAGE_BYTES_MAX, Message, REPORT_PATH, StatusReport};
use weir_protocol::time::Time;

/// Shortest interval of a POP's status reports, in milliseconds.
const STATUS_MS: u32 = 1_000;

impl Engine {
    /// Sends a report, if there is anything to report.
    pub(super) fn report(&mut self, turn: &mut EngineCall<'_>) {
        let Some(sync) = &self.sync else { return };
        let (host, now) = (&mut *turn.host, turn.now);
        record_reply(&mut self.limiter, host);
        if let Some(handover) = host.take_handover() {
            inherit(&mut self.limiter, &handover, host, now);
        }
        let (interval_ms, timeout_ms) = (sync.interval_ms, sync.timeout_ms);
        let greeted = host.turn_to_greet(u64::from(interval_ms) * 1_000_000, now);
        let Some(mut report) = self.limiter.report(host, greeted.is_some(), now) else { return };
        report.status = greeted.and_then(|before| self.status(before, interval_ms, turn));
        turn.effects.push(Effect::Call(call(report.sequence, report.encode(), timeout_ms)));
    }

    /// The POP's status, for the first greeting of each second; `before` is the time of the last one of any worker.
    fn status(&self, before: Time, interval_ms: u32, turn: &mut EngineCall<'_>) -> Option<StatusReport> {
        let (host, now) = (&mut *turn.host, turn.now);
        let every_ms = interval_ms.max(STATUS_MS);
        let turn_at = |at: Time| at.as_nanos() / (u64::from(every_ms) * 1_000_000);
        if turn_at(before) == turn_at(now) {
            return None;
        }
        let (rules, of) = host.counted(turn_at(now));
        Some(StatusReport {
            step: self.connectivity(now).unwrap_or(Connectivity::Fallback) as u8,
            unix_ms: host.unix_ns() / 1_000_000,
            module: env!("CARGO_PKG_VERSION").into(),
            blocked: host.blocked(),
            refusal: host.refusal(self.pushed.running.refused).unwrap_or_default(),
            every_ms: every_ms.saturating_mul(u32::try_from(turns_of(of)).unwrap_or(1)),
            rules,
        })
    }

    /// Handles the reply to call `number`, or its failure. Ignored if the call is not under way.
    #[inline(never)]
    pub fn answer(&mut self, number: u64, answer: CallResult, host: &mut dyn Host, now: Time) -> Vec<Effect> {
        let now = self.clock.time(host, now);
        let mut turn = EngineCall::new(host, now);
        match self.limiter.sync.as_ref().and_then(|client| client.purpose(number)) {
            None => {}
            Some(CallPurpose::Report) => self.reported(number, answer, &mut turn),
            Some(CallPurpose::Rules(version)) => self.fetched(number, version, answer, &mut turn),
            // Replies to such calls go to `answer_request`. Here there is no request to decide.
            Some(CallPurpose::Acquire) => self.limiter.acquire_failed(number, turn.host, now),
        }
        self.keep_pace(&mut turn);
        turn.effects
    }

    fn reported(&mut self, sequence: u64, answer: CallResult, turn: &mut EngineCall<'_>) {
        let taken_in = reply(answer).and_then(|body| {
            let applied = self.limiter.apply(sequence, &body, turn.host, turn.now);
            applied.map_err(|error| format!("weir-sync's answer is unreadable: {error}"))
        });
        if taken_in.is_ok() {
            self.share_contact(turn.host);
            // If the reply names a newer rule set, it is fetched now, not at the next tick.
            self.follow_rules(turn);
        } else if self.limiter.report_failed(sequence, turn.now) {
            turn.host.set_time(SharedValue::Missed, turn.now);
        }
        // Only a change is logged, not every failure.
        let trouble = taken_in.err();
        if self.trouble != trouble {
            match &trouble {
                Some(trouble) => {
                    turn.log(LogLevel::Warn, format!("{trouble}; requests are decided locally until it works"));
                }
                None => turn.log(LogLevel::Info, "weir-sync answers again"),
            }
            self.trouble = trouble;
        }
    }

    pub(super) fn share_contact(&self, host: &mut dyn Host) {
        let Some(client) = &self.limiter.sync else { return };
        if let Some(at) = client.connectivity.last_reply_at {
            let is_guess = client.connectivity.is_guessing;
            host.set_contact(&SyncContact { pops: client.pops, is_guess, at });
        }
    }

    /// The worker's connectivity at a [time](Engine::time) of the POP; none without weir-sync.
    pub fn connectivity(&self, now: Time) -> Option<Connectivity> {
        self.limiter.sync.as_ref().map(|client| client.connectivity.step(now))
    }

    /// Logs the worker's connectivity, if that has changed.
    pub(super) fn log_step(&mut self, turn: &mut EngineCall<'_>) {
        let Some(step) = self.connectivity(turn.now) else { return };
        if self.step.replace(step).is_none_or(|before| before == step) {
            return;
        }
        let is_guessing = self.limiter.sync.as_ref().is_some_and(|client| client.connectivity.is_guessing);
        let (level, text) = match step {
            Connectivity::Fresh => (LogLevel::Info, "in touch with weir-sync"),
            Connectivity::Stale if is_guessing => {
                (LogLevel::Warn, "weir-sync does not know how many POPs there are: it divides the whole quota")
            }
            Connectivity::Stale => (LogLevel::Info, "weir-sync does not answer: grants hold until their leases end"),
            Connectivity::Fallback => (LogLevel::Warn, "weir-sync does not answer: each rule's on_sync_loss decides"),
        };
        turn.log(level, text);
    }
}

/// The call that sends an encoded report.
pub(super) fn call(number: u64, body: Vec<u8>, timeout_ms: u32) -> SyncCall {
    SyncCall { number, path: REPORT_PATH.into(), body, timeout_ms }
}

/// Applies the last reply, or failure, of any other worker.
pub(super) fn record_reply(limiter: &mut Limiter, host: &mut dyn Host) {
    let Some(client) = &mut limiter.sync else { return };
    if let Some(SyncContact { pops, is_guess, at }) = host.contact() {
        client.observe(pops, is_guess, at);
    }
    client.connectivity.miss(host.time(SharedValue::Missed).0);
}

/// The body of a reply to a report, or the reason why there is none.
pub(super) fn reply(answer: CallResult) -> Result<Vec<u8>, String> {
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

// One engine that reports for all workers of a program, where these share its memory. Its host gives it no request.
// Before each of its ticks that reports, it gathers from each worker; and once more before the workers tick, so that
// the demand in between is in its next report. After each of its ticks and replies, the workers drop the cached
// refusals of the keys that changed.

impl Engine {
    /// Makes this the reporter.
    pub fn become_reporter(&mut self) {
        self.limiter.local_cache.record_forgotten();
    }

    /// True if its next tick reports.
    pub fn is_about_to_report(&self) -> bool {
        self.pace.ticks.wrapping_add(1).is_multiple_of(self.pace.ticks_per_interval.max(1))
    }

    /// Takes over the unreported keys of this worker. Keys without room, and those of strict rules, are reported at the
    /// worker's own tick.
    pub fn gather(&mut self, worker: &mut Self, now: Time) {
        gather(&mut self.limiter, &mut worker.limiter, self.clock.peek(now));
    }

    /// Takes the keys whose state was changed by replies to the reporter.
    pub fn take_forgotten(&mut self) -> Vec<Tag> {
        self.limiter.local_cache.take_forgotten()
    }

    /// Drops this worker's cached refusals of these keys.
    pub fn forget_denials(&mut self, tags: &[Tag]) {
        for tag in tags {
            self.limiter.local_cache.forget(*tag);
        }
    }
}
