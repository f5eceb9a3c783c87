//! Tokens that a request took in one slot before another slot refused it.

use super::*;

fn host_and_net() -> RuleSet {
    with_host_rate("1/m")
}

fn with_host_rate(rate: &str) -> RuleSet {
    rules(&json!([
        {"name": "host", "key": [{"client_address": {"ipv4": 32}}], "rate": rate, "burst": 5},
        {"name": "net", "key": [{"client_address": {"ipv4": 24}}], "rate": "1/m", "burst": 5},
    ]))
}

/// Asks while another host uses up the net between `mine`'s reads and its writes.
fn refused_by_the_net(mine: &mut Limiter, mut other: Limiter, slots: &mut LocalSlots) {
    let mut turns = 0;
    let mut interloper = |slots: &mut LocalSlots| {
        turns += 1;
        if turns == 2 {
            assert_eq!(admitted(&mut other, slots, "192.0.2.9", 5, T0), 5);
        }
    };
    let mut contended = Contended { slots, interloper: RefCell::new(&mut interloper) };
    assert!(!allows(mine, &mut contended, "192.0.2.1", T0));
}

// I3
#[test]
fn a_refusal_in_a_later_slot_refunds_an_earlier_one() {
    let (mut mine, mut slots) = (limiter(host_and_net(), None), LocalSlots::new(1_024));
    refused_by_the_net(&mut mine, limiter(host_and_net(), None), &mut slots);
    // The host's own bucket is full: once the net has refilled, all five tokens are there.
    let later = T0 + 300 * SECOND_NS;
    let mut fresh = limiter(host_and_net(), None);
    assert_eq!(admitted(&mut fresh, &mut slots, "192.0.2.1", 9, later), 5);
    assert_eq!(mine.counters().take_rule(0).allowed, 0);
}

/// Slots that fail at the first write; another worker writes before the second.
struct Failing<'a> {
    slots: &'a mut LocalSlots,
    writes: u32,
    interloper: &'a mut dyn FnMut(&mut LocalSlots),
}

impl Slots for Failing<'_> {
    fn read(&mut self, index: u32, into: &mut Slot) -> Result<Version, ReadError> {
        self.slots.read(index, into)
    }

    fn write(&mut self, i: u32, slot: &mut Slot, v: Version) -> Result<(), WriteError> {
        self.writes += 1;
        match self.writes {
            1 => return Err(WriteError::Unavailable),
            2 => (self.interloper)(self.slots),
            _ => {}
        }
        self.slots.write(i, slot, v)
    }

    fn count(&self) -> u32 {
        self.slots.count()
    }
}

// I3
#[test]
fn tokens_that_were_never_written_are_not_refunded() {
    let [mut mine, mut other] = [(); 2].map(|()| limiter(host_and_net(), None));
    let mut slots = LocalSlots::new(1_024);
    assert_eq!(admitted(&mut mine, &mut slots, "192.0.2.1", 1, T0), 1);
    let mut interloper = |slots: &mut LocalSlots| {
        assert_eq!(admitted(&mut other, slots, "192.0.2.9", 5, T0), 4);
    };
    let mut failing = Failing { slots: &mut slots, writes: 0, interloper: &mut interloper };
    assert!(!allows(&mut mine, &mut failing, "192.0.2.1", T0));
    assert!(failing.writes >= 2);
    // The host is still charged for one request: counted alone, it has four left.
    let alone = rules(&json!([
        {"name": "host", "key": [{"client_address": {"ipv4": 32}}], "rate": "1/m", "burst": 5},
    ]));
    assert_eq!(admitted(&mut limiter(alone, None), &mut slots, "192.0.2.1", 9, T0), 4);
}
