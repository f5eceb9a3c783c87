//! Seats of a listener, and the choice of the connection that is closed to make room.
//!
//! A connection is *known* once it has shown a token or a certificate, and a *guest* before. An eighth of the seats is
//! reserved for guests. So a newcomer finds a seat whatever the known connections do, and no known connection is closed
//! for a guest. Among guests, the address with the most connections loses one. Among known connections, one is closed
//! when another becomes known. In both cases, the connection that has been idle longest is closed; a connection whose
//! complete request is being answered never is.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::Notify;

use crate::lock;

/// One in this many seats is reserved for guests.
const GUESTS_PART: usize = 8;

#[derive(Debug)]
pub(super) struct Seats {
    known_max: usize,
    taken: Mutex<Taken>,
    /// Notified when another connection begins to wait.
    pub(super) begins: Notify,
}

#[derive(Debug, Default)]
struct Taken {
    turns: u64,
    known: Group,
    guests: HashMap<IpAddr, Group>,
}

#[derive(Debug, Default)]
struct Group {
    count: usize,
    /// Connections that wait for a request, in the order in which they began to wait.
    waiting: BTreeMap<u64, Arc<Notify>>,
}

impl Group {
    /// Closes the connection that has waited longest. Returns false if none waits.
    fn close_longest(&mut self) -> bool {
        self.waiting.pop_first().map(|(_, close)| close.notify_one()).is_some()
    }
}

impl Taken {
    fn group(&mut self, seat: &Seat) -> &mut Group {
        if seat.is_known() { &mut self.known } else { self.guests.entry(seat.network).or_default() }
    }

    fn wait(&mut self, seat: &Seat) {
        self.turns += 1;
        seat.turn.store(self.turns, Ordering::Relaxed);
        let turn = self.turns;
        self.group(seat).waiting.insert(turn, Arc::clone(&seat.close));
    }

    fn wait_no_more(&mut self, seat: &Seat) {
        self.group(seat).waiting.remove(&seat.turn.load(Ordering::Relaxed));
    }

    fn leave(&mut self, seat: &Seat) {
        self.wait_no_more(seat);
        let group = self.group(seat);
        group.count = group.count.saturating_sub(1);
        if group.count == 0 && !seat.is_known() {
            self.guests.remove(&seat.network);
        }
    }
}

impl Seats {
    pub(super) fn new(seats_max: usize) -> Self {
        let known_max = seats_max - seats_max.div_ceil(GUESTS_PART);
        Self { known_max, taken: Mutex::default(), begins: Notify::new() }
    }

    /// Closes a guest to make room. Returns false if none waits for a request.
    pub(super) fn close_guest(&self) -> bool {
        let mut taken = lock(&self.taken);
        let waiting = taken.guests.values_mut().filter(|group| !group.waiting.is_empty());
        let oldest = |group: &Group| group.waiting.keys().next().copied().unwrap_or(u64::MAX);
        let most = waiting.max_by_key(|group| (group.count, u64::MAX - oldest(group)));
        most.is_some_and(Group::close_longest)
    }
}

/// Network that counts as one address: a /64 for IPv6, the address itself for IPv4.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        address @ IpAddr::V4(_) => address,
    }
}

#[derive(Debug)]
pub(super) struct Seat {
    seats: Arc<Seats>,
    network: IpAddr,
    pub(super) close: Arc<Notify>,
    is_known: AtomicBool,
    turn: AtomicU64,
    requests: AtomicU32,
    open: Gauge,
}

impl Seat {
    /// Takes a seat for a waiting guest at `address`.
    pub(super) fn new(seats: &Arc<Seats>, address: IpAddr, open: &Gauge) -> Self {
        let seat = Self {
            seats: Arc::clone(seats),
            network: network(address),
            close: Arc::default(),
            is_known: AtomicBool::new(false),
            turn: AtomicU64::new(0),
            requests: AtomicU32::new(0),
            open: open.clone(),
        };
        seat.open.inc();
        let mut taken = lock(&seat.seats.taken);
        taken.group(&seat).count += 1;
        taken.wait(&seat);
        drop(taken);
        seat.seats.begins.notify_waiters();
        seat
    }

    /// True once the connection has shown a token or a certificate and found room among the known ones.
    pub(super) fn is_known(&self) -> bool {
        self.is_known.load(Ordering::Relaxed)
    }

    /// Makes the connection a known one. If there is no room, closes a waiting known connection; if none waits, the
    /// connection stays a guest.
    pub(super) fn become_known(&self) {
        let mut taken = lock(&self.seats.taken);
        if self.is_known() || (taken.known.count >= self.seats.known_max && !taken.known.close_longest()) {
            return;
        }
        taken.leave(self);
        self.is_known.store(true, Ordering::Relaxed);
        taken.known.count += 1;
        if !self.is_busy() {
            taken.wait(self);
        }
    }

    pub(super) fn is_busy(&self) -> bool {
        self.requests.load(Ordering::Relaxed) > 0
    }

    /// Begins a complete request. The counter changes under the lock: another request may end at the same time.
    pub(super) fn begin(&self) {
        let mut taken = lock(&self.seats.taken);
        if self.requests.fetch_add(1, Ordering::Relaxed) == 0 {
            taken.wait_no_more(self);
        }
    }

    pub(super) fn end(&self) {
        let mut taken = lock(&self.seats.taken);
        if self.requests.fetch_sub(1, Ordering::Relaxed) == 1 {
            taken.wait(self);
            drop(taken);
            self.seats.begins.notify_waiters();
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.open.dec();
        lock(&self.seats.taken).leave(self);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    fn seat(seats: &Arc<Seats>, address: &str) -> Arc<Seat> {
        Arc::new(Seat::new(seats, address.parse().unwrap(), &Gauge::default()))
    }

    fn is_closed(seat: &Seat) -> bool {
        seat.close.notified().now_or_never().is_some()
    }

    #[test]
    fn the_address_with_most_guests_loses_its_oldest() {
        let seats = Arc::new(Seats::new(8));
        let first = seat(&seats, "192.0.2.1");
        let many = ["2001:db8::1", "2001:db8::2", "2001:db8::3"].map(|address| seat(&seats, address));
        many[0].begin();
        assert!(seats.close_guest() && is_closed(&many[1]), "one of a /64");
        assert!(seats.close_guest() && is_closed(&many[2]));
        assert!(seats.close_guest() && is_closed(&first), "the others are being answered, or closed");
        assert!(!seats.close_guest());
        many[0].end();
        assert!(seats.close_guest() && is_closed(&many[0]));
    }

    #[test]
    fn a_known_client_makes_room_for_known_ones_only() {
        let seats = Arc::new(Seats::new(4));
        let known: Vec<_> = (0..3).map(|_| seat(&seats, "192.0.2.1")).collect();
        for seat in &known {
            seat.become_known();
        }
        assert!(!seats.close_guest(), "there is no guest");
        let guest = seat(&seats, "192.0.2.2");
        for seat in &known {
            seat.begin();
        }
        guest.become_known();
        assert!(!guest.is_known(), "all others are being answered");
        for seat in &known {
            seat.end();
        }
        guest.become_known();
        assert!(guest.is_known() && is_closed(&known[0]) && !is_closed(&known[1]));
        drop((known, guest));
        let taken = lock(&seats.taken);
        assert_eq!((taken.known.count, taken.known.waiting.len(), taken.guests.len()), (0, 0, 0));
    }
}
