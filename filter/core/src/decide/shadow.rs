//! Rules in shadow, which are judged one by one after the decision.

use super::hit::Scratch;
use super::hit_result::HitDecision;
use crate::limiter::Limiter;
use crate::table::Slots;
use weir_protocol::time::Time;

impl Limiter {
    /// Judges an allowed request by the rules in shadow. The result changes neither the decision nor the
    /// buckets of other rules.
    pub(crate) fn evaluate_shadows(&mut self, scratch: &mut Scratch, slots: &mut dyn Slots, now: Time) {
        self.read_connectivity(now);
        let Scratch { shadow, rooms, .. } = scratch;
        for i in 0..shadow.len() {
            let Some(one) = shadow.get_mut(i..=i) else { break };
            let Some(index) = one.first().map(|hit| hit.slot) else { break };
            let mut loaded = self.load(slots, index, rooms);
            let fits =
                self.evaluate_slot(&mut loaded, one, now) && self.commit(&mut loaded, one, slots, rooms, now);
            let written = [loaded];
            let Some(hit) = one.first() else { break };
            if hit.thinned {
                self.watch.settle(hit.tag, fits);
            }
            if fits {
                self.counters.count(hit.rule, |counts| &mut counts.allowed);
                self.record_end_action(hit, &written, now);
            }
            rooms.extend(written.map(|loaded| loaded.slot));
            if fits {
                continue;
            }
            self.counters.count(hit.rule, |counts| &mut counts.shadow_limited);
            self.would_refuse.push(hit.rule);
            if !hit.watched && hit.judged.tag == hit.tag && !matches!(hit.judged.verdict, HitDecision::Denied)
            {
                self.watch_refused(hit, slots, rooms, now);
            }
        }
    }
}
