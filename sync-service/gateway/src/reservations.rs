//! Reservations: allowed checks whose cost the caller settles later.
//!
//! A reservation is kept here until it expires, first as open and then as settled, so that a repeated settlement counts
//! once. Its name begins with the gateway's name, so that another gateway can name the right one.
//!
//! Callers share the maximum number of open reservations by dynamic thresholds: a caller may open another one while it
//! has fewer than are free (Choudhury and Hahne, "Dynamic Queue Length Thresholds for Shared-Memory Packet Switches",
//! 1998). One greedy caller thus leaves half of them free, two leave a third, and another caller always finds room.

use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, Mutex};

use thiserror::Error;
use weir_limiter::engine::OpenRequest;
use weir_protocol::time::Time;
use weir_store::lock;

pub(crate) const RESERVED_S_MAX: u32 = 600;
/// Maximum number of open reservations per worker: half of what its engine can hold of strict rules.
const OPEN_MAX: usize = weir_limiter::sync::OWN_MAX / 2;
/// Maximum number of settled reservations that are remembered. Beyond it, the oldest are forgotten.
const SETTLED_MAX: usize = 65_536;

pub(super) struct Reservations {
    prefix: String,
    open_max: usize,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    by_number: HashMap<u128, (Time, Stage)>,
    /// All reservations by the time at which they expire.
    ends: BTreeSet<(Time, u128)>,
    /// Settled reservations by the time at which they expire.
    settled: BTreeSet<(Time, u128)>,
    /// Number of reservations that are open or being decided.
    open: usize,
    /// Number of these by caller, if several callers share them.
    of_askers: HashMap<Arc<str>, usize>,
}

enum Stage {
    Open(Box<Reservation>),
    Settled(u32),
}

pub(super) struct Reservation {
    pub(super) worker: usize,
    pub(super) open: OpenRequest,
    pub(super) hits: u32,
    /// Caller that it counts for; set by [`Reservations::keep`].
    pub(super) asker: Option<Arc<str>>,
}

/// Room for one reservation. It is released on drop unless it was used.
pub(super) struct Room<'a> {
    all: &'a Reservations,
    asker: Option<Arc<str>>,
    is_used: bool,
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        if !self.is_used {
            lock(&self.all.known).close(self.asker.as_ref());
        }
    }
}

/// Actual cost of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settlement {
    /// Name of the reservation, from the answer to the check.
    pub reservation: String,
    /// Cost, in the unit of the check.
    pub cost: u32,
}

/// Reason why a reservation cannot be settled.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SettleError {
    /// It has expired, was settled long ago, or never existed.
    #[error(
        "no such reservation: it has expired, and its estimate stays charged, or it was never made; settle within the \
         reserve_s of its check"
    )]
    Unknown,
    /// It belongs to the gateway with this name, `region/replica`.
    #[error("the gateway {0} made this reservation: settle it there")]
    Elsewhere(String),
    /// It was settled with this different cost.
    #[error("it was settled before with a cost of {0}, which counts")]
    Settled(u32),
}

impl Reservations {
    pub(super) fn new(gateway: &str, workers: usize) -> Self {
        Self { prefix: format!("{gateway}:"), open_max: OPEN_MAX * workers, known: Mutex::default() }
    }

    /// Reserves room for `asker`, if several callers share the reservations. Fails with the reason if there is none.
    pub(super) fn room(&self, asker: Option<&str>) -> Result<Room<'_>, String> {
        let mut known = lock(&self.known);
        let free = self.open_max.saturating_sub(known.open);
        if free == 0 {
            let most = "the most that there may be: settle them, or reserve for less long";
            return Err(format!("{} reservations are open, {most}", known.open));
        }
        let asker = asker.map(Arc::from);
        if let Some(asker) = &asker {
            let own = known.of_askers.get(asker).copied().unwrap_or(0);
            if own >= free {
                let most = "no more are free for all: settle them, or reserve for less long";
                return Err(format!("{own} reservations of this token are open, and {most}"));
            }
            known.of_askers.insert(Arc::clone(asker), own + 1);
        }
        known.open += 1;
        Ok(Room { all: self, asker, is_used: false })
    }

    /// Stores a reservation until it expires, and returns its name.
    pub(super) fn keep(&self, mut room: Room<'_>, mut reserved: Reservation, expires_at: Time) -> String {
        (room.is_used, reserved.asker) = (true, room.asker.take());
        let random = || u128::from(RandomState::new().hash_one(reserved.open.id()));
        let number = random() << 64 | random();
        let mut known = lock(&self.known);
        known.by_number.insert(number, (expires_at, Stage::Open(Box::new(reserved))));
        known.ends.insert((expires_at, number));
        format!("{}{number:032x}", self.prefix)
    }

    /// Settles the reservation of this name. Returns `None` if the same settlement was carried out before.
    pub(super) fn settle(&self, name: &str, cost: u32, now: Time) -> Result<Option<Box<Reservation>>, SettleError> {
        let Some(number) = name.strip_prefix(&self.prefix) else {
            let gateway = name.rsplit_once(':').map(|(gateway, _)| gateway.to_owned());
            return Err(gateway.map_or(SettleError::Unknown, SettleError::Elsewhere));
        };
        let number = u128::from_str_radix(number, 16).map_err(|_| SettleError::Unknown)?;
        let mut known = lock(&self.known);
        let known = &mut *known;
        let found = known.by_number.get_mut(&number).filter(|(expires_at, _)| now < *expires_at);
        let (expires_at, stage) = found.ok_or(SettleError::Unknown)?;
        match std::mem::replace(stage, Stage::Settled(cost)) {
            Stage::Open(reserved) => {
                let expires_at = *expires_at;
                known.close(reserved.asker.as_ref());
                known.settled.insert((expires_at, number));
                known.forget_settled();
                Ok(Some(reserved))
            }
            Stage::Settled(before) => {
                *stage = Stage::Settled(before);
                if before == cost { Ok(None) } else { Err(SettleError::Settled(before)) }
            }
        }
    }

    /// Removes all reservations that have expired by `now`, and returns those that were open.
    pub(super) fn expired(&self, now: Time) -> Vec<Reservation> {
        let mut known = lock(&self.known);
        let mut expired = Vec::new();
        while let Some((_, number)) = known.ends.first().copied().filter(|(expires_at, _)| *expires_at <= now) {
            expired.extend(known.forget(number));
        }
        expired
    }
}

impl Known {
    /// Removes a reservation. Returns it if it was open.
    fn forget(&mut self, number: u128) -> Option<Reservation> {
        let (expires_at, stage) = self.by_number.remove(&number)?;
        self.ends.remove(&(expires_at, number));
        self.settled.remove(&(expires_at, number));
        let Stage::Open(reserved) = stage else { return None };
        self.close(reserved.asker.as_ref());
        Some(*reserved)
    }

    fn close(&mut self, asker: Option<&Arc<str>>) {
        self.open -= 1;
        let Some(asker) = asker else { return };
        if let Some(own) = self.of_askers.get_mut(asker) {
            *own -= 1;
            if *own == 0 {
                self.of_askers.remove(asker);
            }
        }
    }

    /// Limits the number of settled reservations: the one that expires first is removed.
    fn forget_settled(&mut self) {
        if self.settled.len() > SETTLED_MAX
            && let Some((_, number)) = self.settled.first().copied()
        {
            self.forget(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_protocol::time::SECOND_NS;

    const T0: Time = Time::from_nanos(SECOND_NS);

    fn kept(all: &Reservations, id: u32, expires_at: Time) -> String {
        let reserved = Reservation { worker: 0, open: OpenRequest::new(id), hits: 1, asker: None };
        all.keep(all.room(None).unwrap(), reserved, expires_at)
    }

    #[test]
    fn only_so_many_are_remembered_as_settled() {
        let all = Reservations::new("fra/a", 1);
        let open: Vec<_> = (0..9).map(|n| kept(&all, n, T0 + 9)).collect();
        let count = SETTLED_MAX as u64 + 10;
        let names: Vec<_> = (0..count)
            .map(|n| {
                let name = kept(&all, 0, T0 + SECOND_NS + n);
                assert!(all.settle(&name, 1, T0).is_ok());
                name
            })
            .collect();
        let lens = |known: &Known| (known.by_number.len(), known.settled.len());
        assert_eq!(lens(&lock(&all.known)), (SETTLED_MAX + 9, SETTLED_MAX));
        assert_eq!(all.settle(&names[9], 1, T0).err(), Some(SettleError::Unknown));
        assert!(matches!(all.settle(&names[10], 1, T0), Ok(None)));
        assert!(open.iter().all(|name| all.settle(name, 1, T0).is_ok()), "those that are open stay");
        assert_eq!((all.expired(T0 + 2 * SECOND_NS).len(), lock(&all.known).settled.len()), (0, 0));
    }
}
