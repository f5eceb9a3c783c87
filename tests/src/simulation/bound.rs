//! The overshoot bound of a fleet: tokens that it may admit beyond burst + rate x t, in any span of time.

use weir_budget::bound;
use weir_limiter::sync::connectivity::FALLBACK_NS;
use weir_protocol::quota::Quota;
use weir_protocol::sharing::{OnSyncLoss, Sharing};
use weir_protocol::time::SECOND_NS;

use super::pop::Pop;
use super::setup::Setup;

/// Parameters of the bound beside the rule.
#[derive(Clone, Copy, Debug)]
pub struct Fleet {
    /// POPs.
    pub pops: usize,
    /// Time for which a POP acts on the same news while nothing is wrong, in nanoseconds.
    pub reach_ns: u64,
}

/// A bound: tokens above burst + rate x t.
pub type Bound = fn(Quota, &Sharing, Fleet) -> f64;

/// The bound that is documented and exported, for news as old as it gets while nothing is wrong.
#[allow(clippy::cast_precision_loss, reason = "a bound of some thousands")]
pub fn bound(quota: Quota, sharing: &Sharing, fleet: Fleet) -> f64 {
    let pops = u32::try_from(fleet.pops).expect("few POPs");
    let reach = bound::FleetParameters { pops, interval_ns: fleet.reach_ns, trip_ns: 0, timeout_ns: 0, failures: 0 };
    bound::bound(quota, sharing, &reach) as f64
}

/// Time for which a POP may still use its last grants after its news is late, in nanoseconds.
const UNDER_WAY_NS: u64 = 2 * SECOND_NS;
/// The amount that it may admit meanwhile, as a multiple of the refill; the bound counts news under way the same way.
const UNDER_WAY_TIMES: f64 = 2.0;

/// The age of a POP's news beyond the bound's assumption, in nanoseconds, divided by the POP's mode meanwhile.
#[derive(Clone, Copy, Debug, Default)]
pub struct Age {
    /// In all.
    pub late_ns: u64,
    /// For how much of that its weir-sync answered without reaching the store: with the region's share.
    storeless_ns: u64,
    /// For how much of that the POP has gone by its rules' `on_sync_loss`.
    alone_ns: u64,
}

impl Age {
    /// The amount that a POP in a fleet of `pops` may have admitted meanwhile, unknown to all others, in nanoseconds of
    /// refill.
    #[allow(clippy::cast_precision_loss, reason = "a figure to look at")]
    pub fn lent_ns(&self, when: OnSyncLoss, pops: usize) -> f64 {
        let share = 1.0 / pops as f64;
        let alone = match when {
            OnSyncLoss::Local => 1.0,
            OnSyncLoss::Share => share,
            OnSyncLoss::Deny => 0.0,
        };
        let under_way_ns = self.late_ns.min(UNDER_WAY_NS);
        let silent_ns = self.late_ns.saturating_sub(under_way_ns + self.storeless_ns + self.alone_ns);
        let times =
            [(under_way_ns, UNDER_WAY_TIMES), (silent_ns, 1.0), (self.storeless_ns, share), (self.alone_ns, alone)];
        times.iter().map(|(ns, times)| *ns as f64 * times).sum()
    }
}

/// A loop has settled after this time, ...
const SETTLES_NS: u64 = 4 * SECOND_NS;
/// ... and this many times the age of its news.
const SETTLES_TIMES: u64 = 2;

impl Setup {
    /// The age that a POP's news may reach while nothing is wrong, in nanoseconds: a report is lost now and then.
    pub fn reach_ns(&self) -> u64 {
        2 * self.interval_ns + self.round_trip_ns()
    }

    /// The longest way from a POP to the store and back, in nanoseconds.
    pub fn round_trip_ns(&self) -> u64 {
        2 * [self.near, self.far].iter().map(|link| link.delay_ns + link.jitter_ns).sum::<u64>()
    }

    /// Time after its last fault has healed until a fleet is as if there had been none, in nanoseconds: late messages
    /// have arrived or timed out, demand is measured anew, and grants are current.
    pub fn recovery_ns(&self) -> u64 {
        4 * SECOND_NS + 2 * self.reach_ns()
    }

    /// Time for which a client that was not known may overdraw its budget, in nanoseconds: until the loop has settled.
    pub fn settling_ns(&self) -> u64 {
        SETTLES_NS + SETTLES_TIMES * self.reach_ns()
    }

    /// The age of the news of `pop` at `now`.
    pub fn age(&self, pop: &Pop, now: u64) -> Age {
        let (news_ns, reply_ns) = (now.saturating_sub(pop.news_at), now.saturating_sub(pop.replied_at));
        let late_ns = news_ns.saturating_sub(self.reach_ns());
        let long_ns = late_ns.saturating_sub(UNDER_WAY_NS);
        let alone_ns = reply_ns.saturating_sub(FALLBACK_NS + self.reach_ns()).min(long_ns);
        // After its weir-sync's last reply, it used the grants that it held.
        let storeless_ns = news_ns.saturating_sub(reply_ns + UNDER_WAY_NS).min(long_ns - alone_ns);
        Age { late_ns, storeless_ns, alone_ns }
    }
}
