//! A panic in the middle of a decision costs that decision, and no other.

use super::*;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Slots of which one call panics.
struct Breaking<'a> {
    slots: &'a mut LocalSlots,
    calls_left: u32,
}

impl Breaking<'_> {
    fn call(&mut self) -> &mut LocalSlots {
        self.calls_left = self.calls_left.checked_sub(1).expect("a broken host");
        self.slots
    }
}

impl Slots for Breaking<'_> {
    fn read(&mut self, index: u32, into: &mut Slot) -> Result<Version, ReadError> {
        self.call().read(index, into)
    }

    fn write(&mut self, index: u32, slot: &mut Slot, version: Version) -> Result<(), WriteError> {
        self.call().write(index, slot, version)
    }

    fn count(&self) -> u32 {
        self.slots.count()
    }
}

#[test]
fn what_comes_after_a_panic_is_limited() {
    for calls_left in [0, 1] {
        let (mut limiter, mut slots) = (limiter(one_rule("1/h", 10), None), LocalSlots::new(8));
        assert_eq!(admitted(&mut limiter, &mut slots, "192.0.2.1", 4, T0), 4);
        let asked = catch_unwind(AssertUnwindSafe(|| {
            let mut breaking = Breaking { slots: &mut slots, calls_left };
            allows(&mut limiter, &mut breaking, "192.0.2.1", T0)
        }));
        assert!(asked.is_err());
        assert_eq!(admitted(&mut limiter, &mut slots, "192.0.2.1", 20, T0), 6, "{calls_left}");
        assert_eq!(admitted(&mut limiter, &mut slots, "192.0.2.2", 20, T0), 10, "{calls_left}");
    }
}

/// What a panic leaves behind between two hits.
#[test]
fn the_terms_that_a_panic_took_along_are_made_anew() {
    let (mut limiter, mut slots) = (limiter(one_rule("1/h", 10), None), LocalSlots::new(8));
    assert_eq!(admitted(&mut limiter, &mut slots, "192.0.2.1", 4, T0), 4);
    drop(core::mem::take(&mut limiter.terms));
    assert_eq!(admitted(&mut limiter, &mut slots, "192.0.2.1", 20, T0), 6);
}
