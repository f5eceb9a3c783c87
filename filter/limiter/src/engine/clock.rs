//! The time of a POP. It continues when its host's monotonic clock steps back, for example because a virtual machine is
//! moved, and when a clock that stepped back returns.
//!
//! All stored times (of buckets, windows, bans, leases, refusals) are of this clock. So a step adds no token and
//! withholds none (I8). Workers share the offset of the host's clock, as they share the table. The first worker that
//! notices a step sets the offset by its own last reading, so at most a tick's refill is lost. Continuing from the
//! latest reading of all workers would add tokens: a key could be full by the first worker's time, and refill again by
//! the difference. Each worker ticks more often than [`STEP_NS_MIN`], so each notices a step before the clock returns.

use super::host::{Host, SharedValue};
use weir_protocol::time::{SECOND_NS, Time};

/// Smallest offset that counts as a step, in nanoseconds.
const STEP_NS_MIN: u64 = 2 * SECOND_NS;

#[derive(Clone, Copy, Debug)]
pub(super) struct WorkerClock {
    /// Nanoseconds by which the host's clock is behind the POP's; negative if it is ahead.
    behind_ns: i64,
    read: Time,
    /// Nanoseconds after that reading from which the host's clock counts as returned.
    return_ns: u64,
}

impl WorkerClock {
    /// Creates the clock of a worker that starts when the host's clock reads `read`.
    pub(super) fn begin(host: &mut dyn Host, read: Time) -> Self {
        host.open_value(SharedValue::Behind);
        Self::behind(known_ns(host), read)
    }

    fn behind(behind_ns: i64, read: Time) -> Self {
        let return_ns = if behind_ns > 0 { behind_ns } else { i64::MAX };
        Self { behind_ns, read, return_ns: return_ns.cast_unsigned() }
    }

    #[cfg_attr(target_arch = "wasm32", inline(never))]
    pub(super) fn time(&mut self, host: &mut dyn Host, read: Time) -> Time {
        // If a clock stepped back, the difference wraps to more than that.
        if read.as_nanos().wrapping_sub(self.read.as_nanos()) >= self.return_ns {
            return self.time_after_step(host, read);
        }
        self.read = read;
        time_of(read, self.behind_ns)
    }

    /// [`WorkerClock::time`] without recording the reading or a step.
    pub(super) fn peek(&self, read: Time) -> Time {
        let now = if self.goes_on(self.behind_ns, read) { time_of(read, self.behind_ns) } else { Time::ZERO };
        now.max(self.latest())
    }

    pub(super) fn follow(&mut self, host: &mut dyn Host, read: Time) {
        let known_ns = known_ns(host);
        if known_ns != self.behind_ns && self.goes_on(known_ns, read) {
            *self = Self::behind(known_ns, read);
        }
    }

    fn latest(&self) -> Time {
        time_of(self.read, self.behind_ns)
    }

    /// True if time continues with this offset.
    fn goes_on(&self, behind_ns: i64, read: Time) -> bool {
        let is_back = self.latest().nanos_since(time_of(read, behind_ns)) > STEP_NS_MIN;
        let has_returned = behind_ns > 0 && read >= self.latest();
        !is_back && !has_returned
    }

    /// The time of a clock that seems to have stepped. Another worker may have noticed first. If two notice at once,
    /// both [follow](WorkerClock::follow) the one that shared its offset last.
    #[cold]
    fn time_after_step(&mut self, host: &mut dyn Host, read: Time) -> Time {
        if self.goes_on(self.behind_ns, read) {
            return time_of(read, self.behind_ns);
        }
        self.follow(host, read);
        if !self.goes_on(self.behind_ns, read) {
            let behind_ns = self.latest().as_nanos().wrapping_sub(read.as_nanos()).cast_signed();
            host.set_time(SharedValue::Behind, Time::from_nanos(behind_ns.cast_unsigned()));
            *self = Self::behind(behind_ns, read);
        }
        self.latest()
    }
}

/// The POP's time when its host's clock reads `read` and is behind by `behind_ns`.
fn time_of(read: Time, behind_ns: i64) -> Time {
    Time::from_nanos(read.as_nanos().saturating_add_signed(behind_ns))
}

fn known_ns(host: &mut dyn Host) -> i64 {
    host.time(SharedValue::Behind).0.as_nanos().cast_signed()
}
