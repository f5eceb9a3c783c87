//! Watches what is decided, as the reports tell it, and tells the trail.

use std::cmp::Reverse;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};
use weir_wire::messages::Report;

use super::Trail;
use super::event::{Decided, Event};
use super::tally::{Limited, Tally};
use crate::keys::name;
use crate::metrics::Metrics;
use crate::moment;

/// Watches decisions.
#[derive(Debug)]
pub struct Observer {
    trail: Arc<Trail>,
    metrics: Arc<Metrics>,
    tally: Mutex<Tally>,
}

impl Observer {
    /// Tells `trail`.
    pub fn new(trail: Arc<Trail>, metrics: Arc<Metrics>) -> Self {
        Self { trail, metrics, tally: Mutex::default() }
    }

    /// Takes in a report. It is quick, and waits for nothing.
    pub fn hear(&self, report: &Report) {
        if self.trail.is_on() {
            self.tally().hear(moment::now_ms(), report);
        }
    }

    /// Tells of decisions every `every`, until it is aborted.
    pub async fn run(self: Arc<Self>, every: Duration) {
        let mut ticks = interval(every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks.tick().await;
        loop {
            ticks.tick().await;
            self.tell();
        }
    }

    /// Tells of the keys that were limited since the last call, those that were limited most.
    pub fn tell(&self) {
        let pops = self.tally().pops();
        let mut limited = Vec::new();
        for pop in pops {
            // A POP at a time: reports wait for the lock.
            let of_pop = self.tally().take_limited(&pop);
            limited.extend(of_pop.into_iter().map(|of_key| (pop.clone(), of_key)));
        }
        limited.sort_unstable_by_key(|(_, of_key)| Reverse(of_key.counts.limited));
        let rest = limited.split_off(limited.len().min(self.trail.keys_max()));
        for (pop, of_key) in limited {
            self.trail.record(&Event::Decisions(Box::new(decided(pop, &of_key))));
        }
        let without_row = self.tally().take_left_out();
        let tokens = rest.iter().map(|(_, of_key)| of_key.counts.limited).sum::<u64>() + without_row;
        if tokens > 0 {
            self.metrics.trail_left_out.inc_by(tokens);
            self.trail.record(&Event::LeftOut { keys: rest.len(), limited: tokens });
        }
    }

    fn tally(&self) -> MutexGuard<'_, Tally> {
        // Nothing that runs under this lock panics; should it, what it guards is still good.
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn decided(pop: String, Limited { rule, value, counts }: &Limited) -> Decided {
    Decided {
        rule: rule.clone(),
        key: name::show(value),
        address: name::address(value),
        pop,
        admitted: counts.admitted,
        limited: counts.limited,
        first: counts.first_ms,
        last: counts.last_ms,
    }
}
