//! The exchange with weir-sync: reports and their replies, the worker's connectivity, and the fleet's rule set, which
//! one worker fetches, shares with the others, and puts into force.
//!
//! The rules in force, at first those of the plugin configuration, stay until a usable new set has arrived. A version
//! that cannot be fetched is retried; one that cannot be used is refused for good. Later workers start with the
//! pushed version.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::mem;

use super::effects::{ANSWER_BYTES_MAX, CallResult, Effect, EngineCall, LogLevel, RuleReplies, SyncCall, Unread};
use super::host::{Host, PushedVersions, SharedValue};
use super::state::{Engine, record_reply, texts};
use crate::counters::{Counters, turns_of};
use crate::sync::connectivity::Connectivity;
use crate::sync::{CallPurpose, gather, inherit};
use crate::table::slot::Tag;
use weir_protocol::messages::{
    MESSAGE_BYTES_MAX, Message, REFUSAL_MAX, REPORT_PATH, RULES_PATH, RunningRules, StatusReport,
};
use weir_protocol::time::Time;
use weir_rules::{RuleSet, document};

/// Minimum interval of a POP's status reports, in milliseconds.
const STATUS_MS: u32 = 1_000;

impl Engine {
    pub(super) fn report(&mut self, turn: &mut EngineCall<'_>) {
        let Some(sync) = &self.sync else { return };
        let (host, now) = (&mut *turn.host, turn.now);
        record_reply(&mut self.limiter, host);
        if let Some(handover) = host.take_handover() {
            inherit(&mut self.limiter, &handover, host.slots(), now);
        }
        let (interval_ms, timeout_ms) = (sync.interval_ms, sync.timeout_ms);
        let greeted = host.turn_to_greet(u64::from(interval_ms) * 1_000_000, now);
        let Some(mut report) = self.limiter.report(host.slots(), greeted.is_some(), now) else { return };
        report.status = greeted.and_then(|before| self.status(before, interval_ms, turn));
        turn.effects.push(Effect::Call(call(report.sequence, report.encode(), timeout_ms)));
    }

    /// The POP's status, for the first greeting of each second. `before` is the time of any worker's last greeting.
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

    /// Handles the reply to call `number`, or its failure. Ignored unless the call is under way.
    #[inline(never)]
    pub fn answer(&mut self, number: u64, answer: CallResult, host: &mut dyn Host, now: Time) -> Vec<Effect> {
        let now = self.clock.time(host, now);
        let mut turn = EngineCall::new(host, now);
        match self.limiter.sync.as_ref().and_then(|client| client.calls.get(number)).map(|call| call.purpose) {
            None => {}
            Some(CallPurpose::Report) => self.reported(number, answer, &mut turn),
            Some(CallPurpose::Rules(version)) => self.fetched(number, version, answer, &mut turn),
            // Replies to such calls go to `answer_request`. Here there is no request to decide.
            Some(CallPurpose::Acquire) => self.limiter.acquire_failed(number, turn.host.slots(), now),
        }
        self.keep_pace(&mut turn);
        turn.effects
    }

    fn reported(&mut self, sequence: u64, answer: CallResult, turn: &mut EngineCall<'_>) {
        let taken_in = reply(answer).and_then(|body| {
            let applied = self.limiter.apply(sequence, &body, turn.host.slots(), turn.now);
            applied.map_err(|error| format!("weir-sync's answer is unreadable: {error}"))
        });
        if taken_in.is_ok() {
            self.share_contact(turn.host);
            // If the reply names a newer rule set, it is fetched now, not at the next tick.
            self.follow_rules(turn);
        } else if self.limiter.report_failed(sequence, turn.now) {
            turn.host.set_time(SharedValue::Missed, turn.now);
        }
        // Only changes are logged, not every failure.
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
            host.set_contact(client.pops, client.connectivity.is_guessing, at);
        }
    }

    /// The worker's connectivity at a [time](Engine::time) of the POP; `None` without weir-sync.
    pub fn connectivity(&self, now: Time) -> Option<Connectivity> {
        self.limiter.sync.as_ref().map(|client| client.connectivity.step(now))
    }

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

pub(super) fn call(number: u64, body: Vec<u8>, timeout_ms: u32) -> SyncCall {
    SyncCall { number, path: REPORT_PATH.into(), body, timeout_ms }
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

fn too_large(size: usize, most: usize) -> String {
    format!("weir-sync's answer has {size} bytes, expected at most {most}")
}

// Pushed rule sets.

/// Maximum time-out of the fetch of a rule set, in milliseconds.
const FETCH_TIMEOUT_MS_MAX: u32 = 5_000;
/// Time after which a fetch counts as lost, in nanoseconds, because its worker ended or its host dropped it.
const FETCH_NS_MAX: u64 = (FETCH_TIMEOUT_MS_MAX as u64 + 1_000) * 1_000_000;

/// Delay of a condition's end here, in milliseconds. weir-sync, whose clock counts, first pushes rules without it.
const END_GRACE_MS: u64 = 1_000;

impl Engine {
    /// Ends the conditions of the rules in force that have expired by the wall clock.
    pub(super) fn end_conditions(&mut self, turn: &mut EngineCall<'_>) {
        let Some(end_ms) = self.pushed.next_end_ms else { return };
        let now_ms = (turn.host.unix_ns() / 1_000_000).saturating_sub(END_GRACE_MS);
        if now_ms < end_ms {
            return;
        }
        self.limiter.end_conditions(now_ms);
        self.pushed.next_end_ms = self.limiter.rules().next_end_ms();
        turn.log(LogLevel::Info, "bans, allows or other conditions of the rule set have ended");
    }

    /// Takes the rule set that another worker fetched, or fetches it if it is this worker's turn.
    pub(super) fn follow_rules(&mut self, turn: &mut EngineCall<'_>) {
        self.take_shared_rules(turn);
        self.end_conditions(turn);
        let (Some(client), now) = (&mut self.limiter.sync, turn.now) else { return };
        let version = client.versions.wanted;
        let RunningRules { version: running, refused } = self.pushed.running;
        let since = client.calls.fetching_since();
        let is_fetching = since.is_some_and(|since| now.nanos_since(since) < FETCH_NS_MAX);
        if version == 0 || version == running || version == refused || is_fetching {
            return;
        }
        if turn.host.is_my_turn_to_fetch(FETCH_NS_MAX, now) {
            let number = client.begin_fetch(version, now);
            self.pushed.began_at = now;
            // Waits for a reply that takes twice as long as usual.
            let answers_ms = client.answers_take_ns.map_or(0, |ns| ns / 1_000_000);
            let first_ms = answers_ms.max(self.pace.interval_ms.into()).saturating_mul(2);
            let timeout_ms = doubled_ms(first_ms, self.pushed.failed.saturating_sub(1));
            let path = format!("{RULES_PATH}?version={version}");
            turn.effects.push(Effect::Call(SyncCall { number, path, body: Vec::new(), timeout_ms }));
        }
    }

    /// Takes the rule set that another worker fetched, if it is new.
    pub(super) fn take_shared_rules(&mut self, turn: &mut EngineCall<'_>) {
        if self.sync.is_none() {
            return;
        }
        let versions = turn.host.pushed_versions();
        if versions == mem::replace(&mut self.pushed.seen, versions) {
            return;
        }
        let RunningRules { version, refused } = self.pushed.running;
        if versions.refused > 0 && versions.refused != refused {
            self.record_running(RunningRules { version, refused: versions.refused }, turn);
        }
        if versions.version == 0 || versions.version == version {
            return;
        }
        if let Some(rules) = turn.host.parsed(versions.version) {
            return self.take(versions.version, rules, turn);
        }
        let Some(bytes) = turn.host.rules(versions.version) else { return };
        if let Ok(rules) = document::parse(&bytes) {
            self.take(versions.version, rules.into(), turn);
        } else {
            // The worker that stored it could read it. If it is still wanted, it is fetched again.
            turn.log(LogLevel::Warn, format!("rule set {} in shared data is unreadable", versions.version));
        }
    }

    fn take(&mut self, version: u64, rules: Arc<RuleSet>, turn: &mut EngineCall<'_>) {
        if let Some(client) = &mut self.limiter.sync {
            // Newer than the replies to this worker's reports so far.
            client.versions.observe_version(version, client.sequence);
        }
        self.put_in_force(version, rules, turn);
    }

    pub(super) fn fetched(&mut self, number: u64, version: u64, answer: CallResult, turn: &mut EngineCall<'_>) {
        let mut wanted = 0;
        if let Some(client) = &mut self.limiter.sync {
            client.calls.end(number, CallPurpose::Rules(version));
            wanted = client.versions.wanted;
        }
        let document = match answer {
            Ok(document) => document,
            Err(Unread::Failed(trouble) | Unread::NotMade(trouble)) => {
                return self.try_again(trouble, turn);
            }
            Err(Unread::TooLarge(size)) => {
                self.refuse_rules(version, &[too_large(size, ANSWER_BYTES_MAX)], turn);
                return turn.host.end_fetch(turn.now);
            }
        };
        (self.pushed.trouble, self.pushed.failed) = (None, 0);
        let parsed = document::parse(&document).map_err(texts).and_then(|rules| {
            let refusals = turn.host.refusals(&rules);
            if refusals.is_empty() { Ok(Arc::new(rules)) } else { Err(refusals) }
        });
        match parsed {
            // Another worker was faster.
            Ok(_) if self.pushed.running.version == wanted => {}
            Ok(rules) => {
                turn.host.keep_parsed(version, &rules);
                self.put_in_force(version, rules, turn);
                self.share(version, &document, turn.host);
            }
            Err(errors) => self.refuse_rules(version, &errors, turn),
        }
        turn.host.end_fetch(turn.now);
    }

    fn share(&mut self, version: u64, document: &[u8], host: &mut dyn Host) {
        let versions = PushedVersions { version, refused: self.pushed.running.refused };
        if host.set_rules(version, document) {
            host.set_pushed_versions(versions);
            self.pushed.seen = versions;
        }
    }

    /// Puts `rules` into force for every request from now on.
    fn put_in_force(&mut self, version: u64, rules: Arc<RuleSet>, turn: &mut EngineCall<'_>) {
        let (before, count) = (self.rules().rules().len(), rules.rules().len());
        self.answers = rules.rules().iter().map(RuleReplies::of).collect();
        // The counts belong to the rules that counted.
        turn.effects.push(Effect::NewRules(mem::replace(self.counters(), Counters::new(before))));
        self.pushed.next_end_ms = rules.next_end_ms();
        self.limiter.replace_rules(rules);
        self.end_conditions(turn);
        self.record_running(RunningRules { version, refused: self.pushed.running.refused }, turn);
        turn.log(LogLevel::Info, format!("rule set {version} is in force, of {count} rules"));
    }

    fn refuse_rules(&mut self, version: u64, errors: &[String], turn: &mut EngineCall<'_>) {
        for error in errors {
            turn.log(LogLevel::Error, format!("rule set {version}: {error}"));
        }
        let then = "is refused: correct the places above; keeping the previous configuration";
        turn.log(LogLevel::Error, format!("rule set {version} {then}"));
        self.record_running(RunningRules { version: self.pushed.running.version, refused: version }, turn);
        turn.host.set_refusal(version, &reason(errors));
        let versions = PushedVersions { refused: version, ..turn.host.pushed_versions() };
        turn.host.set_pushed_versions(versions);
    }

    fn try_again(&mut self, trouble: String, turn: &mut EngineCall<'_>) {
        let interval_ms = u64::from(self.pace.interval_ms);
        // Ticks are sometimes a little early.
        let after_ns = |ms: u64| (ms * 10).saturating_sub(interval_ms) * 100_000;
        let backed_off_ns = after_ns(doubled_ms(interval_ms, self.pushed.failed).into());
        let next = (turn.now + after_ns(interval_ms)).max(self.pushed.began_at + backed_off_ns);
        turn.host.end_fetch(next);
        self.pushed.failed = self.pushed.failed.saturating_add(1);
        if self.pushed.trouble.as_ref() != Some(&trouble) {
            let then = "keeping the previous configuration; it is tried again";
            turn.log(LogLevel::Warn, format!("no rule set: {trouble}; {then}"));
        }
        self.pushed.trouble = Some(trouble);
    }

    fn record_running(&mut self, running: RunningRules, turn: &mut EngineCall<'_>) {
        self.pushed.running = running;
        if let Some(client) = &mut self.limiter.sync {
            client.versions.run(running, turn.now);
        }
        turn.effects.push(Effect::Running(running));
    }
}

fn doubled_ms(first_ms: u64, times: u32) -> u32 {
    let most_ms = u64::from(FETCH_TIMEOUT_MS_MAX);
    let ms = first_ms.min(most_ms) << times.min(16);
    u32::try_from(ms.min(most_ms)).unwrap_or(FETCH_TIMEOUT_MS_MAX)
}

/// The first error, and the number of others, cut to the maximum length in a status.
fn reason(errors: &[String]) -> String {
    let more = match errors.len() {
        0 | 1 => String::new(),
        len => format!(" (and {} more)", len - 1),
    };
    let first = errors.first().map_or("", String::as_str);
    let end = first.floor_char_boundary(REFUSAL_MAX.saturating_sub(more.len()));
    format!("{}{more}", first.get(..end).unwrap_or_default())
}

// An engine that reports for all workers of a program, where these share its memory. Its host passes it no requests. It
// gathers from each worker before each of its ticks that reports, and once more before the workers tick, so that its
// next report includes the demand in between. After its ticks and replies, the workers drop cached refusals of the
// changed keys.

impl Engine {
    pub fn become_reporter(&mut self) {
        self.limiter.local_cache.record_forgotten();
    }

    /// True if the next tick reports.
    pub fn is_about_to_report(&self) -> bool {
        self.pace.ticks.wrapping_add(1).is_multiple_of(self.pace.ticks_per_interval.max(1))
    }

    /// Takes over the worker's unreported keys. The worker keeps and reports strict rules' keys, and keys without room.
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
