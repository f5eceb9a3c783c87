//! The time of a POP. It goes on where its host's monotonic clock steps back, as when a virtual machine is moved.
//!
//! Whatever is kept with a time (buckets, windows, bans, leases, refusals) is kept by this one. So a step back gives no
//! token and holds none back: only what passed between the last reading and the step is lost. Workers share how far the
//! host's clock is behind, as they share the table.

use super::shared::SharedValue;
use super::site::Site;
use weir_wire::time::{SECOND_NS, Time};

/// A clock that is behind by less has not stepped, in nanoseconds.
const STEP_NS_MIN: u64 = 2 * SECOND_NS;

/// One worker's part of it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Clock {
    /// How far the host's clock is behind the POP's.
    behind_ns: u64,
    latest: Time,
}

impl Clock {
    /// A worker begins when the host's clock reads `read`.
    pub(super) fn begin(site: &mut dyn Site, read: Time) -> Self {
        site.open_value(SharedValue::Behind);
        let behind_ns = site.time(SharedValue::Behind).0.as_nanos();
        Self { behind_ns, latest: read + behind_ns }
    }

    /// The time when the host's clock reads `read`.
    #[cfg_attr(target_arch = "wasm32", inline(never))]
    pub(super) fn time(&mut self, site: &mut dyn Site, read: Time) -> Time {
        if !self.goes_on(self.behind_ns, read) {
            self.step(site, read);
        }
        let now = read + self.behind_ns;
        self.latest = self.latest.max(now);
        now
    }

    /// The same for a look that notes nothing.
    pub(super) fn peek(&self, read: Time) -> Time {
        let behind_ns = if self.goes_on(self.behind_ns, read) { self.behind_ns } else { 0 };
        (read + behind_ns).max(self.latest)
    }

    /// Takes over what another worker has noticed.
    pub(super) fn follow(&mut self, site: &mut dyn Site, read: Time) {
        let known_ns = site.time(SharedValue::Behind).0.as_nanos();
        if self.goes_on(known_ns, read) {
            self.behind_ns = known_ns;
        }
    }

    /// Whether the time goes on if the host's clock is behind by this much. If it reads what the POP's does, it has stepped
    /// back and returned.
    fn goes_on(&self, behind_ns: u64, read: Time) -> bool {
        let is_back = self.latest.nanos_since(read + behind_ns) > STEP_NS_MIN;
        let has_returned = behind_ns > 0 && read >= self.latest;
        !is_back && !has_returned
    }

    /// The host's clock has stepped; another worker may have noticed first. If two notice at once, both [follow](Clock::follow)
    /// the one that shared it last.
    #[cold]
    fn step(&mut self, site: &mut dyn Site, read: Time) {
        let known_ns = site.time(SharedValue::Behind).0.as_nanos();
        if self.goes_on(known_ns, read) {
            self.behind_ns = known_ns;
        } else {
            self.behind_ns = self.latest.nanos_since(read);
            site.set_time(SharedValue::Behind, Time::from_nanos(self.behind_ns));
        }
    }
}
