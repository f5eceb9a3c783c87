//! What requests take of strict budgets themselves.

use super::*;
use crate::fleet::ConsumeReply;
use weir_protocol::messages::Leased;

#[test]
fn what_was_taken_is_not_given_back_to_a_lease() {
    let each = json!({"name": "each", "key": ["client_address"], "rate": "1/h", "burst": 2});
    let both = json!([{"name": "all", "key": ["all"], "rate": "1/h", "burst": 100, "strict": true}, each]);
    let (mut mine, mut slots) = (limiter(rules(&both), Some(1)), LocalSlots::new(64));
    let mut other = limiter(rules(&json!([each])), None);
    // One token was leased, and is spent.
    let (report, draw) = waiting_for(ask(&mut mine, &mut slots, "192.0.2.1", T0));
    let grants = vec![Allowance::Leased(Leased::of(1, 2_000)); report.keys.len()];
    let reply =
        Reply { sequence: report.sequence, pops: 1, settled: Settled::All, grants, ..Reply::default() };
    assert!(mine.drawn(draw, &reply.encode(), &mut slots, T0).unwrap());
    let mut client = Client("192.0.2.1".into());
    assert_eq!(mine.decide_again(true, &mut client, &mut slots, T0).outcome(), DecisionKind::Allow);
    // The next request takes one. When that is there, another worker spends the client's last token in between.
    mine.let_take();
    let Decision::Take(take) = mine.decide(&mut client, &mut slots, T0) else { panic!("it does not take") };
    let mut turns = 0;
    let mut interloper = |slots: &mut LocalSlots| {
        turns += 1;
        if turns == 2 {
            assert!(allows(&mut other, slots, "192.0.2.1", T0));
        }
    };
    let mut contended = Contended { slots: &mut slots, interloper: RefCell::new(&mut interloper) };
    let taken = Some(ConsumeReply { is_taken: true, left: 98, wait_ms: 0 });
    let refused = mine.decide_taken(&take, taken, &mut client, &mut contended, T0);
    assert_eq!(refused.strictest().unwrap().0, RuleIndex::new(1));
    assert_eq!(refused.outcome(), DecisionKind::Limit);
    assert_eq!(mine.counters().take_event(CountedEvent::CasRetried), 1);
    let next = ask(&mut mine, &mut slots, "192.0.2.2", T0);
    assert_eq!(next.outcome(), DecisionKind::Wait, "the lease has no token for it");
}
