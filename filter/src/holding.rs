//! Requests that wait for their turn in a leaky bucket.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use weir_limiter::time::Time;

/// The most requests of one worker that are held at once; any beyond go on without waiting.
const HELD_MAX: usize = 10_000;

/// The requests of one worker that are held, by when they are to go on.
pub(crate) struct Holding {
    by_turn: BinaryHeap<Reverse<(Time, u32)>>,
    most: usize,
}

impl Default for Holding {
    fn default() -> Self {
        Self { by_turn: BinaryHeap::new(), most: HELD_MAX }
    }
}

impl Holding {
    /// Holds no request at all.
    pub(crate) fn none() -> Self {
        Self { most: 0, ..Self::default() }
    }

    /// Holds the request of `context` until `turn`; false if there is no room.
    pub(crate) fn hold(&mut self, context: u32, turn: Time) -> bool {
        let has_room = self.by_turn.len() < self.most;
        if has_room {
            self.by_turn.push(Reverse((turn, context)));
        }
        has_room
    }

    /// Whether none is held.
    pub(crate) fn is_empty(&self) -> bool {
        self.by_turn.is_empty()
    }

    /// The contexts whose turn has come at `now`, in the order of their turns. One whose client has left
    /// meanwhile may be among them.
    pub(crate) fn due(&mut self, now: Time) -> Vec<u32> {
        let mut due = Vec::new();
        while let Some(Reverse((turn, context))) = self.by_turn.peek().copied() {
            if turn > now {
                break;
            }
            self.by_turn.pop();
            due.push(context);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_go_on_in_the_order_of_their_turns_and_their_number_is_bounded() {
        let at = Time::from_nanos;
        let mut holding = Holding::default();
        assert!(holding.hold(1, at(30)) && holding.hold(2, at(10)) && holding.hold(3, at(20)));
        assert_eq!(
            (holding.due(at(9)), holding.due(at(20)), holding.due(at(99))),
            (vec![], vec![2, 3], vec![1])
        );
        assert!(!Holding::none().hold(1, at(1)));
        assert!((0..HELD_MAX).all(|_| holding.hold(1, at(1))) && !holding.hold(2, at(1)));
    }
}
