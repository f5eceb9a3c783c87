//! Requests that wait for their turn in a leaky bucket.

use alloc::collections::BinaryHeap;
use core::cmp::Reverse;

use weir_protocol::time::Time;

/// Most requests of one worker that are held at once. Any beyond go on without waiting, or are refused if the
/// turn is from the fleet's queue.
const HELD_MAX: usize = 10_000;

/// The held requests of one worker, ordered by their turns.
pub(super) struct Holding {
    by_turn: BinaryHeap<Reverse<(Time, u32)>>,
    most: usize,
}

impl Default for Holding {
    fn default() -> Self {
        Self { by_turn: BinaryHeap::new(), most: HELD_MAX }
    }
}

impl Holding {
    /// Stops holding requests, because nothing would resume them.
    pub(super) fn hold_nothing(&mut self) {
        self.most = 0;
    }

    /// True if one more request can be held.
    pub(super) fn has_room(&self) -> bool {
        self.by_turn.len() < self.most
    }

    /// Holds the request `id` until `turn`; false if there is no room.
    pub(super) fn hold(&mut self, id: u32, turn: Time) -> bool {
        let has_room = self.has_room();
        if has_room {
            self.by_turn.push(Reverse((turn, id)));
        }
        has_room
    }

    /// True if no request is held.
    pub(super) fn is_empty(&self) -> bool {
        self.by_turn.is_empty()
    }

    /// Removes and returns the request with the earliest turn, if that has come at `now`. Its client may have
    /// left meanwhile.
    pub(super) fn next_due(&mut self, now: Time) -> Option<u32> {
        let Reverse((turn, _)) = self.by_turn.peek()?;
        if *turn > now {
            return None;
        }
        self.by_turn.pop().map(|Reverse((_, id))| id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;

    fn due(holding: &mut Holding, at: u64) -> Vec<u32> {
        core::iter::from_fn(|| holding.next_due(Time::from_nanos(at))).collect()
    }

    #[test]
    fn requests_go_on_in_the_order_of_their_turns_and_their_number_is_bounded() {
        let at = Time::from_nanos;
        let mut holding = Holding::default();
        assert!(holding.hold(1, at(30)) && holding.hold(2, at(10)) && holding.hold(3, at(20)));
        assert_eq!(
            (due(&mut holding, 9), due(&mut holding, 20), due(&mut holding, 99)),
            (vec![], vec![2, 3], vec![1])
        );
        assert!((0..HELD_MAX).all(|_| holding.hold(1, at(1))) && !holding.hold(2, at(1)));
        holding.hold_nothing();
        assert_eq!(due(&mut holding, 1).len(), HELD_MAX, "those that are held have their turns");
        assert!(!holding.hold(1, at(1)));
    }
}
